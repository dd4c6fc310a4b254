//! Ways between versions of real etcd: back, down, by way of patches, and with members or data of old releases.

use std::process::Command;

use etcdrun_lab::etcd;

use super::{
    Said,
    etcd::{PLAIN, Site},
    gates::{fill, leader},
    upgrade::{NO_AUTH, all_run, nothing_is_lost, releases, site, upgrade, wants, writer},
};

fn version(minor: &str) -> String {
    etcd(minor).unwrap().version
}

fn downgrade(site: &Site) -> Said {
    site.place.folder.run(&["playbook", "downgrade.yaml", "-i", "inventory.yaml"])
}

/// An upgrade that ends when the leader has its turn, which is the last one.
fn upgrade_all_but_the_leader(site: &Site, to: &str) {
    let play = "- hosts: clusters\n  become: true\n  rollout: { strategy: etcd, upgrade: true }\n  pre_tasks:\n    \
                - name: Not this one\n      command: test {{ inventory_hostname }} != LEADER\n  roles: [etcd]\n";
    site.place.folder.write("most.yaml", &play.replace("LEADER", &site.names[leader(site)]));
    site.place.folder.run(&["playbook", "most.yaml", "-i", "inventory.yaml"]).ends(2);
    let status = site.etcdctl(&["endpoint", "status"]);
    assert_eq!(status.matches(&format!(", {to}, ")).count(), site.names.len() - 1, "{status}");
}

#[test]
fn a_half_done_upgrade_goes_back_and_a_whole_one_down() {
    let site = site(3, "3.5", PLAIN);
    let (old, new) = (version("3.5"), version("3.6"));
    wants(&site, &old, &new, &releases(&["3.6"]));
    upgrade_all_but_the_leader(&site, &new);

    // Two of three members have the new version: they go back, and etcd need not agree to anything.
    wants(&site, &new, &old, "");
    let refused = upgrade(&site).ends(3);
    assert!(refused.stdout.contains("run `etcdrun playbook downgrade.yaml`"), "{}", refused.stdout);
    let load = writer(&site);
    let said = downgrade(&site);
    let written = load.stop().unwrap();
    let said = said.ends(0);
    all_run(&site, &old);
    nothing_is_lost(&site, &written);
    let restarts =
        said.stdout.lines().filter(|line| line.starts_with("changed") && line.contains("etcd : Start or restart etcd"));
    assert_eq!(restarts.count(), 2, "{}", said.stdout);

    // All the way up, and down by etcd's leave.
    wants(&site, &old, &new, "");
    upgrade(&site).ends(0);
    all_run(&site, &new);
    wants(&site, &new, &old, "");
    let load = writer(&site);
    let said = downgrade(&site);
    let written = load.stop().unwrap();
    said.ends(0);
    all_run(&site, &old);
    nothing_is_lost(&site, &written);
    let again = downgrade(&site).ends(0);
    assert!(!again.stdout.lines().any(|line| line.starts_with("changed ")), "{}", again.stdout);
}

#[test]
fn a_half_done_upgrade_from_3_4_goes_back() {
    let site = site(3, "3.4", NO_AUTH);
    let (old, new) = (version("3.4"), version("3.5"));
    wants(&site, &old, &new, &releases(&["3.5"]));
    upgrade_all_but_the_leader(&site, &new);
    wants(&site, &new, &old, "");
    let load = writer(&site);
    let said = downgrade(&site);
    let written = load.stop().unwrap();
    said.ends(0);
    all_run(&site, &old);
    nothing_is_lost(&site, &written);
}

/// Half of the members have the new version when the quota is used up, which stops the upgrade. Space is freed, and it goes on.
#[test]
fn a_database_that_is_full_in_the_midst_of_an_upgrade_is_no_dead_end() {
    let site = site(3, "3.5", "    etcd: { version: VERSION, quota: 16MiB, compaction: { retention: 100000 } }\n");
    let (old, new) = (version("3.5"), version("3.6"));
    wants(&site, &old, &new, &releases(&["3.6"]));
    upgrade_all_but_the_leader(&site, &new);
    fill(&site, "key", 1);
    let refused = upgrade(&site).ends(3);
    assert!(refused.stdout.contains("run `etcdrun playbook nospace.yaml -l prod`"), "{}", refused.stdout);
    site.place.folder.run(&["playbook", "nospace.yaml", "-i", "inventory.yaml", "-l", "prod"]).ends(0);
    assert!(site.etcdctl(&["put", "key", "small"]).contains("OK"));
    let status = site.etcdctl(&["endpoint", "status"]);
    assert!(status.contains(&format!(", {old}, ")) && status.contains(&format!(", {new}, ")), "{status}");
    upgrade(&site).ends(0);
    all_run(&site, &new);
}

