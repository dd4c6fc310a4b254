//! Backups of real clusters, in folders and buckets, and clusters made of them.

use std::{
    collections::HashMap,
    fs,
    os::unix::fs::PermissionsExt,
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use etcdrun::etcd::MemberClient;
use etcdrun_lab::{S3, etcd, etcd_tools};
use serde_json::Value;

use super::{
    Said,
    etcd::{PLAIN, Site},
    gateway::Gateway,
    writer::Direct,
};
use crate::secrets::Keys;

pub(super) fn site(members: usize, minor: &str) -> Site {
    Site::formed(members, minor, PLAIN)
}

pub(super) fn run(site: &Site, words: &[&str]) -> Said {
    site.place.folder.run(&[words, &["-i", "inventory.yaml"]].concat())
}

pub(super) fn backup(site: &Site, more: &[&str]) -> Said {
    run(site, &[&["backup", "prod", "--to", "file:backups"], more].concat())
}

fn restore(site: &Site, more: &[&str]) -> Said {
    run(site, &[&["restore", "prod", "--from", "file:backups", "--yes"], more].concat())
}

/// The names in a folder of the site, sorted.
pub(super) fn names(site: &Site, folder: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(site.place.folder.path(folder)) else { return Vec::new() };
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn manifest(site: &Site, folder: &str) -> Value {
    let name = names(site, folder).into_iter().rev().find(|name| name.ends_with(".json")).unwrap();
    serde_json::from_str(&site.place.folder.read(&format!("{folder}/{name}"))).unwrap()
}

/// What every member calculates of all that it has: the hash and the revision.
pub(super) fn hashes(site: &Site) -> HashMap<String, (u64, u64)> {
    let said = site.etcdctl(&["endpoint", "hashkv", "--write-out", "json"]);
    let json = said.lines().find(|line| line.starts_with('[')).unwrap_or_else(|| panic!("{said}"));
    let list: Vec<Value> = serde_json::from_str(json).unwrap();
    let one = |it: &Value| {
        let hash = &it["HashKV"];
        let revision = hash["header"]["revision"].as_u64().unwrap();
        (it["Endpoint"].as_str().unwrap().to_owned(), (hash["hash"].as_u64().unwrap(), revision))
    };
    list.iter().map(one).collect()
}

pub(super) fn put(site: &Site, key: &str, value: &str) {
    assert!(site.etcdctl(&["put", key, value]).contains("OK"));
}

pub(super) fn get(site: &Site, key: &str) -> String {
    site.etcdctl(&["get", key, "--print-value-only"]).trim().to_owned()
}

/// Long enough that two backups have two names.
fn next_second() {
    std::thread::sleep(Duration::from_millis(1100));
}

#[test]
fn a_backup_is_named_described_verified_and_kept_as_long_as_it_is_wanted() {
    let site = site(3, "3.5");
    put(&site, "a", "one");
    let plan = backup(&site, &["--check"]).ends(0);
    assert!(plan.stdout.contains("change ") && names(&site, "backups").is_empty(), "{}", plan.stdout);
    backup(&site, &[]).ends(0);
    let kept = names(&site, "backups");
    let manifest = manifest(&site, "backups");
    let revision = manifest["revision"].as_i64().unwrap();
    assert_eq!(kept.len(), 2, "{kept:?}");
    assert!(kept.iter().all(|name| name.starts_with(&format!("prod-r{revision}-20"))), "{kept:?}");
    assert_eq!(
        manifest["stored_size"],
        fs::metadata(site.place.folder.path("backups").join(manifest["file"].as_str().unwrap())).unwrap().len()
    );
    // From a follower, and with the hash that any member has.
    let leader = run(&site, &["status", "prod"]).ends(0);
    let through = manifest["member"].as_str().unwrap();
    assert!(!leader.stdout.contains(&format!("{through} is the leader")), "{}", leader.stdout);
    let (hash, _) = hashes(&site).into_values().next().unwrap();
    assert_eq!(manifest["hash"]["hash"], hash);

    next_second();
    let keys = Keys::named(&site.place.folder, "first");
    backup(&site, &["--recipient", &keys.public, "--keep-last", "2"]).ends(0);
    next_second();
    // What a crash has left long ago goes; what cannot be read stays, with all that belongs to it.
    let old = |name: &str| {
        let path = site.place.folder.path("backups").join(name);
        fs::write(&path, "?").unwrap();
        let long_ago = std::time::SystemTime::now() - Duration::from_secs(100_000);
        fs::File::options().write(true).open(&path).unwrap().set_modified(long_ago).unwrap();
        path
    };
    let left = ["prod-r2-20260101T000000Z.db.zst.part", "prod-r3-20260101T000000Z.db.zst"].map(old);
    let unreadable = ["prod-r4-20260101T000000Z.json", "prod-r4-20260101T000000Z.db.zst"].map(old);
    let said = backup(&site, &["--keep-last", "2", "-v"]).ends(0);
    assert!(said.stdout.contains("prod-r4-20260101T000000Z.json cannot be read, and stays"), "{}", said.stdout);
    assert!(left.iter().all(|path| !path.exists()) && unreadable.iter().all(|path| path.exists()));
    unreadable.iter().for_each(|path| fs::remove_file(path).unwrap());
    assert_eq!(names(&site, "backups").len(), 4, "{:?}", names(&site, "backups"));
    let list = run(&site, &["backup", "list", "prod", "--from", "file:backups"]).ends(0);
    assert_eq!((list.stdout.matches("  1 keys").count(), list.stdout.lines().count()), (1, 3), "{}", list.stdout);

    // Encrypted: only with the key, and after the change only with the other.
    let verify =
        |key: &str| run(&site, &["backup", "verify", "prod", "--from", "file:backups", "--all", "--age-identity", key]);
    assert_eq!(verify("first").ends(0).stdout.matches("ok  ").count(), 2);
    let other = Keys::named(&site.place.folder, "second");
    let shut = verify("second").ends(2);
    assert!(shut.stdout.contains("none of your keys matches"), "{}", shut.stdout);
    let rekey =
        ["backup", "rekey", "prod", "--from", "file:backups", "--recipient", &other.public, "--age-identity", "first"];
    let check = run(&site, &[&rekey[..], &["--check"]].concat()).ends(0);
    assert_eq!(check.stdout.matches("would change").count(), 2, "{}", check.stdout);
    assert_eq!(verify("first").ends(0).stdout.matches("ok  ").count(), 2);
    run(&site, &rekey).ends(0);
    assert_eq!(verify("second").ends(0).stdout.matches("ok  ").count(), 2);
    verify("first").ends(2);
    assert_eq!(names(&site, "backups").len(), 4, "{:?}", names(&site, "backups"));
}

#[test]
fn a_backup_comes_straight_from_its_member_or_else_through_ssh() {
    let site = site(1, "3.5");
    put(&site, "a", "one");
    // On its own host a member is reached by loopback, also at its address.
    let rule = |verb: &str, target: &[&str]| {
        let words = ["iptables", verb, "INPUT", "!", "-i", "lo", "-p", "tcp", "--dport", "2379"];
        site.place.hosts[0].run(&[&words, target].concat()).unwrap();
    };
    let packets = || {
        let list = site.place.hosts[0].run(&["iptables", "-nvxL", "INPUT"]).unwrap();
        let row = list.lines().find(|line| line.contains("dpt:2379")).unwrap_or_else(|| panic!("{list}"));
        row.split_whitespace().next().unwrap().parse::<u64>().unwrap()
    };
    rule("-A", &[]);
    backup(&site, &[]).ends(0);
    assert!(packets() > 5, "it came through SSH");
    rule("-D", &[]);
    next_second();
    rule("-A", &["-j", "DROP"]);
    backup(&site, &[]).ends(0);
    rule("-D", &["-j", "DROP"]);
    assert_eq!(names(&site, "backups").len(), 4);
    run(&site, &["backup", "verify", "prod", "--all", "--from", "file:backups"]).ends(0);
}

#[test]
fn what_is_wrong_with_a_backup_or_its_place_is_told_and_nothing_changes() {
    let site = site(1, "3.6");
    put(&site, "a", "one");
    let keys = Keys::named(&site.place.folder, "mine");
    backup(&site, &["--recipient", &keys.public]).ends(0);
    let manifest = manifest(&site, "backups");
    let file = site.place.folder.path("backups").join(manifest["file"].as_str().unwrap());
    let whole = fs::read(&file).unwrap();
    let ids = || site.place.hosts[0].run(&["sh", "-c", "ls -di /var/lib/etcd/* /var/lib/etcd/data/member"]).unwrap();
    let before = ids();
    let refused = |more: &[&str], code: i32, why: &str| {
        let said = restore(&site, &[&["--force"], more].concat()).ends(code);
        let all = said.stdout + &said.stderr;
        assert!(all.contains(why), "{why}: {all}");
        assert_eq!(ids(), before, "nothing has moved");
        assert_eq!(get(&site, "a"), "one");
    };
    let healthy = restore(&site, &["--age-identity", "mine"]).ends(3);
    assert!(healthy.stdout.contains("--force"), "{}", healthy.stdout);
    refused(&[], 2, "none of your keys matches");
    fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    refused(&["--age-identity", "mine"], 2, "it ends after");
    let mut bad = whole.clone();
    bad[whole.len() / 2] ^= 1;
    fs::write(&file, &bad).unwrap();
    refused(&["--age-identity", "mine"], 2, "is damaged");
    fs::write(&file, &whole).unwrap();
    // Who can write there can change the manifest, too, and leave out what vouches for it.
    let name = names(&site, "backups").into_iter().find(|name| name.ends_with(".json")).unwrap();
    let path = format!("backups/{name}");
    let text = site.place.folder.read(&path);
    let mut forged: Value = serde_json::from_str(&text).unwrap();
    forged["etcd_version"] = "3.6.0".into();
    site.place.folder.write(&path, &forged.to_string());
    refused(&["--age-identity", "mine"], 5, "was changed after it was written");
    forged.as_object_mut().unwrap().remove("mac");
    site.place.folder.write(&path, &forged.to_string());
    refused(&["--age-identity", "mine"], 5, "has no authentication code");
    site.place.folder.write(&path, &text);
    refused(&["--age-identity", "mine", "--state-dir", "elsewhere"], 5, "elsewhere/backups/prod.key");
    refused(&["--backup-of", "other"], 5, "has no backup of `other`");
    refused(&["--at", "2020-01-01T00:00:00Z"], 5, "at or before that time");
    refused(&["--at", "yesterday"], 5, "is not a timestamp");
    let foreign = site.place.folder.path("foreign.db");
    fs::write(&foreign, vec![7; 4096 + 32]).unwrap();
    let said = run(&site, &["restore", "prod", "--from", "file:foreign.db", "--yes", "--force"]).ends(2);
    assert!(said.stdout.contains("foreign.db is damaged"), "{}", said.stdout);
    let nowhere = run(&site, &["restore", "prod", "--from", "file:nowhere", "--yes"]).ends(1);
    assert!(nowhere.stderr.contains("there is no directory "), "{}", nowhere.stderr);
    assert_eq!(ids(), before);
    let nobody =
        run(&site, &["restore", "prod", "--from", "file:backups", "--force", "--age-identity", "mine"]).ends(5);
    assert!(nobody.stderr.contains("--yes"), "{}", nobody.stderr);
}

#[test]
fn a_cluster_that_cannot_be_asked_is_not_taken_for_one_that_is_gone() {
    let site = site(1, "3.6");
    put(&site, "a", "one");
    backup(&site, &[]).ends(0);
    put(&site, "a", "two");
    let host = &site.place.hosts[0];
    let signal = |name: &str| host.run(&["systemctl", "kill", "--kill-who=main", "-s", name, "etcd.service"]).unwrap();
    // It runs, and says nothing.
    signal("STOP");
    let said = restore(&site, &[]);
    signal("CONT");
    let said = said.ends(3);
    assert!(said.stdout.contains("no answer from") && said.stdout.contains(&site.names[0]), "{}", said.stdout);
    assert!(said.stdout.contains("--force"), "{}", said.stdout);
    assert_eq!(get(&site, "a"), "two");
    // One that certainly does not run is asked for nothing.
    host.run(&["systemctl", "stop", "etcd"]).unwrap();
    restore(&site, &[]).ends(0);
    assert_eq!(get(&site, "a"), "one");
}

#[test]
fn a_member_without_a_majority_is_gone_and_a_host_that_hangs_is_not() {
    let site = site(3, "3.6");
    put(&site, "a", "one");
    backup(&site, &[]).ends(0);
    put(&site, "a", "two");
    let hosts = &site.place.hosts;
    hosts[1].run(&["systemctl", "stop", "etcd"]).unwrap();
    hosts[2].freeze().unwrap();
    let begun = Instant::now();
    let said = restore(&site, &["--connect-timeout", "2"]);
    hosts[2].thaw().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(90), "it does not hang with the host");
    assert!(said.code == 3 || said.code == 4, "{}: {}{}", said.code, said.stdout, said.stderr);
    assert!((said.stdout + &said.stderr).contains(&site.names[2]));
    // It is back, and two of three serve: this is a cluster. Then the last one is alone, and may still believe in a leader.
    assert!(get(&site, "a").starts_with("two"));
    restore(&site, &[]).ends(3);
    hosts[2].run(&["systemctl", "stop", "etcd"]).unwrap();
    restore(&site, &[]).ends(0);
    assert_eq!(get(&site, "a"), "one");
    site.is_served_by_all();
}

#[test]
fn a_restore_that_goes_on_takes_the_backup_that_was_agreed_to() {
    let site = site(1, "3.5");
    put(&site, "a", "one");
    backup(&site, &[]).ends(0);
    next_second();
    put(&site, "a", "two");
    backup(&site, &[]).ends(0);
    let newest = names(&site, "backups").into_iter().rev().find(|name| name.ends_with(".json")).unwrap();
    let (there, away) = (site.place.folder.path("backups").join(newest), site.place.folder.path("later.json"));
    fs::rename(&there, &away).unwrap();
    // It dies before it has begun with the backup, and meanwhile there is a newer one.
    let words = ["restore", "prod", "--from", "file:backups", "--yes", "--force", "-i", "inventory.yaml"];
    site.place.folder.command(&words).env("ETCDRUN_TEST_DIE", "after:2").output().unwrap();
    fs::rename(&away, &there).unwrap();
    site.place.folder.run(&["resume"]).ends(0);
    assert_eq!(get(&site, "a"), "one");
}

#[track_caller]
fn told(said: Said, why: &str) {
    let all = said.stdout + &said.stderr;
    assert!(said.code != 0 && all.contains(why), "{} {why}: {all}", said.code);
}

#[test]
fn buckets_keep_backups_and_say_when_they_do_not() {
    let site = site(1, "3.5");
    put(&site, "a", "one");
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("good")).unwrap();
    let s3 = S3::start(folder.path()).unwrap();
    let run = |words: &[&str], secret: &str| {
        let mut command =
            site.place.folder.command(&[words, &["-i", "inventory.yaml", "--endpoint", &s3.endpoint()]].concat());
        command.env("AWS_ACCESS_KEY_ID", S3::ACCESS_KEY).env("AWS_SECRET_ACCESS_KEY", secret);
        Said::of(command.output().unwrap())
    };
    told(run(&["backup", "prod", "--to", "s3:gone/x"], S3::SECRET_KEY), "there is no bucket");
    told(run(&["backup", "prod", "--to", "s3:good/x"], "wrong"), "the credentials do not allow it");
    run(&["backup", "prod", "--to", "s3:good/x"], S3::SECRET_KEY).ends(0);
    let list = run(&["backup", "list", "prod", "--from", "s3:good/x"], S3::SECRET_KEY).ends(0);
    assert!(list.stdout.contains("prod-r"), "{}", list.stdout);
    run(&["backup", "verify", "prod", "--from", "s3:good/x"], S3::SECRET_KEY).ends(0);
    put(&site, "a", "two");
    run(&["restore", "prod", "--from", "s3:good/x", "--yes", "--force"], S3::SECRET_KEY).ends(0);
    assert_eq!(get(&site, "a"), "one");
    site.is_served_by_all();
}

