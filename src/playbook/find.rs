//! From the name on the command line to a playbook file.

use std::path::{Path, PathBuf};

use super::{
    embedded::{EMBEDDED, Embedded},
    place::Place,
};
use crate::source::{Diagnostic, did_you_mean};

/// A playbook that was found and not yet read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaybookSource {
    pub place: Place,
}

impl From<PathBuf> for PlaybookSource {
    fn from(path: PathBuf) -> Self {
        Self { place: Place::Disk(path) }
    }
}

/// How the playbooks of the binary are called, where no other may be meant.
const EMBEDDED_ONLY: &str = "embedded:playbooks/";

/// The name of a playbook of the binary that `find` takes for no other.
pub fn embedded_name(stem: &str) -> String {
    format!("{EMBEDDED_ONLY}{stem}.yaml")
}

/// Looks for the path as given, then in `./playbooks`, then among those embedded in the binary.
pub fn find(name: &str, start: &Path) -> Result<PlaybookSource, Diagnostic> {
    find_with(name, start, EMBEDDED)
}

pub(super) fn find_with(name: &str, start: &Path, embedded: Embedded) -> Result<PlaybookSource, Diagnostic> {
    if let Some(path) = name.strip_prefix(EMBEDDED_ONLY) {
        let (place, folder) = (embedded.playbooks.place(path), embedded.playbooks.place(""));
        return match place.is_file() {
            true => Ok(PlaybookSource { place }),
            false => Err(not_found(name, &place, &[folder], std::slice::from_ref(&place))),
        };
    }
    let start = if start == Path::new(".") { Place::disk("") } else { Place::disk(start) };
    let given = start.join(name);
    let folders = [start.join("playbooks"), embedded.playbooks.place("")];
    let in_folders = folders.iter().flat_map(|folder| with_extensions(folder, name));
    let candidates: Vec<Place> = std::iter::once(given.clone()).chain(in_folders).collect();
    match candidates.iter().find(|place| place.is_file()) {
        Some(place) => Ok(PlaybookSource { place: place.clone() }),
        None => Err(not_found(name, &given, &folders, &candidates)),
    }
}

fn with_extensions(folder: &Place, name: &str) -> Vec<Place> {
    let name = Path::new(name);
    match name.extension() {
        _ if name.is_absolute() => Vec::new(),
        Some(_) => vec![folder.join(name)],
        None if name.file_name().is_none() => Vec::new(),
        None => ["", "yaml", "yml"].iter().map(|extension| folder.join(name.with_extension(extension))).collect(),
    }
}

fn not_found(name: &str, given: &Place, folders: &[Place], candidates: &[Place]) -> Diagnostic {
    let problem = if given.is_dir() { "is a directory, and a playbook file belongs here" } else { "no such playbook" };
    let looked = candidates.iter().map(|place| place.to_string()).collect::<Vec<_>>().join(", ");
    let known: Vec<String> = folders.iter().flat_map(playbook_names).collect();
    let near = did_you_mean(name, known.iter().map(String::as_str));
    let near = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
    Diagnostic::error(None, format!("{name}: {problem}")).help(format!("looked for {looked}{near}"))
}

/// File names and, since the extension may be left out, their stems.
fn playbook_names(folder: &Place) -> Vec<String> {
    let is_yaml = |name: &String| name.ends_with(".yaml") || name.ends_with(".yml");
    let names = folder.entries().into_iter().filter(is_yaml);
    names.flat_map(|name| [name.rsplit_once('.').map_or("", |(stem, _)| stem).to_owned(), name]).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_path_given_comes_first_and_the_embedded_ones_last() {
        let folder = tempfile::tempdir().unwrap();
        let found = |name: &str| find(name, folder.path()).unwrap().place;
        assert_eq!(found("ping").to_string(), "embedded:playbooks/ping.yaml");
        fs::create_dir(folder.path().join("playbooks")).unwrap();
        fs::write(folder.path().join("playbooks/ping.yml"), "[]").unwrap();
        assert_eq!(found("ping"), Place::disk(folder.path().join("playbooks/ping.yml")));
        fs::write(folder.path().join("ping"), "[]").unwrap();
        assert_eq!(found("ping"), Place::disk(folder.path().join("ping")));
    }

    #[test]
    fn a_missing_playbook_says_where_it_looked() {
        let folder = tempfile::tempdir().unwrap();
        let error = find("pinh", folder.path()).unwrap_err();
        assert_eq!(error.message, "pinh: no such playbook");
        let help = error.help.unwrap();
        assert!(help.contains("embedded:playbooks/pinh.yml; did you mean `ping`?"), "{help}");
        fs::create_dir(folder.path().join("d")).unwrap();
        assert!(find("d", folder.path()).unwrap_err().message.contains("is a directory"));
    }
}
