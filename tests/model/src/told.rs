//! Sequences, for a person.

use std::fmt;

use crate::{
    change::Point,
    list::name,
    operator::{Life, Run, Step, Who},
    rollout::{Rollout, Turn},
    world::{Action, State, World},
};

impl World {
    /// What happens by an action.
    pub fn told(&self, state: &State, action: &Action) -> String {
        let step = |who: Who, step: Option<Step>| {
            let act = step.map_or_else(|| "nothing".to_owned(), |step| step.act.to_string());
            format!("operator {}, at {}: {act}", who + 1, point(state.operators[who].run))
        };
        match *action {
            Action::Happens(fault) => fault.to_string(),
            Action::Begins(who, run) => format!("operator {} begins: {}", who + 1, begun(run)),
            Action::Goes(who) => step(who, self.step(state, who)),
            Action::AddsVoter(who) => step(who, self.add_voter(state, who)),
            Action::GivesUp(who) => step(who, self.give_up(state, who)),
            Action::Dies(who) => format!("operator {} dies, at {}", who + 1, point(state.operators[who].run)),
            Action::Resumes(who) => format!("operator {} resumes", who + 1),
            Action::Hangs(who) => format!("operator {} hangs in front of its call", who + 1),
            Action::Lands(who) => match state.operators[who].life {
                Life::Hangs(pending) => format!("the call of operator {} comes through: {}", who + 1, pending.call),
                _ => format!("operator {}", who + 1),
            },
        }
    }
}

fn begun(run: Run) -> String {
    match run {
        Run::Rollout(Rollout::Upgrade, _) => "upgrade.yaml".to_owned(),
        Run::Rollout(Rollout::Restart(slot), _) => format!("member restart {}", name(slot)),
        Run::Rollout(Rollout::Site(slot), _) => format!("site.yaml, which restarts {}", name(slot)),
        Run::Change(change, _) => {
            let old = name(change.old);
            let how = format!("it is {:?}, ends at {:?}", change.was, change.ends).to_lowercase();
            match change.new {
                None => format!("member remove {old} ({how})"),
                Some(new) => format!("member replace {old} by {} ({how})", name(new)),
            }
        }
    }
}

fn point(run: Option<Run>) -> String {
    match run {
        None => "nothing".to_owned(),
        Some(Run::Change(change, Point::Learner(_))) => format!("learner of {}", name(change.old)),
        Some(Run::Change(change, point)) => format!("{} of {}", format!("{point:?}").to_lowercase(), name(change.old)),
        Some(Run::Rollout(_, Turn::Of { target, stage, .. })) => {
            format!("the turn of {} ({})", name(target), format!("{stage:?}").to_lowercase())
        }
        Some(Run::Rollout(_, turn)) => format!("{turn:?}").to_lowercase(),
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.cluster)
    }
}
