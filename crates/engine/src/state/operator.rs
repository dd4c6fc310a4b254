//! Who runs this, and where.

use std::{env, fs};

use serde::{Deserialize, Serialize};

/// How the kernel calls the processes that are in no container.
const FIRST_SPACE: &str = "pid:[4026531836]";

/// A process of etcdrun, in words that mean something on other machines too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operator {
    pub user: String,
    pub host: String,
    pub pid: u32,
    /// When the process started, in ticks since boot. A process id alone may belong to another by now.
    pub started: u64,
    pub boot: String,
    /// Tells machines and containers apart that have the same name.
    #[serde(default)]
    pub machine: String,
}

impl Operator {
    /// This process.
    pub fn me() -> Self {
        let user = env::var("USER").or_else(|_| env::var("LOGNAME")).ok().filter(|name| !name.is_empty());
        let uid = rustix::process::getuid();
        let pid = std::process::id();
        Self {
            user: user
                .unwrap_or_else(|| if uid.is_root() { "root".to_owned() } else { format!("uid {}", uid.as_raw()) }),
            host: host_name(),
            pid,
            started: started_at(pid).unwrap_or_default(),
            boot: boot_id(),
            machine: machine(),
        }
    }

    /// Whether that process is still there; `None` if it is one of another machine.
    pub fn is_alive(&self) -> Option<bool> {
        if self.host != host_name() || self.machine != machine() {
            return None;
        }
        Some(self.boot == boot_id() && started_at(self.pid) == Some(self.started))
    }
}

fn host_name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// The machine's own id, and which processes are seen from here.
fn machine() -> String {
    let id = fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let space = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    // After a boot the same processes may have another number.
    let space = if space.as_os_str() == FIRST_SPACE { String::new() } else { space.display().to_string() };
    format!("{} {space}", id.trim()).trim_end().to_owned()
}

/// For how many seconds this machine has been up.
pub(super) fn seconds_up() -> Option<u64> {
    let text = fs::read_to_string("/proc/uptime").ok()?;
    text.split(['.', ' ']).next()?.parse().ok()
}

pub(super) fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

fn started_at(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command's name stands in brackets and may itself hold blanks and brackets.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    (fields.next()? != "Z").then(|| fields.nth(18)?.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_more_than_its_number() {
        let me = Operator::me();
        assert_eq!(me.is_alive(), Some(true));
        assert_eq!(Operator { started: me.started + 1, ..me.clone() }.is_alive(), Some(false));
        assert_eq!(Operator { boot: "another".into(), ..me.clone() }.is_alive(), Some(false));
        assert_eq!(Operator { host: "elsewhere".into(), ..me.clone() }.is_alive(), None);
        assert_eq!(Operator { machine: "another of that name".into(), ..me }.is_alive(), None);
    }
}
