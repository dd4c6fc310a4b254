//! The playbooks and roles that ship inside the binary, so that it works from any folder.

use include_dir::{Dir, include_dir};

use crate::playbook::{Embedded, EmbeddedTree};

static PLAYBOOKS: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/playbooks");
static ROLES: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/roles");

pub(crate) static EMBEDDED: Embedded = Embedded {
    playbooks: EmbeddedTree { name: "playbooks", root: &PLAYBOOKS },
    roles: EmbeddedTree { name: "roles", root: &ROLES },
};
