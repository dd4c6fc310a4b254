//! Whether members that the inventory does not have could be the cluster by themselves.

use super::cluster_args::Cluster;
use etcdrun_base::mutant::{is_off, repair};
use etcdrun_etcd::etcd::{
    ClusterRecord,
    observe::{Listed, Observation},
};

/// Says so, if they are a majority: as the state folder has recorded the members, or as a member that still answers lists them. The state
/// folder may be another one than it was, and the inventory may be shorter.
pub(super) fn elsewhere(cluster: &Cluster, record: Option<&ClusterRecord>, now: &Observation) -> Option<String> {
    let is_gone = |name: &String| cluster.member(name).is_none();
    let recorded = record.and_then(|record| {
        let gone: Vec<String> = record.members.iter().filter(|name| is_gone(name)).cloned().collect();
        (gone.len() > record.members.len() / 2).then_some(gone)
    });
    let listed = || {
        let called = |member: &Listed| match member.name.is_empty() {
            true => format!("{:x}", member.id),
            false => member.name.clone(),
        };
        let voters: Vec<String> = now.voters().map(called).collect();
        let gone: Vec<String> = voters.iter().filter(|name| is_gone(name)).cloned().collect();
        (gone.len() > voters.len() / 2).then_some(gone)
    };
    let gone = recorded.or_else(listed).filter(|_| !is_off(repair::ELSEWHERE))?;
    Some(format!(
        "{} were members of `{}` and are not in the inventory any more, and together they are a majority: if they still run, there would be two clusters. Make sure that they are off for good, then pass --force",
        gone.join(", "),
        cluster.name
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::support::cluster_args::ClusterArgs;
    use etcdrun_etcd::etcd::{Phase, observe::Seen};

    fn cluster(names: &[&str]) -> Cluster {
        let members: Vec<_> = names.iter().map(|name| json!({ "name": name, "ip": "192.0.2.1" })).collect();
        let cluster: ClusterArgs = serde_json::from_value(json!({ "name": "prod", "members": members })).unwrap();
        cluster.known().unwrap()
    }

    fn record(members: &[&str]) -> ClusterRecord {
        let members = members.iter().map(|name| (*name).to_owned()).collect();
        ClusterRecord { phase: Phase::Formed, token: String::new(), members, cluster_id: None }
    }

    /// What the first of them says, who is alone.
    fn listed(names: &[&str]) -> Observation {
        let member = |(name, id): (&&str, u64)| Listed {
            id,
            name: (*name).to_owned(),
            peer_urls: Vec::new(),
            is_learner: false,
        };
        let list = names.iter().zip(1..).map(member).collect();
        let view = crate::etcd::pulse::testing::view(Ok(list));
        Observation { members: vec![Seen { name: names[0].to_owned(), answer: Ok(view) }], auth: None }
    }

    #[test]
    fn a_majority_that_left_the_inventory_may_still_serve() {
        let nobody = Observation::default();
        let three = cluster(&["a", "b", "c"]);
        assert_eq!(elsewhere(&three, Some(&record(&["a", "b", "c"])), &nobody), None);
        assert_eq!(elsewhere(&three, Some(&record(&["a", "b", "c", "d", "e"])), &nobody), None);
        let told = elsewhere(&three, Some(&record(&["a", "d", "e"])), &nobody).unwrap();
        assert!(told.starts_with("d, e were members of `prod`") && told.contains("two clusters"), "{told}");
    }

    #[test]
    fn what_a_member_lists_counts_where_nothing_is_recorded() {
        let one = cluster(&["a"]);
        assert_eq!(elsewhere(&one, None, &Observation::default()), None);
        assert_eq!(elsewhere(&one, None, &listed(&["a"])), None);
        assert_eq!(elsewhere(&one, None, &listed(&["a", "b"])), None, "without this one they are no majority");
        let told = elsewhere(&one, None, &listed(&["a", "b", "c"])).unwrap();
        assert!(told.starts_with("b, c were members"), "{told}");
        // A record that was made of the shorter inventory is no proof either.
        assert!(elsewhere(&one, Some(&record(&["a"])), &listed(&["a", "b", "c"])).is_some());
    }
}
