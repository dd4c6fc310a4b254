//! Clusters of real etcd that go to another version while a client writes.

use std::{process::Stdio, time::Duration};

use etcdrun::etcd::Credential;
use etcdrun_lab::etcd;

use super::{
    Said,
    etcd::{PLAIN, Site, release},
    gates::leader,
    plan::{are_the_same, files},
    rollout_faults::{is_up, start, until},
    turns::{differing, starts},
    writer::{Manner, Writer, Written, found},
};

pub(super) const NO_AUTH: &str = "    etcd: { version: VERSION }\n    auth: { enabled: false }\n";

/// A cluster of `from` whose inventory says that it should be of `to`, and knows all versions.
pub(super) fn site(members: usize, from: &str, sections: &str) -> Site {
    Site::formed(members, from, sections)
}

/// The inventory wants another version, and knows these.
pub(super) fn wants(site: &Site, from: &str, to: &str, releases: &str) {
    let text = site.place.folder.read("inventory.yaml");
    let text = text.replace(&format!("version: {from}"), &format!("version: {to}"));
    site.place
        .folder
        .write("inventory.yaml", &text.replace("etcd_releases:\n", &format!("etcd_releases:\n{releases}")));
}

pub(super) fn releases(minors: &[&str]) -> String {
    minors.iter().map(|minor| release(&etcd(minor).unwrap())).collect()
}

pub(super) fn upgrade(site: &Site) -> Said {
    site.place.folder.run(&["playbook", "upgrade.yaml", "-i", "inventory.yaml"])
}

pub(super) fn all_run(site: &Site, version: &str) {
    let status = site.etcdctl(&["endpoint", "status"]);
    assert_eq!(status.matches(&format!(", {version}, ")).count(), site.names.len(), "{status}");
    site.is_served_by_all();
}

fn root(site: &Site) -> Credential {
    let pem = |name: &str| site.place.folder.opened(&format!(".etcdrun/pki/prod/{name}"));
    let identity = Some((pem("clients/root.crt"), pem("clients/root.key").into()));
    Credential { authority: pem("ca.crt"), identity, login: None }
}

pub(super) fn writer(site: &Site) -> Writer {
    Writer::start(&site.members(), &root(site), Manner::default())
}

/// All that was acknowledged is there.
pub(super) fn nothing_is_lost(site: &Site, written: &Written) {
    let found = found(&site.members(), &root(site)).unwrap();
    let lost: Vec<_> = written.acknowledged.iter().filter(|number| !found.contains(number)).collect();
    assert!(lost.is_empty() && written.acknowledged.len() > 100, "lost {lost:?} of {}", written.acknowledged.len());
    assert!(written.longest < Duration::from_secs(5), "no write for {:?}: {:?}", written.longest, written.errors);
    let Written { acknowledged, errors, longest, slowest, lasted, gaps } = written;
    let (writes, retries) = (acknowledged.len(), errors.len());
    println!(
        "{writes} writes in {lasted:?}, {retries} retries, longest gap {longest:?}, slowest {slowest:?}, {:?}",
        gaps.iter().take(10).collect::<Vec<_>>()
    );
}

/// Nothing on the hosts, nor the revision of the cluster, is another one after these plans.
fn plans_change_nothing(site: &Site, playbooks: &[&str]) {
    let revision = || {
        let said = site.etcdctl(&["get", "nothing", "--write-out=json"]);
        let said: serde_json::Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
        said["header"]["revision"].as_u64().unwrap()
    };
    for playbook in playbooks {
        let before = (files(&site.place), revision());
        let said = site.place.folder.run(&["plan", playbook, "-i", "inventory.yaml"]).ends(0);
        assert!(said.stdout.contains("Plan: "), "{playbook}: {}", said.stdout);
        assert_eq!(revision(), before.1, "{playbook}");
        are_the_same(&before.0, &files(&site.place), &said.stdout);
    }
}

