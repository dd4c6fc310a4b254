//! Which keys open what, and what is said when none does.

use super::Keys;
use crate::support::{program::Folder, sshd::make_key};
use etcdrun::secret::{Form, Recipients, block, seal};

fn play(folder: &Folder) {
    folder.write("site.yaml", "- hosts: all\n  tasks:\n    - debug: { msg: \"it has {{ token | length }}\" }\n    - fail: { msg: no }\n      when: token == 'x'\n");
    folder.write("etcdrun.toml", "plain = true\n");
}

fn with_token(folder: &Folder, value: &str) {
    play(folder);
    folder.write(
        "inventory.yaml",
        &format!(
            "hosts:\n  h1: {{ vars: {{ a: 1 }} }}\ngroups:\n  g:\n    hosts: [h1]\n    vars:\n      token: {value}"
        ),
    );
}

fn sealed_to(recipient: &str, plain: &str) -> String {
    let recipients = Recipients::parse([recipient]).unwrap();
    block(&String::from_utf8(seal(plain.as_bytes(), &recipients, Form::Armored).unwrap()).unwrap(), 8)
}

#[test]
fn commands_that_run_nothing_need_no_key() {
    let folder = Folder::new();
    let keys = Keys::named(&folder, "elsewhere");
    with_token(&folder, &keys.value("hunter2-hunter2", 8));
    folder.run(&["lint", "site.yaml"]).ends(0);
    let graph = folder.run(&["graph", "site.yaml", "--format", "json"]).ends(0);
    assert!(!graph.stdout.contains("BEGIN AGE"), "{}", graph.stdout);
    folder.run(&["playbook", "site.yaml", "--list-tasks"]).ends(0);
    let host = folder.run(&["inventory", "host", "h1"]).ends(0);
    assert!(host.stdout.contains("<secret>"), "{}", host.stdout);
    let list = folder.run(&["inventory", "list", "--json"]).ends(0);
    assert!(list.stdout.contains("\"token\": \"<secret>\""), "{}", list.stdout);
}

#[test]
fn without_the_key_a_run_says_where_and_what_to_do() {
    let folder = Folder::new();
    let keys = Keys::named(&folder, "elsewhere");
    with_token(&folder, &keys.value("hunter2-hunter2", 8));
    Keys::new(&folder);
    let said = folder.run(&["playbook", "site.yaml"]).ends(5);
    assert!(said.stderr.contains("inventory.yaml:8:"), "{}", said.stderr);
    assert!(
        said.stderr.contains("encrypted to an age recipient (X25519); none of your keys matches"),
        "{}",
        said.stderr
    );
    assert!(
        said.stderr.contains(".config/etcdrun/identity") && said.stderr.contains("--age-identity"),
        "{}",
        said.stderr
    );
    let run = ["exec", "all", "-m", "debug", "-a", "msg='{{ token | length }}'"];
    folder.run(&[&run[..], &["--age-identity", "elsewhere"]].concat()).ends(0);
    let missing = folder.run(&[&run[..], &["--age-identity", "nowhere"]].concat()).ends(5);
    assert!(missing.stderr.contains("the identity file nowhere"), "{}", missing.stderr);
}

#[test]
fn ssh_keys_open_secrets() {
    for kind in ["ed25519", "rsa"] {
        let folder = Folder::new();
        std::fs::create_dir(folder.path(".ssh")).unwrap();
        make_key(&folder.path(&format!(".ssh/id_{kind}")), kind, "");
        let public = folder.read(&format!(".ssh/id_{kind}.pub"));
        with_token(&folder, &sealed_to(public.trim(), "hunter2-hunter2"));
        let said = folder.run(&["exec", "all", "-m", "debug", "-a", "msg='{{ token | length }} {{ token }}'"]).ends(0);
        assert!(said.stdout.contains("15 <secret>"), "{}", said.stdout);
    }
}

