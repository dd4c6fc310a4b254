//! Operators: what each has begun, how far it is, and what its next step does.

use std::fmt;

use crate::{
    change::{Change, Point},
    cluster::{Amiss, Power, Release, majority},
    list::{Call, Mask, Slot, name, slots, with},
    rollout::{Rollout, Turn},
    world::{State, World},
};

/// Who acts. There are two, so that one can hold an old decision while the other changes the cluster.
pub type Who = usize;
pub const OPERATORS: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operator {
    pub run: Option<Run>,
    pub life: Life,
}

impl Operator {
    pub const IDLE: Self = Self { run: None, life: Life::Works };

    pub fn works(&self) -> bool {
        self.run.is_some() && self.life == Life::Works
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Life {
    Works,
    /// Its run can be resumed, with what it had decided.
    Died,
    /// It has looked at its lock, and hangs before it makes this call. Meanwhile the lock was broken.
    Hangs(Pending),
}

/// A call that etcd has not got yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pending {
    pub call: Call,
    pub meant: Meant,
}

/// What was begun, and how far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Run {
    Rollout(Rollout, Turn),
    Change(Change, Point),
}

/// What a step does to the cluster. The checks in front of it have passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    /// Only a gate is passed, or there is nothing left to do.
    Pass,
    Stop(Slot),
    /// It starts with the data that it has.
    Start(Slot, Release),
    /// It starts for the first time, as the member that is listed.
    Join(Slot, Release),
    /// It is stopped for good, and its data is moved aside.
    Retire(Slot),
    Call(Call),
    /// The initial settings are removed: the join has come to its end.
    Forget(Slot),
    /// Members start as a cluster of their own.
    Found,
}

/// What persons want by a change of the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Meant {
    /// One whose vote is not missed any more: another has it, or nobody should.
    pub is_settled: Option<Slot>,
    /// One that leaves for good, so that the cluster is smaller.
    pub leaves: Option<Slot>,
}

/// A step: what it does, and where the run is then. Nothing if it has come to its end.
pub struct Step {
    pub act: Act,
    pub then: Option<Run>,
    pub meant: Meant,
    /// What becomes of the inventory.
    pub inventory: Option<Mask>,
}

impl Step {
    pub fn new(act: Act, then: Option<Run>) -> Self {
        Self { act, then, meant: Meant::default(), inventory: None }
    }

    pub fn pass(then: Run) -> Self {
        Self::new(Act::Pass, Some(then))
    }
}

impl World {
    /// The next step of an operator who works, if the rules admit it.
    pub fn step(&self, state: &State, who: Who) -> Option<Step> {
        match state.operators[who].run? {
            Run::Rollout(rollout, turn) => self.rollout_step(state, who, rollout, turn),
            Run::Change(change, point) => self.change_step(state, who, change, point),
        }
    }

    /// Whether a run may begin or go on: the lock of the cluster is free. An operator who reaches few members gets it from
    /// hypervisors, if none of those members has granted it to another one.
    pub fn gets_lock(&self, state: &State, who: Who) -> bool {
        let reached = |who: Who| state.inventory & !state.cuts[who];
        let few = slots(reached(who)).count() < majority(state.inventory.count_ones() as usize);
        let may_both = |other: Who| self.scope.has_two_locks && few && reached(who) & reached(other) == 0;
        (0..OPERATORS).all(|other| other == who || !state.operators[other].works() || may_both(other))
    }

    /// What comes of a step; nothing if etcd refuses the call.
    pub fn perform(&self, state: &State, who: Who, step: Step) -> Option<State> {
        let mut next = state.clone();
        let cluster = &mut next.cluster;
        match step.act {
            Act::Pass => {}
            Act::Stop(slot) => cluster.stop(slot, Power::Stopped, Amiss::Turn),
            Act::Start(slot, release) => {
                cluster.members[slot].release = release;
                cluster.start(slot);
            }
            Act::Join(slot, release) => cluster.join(slot, release),
            Act::Retire(slot) => cluster.retire(slot),
            Act::Forget(slot) => cluster.members[slot].is_joining = false,
            Act::Found => (next.has_begun_anew, next.has_second_cluster) = (true, state.cluster.can_be_revived()),
            Act::Call(call) if self.is_taken(state, call) => next.land(call),
            Act::Call(_) => return None,
        }
        next.mean(step.meant);
        next.cluster.settle();
        next.inventory = step.inventory.unwrap_or(next.inventory);
        next.operators[who].run = step.then;
        Some(next)
    }

    /// Whether etcd does what it is asked to: a majority agrees, and etcd has nothing against it.
    pub fn is_taken(&self, state: &State, call: Call) -> bool {
        // One address is listed once.
        let is_listed = matches!(call, Call::Add { slot, .. } if state.cluster.list.has(slot));
        let is_refused = is_listed || (self.scope.etcd_checks && state.cluster.etcd_refuses(call));
        state.cluster.has_quorum() && !is_refused
    }
}

impl State {
    /// A call has come through.
    pub fn land(&mut self, call: Call) {
        self.cluster.perform(call);
        let slot = call.slot();
        if matches!(call, Call::Promote { .. }) && self.cluster.serves(slot) {
            self.cluster.members[slot].amiss = Amiss::Nothing;
        }
    }

    pub fn mean(&mut self, meant: Meant) {
        if let Some(slot) = meant.is_settled {
            self.cluster.members[slot].amiss = Amiss::Nothing;
        }
        self.leaving = meant.leaves.map_or(self.leaving, |slot| with(self.leaving, slot));
    }

    /// The run of an operator dies. What it has stopped stays as it is.
    pub fn kill(&mut self, who: Who) {
        self.operators[who].life = Life::Died;
        for member in &mut self.cluster.members {
            if member.amiss == Amiss::Turn {
                member.amiss = Amiss::Abandoned;
            }
        }
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Pass => write!(f, "passes"),
            Self::Stop(slot) => write!(f, "stops {}", name(slot)),
            Self::Start(slot, _) => write!(f, "starts {}", name(slot)),
            Self::Join(slot, _) => write!(f, "starts {} for the first time", name(slot)),
            Self::Retire(slot) => write!(f, "stops {} for good and moves its data aside", name(slot)),
            Self::Forget(slot) => write!(f, "removes the initial settings of {}", name(slot)),
            Self::Found => write!(f, "begins a new cluster"),
            Self::Call(call) => write!(f, "{call}"),
        }
    }
}
