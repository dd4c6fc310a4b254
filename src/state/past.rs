//! What a journal says of each node: done, to be looked at again, or still to come.

use std::collections::HashMap;

use super::{Line, NodeKey, Record, Vault};
use crate::model::{Outcome, Status};

/// How a node ended, as far as nodes behind it care.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    pub status: Status,
    pub changed: bool,
    /// What was registered or set as facts.
    pub left: Option<Outcome>,
}

/// What is known of one node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodePast {
    pub done: Option<Done>,
    /// It was to change something, and nobody heard how that ended: since when, in milliseconds since
    /// the Unix epoch.
    pub in_flight: Option<i64>,
    /// Whether the target could not tell either.
    pub doubt: bool,
    /// How often it has ended for certain and is to run again. Part of its name in the target's ledger.
    pub round: u32,
}

/// What is known of the nodes of one graph.
#[derive(Clone, Debug, Default)]
pub struct Past {
    nodes: HashMap<u32, NodePast>,
}

impl Past {
    /// Reads the records of one graph, in order.
    pub fn of(lines: &[Line], graph: u32, vault: &Vault) -> Self {
        let mut past = Self::default();
        for line in lines {
            match &line.record {
                Record::Intent { key } if key.graph == graph => past.at(key).intended(line.at),
                Record::Settled { key, status, changed, doubt, left, .. } if key.graph == graph => {
                    let left = left.as_ref().and_then(|left| vault.unseal(left));
                    past.at(key).settled(*status, *changed, *doubt, left);
                }
                Record::Assumed { key, done } if key.graph == graph => past.at(key).assumed(*done),
                _ => {}
            }
        }
        past
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
    pub(super) fn intended(&mut self, at: i64) {
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
    fn a_failure_is_over_and_a_lost_connection_is_not() {
        let mut node = NodePast::default();
        node.intended(5);
        node.settled(Status::Unreachable, false, false, None);
        node.intended(9);
        assert_eq!((node.in_flight, node.round), (Some(5), 0), "the first intent counts");
        node.settled(Status::Failed, false, false, None);
        assert_eq!((node.in_flight, node.round, node.done.is_some()), (None, 1, false));
        node.intended(20);
        node.settled(Status::Failed, false, true, None);
        assert_eq!((node.in_flight, node.round, node.doubt), (Some(20), 1, true));
        node.assumed(false);
        assert_eq!((node.in_flight, node.round, node.doubt), (None, 2, false));
        node.intended(30);
        node.assumed(true);
        assert_eq!(node.done.unwrap().status, Status::Changed);
    }
}
