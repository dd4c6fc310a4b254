//! What a task may do to its target, said before it runs.

/// Whether a task can take a service or a machine down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Disruption {
    #[default]
    No,
    Maybe,
    Yes,
}

/// A module's statement about one call with given arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Changes nothing, so it also runs in check mode.
    pub read_only: bool,
    /// What it does cannot be known without running it (raw commands).
    pub opaque: bool,
    pub disrupts: Disruption,
}

impl Effects {
    /// A module that looks before it changes and can predict the change.
    pub fn converging() -> Self {
        Self::default()
    }

    pub fn read_only() -> Self {
        Self { read_only: true, ..Self::default() }
    }

    pub fn opaque() -> Self {
        Self { opaque: true, disrupts: Disruption::Maybe, ..Self::default() }
    }

    pub fn disrupting(self, disrupts: Disruption) -> Self {
        Self { disrupts, ..self }
    }
}