#[test]
fn a_bucket_may_have_an_authority_of_its_own_and_forbid_to_write() {
    let site = site(1, "3.5");
    put(&site, "a", "one");
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("good")).unwrap();
    let s3 = S3::start(folder.path()).unwrap();
    let (open, shut) = (Gateway::start(s3.address, true), Gateway::start(s3.address, false));
    let ca = |name: &str, gateway: &Gateway| site.place.folder.write(name, &gateway.ca);
    ca("open.crt", &open);
    ca("shut.crt", &shut);
    let run = |words: &[&str], gateway: &Gateway, ca: &str| {
        let place = ["-i", "inventory.yaml", "--endpoint", &gateway.endpoint(), "--s3-ca", ca];
        let mut command = site.place.folder.command(&[words, &place].concat());
        command.env("AWS_ACCESS_KEY_ID", S3::ACCESS_KEY).env("AWS_SECRET_ACCESS_KEY", S3::SECRET_KEY);
        Said::of(command.output().unwrap())
    };
    let backup = ["backup", "prod", "--to", "s3:good/x"];
    told(run(&backup, &open, "gone.crt"), "gone.crt");
    told(run(&backup, &open, "inventory.yaml"), "inventory.yaml contains no certificate");
    told(run(&backup, &open, "shut.crt"), "name a file with its CA by `--s3-ca`");
    told(run(&backup, &shut, "shut.crt"), "no permission");
    assert_eq!(fs::read_dir(folder.path().join("good")).unwrap().count(), 0, "something was kept");

    run(&backup, &open, "open.crt").ends(0);
    let place = ["--from", "s3:good/x"];
    run(&[&["backup", "verify", "prod"], &place[..]].concat(), &open, "open.crt").ends(0);
    put(&site, "a", "two");
    // Who may only read can restore.
    run(&[&["restore", "prod", "--yes", "--force"], &place[..]].concat(), &shut, "shut.crt").ends(0);
    assert_eq!(get(&site, "a"), "one");
}

