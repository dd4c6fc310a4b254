//! Members that go elsewhere, round after round: for `drain` and `undrain`. A round is one run, in which each cluster goes its own way.

use std::collections::BTreeSet;

use clap::Args;

use super::{
    CliError, Exit, Invocation,
    members::{Shared, Survey, decide, play},
    terminal::confirm,
};
use crate::{
    inventory::Inventory,
    membership::{Departure, Prepared, Verb, facts, rounds},
    state::{Drained, Gone, StateFolder},
};

/// How many clusters change at the same time, unless it is said.
const MOST_AT_ONCE: usize = 5;

/// How much happens at the same time.
#[derive(Args, Debug)]
pub struct Pace {
    /// Maximum number of clusters whose members move at the same time [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Run")]
    max_clusters: Option<u32>,
}

impl Pace {
    pub fn rounds(&self, all: Vec<Departure>) -> Vec<Vec<Departure>> {
        let most = self.max_clusters.map_or(MOST_AT_ONCE, |most| usize::try_from(most).unwrap_or(usize::MAX));
        rounds(all, most)
    }
}

/// Whether the member is one of its cluster, on a hypervisor that is meant.
pub fn lives(inventory: &Inventory, gone: &Gone, is_meant: impl Fn(&str) -> bool) -> bool {
    let members = facts::members(inventory, &gone.cluster);
    let at = members.iter().find(|member| member.name == gone.member).and_then(|member| member.hypervisor.as_deref());
    at.is_some_and(is_meant)
}

/// The moves of one command.
pub struct Moves<'a> {
    /// The hypervisor that all of them leave, if it is one.
    pub emptied: Option<&'a str>,
    pub drained: Drained,
    /// Whether one is taken before each move.
    pub snapshot: bool,
    pub state: StateFolder,
    pub shared: &'a Shared,
    pub invocation: &'a Invocation,
}

impl Moves<'_> {
    /// A cluster whose member does not get there is left out of the later rounds, and the others go on. How it ended is how the
    /// first that failed did.
    pub fn all(&mut self, rounds: Vec<Vec<Departure>>) -> Result<Exit, CliError> {
        let mut ended = Exit::Success;
        let mut stuck = BTreeSet::new();
        for round in rounds {
            let round: Vec<_> = round.into_iter().filter(|it| !stuck.contains(&it.cluster)).collect();
            let exit = self.round(&round, &mut stuck)?;
            if exit == Exit::Interrupted {
                return Ok(exit);
            }
            ended = if ended == Exit::Success { exit } else { ended };
        }
        Ok(ended)
    }

    /// The inventory is read again each time, since the round before has changed it.
    fn round(&mut self, round: &[Departure], stuck: &mut BTreeSet<String>) -> Result<Exit, CliError> {
        if round.is_empty() {
            return Ok(Exit::Success);
        }
        let (shared, invocation) = (self.shared, self.invocation);
        let site = shared.site(invocation)?;
        let asked: Vec<_> = round.iter().map(|it| (it.cluster.as_str(), Some(it.to.as_str()))).collect();
        let (mut survey, situations) = Survey::take(site, &asked, shared, invocation)?;
        survey.drained = self.drained.clone();
        let mut refused = Exit::Success;
        let mut prepared = Vec::new();
        for (departure, situation) in round.iter().zip(&situations) {
            match decide(
                &survey,
                &departure.request(situation, self.snapshot, shared.allow_outage),
                situation,
                shared,
                invocation,
            ) {
                Ok(decided) => {
                    survey = survey.with_files([decided.file()].into(), shared, invocation)?;
                    prepared.push(decided);
                }
                // What is wrong with one cluster is told, and does not keep the others.
                Err(error @ (CliError::Usage { .. } | CliError::Refused { .. } | CliError::Input(_))) => {
                    say(&format!("{} of {} stays:\n", departure.member, departure.cluster), invocation)?;
                    let exit = invocation.fail(&error);
                    refused = if refused == Exit::Success { exit } else { refused };
                    stuck.insert(departure.cluster.clone());
                }
                Err(error) => return Err(error),
            }
        }
        if prepared.is_empty() {
            return Ok(refused);
        }
        self.note(&prepared)?;
        let exit = play(Verb::Move, shared, &prepared, invocation)?;
        if exit == Exit::Success || shared.run.mode.check {
            return Ok(if exit == Exit::Success { refused } else { exit });
        }
        stuck.extend(self.left(round)?);
        Ok(exit)
    }

    /// Who is about to go is known before it does: a run that goes on does not tell us.
    fn note(&mut self, prepared: &[Prepared]) -> Result<(), CliError> {
        let Some(emptied) = self.emptied else { return Ok(()) };
        for Prepared { change, .. } in prepared {
            self.drained.note(emptied, Gone { cluster: change.cluster.clone(), member: change.new.clone() });
        }
        self.keep()
    }

    /// A plan writes nothing down.
    pub fn keep(&self) -> Result<(), CliError> {
        if self.shared.run.mode.check { Ok(()) } else { Ok(self.drained.keep(&self.state)?) }
    }

    /// The clusters of those that did not get there, by what the inventory says now.
    fn left(&self, round: &[Departure]) -> Result<Vec<String>, CliError> {
        let site = self.shared.site(self.invocation)?;
        let is_left = |it: &&Departure| {
            let members = facts::members(&site.inventory, &it.cluster);
            members.iter().any(|member| member.name == it.member && member.hypervisor.as_deref() != Some(&it.to))
        };
        Ok(round.iter().filter(is_left).map(|it| it.cluster.clone()).collect())
    }
}

