//! Which files make up an inventory, and reading them.

use std::{
    collections::HashSet,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    collect::{Collector, canonical},
    draft::{check_tags, check_vars},
    dynamic,
};
use crate::{
    model::{FileId, Span},
    source::{
        Diagnostic, Diagnostics, Key, Kind, Map, Node, Sources, did_you_mean,
        disk::{self, Found},
        parse,
    },
};

/// What was read, in the order it merges.
#[derive(Default)]
pub(super) struct Files {
    pub(super) documents: Vec<Document>,
    pub(super) vars: Vec<VarsFile>,
}

pub(super) struct Document {
    pub(super) node: Node,
    pub(super) format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// Ours, or Ansible's YAML.
    Yaml,
    /// What an executable printed.
    Dynamic,
}

/// A file of `group_vars/` or `host_vars/`.
pub(super) struct VarsFile {
    scope: Scope,
    name: Arc<str>,
    node: Node,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    Group,
    Host,
}

pub(super) fn read(paths: &[PathBuf], sources: &mut Sources, diagnostics: &mut Diagnostics) -> Files {
    let mut reader = Reader { sources, diagnostics, files: Files::default(), folders: HashSet::new() };
    paths.iter().for_each(|path| reader.path(path));
    reader.files
}

/// The YAML files of these inventories, in the order they merge: without programs and files of variables.
pub fn yaml_files(paths: &[PathBuf]) -> Vec<PathBuf> {
    let visible = |folder: &Path| -> Vec<PathBuf> {
        let names = disk::list(folder).unwrap_or_default();
        let files = names.iter().filter(|name| !name.starts_with('.')).map(|name| folder.join(name));
        files.filter(|path| is_yaml(path)).collect()
    };
    let of = |path: &PathBuf| if is_dir(path) { visible(path) } else { vec![path.clone()] };
    let is_plain = |path: &PathBuf| disk::find(path) == Found::File && matches!(program(path), Program::No);
    paths.iter().flat_map(of).filter(is_plain).collect()
}

struct Reader<'a> {
    sources: &'a mut Sources,
    diagnostics: &'a mut Diagnostics,
    files: Files,
    /// Folders whose `group_vars` and `host_vars` were read.
    folders: HashSet<PathBuf>,
}

impl Reader<'_> {
    fn path(&mut self, path: &Path) {
        if is_dir(path) {
            return self.directory(path);
        }
        if let Some(list) = path.to_str().filter(|text| text.contains(',') && disk::find(path) == Found::Absent) {
            return self.host_list(list);
        }
        self.file(path);
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        self.vars_beside(folder.unwrap_or(Path::new(".")));
    }

    fn directory(&mut self, folder: &Path) {
        let Some(entries) = self.list(folder) else { return };
        let files: Vec<_> = entries.into_iter().filter(|path| is_yaml(path) && !is_dir(path)).collect();
        if files.is_empty() {
            let message = format!("{}: no *.yaml file in this directory", folder.display());
            self.diagnostics.error(None, message);
        }
        files.iter().for_each(|file| self.file(file));
        self.vars_beside(folder);
    }

    /// What a directory holds, sorted by name and without hidden files.
    fn list(&mut self, folder: &Path) -> Option<Vec<PathBuf>> {
        match disk::list(folder) {
            Ok(names) => {
                Some(names.iter().filter(|name| !name.starts_with('.')).map(|name| folder.join(name)).collect())
            }
            Err(error) => {
                self.diagnostics.error(None, format!("{}: {error}", folder.display()));
                None
            }
        }
    }

    fn file(&mut self, path: &Path) {
        let (file, format) = match program(path) {
            Program::No => (self.sources.read(path), Format::Yaml),
            Program::Yes => (dynamic::run(path, self.sources), Format::Dynamic),
            Program::NotExecutable => {
                let problem = Diagnostic::error(None, format!("{}: a script that is not executable", path.display()));
                (Err(problem.help(format!("chmod +x {}", path.display()))), Format::Dynamic)
            }
        };
        let node = file.and_then(|file| {
            refuse_ini(self.sources, file)?;
            Ok(parse(self.sources, file, self.diagnostics))
        });
        match node {
            Ok(node) => self.files.documents.extend(node.map(|node| Document { node, format })),
            Err(problem) => self.diagnostics.push(problem),
        }
    }

    /// `-i web1,web2` names hosts instead of a file, as in Ansible.
    fn host_list(&mut self, text: &str) {
        let file = self.sources.add("-i", text);
        let mut start = 0;
        let mut hosts = Map::default();
        for name in text.split(',') {
            let span = Span::new(file, start, start + name.len());
            start += name.len() + 1;
            let name = name.trim();
            if !name.is_empty() && hosts.get(name).is_none() {
                hosts.push(Key { name: name.into(), span }, Node::new(span, Kind::Null));
            }
        }
        let span = Span::new(file, 0, text.len());
        let sections = Map::new(vec![(Key { name: "hosts".into(), span }, Node::new(span, Kind::Map(hosts)))]);
        self.files.documents.push(Document { node: Node::new(span, Kind::Map(sections)), format: Format::Yaml });
    }

    fn vars_beside(&mut self, folder: &Path) {
        let real = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
        if !self.folders.insert(real) {
            return;
        }
        for (name, scope) in [("group_vars", Scope::Group), ("host_vars", Scope::Host)] {
            let folder = folder.join(name);
            if is_dir(&folder) {
                let entries = self.list(&folder).unwrap_or_default();
                entries.iter().for_each(|path| self.vars_entry(path, scope));
            }
        }
    }

    /// `NAME.yaml`, or a folder NAME of such files.
    fn vars_entry(&mut self, path: &Path, scope: Scope) {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return };
        if is_dir(path) {
            let files = self.list(path).unwrap_or_default();
            let name = name.to_owned();
            files.iter().filter(|file| is_vars(file)).for_each(|file| self.vars_file(file, &name, scope));
        } else if is_vars(path) {
            let stem = [".yaml", ".yml", ".json"].into_iter().find_map(|ext| name.strip_suffix(ext));
            let stem = stem.unwrap_or(name).to_owned();
            self.vars_file(path, &stem, scope);
        }
    }

    fn vars_file(&mut self, path: &Path, name: &str, scope: Scope) {
        let file = match self.sources.read(path) {
            Ok(file) => file,
            Err(problem) => return self.diagnostics.push(problem),
        };
        let node = parse(self.sources, file, self.diagnostics);
        self.files.vars.extend(node.map(|node| VarsFile { scope, name: name.into(), node }));
    }
}