#[test]
fn every_version_is_restored_as_it_was() {
    for minor in ["3.4", "3.5", "3.6", "3.7"] {
        let site = site(1, minor);
        (0..50).for_each(|number| put(&site, &format!("key-{number}"), &"x".repeat(500)));
        site.etcdctl(&["del", "key-7"]);
        backup(&site, &[]).ends(0);
        let before = hashes(&site).into_values().next().unwrap();
        put(&site, "later", "lost");
        restore(&site, &["--force", "--bump-revision", "0"]).ends(0);
        assert_eq!(hashes(&site).into_values().next().unwrap(), before, "{minor}");
        assert_eq!((get(&site, "later"), get(&site, "key-8").len()), (String::new(), 500));
        // Once more, so that no client takes a revision for one that it has seen.
        let said = restore(&site, &["--force"]).ends(0);
        put(&site, "after", "there");
        let status = site.etcdctl(&["get", "after", "--write-out", "json"]);
        let answer: Value = serde_json::from_str(status.lines().find(|line| line.starts_with('{')).unwrap()).unwrap();
        let revision = answer["header"]["revision"].as_u64().unwrap();
        assert_eq!(revision, before.1 + 1_000_000_001, "{minor}: {}", said.stdout);
        let old = site.etcdctl(&["get", "key-8", "--rev", &before.1.to_string()]);
        assert!(old.contains("has been compacted"), "{minor}: {old}");
        assert_eq!(get(&site, "key-8").len(), 500);
        // It survives a restart, and what site.yaml wants is still there.
        site.place.hosts[0].run(&["systemctl", "restart", "etcd"]).unwrap();
        assert_eq!((get(&site, "after").as_str(), get(&site, "key-7").as_str()), ("there", ""), "{minor}");
        site.changes_nothing();
        let aside = site.place.hosts[0].run(&["sh", "-c", "ls -d /var/lib/etcd/data.before-*/member"]).unwrap();
        assert_eq!(aside.lines().count(), 2, "{aside}");
        let version = etcd(minor).unwrap().version;
        assert!(site.etcdctl(&["endpoint", "status"]).contains(&version));
    }
}

