//! Where the members of a hypervisor go when it is emptied.

use std::collections::BTreeMap;

use super::{Condition, Refusal, Request, Situation, Verb, facts};
use crate::{
    inventory::{Cluster, Inventory},
    source::Node,
};

/// A hypervisor that may take a member.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Candidate {
    name: String,
    zone: Option<String>,
}

/// One member that goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Departure {
    pub cluster: String,
    pub member: String,
    pub to: String,
}

impl Departure {
    /// A healthy member is moved; a failed one cannot be, and is rebuilt there.
    pub fn request(&self, situation: &Situation, snapshot: bool, allow_outage: bool) -> Request {
        Request {
            verb: match situation.condition(&self.member) {
                Condition::Alive => Verb::Move,
                _ => Verb::Replace,
            },
            old: Some(self.member.clone()),
            new_name: None,
            to: Some(self.to.clone()),
            ip: None,
            fence_unreachable: false,
            snapshot,
            allow_outage,
        }
    }
}

/// How many members of all clusters are on each hypervisor.
type Load = BTreeMap<String, usize>;

/// All members on a hypervisor, and where they go.
pub fn departures(
    inventory: &Inventory,
    leaving: &str,
    is_drained: impl Fn(&str) -> bool,
) -> Result<Vec<Departure>, Refusal> {
    let mut load = Load::new();
    for cluster in inventory.clusters() {
        for at in facts::members(inventory, cluster.name.as_str()).into_iter().filter_map(|it| it.hypervisor) {
            *load.entry(at).or_default() += 1;
        }
    }
    let mut all = Vec::new();
    for cluster in inventory.clusters() {
        let name = cluster.name.as_str();
        let members = facts::members(inventory, name).into_iter();
        let members: Vec<_> = members.filter_map(|member| Some((member.name, member.hypervisor?))).collect();
        all.extend(of_members(name, &members, leaving, &candidates(inventory, cluster, &is_drained), &mut load)?);
    }
    Ok(all)
}

/// The hypervisors of the cluster's `placement`, or all, that take members.
fn candidates(inventory: &Inventory, cluster: &Cluster, is_drained: &impl Fn(&str) -> bool) -> Vec<Candidate> {
    let chosen = cluster.sections.get("placement").and_then(Node::as_map).and_then(|map| map.get("hypervisors"));
    let chosen: Option<Vec<&str>> = chosen.map(|node| match node.as_seq() {
        Some(list) => list.iter().filter_map(Node::as_str).collect(),
        None => node.as_str().into_iter().collect(),
    });
    let is_candidate = |host: &str| chosen.as_ref().is_none_or(|chosen| chosen.contains(&host)) && !is_drained(host);
    let hypervisors = inventory.hypervisors().filter(|host| is_candidate(host.name.as_str()));
    hypervisors.map(|host| Candidate { name: host.name.to_string(), zone: host.zone.clone() }).collect()
}

/// The members of one cluster, by name and hypervisor; each that is on `leaving` goes where the fewest of its cluster are, by
/// zone and then by hypervisor, as `placement` would have it; among these, where the fewest of all clusters are. `load` knows
/// of it afterwards.
fn of_members(
    cluster: &str,
    members: &[(String, String)],
    leaving: &str,
    candidates: &[Candidate],
    load: &mut Load,
) -> Result<Vec<Departure>, Refusal> {
    let mut places: BTreeMap<&str, &str> =
        members.iter().map(|(member, hypervisor)| (member.as_str(), hypervisor.as_str())).collect();
    let zone = |name: &str| candidates.iter().find(|other| other.name == name).and_then(|other| other.zone.as_deref());
    let mut departures = Vec::new();
    for (member, _) in members.iter().filter(|(_, hypervisor)| hypervisor == leaving) {
        places.remove(member.as_str());
        let in_zone = |candidate: &Candidate| match &candidate.zone {
            Some(own) => places.values().filter(|place| zone(place) == Some(own)).count(),
            None => 0,
        };
        let there = |candidate: &Candidate| places.values().filter(|place| **place == candidate.name).count();
        let in_all = |candidate: &Candidate| load.get(&candidate.name).copied().unwrap_or(0);
        let others = candidates.iter().filter(|candidate| candidate.name != leaving);
        let fewest = others.min_by_key(|candidate| (in_zone(candidate), there(candidate), in_all(candidate)));
        let Some(to) = fewest else {
            return Err(Refusal::input(
                format!("cannot move {member} of `{cluster}`: there is no other hypervisor for it"),
                "add one, or name more in the cluster's `placement`",
            ));
        };
        places.insert(member, &to.name);
        *load.entry(to.name.clone()).or_default() += 1;
        departures.push(Departure { cluster: cluster.to_owned(), member: member.clone(), to: to.name.clone() });
    }
    Ok(departures)
}

