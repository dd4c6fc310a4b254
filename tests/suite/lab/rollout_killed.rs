//! The operator is killed again and again in an upgrade.

use etcdrun_lab::etcd;

use super::{
    etcd::Site,
    upgrade::{all_run, nothing_is_lost, releases, wants, writer},
};

/// Gaps between writes are the rollout's, and not those of a disk that all members share.
const IN_MEMORY: &str = "    etcd: { version: VERSION, data_dir: /run/disk/data }\n";

/// Each `resume` gets `further` records further before it is killed, or one more: that it goes on, what clients see, which it looks at
/// again, and what was begun is begun again.
fn killed_everywhere(place: &str, further: usize) {
    let site = Site::played(3, "3.5", IN_MEMORY);
    let (from, to) = (etcd("3.5").unwrap().version, etcd("3.6").unwrap().version);
    wants(&site, &from, &to, &releases(&["3.6"]));
    let writer = writer(&site);
    let words = ["playbook", "upgrade.yaml", "-i", "inventory.yaml"];
    let deaths = site.place.folder.killed_everywhere(&words, place, further, || {
        let health = site.etcdctl(&["endpoint", "health"]);
        assert!(health.matches("is healthy").count() >= 2, "{health}");
    });
    let written = writer.stop().unwrap();
    println!("{deaths} deaths {place} records");
    assert!(deaths > 50, "it was killed {deaths} times");
    all_run(&site, &to);
    nothing_is_lost(&site, &written);
    site.changes_nothing();
}

#[test]
#[ignore = "takes minutes: make test-long"]
fn wherever_the_operator_is_killed_an_upgrade_goes_on() {
    killed_everywhere("after", 3);
}

#[test]
#[ignore = "takes minutes: make test-long"]
fn whatever_was_half_written_an_upgrade_goes_on() {
    killed_everywhere("torn", 4);
}

#[test]
#[ignore = "takes minutes: make test-long"]
fn whatever_was_not_yet_written_an_upgrade_goes_on() {
    killed_everywhere("before", 4);
}

#[test]
#[ignore = "takes minutes: make test-long"]
fn whatever_was_written_and_not_synced_an_upgrade_goes_on() {
    killed_everywhere("written", 4);
}
