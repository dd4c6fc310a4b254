//! Runs a playbook through the library against a real sshd and keeps the events.

use std::{path::PathBuf, sync::Arc};

use etcdrun::{
    compile::{CompileOptions, Selection, compile},
    execute::{Interrupt, Run, RunOptions, run},
    graph::Graph,
    inventory::{self, Inventory},
    model::{Emitter, Event, EventKind, RunResult, Status},
    playbook::{self, LoadOptions, Place, PlaybookSource},
    source::{Diagnostics, Sources},
    ssh::Connector,
    state::Recorder,
};

use super::sshd::{Sshd, options};

/// A folder with an inventory of loopback hosts, and the sshd that answers for them.
pub struct Bench {
    pub sshd: Sshd,
    pub folder: tempfile::TempDir,
    inventory: String,
}

/// What came of a run.
pub struct Report {
    pub result: RunResult,
    pub events: Vec<Event>,
}

/// What the loaders and the compiler made of the input.
pub struct Loaded {
    pub graph: Graph,
    pub inventory: Inventory,
    pub sources: Sources,
}

impl Bench {
    /// Hosts h1 to hN.
    pub fn new(hosts: usize) -> Self {
        Self::on(Sshd::start(), hosts)
    }

    /// The same hosts on a server that was started otherwise.
    pub fn on(sshd: Sshd, hosts: usize) -> Self {
        let inventory = sshd.inventory(hosts);
        Self { sshd, folder: tempfile::tempdir().unwrap(), inventory }
    }

    /// More YAML behind the hosts: groups, vars, clusters.
    pub fn inventory(mut self, more: &str) -> Self {
        self.inventory.push_str(more);
        self
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Loads and compiles; `DIR` in the playbook stands for the folder. Errors as `file:line:col: message`.
    pub fn load(&self, playbook: &str, selection: Selection) -> Result<Loaded, Vec<String>> {
        let hosts = self.write("hosts.yaml", &self.inventory);
        let path = self.write("play.yaml", &playbook.replace("DIR", &self.folder.path().display().to_string()));
        let (mut sources, mut diagnostics) = (Sources::default(), Diagnostics::default());
        let inventory = etcdrun::etcd::load_inventory(&[hosts], &mut sources, &mut diagnostics);
        let source = PlaybookSource { place: Place::disk(path) };
        let playbook = playbook::load(&source, &LoadOptions::new(etcdrun::LIBRARY), &mut sources, &mut diagnostics);
        let options = CompileOptions { selection, ..CompileOptions::default() };
        let graph = compile(&inventory, &playbook, &options, &mut sources, &mut diagnostics);
        match graph {
            Some(graph) if !diagnostics.has_errors() => Ok(Loaded { graph, inventory, sources }),
            _ => Err(diagnostics.iter().map(|d| self.describe(&sources, d)).collect()),
        }
    }

    fn describe(&self, sources: &Sources, diagnostic: &etcdrun::source::Diagnostic) -> String {
        let place = diagnostic.span.map(|span| sources.describe(span)).unwrap_or_default();
        let place = place.replace(&format!("{}/", self.folder.path().display()), "");
        let help = diagnostic.help.as_ref().map(|help| format!(" ({help})")).unwrap_or_default();
        format!("{place}: {}{help}", diagnostic.message)
    }

    pub fn run(&self, playbook: &str) -> Report {
        self.run_with(playbook, RunOptions::default())
    }

    pub fn run_with(&self, playbook: &str, options: RunOptions) -> Report {
        self.run_until(playbook, options, &Interrupt::default(), |_| {})
    }

    /// Runs, and shows every event to `watch` as it happens.
    pub fn run_until(
        &self,
        playbook: &str,
        run_options: RunOptions,
        interrupt: &Interrupt,
        mut watch: impl FnMut(&Event) + Send,
    ) -> Report {
        let loaded = self.load(playbook, Selection::default()).unwrap_or_else(|errors| panic!("{errors:#?}"));
        let (emitter, receiver) = Emitter::channel();
        // All hosts share one home folder, and runs at the same time must not share job names.
        let run_id = self.folder.path().file_name().unwrap().to_string_lossy().replace('.', "").into();
        let work = Run {
            graph: Arc::new(loaded.graph),
            inventory: Arc::new(loaded.inventory),
            sources: Arc::new(loaded.sources),
            connector: Connector::new(options(self.folder.path())).unwrap(),
            options: RunOptions { run_id, ..run_options },
            emitter,
            interrupt: interrupt.clone(),
            recorder: Recorder::none(),
            scope: Arc::default(),
        };
        std::thread::scope(|scope| {
            let runner = scope.spawn(|| {
                let runtime =
                    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
                runtime.block_on(run(work))
            });
            let mut events = Vec::new();
            for event in receiver {
                watch(&event);
                events.push(event);
            }
            Report { result: runner.join().unwrap(), events }
        })
    }
}

impl Report {
    /// `status host task`, in the order in which nodes ended.
    pub fn lines(&self) -> Vec<String> {
        self.events.iter().filter_map(|event| line(&event.kind)).collect()
    }

    /// The same, sorted: hosts run free of each other.
    pub fn sorted(&self) -> Vec<String> {
        let mut lines = self.lines();
        lines.sort();
        lines
    }

    pub fn count(&self, wanted: Status) -> usize {
        let is = |event: &&Event| matches!(&event.kind, EventKind::NodeFinished { status, .. } if *status == wanted);
        self.events.iter().filter(is).count()
    }

    /// Commands that were started on hosts.
    pub fn execs(&self) -> u64 {
        match self.events.last().map(|event| &event.kind) {
            Some(EventKind::RunFinished { execs, .. }) => *execs,
            other => panic!("a run ends with {other:?}"),
        }
    }

    /// The message of the first node of that task that ended.
    pub fn message(&self, task: &str) -> String {
        self.events
            .iter()
            .find_map(|event| match &event.kind {
                EventKind::NodeFinished { node, result, .. } if &*node.task == task => Some(result.msg.clone()),
                _ => None,
            })
            .unwrap_or_else(|| panic!("no task {task}"))
    }
}

fn line(kind: &EventKind) -> Option<String> {
    match kind {
        EventKind::NodeFinished { node, status, .. } => {
            let status = serde_json::to_value(status).unwrap();
            Some(format!("{} {} {}", status.as_str().unwrap(), node.host, node.task))
        }
        _ => None,
    }
}
