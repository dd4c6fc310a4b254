//! The runs that a state folder holds.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use indexmap::IndexMap;
use rustix::fs::{FlockOperation, flock};
use serde::Serialize;

use super::{
    Bundle, Journal, Line, Moment, NodePast, Operator, ReadJournal, Record, RunId, StateError, StateFolder, Vault,
    open_private, read_journal, record::JOURNAL_VERSION,
};
use crate::{
    model::{RunResult, Status},
    source::disk::Inputs,
};

const JOURNAL: &str = "journal";
const KEY: &str = "key";
const EVENTS: &str = "events";

/// How a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    Running,
    Done,
    Failed,
    Interrupted,
    /// It ended without a word.
    Crashed,
}

impl RunState {
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
            Self::Crashed => "crashed",
        }
    }

    /// Whether there is anything left to resume.
    pub fn is_unfinished(self) -> bool {
        self != Self::Done
    }
}

/// A run as `etcdrun runs` shows it.
#[derive(Clone, Debug, Serialize)]
pub struct RunSummary {
    pub id: String,
    /// Milliseconds since the Unix epoch.
    pub at: i64,
    pub state: RunState,
    pub command: Vec<String>,
    pub operator: Option<Operator>,
    pub nodes: usize,
    pub done: usize,
    pub changed: usize,
    pub failed: usize,
    /// Begun, and nobody heard how they ended.
    pub in_flight: usize,
    pub in_doubt: usize,
}

/// One node as `etcdrun runs show` shows it.
#[derive(Clone, Debug, Serialize)]
pub struct NodeSummary {
    pub id: Arc<str>,
    pub state: &'static str,
    pub seconds: Option<f64>,
}

/// A run on the disk.
#[derive(Debug)]
pub struct StoredRun {
    pub id: RunId,
    pub folder: PathBuf,
    pub journal: ReadJournal,
    pub state: RunState,
}

impl StateFolder {
    /// Begins a run: keeps what it was loaded from, and opens its journal.
    pub fn begin(&self, id: &RunId, bundle: &Bundle, inputs: &Inputs) -> Result<(Journal, Arc<Vault>), StateError> {
        let folder = self.make(id)?;
        bundle.save(inputs, self, &folder)?;
        let vault = Vault::create(&folder.join(KEY))?;
        let journal = Journal::open(&folder.join(JOURNAL), 0, 0)?;
        let (command, operator) = (bundle.command.clone(), Operator::me());
        journal.note(Record::Begun { version: JOURNAL_VERSION, command, operator });
        Ok((journal, Arc::new(vault)))
    }

    /// The names of all runs, the oldest first.
    pub fn ids(&self) -> Vec<RunId> {
        let entries = fs::read_dir(self.runs()).into_iter().flatten().flatten();
        let mut ids: Vec<_> = entries.filter_map(|entry| RunId::parse(entry.file_name().to_str()?)).collect();
        ids.sort();
        ids
    }

    /// The run with this name, or the only one whose name starts so.
    pub fn find(&self, text: &str) -> Result<StoredRun, StateError> {
        let found: Vec<_> = self.ids().into_iter().filter(|id| id.as_str().starts_with(text)).collect();
        match found.as_slice() {
            [] => Err(StateError::NoRun(text.to_owned())),
            [id] => self.open(id),
            several => match several.iter().find(|id| id.as_str() == text) {
                Some(id) => self.open(id),
                None => {
                    let names: Vec<_> = several.iter().map(RunId::as_str).collect();
                    Err(StateError::Ambiguous(text.to_owned(), names.join(", ")))
                }
            },
        }
    }

    /// The newest run that did not succeed.
    pub fn last_unfinished(&self) -> Result<StoredRun, StateError> {
        for id in self.ids().iter().rev() {
            let run = self.open(id)?;
            if run.state.is_unfinished() {
                return Ok(run);
            }
        }
        Err(StateError::NothingUnfinished)
    }