#[test]
fn a_passphrase_comes_from_a_file() {
    let folder = Folder::new();
    let passphrase = Recipients::Passphrase("correct horse".to_owned().into());
    let sealed = String::from_utf8(seal(b"hunter2-hunter2", &passphrase, Form::Armored).unwrap()).unwrap();
    with_token(&folder, &block(&sealed, 8));
    folder.write_private("pass", "correct horse\n").write_private("wrong", "incorrect horse\n");
    let run = |file| folder.run(&["exec", "all", "-m", "debug", "-a", "msg={{token}}", "--age-passphrase-file", file]);
    assert!(run("pass").ends(0).stdout.contains("<secret>"));
    let wrong = run("wrong").ends(5);
    assert!(
        wrong.stderr.contains("the passphrase is wrong") && !wrong.stderr.contains("incorrect"),
        "{}",
        wrong.stderr
    );
    // No terminal, no file.
    let nobody = folder.run(&["playbook", "site.yaml"]).ends(5);
    assert!(nobody.stderr.contains("--age-passphrase-file"), "{}", nobody.stderr);
}

#[test]
fn an_encrypted_file_of_variables_is_opened_and_never_quoted() {
    let folder = Folder::new();
    let keys = Keys::new(&folder);
    folder.write("inventory/hosts.yaml", "hosts: { h1: {} }\n");
    std::fs::create_dir_all(folder.path("inventory/group_vars")).unwrap();
    std::fs::write(folder.path("inventory/group_vars/all.yaml"), keys.binary(b"token: hunter2-hunter2\nport: 12345\n"))
        .unwrap();
    play(&folder);
    let said = folder.run(&["playbook", "site.yaml"]).ends(0);
    assert!(said.stdout.contains("it has 15"), "{}", said.stdout);
    let said = folder.run(&["exec", "all", "-m", "debug", "-a", "msg='{{ port }} {{ token }}'"]).ends(0);
    assert!(said.stdout.contains("<secret> <secret>"), "{}", said.stdout);
    // A mistake in it is told by its place alone.
    std::fs::write(
        folder.path("inventory/group_vars/all.yaml"),
        keys.binary(b"token: hunter2-hunter2\n  bad: [hunter3-hunter3\n"),
    )
    .unwrap();
    let said = folder.run(&["playbook", "site.yaml"]).ends(5);
    assert!(said.stderr.contains("all.yaml:2:") && !said.stderr.contains("hunter"), "{}", said.stderr);
    // Tasks stay readable.
    std::fs::write(folder.path("site.yaml"), keys.binary(b"- hosts: all\n")).unwrap();
    folder.write("inventory/group_vars/all.yaml", "token: x\n");
    let said = folder.run(&["playbook", "site.yaml"]).ends(5);
    assert!(said.stderr.contains("only files of variables"), "{}", said.stderr);
}

#[test]
fn a_source_that_cannot_be_opened_is_told_before_anything_runs() {
    let folder = Folder::new();
    let keys = Keys::named(&folder, "elsewhere");
    Keys::new(&folder);
    folder.write("inventory.yaml", "hosts: { h1: {} }\n").write("key.pem", &keys.armored("a private key\n"));
    folder.write("site.yaml", "- hosts: all\n  tasks:\n    - copy: { src: key.pem, dest: /nowhere/key.pem }\n");
    let said = folder.run(&["playbook", "site.yaml"]).ends(5);
    assert!(
        said.stderr.contains("site.yaml:3:") && said.stderr.contains("none of your keys matches"),
        "{}",
        said.stderr
    );
    folder.run(&["lint", "site.yaml"]).ends(0);
}

#[test]
fn a_short_secret_is_told() {
    let folder = Folder::new();
    let keys = Keys::new(&folder);
    with_token(&folder, &keys.value("abc", 8));
    let said = folder.run(&["playbook", "site.yaml"]).ends(0);
    assert!(said.stderr.contains("too few to be masked"), "{}", said.stderr);
}
