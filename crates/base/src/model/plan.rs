//! What a plan says of each node.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};

use super::{Diff, HostName, Status};

/// What would become of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Forecast {
    Change,
    NoChange,
    Unknown,
    Failed,
}

impl Forecast {
    pub fn of(status: Status, unknown: bool) -> Self {
        match status {
            Status::Failed | Status::Unreachable | Status::NotRun => Self::Failed,
            _ if unknown => Self::Unknown,
            Status::Changed => Self::Change,
            Status::Ok | Status::Skipped | Status::Ignored | Status::Rescued => Self::NoChange,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Change => "change",
            Self::NoChange => "no change",
            Self::Unknown => "unknown",
            Self::Failed => "failed",
        }
    }
}

/// A node as it was foreseen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prediction {
    pub id: Arc<str>,
    pub host: HostName,
    pub task: Arc<str>,
    pub forecast: Forecast,
    /// The sum of the arguments, as they were rendered: what facts and results went into them shows here.
    pub arguments: String,
    /// What was there, and what would be.
    pub diff: Vec<Diff>,
    /// `no_log`.
    pub hidden: bool,
}

/// The predictions of a run in check mode, as they come. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Predictions(Arc<Mutex<Vec<Prediction>>>);

/// How many nodes there are of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PlanCounts {
    pub change: usize,
    pub no_change: usize,
    pub unknown: usize,
    pub failed: usize,
}

impl Predictions {
    pub fn add(&self, prediction: Prediction) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(prediction);
    }

    /// All of them, by their ids.
    pub fn sorted(&self) -> Vec<Prediction> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        all.sort_by(|one, other| one.id.cmp(&other.id));
        all
    }

    pub fn counts(&self) -> PlanCounts {
        let mut counts = PlanCounts::default();
        for prediction in &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            counts.add(prediction.forecast);
        }
        counts
    }
}

/// A node that is not what it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    pub id: Arc<str>,
    pub host: HostName,
    pub task: Arc<str>,
    pub planned: Option<Forecast>,
    pub now: Option<Forecast>,
    pub diff: Vec<Diff>,
}

/// Where what is foreseen now differs from what was planned.
pub fn moves(planned: &[Prediction], now: &[Prediction]) -> Vec<Move> {
    let by_id = |list: &[Prediction]| list.iter().map(|one| (one.id.clone(), one.clone())).collect::<BTreeMap<_, _>>();
    let (planned, now) = (by_id(planned), by_id(now));
    let ids: BTreeSet<_> = planned.keys().chain(now.keys()).collect();
    ids.into_iter().filter_map(|id| moved(planned.get(id), now.get(id))).collect()
}

fn moved(planned: Option<&Prediction>, now: Option<&Prediction>) -> Option<Move> {
    if let (Some(planned), Some(now)) = (planned, now)
        && planned.agrees(now)
    {
        return None;
    }
    let Prediction { id, host, task, .. } = planned.or(now)?.clone();
    let hidden = planned.into_iter().chain(now).any(|one| one.hidden);
    let diffs = |one: Option<&Prediction>| one.filter(|_| !hidden).map_or_else(Vec::new, |one| one.diff.clone());
    let diff = what_moved(&diffs(planned), &diffs(now));
    Some(Move { id, host, task, planned: planned.map(|one| one.forecast), now: now.map(|one| one.forecast), diff })
}

/// What is there now against what was there then; where that is the same, what would be written.
fn what_moved(planned: &[Diff], now: &[Diff]) -> Vec<Diff> {
    let diff = |label: &str, before: &str, after: &str| Diff {
        label: label.to_owned(),
        before: before.to_owned(),
        after: after.to_owned(),
    };
    let other = |list: &[Diff], label: &str| list.iter().find(|one| one.label == label).cloned();
    let known = planned.iter().map(|then| match other(now, &then.label) {
        // It is as the plan would have made it.
        None => diff(&then.label, &then.before, &then.after),
        Some(now) if now.before != then.before => diff(&then.label, &then.before, &now.before),
        Some(now) => diff(&format!("{} (to be written)", then.label), &then.after, &now.after),
    });
    // It was as wanted.
    let new = now.iter().filter(|now| other(planned, &now.label).is_none());
    let new = new.map(|now| diff(&now.label, &now.after, &now.before));
    known.chain(new).filter(|diff| diff.before != diff.after).collect()
}

impl Prediction {
    /// Whether running it does what was planned. A node that has nothing to do needs no more to agree on.
    fn agrees(&self, now: &Self) -> bool {
        match (self.forecast, now.forecast) {
            (Forecast::NoChange, Forecast::NoChange) => true,
            (one, other) => one == other && self.arguments == now.arguments && self.diff == now.diff,
        }
    }
}

impl PlanCounts {
    pub fn add(&mut self, forecast: Forecast) {
        match forecast {
            Forecast::Change => self.change += 1,
            Forecast::NoChange => self.no_change += 1,
            Forecast::Unknown => self.unknown += 1,
            Forecast::Failed => self.failed += 1,
        }
    }
}
