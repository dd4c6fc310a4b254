//! Where the members of a hypervisor go when it is emptied.

use std::collections::BTreeMap;

use super::Refusal;

/// A hypervisor that may take a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub name: String,
    pub zone: Option<String>,
}

/// One member that goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Departure {
    pub cluster: String,
    pub member: String,
    pub to: String,
}

/// The members of one cluster, by name and hypervisor; each that is on `leaving` goes where the fewest of its cluster are, by
/// zone and then by hypervisor, as `placement` would have it.
pub(crate) fn departures(
    cluster: &str,
    members: &[(String, String)],
    leaving: &str,
    candidates: &[Candidate],
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
        let others = candidates.iter().filter(|candidate| candidate.name != leaving);
        let Some(to) = others.min_by_key(|candidate| (in_zone(candidate), there(candidate))) else {
            return Err(Refusal::input(
                format!("{member} of `{cluster}` has nowhere to go: there is no other hypervisor for it"),
                "add one, or name more in the cluster's `placement`",
            ));
        };
        places.insert(member, &to.name);
        departures.push(Departure { cluster: cluster.to_owned(), member: member.clone(), to: to.name.clone() });
    }
    Ok(departures)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(name: &str, zone: &str) -> Candidate {
        Candidate { name: name.into(), zone: Some(zone.to_owned()).filter(|zone| !zone.is_empty()) }
    }

    fn gone(members: &[(&str, &str)], candidates: &[Candidate]) -> Vec<(String, String)> {
        let members: Vec<_> = members.iter().map(|(member, at)| ((*member).to_owned(), (*at).to_owned())).collect();
        let departures = departures("prod", &members, "hv1", candidates).unwrap();
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
        assert!(matches!(departures("prod", &members, "hv1", &alone), Err(Refusal::Input { .. })));
    }
}
