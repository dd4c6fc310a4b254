//! The world is another one than when something was decided: members come back between a death and `resume`, others die between a
//! gate and a stop, addresses change, the inventory is shortened by hand. Nothing is lost, and what was refused says why.

use etcdrun_lab::etcd;

use super::{
    Said,
    backup::{backup, get, put, run, site},
    etcd::{PLAIN, Site},
    rollout_faults::{is_up, nothing_waits, start, until},
    upgrade::{nothing_is_lost, writer},
};

/// Kills a command behind the record that settles a step, by the step's name. What comes after that step was not begun.
pub(super) fn dies_behind(site: &Site, words: &[&str], step: &str) {
    let folder = &site.place.folder;
    let mut command = folder.command(words);
    let said = Said::of(command.env("ETCDRUN_TEST_DIE", format!("settled:{step}")).output().unwrap());
    assert_eq!(said.code, -1, "it came to its end before `{step}`:\n{}{}", said.stdout, said.stderr);
    let journal = std::fs::read_to_string(folder.last_run().join("journal")).unwrap();
    let is_settled = |line: &str| line.contains("\"settled\"") && line.contains(step);
    assert!(journal.lines().any(is_settled), "`{step}` was not reached");
}

fn on_all(site: &Site, verb: &str) {
    site.place.hosts.iter().for_each(|host| drop(host.run(&["systemctl", "--no-block", verb, "etcd"]).unwrap()));
}

fn serves(site: &Site) {
    until("the cluster serves", || site.etcdctl(&["put", "probe", "x"]).contains("OK"));
}

pub(super) fn says(said: &Said, words: &str) {
    let all = format!("{}{}", said.stdout, said.stderr);
    assert!(all.contains(words), "no `{words}` in:\n{all}");
}

/// A member that waits for the others has read its settings already, and is not up yet.
#[test]
fn settings_that_come_while_a_member_starts_are_in_effect_at_the_end() {
    let site = Site::formed(3, "3.6", PLAIN);
    on_all(&site, "stop");
    until("all have stopped", || (0..3).all(|member| state(&site, member) == "inactive"));
    let first = &site.place.hosts[0];
    first.run(&["systemctl", "--no-block", "start", "etcd"]).unwrap();
    let has_read = || first.run(&["sh", "-c", "journalctl -u etcd | tail -n 50 | grep -q 'became follower'"]).is_ok();
    until("it is starting", || state(&site, 0) == "activating" && has_read());
    let text = site.place.folder.read("inventory.yaml");
    site.place.folder.write("inventory.yaml", &text.replacen("etcd: {", "etcd: { quota: 3GiB,", 1));
    site.play(&[]).ends(0);
    site.changes_nothing();
}

fn state(site: &Site, member: usize) -> String {
    let said = site.place.hosts[member].run(&["systemctl", "show", "-p", "ActiveState", "--value", "etcd"]).unwrap();
    said.trim().to_owned()
}

#[test]
fn a_restore_that_is_resumed_leaves_a_cluster_alone_that_serves_again() {
    let site = site(3, "3.6");
    put(&site, "a", "old");
    backup(&site, &[]).ends(0);
    on_all(&site, "stop");
    until("nobody serves", || (0..3).all(|member| !is_up(&site, member)));
    let restore = ["restore", "prod", "--from", "file:backups", "--yes", "-i", "inventory.yaml"];
    // The data is on the members, and nothing was switched.
    dies_behind(&site, &restore, "/Copy the restored data");
    on_all(&site, "start");
    serves(&site);
    (0..5).for_each(|number| put(&site, &format!("key-{number}"), "acknowledged"));

    let refused = site.place.folder.run(&["resume"]).ends(3);
    says(&refused, "answer linearizable reads");
    says(&refused, "When this restore was decided on, `prod` did not serve");
    says(&refused, "etcdrun restore prod --force");
    (0..5).for_each(|number| assert_eq!(get(&site, &format!("key-{number}")), "acknowledged"));
    site.is_served_by_all();

    // Once it is down again, the same run comes to its end.
    on_all(&site, "stop");
    until("nobody serves", || (0..3).all(|member| !is_up(&site, member)));
    site.place.folder.run(&["resume"]).ends(0);
    assert_eq!((get(&site, "a").as_str(), get(&site, "key-0").as_str()), ("old", ""));
    site.is_served_by_all();
}