#[test]
fn three_minor_versions_in_one_command_while_a_client_writes() {
    let site = site(3, "3.4", NO_AUTH);
    let target = etcd("3.7").unwrap().version;
    plans_change_nothing(&site, &["site.yaml", "settings.yaml", "defrag.yaml"]);
    wants(&site, &etcd("3.4").unwrap().version, &target, &releases(&["3.5", "3.6", "3.7"]));
    plans_change_nothing(&site, &["upgrade.yaml"]);
    let writer = writer(&site);
    let said = upgrade(&site);
    let written = writer.stop().unwrap();
    let said = said.ends(0);
    all_run(&site, &target);
    nothing_is_lost(&site, &written);
    assert!(said.stdout.contains("longest gap"), "{}", said.stdout);
    // Each of three members restarted once for each version, and never two at once.
    for minor in ["3.5", "3.6", "3.7"] {
        let name = format!("etcd : Start or restart etcd [{}]", etcd(minor).unwrap().version);
        let restarts = said.stdout.lines().filter(|line| line.starts_with("changed") && line.contains(&name)).count();
        assert_eq!(restarts, 3, "{}", said.stdout);
    }
    let again = upgrade(&site).ends(0);
    assert!(!again.stdout.lines().any(|line| line.starts_with("changed ")), "{}", again.stdout);
    site.changes_nothing();
}

#[test]
fn with_authentication_five_members_go_on_where_a_killed_operator_left_them() {
    let site = site(5, "3.5", PLAIN);
    let target = etcd("3.7").unwrap().version;
    wants(&site, &etcd("3.5").unwrap().version, &target, &releases(&["3.6", "3.7"]));
    let writer = writer(&site);
    for (attempt, milliseconds) in [6000, 3500, 5000].into_iter().enumerate() {
        let words: &[&str] =
            if attempt == 0 { &["playbook", "upgrade.yaml", "-i", "inventory.yaml"] } else { &["resume"] };
        let mut running = site.place.folder.command(words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(milliseconds));
        running.kill().unwrap();
        running.wait().unwrap();
        // Whatever it was at, at most one member is missing.
        let health = site.etcdctl(&["endpoint", "health"]);
        assert!(health.matches("is healthy").count() >= 4, "{health}");
    }
    let said = site.place.folder.run(&["resume"]);
    let written = writer.stop().unwrap();
    assert_eq!(said.code, 0, "{}\n{}", said.stdout, said.stderr);
    all_run(&site, &target);
    nothing_is_lost(&site, &written);
}

#[test]
fn a_server_that_does_not_start_is_rolled_back() {
    let site = site(3, "3.5", PLAIN);
    let version = etcd("3.5").unwrap().version;
    let broken = site.place.folder.path("broken");
    std::fs::write(&broken, "#!/bin/sh\nexit 1\n").unwrap();
    let sum = super::etcd::sha256(&broken);
    let entry = format!("  3.6.15: {{ file: {}, sha256: {sum} }}\n", broken.display());
    wants(&site, &version, "3.6.15", &entry);
    let play = "- hosts: clusters\n  become: true\n  rollout: { strategy: etcd, upgrade: true, on_failure: rollback }\n  roles: [etcd]\n";
    site.place.folder.write("back.yaml", play);
    let before = starts(&site);
    // The operator dies while the member is down: whoever goes on still knows what it ran.
    let mut first = start(&site, &["playbook", "back.yaml", "-i", "inventory.yaml"]);
    until("a member is down", || (0..3).any(|member| !is_up(&site, member)));
    first.kill().unwrap();
    first.wait().unwrap();
    let said = site.place.folder.run(&["resume"]).ends(2);
    assert!(said.stdout.contains("was rolled back, after:"), "{}", said.stdout);
    all_run(&site, &version);
    assert_eq!(differing(&before, &starts(&site)), 1, "nobody else is touched: {}", said.stdout);
}

#[test]
fn once_a_cluster_is_newer_the_old_server_is_not_put_back() {
    let site = site(1, "3.5", PLAIN);
    let (from, to) = (etcd("3.5").unwrap().version, etcd("3.6").unwrap().version);
    wants(&site, &from, &to, &releases(&["3.6"]));
    let play = format!(
        "- hosts: clusters\n  become: true\n  rollout: {{ strategy: etcd, upgrade: true, on_failure: rollback, allow_outage: true }}\n  \
         roles: [etcd]\n  post_tasks:\n    - name: It is of the new version\n      \
         etcd_gate: {{ profile: upgrade, gate: settled, from: {from}, to: {to} }}\n    \
         - name: Something else is wrong\n      command: test -e /run/repaired\n"
    );
    site.place.folder.write("back.yaml", &play);
    let said = site.place.folder.run(&["playbook", "back.yaml", "-i", "inventory.yaml"]).ends(3);
    assert!(said.stdout.contains("way-back") && said.stdout.contains("would not start"), "{}", said.stdout);
    all_run(&site, &to);
    // It stays as it is, so it can go on from there.
    site.place.hosts[0].run(&["touch", "/run/repaired"]).unwrap();
    site.place.folder.run(&["resume"]).ends(0);
}