    pub fn open(&self, id: &RunId) -> Result<StoredRun, StateError> {
        let folder = self.run(id);
        let path = folder.join(JOURNAL);
        let journal = match path.exists() {
            true => read_journal(&path)?,
            // A crash before the first record.
            false => ReadJournal::default(),
        };
        let state = state(&journal.lines, &path);
        Ok(StoredRun { id: id.clone(), folder, journal, state })
    }

    /// The file that events of a run go to, if it can be opened.
    pub fn events(&self, id: &RunId) -> Option<fs::File> {
        open_private(&self.run(id).join(EVENTS)).ok()
    }

    /// Removes the oldest finished runs beyond `keep`, and the texts that no run needs any more. Runs that
    /// could be resumed go only if `unfinished`; a run that is going on never does.
    pub fn prune(&self, keep: usize, unfinished: bool) -> Result<Vec<RunId>, StateError> {
        let old = self.prunable(keep, unfinished);
        old.iter().try_for_each(|id| self.remove(id))?;
        if !old.is_empty() {
            self.remove_unused_objects()?;
        }
        Ok(old)
    }

    /// What `prune` would remove.
    pub fn prunable(&self, keep: usize, unfinished: bool) -> Vec<RunId> {
        let may_go = |state| state == RunState::Done || (unfinished && state != RunState::Running);
        // A journal that cannot be read is not ours to judge.
        let finished = |id: &RunId| self.open(id).is_ok_and(|run| may_go(run.state));
        let ids: Vec<_> = self.ids().into_iter().filter(finished).collect();
        ids[..ids.len().saturating_sub(keep)].to_vec()
    }

    /// Removes all of a run but the texts that it was loaded from.
    pub fn remove(&self, id: &RunId) -> Result<(), StateError> {
        let folder = self.run(id);
        fs::remove_dir_all(&folder).map_err(|error| StateError::io(folder, &error))
    }

    fn remove_unused_objects(&self) -> Result<(), StateError> {
        let mut used = BTreeSet::new();
        for id in self.ids() {
            match Bundle::read(&self.run(&id)) {
                Ok(bundle) => used.extend(bundle.sums()),
                // It may just be beginning, and what it needs is not known yet.
                Err(_) => return Ok(()),
            }
        }
        for entry in fs::read_dir(self.objects()).into_iter().flatten().flatten() {
            if !used.contains(&*entry.file_name().to_string_lossy()) {
                fs::remove_file(entry.path()).map_err(|error| StateError::io(entry.path(), &error))?;
            }
        }
        Ok(())
    }
}

/// The last word counts; without one, the process either still holds the journal or is gone.
fn state(lines: &[Line], path: &Path) -> RunState {
    let locked = || open_private(path).is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockShared).is_err());
    match lines.last().map(|line| &line.record) {
        Some(Record::Ended { result: RunResult::Interrupted }) => RunState::Interrupted,
        _ if path.exists() && locked() => RunState::Running,
        Some(Record::Ended { result: RunResult::Success }) => RunState::Done,
        Some(Record::Ended { .. }) => RunState::Failed,
        _ => RunState::Crashed,
    }
}

impl StoredRun {
    pub fn bundle(&self) -> Result<Bundle, StateError> {
        Bundle::read(&self.folder)
    }

    /// Refuses a run that somebody else has put here: by another account, or as part of a repository. Ours are readable by their
    /// owner alone, which no version control keeps.
    pub fn must_be_ours(&self) -> Result<(), StateError> {
        let wrong = |path: &Path, problem: String| StateError::Stranger { path: path.to_owned(), problem };
        let found = fs::metadata(&self.folder).map_err(|error| StateError::io(&self.folder, &error))?;
        let mode = found.permissions().mode() & 0o7777;
        StateError::unless_trusted(&self.folder)?;
        if mode & 0o077 != 0 {
            let problem =
                format!("etcdrun creates such directories with mode 0700, and this one has the mode {mode:04o}");
            return Err(wrong(&self.folder, problem));
        }
        let entries = fs::read_dir(&self.folder).map_err(|error| StateError::io(&self.folder, &error))?;
        entries.flatten().try_for_each(|entry| StateError::unless_trusted(&entry.path()))
    }

