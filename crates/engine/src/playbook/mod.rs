//! Playbooks and roles, loaded and typed; imports and roles are expanded here.
//!
//! In: a playbook path and the search path for roles. Out: `Playbook`, whose shape is final: every
//! import is read, every role expanded, every keyword typed, every module argument checked.
//! Reads files and nothing else.

mod ansible;
mod arguments;
mod call;
mod context;
mod find;
mod handlers;
mod include;
mod keywords;
mod loader;
mod meta;
mod place;
mod play;
mod query;
mod role;
mod rollout;
mod schema;
mod secrets;
mod task;
mod templates;
mod types;

pub use find::{PlaybookSource, embedded_name, find, hidden, is_embedded_name};
pub use loader::LoadOptions;
pub use meta::meta_schema;
pub use place::{Embedded, EmbeddedTree, Place};
pub use rollout::{OnTurnFailure, Rollout, RolloutSettings, Strategy, StrategyAnswer, TurnsOf, in_step};
pub use schema::schema;
pub use secrets::{Lookup, secrets_in_environment};
pub use types::*;

use crate::source::{Diagnostics, Sources, parse};

/// Reads a playbook and everything it imports. All problems go to `diagnostics`; what could be read
/// comes back all the same, so that more can be said about it at once.
pub fn load(
    source: &PlaybookSource,
    options: &LoadOptions,
    sources: &mut Sources,
    diagnostics: &mut Diagnostics,
) -> Playbook {
    let mut found = Diagnostics::default();
    let plays = loader::Loader::new(options, sources, &mut found).playbook(&source.place);
    let broken = found.has_errors();
    found.sort();
    diagnostics.extend(found);
    Playbook { path: source.place.label(), library: options.library, broken, plays }
}

/// Reads a playbook that no file holds, such as the one `exec` makes; messages call it `name`.
pub fn load_text(
    name: &str,
    text: String,
    options: &LoadOptions,
    sources: &mut Sources,
    diagnostics: &mut Diagnostics,
) -> Playbook {
    let mut found = Diagnostics::default();
    let place = Place::disk(name);
    let file = sources.add(name, text);
    let node = parse(sources, file, &mut found);
    let mut loader = loader::Loader::new(options, sources, &mut found);
    loader.put(place.clone(), node);
    let plays = loader.playbook(&place);
    let broken = found.has_errors();
    diagnostics.extend(found);
    Playbook { path: place.label(), library: options.library, broken, plays }
}
