//! What a plan says of each node.

use std::sync::{Arc, Mutex, PoisonError};

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
