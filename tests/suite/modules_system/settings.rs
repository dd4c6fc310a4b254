//! sysctl, on a setting that nothing depends on.

use std::fs;

use serde_json::json;

use super::target::Target;

const LIVE: &str = "/proc/sys/kernel/domainname";

/// Gives the kernel its value back.
struct Restore(String);

impl Drop for Restore {
    fn drop(&mut self) {
        let _ = fs::write(LIVE, &self.0);
    }
}

/// All in one test, because there is only one kernel.
#[tokio::test]
async fn settings_go_into_the_file_and_the_kernel() {
    let original = Restore(fs::read_to_string(LIVE).unwrap());
    for target in Target::all() {
        fs::write(LIVE, &original.0).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sub/99-test.conf");
        let look = || (fs::read_to_string(&file).ok(), fs::read_to_string(LIVE).unwrap());
        let path = file.to_str().unwrap();
        let args = json!({ "name": "kernel.domainname", "value": "one.test", "sysctl_file": path });
        target.converges("sysctl", args.clone(), look).await;
        assert_eq!(look(), (Some("kernel.domainname = one.test\n".into()), "one.test\n".into()));

        // What others wrote stays, duplicates go, and the spacing of a right line is left alone.
        fs::write(&file, "# ours\nvm.x=1\n  kernel.domainname=two.test\nkernel.domainname = three\n-fs.y = 2\n")
            .unwrap();
        target.converges("sysctl", args.clone(), look).await;
        let expected = "# ours\nvm.x=1\nkernel.domainname = one.test\n-fs.y = 2\n";
        assert_eq!(look().0.as_deref(), Some(expected));

        // Only `sysctl_set` minds a kernel that differs while the file is right.
        fs::write(LIVE, "drifted").unwrap();
        target.stays("sysctl", args.clone()).await;
        let mut insisting = args.clone();
        insisting["sysctl_set"] = json!(true);
        target.converges("sysctl", insisting, look).await;
        assert_eq!(look().1, "one.test\n");

        target
            .converges("sysctl", json!({ "name": "kernel.domainname", "state": "absent", "sysctl_file": path }), look)
            .await;
        assert_eq!(look(), (Some("# ours\nvm.x=1\n-fs.y = 2\n".into()), "one.test\n".into()));
    }
}

#[tokio::test]
async fn what_the_kernel_does_not_take_does_not_reach_the_file() {
    let target = Target::ssh();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("test.conf");
    let args = |name: &str, value: &str| json!({ "name": name, "value": value, "sysctl_file": file.to_str().unwrap() });
    let unknown = target.fails("sysctl", args("kernel.no_such_setting", "1")).await;
    assert!(unknown.contains("no setting kernel.no_such_setting"), "{unknown}");
    let refused = target.fails("sysctl", args("net/ipv4/conf/lo/forwarding", "abc")).await;
    assert_eq!(refused, "the kernel does not take abc for net/ipv4/conf/lo/forwarding");
    assert!(!file.exists());
}
