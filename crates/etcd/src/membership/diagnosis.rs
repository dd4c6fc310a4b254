//! Diagnosis: what is wrong with the members of a cluster, and the command that repairs it.

use crate::{
    etcd::observe::{Listed, Observation},
    inventory::is_name,
    model::one_line,
};

/// A guest that etcdrun has made, as its hypervisor describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadeGuest {
    pub name: String,
    /// The cluster that it was made for.
    pub cluster: String,
    pub state: String,
}

/// A member of the inventory, as far as it was seen.
pub struct InventoryMember<'a> {
    pub name: &'a str,
    pub ip: &'a str,
    /// How its guest is, if it has one.
    pub guest: Option<&'a str>,
}

/// What members say of each other, and hypervisors of their guests, that does not fit; a line each.
pub fn disagreements(cluster: &str, observation: &Observation, known: &[InventoryMember<'_>]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut ids: Vec<u64> = observation.views().map(|(_, view)| view.cluster_id).collect();
    ids.sort_unstable();
    ids.dedup();
    if ids.len() > 1 {
        problems.push("the members belong to different clusters".to_owned());
    }
    problems.extend(observation.list().iter().filter_map(|listed| listed_problem(cluster, listed, observation, known)));
    let is_listed = |member: &&InventoryMember<'_>| {
        observation.list().iter().any(|listed| listed.name == member.name || is_at(listed, member.ip))
    };
    if !observation.list().is_empty() {
        problems.extend(known.iter().filter(|member| !is_listed(member)).map(not_listed));
    }
    problems
}

