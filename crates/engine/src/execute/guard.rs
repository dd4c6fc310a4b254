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
    node::{NodeRun, Trouble},
    once::Halt,
    registered::lock,
    surroundings::Target,
};
use crate::{
    inventory::{Host, HostId, HostKind},
    model::{Disruption, Effects, Ending, Outcome, Resource, Value},
    remote::{MemberWatch, Session},
    task::Quorum,
    template::Scope,
};

/// What a run knows of clusters that must keep their quorum.
#[derive(Default)]
pub(super) struct Quorums {
    /// Clusters that were formed, as far as somebody asked.
    formed: Mutex<HashSet<String>>,
    /// Who is at a member of a cluster.
    turns: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    /// What has happened to a member, and nobody wanted it to.
    lost: OnceLock<String>,
    /// By host, the members that go down with it: itself, or its guests. Every node asks.
    on: OnceLock<HashMap<HostId, Vec<HostId>>>,
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
            Some(why) => Err(Trouble::halted(Halt::Withheld, Outcome::failed(format!("not run: {why}")))),
            None => Ok(Vigil { _turns: turns }),
        }
    }

    /// What the engine asks about servers in clusters.
    pub(super) fn quorum(&self) -> &'static dyn Quorum {
        self.graph.library.quorum
    }

    /// From this state folder. Without a record of it here, it may have been formed from elsewhere.
    fn is_formed(&self, cluster: &str) -> bool {
        if lock(&self.quorums.formed).contains(cluster) {
            return true;
        }
        let formed = self.quorum().is_formed(&self.options.state, cluster);
        if formed {
            lock(&self.quorums.formed).insert(cluster.to_owned());
        }
        formed
    }
}

impl NodeRun {
    /// Refuses what would take a member down outside of its turn. A cluster that was formed from elsewhere is known by what
    /// runs on the target.
    pub(super) async fn keep_members_up(&self, effects: &Effects, scope: &Scope) -> Result<(), Trouble> {
        let Target::Host(target) = self.target(scope)? else { return Ok(()) };
        if !self.takes_down(effects) {
            return Ok(());
        }
        let target = self.context.inventory.host_by_id(target);
        let members = self.members_at_stake(target);
        if members.is_empty() {
            return Ok(());
        }
        let at_stake = match members.iter().find(|(_, cluster)| self.context.is_formed(cluster)) {
            Some(formed) => Some(formed),
            None => {
                let running = self.running(&self.session(scope)?, &self.watch_for(&members, target)).await?;
                let unit = self.context.quorum().unit();
                let name =
                    |member: &Host| if member.id == target.id { unit.to_owned() } else { member.name.to_string() };
                members.iter().find(|(member, _)| running.contains(&name(member)))
            }
        };
        let Some((member, cluster)) = at_stake else { return Ok(()) };
        let msg = format!("this would stop {}, a member of {cluster}, without a quorum check", member.name);
        let outcome = Outcome { refused: true, ..Outcome::failed(msg) };
        Err(Trouble::Failed(Box::new(outcome), Some(self.context.quorum().way_out().to_owned())))
    }

    /// Which of the members that live on a target run there.
    async fn running(&self, session: &Session, watch: &MemberWatch) -> Result<Vec<String>, Trouble> {
        let outcome = session.run_one(watch.look(), false).await?;
        let running = outcome.data.get("running").and_then(Value::as_str).unwrap_or_default();
        Ok(running.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect())
    }

    /// The members to keep an eye on while this runs; nothing if it cannot harm one, or says that it changes nothing.
    pub(super) fn watched(&self, effects: &Effects, target: Target, check_mode: bool) -> Option<Watched> {
        let Target::Host(target) = target else { return None };
        let may_disrupt = effects.disrupts > Disruption::No && !self.takes_down(effects) && !effects.careful;
        if check_mode || !may_disrupt || (effects.opaque && self.says_unchanged()) {
            return None;
        }
        let target = self.context.inventory.host_by_id(target);
        let members = self.members_at_stake(target);
        if members.is_empty() {
            return None;
        }
        let watch = self.watch_for(&members, target);
        // What was not formed from here is watched as well, but machines need not wait for each other to be set up.
        let clusters = members.into_iter().map(|(_, cluster)| cluster);
        let clusters = clusters.filter(|cluster| self.context.is_formed(cluster)).collect();
        Some(Watched { clusters, watch: Arc::new(watch) })
    }

