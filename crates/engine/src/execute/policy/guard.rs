//! The quorum guard: what takes a member of a cluster down runs in the turn of a rollout, or not at all.
//!
//! What is known to do so is refused. What only may do so (raw commands, packages, mounts) runs under watch: one member of
//! a cluster at a time, and if the member is another one afterwards, nothing more runs.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock},
};

use tokio::sync::OwnedMutexGuard;

use crate::execute::{node::NodeError, once::Halt, registered::lock, surroundings::Target};
use crate::{
    inventory::{Host, HostId, Inventory},
    is_off,
    model::{Disruption, Effects, Ending, Outcome, Resource, Value},
    policy,
    remote::{MemberWatch, Session},
    repair,
    task::{Question, Quorum},
};

/// Sees to it that clusters keep their quorum while a run lasts.
pub(in crate::execute) struct QuorumGuard {
    inventory: Arc<Inventory>,
    /// What the engine asks about servers in clusters.
    quorum: &'static dyn Quorum,
    /// Where it is recorded which clusters were formed.
    state: PathBuf,
    /// Clusters that were formed, as far as somebody asked.
    formed: Mutex<HashSet<String>>,
    /// Who is at a member of a cluster.
    turns: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    /// What happened to a member that was stopped by mistake.
    lost: OnceLock<String>,
    /// By host, the members that go down with it: itself, or its guests. Every node asks.
    on: HashMap<HostId, Vec<HostId>>,
}

/// Who is about to do something: all that the guard has to know of a node.
#[derive(Clone, Copy, Debug)]
pub(in crate::execute) struct Actor {
    /// For which host.
    pub host: HostId,
    /// In a turn of a rollout.
    pub has_turn: bool,
    /// It does something to the guest that the host is, and to no other.
    pub is_about_guest: bool,
    /// The playbook says that it changes nothing.
    pub says_unchanged: bool,
}

/// Members that a step might take down, and must not.
#[derive(Clone)]
pub(in crate::execute) struct Watched {
    pub clusters: BTreeSet<String>,
    pub watch: Arc<MemberWatch>,
}

/// As long as it exists, no other step runs on a member of these clusters.
pub(in crate::execute) struct ClusterGuard {
    _turns: Vec<OwnedMutexGuard<()>>,
}

/// Members that a step takes down in their turn, by cluster.
pub(in crate::execute) type GoingDown<'a> = BTreeMap<&'a str, Vec<&'a str>>;

/// A member, and its cluster.
type Member<'a> = (&'a Host, &'a str);

impl QuorumGuard {
    pub(in crate::execute) fn new(inventory: Arc<Inventory>, quorum: &'static dyn Quorum, state: PathBuf) -> Self {
        let mut on: HashMap<HostId, Vec<HostId>> = HashMap::new();
        for member in inventory.hosts().filter(|host| cluster_of(host).is_some()) {
            let hypervisor = inventory.hypervisor_of(member.id).map(|host| host.id);
            for host in hypervisor.into_iter().chain([member.id]) {
                on.entry(host).or_default().push(member.id);
            }
        }
        let (formed, turns, lost) = (Mutex::default(), Mutex::default(), OnceLock::new());
        Self { inventory, quorum, state, formed, turns, lost, on }
    }

