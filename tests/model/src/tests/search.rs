//! A search, and the sequence that it finds.

use std::{collections::BTreeSet, time::Instant};

use stateright::{Checker, Expectation, HasDiscoveries, Model};

use crate::{Action, Goal, Scope, State, World};

/// What a search has found.
pub struct Found {
    /// What is broken, and how it comes to that.
    pub broken: Option<(&'static str, String)>,
    /// What was reached.
    pub goals: Vec<Goal>,
    /// Rules that were at some time the only one to refuse.
    pub decisive: BTreeSet<&'static str>,
}

/// Searches until something is broken, or all is seen; the shortest sequence is found first.
pub fn search(scope: Scope) -> Found {
    let start = Instant::now();
    let checker = World::new(scope).checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    println!("{states} states in {:.1} s, {depth} steps deep", start.elapsed().as_secs_f64());
    let discoveries = checker.discoveries();
    let goals = Goal::ALL.into_iter().filter(|goal| discoveries.contains_key(goal.name())).collect();
    // One step may break several promises.
    let promises =
        checker.model().properties().into_iter().filter(|property| property.expectation == Expectation::Always);
    let paths = promises.filter_map(|promise| Some((promise.name, discoveries.get(promise.name)?.clone().into_vec())));
    let broken = paths.min_by_key(|(_, path)| path.len());
    let broken = broken.map(|(name, path)| (name, told(checker.model(), &path)));
    if let Some((name, sequence)) = &broken {
        println!("broken: {name}\n{sequence}");
    }
    Found { broken, goals, decisive: checker.model().rules.decisive() }
}

/// The sequence: what happens, and how the members are then.
fn told(world: &World, path: &[(State, Option<Action>)]) -> String {
    let actions = path.iter().filter_map(|(state, action)| Some(world.told(state, action.as_ref()?)));
    let states = path.iter().skip(1).map(|(state, _)| state.to_string());
    actions.zip(states).map(|(action, state)| format!("  {action}\n      {state}\n")).collect()
}
