use super::*;
use crate::graph::{RolloutGroup, RolloutStep};

/// A group of three hosts with one step.
fn graph(at_once: usize) -> Graph {
    let hosts: Vec<HostId> = (0..3).map(HostId).collect();
    let group =
        |name: &str| RolloutGroup { play: PlayIndex(0), name: name.into(), hosts: hosts.clone(), max_groups: 1 };
    let step = RolloutStep { group: 0, at_once, version: None, turns: Vec::new() };
    Graph { rollouts: vec![group("a"), group("b")], steps: vec![step], ..Graph::default() }
}

fn node(index: usize) -> NodeIndex {
    NodeIndex::new(index)
}

#[test]
fn one_host_after_the_other_has_the_turn() {
    let graph = graph(1);
    let mut turns = Turns::default();
    for host in 0..3 {
        assert_eq!(turns.turn_start(&graph, 0, HostId(host), node(host as usize)), Passage::Wait);
    }
    assert_eq!(turns.free(&graph, 0, node(10)), Passage::Pass);
    assert_eq!(turns.grant(&graph, 0, &[HostId(2), HostId(0)]), Some(HostId(2)));
    assert_eq!(turns.released(), [node(2)]);
    assert_eq!(turns.free(&graph, 0, node(11)), Passage::Wait, "it is the turn of another");
    turns.turn_end(0, HostId(2));
    assert_eq!(turns.released(), [node(11)]);
    assert_eq!(turns.free(&graph, 0, node(11)), Passage::Pass);
    assert_eq!(turns.grant(&graph, 0, &[HostId(2)]), Some(HostId(0)), "nobody has two turns, and nobody is left out");
}

#[test]
fn as_many_as_may_have_the_turn_at_once() {
    let graph = graph(2);
    let mut turns = Turns::default();
    for round in 0..2 {
        assert_eq!(turns.free(&graph, 0, node(round)), Passage::Pass);
        assert!(turns.grant(&graph, 0, &[]).is_some());
    }
    assert_eq!(turns.free(&graph, 0, node(2)), Passage::Wait);
}

#[test]
fn after_a_halt_nobody_begins() {
    let graph = graph(1);
    let mut turns = Turns::default();
    turns.grant(&graph, 0, &[HostId(0)]);
    assert_eq!(turns.turn_start(&graph, 0, HostId(1), node(1)), Passage::Wait);
    assert_eq!(turns.free(&graph, 0, node(2)), Passage::Wait);
    turns.halt(&graph, 0, Some(node(9)));
    assert_eq!(turns.released(), [node(1), node(2)]);
    assert_eq!(turns.turn_start(&graph, 0, HostId(1), node(1)), Passage::Ended(Some(node(9))));
    assert_eq!(turns.free(&graph, 0, node(2)), Passage::Ended(Some(node(9))));
}

#[test]
fn a_group_waits_for_its_place_among_others() {
    let graph = graph(1);
    let mut turns = Turns::default();
    assert_eq!(turns.rollout_start(&graph, 0, node(0)), Passage::Pass);
    assert_eq!(turns.rollout_start(&graph, 1, node(1)), Passage::Wait);
    turns.rollout_end(&graph, 0);
    assert_eq!(turns.released(), [node(1)]);
    assert_eq!(turns.rollout_start(&graph, 1, node(1)), Passage::Pass);
}
