//! What can go wrong in an upgrade, done to clusters of real etcd: nobody else is touched, and once it is mended the
//! run goes on to its end.

use std::{
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use etcdrun_lab::etcd;
use rustix::process::Signal;

use super::{
    Said,
    etcd::{PLAIN, Site, sha256},
    gates::leader,
    turns::spread,
    upgrade::{all_run, nothing_is_lost, releases, site, upgrade, wants, writer},
};
use crate::support::signal;

const LIMIT: Duration = Duration::from_secs(120);

/// An upgrade that waits in each turn until the test lets it go on.
const HELD: &str = r#"
- hosts: clusters
  become: true
  rollout: { strategy: etcd, upgrade: true, timeout: 20s }
  pre_tasks:
    - { name: Here, copy: { content: "", dest: "DIR/at-{{ inventory_hostname }}" }, delegate_to: localhost, become: false }
    - { name: Held, wait_for: { path: "DIR/go-{{ inventory_hostname }}", timeout: 60, sleep: 1 }, delegate_to: localhost, become: false }
  roles: [etcd]
"#;

pub(super) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    // Most questions are a process or two, which would keep a processor busy that what is awaited needs.
    let mut pause = Duration::from_millis(20);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: not within {LIMIT:?}");
        std::thread::sleep(pause);
        pause = (pause * 3 / 2).min(Duration::from_millis(100));
    }
}

