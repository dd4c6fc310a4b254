//! What a person could do about a failure that many have met before.

use crate::model::{NodeInfo, Shown, Status};

/// A sign of a known failure, and the way out.
struct Known {
    /// Any of these, in lower case, in the message or the standard error.
    signs: &'static [&'static str],
    hint: &'static str,
}

/// The first that matches is shown, so the more telling signs come first.
const KNOWN: &[Known] = &[
    Known {
        signs: &["a password is required", "sudo: no password", "a terminal is required to read the password"],
        hint: "sudo needs a password on this host: run again with -K, or allow NOPASSWD in sudoers",
    },
    Known { signs: &["incorrect password attempt", "sorry, try again"], hint: "sudo rejected the password of -K" },
    Known {
        signs: &["is not in the sudoers file", "is not allowed to execute"],
        hint: "this user may not use sudo here: log in as another with -u, or amend sudoers",
    },
    Known {
        signs: &["remote host identification has changed", "host key has changed", "changed host key"],
        hint: "the host key has changed: if the host was reinstalled, remove the old key with `ssh-keygen -R HOST`; if not, the connection may be intercepted",
    },
    Known {
        signs: &["unknown host key", "host key is unknown", "host key is not known", "host key verification failed"],
        hint: "compare the key with `ssh-keyscan HOST | ssh-keygen -lf -` and add it to known_hosts, or run with --accept-new",
    },
    Known {
        signs: &["no space left on device"],
        hint: "a file system is full: `df -h; df -i` on the host shows which",
    },
    Known {
        signs: &["read-only file system"],
        hint: "the file system is mounted read-only: `dmesg` on the host shows whether an error caused that",
    },
    Known {
        signs: &["could not get lock", "unable to acquire the dpkg frontend lock", "is another process using it"],
        hint: "another package manager is running on the host (unattended upgrades?): wait for it, or give the task `retries` and `until`",
    },
    Known {
        signs: &["unable to locate package"],
        hint: "check the name of the package; `update_cache: true` refreshes the package list",
    },
    Known {
        signs: &["temporary failure in name resolution", "could not resolve host", "name or service not known"],
        hint: "a name could not be resolved: check /etc/resolv.conf on the host that tried",
    },
    Known {
        signs: &["failed to connect to the hypervisor", "failed to connect socket to '/var/run/libvirt"],
        hint: "check that libvirtd is running, and that this user may connect to it; or run with -b",
    },
    Known {
        signs: &["connection refused"],
        hint: "nothing listens on that port: check that the service is running, and the address and port",
    },
    Known {
        signs: &["no route to host", "network is unreachable"],
        hint: "there is no route to that address from here: check whether a jump host is missing (`jump` in the inventory, ProxyJump in ~/.ssh/config)",
    },
    Known {
        signs: &["text file busy"],
        hint: "the program is running and cannot be overwritten: stop it first, or replace the file by a rename",
    },
    Known {
        signs: &["command not found", ": not found", "no such file or directory (os error 2)"],
        hint: "check that the program is installed on the host, and in the PATH of a login without a terminal; a full path is safest",
    },
];

const DENIED: &[&str] =
    &["permission denied", "operation not permitted", "must be root", "are you root", "access denied"];

/// The hint for a failure, if one is known.
pub fn hint_for(_node: &NodeInfo, status: Status, result: &Shown) -> Option<String> {
    if !matches!(status, Status::Failed | Status::Unreachable) {
        return None;
    }
    let text = format!("{}\n{}", result.msg, result.stderr).to_lowercase();
    let has = |signs: &[&str]| signs.iter().any(|sign| text.contains(sign));
    if let Some(known) = KNOWN.iter().find(|known| has(known.signs)) {
        return Some(known.hint.to_owned());
    }
    let denied = status == Status::Failed && has(DENIED);
    denied.then(|| "the user may not do this: run with -b, or give the task `become: true`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::{super::script, *};

    fn hint(status: Status, msg: &str, stderr: &str) -> Option<String> {
        let result = Shown { msg: msg.into(), stderr: stderr.into(), ..Shown::default() };
        hint_for(&script::node("h1", "Task"), status, &result)
    }

    #[test]
    fn known_failures_have_a_way_out() {
        assert!(hint(Status::Failed, "", "sudo: a password is required").is_some_and(|h| h.contains("-K")));
        assert!(hint(Status::Failed, "", "cp: cannot create: Permission denied").is_some_and(|h| h.contains("-b")));
        assert!(hint(Status::Failed, "write: No space left on device", "").is_some_and(|h| h.contains("df -h")));
        assert!(hint(Status::Unreachable, "unknown host key", "").is_some_and(|h| h.contains("--accept-new")));
    }

    #[test]
    fn success_and_the_unknown_have_none() {
        assert_eq!(hint(Status::Ok, "", "Permission denied"), None);
        assert_eq!(hint(Status::Failed, "the moon is full", ""), None);
    }
}
