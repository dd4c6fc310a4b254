//! A search, and the sequence that it finds.

use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

use crate::{Action, Scope, State, World};

/// What a search has found.
pub struct Found {
    pub states: usize,
    /// What is broken, and how it comes to that.
    pub broken: Option<(&'static str, Vec<(State, Option<Action>)>)>,
}

/// Searches until something is broken, or all is seen.
pub fn search(scope: Scope) -> Found {
    let start = Instant::now();
    let checker = World::new(scope).checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let states = checker.unique_state_count();
    println!("{states} states in {:.1} s, {} steps deep", start.elapsed().as_secs_f64(), checker.max_depth());
    println!("decisive: {:?}", checker.model().rules.decisive());
    let shortest = checker.discoveries().into_iter().map(|(name, path)| (name, path.into_vec()));
    let broken = shortest.min_by_key(|(_, path)| path.len());
    if let Some((name, path)) = &broken {
        println!("broken: {name}\n{}", told(&World::new(scope), path));
    }
    Found { states, broken }
}

/// The sequence, a line for each step.
fn told(world: &World, path: &[(State, Option<Action>)]) -> String {
    let step = |(state, action): &(State, Option<Action>)| {
        let action = action.as_ref().map(|action| world.told(state, action)).unwrap_or_default();
        format!("  [{state}]\n{action}\n")
    };
    path.iter().map(step).collect()
}
