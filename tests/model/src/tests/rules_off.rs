//! What each rule is good for: what the search finds without it, or why it finds nothing.

use std::{
    env,
    process::{Command, Output},
};

use etcdrun_etcd::etcd::rules::RULES;

use super::{
    scopes::{SMALL, named, of},
    search::search,
};
use crate::{
    Limits, Scope, Tasks,
    promises::{BUDGET, ONE_CHANGE, ONE_CLUSTER, ONE_DOWN, QUORUM_TAKEN, SERVING},
};

/// What becomes of the promises without a rule.
#[derive(Clone, Copy, Debug)]
pub enum Without {
    /// In this scope a sequence breaks this promise.
    Breaks(&'static str, &'static str),
    /// It is at times the only rule that refuses, and nothing is broken without it: this scope is seen as a whole. Why that is so.
    Harmless(&'static str, &'static str),
    /// It is never the only rule that refuses, so that all searches are the same without it. Why that is so.
    Covered(&'static str),
}

const TURNS: &str = "three voters: turns";
const CHANGES: &str = "three voters: changes";
const FEWER: &str = "three voters: fewer of them";
const BETWEEN: &str = "three voters: changes between turns";
const OLD: &str = "three voters: old decisions";
const UNSEEN: &str = "three voters: out of sight";
const UNCHECKED: &str = "three voters: etcd checks nothing";
const LATE: &str = "three voters: calls that come late";
const FIVE_TURNS: &str = "five voters: turns";

const SETTINGS: Without = Without::Covered("the model has no addresses, ports, clocks or disks that are full");
const ALARMS: Without = Without::Covered("the model has no alarms");
const VERSIONS: Without = Without::Covered("the model has one step between two versions that may run side by side");

#[rustfmt::skip]
static TABLE: &[(&str, Without)] = {
    use Without::{Breaks, Covered, Harmless};
    &[
        ("quorum-after", Breaks(TURNS, QUORUM_TAKEN)),
        ("small-cluster", Breaks(FEWER, QUORUM_TAKEN)),
        ("answers", Breaks(FIVE_TURNS, ONE_DOWN)),
        ("as-decided", Breaks(CHANGES, SERVING)),
        ("live-goes-last", Harmless(LATE, "the gates before it ask for all that have to be there, and `member replace` of a healthy member is refused while another is missing")),
        ("unreachable-is-not-dead", Breaks(UNSEEN, SERVING)),
        ("learners-only", Breaks(CHANGES, BUDGET)),
        ("no-learner", Breaks(CHANGES, ONE_CHANGE)),
        ("strict-reconfig", Breaks(UNCHECKED, QUORUM_TAKEN)),
        ("dead-goes-first", Harmless(OLD, "one voter more that serves, beside one that does not, tolerates as many further failures as before")),
        ("quorum-now", Harmless(CHANGES, "without a majority etcd changes nothing either, and `quorum-after` is asked before anybody goes")),
        ("members-agree", Harmless(OLD, "who has an older list is behind, and `quorum-after` does not count it")),
        ("members-known", Harmless(OLD, "voters are counted as etcd lists them, whatever the inventory has")),
        ("linearizable-read", Harmless(OLD, "`quorum-after` counts only those that answer one")),
        ("one-leader", Harmless(TURNS, "elections take no time in the model")),
        ("leader-off", Harmless(CHANGES, "elections take no time in the model")),
        ("reachable", Harmless(UNSEEN, "no task stops a member on a host that it does not reach")),
        ("binary-verified", Harmless(BETWEEN, "it refuses only where the host is not reached, and no task stops a member there")),
        ("data-agrees", Harmless(OLD, "data never differs in the model; it refuses only where a member is silent, which later gates see as well")),
        ("versions-expected", Harmless(TURNS, "in the model nothing depends on which of the two versions a member runs")),
        ("caught-up", Covered("who is behind so far that it matters answers no linearizable read in time")),
        ("members-unchanged", Covered("nobody else changes the list during a turn: the lock keeps others out")),
        ("members-started", Covered("who has not started is a learner, which `no-learner` sees")),
        ("cluster-version", VERSIONS),
        ("storage-version", VERSIONS),
        ("one-minor", VERSIONS),
        ("forbidden-3.5.0", VERSIONS),
        ("floor-3.5", VERSIONS),
        ("floor-3.6", VERSIONS),
        ("patch-3.5-first", VERSIONS),
        ("patch-3.6-first", VERSIONS),
        ("auth-3.4", VERSIONS),
        ("downgrade-enabled", VERSIONS),
        ("no-downgrade", VERSIONS),
        ("way-back", VERSIONS),
        ("patch-before-replace", VERSIONS),
        ("addresses-known", SETTINGS),
        ("address-at-start", SETTINGS),
        ("peer-ports", SETTINGS),
        ("client-port", SETTINGS),
        ("client-address", SETTINGS),
        ("raft-agrees", Covered("in the model Raft and etcd have one list")),
        ("clock", SETTINGS),
        ("disk-room", SETTINGS),
        ("snapshot-verified", Covered("the model has no snapshots")),
        ("no-alarm", ALARMS),
        ("no-corrupt", ALARMS),
        ("no-new-alarm", ALARMS),
    ]
};

pub fn table() -> impl Iterator<Item = (&'static str, Without)> {
    TABLE.iter().copied()
}

/// The scope of a search without a rule; the rule itself is named as everywhere.
const SCOPE: &str = "ETCDRUN_TEST_SCOPE";

/// A search in a process of its own, since a rule is switched off for a process.
#[test]
fn in_its_own_process() {
    let Ok(name) = env::var(SCOPE) else { return };
    let found = search(named(&name).scope);
    println!("found: {}", found.broken.map_or("nothing", |(promise, _)| promise));
}

fn search_without(rule: &str, scope: &str) -> String {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["tests::rules_off::in_its_own_process", "--exact", "--nocapture"]);
    let Output { status, stdout, stderr } = command.env("ETCDRUN_TEST_OFF", rule).env(SCOPE, scope).output().unwrap();
    let said = String::from_utf8_lossy(&stdout).into_owned();
    assert!(status.success(), "{rule}, {scope}:\n{said}{}", String::from_utf8_lossy(&stderr));
    println!("without {rule}, {scope}:\n{said}");
    let found = said.lines().find_map(|line| line.strip_prefix("found: "));
    found.expect("it says what it has found").to_owned()
}

