//! Clusters that have lost their majority, and backups that are tried out.

use std::{
    process::Stdio,
    time::{Duration, Instant, SystemTime},
};

use etcdrun_lab::{Host, wait};
use serde_json::Value;

use super::{
    Said,
    backup::{backup, get, hashes, names, put, run, site},
    etcd::{PLAIN, Site},
};

fn recover(site: &Site, more: &[&str]) -> Said {
    run(site, &[&["recover", "prod"], more].concat())
}

fn stop(host: &Host) {
    host.run(&["systemctl", "stop", "etcd"]).unwrap();
}

/// The disk is new, and empty.
fn lose(host: &Host) {
    host.run(&["sh", "-c", "systemctl stop etcd; rm -rf /var/lib/etcd/data/member"]).unwrap();
}

fn all_have_the_same(site: &Site) {
    site.is_served_by_all();
    let all = hashes(site);
    let first = all.values().next().unwrap();
    assert!(all.len() == site.names.len() && all.values().all(|hash| hash == first), "{all:?}");
}

/// What is beside the data of a member.
fn beside(host: &Host) -> String {
    host.run(&["sh", "-c", "ls -d /var/lib/etcd/data.* 2> /dev/null; true"]).unwrap()
}

fn says(said: &Said, text: &str) {
    assert!(said.stdout.contains(text) || said.stderr.contains(text), "{text}:\n{}{}", said.stdout, said.stderr);
}

#[test]
fn where_a_majority_has_its_data_etcd_is_started_and_nothing_else_happens() {
    let site = site(3, "3.6");
    put(&site, "a", "one");
    let healthy = recover(&site, &["--yes"]).ends(3);
    says(&healthy, "There is nothing to recover");
    // One is behind, one has lost everything, and the last one is alone.
    let hosts = &site.place.hosts;
    stop(&hosts[0]);
    (0..20).for_each(|number| put(&site, &format!("key-{number}"), "value"));
    put(&site, "a", "two");
    lose(&hosts[1]);
    let look = recover(&site, &["--check"]).ends(0);
    says(&look, &format!("{} has no data", site.names[1]));
    says(&look, &format!("start etcd on {}", site.names[0]));
    let named = recover(&site, &["--check", "--through", &site.names[0]]).ends(0);
    says(&named, &format!("a new cluster of what {} has", site.names[0]));
    says(&named, &format!("{} HAS MORE", site.names[2]));
    let nobody = recover(&site, &[]).ends(5);
    assert!(nobody.stderr.contains("--yes skips the prompt"), "{}", nobody.stderr);
    assert!(hosts[0].run(&["systemctl", "is-active", "etcd"]).is_err(), "nothing has happened yet");
    recover(&site, &["--yes"]).ends(0);
    assert_eq!((get(&site, "a").lines().next().unwrap(), beside(&hosts[2]).as_str()), ("two", ""));
    recover(&site, &["--yes"]).ends(3);
    // Now it is a dead member like any other.
    run(&site, &["member", "replace", &site.names[1], "--yes"]).ends(0);
    all_have_the_same(&site);

    // All are down, and two of them do not come up again: that is told, with the way out.
    stop(&hosts[2]);
    put(&site, "a", "three");
    hosts[..2].iter().for_each(|host| stop(host));
    for host in &hosts[1..] {
        let damage = "head -c 16384 /dev/urandom | dd of=/var/lib/etcd/data/member/snap/db conv=notrunc status=none";
        host.run(&["sh", "-c", damage]).unwrap();
    }
    let said = recover(&site, &["--yes"]).ends(2);
    says(&said, "etcd does not stay up on");
    says(&said, &format!("--through {}", site.names[0]));
    recover(&site, &["--through", &site.names[0], "--yes"]).ends(0);
    all_have_the_same(&site);
    assert_eq!(get(&site, "a"), "three");
    assert!(hosts.iter().all(|host| beside(host).contains(".before-")), "old data is set aside");
}