fn leaves_alone_who_serves_again(step: &str) {
    let site = site(3, "3.6");
    site.place.hosts[1].run(&["systemctl", "kill", "-s", "KILL", "etcd"]).unwrap();
    site.place.hosts[1].run(&["systemctl", "stop", "etcd"]).unwrap();
    let replace = ["member", "replace", &site.names[1], "--yes", "-i", "inventory.yaml"];
    dies_behind(&site, &replace, step);
    // Overnight it comes back, and another one dies.
    site.place.hosts[1].run(&["systemctl", "start", "etcd"]).unwrap();
    site.all_become_healthy();
    site.place.hosts[2].run(&["systemctl", "stop", "etcd"]).unwrap();
    serves(&site);
    let refused = site.place.folder.run(&["resume"]).ends(3);
    says(&refused, "as-decided:");
    says(&refused, "did not serve when this was decided, and it is a healthy voter now");
    assert!(is_up(&site, 1), "{}", refused.stdout);
    serves(&site);
    site.place.hosts[2].run(&["systemctl", "start", "etcd"]).unwrap();
    site.all_become_healthy();
    site.is_served_by_all();
}

#[test]
fn a_replacement_that_is_resumed_leaves_a_member_alone_that_serves_again() {
    leaves_alone_who_serves_again("Check gates before the change");
}

#[test]
fn right_before_a_member_goes_a_run_that_is_resumed_looks_again() {
    leaves_alone_who_serves_again("Check once more that the old member has failed");
}

/// The turn of a member is held in front of the task that stops it.
const HELD: &str = r#"
- hosts: clusters
  become: true
  rollout: { strategy: etcd, timeout: 3s }
  tasks:
    - { name: Here, copy: { content: "", dest: "DIR/at-{{ inventory_hostname }}" }, delegate_to: localhost, become: false }
    - { name: Held, wait_for: { path: "DIR/go", timeout: 60, sleep: 1 }, delegate_to: localhost, become: false }
    - RESTART
"#;

/// Another member dies between the gate and `restart`: this one stays up.
fn keeps_the_other_one_up(site: &Site, restart: &str, more: &[&str], reasons: &[&str]) {
    let folder = &site.place.folder;
    let dir = folder.path("").to_str().unwrap().trim_end_matches('/').to_owned();
    folder.write("held.yaml", &HELD.replace("RESTART", restart).replace("DIR", &dir));
    let child = start(site, &[&["playbook", "held.yaml", "-i", "inventory.yaml"], more].concat());
    let mut turn = None;
    until("a turn begins", || {
        turn = site.names.iter().position(|name| folder.path(&format!("at-{name}")).exists());
        turn.is_some()
    });
    let turn = turn.unwrap();
    let started =
        || site.place.hosts[turn].run(&["systemctl", "show", "-p", "ExecMainStartTimestampMonotonic", "etcd"]).unwrap();
    let (before, other) = (started(), (turn + 1) % 3);
    site.place.hosts[other].run(&["systemctl", "stop", "etcd"]).unwrap();
    serves(site);
    folder.write("go", "");
    let said = Said::of(child.wait_with_output().unwrap()).ends(3);
    reasons.iter().for_each(|reason| says(&said, reason));
    assert_eq!(started(), before, "it was restarted");
    serves(site);
    site.place.hosts[other].run(&["systemctl", "start", "etcd"]).unwrap();
    folder.run(&["resume"]).ends(0);
    site.is_served_by_all();
    assert_ne!(started(), before);
}