/// The decision that a cluster is new is no rule of a gate. That it is looked at here is shown by taking it wrong.
#[test]
fn a_folder_that_was_not_read_and_is_taken_for_empty_makes_a_second_cluster() {
    let tasks = Tasks { site: true, ..Tasks::default() };
    let limits = Limits { losses: 1, cuts: 2, runs: 1, ..Limits::default() };
    let found = search(Scope { trusts_unread: true, ..of(3, tasks, limits) });
    assert_eq!(found.broken.unwrap().0, ONE_CLUSTER);
}

#[test]
fn every_rule_is_in_the_table() {
    let mut rules: Vec<&str> = RULES.iter().map(|rule| rule.id).collect();
    let mut named: Vec<&str> = TABLE.iter().map(|(rule, _)| *rule).collect();
    rules.sort_unstable();
    named.sort_unstable();
    assert_eq!(named, rules);
}

#[test]
fn without_some_rules_a_promise_is_broken() {
    for (rule, without) in table() {
        if let Without::Breaks(scope, promise) = without {
            assert_eq!(search_without(rule, scope), promise, "{rule}");
        }
    }
}

#[test]
fn without_others_none_is() {
    for (rule, without) in table() {
        if let Without::Harmless(scope, why) = without {
            assert_eq!(search_without(rule, scope), "nothing", "{rule}, although {why}");
        }
    }
}

/// The same in every scope in which it makes a difference.
#[test]
#[ignore = "takes minutes"]
fn without_others_none_is_in_any_scope() {
    for scope in SMALL {
        let decisive = search(scope.scope).decisive;
        for (rule, without) in table().filter(|(rule, _)| decisive.contains(rule)) {
            if let Without::Harmless(_, why) = without {
                assert_eq!(search_without(rule, scope.name), "nothing", "{rule}, although {why}");
            }
        }
    }
}
