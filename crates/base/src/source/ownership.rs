//! Whose a file of this machine is: what etcdrun reads may name programs that it runs, and keys that it uses.

use std::{fs, os::unix::fs::MetadataExt as _, path::Path};

use rustix::process::{geteuid, getuid};

use crate::mutant::{is_off, repair};

const WRITABLE_BY_ALL: u32 = 0o002;
const WRITABLE_BY_GROUP: u32 = 0o020;
const FOR_OTHERS: u32 = 0o077;

/// Why what a file says cannot be trusted: somebody other than us and root has written it, or could have. Nothing if it can, or is
/// not there. Whoever becomes root by sudo is trusted too.
pub fn distrust(path: &Path) -> Option<String> {
    if is_off(repair::DISTRUST) {
        return None;
    }
    // A link counts with what it leads to: whoever made it has chosen that.
    [fs::symlink_metadata(path), fs::metadata(path)].into_iter().flatten().find_map(|found| reason(&found))
}

fn reason(found: &fs::Metadata) -> Option<String> {
    let (uid, mode) = (found.uid(), found.mode() & 0o7777);
    if !is_trusted(uid) {
        return Some(format!("it belongs to {}, neither to you nor to root", user(uid)));
    }
    // The mode of a link says nothing.
    if found.is_symlink() {
        return None;
    }
    if mode & WRITABLE_BY_ALL != 0 {
        return Some(format!("every local account can write to it (mode {mode:04o})"));
    }
    if mode & WRITABLE_BY_GROUP != 0 && !Groups::read().is_private(found.gid(), uid) {
        return Some(format!("the group {} can write to it (mode {mode:04o})", group(found.gid())));
    }
    None
}

/// Why a file with a secret in it is none any more: others can read it. Only of a file that is ours, as ssh has it: of others' their
/// owners decide who reads them.
pub fn exposed(path: &Path) -> Option<String> {
    let found = fs::metadata(path).ok()?;
    let mode = found.mode() & 0o7777;
    let is_ours = found.uid() == getuid().as_raw();
    (is_ours && found.is_file() && mode & FOR_OTHERS != 0 && !is_off(repair::EXPOSED))
        .then(|| format!("is readable by others (mode {mode:04o}); protect it with `chmod 600 {}`", path.display()))
}

fn is_trusted(uid: u32) -> bool {
    let me = geteuid().as_raw();
    let before_sudo = || std::env::var("SUDO_UID").ok().and_then(|text| text.parse::<u32>().ok());
    uid == 0 || uid == me || (me == 0 && before_sudo() == Some(uid))
}

fn user(uid: u32) -> String {
    name_of("/etc/passwd", uid).map_or_else(|| format!("uid {uid}"), |name| format!("{name} (uid {uid})"))
}

fn group(gid: u32) -> String {
    name_of("/etc/group", gid).map_or_else(|| format!("gid {gid}"), |name| format!("{name} (gid {gid})"))
}

fn name_of(file: &str, id: u32) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let fields = |line: &str| line.split(':').map(str::to_owned).collect::<Vec<_>>();
    let line = text.lines().map(fields).find(|fields| fields.get(2).is_some_and(|field| field.parse() == Ok(id)))?;
    line.into_iter().next()
}

/// The accounts of this machine, as far as its own files have them.
struct Groups {
    users: String,
    groups: String,
}

impl Groups {
    fn read() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Self { users: read("/etc/passwd"), groups: read("/etc/group") }
    }

    /// Whether a group is that of one user alone. Systems that give everybody such a group let it write by default (umask 002). One
    /// that the files do not have is taken for one if it has the user's number.
    fn is_private(&self, gid: u32, uid: u32) -> bool {
        let mut groups = self.groups.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let Some(group) = groups.find(|fields| fields.get(2).is_some_and(|field| field.parse() == Ok(gid))) else {
            return gid == uid;
        };
        let mut users = self.users.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let others_first = users.clone().any(|fields| {
            let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u32>().ok());
            number(3) == Some(gid) && number(2) != Some(uid)
        });
        let owner = users.find(|fields| fields.get(2).is_some_and(|field| field.parse() == Ok(uid)));
        let owner = owner.as_ref().and_then(|fields| fields.first()).copied();
        let members = group.get(3).map_or("", |members| members.trim());
        !others_first && members.split(',').filter(|member| !member.is_empty()).all(|member| Some(member) == owner)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, chown};

    use super::*;

    fn file(folder: &tempfile::TempDir, name: &str, mode: u32) -> std::path::PathBuf {
        let path = folder.path().join(name);
        fs::write(&path, "x").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn what_others_have_written_or_could_have_is_not_trusted() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(distrust(&file(&folder, "ours", 0o644)), None);
        assert_eq!(distrust(&folder.path().join("missing")), None);
        let open = distrust(&file(&folder, "open", 0o666)).unwrap();
        assert_eq!(open, "every local account can write to it (mode 0666)");
        if !geteuid().is_root() {
            return;
        }
        let theirs = file(&folder, "theirs", 0o600);
        chown(&theirs, Some(54321), None).unwrap();
        assert_eq!(distrust(&theirs).unwrap(), "it belongs to uid 54321, neither to you nor to root");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path().join("ours"), &link).unwrap();
        assert_eq!(distrust(&link), None);
        std::os::unix::fs::lchown(&link, Some(54321), None).unwrap();
        assert!(distrust(&link).unwrap().contains("uid 54321"));
        let shared = file(&folder, "shared", 0o664);
        chown(&shared, None, Some(54321)).unwrap();
        assert_eq!(distrust(&shared).unwrap(), "the group gid 54321 can write to it (mode 0664)");
    }

    #[test]
    fn a_group_of_one_user_may_write() {
        let accounts = Groups {
            users: "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/:/bin/sh\nbob:x:1001:100::/:/bin/sh\neve:x:1002:100::/:/bin/sh\n".into(),
            groups: "root:x:0:\nann:x:1000:\nusers:x:100:\nops:x:50:ann,bob\nsolo:x:51:ann\n".into(),
        };
        assert!(accounts.is_private(1000, 1000) && accounts.is_private(0, 0) && accounts.is_private(51, 1000));
        assert!(!accounts.is_private(50, 1000) && !accounts.is_private(100, 1001), "others are in these");
        assert!(accounts.is_private(7000, 7000) && !accounts.is_private(7001, 7000), "of another directory");
    }

    #[test]
    fn a_secret_that_others_can_read_is_exposed() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(exposed(&file(&folder, "closed", 0o600)), None);
        assert!(
            exposed(&file(&folder, "open", 0o640))
                .unwrap()
                .starts_with("is readable by others (mode 0640); protect it")
        );
    }
}
