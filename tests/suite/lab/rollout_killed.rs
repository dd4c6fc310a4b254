//! The operator is killed again and again in an upgrade.

use std::process::Stdio;

use etcdrun_lab::etcd;

use super::{
    etcd::PLAIN,
    upgrade::{all_run, nothing_is_lost, releases, site, wants, writer},
};

/// More than an upgrade needs if it gets a node or two further each time.
const DEATHS: usize = 600;

/// What a process that goes on writes before anything new: that it does, and what clients see, which it looks at again.
const AGAIN: usize = 2;

/// Each `resume` gets `further` records further before it is killed, or one more: what was begun is begun again.
fn killed_everywhere(place: &str, further: usize) {
    let site = site(3, "3.5", PLAIN);
    let (from, to) = (etcd("3.5").unwrap().version, etcd("3.6").unwrap().version);
    wants(&site, &from, &to, &releases(&["3.6"]));
    let writer = writer(&site);
    let mut deaths = 0;
    let mut words: &[&str] = &["playbook", "upgrade.yaml", "-i", "inventory.yaml"];
    let mut ended_by_itself = false;
    let mut record = 2;
    for _ in 0..DEATHS {
        let mut command = site.place.folder.command(words);
        let command = command.env("ETCDRUN_TEST_DIE", format!("{place}:{record}"));
        let ended = command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        words = &["resume"];
        record = site.place.folder.records() + AGAIN + further + deaths % 2;
        let health = site.etcdctl(&["endpoint", "health"]);
        assert!(health.matches("is healthy").count() >= 2, "{place}:{record}: {health}");
        match ended.code() {
            None => deaths += 1,
            // The last death came when all was written, so there is nothing to go on with.
            Some(5) => {
                let runs = site.place.folder.run(&["runs", "--json"]).ends(0);
                let runs: serde_json::Value = serde_json::from_str(&runs.stdout).unwrap();
                assert_eq!(runs[0]["state"], "done", "{place}:{record}");
                ended_by_itself = true;
                break;
            }
            Some(0) => {
                ended_by_itself = true;
                break;
            }
            Some(code) => {
                // A gate that was shut because a death has left a member down for a moment.
                assert!(matches!(code, 2 | 3), "{place}:{record} ended with {code}");
            }
        }
    }
    let written = writer.stop().unwrap();
    println!("{deaths} deaths {place} records");
    assert!(ended_by_itself && deaths > 50, "it was killed {deaths} times");
    all_run(&site, &to);
    nothing_is_lost(&site, &written);
    site.changes_nothing();
}

#[test]
#[ignore = "takes minutes: make test-long"]
fn wherever_the_operator_is_killed_an_upgrade_goes_on() {
    killed_everywhere("after", 1);
}

#[test]
#[ignore = "takes minutes: make test-long"]
fn whatever_was_being_written_an_upgrade_goes_on() {
    killed_everywhere("torn", 2);
    killed_everywhere("before", 2);
    killed_everywhere("written", 2);
}