#[test]
fn what_the_last_member_has_becomes_a_new_cluster() {
    for minor in ["3.4", "3.5", "3.6", "3.7"] {
        let site = site(3, minor);
        put(&site, "a", "one");
        let hosts = &site.place.hosts;
        stop(&hosts[0]);
        (0..20).for_each(|number| put(&site, &format!("key-{number}"), "value"));
        put(&site, "a", "two");
        hosts[..2].iter().for_each(|host| lose(host));
        let look = recover(&site, &["--check"]).ends(0);
        says(&look, &format!("a new cluster of what {} has", site.names[2]));
        says(&look, &format!("{} has nothing, {} has nothing", site.names[0], site.names[1]));
        let begun = Instant::now();
        recover(&site, &["--yes"]).ends(0);
        println!("{minor}: recovered in {:.1?}", begun.elapsed());
        all_have_the_same(&site);
        assert_eq!((get(&site, "a").as_str(), get(&site, "key-19").as_str()), ("two", "value"));
        let beside = beside(&hosts[2]);
        assert!(beside.lines().count() == 1 && beside.contains("before-"), "no copy stays: {beside}");
        assert!(hosts[2].run(&["systemctl", "is-active", "etcd-salvage"]).is_err());
        put(&site, "a", "three");
        site.changes_nothing();
        recover(&site, &["--yes"]).ends(3);
        assert_eq!(get(&site, "a"), "three");
    }
}

#[test]
fn a_login_would_need_the_majority_that_is_lost() {
    let site = Site::played(3, "3.6", &format!("{PLAIN}    auth: {{ method: password }}\n"));
    says(&recover(&site, &["--yes"]).ends(3), "There is nothing to recover");
    site.place.hosts[..2].iter().for_each(|host| lose(host));
    recover(&site, &["--yes"]).ends(0);
    says(&run(&site, &["status", "prod"]).ends(0), "prod: healthy, 3 of 3 members");
}

#[test]
fn machines_that_hang_keep_nobody_and_are_not_taken_for_gone() {
    let mut site = site(3, "3.5");
    put(&site, "a", "one");
    // The first one, too, on which a task for all of them would run.
    site.place.hosts[..2].iter().for_each(|host| host.freeze().unwrap());
    let recover = |more: &[&str]| {
        let begun = Instant::now();
        let said = recover(&site, &[&["--yes", "--connect-timeout", "2"], more].concat());
        println!("{:.1?}", begun.elapsed());
        assert!(begun.elapsed() < Duration::from_secs(120), "it does not hang with them");
        said
    };
    let unknown = recover(&[]).ends(3);
    says(&unknown, "no answer from");
    says(&unknown, "there would be two clusters");
    says(&unknown, &format!("{} has data: term", site.names[2]));
    says(&unknown, &format!("{} cannot be inspected", site.names[0]));
    // Whoever takes them out of the inventory has to say that they are off.
    let text = site.place.folder.read("inventory.yaml");
    let gone = |line: &&str| site.names[..2].iter().any(|name| line.trim_start().starts_with(&format!("{name}:")));
    let rest: String = text.lines().filter(|line| !gone(line)).map(|line| format!("{line}\n")).collect();
    site.place.folder.write("inventory.yaml", &rest);
    let elsewhere = recover(&[]).ends(3);
    says(&elsewhere, "together they are a majority");
    recover(&["--force"]).ends(0);
    site.now_members(&[2]);
    all_have_the_same(&site);
    assert_eq!(get(&site, "a"), "one");
    // They had better be off: they would be the old cluster.
    site.place.hosts[..2].iter().for_each(|host| host.kill().unwrap());
}

