//! All rules are asked: no promise is broken.

use super::{
    rules_off::{Without, table},
    scopes::named,
    search::search,
};

/// Sees the whole scope. A rule that the table says others cover was never the only one to refuse.
fn holds(name: &str) {
    let scope = named(name);
    println!("{name}:");
    let found = search(scope.scope);
    assert!(found.broken.is_none(), "{:?}", found.broken);
    for goal in scope.goals {
        assert!(found.goals.contains(goal), "{goal:?} is never reached");
    }
    for (rule, without) in table() {
        match without {
            Without::Covered(why) => {
                assert!(!found.decisive.contains(rule), "{rule} is all that refuses something, although {why}");
            }
            Without::Breaks(scope, _) | Without::Harmless(scope, _) => {
                assert!(scope != name || found.decisive.contains(rule), "{rule} is never all that refuses something");
            }
        }
    }
}

#[test]
fn three_voters_in_turns() {
    holds("three voters: turns");
}

#[test]
fn three_voters_that_restart_without_turns() {
    holds("three voters: restarts without turns");
}

#[test]
fn three_voters_that_lose_their_disks() {
    holds("three voters: lost disks");
}

#[test]
fn three_voters_whose_folders_nobody_reads() {
    holds("three voters: folders that nobody reads");
}

#[test]
fn three_voters_that_are_replaced() {
    holds("three voters: changes");
}

#[test]
fn three_voters_that_become_fewer() {
    holds("three voters: fewer of them");
}

#[test]
fn three_voters_that_are_replaced_between_turns() {
    holds("three voters: changes between turns");
}

#[test]
fn three_voters_and_old_decisions() {
    holds("three voters: old decisions");
}

#[test]
fn three_voters_and_old_decisions_about_what_is_out_of_sight() {
    holds("three voters: old decisions about what is out of sight");
}

#[test]
fn three_voters_out_of_sight() {
    holds("three voters: out of sight");
}

#[test]
fn three_voters_and_two_operators_at_once() {
    holds("three voters: two operators at once");
}

#[test]
fn three_voters_and_calls_that_come_late() {
    holds("three voters: calls that come late");
}

#[test]
fn three_voters_whose_etcd_checks_nothing() {
    holds("three voters: etcd checks nothing");
}

#[test]
fn five_voters_in_turns() {
    holds("five voters: turns");
}

#[test]
fn five_voters_that_are_replaced() {
    holds("five voters: changes");
}

#[test]
fn five_voters_that_are_replaced_between_turns() {
    holds("five voters: changes between turns");
}

#[test]
#[ignore = "takes minutes"]
fn three_voters_and_everything() {
    holds("three voters: everything");
}

#[test]
#[ignore = "takes minutes"]
fn three_voters_and_older_decisions() {
    holds("three voters: older decisions");
}

#[test]
#[ignore = "takes minutes"]
fn five_voters_in_all_turns() {
    holds("five voters: all turns");
}

#[test]
#[ignore = "takes minutes"]
fn five_voters_and_all_changes() {
    holds("five voters: all changes");
}
