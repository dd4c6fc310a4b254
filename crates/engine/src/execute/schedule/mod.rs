//! Which node may start next: readiness, limits, what follows from how others ended, turns of rollouts.

pub(super) mod fusion;
pub(super) mod scheduler;
pub(super) mod settle;
pub(super) mod turns;
