//! Keeps a run in the state folder, new or resumed.

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{CliError, Invocation, args::StateArgs, input::inventory_paths};
use crate::{
    graph::Graph,
    model::RunResult,
    source::disk::Inputs,
    state::{
        Bundle, Journal, Line, NodeKey, Operator, Past, Record, Recorder, RunId, StateError, StateFolder, StoredRun,
        Vault,
    },
};

/// Finished runs that are kept; older ones go away by themselves.
pub const KEPT_RUNS: usize = 100;
/// How many more there may be before anybody looks.
const SLACK: usize = 20;

/// A run that goes on.
#[derive(Debug)]
pub struct Resumed {
    pub state: StateFolder,
    pub run: StoredRun,
    pub inputs: Inputs,
    /// What the operator says of nodes in doubt: which, and whether they are done.
    pub assumed: Vec<(NodeKey, bool)>,
}

/// Where a run is kept while it lasts.
pub struct RunRecord {
    pub id: RunId,
    state: StateFolder,
    journal: Journal,
    vault: Arc<Vault>,
    /// What an earlier process has recorded.
    lines: Vec<Line>,
    fingerprints: Vec<String>,
}

/// The state folder that is meant: the one given, the one configured, or the one beside the inventory.
pub fn state_folder(given: Option<&Path>, inventories: &[PathBuf], invocation: &Invocation) -> StateFolder {
    match given.or(invocation.settings.state_dir.as_deref()) {
        Some(path) => StateFolder::at(path),
        None => StateFolder::beside(inventories),
    }
}

pub fn state_of(args: &StateArgs, invocation: &Invocation) -> StateFolder {
    state_folder(args.state_dir.as_deref(), &inventory_paths(&args.inventory, invocation), invocation)
}

/// What is needed to load the same again.
pub fn bundle(command: Vec<String>, inputs: &Inputs, invocation: &Invocation) -> Result<Bundle, CliError> {
    let settings = serde_json::to_value(&invocation.settings).unwrap_or_default();
    Ok(Bundle::new(command, std::env::current_dir()?, settings, inputs))
}

impl RunRecord {
    pub fn open(
        given: Option<&Path>,
        inventories: &[PathBuf],
        inputs: &Inputs,
        invocation: &Invocation,
    ) -> Result<Self, CliError> {
        match &invocation.resumed {
            Some(resumed) => Self::reopen(resumed),
            None => Self::begin(state_folder(given, inventories, invocation), inputs, invocation),
        }
    }

    fn begin(state: StateFolder, inputs: &Inputs, invocation: &Invocation) -> Result<Self, CliError> {
        let id = RunId::new();
        let bundle = bundle(invocation.command.clone(), inputs, invocation)?;
        let (journal, vault) = state.begin(&id, &bundle, inputs)?;
        Ok(Self { id, state, journal, vault, lines: Vec::new(), fingerprints: Vec::new() })
    }

    fn reopen(resumed: &Resumed) -> Result<Self, CliError> {
        let run = &resumed.run;
        let (journal, vault) = (run.reopen()?, Arc::new(run.vault()?));
        let mut lines = run.journal.lines.clone();
        let at = jiff::Timestamp::now().as_millisecond();
        let mut note = |record: Record| {
            journal.note(record.clone());
            lines.push(Line { at, record });
        };
        note(Record::Resumed { operator: Operator::me() });
        for (key, done) in &resumed.assumed {
            note(Record::Assumed { key: key.clone(), done: *done });
        }
        let fingerprints = (0..).map_while(|graph| run.fingerprint(graph).map(str::to_owned)).collect();
        Ok(Self { id: run.id.clone(), state: resumed.state.clone(), journal, vault, lines, fingerprints })
    }

    /// The recorder for the run's next graph, which must be the one it was the first time.
    pub fn recorder(&self, number: usize, graph: &Graph) -> Result<Recorder, CliError> {
        let fingerprint = graph.fingerprint();
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        match self.fingerprints.get(number as usize) {
            Some(known) if *known != fingerprint => {
                let why = "its tasks have changed; was it started by another version of etcdrun?";
                return Err(StateError::NotResumable(self.id.to_string(), why.to_owned()).into());
            }
            Some(_) => {}
            None => self.journal.note(Record::Graph {
                graph: number,
                playbook: graph.playbook.clone(),
                nodes: graph.work().count(),
                fingerprint,
            }),
        }
        let past = Past::of(&self.lines, (number, graph), &self.vault);
        Ok(Recorder::new(self.journal.clone(), self.vault.clone(), number, past))
    }

    /// The file that events go to, where one can be opened.
    pub fn events(&self) -> Option<File> {
        self.state.events(&self.id)
    }

    /// The last word. Finished runs of long ago go away.
    pub async fn end(&self, result: RunResult) -> Result<(), CliError> {
        self.journal.commit(Record::Ended { result }).await?;
        if matches!(result, RunResult::LockHeld | RunResult::Moved) && self.state.open(&self.id)?.nodes().is_empty() {
            return Ok(self.state.remove(&self.id)?);
        }
        if result == RunResult::Success && self.state.ids().len() > KEPT_RUNS + SLACK {
            // Another run may be doing the same; what is left over goes next time.
            let _ = self.state.prune(KEPT_RUNS, false);
        }
        Ok(())
    }
}

/// Paths for a message, of which too many would only hide the rest.
pub fn some_paths(paths: &[&Path]) -> String {
    const SHOWN: usize = 10;
    let names: Vec<_> = paths.iter().take(SHOWN).map(|path| path.display().to_string()).collect();
    let more = paths.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", names.join(", "))
}