#[test]
fn three_members_that_lost_everything_come_back_with_users_and_certificates() {
    let site = site(3, "3.6");
    (0..20).for_each(|number| put(&site, &format!("key-{number}"), "value"));
    backup(&site, &[]).ends(0);
    let serial =
        || site.place.hosts[0].run(&["sha256sum", "/etc/etcd/pki/server.crt", "/etc/etcd/pki/server.key"]).unwrap();
    let certificates = serial();
    for host in &site.place.hosts {
        host.run(&[
            "sh",
            "-c",
            "systemctl stop etcd; rm -rf /var/lib/etcd/data/member; mkdir -p /var/lib/etcd/lost+found",
        ])
        .unwrap();
    }
    let plan = restore(&site, &["--check"]).ends(0);
    assert!(plan.stdout.contains("change "), "{}", plan.stdout);
    restore(&site, &[]).ends(0);
    site.is_served_by_all();
    let all = hashes(&site);
    let first = all.values().next().unwrap();
    assert!(all.len() == 3 && all.values().all(|hash| hash == first), "{all:?}");
    assert_eq!(get(&site, "key-19"), "value");
    assert!(site.etcdctl(&["auth", "status"]).contains("Authentication Status: true"));
    assert_eq!(serial(), certificates);
    assert!(names(&site, ".etcdrun/restore").is_empty(), "no copy of the data stays here");
    site.changes_nothing();
}

