//! The gates and what else a rollout is made of, one by one, on clusters of real etcd.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use etcdrun_lab::etcd_tools;
use serde_json::Value;

use super::{
    Said,
    etcd::{PLAIN, Site},
};

/// Runs one task: `call` is a module and its own arguments, `more` other keywords of the task.
fn task(site: &Site, hosts: &str, call: (&str, &str), more: &str, words: &[&str]) -> Said {
    let (module, arguments) = call;
    let text = format!(
        "- hosts: {hosts}\n  serial: 1\n  become: true\n  gather_facts: false\n  tasks:\n    - name: Now\n      {module}: {{ {arguments} }}\n{more}"
    );
    site.place.folder.write("task.yaml", &text);
    site.place.folder.run(&[&["playbook", "task.yaml", "-i", "inventory.yaml"], words].concat())
}

const ONCE: &str = "      once_per: cluster\n";
const OWN: &str = "name: \"{{ inventory_hostname }}\"";

fn gate(site: &Site, host: &str, arguments: &str) -> Said {
    let patience = if arguments.contains("timeout: ") { "" } else { ", timeout: 2s" };
    task(site, host, ("etcd_gate", &format!("{OWN}, {arguments}{patience}")), "", &[])
}

/// What every member says, by etcdctl.
fn statuses(site: &Site) -> Vec<Value> {
    let text = site.etcdctl(&["endpoint", "status", "--write-out", "json"]);
    let json = text.lines().find(|line| line.starts_with('[')).unwrap_or_else(|| panic!("{text}"));
    serde_json::from_str::<Vec<Value>>(json).unwrap().into_iter().map(|status| status["Status"].clone()).collect()
}

/// The place of the leader among the members.
pub(super) fn leader(site: &Site) -> usize {
    let statuses = statuses(site);
    statuses.iter().position(|status| status["leader"] == status["header"]["member_id"]).unwrap()
}

fn has_changed(said: &Said) -> bool {
    said.stdout.lines().any(|line| line.starts_with("changed "))
}

#[test]
fn gates_only_look_and_tell_what_is_in_the_way() {
    let site = Site::formed(3, "3.5", PLAIN);
    let indexes = || -> Vec<Value> { statuses(&site).iter().map(|status| status["raftIndex"].clone()).collect() };
    let before = indexes();
    assert!(!has_changed(&gate(&site, "prod", "profile: restart").ends(0)));
    let upgrade = "profile: upgrade, from: 3.5.34, to: 3.6.15, snapshot: false";
    let shut = gate(&site, &site.names[0], upgrade).ends(3);
    assert!(shut.stdout.contains("binary-verified: not known"), "{}", shut.stdout);
    assert_eq!(indexes(), before, "a gate proposes nothing");

    // One member is down: nobody else may go, and it may itself.
    let sick = &site.place.hosts[1];
    sick.run(&["systemctl", "stop", "etcd"]).unwrap();
    let shut = gate(&site, &site.names[0], "profile: restart").ends(3);
    assert!(shut.stdout.contains("answers: ") && shut.stdout.contains("quorum-after: stopping"), "{}", shut.stdout);
    gate(&site, &site.names[1], "profile: restart").ends(0);
    // Where certificates are mended, etcd need not answer at all.
    gate(&site, &site.names[1], "profile: certificate").ends(0);
    sick.run(&["systemctl", "start", "etcd"]).unwrap();
    gate(&site, &site.names[0], "profile: restart, timeout: 30s").ends(0);
}