#[test]
fn a_recovery_goes_on_wherever_the_operator_was_killed() {
    let site = site(3, "3.5");
    (0..20).for_each(|number| put(&site, &format!("key-{number}"), "value"));
    let hosts = &site.place.hosts;
    hosts[..2].iter().for_each(|host| lose(host));
    // While a server runs on a copy of the data.
    let words = ["recover", "prod", "--yes", "-i", "inventory.yaml"];
    let mut running = site.place.folder.command(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    while hosts[2].run(&["systemctl", "is-active", "etcd-salvage"]).is_err() {
        std::thread::sleep(Duration::from_millis(20));
        assert!(begun.elapsed() < Duration::from_secs(120) && running.try_wait().unwrap().is_none());
    }
    running.kill().unwrap();
    running.wait().unwrap();
    // Counted in records of the journal: before the data is placed, when it is, while it takes the place of the old, and behind that.
    let mut deaths = 0;
    for record in [30, 50, 65, 80, 90] {
        let mut command = site.place.folder.command(&["resume"]);
        let ended = command.env("ETCDRUN_TEST_DIE", format!("after:{record}")).output().unwrap().status;
        deaths += usize::from(ended.code().is_none());
        if ended.success() {
            break;
        }
    }
    assert!(deaths >= 3, "it was killed {deaths} times");
    let said = site.place.folder.run(&["resume"]);
    assert!(said.code == 0 || said.stderr.contains("no run that could be resumed"), "{}\n{}", said.stdout, said.stderr);
    all_have_the_same(&site);
    assert_eq!(get(&site, "key-19"), "value");
    let beside = beside(&hosts[2]);
    assert!(beside.lines().count() == 1 && beside.contains("before-"), "once aside, and no copy stays: {beside}");
    assert!(hosts[2].run(&["systemctl", "is-active", "etcd-salvage"]).is_err());
    site.changes_nothing();
}

/// The server apart takes no word of raft from other accounts of its host, and is as confined as etcd itself.
fn nobody_is_its_peer(host: &Host) {
    let listens = || Ok(host.run(&["sh", "-c", "ss -ltn | grep -q 127.0.0.1:22380"]).is_ok().then_some(()));
    wait::until("the peer port listens", Duration::from_secs(60), listens).unwrap();
    for url in ["http://127.0.0.1:22380/version", "https://127.0.0.1:22380/version", "https://127.0.0.1:22380/raft"] {
        let words = ["su", "-s", "/bin/sh", "nobody", "-c", &format!("curl -skf -m 10 {url}")];
        assert!(host.run(&words).is_err(), "{url} answers a stranger");
    }
    let properties = "NoNewPrivileges,ProtectSystem,CapabilityBoundingSet,RestrictNamespaces";
    let shown = host.run(&["systemctl", "show", "-p", properties, "etcd-salvage"]).unwrap();
    for line in ["NoNewPrivileges=yes", "ProtectSystem=strict", "CapabilityBoundingSet=", "RestrictNamespaces=yes"] {
        assert!(shown.lines().any(|it| it == line), "{line}: {shown}");
    }
}

#[test]
fn a_drill_starts_a_server_on_a_backup_and_leaves_nothing() {
    for minor in ["3.4", "3.7"] {
        let site = site(1, minor);
        (0..20).for_each(|number| put(&site, &format!("key-{number}"), "value"));
        backup(&site, &[]).ends(0);
        put(&site, "later", "stays");
        let words = ["restore", "prod", "--from", "file:backups", "--drill", "-v", "-i", "inventory.yaml"];
        let drill = || site.place.folder.run(&words);
        let host = &site.place.hosts[0];
        let look = "ls -A /var/lib/etcd; systemctl show -p MainPID etcd; systemctl is-active etcd-salvage; true";
        let state = || (host.run(&["sh", "-c", look]).unwrap(), names(&site, ".etcdrun/restore"));
        let before = state();
        let said = drill().ends(0);
        says(&said, "with the same hash");
        assert_eq!(state(), before);
        assert_eq!(get(&site, "later"), "stays");
        // What a drill leaves whose operator was killed goes with the next one.
        let mut running =
            site.place.folder.command(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        while host.run(&["systemctl", "is-active", "etcd-salvage"]).is_err() {
            std::thread::sleep(Duration::from_millis(20));
            assert!(running.try_wait().unwrap().is_none());
        }
        running.kill().unwrap();
        running.wait().unwrap();
        nobody_is_its_peer(host);
        site.place.folder.run(&["resume"]).ends(0);
        assert_eq!(state(), before);
        // One that says something else than it has is found out, and so is one that is damaged.
        let name = names(&site, "backups").into_iter().find(|name| name.ends_with(".json")).unwrap();
        let whole = site.place.folder.read(&format!("backups/{name}"));
        let mut text: Value = serde_json::from_str(&whole).unwrap();
        text["hash"]["hash"] = 1.into();
        site.place.folder.write(&format!("backups/{name}"), &text.to_string());
        says(&drill().ends(5), "was changed after it was written");
        let anyway = [&words[..], &["--unauthenticated"]].concat();
        says(&site.place.folder.run(&anyway).ends(2), "and it was 1 when the backup was taken");
        assert_eq!(state(), before);
        site.place.folder.write(&format!("backups/{name}"), &whole);
        let file = site.place.folder.path("backups").join(text["file"].as_str().unwrap());
        let mut bytes = std::fs::read(&file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&file, bytes).unwrap();
        says(&drill().ends(2), "is damaged");
        assert_eq!(state(), before);
        assert_eq!(get(&site, "later"), "stays");
    }
}

/// A server that no client can trust never answers: there is nothing to wait for.
#[test]
fn a_drill_with_an_expired_certificate_ends_at_once() {
    let site = site(1, "3.7");
    put(&site, "key", "value");
    backup(&site, &[]).ends(0);
    let key = site.place.folder.run(&["secret", "view", ".etcdrun/pki/prod/ca.key.age"]).ends(0).stdout;
    let yesterday = SystemTime::now() - Duration::from_secs(86400);
    site.place.hosts[0].end_certificate("/etc/etcd/pki/server.crt", &key, yesterday).unwrap();
    let begun = Instant::now();
    let words = ["restore", "prod", "--from", "file:backups", "--drill", "-v", "-i", "inventory.yaml"];
    says(&site.place.folder.run(&words).ends(2), "run `etcdrun certs renew prod`");
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}

/// The first member is the cluster; the others are machines for a drill.
fn with_machines_for_a_drill() -> Site {
    let mut site = Site::new(3, "3.6", PLAIN);
    let text = site.place.folder.read("inventory.yaml");
    let spare = text.find(&format!("      {}:", site.names[1])).unwrap();
    let version = text.lines().find(|line| line.starts_with("    etcd: ")).unwrap();
    let (prod, spare) = text.split_at(spare);
    site.place.folder.write("inventory.yaml", &format!("{prod}  rehearsal:\n{version}\n    members:\n{spare}"));
    site.forget(1);
    site
}

#[test]
fn a_drill_makes_a_cluster_of_a_backup_and_takes_it_away_again() {
    let site = with_machines_for_a_drill();
    site.play(&["--limit", "prod"]).ends(0);
    (0..20).for_each(|number| put(&site, &format!("key-{number}"), "value"));
    backup(&site, &[]).ends(0);
    let words = ["restore", "prod", "--from", "file:backups", "--drill", "--into", "rehearsal", "-i", "inventory.yaml"];
    let drill = || site.place.folder.run(&words);
    let spare = &site.place.hosts[1..];
    let look = "ls -A /var/lib/etcd /etc/etcd 2> /dev/null; systemctl is-active etcd; true";
    let state = || -> Vec<String> { spare.iter().map(|host| host.run(&["sh", "-c", look]).unwrap()).collect() };
    let known = || (names(&site, ".etcdrun/clusters"), names(&site, ".etcdrun/pki"), names(&site, ".etcdrun/restore"));
    let (before, known_before) = (state(), known());
    says(&drill().ends(0), "as when the backup was taken");
    assert_eq!((state(), known()), (before.clone(), known_before.clone()));
    // It goes on where a killed one was, and ends as if nothing had been.
    let mut running = site.place.folder.command(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while spare[1].run(&["systemctl", "is-active", "etcd"]).is_err() {
        std::thread::sleep(Duration::from_millis(20));
        assert!(running.try_wait().unwrap().is_none());
    }
    running.kill().unwrap();
    running.wait().unwrap();
    says(&drill().ends(6), "resume");
    site.place.folder.run(&["resume"]).ends(0);
    assert_eq!((state(), known()), (before, known_before));
    // What is not what it says is not destroyed before somebody has looked, and no drill takes it for its own.
    let name = names(&site, "backups").into_iter().find(|name| name.ends_with(".json")).unwrap();
    let whole = site.place.folder.read(&format!("backups/{name}"));
    let mut text: Value = serde_json::from_str(&whole).unwrap();
    text["hash"]["hash"] = 1.into();
    site.place.folder.write(&format!("backups/{name}"), &text.to_string());
    let anyway = [&words[..], &["--unauthenticated"]].concat();
    says(&site.place.folder.run(&anyway).ends(2), "and it was 1 when the backup was taken");
    site.place.folder.write(&format!("backups/{name}"), &whole);
    says(&drill().ends(2), "etcdrun destroy rehearsal");
    assert!(spare.iter().all(|host| host.run(&["systemctl", "is-active", "etcd"]).is_err()), "none has begun with it");
    let itself = ["restore", "prod", "--from", "file:backups", "--drill", "--into", "prod", "-i", "inventory.yaml"];
    let said = site.place.folder.run(&itself).ends(5);
    assert!(said.stderr.contains("is the cluster itself"), "{}", said.stderr);
    site.is_served_by_all();
}
