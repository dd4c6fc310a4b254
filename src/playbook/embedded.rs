//! The playbooks and roles that ship inside the binary, so that it works from any folder.

use include_dir::{Dir, include_dir};

use super::place::EmbeddedTree;

static PLAYBOOKS: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/playbooks");
static ROLES: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/roles");

/// What was embedded at build time.
#[derive(Clone, Copy)]
pub struct Embedded {
    pub playbooks: EmbeddedTree,
    pub roles: EmbeddedTree,
}

pub static EMBEDDED: Embedded = Embedded {
    playbooks: EmbeddedTree { name: "playbooks", root: &PLAYBOOKS },
    roles: EmbeddedTree { name: "roles", root: &ROLES },
};