#[test]
fn the_lead_goes_to_another_and_a_snapshot_is_whole() {
    let site = Site::formed(3, "3.6", PLAIN);
    let first = leader(&site);
    let plan = task(&site, &site.names[first], ("etcd_move_leader", OWN), "", &["--check"]).ends(0);
    assert!(has_changed(&plan) && leader(&site) == first, "{}", plan.stdout);
    assert!(has_changed(&task(&site, &site.names[first], ("etcd_move_leader", OWN), "", &[]).ends(0)));
    assert_ne!(leader(&site), first);
    assert!(!has_changed(&task(&site, &site.names[first], ("etcd_move_leader", OWN), "", &[]).ends(0)));

    let kept = site.place.folder.path("kept/one.db");
    let taken = ("etcd_snapshot", "dest: kept/one.db");
    task(&site, "prod", taken, ONCE, &["--check"]).ends(0);
    assert!(!kept.exists());
    task(&site, "prod", taken, ONCE, &[]).ends(0);
    let size = kept.metadata().unwrap().len();
    assert_eq!(size % 512, 32);
    let tools = etcd_tools().unwrap();
    let status = Command::new(tools.join("etcdutl")).args(["snapshot", "status"]).arg(&kept).output().unwrap();
    assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stderr));
    let names: Vec<_> = kept.parent().unwrap().read_dir().unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(names, ["one.db"], "nothing else is left");
    let there = ("etcd_snapshot", "dest: /var/lib/etcd/backup.db, on: target, rate: 32KiB");
    let begun = Instant::now();
    task(&site, &site.names[1], there, "", &[]).ends(0);
    let took = begun.elapsed();
    let host = &site.place.hosts[1];
    let size = host.run(&["stat", "-c", "%s", "/var/lib/etcd/backup.db"]).unwrap().trim().parse::<u64>().unwrap();
    assert_eq!(size % 512, 32);
    assert!(took >= Duration::from_millis(size / 33), "{size} bytes in {took:?}");
    host.run(&["test", "!", "-e", "/var/lib/etcd/backup.db.part"]).unwrap();
    // A damaged one is no snapshot.
    let upgrade = "profile: replace, snapshot: kept/one.db";
    gate(&site, &site.names[0], upgrade).ends(0);
    let mut bytes = std::fs::read(&kept).unwrap();
    bytes[5000] ^= 1;
    std::fs::write(&kept, bytes).unwrap();
    let shut = gate(&site, &site.names[0], upgrade).ends(3);
    assert!(shut.stdout.contains("snapshot-verified: "), "{}", shut.stdout);
}

#[test]
fn a_full_database_is_mended_step_by_step() {
    let site =
        Site::formed(3, "3.5", "    etcd: { version: VERSION, quota: 16MiB, compaction: { retention: 100000 } }\n");
    let value = "x".repeat(100_000);
    let full = (0..400).any(|_| site.etcdctl(&["put", "key", &value]).contains("database space exceeded"));
    assert!(full);
    let shut = gate(&site, &site.names[0], "profile: restart").ends(3);
    assert!(shut.stdout.contains("no-alarm: ") && shut.stdout.contains("NOSPACE"), "{}", shut.stdout);
    gate(&site, &site.names[0], "profile: nospace").ends(0);
    let alarm = |state: &str| task(&site, "prod", ("etcd_alarm", &format!("state: {state}, quota: 16MiB")), ONCE, &[]);
    assert!(alarm("listed").ends(0).stdout.contains("ok"));
    let early = alarm("disarmed").ends(2);
    assert!(early.stdout.contains("defragment each member"), "{}", early.stdout);
    alarm("compacted").ends(0);
    let defragmented = task(&site, "prod", ("etcd_defrag", OWN), "", &[]).ends(0);
    let shrunk = defragmented.stdout.lines().filter(|line| line.starts_with("changed ")).count();
    assert_eq!(shrunk, 3, "each of them: {}", defragmented.stdout);
    assert!(!has_changed(&task(&site, "prod", ("etcd_defrag", OWN), "", &[]).ends(0)), "nothing is left to give back");
    assert!(has_changed(&alarm("disarmed").ends(0)));
    assert!(!has_changed(&alarm("disarmed").ends(0)));
    assert!(site.etcdctl(&["put", "key", "small"]).contains("OK"));
    gate(&site, &site.names[0], "profile: restart").ends(0);
}

/// Writes until the quota is used up. `keys` of them, or one again and again.
pub(super) fn fill(site: &Site, name: &str, keys: usize) {
    let value = "x".repeat(100_000);
    let mut writes = (0..400).map(|number| site.etcdctl(&["put", &format!("{name}{}", number % keys), &value]));
    assert!(writes.any(|said| said.contains("database space exceeded")));
}