/// The tool that etcd has for this makes the same of the same.
#[test]
fn etcdutl_reads_what_a_backup_holds() {
    let site = site(1, "3.5");
    put(&site, "a", "one");
    backup(&site, &[]).ends(0);
    let manifest = manifest(&site, "backups");
    let file = site.place.folder.path("backups").join(manifest["file"].as_str().unwrap());
    let plain = site.place.folder.path("plain.db");
    fs::write(&plain, zstd::decode_all(fs::File::open(file).unwrap()).unwrap()).unwrap();
    let status = std::process::Command::new(etcd_tools().unwrap().join("etcdutl"))
        .args(["snapshot", "status", "--write-out", "json"])
        .arg(&plain)
        .output()
        .unwrap();
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["revision"], manifest["revision"]);
    // A snapshot that another tool has saved will do as well.
    put(&site, "a", "two");
    run(&site, &["restore", "prod", "--from", "file:plain.db", "--yes", "--force"]).ends(0);
    assert_eq!(get(&site, "a"), "one");
    // But not into a version that cannot be trusted to read it.
    let (mine, other) = (etcd("3.5").unwrap(), etcd("3.7").unwrap());
    let text =
        site.place.folder.read("inventory.yaml").replace(&super::etcd::release(&mine), &super::etcd::release(&other));
    site.place.folder.write("inventory.yaml", &text.replace(&mine.version, &other.version));
    let said = run(&site, &["restore", "prod", "--from", "file:plain.db", "--yes", "--force"]).ends(2);
    assert!(said.stdout.contains("is of etcd 3.5.0"), "{}", said.stdout);
    assert_eq!(get(&site, "a"), "one");
}

