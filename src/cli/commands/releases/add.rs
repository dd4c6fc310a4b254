//! `etcdrun releases add VERSION...`: puts releases into `etcd_releases`, with the checksums that are published.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::{failed, place, wait_for};
use crate::cli::support::{
    CliError, Exit, Invocation,
    args::{CheckArgs, KnownArgs},
    files::{folder_of, replace},
    input::{Opening, inventory_paths},
    site::{Files, Site},
};
use crate::{
    etcd::{advisories::is_forbidden, settings},
    inventory::{
        edit::{EditError, has_clusters, literal, release_entry, releases, with_release},
        yaml_files,
    },
    model::{Diff, ParseScalarError, ValueMap, Version},
    releases::{Arch, Fetched, Newest, Place, Remote, copy, findings, look},
    report::{TransferBar, unified},
    source::is_sealed,
};

#[derive(Args, Debug)]
pub struct AddArgs {
    /// The releases, such as 3.6.15
    #[arg(required = true, value_name = "VERSION")]
    versions: Vec<String>,

    /// Where they are: a URL with the layout of the official place, or a directory with tarballs or binaries [default:
    /// https://github.com/etcd-io/etcd/releases/download]
    #[arg(long, value_name = "URL|FOLDER")]
    from: Option<String>,

    /// What the members run on
    #[arg(long, value_enum, default_value_t = ArchArg::Amd64)]
    arch: ArchArg,

    /// Download to this directory, and list each release as a `file` instead of a `url`
    #[arg(long, value_name = "FOLDER")]
    download: Option<PathBuf>,

    /// The file of the inventory to edit [default: the one that has `etcd_releases`, else the one that has `clusters`]
    #[arg(long, value_name = "FILE")]
    into: Option<PathBuf>,

    #[command(flatten)]
    mode: CheckArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ArchArg {
    Amd64,
    Arm64,
}

impl From<ArchArg> for Arch {
    fn from(arch: ArchArg) -> Self {
        match arch {
            ArchArg::Amd64 => Self::Amd64,
            ArchArg::Arm64 => Self::Arm64,
        }
    }
}

/// A version that etcdrun can install.
fn version(text: &str) -> Result<Version, CliError> {
    let version: Version = text.parse().map_err(|error: ParseScalarError| CliError::usage(error.to_string()))?;
    let (first, last) = (settings::KNOWN_MINORS.start(), settings::KNOWN_MINORS.end());
    if !settings::is_known(version) {
        return Err(CliError::usage(format!("etcd {version} is not supported; 3.{first} to 3.{last} are")));
    }
    if is_forbidden(version) {
        let message = format!("etcd {version} can lose data: 3.5.0 to 3.5.2 must not be run");
        return Err(CliError::usage_with_help(message, Some("use the newest 3.5".to_owned())));
    }
    Ok(version)
}

pub fn run(args: &AddArgs, known: &KnownArgs, invocation: &Invocation) -> Result<Exit, CliError> {
    let versions = args.versions.iter().map(|text| version(text)).collect::<Result<BTreeSet<Version>, CliError>>()?;
    let place = place(args.from.as_deref())?;
    let list = List::open(args.into.as_deref(), known, invocation)?;
    list.check(&versions, known, invocation)?;
    if place.is_unencrypted() {
        let message = format!("{place} is not encrypted: others on the network can exchange releases and checksums");
        invocation.warn(&message);
    }
    let source =
        Source { arch: args.arch.into(), remote: Remote::open(&place).map_err(failed)?, place, args, invocation };
    let found = wait_for(async {
        let mut found = Vec::new();
        for version in &versions {
            found.push(source.find(*version, &list).await?);
        }
        Ok(found)
    });
    if matches!(found, Err(CliError::Interrupted)) && args.download.is_some() {
        invocation.warn("the part that was downloaded is kept; to continue, run the command again");
    }
    let (new, listed): (Vec<Found>, Vec<Found>) = found?.into_iter().partition(|found| !found.is_listed);
    let diff = list.write(&new, args.mode.check, known, invocation)?;
    invocation.print(&match invocation.json {
        true => document(&list.path, &new, &listed, args.mode.check),
        false => told(&list.path, &new, &listed, diff.as_ref(), invocation),
    })?;
    Ok(Exit::Success)
}

fn document(path: &Path, new: &[Found], listed: &[Found], check: bool) -> String {
    let entry = |found: &Found| {
        let mut entry = ValueMap::from_iter([("version".to_owned(), Value::from(found.version.to_string()))]);
        entry.extend(found.body.clone());
        Value::from(entry)
    };
    let all = |found: &[Found]| found.iter().map(entry).collect::<Value>();
    let added = if check { "would_add" } else { "added" };
    format!("{:#}\n", json!({ "file": path, added: all(new), "unchanged": all(listed) }))
}

fn told(path: &Path, new: &[Found], listed: &[Found], diff: Option<&Diff>, invocation: &Invocation) -> String {
    let mut text = diff.map(|diff| unified(diff, &invocation.stdout)).unwrap_or_default();
    for found in listed {
        text += &format!("etcd {} is listed already, with this checksum\n", found.version);
    }
    for found in new {
        let did = if diff.is_some() { "would be added" } else { "added" };
        text += &format!("etcd {} {did} to {}: {}\n", found.version, path.display(), found.whence);
    }
    text
}

/// The file that lists releases, and what the whole inventory lists.
struct List {
    path: PathBuf,
    /// Each version with the file that lists it, and its entry.
    listed: BTreeMap<Version, (PathBuf, ValueMap)>,
}

impl List {
    fn open(into: Option<&Path>, known: &KnownArgs, invocation: &Invocation) -> Result<Self, CliError> {
        let paths = inventory_paths(&known.inventory, invocation);
        let mut texts = Vec::new();
        for path in yaml_files(&paths) {
            let bytes = fs::read(&path).map_err(|error| CliError::usage(format!("{}: {error}", path.display())))?;
            // An encrypted file lists nothing that could be read without its key, and is not edited.
            if !is_sealed(&bytes) {
                texts.push((path, String::from_utf8_lossy(&bytes).into_owned()));
            }
        }
        let path = chosen(&texts, into)?;
        let entries = texts.iter().flat_map(|(path, text)| {
            let listed = releases(text).unwrap_or_default();
            listed.into_iter().map(move |(version, body)| (version, (path.clone(), body)))
        });
        Ok(Self { listed: entries.collect(), path })
    }

