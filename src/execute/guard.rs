//! The quorum guard: what takes a member of a cluster down runs in the turn of a rollout, or not at all.
//!
//! What is known to do so is refused. What only may do so (raw commands, packages, mounts) runs under watch: one member of
//! a cluster at a time, and if the member is another one afterwards, nothing more runs.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{Arc, Mutex, OnceLock},
};

use tokio::sync::OwnedMutexGuard;

use super::{
    context::Context,
    hosts::lock,
    node::{NodeRun, TIMED_OUT, Trouble},
    surroundings::Target,
};
use crate::{
    etcd::ClusterRecord,
    inventory::{Host, HostKind},
    model::{Disruption, Effects, Outcome, Resource},
    remote::MemberWatch,
};

/// The unit of every member that etcdrun has set up.
const UNIT: &str = "etcd.service";

pub(super) const IN_TURNS: &str = "put `rollout: {strategy: etcd}` on the play, so that members take turns; `playbooks/reboot.yaml` and `settings.yaml` do";

/// What a run knows of clusters that must keep their quorum.
#[derive(Default)]
pub(super) struct Quorums {
    /// Clusters that were formed, as far as somebody asked.
    formed: Mutex<HashSet<String>>,
    /// Who is at a member of a cluster.
    turns: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    /// What has happened to a member, and nobody wanted it to.
    lost: OnceLock<String>,
}

/// Members that a step might take down, and must not.
#[derive(Clone)]
pub(super) struct Watched {
    pub clusters: BTreeSet<String>,
    pub watch: Arc<MemberWatch>,
}

/// As long as it is there, nobody else is at a member of these clusters.
pub(super) struct Vigil {
    _turns: Vec<OwnedMutexGuard<()>>,
}

impl Context {
    /// Waits until nobody else is at these clusters. Nothing more is done once a member was lost.
    pub(super) async fn keep_vigil(&self, clusters: &BTreeSet<String>) -> Result<Vigil, Trouble> {
        let mut turns = Vec::new();
        // All wait in the same order, so that nobody waits in a circle.
        for cluster in clusters {
            let turn = lock(&self.quorums.turns).entry(cluster.clone()).or_default().clone();
            turns.push(turn.lock_owned().await);
        }
        match self.quorums.lost.get().filter(|_| !clusters.is_empty()) {
            Some(why) => Err(Trouble::Withheld(Box::new(Outcome::failed(format!("not run: {why}"))))),
            None => Ok(Vigil { _turns: turns }),
        }
    }

    /// A record that cannot be read says at least that there is a cluster. One that was never formed has nothing to lose.
    fn is_formed(&self, cluster: &str) -> bool {
        if lock(&self.quorums.formed).contains(cluster) {
            return true;
        }
        let formed = !matches!(ClusterRecord::load(&self.options.state, cluster), Ok(None));
        if formed {
            lock(&self.quorums.formed).insert(cluster.to_owned());
        }
        formed
    }
}

impl NodeRun {
    /// Refuses what would take a member down outside of its turn.
    pub(super) fn keep_members_up(&self, effects: &Effects, target: &Host) -> Result<(), Trouble> {
        if !takes_down(effects) {
            return Ok(());
        }
        let Some((member, cluster)) = self.members_at_stake(target).into_iter().next() else { return Ok(()) };
        let msg = format!(
            "this would take {} down, a member of {cluster}, without asking whether the cluster can spare it",
            member.name
        );
        let outcome = Outcome { refused: true, ..Outcome::failed(msg) };
        Err(Trouble::Failed(Box::new(outcome), Some(IN_TURNS.to_owned())))
    }