#[test]
fn wherever_the_operator_is_killed_a_backup_goes_on() {
    let site = site(1, "3.5");
    put(&site, "a", "one");
    let words = ["backup", "prod", "--to", "file:backups", "-i", "inventory.yaml"];
    let deaths = site.place.folder.killed_everywhere(&words, "after", 2, || {
        // What has a manifest is whole.
        if names(&site, "backups").iter().any(|name| name.ends_with(".json")) {
            run(&site, &["backup", "verify", "prod", "--from", "file:backups"]).ends(0);
        }
    });
    println!("{deaths} deaths");
    assert!(deaths >= 2, "it was killed {deaths} times");
    run(&site, &["backup", "verify", "prod", "--from", "file:backups"]).ends(0);
}

#[test]
fn wherever_the_operator_is_killed_a_restore_goes_on() {
    let site = site(3, "3.5");
    put(&site, "a", "one");
    backup(&site, &[]).ends(0);
    put(&site, "a", "two");
    let words = ["restore", "prod", "--from", "file:backups", "--yes", "--force", "-i", "inventory.yaml"];
    site.place.folder.killed_here_and_there(&words, 20, || {});
    site.is_served_by_all();
    assert_eq!(get(&site, "a"), "one");
    let all = hashes(&site);
    let first = all.values().next().unwrap();
    assert!(all.values().all(|hash| hash == first), "{all:?}");
}

#[test]
fn a_cluster_is_destroyed_after_a_last_backup_and_can_be_made_again() {
    let site = site(2, "3.5");
    put(&site, "a", "one");
    let destroy = |more: &[&str]| run(&site, &[&["destroy", "prod"], more].concat());
    let to = ["--backup-to", "file:backups"];
    let unsaid = destroy(&["--yes"]).ends(5);
    assert!(unsaid.stderr.contains("--no-backup"), "{}", unsaid.stderr);
    let plan = destroy(&[&to[..], &["--check"]].concat()).ends(0);
    assert!(plan.stdout.contains("change "), "{}", plan.stdout);
    let nobody = destroy(&to).ends(5);
    assert!(nobody.stderr.contains("--yes skips the prompt"), "{}", nobody.stderr);
    assert_eq!(get(&site, "a"), "one", "nothing has happened yet");
    assert!(names(&site, "backups").is_empty());
    // A machine of another cluster is left alone.
    let host = &site.place.hosts[1];
    let unit = "/etc/systemd/system/etcd.service";
    host.run(&["sed", "-i", "s/a member of prod$/a member of other/", unit]).unwrap();
    let alien = destroy(&["--no-backup", "--yes"]).ends(2);
    assert!(alien.stdout.contains("this host is not changed"), "{}", alien.stdout);
    host.run(&["systemctl", "is-active", "etcd"]).unwrap();
    host.run(&["sed", "-i", "s/a member of other$/a member of prod/", unit]).unwrap();
    assert_eq!(get(&site, "a"), "one", "it was seen before anything went");

    // Who knows nothing of it must not take it for one that is gone.
    let stranger = destroy(&["--yes", "--state-dir", "elsewhere"]).ends(5);
    assert!(stranger.stderr.contains("has no record of it"), "{}", stranger.stderr);
    assert_eq!(get(&site, "a"), "one");

    destroy(&[&to[..], &["--yes"]].concat()).ends(0);
    assert_eq!(names(&site, "backups").len(), 2);
    for host in &site.place.hosts {
        let places = "/var/lib/etcd/data* /etc/etcd /opt/etcd/* /etc/systemd/system/etcd.service";
        let left = host.run(&["sh", "-c", &format!("ls -d {places} 2> /dev/null; true")]).unwrap();
        assert!(left.is_empty(), "{left}");
        assert!(host.run(&["systemctl", "is-active", "etcd"]).is_err());
    }
    assert!(names(&site, ".etcdrun/pki").is_empty() && names(&site, ".etcdrun/clusters").is_empty());
    let again = destroy(&["--yes"]).ends(0);
    assert!(!again.stdout.lines().any(|line| line.starts_with("changed ")), "{}", again.stdout);

    // The last backup is good for another one.
    restore(&site, &[]).ends(0);
    assert_eq!(get(&site, "a"), "one");
    destroy(&["--no-backup", "--keep-data", "--yes"]).ends(0);
    let aside = site.place.hosts[0].run(&["sh", "-c", "ls -d /var/lib/etcd/data.removed-*/member"]).unwrap();
    assert_eq!(aside.lines().count(), 1, "{aside}");
    assert_eq!(names(&site, ".etcdrun/destroyed").len(), 1);
}