#[test]
fn a_member_that_dies_between_gate_and_stop_keeps_the_other_one_up() {
    let restart = "{ name: Restart, service: { name: etcd, state: restarted } }";
    keeps_the_other_one_up(&site(3, "3.6"), restart, &[], &["nothing was stopped, because", "quorum-after:"]);
}

/// Three members need no outage, so none is accepted for them.
#[test]
fn an_outage_that_is_accepted_does_not_cost_three_members_their_quorum() {
    let site = with_setting("3.6", "log_level: info");
    says_port(&site, "log_level: info", "log_level: warn");
    let apply = "{ name: Apply, import_role: { name: etcd, tasks_from: apply } }";
    let more = ["-e", "rollout_allow_outage=true"];
    keeps_the_other_one_up(&site, apply, &more, &["the cluster would lose quorum"]);
}

fn peer_urls(site: &Site) -> Vec<String> {
    let list = site.etcdctl(&["member", "list"]);
    let mut urls: Vec<String> = list.lines().filter_map(|line| line.split(", ").nth(3)).map(str::to_owned).collect();
    urls.sort();
    urls
}

/// Each member is without the two others for a moment, in turn: whoever cannot be dialled shows.
fn survives_restarts(site: &Site) {
    for host in &site.place.hosts {
        host.run(&["systemctl", "restart", "etcd"]).unwrap();
        site.all_become_healthy();
    }
}

fn says_port(site: &Site, from: &str, to: &str) {
    let text = site.place.folder.read("inventory.yaml");
    assert!(text.contains(from), "{text}");
    site.place.folder.write("inventory.yaml", &text.replace(from, to));
}

/// Three members whose inventory says something of etcd that is the same by default, so that a test can change it there.
fn with_setting(minor: &str, setting: &str) -> Site {
    let site = site(3, minor);
    says_port(&site, "    etcd: { ", &format!("    etcd: {{ {setting}, "));
    site
}

fn another_peer_port(minor: &str, playbook: &str) {
    let site = with_setting(minor, "peer_port: 2380");
    says_port(&site, "peer_port: 2380", "peer_port: 12380");
    // What changes no addresses does not begin in between, and says what does.
    let refused = site.place.folder.run(&["playbook", "upgrade.yaml", "-i", "inventory.yaml"]);
    assert!(matches!(refused.code, 0 | 3), "{}", refused.stdout);
    if refused.code == 3 {
        says(&refused, "addresses-known:");
        says(&refused, "etcdrun playbook settings.yaml");
    }
    let writer = writer(&site);
    let said = site.place.folder.run(&["playbook", playbook, "-i", "inventory.yaml"]);
    let written = writer.stop().unwrap();
    said.ends(0);
    assert!(peer_urls(&site).iter().all(|url| url.ends_with(":12380")), "{:?}", peer_urls(&site));
    site.is_served_by_all();
    nothing_is_lost(&site, &written);
    survives_restarts(&site);
    site.changes_nothing();
}

#[test]
fn another_peer_port_is_told_to_etcd_in_each_members_turn() {
    another_peer_port("3.4", "settings.yaml");
    another_peer_port("3.7", "settings.yaml");
}

#[test]
fn another_peer_port_is_told_to_etcd_by_the_site_too() {
    another_peer_port("3.6", "site.yaml");
}