    pub(in crate::execute) fn quorum(&self) -> &'static dyn Quorum {
        self.quorum
    }

    /// Waits until no other step runs on these clusters. Nothing more starts once a member was lost.
    pub(in crate::execute) async fn lock_clusters(
        &self,
        clusters: &BTreeSet<String>,
    ) -> Result<ClusterGuard, NodeError> {
        let mut turns = Vec::new();
        // All wait in the same order, so there is no deadlock.
        for cluster in clusters {
            let turn = lock(&self.turns).entry(cluster.clone()).or_default().clone();
            turns.push(turn.lock_owned().await);
        }
        match self.lost.get().filter(|_| !clusters.is_empty() && !is_off(repair::MEMBER_LOST)) {
            Some(why) => Err(NodeError::halted(Halt::Withheld, Outcome::failed(format!("not run: {why}")))),
            None => Ok(ClusterGuard { _turns: turns }),
        }
    }

    /// From this state folder. Without a record of it here, it may have been formed from elsewhere.
    fn is_formed(&self, cluster: &str) -> bool {
        if lock(&self.formed).contains(cluster) {
            return true;
        }
        let formed = self.quorum.is_formed(&self.state, cluster);
        if formed {
            lock(&self.formed).insert(cluster.to_owned());
        }
        formed
    }

    /// Refuses what would take a member down outside of its turn. A cluster that was formed from elsewhere is known by what
    /// runs on the target.
    pub(in crate::execute) async fn keep_members_up(
        &self,
        actor: Actor,
        effects: &Effects,
        target: Target,
        session: impl FnOnce() -> Result<Session, NodeError>,
    ) -> Result<(), NodeError> {
        let Target::Host(target) = target else { return Ok(()) };
        if !self.takes_down(effects) || is_off(policy::QUORUM_GUARD) {
            return Ok(());
        }
        let target = self.inventory.host_by_id(target);
        let members = self.members_at_stake(actor, target);
        if members.is_empty() {
            return Ok(());
        }
        let at_stake = match members.iter().find(|(_, cluster)| self.is_formed(cluster)) {
            Some(formed) => Some(formed),
            None => {
                let running = running(&session()?, &self.watch_for(&members, target)).await?;
                let unit = self.quorum.unit();
                let name =
                    |member: &Host| if member.id == target.id { unit.to_owned() } else { member.name.to_string() };
                members.iter().find(|(member, _)| running.contains(&name(member)))
            }
        };
        let Some((member, cluster)) = at_stake else { return Ok(()) };
        let msg = format!("this would stop {}, a member of {cluster}, without a quorum check", member.name);
        let outcome = Outcome { refused: true, ..Outcome::failed(msg) };
        Err(NodeError::Failed(Box::new(outcome), Some(self.quorum.way_out().to_owned())))
    }

    /// The members to keep an eye on while this runs; nothing if it cannot harm one, or says that it changes nothing.
    pub(in crate::execute) fn watched(
        &self,
        actor: Actor,
        effects: &Effects,
        target: Target,
        check_mode: bool,
    ) -> Option<Watched> {
        let Target::Host(target) = target else { return None };
        let may_disrupt = effects.disrupts > Disruption::No && !self.takes_down(effects) && !effects.careful;
        if check_mode || !may_disrupt || (effects.opaque && actor.says_unchanged) || is_off(policy::QUORUM_GUARD) {
            return None;
        }
        let target = self.inventory.host_by_id(target);
        let members = self.members_at_stake(actor, target);
        if members.is_empty() {
            return None;
        }
        let watch = self.watch_for(&members, target);
        // What was not formed from here is watched as well, but machines need not wait for each other to be set up.
        let clusters = members.into_iter().map(|(_, cluster)| cluster);
        let clusters = clusters.filter(|cluster| self.is_formed(cluster)).map(str::to_owned).collect();
        Some(Watched { clusters, watch: Arc::new(watch) })
    }

    /// A member was restarted, or that is unknown: nothing more may start.
    pub(in crate::execute) fn member_lost(&self, host: &str, outcome: Outcome) -> NodeError {
        let msg = format!("{}; the run was halted to protect quorum", outcome.msg);
        self.record_lost(host, &outcome);
        NodeError::halted(Halt::MemberLost, Outcome { msg, refused: true, ..outcome })
    }

    /// The error of a watched step that did not report its end. `sent_again` if it went out more than once.
    pub(in crate::execute) fn as_member_lost(&self, host: &str, trouble: NodeError, sent_again: bool) -> NodeError {
        const UNSEEN: &str = "and it is unknown whether the member still runs";
        match trouble {
            NodeError::Unreachable { msg, sent, .. } if sent || sent_again => {
                self.member_lost(host, Outcome::failed(format!("{msg}, {UNSEEN}")))
            }
            NodeError::Failed(outcome, _) if outcome.ending == Ending::TimedOut => {
                let msg = format!("{}, {UNSEEN}", outcome.msg);
                self.member_lost(host, Outcome { msg, ..*outcome })
            }
            NodeError::Halted(Halt::InDoubt, outcome, hint) => {
                self.record_lost(host, &outcome);
                NodeError::Halted(Halt::InDoubt, outcome, hint)
            }
            other => other,
        }
    }

    fn record_lost(&self, host: &str, outcome: &Outcome) {
        // The first one is the cause.
        let _ = self.lost.set(format!("on {host}, {}", outcome.msg));
    }

    fn watch_for(&self, members: &[Member<'_>], target: &Host) -> MemberWatch {
        let guests = members.iter().filter(|(member, _)| member.id != target.id);
        let unit = self.quorum.unit();
        MemberWatch {
            unit: members.iter().any(|(member, _)| member.id == target.id).then_some(unit),
            guests: guests.map(|(member, _)| member.name.to_string()).collect(),
        }
    }

    /// Whether it stops a member's server, or the machine that it is on.
    fn takes_down(&self, effects: &Effects) -> bool {
        let unit = self.quorum.unit();
        let other_unit = |resource: &Resource| matches!(resource, Resource::Unit(name) if name != unit);
        effects.disrupts == Disruption::Yes && !effects.writes.iter().any(other_unit)
    }

    /// Members of clusters that go down with a target, and whose turn it is not.
    fn members_at_stake(&self, actor: Actor, target: &Host) -> Vec<Member<'_>> {
        self.members_on(actor, target).filter(|(member, _)| !self.has_turn(actor, member)).collect()
    }

    /// Members of clusters that go down with a target, in their turn.
    pub(in crate::execute) fn going_down(&self, actor: Actor, effects: &Effects, target: Target) -> GoingDown<'_> {
        let mut clusters = GoingDown::new();
        let Target::Host(target) = target else { return clusters };
        if self.takes_down(effects) && !is_off(policy::BEFORE_STOP) {
            let members = self.members_on(actor, self.inventory.host_by_id(target));
            for (member, cluster) in members.filter(|(member, _)| self.has_turn(actor, member)) {
                clusters.entry(cluster).or_default().push(member.name.as_str());
            }
        }
        clusters
    }

    /// What is to be asked before they go down, cluster by cluster: none can answer for members that go down with it.
    pub(in crate::execute) fn before_stop(&self, going: &GoingDown<'_>, allow_outage: bool) -> Vec<Question> {
        let all: Vec<&str> = going.values().flatten().copied().collect();
        going.values().flat_map(|members| self.quorum.before_stop(members, &all, allow_outage)).collect()
    }

    fn has_turn(&self, actor: Actor, member: &Host) -> bool {
        let hypervisor = || self.inventory.hypervisor_of(member.id).map(|host| host.id);
        actor.has_turn && (member.id == actor.host || hypervisor() == Some(actor.host))
    }

    /// The members that go down with a target: itself, the guest that the task is about, or all guests.
    fn members_on(&self, actor: Actor, target: &Host) -> impl Iterator<Item = Member<'_>> {
        let own =
            cluster_of(self.inventory.host_by_id(actor.host)).filter(|_| actor.is_about_guest).map(|_| actor.host);
        let others = self.on.get(&target.id).filter(|_| own.is_none()).into_iter().flatten().copied();
        let members = own.into_iter().chain(others).map(|id| self.inventory.host_by_id(id));
        members.filter_map(|member| Some((member, cluster_of(member)?)))
    }
}