pub fn say_what_is_left(hypervisor: &str, verb: &str, invocation: &Invocation) -> Result<(), CliError> {
    let what = if verb == "undrain" { "moved back" } else { "moved away" };
    let text = format!(
        "not all members {what}; to continue what has started, run `etcdrun resume`; for the rest, run `etcdrun {verb} {hypervisor}`\n"
    );
    say(&text, invocation)
}

/// `3 to move, in 2 rounds`.
pub fn count(rounds: &[Vec<Departure>], what: &str) -> String {
    let members: usize = rounds.iter().map(Vec::len).sum();
    match rounds.len() {
        0 | 1 => format!("{members} {what}"),
        rounds => format!("{members} {what}, in {rounds} rounds"),
    }
}

fn table(heading: &str, rounds: &[Vec<Departure>]) -> String {
    let width = |text: fn(&Departure) -> &str| rounds.iter().flatten().map(|it| text(it).len()).max().unwrap_or(0);
    let (member, cluster) = (width(|it| &it.member).max(6), width(|it| &it.cluster).max(7));
    let mut text = format!("{heading}\n");
    text += &format!("  ROUND  {:member$}  {:cluster$}  TO\n", "MEMBER", "CLUSTER");
    for (number, round) in rounds.iter().enumerate() {
        for it in round {
            text += &format!("  {:<5}  {:member$}  {:cluster$}  {}\n", number + 1, it.member, it.cluster, it.to);
        }
    }
    text
}

/// For a person.
pub fn say(text: &str, invocation: &Invocation) -> Result<(), CliError> {
    if invocation.json { Ok(()) } else { invocation.print(text) }
}

/// Shows who goes where and when, and asks.
pub fn agree(
    heading: &str,
    rounds: &[Vec<Departure>],
    shared: &Shared,
    invocation: &Invocation,
) -> Result<bool, CliError> {
    say(&table(heading, rounds), invocation)?;
    if shared.run.mode.check || shared.prompt.yes || confirm("Continue? [y/N] ", "--yes skips the prompt")? {
        return Ok(true);
    }
    invocation.print("nothing was changed\n")?;
    Ok(false)
}