#[test]
fn a_timer_takes_backups_on_a_host_of_its_own() {
    let site = Site::new(2, "3.5", PLAIN);
    // The second host is no member: it keeps the backups.
    let text = site.place.folder.read("inventory.yaml");
    let line = text.lines().find(|line| line.trim_start().starts_with(&site.names[1])).unwrap().to_owned();
    let vault = format!("hosts:\n{}\n", line.replacen("      ", "  ", 1));
    site.place.folder.write(
        "inventory.yaml",
        &text.replace(&format!("{line}\n"), "").replace("clusters:", &format!("{vault}clusters:")),
    );
    site.play(&[]).ends(0);
    // Keys and known hosts are where the role puts them, so its inventory does not name those of this machine.
    let key = text.lines().find_map(|line| line.trim().strip_prefix("identity_file: ")).unwrap();
    let of_this_machine = ["identity_file:", "identities_only:", "known_hosts:"];
    let there = site.place.folder.read("inventory.yaml");
    let there = there.lines().filter(|line| !of_this_machine.iter().any(|it| line.trim().starts_with(it)));
    site.place.folder.write("vault.yaml", &there.map(|line| format!("{line}\n")).collect::<String>());
    let here = site.place.folder.path("").display().to_string();
    let play = format!(
        "- hosts: {}\n  become: true\n  roles:\n    - role: backup_timer\n      vars:\n        backup_timer_cluster: prod\n        backup_timer_program: {}\n        backup_timer_inventory: {here}/vault.yaml\n        backup_timer_state: {}\n        backup_timer_ssh_key: {key}\n        backup_timer_known_hosts: {here}/known_hosts\n        backup_timer_to: file:/srv/backups\n        backup_timer_arguments: [--keep-last, \"2\"]\n",
        site.names[1],
        env!("CARGO_BIN_EXE_etcdrun"),
        site.place.folder.path(".etcdrun").display(),
    );
    site.place.folder.write("timer.yaml", &play);
    run(&site, &["playbook", "timer.yaml"]).ends(0);
    let vault = &site.place.hosts[1];
    vault.run(&["systemctl", "is-active", "etcdrun-backup-prod.timer"]).unwrap();
    vault.run(&["systemctl", "start", "etcdrun-backup-prod.service"]).unwrap();
    let kept = vault.run(&["ls", "/srv/backups"]).unwrap();
    assert_eq!(kept.lines().count(), 2, "{kept}");
    // What is signed there is believed here.
    for name in kept.lines() {
        let bytes = vault.run(&["base64", "-w0", &format!("/srv/backups/{name}")]).unwrap();
        let path = site.place.folder.path("brought");
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join(name), STANDARD.decode(bytes.trim()).unwrap()).unwrap();
    }
    run(&site, &["backup", "verify", "prod", "--from", "file:brought"]).ends(0);
    // Another cluster has folders of its own, and a new certificate comes with the next play.
    assert_eq!(vault.run(&["ls", "/etc/etcdrun", "/var/lib/etcdrun"]).unwrap().matches("prod").count(), 2);
    let there = || vault.run(&["cat", "/var/lib/etcdrun/prod/pki/prod/clients/root.crt"]).unwrap();
    let before = there();
    run(&site, &["certs", "renew", "prod", "--early", "1000d"]).ends(0);
    run(&site, &["playbook", "timer.yaml"]).ends(0);
    assert_ne!(there(), before);
    vault.run(&["systemctl", "start", "etcdrun-backup-prod.service"]).unwrap();
}

/// Writes so many values of a megabyte that nothing can make smaller.
fn fill(site: &Site, megabytes: usize) {
    let credential = site.root_credential();
    let (name, ip) = site.members().remove(0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let member = MemberClient::new(&name, &ip, 2379, &credential, Arc::new(Direct)).unwrap();
        let mut client = member.client().await.unwrap();
        for number in 0..megabytes {
            let mut value = vec![0; 1 << 20];
            rand::fill(&mut value[..]);
            client.put(format!("large-{number}"), value, None).await.unwrap();
        }
    });
}

