//! The data itself: members that have something else than others, backups of bad times, and what a restore must not believe.

use std::{
    fs,
    process::Stdio,
    time::{Duration, Instant, SystemTime},
};

use etcdrun::digest::sha256;
use etcdrun_lab::{Host, etcd};

use super::{
    Said,
    backup::{backup, get, names, put, run, site},
    changed_world::dies_behind,
    etcd::{PLAIN, Site},
    upgrade,
};

fn restore(site: &Site, more: &[&str]) -> Said {
    run(site, &[&["restore", "prod", "--from", "file:backups", "--yes"], more].concat())
}

#[track_caller]
fn says(said: &Said, text: &str) {
    let all = format!("{}{}", said.stdout, said.stderr);
    assert!(all.contains(text), "{text}:\n{all}");
}

fn beside(host: &Host) -> String {
    host.run(&["sh", "-c", "ls -d /var/lib/etcd/data.* 2> /dev/null; true"]).unwrap()
}

#[test]
fn a_backup_of_a_full_cluster_becomes_one_that_takes_writes() {
    let site =
        Site::formed(3, "3.5", "    etcd: { version: VERSION, quota: 16MiB, compaction: { retention: 100000 } }\n");
    let value = "x".repeat(100_000);
    let full = (0..400).any(|_| site.etcdctl(&["put", "key", &value]).contains("database space exceeded"));
    assert!(full && site.etcdctl(&["alarm", "list"]).contains("NOSPACE"));
    backup(&site, &[]).ends(0);
    // There is more room from now on; the alarm would be of members that are no more.
    let text = site.place.folder.read("inventory.yaml");
    site.place.folder.write("inventory.yaml", &text.replace("16MiB", "64MiB"));
    restore(&site, &["--force"]).ends(0);
    assert_eq!(site.etcdctl(&["alarm", "list"]).trim(), "");
    put(&site, "after", "there");
    assert_eq!(get(&site, "after"), "there");
    site.is_served_by_all();
}

/// The member has another value than the others, and nobody has noticed.
fn falsify(site: &Site, member: usize) {
    let host = &site.place.hosts[member];
    let change = "systemctl stop etcd; \
        LC_ALL=C sed -i 's/first-value/FALSE-VALUE/g' /var/lib/etcd/data/member/snap/db; \
        sed -i '/CORRUPT_CHECK/d' /etc/etcd/etcd.env; systemctl start etcd";
    host.run(&["sh", "-c", change]).unwrap();
    site.all_become_healthy();
}

#[test]
fn a_member_with_other_data_is_told_before_an_upgrade_and_gives_no_backup() {
    let site = upgrade::site(3, "3.5", PLAIN);
    put(&site, "a", "first-value");
    backup(&site, &[]).ends(0);
    falsify(&site, 1);
    let bad = &site.names[1];
    upgrade::wants(&site, &etcd("3.5").unwrap().version, &etcd("3.6").unwrap().version, &upgrade::releases(&["3.6"]));
    let said = upgrade::upgrade(&site).ends(3);
    says(&said, "data-agrees: at revision");
    says(&said, &format!("`etcdrun member replace {bad}`"));
    upgrade::all_run(&site, &etcd("3.5").unwrap().version);
    // A backup comes from those that agree, and says who does not.
    std::thread::sleep(Duration::from_millis(1100));
    let said = backup(&site, &["-v"]).ends(0);
    says(&said, &format!("`etcdrun member replace {bad}` gives it the data of the others"));
    assert!(!said.stdout.contains(&format!("through {bad}")), "{}", said.stdout);
    std::thread::sleep(Duration::from_millis(1100));
    says(&backup(&site, &["--through", bad, "-v"]).ends(0), "the hash of their data differs");
    // It may go, and the new one has what the others have.
    site.place.hosts[1].run(&["systemctl", "stop", "etcd"]).unwrap();
    run(&site, &["member", "replace", bad, "--yes"]).ends(0);
    upgrade::upgrade(&site).ends(0);
    assert_eq!(get(&site, "a"), "first-value");
}