impl Collector<'_> {
    /// Adds a file of `group_vars/` or `host_vars/`, whose later files win over earlier ones.
    pub(super) fn vars_file(&mut self, file: VarsFile) {
        let span = file.node.span;
        check_tags(&file.node, self.diagnostics);
        let vars = check_vars(file.node, self.diagnostics);
        let name = canonical(&file.name);
        let clusters = &mut self.draft.clusters;
        let into = match file.scope {
            Scope::Host => self.draft.hosts.get_mut(name).map(|host| &mut host.file_vars),
            Scope::Group => match self.draft.groups.get_mut(name) {
                Some(group) => Some(&mut group.file_vars),
                None if super::collect::BUILTIN_GROUPS.contains(&name) => {
                    Some(&mut self.draft.groups.entry(name.into()).or_default().file_vars)
                }
                None => clusters.get_mut(name).map(|cluster| &mut cluster.file_vars),
            },
        };
        if let Some(into) = into {
            into.extend(vars.into_iter().map(|(key, node)| (key.name, node)));
            return;
        }
        let (what, near) = match file.scope {
            Scope::Host => ("host", did_you_mean(name, self.draft.hosts.keys().map(|name| &**name))),
            Scope::Group => {
                let known = self.draft.groups.keys().chain(self.draft.clusters.keys());
                ("group", did_you_mean(name, known.map(|name| &**name)))
            }
        };
        let problem = Diagnostic::warning(span, format!("variables for `{name}`, but there is no such {what}"));
        self.diagnostics.push(problem.maybe_help(near));
    }
}

/// INI would only be reported as broken YAML, which helps nobody.
fn refuse_ini(sources: &Sources, file: FileId) -> Result<(), Diagnostic> {
    let text = sources.text(file);
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let code = line.trim();
        let header = code.strip_prefix('[').and_then(|code| code.strip_suffix(']'));
        if header.is_some_and(|name| {
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.:".contains(&b))
        }) {
            let span = Span::new(file, start, start + line.trim_end().len());
            return Err(Diagnostic::error(span, "this looks like an INI inventory, and only YAML is supported")
                .help("convert it: ansible-inventory -i FILE --list --yaml"));
        }
        if !code.is_empty() && !code.starts_with(['#', ';']) && !code.contains('=') {
            break;
        }
        start += line.len();
    }
    Ok(())
}

fn is_dir(path: &Path) -> bool {
    disk::find(path) == Found::Folder
}

fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    path.extension().and_then(|ext| ext.to_str()).is_some_and(|ext| extensions.contains(&ext))
}

fn is_yaml(path: &Path) -> bool {
    has_extension(path, &["yaml", "yml"])
}

/// Files of variables may also come without an extension, as Ansible allows.
fn is_vars(path: &Path) -> bool {
    disk::find(path) == Found::File && (path.extension().is_none() || has_extension(path, &["yaml", "yml", "json"]))
}

enum Program {
    Yes,
    No,
    /// It has a `#!` line, but must not be run.
    NotExecutable,
}

/// Whether a file is to be run. Some file systems call every file executable, so data stays data.
fn program(path: &Path) -> Program {
    if let Some(was_program) = disk::was_program(path) {
        return if was_program { Program::Yes } else { Program::No };
    }
    let Ok(metadata) = fs::metadata(path) else { return Program::No };
    if !metadata.is_file() {
        return Program::No;
    }
    let executable = metadata.permissions().mode() & 0o111 != 0;
    match (executable, starts_with_shebang(path)) {
        (true, true) => Program::Yes,
        (true, false) if has_extension(path, &["yaml", "yml", "json"]) => Program::No,
        (true, false) => Program::Yes,
        (false, true) => Program::NotExecutable,
        (false, false) => Program::No,
    }
}

fn starts_with_shebang(path: &Path) -> bool {
    use std::io::Read;

    let mut start = [0; 2];
    fs::File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok() && &start == b"#!"
}