/// As when the operator died between the word to etcd and the restart, and the member's machine boots before `resume`.
fn another_peer_port_after_a_death(playbook: &str, step: &str) {
    let site = with_setting("3.6", "peer_port: 2380");
    says_port(&site, "peer_port: 2380", "peer_port: 12380");
    dies_behind(&site, &["playbook", playbook, "-i", "inventory.yaml"], step);
    let waits = |member: usize| site.place.hosts[member].run(&["ls", "/etc/etcd"]).unwrap().contains("etcd.env.next");
    let first = (0..3).find(|member| waits(*member)).unwrap();
    let list = site.etcdctl(&["member", "list"]);
    let line = list.lines().find(|line| line.contains(&format!(", {}, ", site.names[first]))).unwrap();
    let fields: Vec<&str> = line.split(", ").collect();
    let url = format!("--peer-urls={}", fields[3].replace(":2380", ":12380"));
    site.etcdctl(&["member", "update", fields[0], &url]);
    // It starts where none of the others dials it.
    site.place.hosts[first].run(&["systemctl", "restart", "etcd"]).unwrap();
    serves(&site);
    site.place.folder.run(&["resume"]).ends(0);
    assert!(peer_urls(&site).iter().all(|url| url.ends_with(":12380")), "{:?}", peer_urls(&site));
    site.is_served_by_all();
    survives_restarts(&site);
    nothing_waits(&site);
    site.changes_nothing();
}

#[test]
fn another_peer_port_is_brought_to_its_end_after_a_death() {
    another_peer_port_after_a_death("settings.yaml", "/Install etcd.service");
    another_peer_port_after_a_death("site.yaml", "/Install etcd.service");
}

/// While all members are stopped, etcd cannot be told of a new address.
#[test]
fn a_cluster_that_is_stopped_comes_back_where_it_was() {
    let site = with_setting("3.6", "peer_port: 2380");
    put(&site, "a", "old");
    let all_stop = || {
        on_all(&site, "stop");
        until("all are stopped", || (0..3).all(|member| !is_up(&site, member)));
    };
    says_port(&site, "peer_port: 2380", "peer_port: 12380");
    all_stop();
    let refused = site.play(&[]).ends(3);
    says(&refused, "no member answers where the inventory has it");
    // A boot.
    on_all(&site, "start");
    serves(&site);
    // The operator has tried the new address by hand, and puts the old one back.
    all_stop();
    let tried = "sed -i '/LISTEN_PEER_URLS/s/:2380/:12380/' /etc/etcd/etcd.env; rm /etc/etcd/etcd.env.next";
    site.place.hosts.iter().for_each(|host| drop(host.run(&["sh", "-c", tried]).unwrap()));
    says_port(&site, "peer_port: 12380", "peer_port: 2380");
    says(&site.play(&[]).ends(3), "-e etcd_allow_outage=true");
    site.play(&["-e", "etcd_allow_outage=true"]).ends(0);
    site.is_served_by_all();
    // One of them is down, and the others can be told.
    says_port(&site, "peer_port: 2380", "peer_port: 12380");
    site.place.hosts[1].run(&["systemctl", "stop", "etcd"]).unwrap();
    site.play(&[]).ends(0);
    assert!(peer_urls(&site).iter().all(|url| url.ends_with(":12380")), "{:?}", peer_urls(&site));
    site.is_served_by_all();
    assert_eq!(get(&site, "a"), "old");
    survives_restarts(&site);
    nothing_waits(&site);
    site.changes_nothing();
}

/// New settings wait on all members, and something else restarts these: they come up as etcd lists them.
#[test]
fn a_restart_that_leaves_new_settings_waiting_tells_etcd_no_new_address() {
    let site = with_setting("3.6", "peer_port: 2380");
    says_port(&site, "peer_port: 2380", "peer_port: 12380");
    dies_behind(&site, &["playbook", "site.yaml", "-i", "inventory.yaml"], "/Decide whether the cluster is new");
    unlock(&site);
    let rotated = site.place.folder.run(&["certs", "rotate-ca", "prod", "--yes", "-i", "inventory.yaml"]).ends(3);
    says(&rotated, "addresses-known:");
    assert!(peer_urls(&site).iter().all(|url| url.ends_with(":2380")), "{:?}", peer_urls(&site));
    survives_restarts(&site);
    // Half a pair that somebody has left is no pair.
    site.place.hosts[0].run(&["sh", "-c", "umask 077; echo torn >/etc/etcd/pki/server.key.next"]).unwrap();
    site.place.folder.run(&["playbook", "settings.yaml", "-i", "inventory.yaml"]).ends(0);
    site.place.folder.run(&["certs", "rotate-ca", "prod", "--yes", "-i", "inventory.yaml"]).ends(0);
    assert!(peer_urls(&site).iter().all(|url| url.ends_with(":12380")), "{:?}", peer_urls(&site));
    site.is_served_by_all();
    survives_restarts(&site);
    nothing_waits(&site);
}

