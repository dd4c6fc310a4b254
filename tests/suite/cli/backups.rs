//! Folders with backups, as a user looks at them. No host is asked for anything.

use serde_json::json;

use crate::support::program::Folder;

const INVENTORY: &str =
    "clusters:\n  prod:\n    etcd: { version: 3.5.34 }\n    members:\n      etcd-1: { address: 192.0.2.1 }\n";

fn manifest(revision: i64, day: u32) -> String {
    let stem = format!("prod-r{revision}-202601{day:02}T000000Z");
    json!({
        "format": 1, "cluster": "prod", "cluster_id": "1", "revision": revision,
        "taken": format!("2026-01-{day:02}T00:00:00Z"), "member": "etcd-1", "etcd_version": "3.5.34", "size": 64,
        "sha256": "", "hash": null, "file": format!("{stem}.db.zst"), "stored_size": 4, "stored_sha256": "",
        "recipients": [], "etcdrun": "0.1.0"
    })
    .to_string()
}

fn folder() -> Folder {
    let folder = Folder::new();
    folder
        .write("inventory.yaml", INVENTORY)
        .write("backups/prod-r5-20260101T000000Z.json", &manifest(5, 1))
        .write("backups/prod-r5-20260101T000000Z.db.zst", "data")
        .write("backups/prod-r9-20260102T000000Z.json", &manifest(9, 2)[..40])
        .write("backups/prod-r9-20260102T000000Z.db.zst", "data");
    folder
}

#[test]
fn a_manifest_that_cannot_be_read_is_told_and_hides_no_other() {
    let folder = folder();
    let list = folder.run(&["backup", "list", "prod", "--from", "file:backups"]).ends(0);
    let lines: Vec<&str> = list.stdout.lines().collect();
    assert_eq!(lines.len(), 4, "{}", list.stdout);
    assert!(lines[1].starts_with("prod-r9-20260102T000000Z ") && lines[1].ends_with(" damaged"), "{}", list.stdout);
    assert!(lines[2].starts_with("prod-r5-20260101T000000Z ") && lines[2].ends_with(" no"), "{}", list.stdout);
    assert!(lines[3].contains("is no manifest of a backup"), "{}", list.stdout);
    let said = folder.run(&["backup", "list", "prod", "--from", "file:backups", "--json"]).ends(0);
    let said: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!((said["backups"][0]["revision"].as_i64(), said["damaged"][0]["revision"].as_i64()), (Some(5), Some(9)));
    let verify = folder.run(&["backup", "verify", "prod", "--from", "file:backups"]).ends(2);
    assert!(verify.stdout.starts_with("BAD prod-r9-20260102T000000Z.json: "), "{}", verify.stdout);
}

#[test]
fn whoever_wants_the_newest_hears_that_it_cannot_be_read() {
    let folder = folder();
    let restore = ["restore", "prod", "--from", "file:backups", "--yes"];
    let said = folder.run(&restore).ends(5);
    assert!(said.stderr.contains("there is a newer backup: "), "{}", said.stderr);
    assert!(said.stderr.contains("--backup prod-r5-20260101T000000Z"), "{}", said.stderr);
    let named = folder.run(&[&restore[..], &["--backup", "prod-r9-20260102T000000Z"]].concat()).ends(1);
    assert!(named.stderr.contains("is no manifest of a backup"), "{}", named.stderr);
    // What that time had can be read.
    let nobody = ["restore", "prod", "--from", "file:backups", "--at", "2026-01-01T12:00:00Z"];
    let said = folder.run(&nobody).ends(5);
    assert!(said.stderr.contains("--yes says so"), "{}", said.stderr);
}
