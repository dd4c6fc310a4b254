//! What happens to members without any operator.

use crate::{
    cluster::{Amiss, Data, Power},
    list::{Mask, SLOTS, Slot, has, name, with, without},
    operator::{OPERATORS, Operator, Who},
    world::State,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The machine goes off.
    Crash(Slot),
    /// It is on again, and its server starts.
    ComeBack(Slot),
    LoseDisk(Slot),
    Lag(Slot),
    CatchUp(Slot),
    /// An operator does not reach it by SSH any more.
    Cut(Who, Slot),
    /// The network parts: one operator reaches this member alone, and the other one all but this.
    Part(Slot),
    /// The operator reaches all again.
    Heal(Who),
}

impl Fault {
    /// All that may happen now.
    pub fn possible(state: &State, parts: bool, faults: &mut Vec<Self>) {
        let (left, cluster) = (&state.left, &state.cluster);
        for slot in (0..SLOTS).filter(|slot| !state.is_like_an_earlier_one(*slot)) {
            let member = &cluster.members[slot];
            let runs = cluster.runs(slot);
            let is_listed = cluster.list.has(slot);
            let all = [
                (left.crashes > 0 && is_listed && member.power != Power::Off, Self::Crash(slot)),
                (member.power == Power::Off && cluster.is_own(slot), Self::ComeBack(slot)),
                (left.losses > 0 && runs && cluster.is_voter(slot), Self::LoseDisk(slot)),
                (left.lags > 0 && cluster.serves(slot) && cluster.leader != Some(slot), Self::Lag(slot)),
                (runs && member.data == Data::Behind && cluster.can_agree(), Self::CatchUp(slot)),
            ];
            faults.extend(all.into_iter().filter(|(is_possible, _)| *is_possible).map(|(_, fault)| fault));
        }
        let is_meant = |slot: &Slot| cluster.is_voter(*slot) && !state.is_like_an_earlier_one(*slot);
        if parts {
            let is_whole = left.cuts > 0 && state.cuts == [0; OPERATORS];
            faults.extend((0..SLOTS).filter(is_meant).filter(|_| is_whole).map(Self::Part));
        }
        for who in 0..OPERATORS {
            let cut = (0..SLOTS).filter(|slot| !has(state.cuts[who], *slot)).filter(is_meant);
            faults.extend(cut.filter(|_| left.cuts > 0 && !parts).map(|slot| Self::Cut(who, slot)));
            // While both have a lock, neither gets the locks of the hosts that the other has.
            let are_both = state.operators.iter().all(Operator::works);
            if state.cuts[who] != 0 && !are_both {
                faults.push(Self::Heal(who));
            }
        }
    }

    pub fn happens(self, state: &State) -> State {
        let mut next = state.clone();
        let (left, cluster) = (&mut next.left, &mut next.cluster);
        match self {
            Self::Crash(slot) => {
                left.crashes -= 1;
                cluster.stop(slot, Power::Off, Amiss::Fault);
                // It was in a folder that does not survive.
                cluster.members[slot].is_joining = false;
            }
            Self::ComeBack(slot) => cluster.start(slot),
            Self::LoseDisk(slot) => {
                left.losses -= 1;
                cluster.stop(slot, Power::Stopped, Amiss::Fault);
                cluster.members[slot].data = Data::Lost;
            }
            Self::Lag(slot) => {
                left.lags -= 1;
                (cluster.members[slot].data, cluster.members[slot].amiss) = (Data::Behind, Amiss::Fault);
            }
            Self::CatchUp(slot) => {
                cluster.members[slot].data = Data::Current;
                if cluster.is_voter(slot) {
                    cluster.members[slot].amiss = Amiss::Nothing;
                }
            }
            Self::Cut(who, slot) => {
                left.cuts -= 1;
                next.cuts[who] = with(next.cuts[who], slot);
            }
            Self::Part(slot) => {
                left.cuts -= 1;
                next.cuts = [with(0, slot), without(Mask::MAX, slot)];
            }
            Self::Heal(who) => next.cuts[who] = 0,
        }
        next.cluster.settle();
        next
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::Crash(slot) => write!(f, "the machine of {} goes off", name(slot)),
            Self::ComeBack(slot) => write!(f, "{} comes back", name(slot)),
            Self::LoseDisk(slot) => write!(f, "{} loses its disk", name(slot)),
            Self::Lag(slot) => write!(f, "{} falls behind", name(slot)),
            Self::CatchUp(slot) => write!(f, "{} catches up", name(slot)),
            Self::Cut(who, slot) => write!(f, "operator {} does not reach {} any more", who + 1, name(slot)),
            Self::Part(slot) => write!(f, "operator 2 reaches {0} alone, and operator 1 all but {0}", name(slot)),
            Self::Heal(who) => write!(f, "operator {} reaches all again", who + 1),
        }
    }
}
