//! What must never happen, whatever fails.

use crate::{
    cluster::{Amiss, Cluster},
    list::Call,
    operator::Act,
    world::{State, World},
};
use stateright::Property;

/// What a step of an operator has broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Promise {
    /// There was a quorum right before the step, and none right after it.
    QuorumTaken,
    /// A member that serves was removed or stopped for good because it was thought dead, or a leftover.
    ServingMemberTaken,
    /// A voter that had started starts again without its data, so that it may vote twice.
    EmptyVoter,
    /// The list was changed while a learner of another change is in it.
    TwoChanges,
}

/// What a step meant to do to a member that serves, if anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// It leaves, and is known to serve.
    KnownToServe,
    Other,
}

impl Promise {
    /// What the step has broken, if it has broken something.
    pub fn broken(before: &Cluster, act: Act, intent: Intent, after: &Cluster) -> Option<Self> {
        let is_taken = |slot| intent != Intent::KnownToServe && before.serves(slot);
        let others_learn = |slot| before.learners().any(|learner| learner != slot);
        match act {
            Act::Retire(slot) | Act::Call(Call::Remove { slot, .. }) if is_taken(slot) => {
                Some(Self::ServingMemberTaken)
            }
            Act::Join(slot, _)
                if before.is_voter(slot) && before.list.of(slot).is_some_and(|entry| entry.has_started) =>
            {
                Some(Self::EmptyVoter)
            }
            Act::Call(call) if before.list != after.list && others_learn(call.slot()) => Some(Self::TwoChanges),
            _ if before.has_quorum() && !after.has_quorum() => Some(Self::QuorumTaken),
            _ => None,
        }
    }
}

impl State {
    /// Members that faults have cost, and have not given back: also what an operator left behind who died.
    fn faults(&self) -> usize {
        self.count(&[Amiss::Fault, Amiss::Abandoned])
    }

    fn count(&self, kinds: &[Amiss]) -> usize {
        self.cluster.members.iter().filter(|member| kinds.contains(&member.amiss)).count()
    }

    /// Whether the quorum is there that faults and one turn leave. As many members as persons want tolerate less than half of them.
    pub fn keeps_what_faults_leave(&self, voters: usize) -> bool {
        let wanted = voters - self.leaving.count_ones() as usize;
        let tolerated = wanted.saturating_sub(1) / 2;
        let cost = self.faults() + self.count(&[Amiss::Turn]);
        cost > tolerated || self.cluster.has_quorum()
    }

    /// Voters that operators have stopped.
    fn stopped_by_hand(&self) -> usize {
        let by_hand = |slot: &usize| matches!(self.cluster.members[*slot].amiss, Amiss::Turn | Amiss::Abandoned);
        self.cluster.voters().filter(by_hand).filter(|slot| !self.cluster.runs(*slot)).count()
    }
}

pub const QUORUM_TAKEN: &str = "no step takes a quorum that was there right before it";
pub const BUDGET: &str = "no quorum is lost that faults, and one member in its turn, would leave";
pub const ONE_DOWN: &str = "operators have at most one voter down";
pub const SERVING: &str = "no member that serves is taken for a dead one";
pub const ONE_CLUSTER: &str = "there is one cluster";
pub const EMPTY_VOTER: &str = "no voter starts again without its data";
pub const ONE_CHANGE: &str = "at most one change of voters is under way";

pub fn properties() -> Vec<Property<World>> {
    vec![
        Property::always(QUORUM_TAKEN, |_, state: &State| state.broken != Some(Promise::QuorumTaken)),
        Property::always(BUDGET, |world: &World, state: &State| state.keeps_what_faults_leave(world.scope.voters)),
        Property::always(ONE_DOWN, |_, state: &State| state.stopped_by_hand() <= 1),
        Property::always(SERVING, |_, state: &State| state.broken != Some(Promise::ServingMemberTaken)),
        Property::always(ONE_CLUSTER, |_, state: &State| !state.has_second_cluster),
        Property::always(EMPTY_VOTER, |_, state: &State| state.broken != Some(Promise::EmptyVoter)),
        Property::always(ONE_CHANGE, |_, state: &State| {
            state.broken != Some(Promise::TwoChanges) && state.cluster.learners().count() <= 1
        }),
    ]
}