#[test]
fn a_new_key_waits_for_the_restart_of_its_member() {
    let site = site(3, "3.6");
    // As it is by default.
    says_port(&site, "    members:\n", "    tls: { algorithm: ecdsa }\n    members:\n");
    says_port(&site, "algorithm: ecdsa", "algorithm: rsa");
    let files = ["sha256sum", "/etc/etcd/pki/server.key", "/etc/etcd/pki/server.crt", "/etc/etcd/etcd.env"];
    let sums = || site.place.hosts.iter().map(|host| host.run(&files).unwrap()).collect::<Vec<_>>();
    let before = sums();
    dies_behind(&site, &["playbook", "site.yaml", "-i", "inventory.yaml"], "/Decide whether the cluster is new");
    assert_eq!(sums(), before, "what is in use has not changed");
    survives_restarts(&site);
    // Keys that wait are not made again.
    let waiting =
        || site.place.hosts.iter().map(|host| host.run(&["sha256sum", "/etc/etcd/pki/server.key.next"]).unwrap());
    let made: Vec<String> = waiting().collect();
    unlock(&site);
    let told = certificates(&site).ends(2);
    says(&told, "settings.yaml");
    site.play(&[]).ends(0);
    let now: Vec<String> = site.place.hosts.iter().map(|host| host.run(&files[..2]).unwrap()).collect();
    let sum = |line: &String| line.split(' ').next().unwrap().to_owned();
    assert_eq!(now.iter().map(sum).collect::<Vec<_>>(), made.iter().map(sum).collect::<Vec<_>>());
    let key = site.place.hosts[0].run(&["stat", "-c", "%U %a", "/etc/etcd/pki/server.key"]).unwrap();
    assert_eq!(key.trim(), "etcd 600");
    site.is_served_by_all();
    nothing_waits(&site);
    site.changes_nothing();
    certificates(&site).ends(0);
}

#[test]
fn a_cluster_that_was_written_to_since_its_last_backup_is_not_destroyed_by_resume() {
    let site = site(3, "3.6");
    put(&site, "a", "old");
    let destroy = ["destroy", "prod", "--yes", "--backup-to", "file:backups", "-i", "inventory.yaml"];
    dies_behind(&site, &destroy, "Check for writes since the last backup");
    // Whatever became of one of them.
    site.place.hosts[0].run(&["systemctl", "stop", "etcd"]).unwrap();
    until("the others serve", || site.etcdctl(&["put", "b", "new"]).contains("OK"));
    let refused = site.place.folder.run(&["resume"]).ends(3);
    says(&refused, "`prod` was written to since its last backup");
    says(&refused, "run `etcdrun destroy prod`");
    site.place.hosts[0].run(&["systemctl", "start", "etcd"]).unwrap();
    site.is_served_by_all();
    assert_eq!(get(&site, "b"), "new");
    // What its advice says.
    dies_behind(&site, &destroy, "Check for writes since the last backup");
    site.place.folder.run(&["resume"]).ends(0);
    assert!((0..3).all(|member| !is_up(&site, member)));
}

/// Gives the last run up.
fn unlock(site: &Site) {
    let run = site.place.folder.last_run();
    site.place.folder.run(&["unlock", run.file_name().unwrap().to_str().unwrap(), "-i", "inventory.yaml"]).ends(0);
}

fn certificates(site: &Site) -> Said {
    site.place.folder.run(&["certs", "renew", "-i", "inventory.yaml"])
}