#[test]
fn what_etcd_does_not_support_is_refused_before_anything_is_done() {
    let site = site(3, "3.4", PLAIN);
    let version = etcd("3.4").unwrap().version;
    wants(&site, &version, &etcd("3.5").unwrap().version, &releases(&["3.5"]));
    let said = upgrade(&site).ends(3);
    assert!(said.stdout.contains("authentication"), "{}", said.stdout);
    assert!(!said.stdout.lines().any(|line| line.starts_with("changed ")), "{}", said.stdout);
    all_run(&site, &version);
}

#[test]
fn what_takes_a_member_down_needs_a_turn() {
    let site = site(3, "3.5", PLAIN);
    let play = |rollout: &str, task: &str| {
        let text = format!("- hosts: prod\n  become: true\n{rollout}  tasks:\n    - name: Now\n      {task}\n");
        site.place.folder.write("down.yaml", &text);
        site.place.folder.run(&["playbook", "down.yaml", "-i", "inventory.yaml"])
    };
    let restart = "service: { name: etcd, state: restarted }";
    let refused = play("", restart).ends(3);
    assert!(refused.stdout.contains("would stop") && refused.stdout.contains("rollout:"), "{}", refused.stdout);
    play("", "reboot:").ends(3);
    play("", "systemd_unit: { name: etcd.service, state: absent }").ends(3);
    let words = ["exec", "prod", "-i", "inventory.yaml", "-b", "-m", "service", "-a", "name=etcd state=stopped"];
    site.place.folder.run(&words).ends(3);
    site.is_served_by_all();
    // Another service is nobody's business, and in a turn it is done.
    play("", "service: { name: cron, state: stopped }");
    play("  rollout: { strategy: etcd }\n", restart).ends(0);
    site.is_served_by_all();
}

#[test]
fn one_member_is_upgraded_if_the_operator_says_so() {
    let site = site(1, "3.5", PLAIN);
    let target = etcd("3.6").unwrap().version;
    wants(&site, &etcd("3.5").unwrap().version, &target, &releases(&["3.6"]));
    let shut = upgrade(&site).ends(3);
    let command = "`etcdrun playbook upgrade.yaml -i inventory.yaml -e rollout_allow_outage=true`";
    assert!(shut.stdout.contains("small-cluster: ") && shut.stdout.contains(command), "{}", shut.stdout);
    all_run(&site, &etcd("3.5").unwrap().version);
    let run = |name: &str, code: i32| {
        let words = ["playbook", name, "-i", "inventory.yaml", "-e", "rollout_allow_outage=true"];
        site.place.folder.run(&words).ends(code)
    };
    run("upgrade.yaml", 0);
    all_run(&site, &target);
    // What else the shipped playbooks do to one.
    let text = site
        .place
        .folder
        .read("inventory.yaml")
        .replace(&format!("version: {target}"), &format!("version: {target}, quota: 4GiB"));
    site.place.folder.write("inventory.yaml", &text);
    run("settings.yaml", 0);
    run("reboot.yaml", 0);
    run("defrag.yaml", 0);
    let name = site.names[0].as_str();
    let restart = ["member", "restart", name, "-i", "inventory.yaml", "--yes"];
    let shut = site.place.folder.run(&restart).ends(3);
    assert!(shut.stdout.contains("--allow-outage`"), "{}{}", shut.stdout, shut.stderr);
    site.place.folder.run(&[&restart[..], &["--allow-outage"]].concat()).ends(0);
    all_run(&site, &target);
}

/// What Raft itself counts on a member, by what it says when it starts; etcd's list is another thing.
fn voters_of_raft(site: &Site, place: usize) -> Vec<u64> {
    let look = "journalctl -u etcd -o cat --no-pager | sed -n 's/.*switched to configuration voters=(\\([0-9 ]*\\)).*/\\1/p' | tail -n 1";
    let said = site.place.hosts[place].run(&["sh", "-c", look]).unwrap();
    let mut voters: Vec<u64> = said.split_whitespace().map(|id| id.parse().unwrap()).collect();
    voters.sort_unstable();
    voters
}

/// More than a server reads at once from its log when it starts.
fn write_megabytes(site: &Site) {
    let value = "x".repeat(100_000);
    for number in 0..30 {
        site.etcdctl(&["put", &format!("/large/{number}"), &value]);
    }
}