    /// The members to keep an eye on while this runs; nothing if it cannot harm one, or says that it changes nothing.
    pub(super) fn watched(&self, effects: &Effects, target: Target, check_mode: bool) -> Option<Watched> {
        let Target::Host(target) = target else { return None };
        let may_disrupt = effects.disrupts > Disruption::No && !takes_down(effects) && !effects.careful;
        if check_mode || !may_disrupt || (effects.opaque && self.says_unchanged()) {
            return None;
        }
        let target = self.context.inventory.host_by_id(target);
        let members = self.members_at_stake(target);
        if members.is_empty() {
            return None;
        }
        let guests = members.iter().filter(|(member, _)| member.id != target.id);
        let watch = MemberWatch {
            unit: members.iter().any(|(member, _)| member.id == target.id).then_some(UNIT),
            guests: guests.map(|(member, _)| member.name.to_string()).collect(),
        };
        let clusters = members.into_iter().map(|(_, cluster)| cluster).collect();
        Some(Watched { clusters, watch: Arc::new(watch) })
    }

    /// A member is not the one it was, or nobody can tell: nothing more may start.
    pub(super) fn member_lost(&self, outcome: Outcome) -> Trouble {
        let host = &self.info.host;
        let msg = format!("{}; nothing more is run, so that the cluster keeps its quorum", outcome.msg);
        // The first one is the cause.
        let _ = self.context.quorums.lost.set(format!("on {host}, {}", outcome.msg));
        Trouble::MemberLost(Box::new(Outcome { msg, refused: true, ..outcome }))
    }

    /// A step under watch whose end nobody saw.
    pub(super) fn out_of_sight(&self, trouble: Trouble) -> Trouble {
        match trouble {
            Trouble::Unreachable { msg, sent, .. } if sent || self.was_resent() => {
                self.member_lost(Outcome::failed(format!("{msg}, and nobody knows whether the member still runs")))
            }
            Trouble::Failed(outcome, _) if outcome.data.contains_key(TIMED_OUT) => {
                let msg = format!("{}, and nobody knows whether the member still runs", outcome.msg);
                self.member_lost(Outcome { msg, ..*outcome })
            }
            Trouble::Doubt(outcome) => {
                let _ = self.context.quorums.lost.set(format!("on {}, {}", self.info.host, outcome.msg));
                Trouble::Doubt(outcome)
            }
            other => other,
        }
    }

    /// Members of formed clusters that go down with a target, and whose turn it is not.
    fn members_at_stake(&self, target: &Host) -> Vec<(&Host, String)> {
        let inventory = &self.context.inventory;
        let rolls = self.context.graph.play(self.play).rolls;
        let is_above = |member: &Host| inventory.hypervisor_of(member.id).is_some_and(|other| other.id == self.host);
        let has_turn = |member: &Host| rolls && (member.id == self.host || is_above(member));
        let members = self.members_on(target).into_iter().filter(|member| !has_turn(member));
        let with_cluster = members.filter_map(|member| Some((member, cluster_of(member)?.to_owned())));
        with_cluster.filter(|(_, cluster)| self.context.is_formed(cluster)).collect()
    }

    /// The members that go down with a target: itself, the guest that the task is about, or all guests.
    fn members_on(&self, target: &Host) -> Vec<&Host> {
        let inventory = &self.context.inventory;
        let own = inventory.host_by_id(self.host);
        let is_about_guest = matches!(self.task.module.name, "libvirt_domain" | "libvirt_power");
        if is_about_guest && cluster_of(own).is_some() {
            return vec![own];
        }
        let goes_too = |host: &&Host| {
            host.id == target.id || inventory.hypervisor_of(host.id).is_some_and(|other| other.id == target.id)
        };
        inventory.hosts().filter(|host| cluster_of(host).is_some()).filter(goes_too).collect()
    }
}

fn cluster_of(host: &Host) -> Option<&str> {
    match &host.kind {
        HostKind::Member { cluster, .. } => Some(cluster.as_str()),
        _ => None,
    }
}

/// Whether it stops etcd, or the machine that etcd is on.
fn takes_down(effects: &Effects) -> bool {
    let other_unit = |resource: &Resource| matches!(resource, Resource::Unit(name) if name != UNIT);
    effects.disrupts == Disruption::Yes && !effects.writes.iter().any(other_unit)
}
