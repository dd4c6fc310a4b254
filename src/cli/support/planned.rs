//! A plan that was saved, and is run now.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use super::CliError;
use crate::{
    graph::Graph,
    model::Prediction,
    source::disk::Inputs,
    state::{PlannedGraph, StateError},
};

/// A saved plan on its way to be run.
#[derive(Debug)]
pub struct Planned {
    pub path: PathBuf,
    pub inputs: Inputs,
    pub graphs: Vec<PlannedGraph>,
}

impl Planned {
    /// What was foreseen of a graph, which must be the one it was then.
    pub fn graph(&self, number: usize, graph: &Graph) -> Result<Arc<Vec<Prediction>>, CliError> {
        match self.graphs.get(number).filter(|planned| planned.fingerprint == graph.fingerprint()) {
            Some(planned) => Ok(Arc::new(planned.predictions.clone())),
            None => Err(not_run(&self.path, "its tasks have changed")),
        }
    }
}

pub fn not_run(path: &Path, problem: &str) -> CliError {
    StateError::Plan { path: path.to_owned(), problem: problem.to_owned() }.into()
}