#[test]
fn one_command_gets_out_of_a_full_database() {
    for minor in ["3.5", "3.6"] {
        let sections = "    etcd: { version: VERSION, quota: 16MiB, compaction: { retention: 100000 } }\n";
        let site = Site::formed(3, minor, sections);
        fill(&site, "key", 1);
        let run = |words: &[&str]| site.place.folder.run(&[words, &["-i", "inventory.yaml"]].concat());
        let shut = run(&["playbook", "defrag.yaml"]).ends(3);
        assert!(shut.stdout.contains("run `etcdrun playbook nospace.yaml -l prod`"), "{}", shut.stdout);
        let status = run(&["status", "prod"]);
        assert!(status.stdout.contains("`etcdrun playbook nospace.yaml -l prod` frees space"), "{}", status.stdout);
        run(&["playbook", "nospace.yaml", "-l", "prod"]).ends(0);
        assert!(site.etcdctl(&["put", "key", "small"]).contains("OK"));
        assert!(!site.etcdctl(&["alarm", "list"]).contains("NOSPACE"));
        run(&["playbook", "nospace.yaml"]).ends(0);
        run(&["playbook", "defrag.yaml"]).ends(0);
    }
}

#[test]
fn a_full_database_without_history_takes_a_larger_quota() {
    let site = Site::played(3, "3.6", "    etcd: { version: VERSION, quota: 16MiB }\n");
    let run = || site.place.folder.run(&["playbook", "nospace.yaml", "-i", "inventory.yaml"]);
    // What a defragmentation gives back is filled again, until it has nothing to give back.
    let fill_again = |round: usize| {
        fill(&site, &format!("round{round}-"), 400);
        Some(run()).filter(|said| said.code != 0)
    };
    let full = (0..8).find_map(fill_again).expect("there is always something to give back").ends(2);
    assert!(full.stdout.contains("raise `etcd.quota` of `prod` in the inventory, and run it again"), "{}", full.stdout);
    let text = site.place.folder.read("inventory.yaml").replace("16MiB", "64MiB");
    site.place.folder.write("inventory.yaml", &text);
    run().ends(0);
    assert!(site.etcdctl(&["put", "key", "small"]).contains("OK"));
    site.changes_nothing();
}

#[test]
fn members_go_and_come_as_learners() {
    let site = Site::formed(3, "3.6", PLAIN);
    let member = |state: &str, more: &str| {
        let arguments = format!("{OWN}, state: {state}, {more}");
        task(&site, &site.names[2], ("etcd_member", &arguments), "", &[])
    };
    let list = || site.etcdctl(&["member", "list"]);
    let alive = member("absent", "").ends(3);
    assert!(alive.stdout.contains("live-goes-last: "), "{}", alive.stdout);

    let lost = &site.place.hosts[2];
    lost.run(&["sh", "-c", "systemctl stop etcd; rm -rf /var/lib/etcd/data/*"]).unwrap();
    let again = member("learner", "").ends(0);
    assert!(!has_changed(&again), "it is still listed");
    assert!(has_changed(&member("absent", "").ends(0)));
    assert!(!has_changed(&member("absent", "").ends(0)));
    assert!(has_changed(&member("learner", "").ends(0)));
    let shut = gate(&site, &site.names[0], "profile: restart").ends(3);
    assert!(shut.stdout.contains("members-started: ") && shut.stdout.contains("no-learner: "), "{}", shut.stdout);

    // Nobody starts it: it is not left there.
    let late = member("voter", "timeout: 2s").ends(2);
    assert!(late.stdout.contains("was removed again"), "{}", late.stdout);
    assert!(!list().contains("unstarted"), "{}", list());

    // This time somebody does.
    let text = format!(
        "- hosts: {}\n  become: true\n  tasks:\n    - etcd_member: {{ {OWN}, state: learner }}\n      register: learner\n    - file: {{ path: /run/etcdrun-etcd, state: directory, mode: \"0755\" }}\n    - copy: {{ dest: /run/etcdrun-etcd/first-start.env, content: \"{{{{ learner.environment }}}}\", mode: \"0644\" }}\n    - service: {{ name: etcd, state: started }}\n    - etcd_member: {{ {OWN}, state: voter, timeout: 60s }}\n    - file: {{ path: /run/etcdrun-etcd, state: absent }}\n",
        site.names[2]
    );
    site.place.folder.write("join.yaml", &text);
    site.place.folder.run(&["playbook", "join.yaml", "-i", "inventory.yaml"]).ends(0);
    site.is_served_by_all();
    assert_eq!(list().matches("false").count(), 3, "no learner: {}", list());
    gate(&site, &site.names[0], "profile: restart, timeout: 30s").ends(0);
}