/// Which of the members that live on a target run there.
async fn running(session: &Session, watch: &MemberWatch) -> Result<Vec<String>, NodeError> {
    let outcome = session.run_one(watch.look(), false).await?;
    let running = outcome.data.get("running").and_then(Value::as_str).unwrap_or_default();
    Ok(running.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect())
}

fn cluster_of(host: &Host) -> Option<&str> {
    host.cluster().map(|cluster| cluster.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FLEET, OneUnit, inventory};

    struct Bench {
        guard: QuorumGuard,
        inventory: Arc<Inventory>,
    }

    impl Bench {
        fn new() -> Self {
            let inventory = inventory(FLEET);
            Self { guard: QuorumGuard::new(inventory.clone(), &OneUnit, PathBuf::new()), inventory }
        }

        fn host(&self, name: &str) -> HostId {
            self.inventory.host(name).unwrap().id
        }

        fn target(&self, name: &str) -> Target {
            Target::Host(self.host(name))
        }

        fn actor(&self, host: &str) -> Actor {
            Actor { host: self.host(host), has_turn: false, is_about_guest: false, says_unchanged: false }
        }

        async fn refuses(&self, actor: Actor, effects: &Effects, target: &str) -> Option<String> {
            let no_session = || Err(NodeError::failed("a session was wanted"));
            match self.guard.keep_members_up(actor, effects, self.target(target), no_session).await {
                Ok(()) => None,
                Err(NodeError::Failed(outcome, _)) => Some(outcome.msg),
                Err(_) => panic!("neither granted nor refused"),
            }
        }
    }

    fn stops(unit: &str) -> Effects {
        Effects::converging().disrupting(Disruption::Yes).writing([Resource::Unit(unit.to_owned())])
    }

    #[tokio::test]
    async fn a_member_is_stopped_in_its_turn_only() {
        let bench = Bench::new();
        let msg = bench.refuses(bench.actor("m1"), &stops("etcd.service"), "m1").await.unwrap();
        assert!(msg.contains("would stop m1, a member of prod"), "{msg}");
        let in_turn = Actor { has_turn: true, ..bench.actor("m1") };
        assert_eq!(bench.refuses(in_turn, &stops("etcd.service"), "m1").await, None);
        // A turn of one member is none of another.
        assert!(bench.refuses(in_turn, &stops("etcd.service"), "m2").await.is_some());
        assert_eq!(bench.refuses(bench.actor("m1"), &stops("chrony.service"), "m1").await, None);
        assert_eq!(bench.refuses(bench.actor("plain"), &stops("etcd.service"), "plain").await, None);
    }

    #[tokio::test]
    async fn a_hypervisor_takes_its_guests_down_with_it() {
        let bench = Bench::new();
        let reboot = Effects::converging().disrupting(Disruption::Yes).writing([Resource::AllUnits]);
        let msg = bench.refuses(bench.actor("kvm2"), &reboot, "kvm2").await.unwrap();
        assert!(msg.contains("would stop m2"), "{msg}");
        let in_turn = Actor { has_turn: true, ..bench.actor("kvm2") };
        assert_eq!(bench.refuses(in_turn, &reboot, "kvm2").await, None);
        // What is about one guest does nothing to the others there. Whether one of a new cluster runs is asked on the spot.
        let about_guest = Actor { is_about_guest: true, ..bench.actor("n1") };
        assert_eq!(bench.refuses(about_guest, &reboot, "kvm1").await.unwrap(), "a session was wanted");
        assert!(bench.refuses(bench.actor("kvm1"), &reboot, "kvm1").await.unwrap().contains("would stop m1"));
    }

    #[test]
    fn a_cluster_is_asked_about_before_its_members_go_down_in_their_turn() {
        let bench = Bench::new();
        let going = |actor: Actor, effects: &Effects, target: &str| {
            bench.guard.going_down(actor, effects, bench.target(target)).into_iter().collect::<Vec<_>>()
        };
        let in_turn = |host: &str| Actor { has_turn: true, ..bench.actor(host) };
        let reboot = Effects::converging().disrupting(Disruption::Yes).writing([Resource::AllUnits]);
        assert_eq!(going(in_turn("m1"), &stops("etcd.service"), "m1"), [("prod", vec!["m1"])]);
        assert_eq!(going(in_turn("kvm1"), &reboot, "kvm1"), [("new", vec!["n1", "n2"]), ("prod", vec!["m1"])]);
        // Neither harmless, nor outside of its turn, nor on another host.
        assert_eq!(going(in_turn("m1"), &stops("chrony.service"), "m1"), []);
        assert_eq!(going(bench.actor("m1"), &stops("etcd.service"), "m1"), []);
        assert_eq!(going(in_turn("m1"), &stops("etcd.service"), "m2"), []);
        let clusters = bench.guard.going_down(in_turn("kvm1"), &reboot, bench.target("kvm1"));
        let asked = bench.guard.before_stop(&clusters, false);
        let of = |question: &Question| (question.member.clone(), question.args.len());
        assert_eq!(
            asked.iter().map(of).collect::<Vec<_>>(),
            [("n1".to_owned(), 3), ("n2".to_owned(), 3), ("m1".to_owned(), 3)]
        );
    }

    #[test]
    fn what_may_harm_a_member_is_watched_and_waits_for_formed_clusters_only() {
        let bench = Bench::new();
        let watched = |host: &str, effects: &Effects, check_mode| {
            bench.guard.watched(bench.actor(host), effects, bench.target(host), check_mode)
        };
        let on = watched("kvm1", &Effects::opaque(), false).unwrap();
        assert_eq!(on.clusters, BTreeSet::from(["prod".to_owned()]));
        assert_eq!(on.watch.guests, ["m1", "n1", "n2"]);
        assert_eq!(on.watch.unit, None);
        assert_eq!(watched("m1", &Effects::opaque(), false).unwrap().watch.unit, Some("etcd.service"));
        assert!(watched("m1", &Effects::opaque(), true).is_none());
        assert!(watched("plain", &Effects::opaque(), false).is_none());
        assert!(watched("m1", &Effects::converging(), false).is_none());
        let harmless = Actor { says_unchanged: true, ..bench.actor("m1") };
        assert!(bench.guard.watched(harmless, &Effects::opaque(), bench.target("m1"), false).is_none());
    }

    #[tokio::test]
    async fn once_a_member_is_lost_nothing_more_starts_on_any_cluster() {
        let bench = Bench::new();
        let prod = BTreeSet::from(["prod".to_owned()]);
        assert!(bench.guard.lock_clusters(&prod).await.is_ok());
        let lost = NodeError::Unreachable { msg: "gone".to_owned(), hint: None, sent: true };
        assert!(matches!(bench.guard.as_member_lost("m1", lost, false), NodeError::Halted(Halt::MemberLost, ..)));
        let Err(NodeError::Halted(Halt::Withheld, outcome, _)) = bench.guard.lock_clusters(&prod).await else {
            panic!("granted")
        };
        assert!(outcome.msg.contains("on m1, gone"), "{}", outcome.msg);
        // What runs on no cluster continues.
        assert!(bench.guard.lock_clusters(&BTreeSet::new()).await.is_ok());
    }

    #[tokio::test]
    async fn what_was_never_sent_has_harmed_nobody() {
        let bench = Bench::new();
        let unsent = || NodeError::Unreachable { msg: "no route".to_owned(), hint: None, sent: false };
        assert!(matches!(bench.guard.as_member_lost("m1", unsent(), false), NodeError::Unreachable { .. }));
        assert!(matches!(bench.guard.as_member_lost("m1", unsent(), true), NodeError::Halted(Halt::MemberLost, ..)));
    }
}