    /// A member is not the one it was, or nobody can tell: nothing more may start.
    pub(super) fn member_lost(&self, outcome: Outcome) -> Trouble {
        let host = &self.info.host;
        let msg = format!("{}; the run was halted to protect quorum", outcome.msg);
        // The first one is the cause.
        let _ = self.context.quorums.lost.set(format!("on {host}, {}", outcome.msg));
        Trouble::halted(Halt::MemberLost, Outcome { msg, refused: true, ..outcome })
    }

    /// A step under watch whose end nobody saw.
    pub(super) fn out_of_sight(&self, trouble: Trouble) -> Trouble {
        match trouble {
            Trouble::Unreachable { msg, sent, .. } if sent || self.was_resent() => {
                self.member_lost(Outcome::failed(format!("{msg}, and it is unknown whether the member still runs")))
            }
            Trouble::Failed(outcome, _) if outcome.ending == Ending::TimedOut => {
                let msg = format!("{}, and it is unknown whether the member still runs", outcome.msg);
                self.member_lost(Outcome { msg, ..*outcome })
            }
            Trouble::Halted(Halt::InDoubt, outcome, hint) => {
                let _ = self.context.quorums.lost.set(format!("on {}, {}", self.info.host, outcome.msg));
                Trouble::Halted(Halt::InDoubt, outcome, hint)
            }
            other => other,
        }
    }

    fn watch_for(&self, members: &[(&Host, String)], target: &Host) -> MemberWatch {
        let guests = members.iter().filter(|(member, _)| member.id != target.id);
        let unit = self.context.quorum().unit();
        MemberWatch {
            unit: members.iter().any(|(member, _)| member.id == target.id).then_some(unit),
            guests: guests.map(|(member, _)| member.name.to_string()).collect(),
        }
    }

    /// Whether it stops a member's server, or the machine that it is on.
    pub(super) fn takes_down(&self, effects: &Effects) -> bool {
        let unit = self.context.quorum().unit();
        let other_unit = |resource: &Resource| matches!(resource, Resource::Unit(name) if name != unit);
        effects.disrupts == Disruption::Yes && !effects.writes.iter().any(other_unit)
    }

    /// Members of clusters that go down with a target, and whose turn it is not.
    fn members_at_stake(&self, target: &Host) -> Vec<(&Host, String)> {
        let members = self.members_on(target).into_iter().filter(|member| !self.has_turn(member));
        members.filter_map(|member| Some((member, cluster_of(member)?.to_owned()))).collect()
    }

    /// Members of clusters that go down with a target, in their turn.
    pub(super) fn members_in_turn(&self, target: &Host) -> Vec<(&Host, String)> {
        let members = self.members_on(target).into_iter().filter(|member| self.has_turn(member));
        members.filter_map(|member| Some((member, cluster_of(member)?.to_owned()))).collect()
    }

    fn has_turn(&self, member: &Host) -> bool {
        let hypervisor = || self.context.inventory.hypervisor_of(member.id).map(|host| host.id);
        self.context.graph.play(self.play).rolls && (member.id == self.host || hypervisor() == Some(self.host))
    }

    /// The members that go down with a target: itself, the guest that the task is about, or all guests.
    fn members_on(&self, target: &Host) -> Vec<&Host> {
        let inventory = &self.context.inventory;
        let own = inventory.host_by_id(self.host);
        if self.task.module.traits.is_about_guest && cluster_of(own).is_some() {
            return vec![own];
        }
        let on = self.context.quorums.on.get_or_init(|| {
            let mut on: HashMap<HostId, Vec<HostId>> = HashMap::new();
            for member in inventory.hosts().filter(|host| cluster_of(host).is_some()) {
                let hypervisor = inventory.hypervisor_of(member.id).map(|host| host.id);
                for host in hypervisor.into_iter().chain([member.id]) {
                    on.entry(host).or_default().push(member.id);
                }
            }
            on
        });
        on.get(&target.id).into_iter().flatten().map(|id| inventory.host_by_id(*id)).collect()
    }
}

fn cluster_of(host: &Host) -> Option<&str> {
    match &host.kind {
        HostKind::Member { cluster, .. } => Some(cluster.as_str()),
        _ => None,
    }
}
