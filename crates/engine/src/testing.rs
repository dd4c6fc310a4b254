//! A library for tests: one module, and the playbooks and roles of the binary.

use include_dir::{Dir, include_dir};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    model::{Effects, Outcome},
    playbook::{Embedded, EmbeddedTree},
    task::{Action, BuildContext, Library, Module, ModuleError, ModuleSpec},
};

static PLAYBOOKS: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../../playbooks");
static ROLES: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../../roles");

pub(crate) static EMBEDDED: Embedded = Embedded {
    playbooks: EmbeddedTree { name: "playbooks", root: &PLAYBOOKS },
    roles: EmbeddedTree { name: "roles", root: &ROLES },
};

static MODULES: [ModuleSpec; 1] = [ModuleSpec::of::<Command>()];

pub(crate) fn library() -> Library {
    Library { modules: &MODULES, embedded: EMBEDDED, ..Library::default() }
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
        Ok(Action::Done(Box::new(Outcome::ok())))
    }
}