/// The most memory that a command had at any time, in MiB.
fn peak(mut command: std::process::Command) -> u64 {
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    loop {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let now =
            text.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        peak = peak.max(now.unwrap_or(0));
        if let Some(ended) = child.try_wait().unwrap() {
            assert!(ended.success());
            return peak / 1024;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn however_large_a_cluster_is_little_of_it_is_in_memory() {
    const MEGABYTES: usize = 250;
    // Where there is more room than on the disk for the data.
    let site = Site::played(1, "3.5", "    etcd: { version: VERSION, data_dir: /srv/etcd/data }\n");
    fill(&site, MEGABYTES);
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("good")).unwrap();
    let s3 = S3::start(folder.path()).unwrap();
    let command = |words: &[&str]| {
        let endpoint = s3.endpoint();
        let mut command =
            site.place.folder.command(&[words, &["-i", "inventory.yaml", "--endpoint", &endpoint]].concat());
        command.env("AWS_ACCESS_KEY_ID", S3::ACCESS_KEY).env("AWS_SECRET_ACCESS_KEY", S3::SECRET_KEY);
        command
    };
    let keys = Keys::named(&site.place.folder, "mine");
    let to_file = peak(command(&["backup", "prod", "--to", "file:backups", "--recipient", &keys.public]));
    let to_s3 = peak(command(&["backup", "prod", "--to", "s3:good"]));
    let back = peak(command(&["restore", "prod", "--from", "s3:good", "--yes", "--force"]));
    println!("peak memory: backup to a folder {to_file} MiB, to a bucket {to_s3} MiB, restore {back} MiB");
    assert!(to_file.max(to_s3).max(back) < 200, "{to_file} {to_s3} {back}");
    site.is_served_by_all();
}

/// What Prometheus gets of a cluster that serves, and of one that does not.
#[test]
fn metrics_tell_of_clusters_certificates_backups_and_runs() {
    let site = site(1, "3.7");
    let text = site.place.folder.read("inventory.yaml");
    let with_place = text.replacen("    members:", "    backup: { to: \"file:backups\" }\n    members:", 1);
    assert_ne!(text, with_place);
    site.place.folder.write("inventory.yaml", &with_place);
    backup(&site, &[]).ends(0);
    let name = &site.names[0];
    let has = |text: &str, lines: &[&str]| {
        for line in lines {
            assert!(text.lines().any(|it| it.starts_with(line)), "no {line:?} in:\n{text}");
        }
    };
    run(&site, &["metrics", "--output", "etcdrun.prom"]).ends(0);
    let text = site.place.folder.read("etcdrun.prom");
    let member = format!("cluster=\"prod\",member=\"{name}\"");
    has(
        &text,
        &[
            "etcdrun_cluster_info{cluster=\"prod\",version=\"3.7\"} 1",
            "etcdrun_cluster_read_success{cluster=\"prod\"} 1",
            "etcdrun_cluster_healthy{cluster=\"prod\"} 1",
            &format!("etcdrun_member_alarm{{{member},alarm=\"NOSPACE\"}} 0"),
            &format!("etcdrun_member_db_size_bytes{{{member}}} "),
            "etcdrun_certificate_not_after_timestamp_seconds{cluster=\"prod\",kind=\"authority\",name=\"prod etcd\"} 2",
            &format!(
                "etcdrun_certificate_not_after_timestamp_seconds{{cluster=\"prod\",kind=\"member\",name=\"{name}\"}} 1"
            ),
            "etcdrun_backups{cluster=\"prod\",location=\"file:backups\"} 1",
            "etcdrun_backup_last_attempt_success{cluster=\"prod\",location=\"file:backups\"} 1",
            "etcdrun_runs{state=\"failed\"} 0",
        ],
    );
    let mode = fs::metadata(site.place.folder.path("etcdrun.prom")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o644, "node exporter runs as another user");
    site.place.hosts[0].run(&["systemctl", "stop", "etcd"]).unwrap();
    let down = run(&site, &["metrics", "prod"]).ends(0).stdout;
    let (healthy, reachable) =
        (format!("etcdrun_member_healthy{{{member}}} 0"), format!("etcdrun_member_reachable{{{member}}} 1"));
    has(&down, &["etcdrun_cluster_read_success{cluster=\"prod\"} 0", &healthy, &reachable]);
    assert!(!down.contains("etcdrun_member_alarm"), "it is not known: {down}");
    let wrong = run(&site, &["metrics", "prot"]).ends(5);
    assert!(wrong.stderr.contains("did you mean `prod`?"), "{}", wrong.stderr);
}