fn run(site: &Site, words: &[&str]) -> Said {
    site.place.folder.run(&[words, &["-i", "inventory.yaml"]].concat())
}

/// The spare machine takes the place of a member.
fn replace_one(site: &mut Site, off: &str) {
    let (spare, address) = (site.place.hosts[3].name().to_owned(), site.place.hosts[3].address().to_string());
    let words =
        ["member", "replace", &site.names[2], "--new-name", &spare, "--ip", &address, "--yes", "-i", "inventory.yaml"];
    let mut replace = site.place.folder.command(&words);
    if !off.is_empty() {
        replace.env("ETCDRUN_TEST_OFF", off);
    }
    Said::of(replace.output().unwrap()).ends(0);
    site.now_members(&[0, 1, 3]);
}

/// The ids of the members, in the order of etcd's list.
fn ids(site: &Site) -> Vec<u64> {
    let list = site.etcdctl(&["member", "list"]);
    list.lines().map(|line| u64::from_str_radix(line.split(',').next().unwrap(), 16).unwrap()).collect()
}

fn all_know_the_voters_after_two_restarts(site: &mut Site) {
    replace_one(site, "");
    // So that it reads its log twice.
    for _ in 0..2 {
        run(site, &["member", "restart", &site.names[0], "--yes"]).ends(0);
    }
    site.is_served_by_all();
    let mut listed = ids(site);
    listed.sort_unstable();
    for place in [0, 1, 3] {
        assert_eq!(voters_of_raft(site, place), listed, "{place}");
    }
}

/// etcd 3.6 that reads the log of a 3.5 takes the version in it for a downgrade and writes a snapshot in the midst of it, with the
/// members of now and the voters of then. After the next start it counts those of then.
#[test]
fn after_an_upgrade_to_3_6_every_member_counts_the_right_voters() {
    let mut site = Site::formed_beside(3, 1, "3.5", NO_AUTH);
    write_megabytes(&site);
    let target = etcd("3.6").unwrap().version;
    wants(&site, &etcd("3.5").unwrap().version, &target, &releases(&["3.6"]));
    upgrade(&site).ends(0);
    all_know_the_voters_after_two_restarts(&mut site);
}

/// As long as a member is not there, the others do not know its version, and begin with 3.0.
const LATE: &str = "mkdir -p /etc/systemd/system/etcd.service.d
printf '[Service]\\nExecStartPre=/bin/sleep 4\\n' >/etc/systemd/system/etcd.service.d/late.conf";

fn began_with_3_0() -> Site {
    let site = Site::new(3, "3.6", NO_AUTH);
    site.place.hosts[2].run(&["sh", "-c", LATE]).unwrap();
    site.play(&[]).ends(0);
    let look = "journalctl -u etcd -o cat --no-pager | grep -c '\"cluster-version\":\"3.0\"'";
    assert_ne!(site.place.hosts[0].run(&["sh", "-c", look]).unwrap().trim(), "0");
    let site = site.beside(1);
    write_megabytes(&site);
    site
}

#[test]
fn members_that_began_with_3_0_count_the_right_voters() {
    all_know_the_voters_after_two_restarts(&mut began_with_3_0());
}

/// As after changes of members by other means.
#[test]
fn no_turn_begins_while_the_leader_counts_others_than_etcd_lists() {
    let mut site = began_with_3_0();
    replace_one(&mut site, "right-voters");
    for _ in 0..2 {
        site.place.hosts[0].run(&["systemctl", "restart", "etcd"]).unwrap();
    }
    let member_of = |name: &str| {
        let list = site.etcdctl(&["member", "list"]);
        list.lines().find(|line| line.contains(name)).unwrap().split(',').next().unwrap().to_owned()
    };
    let lead = |place: usize| {
        if leader(&site) != place {
            site.etcdctl(&["move-leader", &member_of(&site.names[place])]);
        }
    };
    lead(0);
    let said = run(&site, &["member", "restart", &site.names[1], "--yes", "-e", "rollout_timeout=5s"]).ends(3);
    for part in ["raft-agrees: the Raft of", "counts, although it is no member", "does not count", "move-leader"] {
        assert!(said.stdout.contains(part), "lacks {part:?}:\n{}", said.stdout);
    }
    lead(1);
    run(&site, &["member", "restart", &site.names[2], "--yes"]).ends(0);
}