    /// Reports what is wrong with the inventory before anything is asked for. That a version is not listed yet is no error now.
    fn check(&self, versions: &BTreeSet<Version>, known: &KnownArgs, invocation: &Invocation) -> Result<(), CliError> {
        let body = ValueMap::from_iter([
            ("url".to_owned(), Value::from("https://localhost/")),
            ("sha256".to_owned(), Value::from("0".repeat(64))),
        ]);
        let missing = versions.iter().filter(|version| !self.listed.contains_key(version));
        let text = missing.fold("etcd_releases:\n".to_owned(), |text, version| text + &release_entry(*version, &body));
        let path = self.path.with_file_name("etcd_releases to be added");
        let inventory = inventory_paths(&known.inventory, invocation).into_iter().chain([path.clone()]).collect();
        let known = KnownArgs { inventory, ..known.clone() };
        Site::load_as_if(Files::from([(path, text.into_bytes())]), Opening::FilesOnly, &known, None, invocation)
            .map(drop)
    }

    /// Whether the release is listed with this checksum. One with another checksum is an error.
    fn has(&self, version: Version, sha256: &str, file: &str, place: &Place) -> Result<bool, CliError> {
        let Some((path, entry)) = self.listed.get(&version) else { return Ok(false) };
        let listed = entry.get("sha256").and_then(Value::as_str).unwrap_or("no checksum");
        if listed.eq_ignore_ascii_case(sha256) {
            return Ok(true);
        }
        let path = path.display();
        let message =
            format!("etcd {version} is listed in {path} with the sha256 {listed}, but {file} at {place} has {sha256}");
        let is_tarball = |name: &str| name.ends_with(".tar.gz") || name.ends_with(".tgz");
        let files = ["file", "url"].iter().filter_map(|field| entry.get(*field)?.as_str());
        let kinds = match (files.into_iter().any(is_tarball), is_tarball(file)) {
            (false, true) => "the listed one is of a binary, the other of a tarball",
            (true, false) => "the listed one is of a tarball, the other of a binary",
            _ => "one of them is wrong",
        };
        let help =
            format!("{kinds}; to replace the listed one, remove the entry from {path}, and run the command again");
        Err(CliError::usage_with_help(message, Some(help)))
    }

