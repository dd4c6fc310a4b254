//! A library for tests: two modules, a quorum, and the playbooks and roles of the binary; and what runs on it without a host.

use std::{
    path::Path,
    sync::{Arc, mpsc},
    time::Duration,
};

use include_dir::{Dir, include_dir};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    compile::{CompileOptions, compile},
    execute::{Interrupt, Run, RunOptions},
    inventory::{self, Inventory},
    model::{Effects, Emitter, Event, Outcome},
    playbook::{self, Embedded, EmbeddedTree, LoadOptions, Place, PlaybookSource},
    remote::{Payload, Transport},
    source::{Diagnostics, Sources},
    ssh::{Connector, Options},
    state::{Recorder, StateError},
    task::{Action, BuildContext, Library, Module, ModuleError, ModuleSpec, Question, Quorum, Word},
};

static PLAYBOOKS: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../../playbooks");
static ROLES: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../../roles");

pub(crate) static EMBEDDED: Embedded = Embedded {
    playbooks: EmbeddedTree { name: "playbooks", root: &PLAYBOOKS },
    roles: EmbeddedTree { name: "roles", root: &ROLES },
};

static MODULES: [ModuleSpec; 2] = [ModuleSpec::of::<Command>(), ModuleSpec::of::<Say>()];

pub(crate) fn library() -> Library {
    Library { modules: &MODULES, quorum: &OneUnit, embedded: EMBEDDED }
}

/// Clusters of `etcd.service`, all of them formed unless they are called `new`.
pub(crate) struct OneUnit;

impl Quorum for OneUnit {
    fn unit(&self) -> &'static str {
        "etcd.service"
    }

    fn way_out(&self) -> &'static str {
        "use a rollout"
    }

    fn is_formed(&self, _: &Path, cluster: &str) -> bool {
        cluster != "new"
    }

    fn keep_turn(&self, _: &Path, _: &str, _: Duration) -> Result<(), StateError> {
        Ok(())
    }

    fn before_stop(&self, members: &[&str], all: &[&str], _: bool) -> Vec<Question> {
        let args = || all.iter().map(|name| ("msg", Word::One((*name).to_owned()))).collect();
        members.iter().map(|name| Question { module: &MODULES[1], member: (*name).to_owned(), args: args() }).collect()
    }
}

/// Three members on hypervisors of their own, two on one, and a host.
pub(crate) const FLEET: &str = "
hypervisors: { kvm1: { address: 10.0.0.1 }, kvm2: { address: 10.0.0.2 }, kvm3: { address: 10.0.0.3 } }
hosts: { plain: {} }
clusters:
  prod:
    members:
      m1: { address: 10.0.1.1, hypervisor: kvm1 }
      m2: { address: 10.0.1.2, hypervisor: kvm2 }
      m3: { address: 10.0.1.3, hypervisor: kvm3 }
  new:
    allow_colocation: true
    members:
      n1: { address: 10.0.2.1, hypervisor: kvm1 }
      n2: { address: 10.0.2.2, hypervisor: kvm1 }
";

pub(crate) fn inventory(text: &str) -> Arc<Inventory> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("inventory.yaml");
    std::fs::write(&file, text).unwrap();
    let (mut sources, mut diagnostics) = (Sources::default(), Diagnostics::default());
    let inventory = inventory::load(&[file], &mut sources, &mut diagnostics);
    assert!(!diagnostics.has_errors(), "{:?}", diagnostics.iter().collect::<Vec<_>>());
    Arc::new(inventory)
}

/// A run of a playbook that no host hears of.
pub(crate) fn run(inventory: &Arc<Inventory>, playbook: &str) -> (Run, mpsc::Receiver<Event>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("play.yaml");
    std::fs::write(&file, playbook).unwrap();
    let (mut sources, mut diagnostics) = (Sources::default(), Diagnostics::default());
    let source = PlaybookSource { place: Place::disk(file) };
    let playbook = playbook::load(&source, &LoadOptions::new(library()), &mut sources, &mut diagnostics);
    let graph = compile(inventory, &playbook, &CompileOptions::default(), &mut sources, &mut diagnostics);
    let graph = graph.unwrap_or_else(|| panic!("{:?}", diagnostics.iter().collect::<Vec<_>>()));
    let (emitter, events) = Emitter::channel();
    let run = Run {
        graph: Arc::new(graph),
        inventory: inventory.clone(),
        sources: Arc::new(sources),
        connector: Connector::new(Options { config_file: Some("/dev/null".into()), ..Options::default() }).unwrap(),
        options: RunOptions { transport: Transport::Nowhere, ..RunOptions::default() },
        emitter,
        interrupt: Interrupt::default(),
        recorder: Recorder::none(),
        scope: Arc::default(),
    };
    (run, events)
}

/// Ends as its arguments say.
#[derive(Deserialize, JsonSchema)]
struct Say {
    /// Whether it fails.
    #[serde(default)]
    fail: bool,
    /// Whether it changes something.
    #[serde(default)]
    change: bool,
    /// Whether what it sees may be different later.
    #[serde(default)]
    perishable: bool,
}

impl Module for Say {
    const NAME: &'static str = "say";
    const EXAMPLE: &'static str = "";

    fn effects(&self) -> Effects {
        Effects { perishable: self.perishable, ..Effects::converging() }
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        let Self { fail, change, .. } = self;
        Ok(Action::Done(Box::new(Outcome { failed: fail, changed: change, ..Outcome::ok() })))
    }
}

/// A command that may do anything.
#[derive(Deserialize, JsonSchema)]
struct Command {
    #[expect(dead_code, reason = "it is never run")]
    argv: Vec<String>,
}

impl Module for Command {
    const NAME: &'static str = "command";
    const EXAMPLE: &'static str = "";

    fn effects(&self) -> Effects {
        Effects::opaque()
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        Ok(Action::Remote(Payload::new("true")))
    }
}
