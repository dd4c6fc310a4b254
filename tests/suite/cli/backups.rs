//! Folders with backups, as a user looks at them. No host is asked for anything.

use std::io::{self, Read as _};

use etcdrun::digest::{hex, sha256};
use serde_json::{Value, json};

use crate::{
    secrets::Keys,
    support::{process::measured, program::Folder},
};

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
    assert!(lines[3].contains("is not a manifest of a backup"), "{}", list.stdout);
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
    assert!(named.stderr.contains("is not a manifest of a backup"), "{}", named.stderr);
    // What that time had can be read.
    let nobody = ["restore", "prod", "--from", "file:backups", "--at", "2026-01-01T12:00:00Z"];
    let said = folder.run(&[&nobody[..], &["--unauthenticated"]].concat()).ends(5);
    assert!(said.stderr.contains("--yes skips the prompt"), "{}", said.stderr);
}

#[test]
fn what_nobody_has_signed_is_believed_only_with_a_word() {
    let folder = folder();
    let first = ["--backup", "prod-r5-20260101T000000Z"];
    let restore = [&["restore", "prod", "--from", "file:backups", "--yes"], &first[..]].concat();
    let refused = folder.run(&restore).ends(5);
    assert!(refused.stderr.contains("is not authentic: it has no authentication code"), "{}", refused.stderr);
    assert!(refused.stderr.contains("--unauthenticated"), "{}", refused.stderr);
    let verify = ["backup", "verify", "prod", "prod-r5-20260101T000000Z", "--from", "file:backups"];
    let said = folder.run(&verify).ends(2);
    assert!(said.stdout.contains("is not authentic"), "{}", said.stdout);
    let said = folder.run(&[&verify[..], &["--unauthenticated"]].concat()).ends(2);
    assert!(said.stdout.contains("is damaged"), "{}", said.stdout);
    // Nor does anybody encrypt it, and sign it with that.
    let keys = Keys::named(&folder, "mine");
    let rekey = ["backup", "rekey", "prod", "prod-r5-20260101T000000Z", "--from", "file:backups", "--recipient"];
    let said = folder.run(&[&rekey[..], &[&keys.public]].concat()).ends(2);
    assert!(said.stdout.starts_with("BAD     prod-r5-20260101T000000Z.json: "), "{}", said.stdout);
}

#[test]
fn a_manifest_cannot_talk_encryption_away() {
    let folder = folder();
    let keys = Keys::named(&folder, "mine");
    let section = format!("    backup: {{ recipients: [{}] }}\n    members:\n", keys.public);
    folder.write("inventory.yaml", &INVENTORY.replace("    members:\n", &section));
    for verb in ["verify", "restore"] {
        let words: &[&str] = match verb {
            "verify" => &["backup", "verify", "prod", "prod-r5-20260101T000000Z"],
            _ => &["restore", "prod", "--yes", "--backup", "prod-r5-20260101T000000Z"],
        };
        let said = folder.run(&[words, &["--from", "file:backups", "--unauthenticated"]].concat());
        let all = said.stdout + &said.stderr;
        assert!(said.code != 0 && all.contains("is not encrypted, but the section `backup`"), "{}: {all}", said.code);
    }
}

/// A file of zeros that is thousands of times as large as what is stored of it.
#[test]
fn a_bomb_is_noticed_when_it_has_what_its_manifest_says() {
    let folder = folder();
    let mut packed = Vec::new();
    let mut encoder = zstd::Encoder::new(&mut packed, 3).unwrap();
    io::copy(&mut io::repeat(0).take(512 << 20), &mut encoder).unwrap();
    encoder.finish().unwrap();
    let sum: String = hex(sha256(&packed));
    let mut manifest: Value = serde_json::from_str(&manifest(5, 1)).unwrap();
    manifest["stored_size"] = packed.len().into();
    manifest["stored_sha256"] = sum.into();
    manifest["size"] = (4096 + 32).into();
    std::fs::write(folder.path("backups/prod-r5-20260101T000000Z.db.zst"), &packed).unwrap();
    let write = |manifest: &Value| {
        folder.write("backups/prod-r5-20260101T000000Z.json", &manifest.to_string());
        let words = ["backup", "verify", "prod", "prod-r5-20260101T000000Z", "--from", "file:backups"];
        measured(folder.command(&[&words[..], &["--unauthenticated"]].concat()))
    };
    let (said, memory) = write(&manifest);
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(text.contains("unpacks to more than the 4 KiB of its manifest"), "{text}");
    assert!(memory < 200, "{memory} MiB");
    // One that says so itself is none that we would have made.
    manifest["size"] = (1_u64 << 40).into();
    let (said, _) = write(&manifest);
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(text.contains("are said to contain 1 TiB, which no database does"), "{text}");
}

#[test]
fn manifests_of_any_size_and_shape_cost_little() {
    let folder = Folder::new();
    folder.write("inventory.yaml", INVENTORY);
    let write = |day: u32, text: &str| {
        folder.write(&format!("backups/prod-r5-202601{day:02}T000000Z.json"), text);
    };
    write(1, &"[".repeat(64 << 20));
    write(2, &format!("{{\"recipients\": [{}\"\"]}}", "\"\",".repeat(16 << 20)));
    write(3, &manifest(5, 3).replace("prod-r5-20260103T000000Z.db.zst", "../../etc/passwd"));
    write(4, &manifest(5, 4).replace("64", "-1"));
    let (said, memory) = measured(folder.command(&["backup", "list", "prod", "--from", "file:backups"]));
    let text = String::from_utf8_lossy(&said.stdout);
    assert_eq!(text.matches("damaged: ").count(), 4, "{text}");
    assert!(memory < 150, "{memory} MiB");
}
