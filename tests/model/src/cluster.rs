//! The cluster itself: its members, the list of them that is agreed on, and what etcd does without being asked.

use std::fmt;

use crate::list::{Call, Entry, List, SLOTS, Slot, name};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Power {
    Runs,
    /// Its server is stopped, and its host can be reached.
    Stopped,
    /// Its machine is off.
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Data {
    /// All that was agreed on.
    Current,
    /// So far behind that a linearizable read through it is not answered in time.
    Behind,
    /// None: the disk is lost, or was moved aside.
    Lost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Release {
    Old,
    New,
}

/// Why a member is no voter that serves, if it is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Amiss {
    Nothing,
    Fault,
    /// An operator has stopped it, in its turn.
    Turn,
    /// An operator has stopped it, and died.
    Abandoned,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    pub power: Power,
    pub data: Data,
    /// Whose data it has.
    pub generation: u8,
    pub release: Release,
    pub amiss: Amiss,
    /// A file says that its data is of a join that has not come to its end.
    pub is_joining: bool,
    /// The list as this member has it.
    pub knows: List,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cluster {
    pub members: [Member; SLOTS],
    /// The list that is agreed on.
    pub list: List,
    /// The last generation that was listed there.
    pub issued: [u8; SLOTS],
    pub leader: Option<Slot>,
    /// Whether the cluster version is that of the new release.
    pub is_raised: bool,
}

pub fn majority(voters: usize) -> usize {
    voters / 2 + 1
}

impl Cluster {
    /// So many voters, all of them well. The first leads.
    pub fn new(voters: usize) -> Self {
        let mut list = List::default();
        let entry = Entry { is_learner: false, generation: 0, has_started: true };
        (0..voters).for_each(|slot| list.set(slot, Some(entry)));
        let member = |slot: Slot| Member {
            power: if slot < voters { Power::Runs } else { Power::Stopped },
            data: if slot < voters { Data::Current } else { Data::Lost },
            generation: 0,
            release: Release::Old,
            amiss: Amiss::Nothing,
            is_joining: false,
            knows: list,
        };
        let members = std::array::from_fn(member);
        Self { members, list, issued: [0; SLOTS], leader: Some(0), is_raised: false }
    }

    pub fn voters(&self) -> impl Iterator<Item = Slot> {
        (0..SLOTS).filter(|slot| self.is_voter(*slot))
    }

    pub fn is_voter(&self, slot: Slot) -> bool {
        self.list.is_voter(slot)
    }

    pub fn learners(&self) -> impl Iterator<Item = Slot> {
        (0..SLOTS).filter(|slot| self.list.is_learner(*slot))
    }

    /// Whether its data is that of the member that is listed there.
    pub fn is_own(&self, slot: Slot) -> bool {
        let member = &self.members[slot];
        member.data != Data::Lost && self.list.is_of(slot, member.generation)
    }

    pub fn runs(&self, slot: Slot) -> bool {
        self.members[slot].power == Power::Runs && self.is_own(slot)
    }

    /// Whether it is a voter that others can count on.
    pub fn serves(&self, slot: Slot) -> bool {
        self.is_voter(slot) && self.runs(slot) && self.members[slot].data == Data::Current
    }

    pub fn has_quorum(&self) -> bool {
        self.voters().filter(|slot| self.serves(*slot)).count() >= majority(self.voters().count())
    }

    /// Whether enough voters run to agree on anything, once those that are behind have caught up.
    pub fn can_agree(&self) -> bool {
        self.voters().filter(|slot| self.runs(*slot)).count() >= majority(self.voters().count())
    }

    /// Whether the data of a majority is still there.
    pub fn can_be_revived(&self) -> bool {
        self.voters().filter(|slot| self.is_own(*slot)).count() >= majority(self.voters().count())
    }

    /// What etcd does by itself at once: who is removed stops, who keeps up has the list, somebody leads, and once all run the
    /// new release the cluster version is raised. Elections take no time here.
    pub fn settle(&mut self) {
        for slot in 0..SLOTS {
            if self.members[slot].power == Power::Runs && !self.is_own(slot) {
                self.members[slot].power = Power::Stopped;
            }
            // Whose data is gone differs in nothing else.
            if self.members[slot].data == Data::Lost {
                let member = &mut self.members[slot];
                (member.generation, member.release, member.knows) = (0, Release::Old, List::default());
            }
            if self.runs(slot) && self.members[slot].data == Data::Current {
                self.members[slot].knows = self.list;
            }
        }
        let first = (0..SLOTS).find(|slot| self.serves(*slot));
        self.leader = self.leader.filter(|leader| self.serves(*leader)).or(first).filter(|_| self.has_quorum());
        let is_new = |slot: Slot| self.runs(slot) && self.members[slot].release == Release::New;
        if self.has_quorum() && (0..SLOTS).filter(|slot| self.list.has(*slot)).all(is_new) {
            self.is_raised = true;
        }
    }

    /// Starts it with the data that it has. It has to catch up then. Without data it does not come up: its settings do not say that
    /// the cluster is new.
    pub fn start(&mut self, slot: Slot) {
        if self.is_own(slot) {
            (self.members[slot].power, self.members[slot].data) = (Power::Runs, Data::Behind);
        }
    }

    /// Starts it for the first time, as the member that is listed there.
    pub fn join(&mut self, slot: Slot, release: Release) {
        let Some(entry) = self.list.of(slot) else { return };
        self.list.set(slot, Some(Entry { has_started: true, ..entry }));
        let member = &mut self.members[slot];
        (member.power, member.data, member.release) = (Power::Runs, Data::Behind, release);
        (member.generation, member.knows, member.is_joining) = (entry.generation, self.list, true);
    }

    /// It goes down, with its data.
    pub fn stop(&mut self, slot: Slot, power: Power, amiss: Amiss) {
        let member = &mut self.members[slot];
        (member.power, member.amiss) = (power, amiss);
        if member.data == Data::Behind {
            member.data = Data::Current;
        }
    }

    /// Its server is stopped, or its guest is powered off and made anew; its data is aside.
    pub fn retire(&mut self, slot: Slot) {
        let member = &mut self.members[slot];
        (member.power, member.data, member.is_joining) = (Power::Stopped, Data::Lost, false);
    }

    /// The changes of the list that etcd itself refuses: more than one learner, and with `strict-reconfig-check` what would leave
    /// too few of those that it is connected to.
    pub fn etcd_refuses(&self, call: Call) -> bool {
        let connected = self.voters().filter(|slot| self.runs(*slot)).count();
        match call {
            Call::Add { .. } => self.learners().next().is_some() || connected < self.voters().count(),
            Call::Promote { .. } => false,
            Call::Remove { slot, .. } if !self.is_voter(slot) || !self.runs(slot) => false,
            Call::Remove { .. } => connected < majority(self.voters().count() - 1) + 1,
        }
    }

    /// What a call does that has come through. A majority has to agree to it.
    pub fn perform(&mut self, call: Call) {
        match call {
            Call::Add { slot, is_learner } => {
                self.issued[slot] += 1;
                let entry = Entry { is_learner, generation: self.issued[slot], has_started: false };
                self.list.set(slot, Some(entry));
            }
            Call::Promote { slot, generation } => {
                if let Some(entry) = self.list.of(slot).filter(|entry| entry.generation == generation) {
                    self.list.set(slot, Some(Entry { is_learner: false, ..entry }));
                }
            }
            Call::Remove { slot, generation } => {
                self.list.set(slot, self.list.of(slot).filter(|entry| entry.generation != generation));
            }
        }
    }
}

impl fmt::Display for Cluster {
    /// Who is listed, and how each is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = |slot: Slot| {
            let entry = self.list.of(slot)?;
            let member = &self.members[slot];
            let how = match (member.power, member.data) {
                _ if !self.is_own(slot) => "has no data",
                (Power::Runs, Data::Current) => "serves",
                (Power::Runs, _) => "is behind",
                (Power::Stopped, _) => "is stopped",
                (Power::Off, _) => "is off",
            };
            let learner = if entry.is_learner { " (learner)" } else { "" };
            Some(format!("{}{learner} {how}", name(slot)))
        };
        let all: Vec<String> = (0..SLOTS).filter_map(one).collect();
        let quorum = if self.has_quorum() { "" } else { "; no quorum" };
        write!(f, "{}{quorum}", all.join(", "))
    }
}
