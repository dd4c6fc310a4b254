//! Decides whether a cluster kept its promises. In goes a history, out comes a verdict; nothing here asks the cluster.
//!
//! Each file checks one promise. They share one assumption: every value is written at most once, so a value names its write.

mod figures;
mod leases;
mod linearizable;
mod members;
mod model;
mod revisions;
mod values;
mod violation;
mod watches;

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

pub use self::{
    figures::{Count, Figures, LeaseFigures},
    violation::{Violation, ViolationKind},
};
use crate::history::History;

/// So long the search for an order of the calls may take.
const SEARCH_LIMIT: Duration = Duration::from_secs(300);
/// A broken cluster breaks many promises; no more of a kind than these are reported.
const MOST_OF_A_KIND: usize = 20;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Verdict {
    pub violations: Vec<Violation>,
    pub figures: Figures,
}

/// Judges a history.
pub fn check(history: &History) -> Verdict {
    check_within(history, SEARCH_LIMIT)
}

/// The same, with another limit for the search for an order of the calls. What is not decided by then is reported as such.
pub fn check_within(history: &History, limit: Duration) -> Verdict {
    let mut figures = figures::of(history);
    let writes = values::Writes::of(history);
    let mut violations = values::check(history, &writes);
    violations.extend(revisions::check(history));
    violations.extend(linearizable::check(history, Instant::now() + limit, &mut figures));
    violations.extend(watches::check(history, &mut figures));
    violations.extend(leases::check(history, &mut figures));
    violations.extend(members::check(history));
    figures.left_out = leave_out(&mut violations);
    Verdict { violations, figures }
}

/// How many violations were too many.
fn leave_out(violations: &mut Vec<Violation>) -> usize {
    let before = violations.len();
    let mut counts: BTreeMap<ViolationKind, usize> = BTreeMap::new();
    violations.retain(|violation| {
        let count = counts.entry(violation.kind).or_default();
        *count += 1;
        *count <= MOST_OF_A_KIND
    });
    before - violations.len()
}
