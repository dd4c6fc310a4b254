//! A folder of playbook files for a test, and a plain form of diagnostics.

#![allow(dead_code, reason = "each test binary uses its own part of this")]

use std::{fs, path::Path};

use etcdrun::{
    LIBRARY,
    playbook::{LoadOptions, Play, Playbook, TurnsOf, find, load},
    source::{Diagnostics, Severity, Sources},
};
use tempfile::TempDir;

pub struct Project {
    pub folder: TempDir,
}

impl Project {
    pub fn new(files: &[(&str, &str)]) -> Self {
        let project = Self { folder: tempfile::tempdir().unwrap() };
        files.iter().for_each(|(name, text)| project.write(name, text.as_bytes()));
        project
    }

    pub fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn options(&self) -> LoadOptions {
        LoadOptions { start: self.path().to_owned(), ..LoadOptions::new(etcdrun::LIBRARY) }
    }

    /// Loads `site.yaml`, which must be good.
    pub fn load(&self) -> Playbook {
        self.load_named("site.yaml")
    }

    pub fn load_named(&self, name: &str) -> Playbook {
        let (playbook, problems) = self.try_load(name, &self.options());
        playbook.unwrap_or_else(|| panic!("{problems}"))
    }

    /// The problems of `site.yaml`, without the folder's own name.
    pub fn problems(&self) -> String {
        self.try_load("site.yaml", &self.options()).1
    }

    pub fn try_load(&self, name: &str, options: &LoadOptions) -> (Option<Playbook>, String) {
        let mut sources = Sources::default();
        let mut diagnostics = Diagnostics::default();
        let source = match find(name, self.path(), LIBRARY.embedded) {
            Ok(source) => source,
            Err(problem) => {
                diagnostics.push(problem);
                return (None, self.plain(&diagnostics, &sources));
            }
        };
        let playbook = load(&source, options, &mut sources, &mut diagnostics);
        assert_eq!(playbook.broken, diagnostics.has_errors(), "errors and a broken playbook go together");
        (Some(playbook).filter(|playbook| !playbook.broken), self.plain(&diagnostics, &sources))
    }

    fn plain(&self, diagnostics: &Diagnostics, sources: &Sources) -> String {
        let folder = format!("{}/", self.path().display());
        plain(diagnostics, sources).replace(&folder, "").replace(folder.trim_end_matches('/'), ".")
    }
}

/// One line for the problem, and one each for its help and the other places.
pub fn plain(diagnostics: &Diagnostics, sources: &Sources) -> String {
    let mut text = String::new();
    for problem in diagnostics.iter() {
        let severity = if problem.severity == Severity::Error { "error" } else { "warning" };
        let place = problem.span.map_or_else(String::new, |span| format!("{}: ", sources.describe(span)));
        text += &format!("{place}{severity}: {}\n", problem.message);
        for (span, note) in &problem.related {
            text += &format!("  {}: {note}\n", sources.describe(*span));
        }
        if let Some(help) = &problem.help {
            text += &format!("  help: {help}\n");
        }
    }
    text
}

pub fn tasks(play: &Play) -> Vec<String> {
    play.tasks(TurnsOf::Hosts).into_iter().map(|task| task.path.to_string()).collect()
}
