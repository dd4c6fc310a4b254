//! Turns: `roles/rollout_etcd` around what stops a member, and `etcd_service` by itself.
//!
//! Copied, since it reaches hosts: the order of `etcd_order`, the steps of a turn, what `etcd_service` checks and when, which gates
//! a resumed run passes again (`gates_to_repeat`), and when a cluster is begun (`etcd_bootstrap`).

use etcdrun_etcd::etcd::{
    lead::successors,
    rules::{Gate, Profile},
};

use crate::{
    cluster::{Data, Release},
    list::{List, Mask, Slot, name, slots},
    look::Look,
    operator::{Act, Run, Step, Who},
    rules::Question,
    world::{State, World},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rollout {
    /// Every member gets the new release, one after the other; `etcd_service` restarts it.
    Upgrade,
    /// One member is restarted, by a task that stops it: the gate `stop` is asked in front of that.
    Restart(Slot),
    /// `etcd_service` restarts one member, outside of turns.
    Site(Slot),
}

/// Where the rollout is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Turn {
    /// It is nobody's turn.
    Begin,
    /// All that are left have had it.
    Over,
    Of {
        target: Slot,
        stage: Stage,
        is_resumed: bool,
        before: List,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// The gate in front of the turn has passed.
    Checked,
    Down,
    Up,
}

impl Rollout {
    fn profile(self) -> Profile {
        if self == Self::Upgrade { Profile::Upgrade } else { Profile::Restart }
    }

    /// The gates around turns are not those of `site.yaml`.
    fn has_gates(self) -> bool {
        !matches!(self, Self::Site(_))
    }
}

impl World {
    pub fn look(&self, state: &State, who: Who, asked: Mask) -> Look {
        Look::at(&state.cluster, asked, state.cuts[who], self.scope.hosts_say_strict)
    }

    /// Whether a task can do something on the host.
    pub fn reaches(&self, state: &State, who: Who, slot: Slot) -> bool {
        self.look(state, who, 1 << slot).reaches(slot)
    }

    pub fn rollout_step(&self, state: &State, who: Who, rollout: Rollout, turn: Turn) -> Option<Step> {
        let here = Here { world: self, state, who, rollout };
        match turn {
            Turn::Begin => here.begin(),
            Turn::Over => here.pass(Gate::Settled, None, None).then(|| Step::new(Act::Pass, None)),
            // What a resumed run has seen before does not count.
            Turn::Of { target, stage, is_resumed: true, .. } if rollout.has_gates() => here.check(target, stage),
            Turn::Of { target, stage: Stage::Checked, before, .. } => {
                Some(here.to(self.stop(state, who, rollout, target)?, target, Stage::Down, before))
            }
            Turn::Of { target, stage: Stage::Down, before, .. } => here.start(target, before),
            Turn::Of { target, stage: Stage::Up, before, .. } => here.end(target, before),
        }
    }

    /// Sick members first, the leader last; nothing if none is left.
    fn next_target(&self, state: &State, who: Who, rollout: Rollout) -> Option<Slot> {
        let (Rollout::Restart(target) | Rollout::Site(target)) = rollout else {
            let seen = self.look(state, who, state.inventory).observation();
            let leader = seen.leader().map(|(name, _)| name.to_owned());
            let rank = |slot: &Slot| {
                let name = name(*slot);
                let is_well = seen.members.iter().any(|seen| seen.name == name && seen.is_well());
                if is_well { 1 + u8::from(leader == Some(name)) } else { 0 }
            };
            let left = slots(state.inventory).filter(|slot| state.cluster.members[*slot].release == Release::Old);
            return left.min_by_key(rank);
        };
        Some(target)
    }

    /// What stops the member, behind the checks of the task that does it. One that does not run is only started.
    fn stop(&self, state: &State, who: Who, rollout: Rollout, target: Slot) -> Option<Act> {
        if !self.reaches(state, who, target) {
            return None;
        }
        // The role etcd decides that at first.
        match self.bootstrap(state, who) {
            _ if rollout == Rollout::Restart(target) => {}
            Bootstrap::Begin => return Some(Act::Found),
            Bootstrap::Refuse => return None,
            Bootstrap::Exists => {}
        }
        let runs = state.cluster.runs(target);
        let led = self.led_by_another(state, who, state.inventory, target);
        match rollout {
            // `service: restarted`, and whatever else stops a member in its turn.
            Rollout::Restart(_) => {
                let look = self.look(&led?, who, state.inventory);
                let question = Question { target: Some(target), ..Question::at(Profile::Restart, Gate::Stop) };
                self.rules.pass(&look, question).then_some(if runs { Act::Stop(target) } else { Act::Pass })
            }
            Rollout::Upgrade | Rollout::Site(_) if !runs => Some(Act::Pass),
            Rollout::Upgrade | Rollout::Site(_) => {
                let is_spared = |state: &State| self.rules.may_restart(&self.look(state, who, state.inventory), target);
                (is_spared(state) && is_spared(&led?)).then_some(Act::Stop(target))
            }
        }
    }

    /// The state once the member does not lead; nothing if it leads, and nobody takes over.
    pub fn led_by_another(&self, state: &State, who: Who, asked: Mask, slot: Slot) -> Option<State> {
        let seen = self.look(state, who, asked).observation();
        let Some(others) = successors(&seen, &name(slot)) else { return Some(state.clone()) };
        let first = others.first()?;
        let mut next = state.clone();
        next.cluster.leader = slots(asked).find(|other| name(*other) == first.name);
        Some(next)
    }

    /// What `etcd_bootstrap` decides where this workstation has no record of the cluster; where it has one, nothing is ever begun.
    fn bootstrap(&self, state: &State, who: Who) -> Bootstrap {
        let is_empty = |slot: &Slot| match self.reaches(state, who, *slot) {
            true => state.cluster.members[*slot].data == Data::Lost,
            false => self.scope.trusts_unread,
        };
        let mut members = slots(state.inventory);
        match members.clone().filter(is_empty).count() {
            0 => Bootstrap::Exists,
            _ if members.all(|slot| is_empty(&slot)) => Bootstrap::Begin,
            _ => Bootstrap::Refuse,
        }
    }
}

/// A rollout, as one operator sees it now.
struct Here<'a> {
    world: &'a World,
    state: &'a State,
    who: Who,
    rollout: Rollout,
}

