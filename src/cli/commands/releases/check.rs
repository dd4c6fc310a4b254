//! `etcdrun releases check`: which releases of the inventory are out of date, have known problems or a wrong file.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use clap::Args;
use serde_json::{Value, json};

use super::{failed, place, wait_for};
use crate::cli::support::{
    CliError, Exit, Invocation,
    args::KnownArgs,
    clusters::section,
    input::Opening,
    site::{Files, Site},
};
use crate::{
    inventory::{
        Host, Inventory,
        sections::{EtcdSection, Release},
    },
    model::{Version, one_line},
    releases::{AS_OF, Newest, Place, Remote, answers, findings, sum_of},
    report::{Look, Tone},
    source::{Node, from_node},
};

#[derive(Args, Debug)]
#[command(
    after_help = "The exit code is 0 if there is nothing to do, and 2 if a release that a cluster runs is out of date or has known problems, or the file or URL of any release is wrong."
)]
pub struct CheckReleasesArgs {
    /// Ask which releases have been published, and whether each `url` answers; default: use what this etcdrun knows
    #[arg(long)]
    online: bool,

    /// Ask this mirror which releases there are [default: github.com]
    #[arg(long, value_name = "URL", requires = "online")]
    from: Option<String>,
}

pub fn run(args: &CheckReleasesArgs, known: &KnownArgs, invocation: &Invocation) -> Result<Exit, CliError> {
    let place = place(args.from.as_deref())?;
    if matches!(place, Place::Folder(_)) {
        let help = "to check the files of a directory, list them: `etcdrun releases add 3.6.15 --from FOLDER`";
        return Err(CliError::usage_with_help("--from takes a URL here", Some(help.to_owned())));
    }
    let site = Site::load_as_if(Files::new(), Opening::FilesOnly, known, None, invocation)?;
    let mut newest = Newest::built_in();
    let mut rows = rows(&site.inventory);
    if args.online {
        let remote = Remote::open(&place).map_err(failed)?;
        wait_for(async {
            if let Some(remote) = &remote {
                newest.learn(remote.versions().await.map_err(failed)?);
            }
            for row in &mut rows {
                row.ask().await;
            }
            Ok(())
        })?;
    }
    for row in &mut rows {
        row.judge(&newest);
    }
    let beyond = newest.beyond();
    invocation.print(&match invocation.json {
        true => document(&rows, beyond, args.online, &place),
        false => text(&rows, beyond, args.online, &place, invocation.stdout),
    })?;
    Ok(if rows.iter().any(|row| !row.problems.is_empty()) { Exit::TaskFailed } else { Exit::Success })
}