/// Servers that were connected before a firewall came between them look healthy.
#[test]
fn a_member_that_others_could_not_reach_again_is_not_restarted() {
    let site = Site::formed(3, "3.6", PLAIN);
    let restart = ["member", "restart", &site.names[0], "--yes", "-i", "inventory.yaml", "-e", "rollout_timeout=5s"];
    let refused = |way: &str| {
        let said = site.place.folder.run(&restart).ends(3);
        assert!(said.stdout.contains(way), "{way}: {}", said.stdout);
        site.place.folder.run(&["runs", "prune", "--unfinished"]).ends(0);
    };
    let way = |from: usize, to: usize| {
        format!("peer-ports: {} cannot open a new connection to the peer port of {}", site.names[from], site.names[to])
    };
    site.place.hosts[1].shut_port(2380).unwrap();
    refused(&way(0, 1));
    site.place.hosts[1].open_port().unwrap();
    site.place.hosts[0].shut_port(2380).unwrap();
    refused(&way(1, 0));
    site.place.hosts[0].open_port().unwrap();
    site.place.folder.run(&restart).ends(0);
    site.is_served_by_all();
}

#[test]
fn the_way_down_is_opened_and_shut() {
    let site = Site::formed(3, "3.6", PLAIN);
    let downgrade = |arguments: &str| task(&site, "prod", ("etcd_downgrade", arguments), ONCE, &[]);
    let settled = "profile: upgrade, gate: settled, from: 3.6.15, to: 3.6.15, timeout: 30s";
    gate(&site, &site.names[0], settled).ends(0);
    assert!(!has_changed(&downgrade("state: validated, version: 3.5.34").ends(0)));
    let far = downgrade("state: validated, version: 3.4.45").ends(2);
    assert!(far.stdout.contains("invalid downgrade target version"), "{}", far.stdout);
    assert!(has_changed(&downgrade("state: enabled, version: 3.5.34").ends(0)));
    assert!(!has_changed(&downgrade("state: enabled, version: 3.5.34").ends(0)));
    let up = gate(&site, &site.names[0], "profile: upgrade, from: 3.6.15, to: 3.7.2, snapshot: false").ends(3);
    assert!(up.stdout.contains("no-downgrade: "), "{}", up.stdout);
    // Neither 3.5 nor 3.6 could join now.
    site.place.hosts[2].run(&["sh", "-c", "systemctl stop etcd; rm -rf /var/lib/etcd/data/*"]).unwrap();
    let replace = ["member", "replace", &site.names[2], "--yes", "-i", "inventory.yaml"];
    let shut = site.place.folder.run(&replace).ends(3);
    assert!(shut.stdout.contains("etcd lets no new member join"), "{}", shut.stdout);
    assert_eq!(site.etcdctl(&["member", "list"]).matches("started").count(), 3, "none was removed");
    let way_out = ["playbook", "downgrade-cancel.yaml", "-l", "prod"];
    assert!(shut.stdout.contains("`etcdrun playbook downgrade-cancel.yaml -l prod`"), "{}", shut.stdout);
    let cancel = || site.place.folder.run(&[&way_out[..], &["-i", "inventory.yaml"]].concat()).ends(0);
    assert!(has_changed(&cancel()));
    assert!(!has_changed(&cancel()));
    site.place.folder.run(&replace).ends(0);
    site.is_served_by_all();
    gate(&site, &site.names[0], settled).ends(0);
}

#[test]
fn a_3_4_with_authentication_is_told_so() {
    let site = Site::formed(1, "3.4", PLAIN);
    let upgrade = "profile: upgrade, from: 3.4.45, to: 3.5.34, snapshot: false, allow_outage: true";
    let shut = gate(&site, &site.names[0], upgrade).ends(3);
    assert!(shut.stdout.contains("auth-3.4: authentication is enabled"), "{}", shut.stdout);
    let allowed = gate(&site, &site.names[0], &format!("{upgrade}, allow_auth_hop: true")).ends(3);
    assert!(!allowed.stdout.contains("auth-3.4"), "{}", allowed.stdout);
    let small = gate(&site, &site.names[0], "profile: restart").ends(3);
    assert!(small.stdout.contains("small-cluster: "), "{}", small.stdout);
    gate(&site, &site.names[0], "profile: restart, allow_outage: true").ends(0);
}
