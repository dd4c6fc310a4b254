//! Members that do not differ: what happens to one of them need not be searched for the others.

use crate::{
    change::Point,
    list::{List, Mask, Slot, has, with},
    operator::{Life, Operator, Run},
    rollout::{Rollout, Turn},
    world::State,
};

impl State {
    /// Whether an earlier slot is in all respects as this one: with the two exchanged the state is the same.
    pub fn is_like_an_earlier_one(&self, slot: Slot) -> bool {
        let cluster = &self.cluster;
        let meant = self.operators.iter().fold(cluster.leader.map_or(0, |leader| with(0, leader)), named);
        let is_alike = |other: Slot| {
            let is_in_both = |mask: Mask| has(mask, slot) == has(mask, other);
            let is_same_in = |list: &List| list.is_same(slot, other);
            cluster.members[slot] == cluster.members[other]
                && cluster.issued[slot] == cluster.issued[other]
                && is_same_in(&cluster.list)
                && cluster.members.iter().all(|member| is_same_in(&member.knows))
                && [self.inventory, self.leaving].into_iter().chain(self.cuts).all(is_in_both)
                && self.operators.iter().all(|operator| match operator.run {
                    Some(Run::Change(change, point)) => {
                        let settings = if let Point::Learner(settings) = point { settings } else { 0 };
                        [change.well, change.after, settings].into_iter().all(is_in_both)
                    }
                    Some(Run::Rollout(_, Turn::Of { before, .. })) => is_same_in(&before),
                    _ => true,
                })
        };
        !has(meant, slot) && (0..slot).any(|other| !has(meant, other) && is_alike(other))
    }
}

/// The members that an operator means in particular.
fn named(mask: Mask, operator: &Operator) -> Mask {
    let mask = match operator.life {
        Life::Hangs(pending) => with(mask, pending.call.slot()),
        Life::Works | Life::Died => mask,
    };
    let mask = match operator.run {
        Some(Run::Change(change, _)) => {
            change.new.map_or(with(mask, change.old), |new| with(with(mask, change.old), new))
        }
        Some(Run::Rollout(Rollout::Restart(slot) | Rollout::Site(slot), _)) => with(mask, slot),
        Some(Run::Rollout(Rollout::Upgrade, _)) | None => mask,
    };
    match operator.run {
        Some(Run::Rollout(_, Turn::Of { target, .. })) => with(mask, target),
        _ => mask,
    }
}
