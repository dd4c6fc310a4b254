//! What a person asks for, and why it may not be.

/// What is to happen to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Add,
    Remove,
    Replace,
    /// A living member goes to another hypervisor.
    Move,
    Restart,
}

/// What was asked for.
#[derive(Clone, Debug)]
pub struct Request {
    pub verb: Verb,
    /// The member that goes, or is restarted; nothing if one is added.
    pub old: Option<String>,
    pub new_name: Option<String>,
    /// The hypervisor of the new one.
    pub to: Option<String>,
    /// The address of the new one.
    pub ip: Option<String>,
    pub fence_unreachable: bool,
    pub snapshot: bool,
    pub allow_outage: bool,
}

/// Why something is not done, and what to do instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// What was asked for makes no sense with this inventory.
    #[error("{message}")]
    Input { message: String, help: Option<String> },
    /// It makes sense, and the state of the cluster forbids it.
    #[error("{message}")]
    Gate { message: String, help: Option<String> },
}

impl Refusal {
    pub fn input(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self::Input { message: message.into(), help: Some(help.into()).filter(|help| !help.is_empty()) }
    }

    pub fn gate(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self::Gate { message: message.into(), help: Some(help.into()).filter(|help| !help.is_empty()) }
    }
}
