//! Gaps of the program: sequences that all rules admit, and that should not be. Everything else is searched with the gaps closed.
//!
//! When a gap is closed in the program, the copy of its steps in `change` changes with it, the field of `Fixed` goes, and so does
//! the test here.

use super::{
    scopes::{REPLACE, TWO_RUNS, of},
    search::search,
};
use crate::{
    Fixed, Limits, Scope,
    promises::{EMPTY_VOTER, SERVING, VOTES},
};

fn shows(fixed: Fixed, limits: Limits, broken: &str, last: &str) {
    let found = search(Scope { fixed, ..of(3, REPLACE, limits) });
    let (name, sequence) = found.broken.expect("the gap is closed");
    assert_eq!(name, broken);
    assert!(sequence.contains(last), "{sequence}");
}

/// A replacement dies behind the task that moves the data of its failed member aside; another run rebuilds the member. `resume` of the
/// first removes the one that was rebuilt: the gates in front of what is done are not passed again, and `etcd_member` does not know
/// what was decided.
#[test]
fn a_resumed_replacement_removes_a_member_that_was_rebuilt_meanwhile() {
    let fixed = Fixed { removal_has_gate: false, ..Fixed::ALL };
    let limits = Limits { crashes: 1, deaths: 1, ..TWO_RUNS };
    shows(fixed, limits, SERVING, "at retired of b: removes b from the list");
}

/// A failed member comes back between the gate `before` and the gate `stop`, and SSH still does not reach it. The gate `stop` does not
/// ask whether the others do.
#[test]
fn a_member_that_comes_back_out_of_sight_is_removed() {
    let fixed = Fixed { stop_asks_neighbours: false, ..Fixed::ALL };
    let limits = Limits { crashes: 1, cuts: 1, runs: 1, ..TWO_RUNS };
    shows(fixed, limits, SERVING, "removes b from the list");
}

/// Two runs choose the same new member, since the inventory gets it only at the end. One promotes it and dies before it removes the
/// initial settings. The other is resumed, takes it for a leftover of its own, stops it and moves its data aside.
#[test]
fn a_resumed_join_wipes_a_voter() {
    let fixed = Fixed { join_spares_voters: false, ..Fixed::ALL };
    shows(fixed, Limits { deaths: 2, ..TWO_RUNS }, SERVING, "stops d for good and moves its data aside");
}

/// A run dies before its new member is listed; another run brings that member in, and it loses its disk. The first is resumed, finds
/// it listed, and starts it with nothing: as a voter that has forgotten what it agreed to.
#[test]
fn a_resumed_join_starts_a_voter_without_its_data() {
    let fixed = Fixed { join_starts_learners: false, ..Fixed::ALL };
    shows(fixed, Limits { losses: 1, deaths: 1, ..TWO_RUNS }, EMPTY_VOTER, "starts d for the first time");
}

/// A run has decided to remove a learner that another one left. By the time it is resumed, that one has finished, and SSH does not
/// reach the member: then it looks dead, and the voter goes.
#[test]
fn a_resumed_run_removes_a_voter_that_was_a_leftover_when_it_decided() {
    let fixed = Fixed { leftover_is_learner: false, ..Fixed::ALL };
    shows(fixed, Limits { cuts: 1, deaths: 2, ..TWO_RUNS }, SERVING, "removes d from the list");
}

/// Two runs choose the same new member. It takes the place of a failed one, and then a healthy one goes as replaced by it as well.
#[test]
fn one_new_member_takes_the_place_of_two() {
    let fixed = Fixed { replaced_is_counted: false, ..Fixed::ALL };
    let limits = Limits { crashes: 1, deaths: 2, ..TWO_RUNS };
    shows(fixed, limits, VOTES, "at served of c: removes c from the list");
}
