//! reboot, with a server that dies and comes back instead of a machine.

use std::{fs, path::Path, time::Duration};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::support::{Sshd, run_module, session};

/// The boot id and the mark that a reboot was asked for, as files.
struct Machine {
    folder: TempDir,
}

impl Machine {
    fn new() -> Self {
        let machine = Self { folder: tempfile::tempdir().unwrap() };
        machine.boot("first");
        machine
    }

    fn boot(&self, id: &str) {
        fs::write(self.folder.path().join("boot_id"), id).unwrap();
    }

    fn is_asked(&self) -> bool {
        self.folder.path().join("asked").exists()
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn args(&self, more: Value) -> String {
        let mut args = json!({
            "reboot_command": format!("echo x > {}", self.file("asked")),
            "boot_time_command": format!("cat {}", self.file("boot_id")),
            "reboot_timeout": "60s",
            "connect_timeout": "2s",
        });
        for (name, value) in more.as_object().unwrap() {
            args[name] = value.clone();
        }
        args.to_string()
    }

    /// Waits to be asked, goes down, and comes up as another boot.
    async fn obey(&self, sshd: &mut Sshd) {
        for _ in 0..2000 {
            if self.is_asked() {
                sshd.kill();
                self.boot("second");
                tokio::time::sleep(Duration::from_millis(200)).await;
                return sshd.restart();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("nobody asked for a reboot");
    }
}

#[tokio::test]
async fn a_reboot_is_over_when_the_boot_id_differs_and_the_test_passes() {
    let (machine, mut sshd) = (Machine::new(), Sshd::start());
    let session = session(&sshd);
    // It takes a second look for the test to pass.
    let passed = machine.file("passed");
    let test = format!("test -e {passed} || {{ touch {passed}; exit 1; }}");
    let args = machine.args(json!({ "test_command": test }));
    let (outcome, ()) = tokio::join!(run_module(&session, "reboot", &args, false), machine.obey(&mut sshd));
    assert!(outcome.changed && !outcome.failed, "{outcome:?}");
    assert_eq!(outcome.data["rebooted"], json!(true));
    assert!(outcome.data["elapsed"].as_u64().is_some() && Path::new(&passed).exists(), "{outcome:?}");
    assert!(!run_module(&session, "ping", "{}", false).await.failed);
}

#[tokio::test]
async fn a_plan_only_says_that_it_would() {
    let (machine, sshd) = (Machine::new(), Sshd::start());
    let plan = run_module(&session(&sshd), "reboot", &machine.args(json!({})), true).await;
    assert!(plan.changed && !plan.failed && !machine.is_asked(), "{plan:?}");
}

#[tokio::test]
async fn a_command_that_fails_is_told_at_once() {
    let (machine, sshd) = (Machine::new(), Sshd::start());
    let args = machine.args(json!({ "reboot_command": "echo no permission >&2; exit 1" }));
    let outcome = run_module(&session(&sshd), "reboot", &args, false).await;
    assert_eq!((outcome.failed, outcome.msg.as_str()), (true, "the command to reboot failed: no permission"));
}

#[tokio::test]
async fn a_machine_that_never_goes_down_is_not_taken_for_rebooted() {
    let (machine, sshd) = (Machine::new(), Sshd::start());
    let args = machine.args(json!({ "reboot_timeout": "2s", "connect_timeout": "500ms" }));
    let outcome = run_module(&session(&sshd), "reboot", &args, false).await;
    assert_eq!(
        (outcome.failed, outcome.msg.as_str()),
        (true, "not back after 2s: it still runs, and has not rebooted")
    );
}

#[tokio::test]
async fn a_machine_that_does_not_come_back_is_given_up() {
    let (machine, mut sshd) = (Machine::new(), Sshd::start());
    let session = session(&sshd);
    let args = machine.args(json!({ "reboot_timeout": "3s", "connect_timeout": "500ms" }));
    let (outcome, ()) = tokio::join!(run_module(&session, "reboot", &args, false), async {
        for _ in 0..2000 {
            if machine.is_asked() {
                return sshd.kill();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    assert!(outcome.failed && outcome.msg.starts_with("not back after 3s: "), "{outcome:?}");
}
