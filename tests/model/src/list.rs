//! Places for members, and etcd's list of them.

use std::fmt;

/// A place for a member. The name belongs to the place, so a member that is rebuilt has the name of the one before it.
pub type Slot = usize;
/// Some slots, a bit each.
pub type Mask = u8;

/// Five voters, and one that comes.
pub const SLOTS: usize = 6;

pub fn name(slot: Slot) -> String {
    char::from(b'a' + u8::try_from(slot).unwrap_or_default()).to_string()
}

pub fn has(mask: Mask, slot: Slot) -> bool {
    mask & (1 << slot) != 0
}

pub fn with(mask: Mask, slot: Slot) -> Mask {
    mask | (1 << slot)
}

pub fn without(mask: Mask, slot: Slot) -> Mask {
    mask & !(1 << slot)
}

pub fn slots(mask: Mask) -> impl Iterator<Item = Slot> + Clone {
    (0..SLOTS).filter(move |slot| has(mask, *slot))
}

/// A member, as the list has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub is_learner: bool,
    /// Tells a member from others of its name: each has an id of its own.
    pub generation: u8,
    /// etcd knows its name only then.
    pub has_started: bool,
}

/// Who belongs to the cluster. A byte each, since there are many lists in a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct List([u8; SLOTS]);

const LISTED: u8 = 1 << 7;
const LEARNER: u8 = 1 << 6;
const STARTED: u8 = 1 << 5;

impl List {
    pub fn of(&self, slot: Slot) -> Option<Entry> {
        let byte = self.0[slot];
        (byte & LISTED != 0).then_some(Entry {
            is_learner: byte & LEARNER != 0,
            generation: byte & (STARTED - 1),
            has_started: byte & STARTED != 0,
        })
    }

    pub fn set(&mut self, slot: Slot, entry: Option<Entry>) {
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        self.0[slot] = entry.map_or(0, |entry| {
            LISTED | flag(entry.is_learner, LEARNER) | flag(entry.has_started, STARTED) | entry.generation
        });
    }

    pub fn has(&self, slot: Slot) -> bool {
        self.0[slot] & LISTED != 0
    }

    pub fn mask(&self) -> Mask {
        (0..SLOTS).filter(|slot| self.has(*slot)).fold(0, with)
    }

    pub fn is_voter(&self, slot: Slot) -> bool {
        self.0[slot] & (LISTED | LEARNER) == LISTED
    }

    pub fn is_learner(&self, slot: Slot) -> bool {
        self.0[slot] & LEARNER != 0
    }

    /// Whether it is listed there, of this generation.
    pub fn is_of(&self, slot: Slot, generation: u8) -> bool {
        self.has(slot) && self.0[slot] & (STARTED - 1) == generation
    }

    /// Whether both are listed alike.
    pub fn is_same(&self, one: Slot, other: Slot) -> bool {
        self.0[one] == self.0[other]
    }
}

/// What etcd is asked to do with its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    Add { slot: Slot, is_learner: bool },
    Promote { slot: Slot, generation: u8 },
    Remove { slot: Slot, generation: u8 },
}

impl Call {
    pub fn slot(self) -> Slot {
        let (Self::Add { slot, .. } | Self::Promote { slot, .. } | Self::Remove { slot, .. }) = self;
        slot
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Add { slot, is_learner: true } => write!(f, "adds {} as a learner", name(slot)),
            Self::Add { slot, is_learner: false } => write!(f, "adds {} as a voter", name(slot)),
            Self::Promote { slot, .. } => write!(f, "promotes {}", name(slot)),
            Self::Remove { slot, .. } => write!(f, "removes {} from the list", name(slot)),
        }
    }
}
