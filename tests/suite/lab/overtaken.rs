//! A change of members died, another run changed the same members since, and then the first one is resumed.

use super::{
    Said,
    changed_world::{dies_behind, says},
    etcd::Site,
    members::{list, lose, with_spare},
};

/// Dies behind a step of a change of members, and its lock is broken. The run's id, for `resume`.
fn dead_run(site: &Site, words: &[&str], step: &str) -> String {
    dies_behind(site, &[&["member"], words, &["--yes", "-i", "inventory.yaml"]].concat(), step);
    let run = site.place.folder.last_run().file_name().unwrap().to_str().unwrap().to_owned();
    site.place.folder.run(&["unlock", &run]).ends(0);
    run
}

fn resume(site: &Site, run: &str) -> Said {
    site.place.folder.run(&["resume", run])
}

#[test]
fn a_member_that_was_rebuilt_meanwhile_stays() {
    let site = Site::formed(3, "3.6", super::etcd::PLAIN);
    lose(&site, 1);
    let name = site.names[1].clone();
    let replace = ["replace", name.as_str()];
    let first = dead_run(&site, &replace, "/Stop the old member and move its data aside");
    site.place.folder.run(&["member", "replace", &name, "--yes", "-i", "inventory.yaml"]).ends(0);
    site.is_served_by_all();
    let before = list(&site);
    let refused = resume(&site, &first).ends(3);
    says(&refused, "as-decided:");
    assert_eq!(list(&site), before, "{}", refused.stdout);
    site.is_served_by_all();

    // A voter that lost its disk is not started with nothing, and is no learner that was left over.
    lose(&site, 1);
    let start = "etcd_service: { name: NAME, reads: [/etc/etcd/etcd.env] }";
    let remove = "etcd_member: { name: NAME, state: absent, learner: true }";
    let via = format!("delegate_to: {}", site.names[0]);
    for (task, more, reason) in
        [(start, "", "is a voter, and has no data"), (remove, via.as_str(), "is a voter, and no learner")]
    {
        let task = task.replace("NAME", &name);
        let play = format!("- hosts: {name}\n  become: true\n  tasks:\n    - {task}\n      {more}\n");
        site.place.folder.write("one.yaml", &play);
        let refused = site.place.folder.run(&["playbook", "one.yaml", "-i", "inventory.yaml"]).ends(3);
        says(&refused, reason);
        assert_eq!(list(&site), before);
    }
}

#[test]
fn a_new_member_that_votes_by_now_keeps_its_data() {
    let (mut site, spare, address) = with_spare();
    lose(&site, 2);
    let old = site.names[2].clone();
    let replace = ["replace", &old, "--new-name", &spare, "--ip", &address];
    let first = dead_run(&site, &replace, "/Remove the old member from the cluster");
    // It votes, and its initial settings are still there.
    let second = dead_run(&site, &replace, "/Promote the learner once it has caught up");
    let before = list(&site);
    let refused = resume(&site, &first).ends(3);
    says(&refused, "was no voter when this was decided, and is one now");
    assert_eq!(list(&site), before);
    resume(&site, &second).ends(0);
    site.now_members(&[0, 1, 3]);
    site.is_served_by_all();
    assert_eq!(list(&site), before);
}

#[test]
fn one_new_member_takes_the_place_of_one() {
    let (mut site, spare, address) = with_spare();
    let (lost, alive) = (site.names[1].clone(), site.names[2].clone());
    lose(&site, 1);
    let replace = |old| ["replace", old, "--new-name", &spare, "--ip", &address];
    let first = dead_run(&site, &replace(&lost), "/Remove the old member from the cluster");
    let refused =
        site.place.folder.run(&[&["member"], &replace(&alive)[..], &["--yes", "-i", "inventory.yaml"]].concat());
    says(&refused.ends(3), &format!("{lost} comes first"));
    resume(&site, &first).ends(0);
    site.now_members(&[0, 2, 3]);
    site.is_served_by_all();
}
