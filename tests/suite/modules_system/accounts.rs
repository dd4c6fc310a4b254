//! user and group.

use std::{fs, os::unix::fs::MetadataExt, path::Path, process::Command};

use serde_json::json;

use super::target::Target;

/// A name of an account and a group that nobody has. Both are removed in the end.
struct Name(String);

impl Name {
    fn new() -> Self {
        Self(format!("etcdrun{:06x}", rand::random_range(0..0x0100_0000)))
    }

    fn entry(&self, database: &str) -> Option<String> {
        let text = fs::read_to_string(format!("/etc/{database}")).unwrap();
        text.lines().find(|line| line.split(':').next() == Some(&self.0)).map(str::to_owned)
    }

    fn field(&self, database: &str, number: usize) -> String {
        self.entry(database).unwrap().split(':').nth(number).unwrap().to_owned()
    }

    /// The groups that list the account, in the order of the file.
    fn groups(&self) -> Vec<String> {
        let text = fs::read_to_string("/etc/group").unwrap();
        let is_member = |line: &&str| line.rsplit(':').next().unwrap().split(',').any(|member| member == self.0);
        text.lines().filter(is_member).map(|line| line.split(':').next().unwrap().to_owned()).collect()
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        for (tool, arguments) in [("userdel", vec!["--remove", "--force"]), ("groupdel", vec![])] {
            let _ = Command::new(tool).args(arguments).arg(&self.0).output();
        }
    }
}

/// A number that no account and no group has.
fn free_number() -> u32 {
    let text = fs::read_to_string("/etc/passwd").unwrap() + &fs::read_to_string("/etc/group").unwrap();
    loop {
        let number = rand::random_range(20_000..50_000);
        if !text.lines().any(|line| line.split(':').nth(2) == Some(&number.to_string())) {
            return number;
        }
    }
}

#[tokio::test]
async fn a_group_comes_moves_and_goes() {
    for target in Target::all() {
        let (name, gid) = (Name::new(), free_number());
        let look = || name.entry("group");
        let made = target.converges("group", json!({ "name": name.0, "system": true }), look).await;
        assert_eq!(made.data["gid"].to_string(), name.field("group", 2));
        let moved = target.converges("group", json!({ "name": name.0, "gid": gid }), look).await;
        assert_eq!((moved.data["gid"].clone(), name.field("group", 2)), (json!(gid), gid.to_string()));
        target.converges("group", json!({ "name": name.0, "state": "absent" }), look).await;
        assert_eq!(look(), None);
    }
}

#[tokio::test]
async fn a_number_that_is_taken_is_refused() {
    let (target, name) = (Target::ssh(), Name::new());
    assert_eq!(target.fails("group", json!({ "name": name.0, "gid": 0 })).await, "gid 0 belongs to the group root");
    assert_eq!(target.fails("user", json!({ "name": name.0, "uid": 0 })).await, "uid 0 belongs to the user root");
    assert_eq!((name.entry("group"), name.entry("passwd")), (None, None));
}

#[tokio::test]
async fn a_user_comes_changes_and_goes() {
    for target in Target::all() {
        let (name, uid) = (Name::new(), free_number());
        let look = || (name.entry("passwd"), name.groups());
        let home = format!("/home/{}", name.0);
        let made = target.converges("user", json!({ "name": name.0, "uid": uid, "shell": "/bin/bash" }), look).await;
        assert_eq!((made.data["uid"].clone(), made.data["home"].clone()), (json!(uid), json!(home)));
        assert_eq!(fs::metadata(&home).unwrap().uid(), uid);
        let other =
            json!({ "name": name.0, "shell": "/bin/sh", "comment": "A test, of users", "groups": ["adm", "users"] });
        target.converges("user", other, look).await;
        assert_eq!(name.field("passwd", 4), "A test, of users");
        target.converges("user", json!({ "name": name.0, "groups": ["disk"], "append": true }), look).await;
        assert_eq!(name.groups(), ["adm", "disk", "users"]);
        target.converges("user", json!({ "name": name.0, "groups": ["users"] }), look).await;
        assert_eq!(name.groups(), ["users"]);
        target.converges("user", json!({ "name": name.0, "state": "absent", "remove": true }), look).await;
        assert!(!Path::new(&home).exists());
    }
}

#[tokio::test]
async fn a_home_is_made_anew_and_moved() {
    let (target, name) = (Target::ssh(), Name::new());
    let (old, new) = (format!("/home/{}", name.0), format!("/home/{}-new", name.0));
    let look = || [&old, &new].map(|home| fs::metadata(home).ok().map(|data| data.uid()));
    target.converges("user", json!({ "name": name.0 }), look).await;
    fs::remove_dir_all(&old).unwrap();
    target.converges("user", json!({ "name": name.0 }), look).await;
    let uid: u32 = name.field("passwd", 2).parse().unwrap();
    assert_eq!(look(), [Some(uid), None]);
    target.converges("user", json!({ "name": name.0, "home": new, "move_home": true }), look).await;
    assert_eq!(look(), [None, Some(uid)]);
}

#[tokio::test]
async fn passwords_are_set_locked_and_never_shown() {
    const HASH: &str = "$6$salt$IxDD3jeSOb5eB1CX5LBsqZFVkJdido3OUILO5Ifz5iwMuTS4XMS130MTSuDDl3aCI6WouIL9AjRbLCelDCy.g.";
    for target in Target::all() {
        let name = Name::new();
        let look = || name.entry("shadow");
        let args = json!({ "name": name.0, "create_home": false, "password": HASH });
        let made = target.converges("user", args.clone(), look).await;
        assert_eq!(name.field("shadow", 1), HASH);
        target.converges("user", json!({ "name": name.0, "create_home": false, "password_lock": true }), look).await;
        assert_eq!(name.field("shadow", 1), format!("!{HASH}"));
        target.stays("user", args).await;
        target.converges("user", json!({ "name": name.0, "create_home": false, "password_lock": false }), look).await;
        let other = json!({ "name": name.0, "create_home": false, "password": "*", "update_password": "on_create" });
        target.stays("user", other).await;
        assert!(!format!("{made:?}").contains("salt"), "{made:?}");
    }
}

#[tokio::test]
async fn a_group_that_is_missing_stops_a_run_but_not_a_plan() {
    let (target, name) = (Target::ssh(), Name::new());
    let args = json!({ "name": name.0, "groups": ["etcdrun-no-such-group"] });
    let plan = target.check("user", args.clone()).await;
    assert!(plan.changed && !plan.failed, "{plan:?}");
    assert_eq!(target.fails("user", args).await, "the group etcdrun-no-such-group does not exist");
    assert_eq!(name.entry("passwd"), None);
}