#[test]
fn two_minor_versions_down_in_one_command() {
    let site = site(3, "3.7", PLAIN);
    wants(&site, &version("3.7"), &version("3.5"), &releases(&["3.5", "3.6"]));
    site.place.folder.run(&["plan", "downgrade.yaml", "-i", "inventory.yaml"]).ends(0);
    let load = writer(&site);
    let said = downgrade(&site);
    let written = load.stop().unwrap();
    said.ends(0);
    all_run(&site, &version("3.5"));
    nothing_is_lost(&site, &written);
}

#[test]
fn an_old_3_6_goes_to_3_7_by_a_newer_3_6() {
    let site = Site::played(3, "3.6.4", PLAIN);
    let (old, new) = (version("3.6.4"), version("3.7"));
    wants(&site, &old, &new, &releases(&["3.7"]));
    let refused = upgrade(&site).ends(3);
    assert!(refused.stdout.contains("add 3.6.11 or a later 3.6"), "{}", refused.stdout);
    all_run(&site, &old);
    wants(&site, &new, &new, &releases(&["3.6"]));
    let said = upgrade(&site).ends(0);
    assert!(said.stdout.contains(&format!("{old} → {}", version("3.6"))), "{}", said.stdout);
    all_run(&site, &new);
}

#[test]
fn a_dead_member_of_an_old_3_5_is_replaced() {
    let site = Site::played(3, "3.5.16", PLAIN);
    let member = |words: &[&str]| site.place.folder.run(&[&["member"], words, &["-i", "inventory.yaml"]].concat());
    let status = site.place.folder.run(&["status", "-i", "inventory.yaml"]).ends(0);
    assert!(status.stdout.contains("upgrade to 3.5.33 or later"), "{}", status.stdout);
    assert!(status.stderr.contains("CVE-2026-33413"), "{}", status.stderr);
    // While all of them are healthy, there is a better way.
    let refused = member(&["remove", &site.names[0], "--yes"]).ends(3);
    assert!(refused.stdout.contains("patch-before-replace: "), "{}", refused.stdout);
    let lose = "systemctl kill -s KILL etcd; systemctl stop etcd; rm -rf /var/lib/etcd/data/*";
    site.place.hosts[2].run(&["sh", "-c", lose]).unwrap();
    member(&["replace", &site.names[2], "--yes"]).ends(0);
    all_run(&site, "3.5.16");
}

/// A request of the v2 API.
fn v2(site: &Site, words: &[&str]) -> String {
    let pki = |name: &str| site.place.folder.path(".etcdrun/pki/prod").join(name).display().to_string();
    let key = site.place.folder.opened_file(".etcdrun/pki/prod/clients/root.key").display().to_string();
    let url = format!("https://{}:2379/v2/keys/x", site.place.hosts[0].address());
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--cacert", &pki("ca.crt")])
        .args(["--cert", &pki("clients/root.crt"), "--key", &key])
        .args(words)
        .arg(url)
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
}

#[test]
fn data_of_the_v2_api_is_found_before_3_6_and_once_it_is_gone_the_upgrade_goes_on() {
    let site =
        Site::played(3, "3.5", "    etcd: { version: VERSION, settings: { snapshot-count: 100, enable-v2: true } }\n");
    let put = v2(&site, &["-X", "PUT", "-d", "value=1"]);
    assert!(put.contains("\"action\":\"set\""), "{put}");
    let inventory = site.place.folder.read("inventory.yaml");
    site.place.folder.write("inventory.yaml", &inventory.replace(", enable-v2: true", ""));
    let (old, new) = (version("3.5"), version("3.6"));
    wants(&site, &old, &new, &releases(&["3.6"]));
    let checkpoint = "- hosts: prod\n  become: true\n  tasks:\n    - etcd_checkpoint:\n      once_per: cluster\n";
    site.place.folder.write("checkpoint.yaml", checkpoint);
    let into_snapshots = || site.place.folder.run(&["playbook", "checkpoint.yaml", "-i", "inventory.yaml"]).ends(0);
    let refused = |why: &str| {
        let said = upgrade(&site).ends(3);
        assert!(said.stdout.contains("no-v2-content: ") && said.stdout.contains(why), "{}", said.stdout);
        assert!(
            !said.stdout.lines().any(|line| line.starts_with("changed ") && line.contains(&new)),
            "{}",
            said.stdout
        );
    };
    // It is in the log, then in a snapshot; then it is deleted, which is in the log again.
    refused("has requests of the v2 API, such as `PUT /x`");
    into_snapshots();
    refused("has data of the v2 API, such as the key `/x`");
    let deleted = v2(&site, &["-X", "DELETE"]);
    assert!(deleted.contains("\"action\":\"delete\""), "{deleted}");
    into_snapshots();
    upgrade(&site).ends(0);
    all_run(&site, &new);
}