/// Something to say of a release: its name for programs, and what it means.
type Remark = (&'static str, String);

/// A release that the inventory lists, or that a cluster runs.
struct Row {
    version: Version,
    release: Option<Release>,
    clusters: BTreeSet<String>,
    newest: Option<Version>,
    problems: Vec<Remark>,
    notes: Vec<Remark>,
}

fn rows(inventory: &Inventory) -> Vec<Row> {
    let mut rows: BTreeMap<Version, Row> = BTreeMap::new();
    for (name, node) in inventory.etcd_releases.iter() {
        if let Ok(version) = name.parse() {
            rows.entry(version).or_insert_with(|| Row::new(version)).release = from_node(node).ok();
        }
    }
    for cluster in inventory.clusters() {
        let hosts = cluster.members.iter().map(|id| inventory.host_by_id(*id));
        let own: BTreeSet<Version> = hosts.filter_map(version_of).collect();
        // One without members runs nothing yet.
        let planned = section::<EtcdSection>(cluster, "etcd").ok().and_then(|etcd| etcd.version);
        let versions = if own.is_empty() { planned.into_iter().collect() } else { own };
        for version in versions {
            let row = rows.entry(version).or_insert_with(|| Row::new(version));
            row.clusters.insert(cluster.name.to_string());
        }
    }
    rows.into_values().collect()
}

/// What a member is to run; nothing if only a run can tell.
fn version_of(host: &Host) -> Option<Version> {
    let field = |node: &Node, name: &str| node.as_map()?.get(name).cloned();
    field(&field(host.var("member")?, "etcd")?, "version")?.as_str()?.parse().ok()
}

impl Row {
    fn new(version: Version) -> Self {
        let (release, newest, clusters) = (None, None, BTreeSet::new());
        Self { version, release, clusters, newest, problems: Vec::new(), notes: Vec::new() }
    }

    /// Whether its URL answers.
    async fn ask(&mut self) {
        let Some(url) = self.release.as_ref().and_then(|release| release.url.as_deref()) else { return };
        if let Err(error) = answers(url).await {
            self.problems.push(("url-fails", error.to_string()));
        }
    }

    /// What the table and the disk say.
    fn judge(&mut self, newest: &Newest) {
        self.newest = newest.of(self.version);
        let found = findings(self.version, newest).into_iter().map(|it| (it.name(), it.told(self.version)));
        // Of a release that no cluster runs, only a wrong file does harm.
        match self.clusters.is_empty() {
            true => self.notes.extend(found),
            false => self.problems.extend(found),
        }
        match &self.release {
            None => self.problems.push((
                "not-listed",
                format!("it is not in `etcd_releases`; run `etcdrun releases add {}`", self.version),
            )),
            Some(release) => self.problems.extend(wrong_file(release)),
        }
        if self.clusters.is_empty() {
            self.notes.push(("unused", "no cluster has this version".to_owned()));
        }
    }

    fn source(&self) -> Option<(&'static str, &str)> {
        let release = self.release.as_ref()?;
        let file = release.file.as_deref().map(|file| ("file", file));
        file.or_else(|| release.url.as_deref().map(|url| ("url", url)))
    }

    fn remarks(&self) -> impl Iterator<Item = &Remark> {
        self.problems.iter().chain(&self.notes)
    }

    fn cells(&self) -> [String; 5] {
        let dash = || "-".to_owned();
        let clusters: Vec<&str> = self.clusters.iter().map(String::as_str).collect();
        let state: Vec<&str> = self.remarks().map(|(name, _)| *name).collect();
        [
            self.version.to_string(),
            if clusters.is_empty() { dash() } else { clusters.join(",") },
            self.newest.map_or_else(dash, |newest| newest.to_string()),
            self.source().map_or_else(dash, |(kind, _)| kind.to_owned()),
            if state.is_empty() { "ok".to_owned() } else { state.join(", ") },
        ]
    }

    fn tone(&self) -> Tone {
        match (self.problems.is_empty(), self.notes.is_empty()) {
            (false, _) => Tone::Bad,
            (true, false) => Tone::Warning,
            (true, true) => Tone::Good,
        }
    }
}

/// What is wrong with the file of a release on this machine.
fn wrong_file(release: &Release) -> Option<Remark> {
    let (file, expected) = (release.file.as_deref()?, release.sha256.as_deref()?);
    if !Path::new(file).exists() {
        return Some(("file-missing", format!("{file} does not exist")));
    }
    match sum_of(Path::new(file)) {
        Ok(found) if found.eq_ignore_ascii_case(expected) => None,
        Ok(found) => Some(("file-differs", format!("{file} has the sha256 {found}, expected {expected}"))),
        Err(error) => Some(("file-missing", format!("cannot read {error}"))),
    }
}

const HEAD: [&str; 5] = ["VERSION", "USED BY", "NEWEST", "SOURCE", "STATE"];
/// The place of `STATE`, the last.
const STATE: usize = 4;

fn text(rows: &[Row], beyond: Option<Version>, online: bool, place: &Place, look: Look) -> String {
    if rows.is_empty() {
        return "the inventory lists no release and has no cluster with a version; `etcdrun releases add` adds releases\n".to_owned();
    }
    let cells: Vec<[String; 5]> = rows.iter().map(|row| row.cells().map(|cell| one_line(&cell))).collect();
    let width =
        |column: usize| cells.iter().map(|row| row[column].len()).chain([HEAD[column].len()]).max().unwrap_or(0);
    let widths: Vec<usize> = (0..STATE).map(width).collect();
    let line = |cells: &[String; 5], tone: Tone| {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}  ")).collect::<String>();
        format!("{padded}{}\n", look.paint(tone, &cells[STATE]))
    };
    let mut text = line(&HEAD.map(str::to_owned), Tone::Plain);
    rows.iter().zip(&cells).for_each(|(row, cells)| text += &line(cells, row.tone()));
    for row in rows {
        let version = row.version;
        row.problems.iter().for_each(|(_, why)| text += &format!("  ! {version}: {}\n", one_line(why)));
    }
    for row in rows {
        let version = row.version;
        let notes = row.notes.iter().filter(|(name, _)| *name != "unused");
        notes.for_each(|(_, why)| text += &format!("  unused {version}: {}\n", one_line(why)));
    }
    if let Some(beyond) = beyond {
        text += &format!("etcd {beyond} has been published; this version of etcdrun does not support it\n");
    }
    text += &match online {
        true => format!("The newest releases are those of {place}.\n"),
        false => format!(
            "The newest releases are those of {AS_OF}; `etcdrun releases check --online` asks for later ones.\n"
        ),
    };
    text
}

fn document(rows: &[Row], beyond: Option<Version>, online: bool, place: &Place) -> String {
    let remarks = |remarks: &[Remark]| -> Value {
        remarks.iter().map(|(name, why)| json!({ "kind": name, "message": why })).collect()
    };
    let row = |row: &Row| {
        let source = row.source().map(|(kind, at)| json!({ kind: at }));
        json!({
            "version": row.version, "clusters": row.clusters, "newest": row.newest, "source": source,
            "problems": remarks(&row.problems), "notes": remarks(&row.notes),
        })
    };
    let asked = online.then(|| place.to_string());
    let rows: Vec<Value> = rows.iter().map(row).collect();
    format!("{:#}\n", json!({ "as_of": AS_OF, "asked": asked, "releases": rows, "unsupported": beyond }))
}
