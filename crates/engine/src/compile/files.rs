//! Files of the operator that tasks name: they must be there before anything runs.

use std::sync::Arc;

use crate::{
    playbook::{Place, Task},
    source::{Diagnostic, Diagnostics, Map, Node, Sources, is_sealed},
    task::OperatorFile,
};

/// Reports files that are named outright and cannot be found, or cannot be opened.
pub(super) fn check<'p>(tasks: impl Iterator<Item = &'p Arc<Task>>, sources: &Sources, diagnostics: &mut Diagnostics) {
    for task in tasks {
        let kind = task.module.traits.file;
        let places = match kind {
            OperatorFile::Template => task.template_places(),
            OperatorFile::Copied | OperatorFile::Archive => task.file_places(),
            OperatorFile::None | OperatorFile::Script => continue,
        };
        let Some(args) = task.args.as_map() else { continue };
        let is_remote = args.get("remote_src").is_some_and(|node| node.to_value() != false);
        let Some(src) = args.get("src").filter(|src| !src.is_template() && !is_remote) else { continue };
        let Some(name) = Node::as_str(src).filter(|name| !name.starts_with('~')) else { continue };
        let found = places.iter().map(|place| place.join(name)).find(|file| file.is_file() || file.is_dir());
        match found {
            Some(file) if kind == OperatorFile::Template && file.is_dir() => {
                diagnostics.error(src.span, format!("`{name}` is a directory; expected a file"));
            }
            Some(file) if is_taken_as_it_is(args) || kind == OperatorFile::Archive || file.is_dir() => {}
            Some(file) => shut(src, &file, sources).into_iter().for_each(|problem| diagnostics.push(problem)),
            None => diagnostics.push(missing(src, name, &places)),
        }
    }
}

/// `decrypt: false`.
fn is_taken_as_it_is(args: &Map) -> bool {
    args.get("decrypt").is_some_and(|node| node.to_value() == false)
}

/// Why an encrypted file cannot be opened, if the keys are at hand and it cannot.
fn shut(src: &Node, file: &Place, sources: &Sources) -> Option<Diagnostic> {
    let opener = sources.value_opener()?;
    let contents = file.contents().filter(|contents| is_sealed(contents))?;
    let error = opener.open(&contents).err()?;
    let message = format!("`{}`: {}", file.label().display(), error.message);
    Some(Diagnostic::error(src.span, message).maybe_help(error.help))
}

fn missing(src: &Node, name: &str, places: &[Place]) -> Diagnostic {
    let mut looked: Vec<String> = places.iter().map(|place| place.label().display().to_string()).collect();
    looked.dedup();
    let help = if name.starts_with('/') { None } else { Some(format!("looked in {}", looked.join(", "))) };
    Diagnostic::error(src.span, format!("there is no file `{name}`")).maybe_help(help)
}