impl Here<'_> {
    fn to(&self, act: Act, target: Slot, stage: Stage, before: List) -> Step {
        let turn = Turn::Of { target, stage, is_resumed: false, before };
        Step::new(act, Some(Run::Rollout(self.rollout, turn)))
    }

    fn pass(&self, gate: Gate, target: Option<Slot>, before: Option<List>) -> bool {
        let question = Question { target, before, ..Question::at(self.rollout.profile(), gate) };
        let look = self.world.look(self.state, self.who, self.state.inventory);
        !self.rollout.has_gates() || self.world.rules.pass(&look, question)
    }

    fn begin(&self) -> Option<Step> {
        match self.world.next_target(self.state, self.who, self.rollout) {
            Some(target) => self.check(target, Stage::Checked),
            None => Some(Step::pass(Run::Rollout(self.rollout, Turn::Over))),
        }
    }

    fn check(&self, target: Slot, stage: Stage) -> Option<Step> {
        let before = self.state.cluster.list;
        self.pass(Gate::Before, Some(target), None).then(|| self.to(Act::Pass, target, stage, before))
    }

    fn start(&self, target: Slot, before: List) -> Option<Step> {
        let cluster = &self.state.cluster;
        let has = cluster.members[target].release;
        let release = if self.rollout == Rollout::Upgrade { Release::New } else { has };
        let can_start = self.world.reaches(self.state, self.who, target) && cluster.is_own(target);
        // Its machine may have booted by itself, with what it had before.
        match cluster.runs(target) {
            true if has != release => Some(self.to(Act::Pass, target, Stage::Checked, before)),
            true => Some(self.to(Act::Pass, target, Stage::Up, before)),
            false => can_start.then(|| self.to(Act::Start(target, release), target, Stage::Up, before)),
        }
    }

    fn end(&self, target: Slot, before: List) -> Option<Step> {
        // Without gates `etcd_service` itself waits until the member is healthy.
        let is_healthy = self.rollout.has_gates() || self.state.cluster.serves(target);
        let turn = if self.rollout == Rollout::Upgrade { Turn::Begin } else { Turn::Over };
        let is_over = is_healthy && self.pass(Gate::After, Some(target), Some(before));
        is_over.then(|| Step::pass(Run::Rollout(self.rollout, turn)))
    }
}

enum Bootstrap {
    /// The data folders of all members were read, and are empty.
    Begin,
    Exists,
    /// Some are empty, and some are not, or were not read.
    Refuse,
}