/// Who goes at the same time: at most one of each cluster, and at most `most` in all. Each cluster keeps its order.
pub fn rounds(all: Vec<Departure>, most: usize) -> Vec<Vec<Departure>> {
    let mut rounds: Vec<Vec<Departure>> = Vec::new();
    for departure in all {
        // Never beside, nor before, another one of its cluster.
        let first = rounds.iter().rposition(|round| round.iter().any(|other| other.cluster == departure.cluster));
        let first = first.map_or(0, |round| round + 1);
        match rounds.iter().skip(first).position(|round| round.len() < most.max(1)) {
            Some(free) => rounds[first + free].push(departure),
            None => rounds.push(vec![departure]),
        }
    }
    rounds
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(name: &str, zone: &str) -> Candidate {
        Candidate { name: name.into(), zone: Some(zone.to_owned()).filter(|zone| !zone.is_empty()) }
    }

    fn gone(members: &[(&str, &str)], candidates: &[Candidate]) -> Vec<(String, String)> {
        let members: Vec<_> = members.iter().map(|(member, at)| ((*member).to_owned(), (*at).to_owned())).collect();
        let departures = of_members("prod", &members, "hv1", candidates, &mut Load::new()).unwrap();
        departures.into_iter().map(|departure| (departure.member, departure.to)).collect()
    }

    #[test]
    fn members_go_where_the_fewest_are_by_zone_and_then_by_hypervisor() {
        let zones = [candidate("hv1", "a"), candidate("hv2", "b"), candidate("hv3", "c"), candidate("hv4", "a")];
        let three = [("m1", "hv1"), ("m2", "hv2"), ("m3", "hv3")];
        assert_eq!(gone(&three, &zones), [("m1".to_owned(), "hv4".to_owned())], "its zone has nobody else");
        let flat = ["hv1", "hv2", "hv3"].map(|name| candidate(name, ""));
        let two = [("m1", "hv1"), ("m2", "hv1"), ("m3", "hv2")];
        let to: Vec<String> = gone(&two, &flat).into_iter().map(|(_, to)| to).collect();
        assert_eq!(to, ["hv3", "hv2"], "the second goes beside one, since nothing is free");
        assert_eq!(gone(&[("m2", "hv2")], &flat), []);
    }

    #[test]
    fn without_another_hypervisor_there_is_nowhere_to_go() {
        let alone = [candidate("hv1", "")];
        let members = [("m1".to_owned(), "hv1".to_owned())];
        assert!(matches!(of_members("prod", &members, "hv1", &alone, &mut Load::new()), Err(Refusal::Input { .. })));
    }

    #[test]
    fn clusters_do_not_all_go_to_the_same_place() {
        let flat = ["hv1", "hv2", "hv3"].map(|name| candidate(name, ""));
        let mut load = Load::from([("hv2".to_owned(), 1)]);
        let mut to = |cluster: &str| {
            let members = [(format!("{cluster}-1"), "hv1".to_owned())];
            of_members(cluster, &members, "hv1", &flat, &mut load).unwrap().remove(0).to
        };
        assert_eq!([to("a"), to("b"), to("c")], ["hv3", "hv2", "hv3"]);
    }

    #[test]
    fn a_round_has_one_of_each_cluster() {
        let all = ["a1", "a2", "a3", "b1", "c1", "c2", "d1"].map(|member| Departure {
            cluster: member[..1].into(),
            member: member.into(),
            to: "hv2".into(),
        });
        let named = |most: usize| -> Vec<String> {
            let names = |round: Vec<Departure>| round.into_iter().map(|it| it.member).collect::<Vec<_>>().join(" ");
            rounds(all.to_vec(), most).into_iter().map(names).collect()
        };
        assert_eq!(named(9), ["a1 b1 c1 d1", "a2 c2", "a3"]);
        assert_eq!(named(2), ["a1 b1", "a2 c1", "a3 c2", "d1"]);
        assert_eq!(named(1), ["a1", "a2", "a3", "b1", "c1", "c2", "d1"]);
    }
}
