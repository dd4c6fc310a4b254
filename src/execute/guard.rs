//! The quorum guard: what takes a member of a cluster down runs in the turn of a rollout, or not at all.

use super::node::{NodeRun, Trouble};
use crate::{
    etcd::ClusterRecord,
    inventory::{Host, HostKind},
    model::{Disruption, Effects, Outcome, Resource},
};

/// The unit of every member that etcdrun has set up.
const UNIT: &str = "etcd.service";

impl NodeRun {
    /// Refuses what would take a member down outside of its turn. A cluster that was never formed has nothing to lose.
    pub(super) fn keep_members_up(&self, effects: &Effects, target: &Host) -> Result<(), Trouble> {
        let own = self.context.inventory.host_by_id(self.host);
        let rolls = self.context.graph.play(self.play).rolls;
        // Who lets hypervisors take turns has been asked for them; the guests of others are another matter.
        if !takes_down(effects) || (rolls && !is_member(own)) {
            return Ok(());
        }
        for member in self.members_on(target).into_iter().filter(|member| !rolls || member.id != own.id) {
            let HostKind::Member { cluster, .. } = &member.kind else { continue };
            let record = ClusterRecord::load(&self.context.options.state, cluster.as_str());
            // A record that cannot be read says at least that there is a cluster.
            if matches!(record, Ok(None)) {
                continue;
            }
            let msg = format!(
                "this would take {} down, a member of {cluster}, without asking whether the cluster can spare it",
                member.name
            );
            let hint = "put `rollout: {strategy: etcd}` on the play, so that members take turns; `playbooks/reboot.yaml` and `settings.yaml` do";
            let outcome = Outcome { refused: true, ..Outcome::failed(msg) };
            return Err(Trouble::Failed(Box::new(outcome), Some(hint.to_owned())));
        }
        Ok(())
    }

    /// The members that go down with a target: itself, the guest that the task is about, or all guests.
    fn members_on(&self, target: &Host) -> Vec<&Host> {
        let inventory = &self.context.inventory;
        let own = inventory.host_by_id(self.host);
        if self.task.module.name == "libvirt_domain" && is_member(own) {
            return vec![own];
        }
        let goes_too = |host: &&Host| {
            host.id == target.id || inventory.hypervisor_of(host.id).is_some_and(|other| other.id == target.id)
        };
        inventory.hosts().filter(|host| is_member(host)).filter(goes_too).collect()
    }
}

fn is_member(host: &Host) -> bool {
    matches!(host.kind, HostKind::Member { .. })
}

/// Whether it stops etcd, or the machine that etcd is on.
fn takes_down(effects: &Effects) -> bool {
    let other_unit = |resource: &Resource| matches!(resource, Resource::Unit(name) if name != UNIT);
    effects.disrupts == Disruption::Yes && !effects.writes.iter().any(other_unit)
}
