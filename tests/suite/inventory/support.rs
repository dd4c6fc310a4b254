//! Inventories written to a temporary folder and loaded from there.

use std::{fs, path::PathBuf};

use etcdrun::{
    inventory::{HostId, Inventory, Pattern},
    source::{Diagnostic, Diagnostics, Severity, Sources},
};
use tempfile::TempDir;

pub struct Loaded {
    pub inventory: Inventory,
    pub sources: Sources,
    pub diagnostics: Diagnostics,
    pub folder: TempDir,
}

/// A folder with these files.
pub fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

/// Loads the paths that are named, relative to the folder.
pub fn load_paths(folder: TempDir, paths: &[&str]) -> Loaded {
    let paths: Vec<PathBuf> = paths.iter().map(|path| folder.path().join(path)).collect();
    let mut sources = Sources::default();
    let mut diagnostics = Diagnostics::default();
    let inventory = etcdrun::etcd::load_inventory(&paths, &mut sources, &mut diagnostics);
    diagnostics.sort();
    Loaded { inventory, sources, diagnostics, folder }
}

pub fn load(text: &str) -> Loaded {
    load_paths(folder(&[("hosts.yaml", text)]), &["hosts.yaml"])
}

/// Loads a text that must be fine.
pub fn load_fine(text: &str) -> Loaded {
    let loaded = load(text);
    assert!(loaded.diagnostics.is_empty(), "{}", loaded.problems());
    loaded
}

impl Loaded {
    /// Every problem as a person would read it, without the temporary folder.
    pub fn problems(&self) -> String {
        self.diagnostics.iter().map(|problem| self.describe(problem)).collect()
    }

    pub fn describe(&self, problem: &Diagnostic) -> String {
        let severity = if problem.severity == Severity::Error { "error" } else { "warning" };
        let mut text = format!("{severity}: {}\n", problem.message);
        if let Some(span) = problem.span {
            text += &format!("  at {}\n", self.sources.describe(span));
        }
        for (span, note) in &problem.related {
            text += &format!("  {note}: {}\n", self.sources.describe(*span));
        }
        if let Some(help) = &problem.help {
            text += &format!("  help: {help}\n");
        }
        text.replace(&format!("{}/", self.folder.path().display()), "")
    }

    pub fn names(&self, ids: &[HostId]) -> Vec<&str> {
        ids.iter().map(|id| self.inventory.host_by_id(*id).name.as_str()).collect()
    }

    /// The hosts a pattern selects, or the problems with it.
    pub fn select(&self, pattern: &str) -> Result<Vec<&str>, String> {
        let pattern = Pattern::parse(pattern, None).map_err(|problem| self.describe(&problem))?;
        let found = self.inventory.select(&pattern);
        let found = found.map_err(|list| list.iter().map(|problem| self.describe(problem)).collect::<String>())?;
        Ok(self.names(&found))
    }

    pub fn var(&self, host: &str, name: &str) -> serde_json::Value {
        let host = self.inventory.host(host).expect("the host exists");
        host.var(name).map(etcdrun::source::Node::to_value).unwrap_or_default()
    }
}
