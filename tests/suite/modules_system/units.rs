//! service and systemd_unit, as far as a machine without a running systemd goes.

use std::{fs, path::Path};

use serde_json::json;

use super::target::Target;

const UNIT: &str = "[Unit]\nDescription=A test\n\n[Service]\nExecStart=/bin/sleep 1000\n";

#[tokio::test]
async fn a_unit_file_is_written_changed_and_removed() {
    for target in Target::all() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("etcdrun-test.service");
        let look = || fs::read_to_string(&file).ok();
        let args =
            |content: &str| json!({ "name": "etcdrun-test.service", "content": content, "directory": folder.path() });
        target.converges("systemd_unit", args(UNIT), look).await;
        assert_eq!(look().as_deref(), Some(UNIT));
        // The end of the last line is nothing to argue about.
        target.stays("systemd_unit", args(UNIT.trim_end())).await;
        let done = target.converges("systemd_unit", args(&UNIT.replace("1000", "2000")), look).await;
        assert_eq!((done.diff.len(), done.diff[0].before.as_str()), (1, UNIT));
        let gone = json!({ "name": "etcdrun-test.service", "state": "absent", "directory": folder.path() });
        target.converges("systemd_unit", gone, look).await;
        assert_eq!(look(), None);
    }
}

#[tokio::test]
async fn a_dropin_comes_and_takes_its_folder_along_when_it_goes() {
    let target = Target::ssh();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("etcdrun-test.service"), UNIT).unwrap();
    let file = folder.path().join("etcdrun-test.service.d/10-limits.conf");
    let look = || fs::read_to_string(&file).ok();
    let args = json!({
        "name": "etcdrun-test.service", "dropin": "10-limits", "directory": folder.path(),
        "content": "[Service]\nLimitNOFILE=4096\n",
    });
    target.converges("systemd_unit", args, look).await;
    let gone =
        json!({ "name": "etcdrun-test.service", "dropin": "10-limits", "directory": folder.path(), "state": "absent" });
    target.converges("systemd_unit", gone, look).await;
    assert!(!file.parent().unwrap().exists() && folder.path().join("etcdrun-test.service").exists());
}

#[tokio::test]
async fn a_unit_that_systemd_rejects_is_not_written() {
    assert!(Path::new("/usr/bin/systemd-analyze").exists(), "this test needs systemd-analyze: apt-get install systemd");
    let target = Target::ssh();
    let folder = tempfile::tempdir().unwrap();
    let args =
        json!({ "name": "etcdrun-test.service", "content": "[Service]\nType=simple\n", "directory": folder.path() });
    let outcome = target.run("systemd_unit", args.clone()).await;
    assert!(outcome.failed && outcome.msg.starts_with("systemd does not accept the unit"), "{outcome:?}");
    assert!(outcome.stderr.contains("ExecStart"), "{outcome:?}");
    assert!(fs::read_dir(folder.path()).unwrap().next().is_none());
    // A plan has no file to show to systemd, and an earlier task may make it right.
    let plan = target.check("systemd_unit", args.clone()).await;
    assert!(plan.changed && !plan.failed, "{plan:?}");
    // Who is sure of it may do without the question.
    let mut sure = args;
    sure["verify"] = false.into();
    assert!(target.run("systemd_unit", sure).await.changed);
    assert!(folder.path().join("etcdrun-test.service").exists());
}

#[tokio::test]
async fn without_systemd_or_without_the_unit_it_says_so() {
    let target = Target::ssh();
    let args = json!({ "name": "etcdrun-no-such-unit", "state": "started" });
    let expected = match Path::new("/run/systemd/system").exists() {
        true => "the target has no unit etcdrun-no-such-unit.service",
        false => "systemd does not run on this host",
    };
    let msg = target.fails("service", args).await;
    assert!(msg.starts_with(expected), "{msg}");
}