fn listed_problem(
    cluster: &str,
    listed: &Listed,
    observation: &Observation,
    known: &[InventoryMember<'_>],
) -> Option<String> {
    let (name, id) = (listed.name.as_str(), listed.id);
    let member = match name {
        "" => known.iter().find(|member| is_at(listed, member.ip)),
        name => known.iter().find(|member| member.name == name),
    };
    match (member, name) {
        (None, "") => Some(format!(
            "a member at {} was added and never started; `etcdrun etcdctl {cluster} -- member remove {id:x}` removes it",
            listed.peer_urls.join(", ")
        )),
        (None, name) => Some(format!(
            "the cluster has a member {name}, which the inventory does not have; describe it there, or remove it: `etcdrun etcdctl {cluster} -- member remove {id:x}`"
        )),
        (Some(member), "") if listed.is_learner => Some(format!(
            "{0} was added and never started; to continue, run `etcdrun resume`; to start again, run `etcdrun member add {0}`",
            member.name
        )),
        (Some(member), "") => Some(format!(
            "{0} was added as a voter and never started, which counts against the quorum; run `etcdrun etcdctl {cluster} -- member remove {id:x}`, then `etcdrun member add {0}`",
            member.name
        )),
        (Some(_), name) if listed.is_learner => Some(format!(
            "{name} is a learner, and not a voter; to continue, run `etcdrun resume`; to start again, run `etcdrun member add {name}`"
        )),
        (Some(member), name) if member.guest == Some("absent") => {
            Some(format!("{name} is a member without a guest; `etcdrun member replace {name}` rebuilds it"))
        }
        (Some(_), name) if observation.is_corrupt(listed.id) => {
            Some(format!("etcd has found the data of {name} damaged; `etcdrun member replace {name}` rebuilds it"))
        }
        (Some(_), name) if is_dead(name, observation) && dead(observation) > 1 => Some(format!(
            "{name} does not serve, and is not the only one; `etcdrun playbook site.yaml -l {cluster}` starts all that are stopped; if its data is lost, run `etcdrun member replace {name}`"
        )),
        (Some(_), name) => is_dead(name, observation).then(|| {
            format!("{name} does not serve; run `etcdrun member restart {name}`, or if its data is lost, `etcdrun member replace {name}`")
        }),
    }
}

fn not_listed(member: &InventoryMember<'_>) -> String {
    let name = member.name;
    match member.guest {
        Some(state) if state != "absent" && state != "unknown" => {
            format!(
                "the guest {name} is {state}, and is not a member of the cluster; `etcdrun member add {name}` adds it"
            )
        }
        _ => format!(
            "{name} is not a member of the cluster; `etcdrun member add {name}` adds it, or remove it from the inventory"
        ),
    }
}

/// A guest that was made for the cluster, and is no member of it there; `place` is where a member of its name is.
pub fn orphan(guest: &MadeGuest, hypervisor: &str, place: Option<&str>) -> String {
    let MadeGuest { name, cluster, state } = guest;
    let (cluster, state) = (one_line(cluster), one_line(state));
    // It comes from the hypervisor, and would be part of a command that people copy.
    if !is_name(name) {
        return format!(
            "{hypervisor} has a guest {:?} ({state}) that no cluster uses, and its name is not a valid member name; `etcdrun ssh {hypervisor} -- virsh list --all` shows it",
            one_line(name)
        );
    }
    let why = match place {
        Some(place) => format!("because {name} is on {place} now"),
        None => format!("because {cluster} has no such member"),
    };
    let off = match state.as_str() {
        "shut off" | "crashed" => String::new(),
        _ => format!("`etcdrun ssh {hypervisor} -- virsh destroy {name}` powers it off, "),
    };
    format!(
        "{hypervisor} has a guest {name} ({state}) that is no longer used, {why}; {off}`etcdrun ssh {hypervisor} -- virsh undefine --nvram {name}` removes it, and its disks are kept"
    )
}

/// Whether it does not answer while others lead on; without a leader a member is the least of the worries.
fn dead(observation: &Observation) -> usize {
    let voters = observation.voters().filter(|voter| !voter.name.is_empty());
    voters.filter(|voter| is_dead(&voter.name, observation)).count()
}

fn is_dead(name: &str, observation: &Observation) -> bool {
    observation.leader().is_some() && !observation.members.iter().any(|seen| seen.name == name && seen.is_well())
}

fn is_at(listed: &Listed, ip: &str) -> bool {
    let host = |url: &String| {
        let rest = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
        rest.rsplit_once(':').map_or(rest, |(host, _)| host).trim_matches(['[', ']']).to_owned()
    };
    listed.peer_urls.iter().any(|url| host(url) == ip)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::observe::{Seen, View};

    fn listed(id: u64, name: &str, ip: &str, is_learner: bool) -> Listed {
        Listed { id, name: name.into(), peer_urls: vec![format!("https://{ip}:2380")], is_learner }
    }

    fn observation(list: Vec<Listed>) -> Observation {
        let view = View {
            id: 1,
            cluster_id: 7,
            version: "3.6.15".parse().unwrap(),
            cluster_version: None,
            storage_version: None,
            downgrade: None,
            leader: Some(1),
            term: 1,
            counted: None,
            raft_index: 1,
            applied_index: 1,
            revision: 1,
            db_size: 0,
            db_in_use: 0,
            quota: None,
            is_learner: false,
            alarms: Vec::new(),
            complaints: Vec::new(),
            list: Ok(list),
            read: Ok(()),
            lacks_majority: false,
        };
        Observation { members: vec![Seen { name: "a".into(), answer: Ok(view) }], auth: None }
    }

    #[test]
    fn a_guest_that_is_left_over_names_what_removes_it() {
        let guest = |state: &str| MadeGuest { name: "b".into(), cluster: "prod".into(), state: state.into() };
        let running = orphan(&guest("running"), "hv1", Some("hv2"));
        assert!(
            running.contains("because b is on hv2 now; `etcdrun ssh hv1 -- virsh destroy b` powers it off"),
            "{running}"
        );
        let off = orphan(&guest("shut off"), "hv1", None);
        assert!(
            off.contains("because prod has no such member; `etcdrun ssh hv1 -- virsh undefine --nvram b`"),
            "{off}"
        );
    }

    #[test]
    fn a_name_that_is_a_command_is_in_no_command() {
        let guest = MadeGuest { name: "b; reboot\n".into(), cluster: "prod".into(), state: "\x1b[2Jrunning".into() };
        let told = orphan(&guest, "hv1", None);
        assert!(told.contains("guest \"b; reboot\" (running)") && told.contains("virsh list --all"), "{told}");
        assert!(!told.contains("virsh destroy") && !told.contains("undefine"), "{told}");
    }

    #[test]
    fn each_state_names_what_repairs_it() {
        let told = |list: Vec<Listed>, guest: Option<&str>| {
            let known = [
                InventoryMember { name: "a", ip: "10.0.0.1", guest: None },
                InventoryMember { name: "b", ip: "10.0.0.2", guest },
            ];
            let mut list = list;
            list.push(listed(1, "a", "10.0.0.1", false));
            disagreements("prod", &observation(list), &known).join("\n")
        };
        let b = |name: &str, learner| vec![listed(2, name, "10.0.0.2", learner)];
        assert!(told(b("b", true), None).contains("is a learner, and not a voter; to continue, run `etcdrun resume`"));
        assert!(
            told(b("", true), None).starts_with("b was added and never started; to continue, run `etcdrun resume`")
        );
        assert!(told(b("", false), None).contains("counts against the quorum"));
        assert!(told(b("b", false), Some("absent")).contains("member without a guest; `etcdrun member replace b`"));
        assert!(told(b("b", false), Some("running")).contains("b does not serve; run `etcdrun member restart b`"));
        assert!(told(Vec::new(), Some("running")).contains("the guest b is running, and is not a member"));
        assert!(told(Vec::new(), None).contains("b is not a member of the cluster; `etcdrun member add b`"));
        let stranger = vec![listed(3, "c", "10.0.0.3", false), listed(4, "", "10.0.0.4", true)];
        let stranger = told(stranger, None);
        assert!(
            stranger.contains("a member c, which") && stranger.contains("`etcdrun etcdctl prod -- member remove 4`"),
            "{stranger}"
        );
    }
}