    /// Writes the file with the new releases, and returns what it would be in check mode.
    fn write(
        &self,
        new: &[Found],
        check: bool,
        known: &KnownArgs,
        invocation: &Invocation,
    ) -> Result<Option<Diff>, CliError> {
        if new.is_empty() {
            return Ok(None);
        }
        // It may have been edited while releases were downloaded.
        let before = fs::read_to_string(&self.path)?;
        let edited = new.iter().try_fold(before.clone(), |text, found| with_release(&text, found.version, &found.body));
        let after = edited.map_err(|error| self.by_hand(&error, new))?;
        let files = Files::from([(self.path.clone(), after.clone().into_bytes())]);
        Site::load_as_if(files, Opening::FilesOnly, known, None, invocation)?;
        if check {
            return Ok(Some(Diff { label: self.path.display().to_string(), before, after }));
        }
        replace(&self.path, after.as_bytes(), 0o644)?;
        Ok(None)
    }

    fn by_hand(&self, error: &EditError, new: &[Found]) -> CliError {
        let lines: String = new.iter().map(|found| release_entry(found.version, &found.body)).collect();
        let help = format!("write this below `etcd_releases:` yourself:\n{}", lines.trim_end());
        CliError::usage_with_help(format!("cannot edit {}: {error}", self.path.display()), Some(help))
    }
}

/// The file to edit.
fn chosen(texts: &[(PathBuf, String)], into: Option<&Path>) -> Result<PathBuf, CliError> {
    let all = |files: &[&PathBuf]| files.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
    let files: Vec<&PathBuf> = texts.iter().map(|(path, _)| path).collect();
    if let Some(into) = into {
        let real = |path: &Path| fs::canonicalize(path).ok();
        let found = files.iter().find(|path| real(path).is_some_and(|path| Some(path) == real(into)));
        return found.map(|path| path.to_path_buf()).ok_or_else(|| {
            let help = format!("expected one of: {}", all(&files));
            CliError::usage_with_help(format!("{} is not a plain file of the inventory", into.display()), Some(help))
        });
    }
    let with = |is: fn(&str) -> bool| texts.iter().filter(move |(_, text)| is(text)).map(|(path, _)| path).collect();
    let [lists, clusters]: [Vec<&PathBuf>; 2] = [with(|text| releases(text).is_some()), with(has_clusters)];
    match (lists.as_slice(), clusters.as_slice(), files.as_slice()) {
        ([only], ..) | ([], [only], _) | ([], [], [only]) => Ok(only.to_path_buf()),
        ([], [], []) => {
            let help = "name one with -i, or create inventory.yaml";
            Err(CliError::usage_with_help("the inventory has no plain YAML file to edit", Some(help.to_owned())))
        }
        ([], [], several) | ([], several, _) | (several, ..) => {
            let help = format!("choose one with --into: {}", all(several));
            Err(CliError::usage_with_help("several files could list the release", Some(help)))
        }
    }
}

/// A release, as it is or will be listed.
struct Found {
    version: Version,
    body: ValueMap,
    is_listed: bool,
    /// What was done for it.
    whence: String,
}

/// Where releases come from, and where they go.
struct Source<'a> {
    place: Place,
    remote: Option<Remote>,
    arch: Arch,
    args: &'a AddArgs,
    invocation: &'a Invocation,
}

