//! What is searched. Each scope is small enough to be seen as a whole. What is in none of them together was not searched together.

use crate::{Goal, Limits, Scope, Tasks};

/// A scope, and what must be reachable in it: a search in which nothing comes to its end shows nothing.
pub struct Named {
    pub name: &'static str,
    pub scope: Scope,
    pub goals: &'static [Goal],
}

const NOTHING: Tasks =
    Tasks { upgrade: false, restart: false, site: false, replace: false, remove: false, add_voter: false };
pub const TWO_RUNS: Limits = Limits { crashes: 0, losses: 0, lags: 0, cuts: 0, deaths: 0, hangs: 0, runs: 2 };

/// So many voters, and nothing else. etcd itself refuses no change of its list, so the rules are all there is.
pub const fn of(voters: usize, tasks: Tasks, limits: Limits) -> Scope {
    Scope {
        voters,
        tasks,
        limits,
        etcd_checks: false,
        hosts_say_strict: true,
        has_two_locks: false,
        trusts_unread: false,
    }
}

pub const REPLACE: Tasks = Tasks { replace: true, ..NOTHING };
const UPGRADE: Tasks = Tasks { upgrade: true, ..NOTHING };
const CHANGES: Tasks = Tasks { remove: true, add_voter: true, ..REPLACE };
const ONE_DEATH: Limits = Limits { deaths: 1, ..TWO_RUNS };

/// Seconds each.
pub static SMALL: &[Named] = &[
    Named {
        name: "three voters: turns",
        scope: of(3, Tasks { restart: true, ..UPGRADE }, Limits { crashes: 1, losses: 1, lags: 1, ..ONE_DEATH }),
        goals: &[Goal::Upgraded],
    },
    Named {
        name: "three voters: restarts without turns",
        scope: of(3, Tasks { site: true, ..NOTHING }, Limits { crashes: 2, losses: 1, lags: 1, ..ONE_DEATH }),
        goals: &[],
    },
    Named {
        name: "three voters: lost disks",
        scope: of(3, Tasks { site: true, ..REPLACE }, Limits { losses: 3, ..ONE_DEATH }),
        goals: &[Goal::Rebuilt, Goal::Moved, Goal::Begun],
    },
    Named {
        name: "three voters: folders that nobody reads",
        scope: of(3, Tasks { site: true, ..NOTHING }, Limits { losses: 3, cuts: 2, ..ONE_DEATH }),
        goals: &[Goal::Begun],
    },
    Named {
        name: "three voters: changes",
        scope: of(3, CHANGES, Limits { crashes: 2, ..ONE_DEATH }),
        goals: &[Goal::Rebuilt, Goal::Moved, Goal::Shrunk],
    },
    Named {
        name: "three voters: fewer of them",
        scope: of(3, Tasks { remove: true, restart: true, site: true, ..NOTHING }, Limits { crashes: 1, ..ONE_DEATH }),
        goals: &[Goal::Shrunk],
    },
    Named {
        name: "three voters: changes between turns",
        scope: of(3, Tasks { replace: true, ..UPGRADE }, Limits { crashes: 1, losses: 1, ..ONE_DEATH }),
        goals: &[Goal::Upgraded, Goal::Rebuilt, Goal::Moved],
    },
    Named {
        name: "three voters: old decisions",
        scope: of(3, REPLACE, Limits { crashes: 1, deaths: 2, ..TWO_RUNS }),
        goals: &[Goal::Rebuilt, Goal::Moved],
    },
    Named {
        name: "three voters: old decisions about what is out of sight",
        scope: of(3, REPLACE, Limits { losses: 1, cuts: 1, deaths: 2, ..TWO_RUNS }),
        goals: &[Goal::Rebuilt, Goal::Moved],
    },
    Named {
        name: "three voters: out of sight",
        scope: of(3, Tasks { restart: true, ..REPLACE }, Limits { crashes: 1, cuts: 1, runs: 1, ..ONE_DEATH }),
        goals: &[Goal::Rebuilt, Goal::Moved],
    },
    Named {
        name: "three voters: two operators at once",
        scope: Scope { has_two_locks: true, ..of(3, REPLACE, Limits { crashes: 1, cuts: 1, ..ONE_DEATH }) },
        goals: &[Goal::Rebuilt, Goal::Moved],
    },
    Named {
        name: "three voters: calls that come late",
        scope: Scope {
            etcd_checks: true,
            ..of(3, Tasks { remove: true, ..REPLACE }, Limits { crashes: 2, hangs: 1, ..TWO_RUNS })
        },
        goals: &[Goal::Rebuilt, Goal::Moved, Goal::Shrunk],
    },
    // Nothing may begin here.
    Named {
        name: "three voters: etcd checks nothing",
        scope: Scope { hosts_say_strict: false, ..of(3, REPLACE, Limits { crashes: 2, hangs: 1, ..TWO_RUNS }) },
        goals: &[],
    },
    Named {
        name: "five voters: turns",
        scope: of(5, Tasks { site: true, ..UPGRADE }, Limits { crashes: 2, ..ONE_DEATH }),
        goals: &[Goal::Upgraded],
    },
    Named {
        name: "five voters: changes",
        scope: of(5, REPLACE, Limits { crashes: 2, ..ONE_DEATH }),
        goals: &[Goal::Rebuilt, Goal::Moved],
    },
    Named {
        name: "five voters: changes between turns",
        scope: of(5, Tasks { replace: true, ..UPGRADE }, Limits { crashes: 1, ..ONE_DEATH }),
        goals: &[Goal::Upgraded, Goal::Rebuilt, Goal::Moved],
    },
];

/// Minutes each.
pub static LARGE: &[Named] = &[
    Named {
        name: "three voters: everything",
        scope: of(
            3,
            Tasks { upgrade: true, restart: true, site: true, ..CHANGES },
            Limits { crashes: 1, losses: 1, lags: 1, ..ONE_DEATH },
        ),
        goals: &[Goal::Upgraded, Goal::Rebuilt, Goal::Moved, Goal::Shrunk],
    },
    Named {
        name: "three voters: older decisions",
        scope: of(3, Tasks { remove: true, ..REPLACE }, Limits { crashes: 2, cuts: 1, deaths: 2, ..TWO_RUNS }),
        goals: &[Goal::Rebuilt, Goal::Moved, Goal::Shrunk],
    },
    Named {
        name: "five voters: all turns",
        scope: of(5, Tasks { restart: true, site: true, ..UPGRADE }, Limits { crashes: 2, lags: 1, ..ONE_DEATH }),
        goals: &[Goal::Upgraded],
    },
    Named {
        name: "five voters: all changes",
        scope: of(5, Tasks { remove: true, ..REPLACE }, Limits { crashes: 2, losses: 1, ..ONE_DEATH }),
        goals: &[Goal::Rebuilt, Goal::Moved, Goal::Shrunk],
    },
];

pub fn named(name: &str) -> &'static Named {
    SMALL.iter().chain(LARGE).find(|scope| scope.name == name).unwrap()
}
