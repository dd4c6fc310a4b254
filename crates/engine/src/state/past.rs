//! What a journal says of each node: done, to be looked at again, or still to come.

use std::collections::HashMap;

use super::{
    Line, NodeKey, Record, Vault,
    operator::{boot_id, seconds_up},
};
use crate::{
    graph::{Graph, Turn},
    model::{Outcome, Status},
};

/// How a node ended, as far as nodes behind it care.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    pub status: Status,
    pub changed: bool,
    /// What was registered or set as facts.
    pub left: Option<Outcome>,
}

/// When something was recorded, by two clocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// In milliseconds since the Unix epoch.
    at: i64,
    /// The boot of the machine that recorded it, and for how many seconds that had been up.
    up: Option<(String, u64)>,
}

impl Moment {
    /// Longer ago than any host has been up.
    const LONG_AGO: u64 = 4_000_000_000;

    /// By the time of day alone.
    pub(super) fn by_clock(at: i64) -> Self {
        Self { at, up: None }
    }

    /// How many seconds ago it was, at least a part of one more than is known. While this machine has not booted, by a clock that
    /// nobody sets. A moment that is still to come by the time of day was who knows when.
    pub fn seconds_ago(&self) -> u64 {
        let up = self.up.as_ref().filter(|(boot, _)| !boot.is_empty() && *boot == boot_id());
        if let Some((before, now)) = up.map(|(_, before)| *before).zip(seconds_up()) {
            return now.saturating_sub(before) + 1;
        }
        let age = jiff::Timestamp::now().as_millisecond().saturating_sub(self.at);
        u64::try_from(age).map_or(Self::LONG_AGO, |age| age / 1000 + 1)
    }
}

/// What is known of one node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodePast {
    pub done: Option<Done>,
    /// It was to change something, and nobody heard how that ended: since when.
    pub in_flight: Option<Moment>,
    /// Whether the target could not tell either.
    pub doubt: bool,
    /// How often it has ended for certain and is to run again. Part of its name in the target's ledger.
    pub round: u32,
}

/// What is known of the nodes of one graph.
#[derive(Clone, Debug, Default)]
pub struct Past {
    nodes: HashMap<u32, NodePast>,
    /// Tasks whose failure something else has taken over, in order.
    rescued: Vec<u32>,
}

/// How a turn that is rolled back comes to its end.
#[derive(Clone, Copy, Debug)]
enum End {
    /// All is as it was.
    Undone,
    /// It must stay as it is.
    Refused,
}

/// The nodes with whose failure turns are over that were to be rolled back.
fn ends_of_undone_turns(graph: &Graph) -> HashMap<u32, (&Turn, End)> {
    let turns = graph.steps.iter().flat_map(|step| &step.turns);
    let undos = turns.filter_map(|turn| Some((turn, turn.undo.as_ref()?)));
    let ends = undos.flat_map(|(turn, undo)| {
        let refused = undo.gates.clone().map(|gate| (gate, End::Refused));
        let undone = undo.word.map(|word| (word, End::Undone));
        refused.chain(undone).map(move |(node, end)| (u32::try_from(node).unwrap_or(u32::MAX), (turn, end)))
    });
    ends.collect()
}

impl Past {
    /// Reads the records of one graph, which has this number in its run, in order.
    pub fn of(lines: &[Line], (number, graph): (u32, &Graph), vault: &Vault) -> Self {
        let mut past = Self::default();
        let ends = ends_of_undone_turns(graph);
        let mut boot = "";
        for line in lines {
            match &line.record {
                Record::Begun { operator, .. } | Record::Resumed { operator } => boot = &operator.boot,
                Record::Intent { key, up } if key.graph == number => {
                    past.at(key).intended(Moment { at: line.at, up: up.map(|up| (boot.to_owned(), up)) });
                }
                Record::Settled { key, status, changed, doubt, left, .. } if key.graph == number => {
                    let left = left.as_ref().and_then(|left| vault.unseal(left));
                    past.at(key).settled(*status, *changed, *doubt, left);
                    match ends.get(&key.node) {
                        Some((turn, end)) if *status == Status::Failed && !doubt => past.reopen(turn, *end),
                        _ if *status == Status::Rescued => past.rescued.push(key.node),
                        _ => {}
                    }
                }
                Record::Assumed { key, done } if key.graph == number => past.at(key).assumed(*done),
                _ => {}
            }
        }
        past
    }