#[test]
fn a_resumed_upgrade_takes_a_new_snapshot_and_each_version_has_its_own() {
    let site = upgrade::site(3, "3.5", PLAIN);
    upgrade::wants(
        &site,
        &etcd("3.5").unwrap().version,
        &etcd("3.7").unwrap().version,
        &upgrade::releases(&["3.6", "3.7"]),
    );
    let snapshots = || names(&site, ".etcdrun/snapshots");
    let words = ["playbook", "upgrade.yaml", "-i", "inventory.yaml"];
    let mut running = site.place.folder.command(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    // In the turn of its first member.
    while !site.etcdctl(&["endpoint", "status"]).contains(&etcd("3.6").unwrap().version) {
        assert!(begun.elapsed() < Duration::from_secs(120) && running.try_wait().unwrap().is_none());
    }
    running.kill().unwrap();
    running.wait().unwrap();
    assert_eq!(snapshots().len(), 1, "{:?}", snapshots());
    let old = site.place.folder.path(".etcdrun/snapshots").join(&snapshots()[0]);
    let yesterday = SystemTime::now() - Duration::from_secs(86_400);
    fs::File::options().write(true).open(&old).unwrap().set_modified(yesterday).unwrap();
    site.place.folder.run(&["resume"]).ends(0);
    upgrade::all_run(&site, &etcd("3.7").unwrap().version);
    // The old one, another for what was left of the first hop, and one for the second.
    assert!(snapshots().len() >= 3, "{:?}", snapshots());
}

/// A snapshot on disk with its pages changed, and a sum that says that this is how it was sent.
fn damaged(plain: &[u8], change: impl Fn(&mut [u8]) -> usize) -> Vec<u8> {
    let mut bytes = plain[..plain.len() - 32].to_vec();
    assert!(change(&mut bytes) > 0);
    let sum: [u8; 32] = sha256(&bytes);
    bytes.extend(sum);
    bytes
}

#[test]
fn data_that_no_server_serves_is_found_before_anything_is_stopped() {
    let site = site(1, "3.6");
    (0..400).for_each(|number| put(&site, &format!("key-{number:03}"), &"v".repeat(100)));
    backup(&site, &[]).ends(0);
    put(&site, "later", "stays");
    let host = &site.place.hosts[0];
    let state = || host.run(&["sh", "-c", "ls -A /var/lib/etcd; systemctl show -p MainPID etcd"]).unwrap();
    let before = state();
    let manifest = names(&site, "backups").into_iter().find(|name| name.ends_with(".json")).unwrap();
    let file = manifest.replace(".json", ".db.zst");
    let plain = zstd::decode_all(fs::File::open(site.place.folder.path("backups").join(file)).unwrap()).unwrap();
    // A page in the middle that is empty: the tree above it is whole.
    let bytes = damaged(&plain, |bytes| {
        let pages = bytes.chunks_mut(4096).skip(2).filter(|page| page.windows(7).any(|some| some == b"key-200"));
        pages.map(|page| page.fill(0)).count()
    });
    fs::write(site.place.folder.path("plain.db"), bytes).unwrap();
    let said = run(&site, &["restore", "prod", "--from", "file:plain.db", "--yes", "--force"]).ends(2);
    says(&said, "is damaged");
    assert_eq!((state(), get(&site, "later").as_str()), (before.clone(), "stays"));
    // What the manifest says is not what is there.
    let whole = site.place.folder.read(&format!("backups/{manifest}"));
    let mut text: serde_json::Value = serde_json::from_str(&whole).unwrap();
    text["hash"]["hash"] = 1.into();
    site.place.folder.write(&format!("backups/{manifest}"), &text.to_string());
    let said = restore(&site, &["--force", "--unauthenticated"]).ends(2);
    says(&said, "Nothing was stopped or changed");
    assert_eq!((state(), get(&site, "later").as_str()), (before, "stays"));
    assert!(host.run(&["systemctl", "is-active", "etcd-salvage"]).is_err());
    // And with the right one it is restored.
    site.place.folder.write(&format!("backups/{manifest}"), &whole);
    says(&restore(&site, &["--force"]).ends(0), "with the same hash as when the backup was taken");
    assert_eq!((get(&site, "later").as_str(), get(&site, "key-200").len()), ("", 100));
}

#[test]
fn root_gets_in_after_a_restore_of_a_backup_with_another_password() {
    let site = Site::played(1, "3.6", &format!("{PLAIN}    auth: {{ method: password }}\n"));
    backup(&site, &[]).ends(0);
    run(&site, &["playbook", "root-password.yaml"]).ends(0);
    says(&run(&site, &["status", "prod"]).ends(0), "prod: healthy");
    let drill = run(&site, &["restore", "prod", "--from", "file:backups", "--drill", "-v"]).ends(0);
    says(&drill, "with the same hash");
    restore(&site, &["--force"]).ends(0);
    says(&run(&site, &["status", "prod"]).ends(0), "prod: healthy");
    site.changes_nothing();
    // The password of another cluster is not known here at all.
    let clients = ".etcdrun/pki/prod/clients";
    for name in names(&site, clients).iter().filter(|name| name.starts_with("root.password")) {
        fs::remove_file(site.place.folder.path(clients).join(name)).unwrap();
    }
    restore(&site, &["--force"]).ends(0);
    says(&run(&site, &["status", "prod"]).ends(0), "prod: healthy");
}

#[test]
fn a_power_cut_between_old_and_new_data_loses_neither() {
    let site = site(1, "3.5");
    put(&site, "a", "one");
    backup(&site, &[]).ends(0);
    put(&site, "a", "two");
    let host = &site.place.hosts[0];
    let words = ["restore", "prod", "--from", "file:backups", "--yes", "--force", "-i", "inventory.yaml"];
    dies_behind(&site, &words, "/Copy the restored data");
    // The old data has gone aside, it is noted, and the power goes. Then the machine boots, and etcd begins with nothing.
    let cut = "cd /var/lib/etcd; new=$(ls -d data.restore-*); systemctl stop etcd; mkdir data.before-cut; \
        mv data/member data.before-cut/member; touch \"data.restored-${new#data.restore-}\"; \
        mkdir -p data/member/snap; echo something > data/member/snap/db; chown -R etcd: data";
    host.run(&["sh", "-c", cut]).unwrap();
    site.place.folder.run(&["resume"]).ends(0);
    assert_eq!(get(&site, "a"), "one");
    let aside = beside(host);
    assert_eq!(aside.matches("data.before-").count(), 2, "{aside}");
    assert!(
        host.run(&["sh", "-c", "grep -q something /var/lib/etcd/data.before-2*/member/snap/db"]).is_ok(),
        "{aside}"
    );
}

#[test]
fn a_cluster_that_is_slow_is_not_taken_for_one_that_is_gone() {
    let slow = "    etcd: { version: VERSION, settings: { heartbeat-interval: 4000, election-timeout: 40000 } }\n";
    let site = Site::played(3, "3.6", slow);
    put(&site, "a", "one");
    backup(&site, &[]).ends(0);
    put(&site, "a", "two");
    // For a while nothing gets from one member to another, and none of them has noticed yet.
    let rule = |verb: &str| {
        for host in &site.place.hosts {
            host.run(&["iptables", verb, "INPUT", "-p", "tcp", "--dport", "2380", "-j", "DROP"]).unwrap();
            host.run(&["iptables", verb, "INPUT", "-p", "tcp", "--sport", "2380", "-j", "DROP"]).unwrap();
        }
    };
    rule("-A");
    let said = restore(&site, &[]);
    rule("-D");
    says(&said.ends(3), "it may only be slow");
    let begun = Instant::now();
    while get(&site, "a") != "two" {
        assert!(begun.elapsed() < Duration::from_secs(120));
    }
}

#[test]
fn what_the_last_member_lists_counts_where_the_state_folder_is_lost() {
    let site = site(3, "3.6");
    put(&site, "a", "one");
    backup(&site, &[]).ends(0);
    // The first two are cut off from the third, and serve. Here they are forgotten.
    let rule = |verb: &str| {
        for other in ["--dport", "--sport"] {
            site.place.hosts[2].run(&["iptables", verb, "INPUT", "-p", "tcp", other, "2380", "-j", "DROP"]).unwrap();
        }
    };
    rule("-A");
    let text = site.place.folder.read("inventory.yaml");
    let gone = |line: &&str| site.names[..2].iter().any(|name| line.trim_start().starts_with(&format!("{name}:")));
    let rest: String = text.lines().filter(|line| !gone(line)).map(|line| format!("{line}\n")).collect();
    site.place.folder.write("inventory.yaml", &rest);
    fs::remove_file(site.place.folder.path(".etcdrun/clusters/prod.json")).unwrap();
    says(&run(&site, &["recover", "prod", "--yes"]).ends(3), "together they are a majority");
    says(&restore(&site, &[]).ends(3), "together they are a majority");
    assert_eq!(beside(&site.place.hosts[2]), "", "nothing was touched");
    rule("-D");
    site.place.folder.write("inventory.yaml", &text);
    site.all_become_healthy();
    site.is_served_by_all();
}
