//! What other accounts of this machine have written is not run, nor believed.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, chown},
    path::Path,
};

use super::support::Bench;
use crate::support::program::Folder;

/// An account that is neither ours nor root's.
const STRANGER: u32 = 54321;

const FAILS: &str = "- hosts: all\n  tasks: [{ name: Fail, command: 'test -e DIR/mended' }]\n";

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_run_of_somebody_else_is_not_resumed() {
    let bench = Bench::new(1, FAILS);
    bench.run().ends(2);
    bench.folder.write("work/mended", "");
    let run = bench.folder.last_run();
    let refused = |why: &str| {
        let said = bench.resume().ends(5);
        assert!(said.stderr.contains(why) && said.stderr.contains("chown"), "{}", said.stderr);
    };
    chown(&run, Some(STRANGER), None).unwrap();
    refused("it belongs to uid 54321, neither to you nor to root");
    chown(&run, Some(0), None).unwrap();
    chown(run.join("bundle.json"), Some(STRANGER), None).unwrap();
    refused("bundle.json: it belongs to uid 54321");
    chown(run.join("bundle.json"), Some(0), None).unwrap();
    mode(&run.join("journal"), 0o666);
    refused("journal: every local account can write to it (mode 0666)");
    mode(&run.join("journal"), 0o600);
    // As a checkout of a repository makes folders.
    mode(&run, 0o755);
    refused("etcdrun creates such directories with mode 0700, and this one has the mode 0755");
    mode(&run, 0o700);
    bench.resume().ends(0);
}

#[test]
fn a_plan_of_somebody_else_is_not_run() {
    let bench = Bench::new(1, "- hosts: all\n  tasks: [{ name: Write, copy: { content: x, dest: DIR/file } }]\n");
    fs::create_dir(bench.folder.path("work")).unwrap();
    bench.folder.run(&["plan", "site.yaml", "--out", "site.plan"]).ends(0);
    let plan = bench.folder.path("site.plan");
    chown(&plan, Some(STRANGER), None).unwrap();
    let said = bench.folder.run(&["playbook", "--plan", "site.plan"]).ends(5);
    assert!(said.stderr.contains("cannot trust site.plan: it belongs to uid 54321"), "{}", said.stderr);
    assert!(!bench.folder.path("work/file").exists());
    chown(&plan, Some(0), None).unwrap();
    bench.folder.run(&["playbook", "--plan", "site.plan"]).ends(0);
}

#[test]
fn settings_of_somebody_else_are_refused_with_the_way_out() {
    let folder = Folder::new();
    folder.write("inventory.yaml", "hosts: { h1: {} }\n").write("etcdrun.toml", "forks = 7\n");
    let path = folder.path("etcdrun.toml");
    let list = || folder.run(&["inventory", "list"]);
    list().ends(0);
    chown(&path, Some(STRANGER), None).unwrap();
    let refused = list().ends(5);
    let told = format!("cannot use {}: it belongs to uid 54321, neither to you nor to root", path.display());
    assert!(refused.stderr.contains(&told) && refused.stderr.contains("ETCDRUN_CONFIG="), "{}", refused.stderr);
    chown(&path, Some(0), None).unwrap();
    mode(&path, 0o646);
    let refused = list().ends(5);
    assert!(refused.stderr.contains("every local account can write to it"), "{}", refused.stderr);
    // A group of several may write to it.
    mode(&path, 0o664);
    chown(&path, None, Some(STRANGER)).unwrap();
    assert!(list().ends(5).stderr.contains("the group gid 54321 can write to it"));
    // Root's own group is nobody else's, and many a checkout has files that it can write to.
    chown(&path, None, Some(0)).unwrap();
    list().ends(0);
    // Who names it, means it; and one can do without.
    chown(&path, Some(STRANGER), None).unwrap();
    for named in [path.as_path(), Path::new("/dev/null")] {
        let done = folder.command(&["inventory", "list"]).env("ETCDRUN_CONFIG", named).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
}

#[test]
fn secrets_in_files_that_others_can_read_are_refused() {
    let folder = Folder::new();
    folder.write("inventory.yaml", "hosts: { h1: {} }\n").write("password", "open sesame\n");
    let run = |more: &[&str]| folder.run(&[&["exec", "h1", "-m", "ping"], more].concat());
    let refused = run(&["--become-password-file", "password"]).ends(5);
    assert!(
        refused.stderr.contains("readable by others (mode 0644); protect it with `chmod 600"),
        "{}",
        refused.stderr
    );
    folder.write("plain", "x\n").write("pass", "correct horse\n");
    let refused = folder.run(&["secret", "encrypt", "--passphrase", "--age-passphrase-file", "pass", "plain"]).ends(5);
    assert!(refused.stderr.contains("the passphrase file pass is readable by others"), "{}", refused.stderr);
}

/// The state folder lies in what is a repository more often than not.
#[test]
fn git_does_not_see_the_state_folder() {
    let bench = Bench::new(1, FAILS);
    bench.run().ends(2);
    assert_eq!(bench.folder.read(".etcdrun/.gitignore"), "*\n");
}
