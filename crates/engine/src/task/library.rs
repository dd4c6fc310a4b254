//! What is plugged into the engine.

use std::{fmt, path::Path, time::Duration};

use include_dir::Dir;

use super::{ModuleSpec, Sets};
use crate::{
    playbook::{Embedded, EmbeddedTree},
    state::StateError,
};

/// The modules that tasks call, the rules by which clusters keep their quorum, and the playbooks and roles that need no file.
#[derive(Clone, Copy)]
pub struct Library {
    /// By name.
    pub modules: &'static [ModuleSpec],
    pub quorum: &'static dyn Quorum,
    pub embedded: Embedded,
}

impl Library {
    pub fn find(&self, name: &str) -> Option<&'static ModuleSpec> {
        self.modules.iter().find(|module| module.name == name)
    }

    pub fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.modules.iter().map(|module| module.name)
    }

    /// The module that gathers facts, with their fields.
    pub fn facts(&self) -> Option<(&'static ModuleSpec, &'static [&'static str])> {
        self.modules.iter().find_map(|module| match module.traits.sets {
            Sets::Facts(fields) => Some((module, fields)),
            _ => None,
        })
    }
}

/// Nothing is plugged in: enough for a graph without tasks.
impl Default for Library {
    fn default() -> Self {
        static NOTHING: Dir<'static> = Dir::new("", &[]);
        let empty = |name| EmbeddedTree { name, root: &NOTHING };
        let embedded = Embedded { playbooks: empty("playbooks"), roles: empty("roles") };
        Self { modules: &[], quorum: &NoQuorum, embedded }
    }
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

/// What a run has to know of servers that form clusters, so that no cluster loses its quorum. The engine knows which hosts are members
/// and whose turn it is; what runs on them, it asks here.
pub trait Quorum: Send + Sync {
    /// The systemd unit of a member's server.
    fn unit(&self) -> &'static str;

    /// What to do in place of taking a member down outside of its turn.
    fn way_out(&self) -> &'static str;

    /// Whether a cluster of this name was formed from this state folder. In doubt, it was.
    fn is_formed(&self, state: &Path, cluster: &str) -> bool;

    /// Keeps how long the longest turn of a rollout took, for the next plan.
    fn keep_turn(&self, state: &Path, cluster: &str, longest: Duration) -> Result<(), StateError>;

    /// What to ask right before these members of one cluster go down, each of them before the next. `all` are the members of every
    /// cluster that go down with them.
    fn before_stop(&self, members: &[&str], all: &[&str], allow_outage: bool) -> Vec<Question>;
}

/// A call of a module for the cluster of a member. Its failure is a refusal.
pub struct Question {
    pub module: &'static ModuleSpec,
    pub member: String,
    pub args: Vec<(&'static str, Word)>,
}

/// An argument, which may be a template.
pub enum Word {
    One(String),
    List(Vec<String>),
}

struct NoQuorum;

impl Quorum for NoQuorum {
    fn unit(&self) -> &'static str {
        ""
    }

    fn way_out(&self) -> &'static str {
        ""
    }

    fn is_formed(&self, _: &Path, _: &str) -> bool {
        true
    }

    fn keep_turn(&self, _: &Path, _: &str, _: Duration) -> Result<(), StateError> {
        Ok(())
    }

    fn before_stop(&self, _: &[&str], _: &[&str], _: bool) -> Vec<Question> {
        Vec::new()
    }
}