#[test]
fn settings_for_another_address_on_the_disk_keep_a_member_from_restarting() {
    let site = site(3, "3.6");
    // As when the operator died between the file and the restart.
    let wrong = "sed -i '/LISTEN_PEER_URLS/s/:2380/:12380/' /etc/etcd/etcd.env";
    site.place.hosts[0].run(&["sh", "-c", wrong]).unwrap();
    let restart = ["member", "restart", &site.names[0], "--yes", "-i", "inventory.yaml"];
    let refused = site.place.folder.run(&restart).ends(3);
    says(&refused, "address-at-start:");
    site.is_served_by_all();
    assert!(peer_urls(&site).iter().all(|url| url.ends_with(":2380")), "{:?}", peer_urls(&site));
}

/// Every host has a second address, where etcd does not listen.
#[test]
fn another_address_is_refused_with_the_way_that_works() {
    let site = site(3, "3.6");
    let folder = &site.place.folder;
    let old = folder.read("inventory.yaml");
    let mut text = old.clone();
    for (number, (name, address)) in site.members().into_iter().enumerate() {
        let (net, _) = address.rsplit_once('.').unwrap();
        let ip = format!("{net}.{}", 250 - number);
        let add = format!("ip addr add {ip}/24 dev $(ip -o -4 addr | awk '/ {address}\\//{{ print $2 }}')");
        site.place.hosts[number].run(&["sh", "-c", &add]).unwrap();
        let to = format!("{name}: {{ address: {address}, etcd: {{ ip: {ip} }} }}");
        text = text.replace(&format!("{name}: {{ address: {address} }}"), &to);
        // One of them, then two, then all.
        folder.write("inventory.yaml", &text);
        let refused = folder.run(&["playbook", "settings.yaml", "-i", "inventory.yaml"]).ends(3);
        says(&refused, "client-address:");
        says(&refused, "etcdrun member move");
        site.is_served_by_all();
    }
    let plan = folder.run(&["plan", "settings.yaml", "-i", "inventory.yaml"]);
    says(&plan, "client-address:");
    let site_play = site.play(&[]);
    assert!(matches!(site_play.code, 2 | 3), "{}", site_play.stdout);
    site.is_served_by_all();
    survives_restarts(&site);
    folder.write("inventory.yaml", &old);
    site.play(&[]).ends(0);
    site.is_served_by_all();
    nothing_waits(&site);
    site.changes_nothing();
}

#[test]
fn another_client_port_is_refused_with_the_way_that_works() {
    let site = with_setting("3.6", "client_port: 2379");
    says_port(&site, "client_port: 2379", "client_port: 2479");
    let refused = site.place.folder.run(&["playbook", "settings.yaml", "-i", "inventory.yaml"]).ends(3);
    says(&refused, "client-port:");
    says(&refused, "etcd_allow_outage=true");
    site.is_served_by_all();
    site.play(&["-e", "etcd_allow_outage=true"]).ends(0);
    let status = run(&site, &["status", "prod"]).ends(0);
    says(&status, "prod: healthy, 3 of 3 members");
}

#[test]
fn the_site_counts_the_voters_of_etcd_and_not_those_of_the_inventory() {
    let site = site(5, "3.6");
    // Two are gone, and somebody has shortened the inventory by hand.
    site.place.hosts[3..].iter().for_each(|host| drop(host.run(&["systemctl", "stop", "etcd"]).unwrap()));
    serves(&site);
    let text = site.place.folder.read("inventory.yaml");
    let kept: Vec<&str> =
        text.lines().filter(|line| !site.names[3..].iter().any(|name| line.contains(&format!("{name}: {{")))).collect();
    let version = format!("version: {}", etcd("3.6").unwrap().version);
    let text = kept.join("\n").replace(&version, &format!("{version}, log_level: debug")) + "\n";
    site.place.folder.write("inventory.yaml", &text);
    let said = site.play(&[]);
    assert!(matches!(said.code, 2 | 3), "{}", said.stdout);
    says(&said, "would leave 2 of 5 voters healthy");
    assert!((0..3).all(|member| is_up(&site, member)));
    serves(&site);
}