impl Source<'_> {
    async fn find(&self, version: Version, list: &List) -> Result<Found, CliError> {
        let found = match (&self.remote, &self.place) {
            (Some(remote), _) => self.ask(remote, version, list).await?,
            (None, Place::Folder(folder)) => self.look_into(folder, version, list)?,
            (None, _) => return Err(CliError::Unexpected(format!("{} cannot be asked", self.place))),
        };
        if !found.is_listed {
            for finding in findings(version, &Newest::built_in()) {
                self.invocation.warn(&format!("etcd {version}: {}", finding.told(version)));
            }
        }
        Ok(found)
    }

    async fn ask(&self, remote: &Remote, version: Version, list: &List) -> Result<Found, CliError> {
        let (url, name) = (remote.url(version, self.arch), self.arch.tarball(version));
        let sha256 = remote.sum(version, self.arch).await.map_err(failed)?;
        if list.has(version, &sha256, &name, &self.place)? {
            return Ok(Found::new(version, ("url", url), sha256, true, String::new()));
        }
        let Some(folder) = &self.args.download else {
            remote.answers(&url).await.map_err(failed)?;
            let whence = format!("{url}, with the checksum of SHA256SUMS");
            return Ok(Found::new(version, ("url", url), sha256, false, whence));
        };
        let to = folder.join(&name);
        let file = as_written(&to, &list.path)?;
        if self.args.mode.check {
            remote.answers(&url).await.map_err(failed)?;
            return Ok(Found::new(version, ("file", file), sha256, false, format!("{url} would be downloaded")));
        }
        fs::create_dir_all(folder)?;
        let bar = TransferBar::new(self.invocation.stderr, &name);
        let fetched = remote.fetch(&url, &to, &sha256, &mut |done, total| bar.show(done, total)).await;
        let whence = match fetched.map_err(failed)? {
            Fetched::New => format!("{} was downloaded and has the published checksum", to.display()),
            Fetched::Kept => format!("{} is there already and has the published checksum", to.display()),
        };
        Ok(Found::new(version, ("file", file), sha256, false, whence))
    }

    fn look_into(&self, folder: &Path, version: Version, list: &List) -> Result<Found, CliError> {
        let local = look(folder, version, self.arch).map_err(failed)?;
        let name = local.path.display().to_string();
        let is_listed = list.has(version, &local.sha256, &name, &self.place)?;
        if !is_listed && !local.published {
            let message =
                format!("{name}: no checksum is published for a binary without its tarball, so its own is listed");
            self.invocation.warn(&message);
        }
        let whence = match local.published {
            true => format!("{name} has the published checksum"),
            false => name,
        };
        let kept = match &self.args.download {
            Some(folder) => folder.join(kept_name(&local.path, version, self.arch)),
            None => local.path.clone(),
        };
        if kept != local.path && !is_listed && !self.args.mode.check {
            fs::create_dir_all(folder_of(&kept))?;
            copy(&local.path, &kept, &local.sha256).map_err(failed)?;
        }
        let file = as_written(&kept, &list.path)?;
        Ok(Found::new(version, ("file", file), local.sha256, is_listed, whence))
    }
}

impl Found {
    fn new(version: Version, at: (&str, String), sha256: String, is_listed: bool, whence: String) -> Self {
        let at = (at.0.to_owned(), literal(&at.1.into()));
        let body = ValueMap::from_iter([at, ("sha256".to_owned(), sha256.into())]);
        Self { version, body, is_listed, whence }
    }
}

/// The name of a copy: several binaries are all called etcd.
fn kept_name(path: &Path, version: Version, arch: Arch) -> String {
    let tarball = arch.tarball(version);
    if path.ends_with(&tarball) { tarball } else { tarball.trim_end_matches(".tar.gz").to_owned() }
}

/// The path of a file as the inventory has it: relative to its own directory, if it is below it.
fn as_written(path: &Path, inventory: &Path) -> Result<String, CliError> {
    // The directory of the file may not be there yet, or be reached by a link.
    let path = std::path::absolute(path)?;
    let real = fs::canonicalize(folder_of(&path)).ok().zip(path.file_name()).map(|(folder, name)| folder.join(name));
    let folders = [Some(std::path::absolute(folder_of(inventory))?), fs::canonicalize(folder_of(inventory)).ok()];
    let below =
        |path: &Path| folders.iter().flatten().find_map(|folder| path.strip_prefix(folder).ok()).map(Path::to_owned);
    let written = below(&path).or_else(|| below(real.as_deref()?)).unwrap_or(path);
    let not_text = || CliError::usage(format!("{} is not UTF-8, which an inventory needs", written.display()));
    written.to_str().map(str::to_owned).ok_or_else(not_text)
}
