//! All rules are asked: nothing is broken.

use super::search::search;
use crate::{Limits, Scope, Tasks};

#[test]
fn try_it() {
    let text = std::env::var("SCOPE").unwrap_or_default();
    let get = |name: &str| -> u8 {
        text.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('=')?.parse().ok()).unwrap_or(0)
    };
    let is = |name: &str| text.split(' ').any(|word| word == name);
    let tasks = Tasks {
        upgrade: is("upgrade"),
        restart: is("restart"),
        site: is("site"),
        replace: is("replace"),
        remove: is("remove"),
        add_voter: is("add_voter"),
    };
    let limits = Limits {
        crashes: get("crashes"),
        losses: get("losses"),
        lags: get("lags"),
        cuts: get("cuts"),
        deaths: get("deaths"),
        hangs: get("hangs"),
        runs: get("runs"),
    };
    let scope = Scope {
        voters: get("n").into(),
        tasks,
        limits,
        etcd_checks: is("etcd_checks"),
        hosts_say_strict: !is("no_strict"),
        has_two_locks: is("two_locks"),
        mended: crate::Mended {
            removal_has_gate: is("m1") || is("all"),
            stop_asks_neighbours: is("m2") || is("all"),
            join_spares_voters: is("m3") || is("all"),
            join_starts_learners: is("m4") || is("all"),
        },
    };
    let found = search(scope);
    assert!(found.broken.is_none());
}
