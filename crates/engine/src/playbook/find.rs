//! From the name on the command line to a playbook file.

use std::path::{Path, PathBuf};

use super::place::{Embedded, Place};
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

/// In front of the name of a playbook of the binary, where no file of the user may be meant.
const EMBEDDED_ONLY: &str = "embedded:";

/// The name of a playbook of the binary that `find` takes for no other.
pub fn embedded_name(file: &str) -> String {
    format!("{EMBEDDED_ONLY}{file}")
}

/// Whether a name means a playbook of the binary, whatever files the user has. Its roles are those of the binary as well.
pub fn is_embedded_name(name: &str) -> bool {
    name.starts_with(EMBEDDED_ONLY)
}

/// A warning if a bare name means a file of the user, and a playbook of the binary has that name too. A copy of it hides nothing.
pub fn hidden(name: &str, found: &PlaybookSource, embedded: Embedded) -> Option<Diagnostic> {
    let is_bare = !name.contains('/') && found.place.disk_path().is_some();
    let shipped =
        with_extensions(&embedded.playbooks.place(""), name).into_iter().find(|place| is_bare && place.is_file())?;
    let file = shipped.label().file_name().map(|file| file.to_string_lossy().into_owned())?;
    let message = format!("{} is used instead of the shipped playbook `{file}`", found.place);
    let help = format!(
        "`{}` is the shipped one; a path, like ./{file}, means your file without this warning",
        embedded_name(&file)
    );
    (shipped.contents() != found.place.contents()).then(|| Diagnostic::warning(None, message).help(help))
}

/// Looks for the path as given, then in `./playbooks`, then among those embedded in the binary.
pub fn find(name: &str, start: &Path, embedded: Embedded) -> Result<PlaybookSource, Diagnostic> {
    if let Some(path) = name.strip_prefix(EMBEDDED_ONLY) {
        let folder = embedded.playbooks.place("");
        // As messages show it, too.
        let path = path.strip_prefix("playbooks/").unwrap_or(path);
        let candidates = with_extensions(&folder, path);
        return match candidates.iter().find(|place| place.is_file()) {
            Some(place) => Ok(PlaybookSource { place: place.clone() }),
            None => Err(not_found(path, &folder.join(path), &[folder], &candidates)),
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
    let near = near.map_or_else(String::new, |near| format!("; {near}"));
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
    use crate::testing::EMBEDDED;

    fn find(name: &str, start: &Path) -> Result<PlaybookSource, Diagnostic> {
        super::find(name, start, EMBEDDED)
    }

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
    fn a_shipped_playbook_has_a_name_that_no_file_takes() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("ping.yaml"), "[]").unwrap();
        for name in ["embedded:ping.yaml", "embedded:ping", "embedded:playbooks/ping.yaml"] {
            assert_eq!(find(name, folder.path()).unwrap().place.to_string(), "embedded:playbooks/ping.yaml");
        }
        let missing = find("embedded:pinh.yaml", folder.path()).unwrap_err();
        assert!(missing.help.unwrap().ends_with("did you mean `ping.yaml`?"));
    }

    #[test]
    fn a_file_that_hides_a_shipped_playbook_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let told = |name: &str| hidden(name, &find(name, folder.path()).unwrap(), EMBEDDED);
        assert!(told("ping").is_none());
        fs::create_dir(folder.path().join("playbooks")).unwrap();
        let mine = folder.path().join("playbooks/ping.yaml");
        fs::write(&mine, EMBEDDED.playbooks.place("ping.yaml").contents().unwrap()).unwrap();
        assert!(told("ping").is_none(), "a copy hides nothing");
        fs::write(&mine, "[]").unwrap();
        let warning = told("ping").unwrap();
        assert!(warning.message.contains("instead of the shipped playbook `ping.yaml`"), "{}", warning.message);
        assert!(warning.help.unwrap().contains("`embedded:ping.yaml`"));
        assert!(told("playbooks/ping.yaml").is_none(), "a path says which one is meant");
        assert!(told("embedded:ping.yaml").is_none());
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
