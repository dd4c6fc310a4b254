//! A throw-away account, for tests that must not be root.

use std::io::Write as _;
use std::process::{Command, Stdio};

use super::process::run;

/// An account with a random name and a home. Removed when this goes out of scope.
pub struct TempUser {
    pub name: String,
}

impl TempUser {
    /// Needs root. The account has no password until [`TempUser::set_password`].
    pub fn create() -> Self {
        let name = format!("etcdrun{:06x}", rand::random_range(0..0x0100_0000));
        run("useradd", &["--create-home", "--shell", "/bin/sh", "--password", "*", &name]);
        TempUser { name }
    }

    pub fn set_password(&self, password: &str) {
        let mut child = Command::new("chpasswd").stdin(Stdio::piped()).spawn().expect("chpasswd runs");
        let mut stdin = child.stdin.take().unwrap();
        writeln!(stdin, "{}:{password}", self.name).unwrap();
        drop(stdin);
        assert!(child.wait().unwrap().success(), "chpasswd failed");
    }
}

impl Drop for TempUser {
    fn drop(&mut self) {
        let _ = Command::new("userdel").args(["--remove", "--force", &self.name]).output();
    }
}
