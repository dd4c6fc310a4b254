//! `etcdrun secret`.

use std::{
    io::{Read, Write},
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
};

use super::Keys;
use crate::support::program::{Folder, Said};

fn piped(folder: &Folder, args: &[&str], input: &str) -> Said {
    let mut child =
        folder.command(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    Said::of(child.wait_with_output().unwrap())
}

fn edit(folder: &Folder, file: &str, editor: &str) -> Said {
    Said::of(folder.command(&["secret", "edit", file]).env("EDITOR", editor).env_remove("VISUAL").output().unwrap())
}

/// A YAML file with comments and two values, and its keys.
fn vars() -> (Folder, Keys) {
    let folder = Folder::new();
    let keys = Keys::new(&folder);
    folder.write(".age-recipients", &format!("# me\n{}\n", keys.public));
    let [one, two] = ["first-secret", "second\nsecret\n"].map(|plain| keys.value(plain, 2));
    folder.write("vars.yaml", &format!("# top\none: {one}# between\nplain: 1   # kept\ntwo: {two}"));
    (folder, keys)
}

#[test]
fn a_value_is_encrypted_for_pasting() {
    let (folder, _) = vars();
    let said = piped(&folder, &["secret", "encrypt", "--name", "token"], "hunter2-hunter2\n").ends(0);
    assert!(said.stdout.starts_with("token: !age |\n  -----BEGIN AGE ENCRYPTED FILE-----\n"), "{}", said.stdout);
    folder.write("inventory.yaml", "hosts: { h1: {} }\n");
    folder.write("group_vars/all.yaml", &said.stdout);
    let shown = folder.run(&["exec", "all", "-m", "debug", "-a", "msg='{{ token | length }}'"]).ends(0);
    assert!(shown.stdout.contains("15"), "the end of the line is not part of it: {}", shown.stdout);
    let short = piped(&folder, &["secret", "encrypt"], "abc\n").ends(5);
    assert!(short.stderr.contains("not be masked"), "{}", short.stderr);
}

#[test]
fn without_recipients_nothing_is_encrypted() {
    let folder = Folder::new();
    folder.write("x", "plain");
    let said = folder.run(&["secret", "encrypt", "x"]).ends(5);
    assert!(said.stderr.contains("--recipient") && said.stderr.contains(".age-recipients"), "{}", said.stderr);
    let said = folder.run(&["secret", "encrypt", "x", "-r", "AGE-SECRET-KEY-1QQQ"]).ends(5);
    assert!(!said.stderr.contains("1QQQ"), "{}", said.stderr);
    assert_eq!(folder.read("x"), "plain");
}

#[test]
fn a_file_is_encrypted_viewed_edited_and_keeps_its_mode() {
    let (folder, _) = vars();
    folder.write("whole.yaml", "password: hunter2\n");
    std::fs::set_permissions(folder.path("whole.yaml"), std::fs::Permissions::from_mode(0o640)).unwrap();
    folder.run(&["secret", "encrypt", "whole.yaml"]).ends(0);
    let sealed = folder.read("whole.yaml");
    assert!(sealed.starts_with("-----BEGIN AGE") && !sealed.contains("hunter2"));
    assert_eq!(std::fs::metadata(folder.path("whole.yaml")).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(folder.run(&["secret", "view", "whole.yaml"]).ends(0).stdout, "password: hunter2\n");
    edit(&folder, "whole.yaml", "true").ends(0);
    assert_eq!(folder.read("whole.yaml"), sealed, "unchanged, untouched");
    edit(&folder, "whole.yaml", "sed -i s/hunter2/hunter3/").ends(0);
    assert_eq!(folder.run(&["secret", "view", "whole.yaml"]).ends(0).stdout, "password: hunter3\n");
    let failed = edit(&folder, "whole.yaml", "false").ends(5);
    assert!(failed.stderr.contains("nothing was changed"), "{}", failed.stderr);
    folder.run(&["secret", "encrypt", "whole.yaml"]).ends(5);
}

#[test]
fn the_editor_works_in_a_private_place_that_is_gone_afterwards() {
    let (folder, _) = vars();
    let spy = folder.path("spy");
    let editor = format!("sh -c 'stat -c \"%a %n\" \"$1\" \"$(dirname \"$1\")\" > {}' spy", spy.display());
    edit(&folder, "vars.yaml", &editor).ends(0);
    let seen = folder.read("spy");
    let lines: Vec<_> = seen.lines().collect();
    assert!(lines[0].starts_with("600 ") && lines[1].starts_with("700 "), "{seen}");
    assert!(!std::path::Path::new(&lines[1][4..]).exists(), "{seen}");
}

#[test]
fn values_are_edited_in_their_file() {
    let (folder, keys) = vars();
    let before = folder.read("vars.yaml");
    edit(&folder, "vars.yaml", "sed -i -e s/first-secret/changed-secret/ -e '$a new: !age brand-new-secret'").ends(0);
    let after = folder.read("vars.yaml");
    assert!(!after.contains("secret\n"), "{after}");
    let unchanged = &before[before.find("# between").unwrap()..];
    assert!(after.contains(unchanged), "{after}");
    let shown = folder.run(&["secret", "view", "vars.yaml"]).ends(0).stdout;
    assert_eq!(
        shown,
        "# top\none: !age |-\n  changed-secret\n# between\nplain: 1   # kept\ntwo: !age |\n  second\n  secret\nnew: !age |-\n  brand-new-secret\n"
    );
    // A second recipient that the file is not encrypted to yet.
    folder.write(".age-recipients", &format!("{}\n{}\n", keys.public, Keys::named(&folder, "other").public));
    let said = edit(&folder, "vars.yaml", "sed -i s/brand-new/newer/").ends(5);
    assert!(said.stderr.contains("rekey"), "{}", said.stderr);
}

#[test]
fn rekeying_changes_who_can_read_and_nothing_else() {
    let (folder, _) = vars();
    let other = Keys::named(&folder, "other");
    folder.write("whole", "a whole file\n");
    folder.run(&["secret", "encrypt", "whole"]).ends(0);
    let before = folder.read("vars.yaml");
    folder.run(&["secret", "rekey", "vars.yaml", "whole", "-r", &other.public]).ends(0);
    let after = folder.read("vars.yaml");
    let layout = |text: &str| {
        text.lines()
            .filter(|line| !line.starts_with("  ") || line.contains("AGE"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(layout(&before), layout(&after));
    assert_ne!(before, after);
    for file in ["vars.yaml", "whole"] {
        let said = folder.run(&["secret", "view", file]).ends(5);
        assert!(said.stderr.contains(file) && said.stderr.contains("none of your keys matches"), "{}", said.stderr);
    }
    let shown = folder.run(&["secret", "view", "whole", "--age-identity", "other"]).ends(0);
    assert_eq!(shown.stdout, "a whole file\n");
    assert!(
        folder.run(&["secret", "view", "vars.yaml", "--age-identity", "other"]).ends(0).stdout.contains("first-secret")
    );
    // All or nothing: a file with a value that cannot be opened stays as it is.
    folder.run(&["secret", "rekey", "vars.yaml"]).ends(5);
    assert_eq!(folder.read("vars.yaml"), after);
}

#[test]
fn a_passphrase_is_asked_for_once_and_not_shown() {
    let (folder, _) = vars();
    folder.write("whole", "password: hunter2\n").write_private("pass", "correct horse\n");
    folder.run(&["secret", "encrypt", "--passphrase", "--age-passphrase-file", "pass", "whole"]).ends(0);
    let program = folder.command(&["secret", "view", "whole"]);
    // `script` is a terminal to the program.
    let line = format!("{} secret view whole", program.get_program().to_str().unwrap());
    let mut terminal = Command::new("script");
    terminal.args(["-qec", &line, "/dev/null"]).current_dir(folder.path("")).env("HOME", folder.path(""));
    let mut child = terminal.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut said = Vec::new();
    while !said.ends_with(b"age passphrase: ") {
        let mut byte = [0];
        assert_eq!(stdout.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&said));
        said.push(byte[0]);
    }
    stdin.write_all(b"correct horse\n").unwrap();
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success(), "{rest}");
    assert!(rest.contains("password: hunter2") && !rest.contains("correct horse"), "{rest}");
}