    /// A turn has failed, and the next time it is not the rollback that is tried again.
    fn reopen(&mut self, turn: &Turn, end: End) {
        let nodes = |node: &u32| turn.nodes.contains(&(*node as usize));
        match end {
            // Nothing of what it did is there any more.
            End::Undone => self.nodes.iter_mut().filter(|(node, _)| nodes(node)).for_each(|(_, past)| past.reopen()),
            // All of it is there still, but for the task that failed.
            End::Refused => {
                let failed = self.rescued.iter().rfind(|node| nodes(node)).copied();
                failed.and_then(|failed| self.nodes.get_mut(&failed)).into_iter().for_each(NodePast::reopen);
            }
        }
    }

    fn at(&mut self, key: &NodeKey) -> &mut NodePast {
        self.nodes.entry(key.node).or_default()
    }

    pub fn node(&self, node: u32) -> Option<&NodePast> {
        self.nodes.get(&node)
    }

    /// How many nodes need not run again.
    pub fn done(&self) -> usize {
        self.nodes.values().filter(|node| node.done.is_some()).count()
    }
}

impl NodePast {
    pub(super) fn intended(&mut self, at: Moment) {
        self.in_flight.get_or_insert(at);
    }

    pub(super) fn settled(&mut self, status: Status, changed: bool, doubt: bool, left: Option<Outcome>) {
        self.doubt = doubt;
        match status {
            _ if doubt => {}
            // Whoever could not be reached may have run it all the same.
            Status::Unreachable => {}
            // It was to go out with others, and certainly did not start.
            Status::NotRun => self.in_flight = None,
            Status::Failed => self.over(),
            status => {
                self.in_flight = None;
                self.done = Some(Done { status, changed, left });
            }
        }
    }

    pub(super) fn assumed(&mut self, done: bool) {
        self.doubt = false;
        match done {
            true => self.settled(Status::Changed, true, false, Some(Outcome::changed())),
            false => self.over(),
        }
    }

    /// However it ended, it is to run again.
    fn reopen(&mut self) {
        self.done = None;
        self.over();
    }

    /// It has ended for certain, and a next time is a new one.
    fn over(&mut self) {
        self.in_flight = None;
        self.round += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_long_ago_does_not_depend_on_who_sets_the_clock() {
        let now = jiff::Timestamp::now().as_millisecond();
        let up = seconds_up().unwrap();
        let here = |seconds_ago: u64| Some((boot_id(), up.saturating_sub(seconds_ago)));
        // The clock was set back by an hour, or forth.
        for at in [now + 3_600_000, now - 3_600_000] {
            let ago = Moment { at, up: here(20) }.seconds_ago();
            assert!((21..30).contains(&ago), "{ago}");
        }
        let elsewhere = Some(("another boot".to_owned(), up));
        let ago = Moment { at: now - 7_000, up: elsewhere.clone() }.seconds_ago();
        assert!((8..17).contains(&ago), "{ago}");
        for up in [elsewhere, None] {
            assert_eq!(Moment { at: now + 60_000, up }.seconds_ago(), Moment::LONG_AGO);
        }
    }

    #[test]
    fn a_failure_is_over_and_a_lost_connection_is_not() {
        let mut node = NodePast::default();
        node.intended(Moment::by_clock(5));
        node.settled(Status::Unreachable, false, false, None);
        node.intended(Moment::by_clock(9));
        assert_eq!((node.in_flight.clone(), node.round), (Some(Moment::by_clock(5)), 0), "the first intent counts");
        node.settled(Status::Failed, false, false, None);
        assert_eq!((node.in_flight.clone(), node.round, node.done.is_some()), (None, 1, false));
        node.intended(Moment::by_clock(20));
        node.settled(Status::Failed, false, true, None);
        assert_eq!((node.in_flight.clone(), node.round, node.doubt), (Some(Moment::by_clock(20)), 1, true));
        node.assumed(false);
        assert_eq!((node.in_flight.clone(), node.round, node.doubt), (None, 2, false));
        node.intended(Moment::by_clock(30));
        node.assumed(true);
        assert_eq!(node.done.unwrap().status, Status::Changed);
    }
}