    pub fn vault(&self) -> Result<Vault, StateError> {
        Vault::open(&self.folder.join(KEY))
    }

    pub fn events(&self) -> PathBuf {
        self.folder.join(EVENTS)
    }

    /// Goes on with the journal; a torn last line is removed.
    pub fn reopen(&self) -> Result<Journal, StateError> {
        let journal = &self.journal;
        Journal::open(&self.folder.join(JOURNAL), journal.length, journal.lines.len() as u64)
    }

    /// The fingerprint of a graph, if the run got that far.
    pub fn fingerprint(&self, wanted: u32) -> Option<&str> {
        self.journal.lines.iter().find_map(|line| match &line.record {
            Record::Graph { graph, fingerprint, .. } if *graph == wanted => Some(fingerprint.as_str()),
            _ => None,
        })
    }

    pub fn operator(&self) -> Option<&Operator> {
        self.journal.lines.iter().rev().find_map(|line| match &line.record {
            Record::Begun { operator, .. } | Record::Resumed { operator } => Some(operator),
            _ => None,
        })
    }

    /// Every node that the journal names, in the order of their first record.
    pub fn nodes(&self) -> Vec<NodeSummary> {
        let mut seen: IndexMap<(u32, u32), Seen> = IndexMap::new();
        for line in &self.journal.lines {
            let (Record::Intent { key, .. } | Record::Settled { key, .. } | Record::Assumed { key, .. }) = &line.record
            else {
                continue;
            };
            let node = seen.entry((key.graph, key.node)).or_insert_with(|| Seen::new(key.id.clone()));
            node.hear(line);
        }
        seen.into_values().map(Seen::summary).collect()
    }

    pub fn summary(&self) -> RunSummary {
        let nodes = self.nodes();
        let count = |names: &[&str]| nodes.iter().filter(|node| names.contains(&node.state)).count();
        let graphs = self.journal.lines.iter().filter_map(|line| match &line.record {
            Record::Graph { graph, nodes, .. } => Some((*graph, *nodes)),
            _ => None,
        });
        let command = self.journal.lines.iter().find_map(|line| match &line.record {
            Record::Begun { command, .. } => Some(command.clone()),
            _ => None,
        });
        RunSummary {
            id: self.id.to_string(),
            at: self.journal.lines.first().map_or(0, |line| line.at),
            state: self.state,
            command: command.unwrap_or_default(),
            operator: self.operator().cloned(),
            nodes: graphs.collect::<BTreeMap<_, _>>().values().sum(),
            done: count(&["ok", "changed", "skipped", "ignored", "rescued"]),
            changed: count(&["changed"]),
            failed: count(&["failed", "unreachable"]),
            in_flight: count(&["in flight"]),
            in_doubt: count(&["in doubt"]),
        }
    }
}

/// What the records of one node add up to.
struct Seen {
    id: Arc<str>,
    past: NodePast,
    last: Option<Status>,
    seconds: Option<f64>,
}

impl Seen {
    fn new(id: Arc<str>) -> Self {
        Self { id, past: NodePast::default(), last: None, seconds: None }
    }

    fn hear(&mut self, line: &Line) {
        match &line.record {
            Record::Settled { status, changed, doubt, seconds, .. } => {
                self.past.settled(*status, *changed, *doubt, None);
                (self.last, self.seconds) = (Some(*status), Some(*seconds));
            }
            Record::Assumed { done, .. } => {
                self.past.assumed(*done);
                self.last = None;
            }
            _ => {
                self.past.intended(Moment::by_clock(line.at));
                self.last = None;
            }
        }
    }

    fn summary(self) -> NodeSummary {
        let state = match &self.past.done {
            Some(done) => done.status.name(),
            None if self.past.doubt => "in doubt",
            None => match self.last {
                Some(status) => status.name(),
                None if self.past.in_flight.is_some() => "in flight",
                None => "to run again",
            },
        };
        NodeSummary { id: self.id, state, seconds: self.seconds }
    }
}