pub(super) fn start(site: &Site, words: &[&str]) -> Child {
    site.place.folder.command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn end(child: Child) -> Said {
    Said::of(child.wait_with_output().unwrap())
}

/// The member whose turn is held.
fn whose_turn(site: &Site) -> usize {
    let mut whose = None;
    until("a turn begins", || {
        whose = site.names.iter().position(|name| site.place.folder.path(&format!("at-{name}")).exists());
        whose.is_some()
    });
    whose.unwrap()
}

/// `held.yaml`: an upgrade in which each member is held when it is its turn, until it is let go.
fn write_held(site: &Site) {
    let folder = &site.place.folder;
    folder.write("held.yaml", &HELD.replace("DIR", folder.path("").to_str().unwrap().trim_end_matches('/')));
}

/// These members are held no longer when it is their turn.
fn let_go(site: &Site, members: impl IntoIterator<Item = usize>) {
    for member in members {
        site.place.folder.write(&format!("go-{}", site.names[member]), "");
    }
}

pub(super) fn is_up(site: &Site, member: usize) -> bool {
    site.place.hosts[member].run(&["systemctl", "is-active", "--quiet", "etcd"]).is_ok()
}

fn servers_replaced(said: &Said) -> usize {
    said.stdout.lines().filter(|line| line.starts_with("changed") && line.contains(" Unit")).count()
}

#[test]
fn nobody_is_touched_while_something_is_wrong() {
    let site = site(3, "3.5", PLAIN);
    let (from, to) = (etcd("3.5").unwrap().version, etcd("3.6").unwrap());
    let broken = site.place.folder.path("broken");
    let entry = format!("  {}: {{ file: {}, sha256: {} }}\n", to.version, broken.display(), sha256(&to.path));
    wants(&site, &from, &to.version, &entry);

    let play = "- hosts: clusters\n  become: true\n  rollout: { strategy: etcd, upgrade: true, timeout: 5s }\n  roles: [etcd]\n";
    site.place.folder.write("soon.yaml", play);
    let upgrade = |site: &Site| site.place.folder.run(&["playbook", "soon.yaml", "-i", "inventory.yaml"]);

    // A file that is not what its checksum says.
    let bytes = std::fs::read(&to.path).unwrap();
    std::fs::write(&broken, &bytes[..bytes.len() - 1]).unwrap();
    let said = upgrade(&site).ends(2);
    assert!(said.stdout.contains("sha256") && servers_replaced(&said) == 0, "{}", said.stdout);
    std::fs::write(&broken, bytes).unwrap();

    // A learner that an accident has left.
    let mut added = String::new();
    // etcd refuses while its members have not been connected for five seconds.
    until("a learner is added", || {
        added = site.etcdctl(&["member", "add", "ghost", "--learner", "--peer-urls=https://127.9.9.9:2380"]);
        added.contains("added to cluster")
    });
    let ghost = added.split_whitespace().nth(1).unwrap().to_owned();
    let said = upgrade(&site).ends(3);
    assert!(said.stdout.contains("learner") && servers_replaced(&said) == 0, "{}", said.stdout);
    let removed = site.etcdctl(&["member", "remove", &ghost]);
    assert!(removed.contains("removed"), "{removed}");

    // A member that is down, for a reason that no upgrade mends.
    let sick = &site.place.hosts[1];
    sick.run(&["systemctl", "mask", "--now", "--runtime", "etcd"]).unwrap();
    let said = upgrade(&site);
    assert!(matches!(said.code, 2 | 3) && !said.stdout.contains("panic"), "{} {}", said.code, said.stdout);
    assert!(said.stdout.contains(&site.names[1]) && servers_replaced(&said) <= 1, "{}", said.stdout);
    assert!(is_up(&site, 0) && is_up(&site, 2), "{}", said.stdout);
    sick.run(&["systemctl", "unmask", "--runtime", "etcd"]).unwrap();
    sick.run(&["systemctl", "start", "etcd"]).unwrap();

    site.all_become_healthy();
    let said = upgrade(&site);
    assert_eq!(said.code, 0, "{}{}", said.stdout, said.stderr);
    all_run(&site, &to.version);
}

#[test]
fn an_upgrade_that_is_disturbed_goes_on_once_it_is_left_alone() {
    let site = site(3, "3.5", PLAIN);
    let (from, to) = (etcd("3.5").unwrap().version, etcd("3.6").unwrap().version);
    wants(&site, &from, &to, &releases(&["3.6"]));
    let folder = &site.place.folder;
    write_held(&site);
    let writer = writer(&site);

    // A second operator, then an interrupt, in the midst of a turn.
    let first = start(&site, &["playbook", "held.yaml", "-i", "inventory.yaml"]);
    let held = whose_turn(&site);
    let said = upgrade(&site).ends(6);
    assert!(said.stdout.contains("cluster prod is locked by run"), "{}", said.stdout);
    signal(first.id().cast_signed(), Signal::INT);
    let said = end(first);
    assert!(said.code == 130 && said.stderr.contains("etcdrun resume"), "{} {}{}", said.code, said.stdout, said.stderr);
    assert!((0..3).all(|member| is_up(&site, member)), "nothing was at stake yet");

    // The leader dies between the check and the stop.
    let again = start(&site, &["resume"]);
    let leads = leader(&site);
    site.place.hosts[leads].run(&["systemctl", "kill", "--signal=KILL", "etcd"]).unwrap();
    let_go(&site, 0..3);
    // Sessions to a member are cut while its server is replaced, and then its network is.
    until("the server of a member is replaced", || !is_up(&site, held) || again_is_over(&site, &to));
    site.place.hosts[held].sessions().unwrap().iter().for_each(|session| drop(session.kill()));
    let mut said = end(again);
    let mut tries = 0;
    while said.code != 0 && tries < 3 {
        assert!(matches!(said.code, 2..=4), "{} {}{}", said.code, said.stdout, said.stderr);
        until("all members are up", || (0..3).all(|member| is_up(&site, member)));
        said = folder.run(&["resume"]);
        tries += 1;
    }
    let written = writer.stop().unwrap();
    assert_eq!(said.code, 0, "{}{}", said.stdout, said.stderr);
    all_run(&site, &to);
    nothing_is_lost(&site, &written);
}

/// Some member is of the new version already: the moment has been missed.
fn again_is_over(site: &Site, version: &str) -> bool {
    site.etcdctl(&["endpoint", "status"]).contains(&format!(", {version}, "))
}

#[test]
fn a_member_that_does_not_come_back_stops_the_upgrade() {
    let site = site(3, "3.5", PLAIN);
    let (from, to) = (etcd("3.5").unwrap().version, etcd("3.6").unwrap().version);
    wants(&site, &from, &to, &releases(&["3.6"]));
    let folder = &site.place.folder;
    write_held(&site);
    let run = start(&site, &["playbook", "held.yaml", "-i", "inventory.yaml", "--connect-timeout", "3"]);
    let held = whose_turn(&site);
    let_go(&site, [held]);
    until("its server is replaced", || !is_up(&site, held) || again_is_over(&site, &to));
    site.place.hosts[held].cut().unwrap();
    let said = end(run);
    assert!(matches!(said.code, 2..=4), "{} {}{}", said.code, said.stdout, said.stderr);
    let told = said.stdout.contains(&site.names[held]) && said.stderr.contains("etcdrun resume");
    assert!(told, "{}{}", said.stdout, said.stderr);
    let others = site.etcdctl(&["endpoint", "status"]);
    assert_eq!(others.matches(&format!(", {from}, ")).count(), 2, "nobody else is touched: {others}");
    let health = site.etcdctl(&["endpoint", "health"]);
    assert!(health.matches("is healthy").count() >= 2, "{health}");
    site.place.hosts[held].set_link_fault(&etcdrun_lab::LinkFault::default()).unwrap();
    site.all_become_healthy();
    let_go(&site, 0..3);
    let said = folder.run(&["resume"]);
    assert_eq!(said.code, 0, "{}{}", said.stdout, said.stderr);
    all_run(&site, &to);
}

#[test]
fn a_setting_that_etcd_does_not_start_with_costs_one_member_and_no_more() {
    costs_one_member(3, "settings.yaml");
}

/// Without two of five the others would still be a majority, so that alone would not end it.
#[test]
fn a_setting_that_etcd_does_not_start_with_reaches_one_member_of_the_site() {
    costs_one_member(5, "site.yaml");
}

fn costs_one_member(members: usize, playbook: &str) {
    let site = Site::played(members, "3.5", "    etcd: { version: VERSION, settings: { heartbeat-interval: 100 } }\n");
    let folder = &site.place.folder;
    let good = folder.read("inventory.yaml");
    // etcd wants five times as much for elections.
    folder.write("inventory.yaml", &good.replace("heartbeat-interval: 100", "heartbeat-interval: 900"));
    let settings = || folder.run(&["playbook", playbook, "-i", "inventory.yaml"]);
    let said = settings();
    assert!(matches!(said.code, 2 | 3), "{} {}{}", said.code, said.stdout, said.stderr);
    let down: Vec<usize> = (0..members).filter(|member| !is_up(&site, *member)).collect();
    let [down] = down[..] else { panic!("{down:?} are down: {}", said.stdout) };
    let told = said.stdout.contains(&site.names[down]) && said.stdout.contains("election-timeout");
    assert!(told, "the cause is told: {}", said.stdout);
    let healthy = || site.etcdctl(&["endpoint", "health"]).matches("is healthy").count();
    assert_eq!(healthy(), members - 1);
    // A crash or a boot of another member finds what it has started with before.
    for other in (0..members).filter(|member| *member != down) {
        site.place.hosts[other].run(&["systemctl", "restart", "etcd"]).unwrap();
        until("the others serve", || healthy() == members - 1);
    }
    // And a second run costs no other member.
    settings();
    assert_eq!(healthy(), members - 1);
    folder.write("inventory.yaml", &good);
    let said = settings();
    assert_eq!(said.code, 0, "{}{}", said.stdout, said.stderr);
    site.is_served_by_all();
    nothing_waits(&site);
    site.changes_nothing();
}

/// No file is left that waits for a restart.
pub(super) fn nothing_waits(site: &Site) {
    for host in &site.place.hosts {
        let left = host.run(&["find", "/etc/etcd", "/etc/systemd/system", "-name", "*.next"]).unwrap();
        assert_eq!(left, "", "{}", host.name());
    }
}

#[test]
fn a_full_disk_and_a_second_member_that_dies_halt_an_upgrade_that_then_goes_on() {
    let site = site(3, "3.5", PLAIN);
    let (from, to) = (etcd("3.5").unwrap().version, etcd("3.6").unwrap().version);
    wants(&site, &from, &to, &releases(&["3.6"]));
    let folder = &site.place.folder;
    site.place.hosts[2].fill("/var/lib/etcd").unwrap();
    let said = upgrade(&site).ends(3);
    let told = said.stdout.contains("disk-room") && said.stdout.contains(&site.names[2]);
    assert!(told && servers_replaced(&said) == 0, "{}", said.stdout);
    site.place.hosts[2].empty("/var/lib/etcd").unwrap();
    // It may have ended when it could not write.
    let again = "systemctl reset-failed etcd; systemctl start etcd";
    site.place.hosts[2].run(&["sh", "-c", again]).unwrap();
    site.all_become_healthy();

    write_held(&site);
    let run = start(&site, &["playbook", "held.yaml", "-i", "inventory.yaml"]);
    let held = whose_turn(&site);
    let leads = leader(&site);
    let second = (0..3).find(|member| ![held, leads].contains(member)).unwrap();
    let_go(&site, [held]);
    until("its server is replaced", || !is_up(&site, held) || again_is_over(&site, &to));
    site.place.hosts[second].run(&["systemctl", "mask", "--now", "--runtime", "etcd"]).unwrap();
    let said = end(run);
    assert!(matches!(said.code, 2 | 3), "{} {}{}", said.code, said.stdout, said.stderr);
    let told = said.stdout.contains(&site.names[second]) && said.stderr.contains("etcdrun resume");
    assert!(told, "{}{}", said.stdout, said.stderr);
    assert!(is_up(&site, leads) && is_up(&site, held), "{}", said.stdout);
    let status = site.etcdctl(&["endpoint", "status"]);
    assert_eq!(status.matches(&format!(", {from}, ")).count(), 1, "nobody else is touched: {status}");
    let health = site.etcdctl(&["endpoint", "health"]);
    assert_eq!(health.matches("is healthy").count(), 2, "there is a majority again: {health}");

    site.place.hosts[second].run(&["systemctl", "unmask", "--runtime", "etcd"]).unwrap();
    site.place.hosts[second].run(&["systemctl", "start", "etcd"]).unwrap();
    site.all_become_healthy();
    let_go(&site, 0..3);
    let said = folder.run(&["resume"]);
    assert_eq!(said.code, 0, "{}{}", said.stdout, said.stderr);
    all_run(&site, &to);
}

#[test]
fn a_follower_that_is_far_behind_is_waited_for() {
    let site = site(3, "3.5", PLAIN);
    let (from, to) = (etcd("3.5").unwrap().version, etcd("3.6").unwrap().version);
    wants(&site, &from, &to, &releases(&["3.6"]));
    let folder = &site.place.folder;
    let play = "- hosts: clusters\n  become: true\n  rollout: { strategy: etcd, upgrade: true, timeout: 5s }\n  roles: [etcd]\n";
    folder.write("soon.yaml", play);
    let slow = (leader(&site) + 1) % 3;
    let host = &site.place.hosts[slow];
    let server = host.run(&["systemctl", "show", "-P", "MainPID", "etcd"]).unwrap();
    let server = server.trim();
    host.run(&["kill", "-STOP", server]).unwrap();
    let value = "x".repeat(100_000);
    for number in 0..300 {
        site.etcdctl(&["put", &format!("/big/{number}"), &value]);
    }
    let said = folder.run(&["playbook", "soon.yaml", "-i", "inventory.yaml"]).ends(3);
    assert!(said.stdout.contains(&site.names[slow]) && servers_replaced(&said) == 0, "{}", said.stdout);
    // It goes on, and has to write all of that with next to no time for it.
    let slowly = format!("while kill -CONT {server}; do sleep 0.01; kill -STOP {server}; sleep 0.2; done");
    host.run(&["systemd-run", "--unit", "slowly", "sh", "-c", &slowly]).unwrap();
    upgrade(&site).ends(0);
    all_run(&site, &to);
}

#[test]
fn a_member_whose_hypervisor_is_gone_stops_the_upgrade() {
    let (site, hypervisors) = spread();
    let (from, to) = (etcd("3.5").unwrap().version, etcd("3.6").unwrap().version);
    wants(&site, &from, &to, &releases(&["3.6"]));
    let folder = &site.place.folder;
    write_held(&site);
    let run = start(&site, &["playbook", "held.yaml", "-i", "inventory.yaml", "--connect-timeout", "3"]);
    let first = whose_turn(&site);
    let_go(&site, [first]);
    std::fs::remove_file(folder.path(&format!("at-{}", site.names[first]))).unwrap();
    let next = whose_turn(&site);
    assert_ne!(next, first);
    site.place.hosts[next].kill().unwrap();
    hypervisors.hosts[next].kill().unwrap();
    let_go(&site, 0..3);
    let said = end(run);
    assert!(matches!(said.code, 2..=4), "{} {}{}", said.code, said.stdout, said.stderr);
    let told = said.stdout.contains(&site.names[next]) && said.stderr.contains("etcdrun resume");
    assert!(told, "{}{}", said.stdout, said.stderr);
    let status = site.etcdctl(&["endpoint", "status"]);
    assert_eq!(status.matches(&format!(", {to}, ")).count(), 1, "{status}");
    let last = 3 - first - next;
    assert!(is_up(&site, first) && is_up(&site, last), "{}", said.stdout);
    hypervisors.hosts[next].start().unwrap();
    site.place.hosts[next].start().unwrap();
    site.all_become_healthy();
    let said = folder.run(&["resume"]);
    assert_eq!(said.code, 0, "{}{}", said.stdout, said.stderr);
    all_run(&site, &to);
}
