//! What must never happen, whatever fails.

use crate::{
    cluster::{Amiss, Cluster, Release},
    list::{Call, Slot, has, slots},
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

    /// How many voters persons want, of those that were there at first.
    fn wanted(&self, voters: usize) -> usize {
        voters - self.leaving.count_ones() as usize
    }

    fn has_all_votes_but_faults(&self, voters: usize) -> bool {
        self.cluster.voters().count() + self.faults() >= self.wanted(voters)
    }

    /// Whether the quorum is there that faults and one turn leave. As many members as persons want tolerate less than half of them.
    fn keeps_what_faults_leave(&self, voters: usize) -> bool {
        let tolerated = self.wanted(voters).saturating_sub(1) / 2;
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
pub const VOTES: &str = "no vote is missing that neither a fault nor a person took";
pub const ONE_DOWN: &str = "operators have at most one voter down";
pub const SERVING: &str = "no member that serves is taken for a dead one";
pub const ONE_CLUSTER: &str = "there is one cluster";
pub const EMPTY_VOTER: &str = "no voter starts again without its data";
pub const ONE_CHANGE: &str = "at most one change of voters is under way";

/// What should be reachable: the model would keep every promise if nothing ever came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// All members run the new release.
    Upgraded,
    /// A failed member was rebuilt under its name.
    Rebuilt,
    /// Another member has taken the place of one.
    Moved,
    /// A member was removed for good.
    Shrunk,
    /// All disks were lost, and a new cluster was begun.
    Begun,
}

impl Goal {
    pub const ALL: [Self; 5] = [Self::Upgraded, Self::Rebuilt, Self::Moved, Self::Shrunk, Self::Begun];

    pub fn name(self) -> &'static str {
        match self {
            Self::Upgraded => "a rollout comes to its end",
            Self::Rebuilt => "a failed member is rebuilt",
            Self::Moved => "a member is replaced by another",
            Self::Shrunk => "a member is removed for good",
            Self::Begun => "a new cluster is begun",
        }
    }

    fn property(self) -> Property<World> {
        let condition: fn(&World, &State) -> bool = match self {
            Self::Upgraded => |_, state| state.is_idle() && state.runs_only(Release::New),
            Self::Rebuilt => {
                |world, state| state.is_idle() && (0..world.scope.voters).any(|slot| state.was_rebuilt(slot))
            }
            Self::Moved => |world, state| state.is_idle() && has(state.inventory, world.scope.voters),
            Self::Shrunk => |world, state| (state.inventory.count_ones() as usize) < world.scope.voters,
            Self::Begun => |_, state| state.has_begun_anew,
        };
        Property::sometimes(self.name(), condition)
    }
}

impl State {
    fn is_idle(&self) -> bool {
        self.operators.iter().all(|operator| operator.run.is_none())
    }

    fn runs_only(&self, release: Release) -> bool {
        slots(self.inventory).all(|slot| self.cluster.serves(slot) && self.cluster.members[slot].release == release)
    }

    fn was_rebuilt(&self, slot: Slot) -> bool {
        self.cluster.serves(slot) && self.cluster.members[slot].generation > 0
    }
}

pub fn properties() -> Vec<Property<World>> {
    let promises = vec![
        Property::always(QUORUM_TAKEN, |_, state: &State| state.broken != Some(Promise::QuorumTaken)),
        Property::always(BUDGET, |world: &World, state: &State| state.keeps_what_faults_leave(world.scope.voters)),
        Property::always(ONE_DOWN, |_, state: &State| state.stopped_by_hand() <= 1),
        Property::always(SERVING, |_, state: &State| state.broken != Some(Promise::ServingMemberTaken)),
        Property::always(ONE_CLUSTER, |_, state: &State| !state.has_second_cluster),
        Property::always(EMPTY_VOTER, |_, state: &State| state.broken != Some(Promise::EmptyVoter)),
        Property::always(ONE_CHANGE, |_, state: &State| {
            state.broken != Some(Promise::TwoChanges) && state.cluster.learners().count() <= 1
        }),
        Property::always(VOTES, |world: &World, state: &State| state.has_all_votes_but_faults(world.scope.voters)),
    ];
    promises.into_iter().chain(Goal::ALL.map(Goal::property)).collect()
}
