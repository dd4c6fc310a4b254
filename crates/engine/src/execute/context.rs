//! What every node of a run can reach.

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};

use zeroize::Zeroizing;

use super::{
    Interrupt, Locking, Run,
    fleet::Fleet,
    foresight::{Foresight, Reads},
    guard::QuorumGuard,
    locks::Locks,
    pending::Pending,
    registered::Registered,
    specials::Specials,
    unpacked::Unpacked,
};
use crate::{
    compile::{top_layers, written_layers},
    graph::{Graph, Node, NodeIndex, NodeKind, PlayIndex},
    inventory::{HostId, Inventory},
    model::{Emitter, NodeInfo, Prediction, Predictions, ValueMap},
    playbook::{Place, Task},
    remote::{LOCK_FOLDER, Transport},
    source::{Sources, Vars},
    state::Recorder,
    task::RunScope,
    template::{Engine, Layer, Scope},
};

/// The command line's say in how a run goes.
#[derive(Clone)]
pub struct RunOptions {
    /// Names the run in events.
    pub run_id: Arc<str>,
    /// The command line, as one could type it again.
    pub command: Arc<str>,
    /// Nodes at once, in all.
    pub forks: usize,
    /// Nodes at once on one target.
    pub per_host: usize,
    pub check_mode: bool,
    pub diff: bool,
    /// `-b`: become unless a task says otherwise.
    pub r#become: bool,
    pub become_user: Option<Arc<str>>,
    pub become_password: Option<Zeroizing<String>>,
    /// For commands whose task sets no limit of its own.
    pub command_timeout: Option<Duration>,
    /// Whether running commands report their output as it comes.
    pub live_output: bool,
    pub extra_vars: Arc<Vars>,
    pub locking: Locking,
    /// The folder on hosts that locks are kept in.
    pub lock_dir: Arc<str>,
    pub transport: Transport,
    /// Where modules keep what outlives the run.
    pub state: PathBuf,
    /// In check mode: where it is gathered what would become of each node.
    pub predictions: Predictions,
    /// The plan that is to be run: what was foreseen must still be so.
    pub planned: Option<Arc<Vec<Prediction>>>,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            run_id: "run".into(),
            command: Arc::default(),
            forks: 50,
            per_host: 8,
            check_mode: false,
            diff: false,
            r#become: false,
            become_user: None,
            become_password: None,
            command_timeout: None,
            live_output: false,
            extra_vars: Arc::default(),
            locking: Locking::None,
            lock_dir: LOCK_FOLDER.into(),
            transport: Transport::default(),
            state: PathBuf::from(".etcdrun"),
            predictions: Predictions::default(),
            planned: None,
        }
    }
}

pub(super) struct Context {
    pub graph: Arc<Graph>,
    pub inventory: Arc<Inventory>,
    pub sources: Arc<Sources>,
    pub engine: Engine,
    pub fleet: Arc<Fleet>,
    pub registered: Registered,
    pub options: RunOptions,
    pub emitter: Emitter,
    pub interrupt: Interrupt,
    pub recorder: Recorder,
    pub scope: Arc<RunScope>,
    pub locks: Locks,
    pub guard: QuorumGuard,
    pub foresight: Arc<Foresight>,
    unpacked: Unpacked,
    /// By `TaskIndex`.
    tasks: Vec<OfTask>,
}

/// What is the same for all nodes of a task, worked out for the first of them.
#[derive(Default)]
struct OfTask {
    /// Unless it is a template.
    title: OnceLock<Arc<str>>,
    place: OnceLock<Arc<str>>,
    folders: OnceLock<Folders>,
}

/// Where the files of a task are looked for.
pub(super) struct Folders {
    pub files: Vec<PathBuf>,
    pub templates: Vec<PathBuf>,
}

/// Who wants to know which variables are read.
#[derive(Clone, Default)]
pub(super) struct Watch {
    /// For names that are still to come.
    pub pending: Option<Arc<Pending>>,
    /// For names that check mode cannot know.
    pub reads: Option<Arc<Reads>>,
}

impl Context {
    pub(super) fn new(run: Run) -> Self {
        let tasks = run.graph.tasks.iter().map(|_| OfTask::default()).collect();
        let masker = run.sources.masker().clone();
        let fleet = Arc::new(Fleet::new(run.inventory.clone(), run.connector, &run.options, masker));
        let (emitter, interrupt) = (run.emitter.clone(), run.interrupt.clone());
        Self {
            guard: QuorumGuard::new(run.inventory.clone(), run.graph.library.quorum, run.options.state.clone()),
            foresight: Arc::new(Foresight::new(run.inventory.clone(), run.options.check_mode)),
            locks: Locks::new(fleet.clone(), run.inventory.clone(), emitter, interrupt, &run.options),
            fleet,
            registered: Registered::new(&run.inventory),
            graph: run.graph,
            inventory: run.inventory,
            sources: run.sources,
            engine: Engine::new(),
            options: run.options,
            emitter: run.emitter,
            interrupt: run.interrupt,
            recorder: run.recorder,
            scope: run.scope,
            unpacked: Unpacked::default(),
            tasks,
        }
    }

    /// The variables a task sees on a host: what is written, what tasks left behind, what nobody overrides.
    pub(super) fn scope(self: &Arc<Self>, play: PlayIndex, host: HostId, task: &Task) -> Scope {
        self.watched_scope(play, host, task, &Watch::default())
    }

    /// The same, where somebody hears of what is read.
    pub(super) fn watched_scope(self: &Arc<Self>, play: PlayIndex, host: HostId, task: &Task, watch: &Watch) -> Scope {
        let info = self.graph.play(play);
        let inventory = self.inventory.host_by_id(host);
        let mut layers = written_layers(task, inventory, &info.vars, &info.vars_files);
        layers.extend(self.late_layers(host, watch));
        layers.extend(top_layers(inventory, &self.options.extra_vars));
        layers.push(Layer::Dynamic(Arc::new(Specials::new(self.clone(), play, task, watch.clone()))));
        Scope::new(layers)
    }

    /// The variables of another host, as `hostvars` shows them: no play, no role.
    pub(super) fn host_scope(self: &Arc<Self>, host: HostId, watch: &Watch) -> Scope {
        let inventory = self.inventory.host_by_id(host);
        let mut layers: Vec<_> = inventory.layers.iter().cloned().map(Layer::Nodes).collect();
        layers.extend(self.late_layers(host, watch));
        layers.extend(top_layers(inventory, &self.options.extra_vars));
        Scope::new(layers)
    }

    /// What tasks have left for a host, and above it what they would leave.
    fn late_layers(&self, host: HostId, watch: &Watch) -> Vec<Layer> {
        let late = Layer::Values(self.registered.late(host));
        let reads = watch.reads.as_ref().filter(|_| self.options.check_mode);
        let doubtful = reads.map(|reads| self.foresight.layer(host, reads));
        let pending = watch.pending.as_ref().map(|pending| pending.layer(host));
        [late].into_iter().chain(doubtful).chain(pending).collect()
    }

    pub(super) fn info(self: &Arc<Self>, index: NodeIndex, host: HostId, task: &Task) -> Arc<NodeInfo> {
        let node = self.graph.node(index);
        Arc::new(NodeInfo {
            id: self.graph.id(index).into(),
            play: self.graph.play(node.play).name.clone(),
            task: self.title(node, host, task),
            role: task.role.as_ref().map(|role| role.name.clone()),
            module: task.module.name,
            is_message: task.module.traits.is_message,
            rollout: task.module.traits.rollout,
            host: self.graph.host(host).clone(),
            target: node.target.map(|target| self.graph.host(target).clone()),
            place: self.place(node, task),
            handler: node.kind == NodeKind::Handler,
            order: index.index(),
        })
    }

    /// A task's name, rendered. As written where it uses what is not known, such as a loop's item: a name must
    /// not fail a task.
    fn title(self: &Arc<Self>, node: &Node, host: HostId, task: &Task) -> Arc<str> {
        if !task.name.contains("{{") {
            let written = || task.name.as_str().into();
            return self.of_task(node).map_or_else(written, |known| known.title.get_or_init(written).clone());
        }
        let rendered = self.engine.render_str(&task.name, task.span, &self.scope(node.play, host, task));
        rendered.map_or_else(|_| task.name.as_str().into(), Into::into)
    }

    /// Folders on disk, those of embedded roles unpacked.
    pub(super) fn folders(&self, index: NodeIndex, task: &Task) -> &Folders {
        static NONE: Folders = Folders { files: Vec::new(), templates: Vec::new() };
        let on_disk = |places: Vec<Place>| places.iter().filter_map(|place| self.unpacked.path(place)).collect();
        let find = || Folders { files: on_disk(task.file_places()), templates: on_disk(task.template_places()) };
        self.of_task(self.graph.node(index)).map_or(&NONE, |known| known.folders.get_or_init(find))
    }

    /// `file:line`, as a person would look it up.
    fn place(&self, node: &Node, task: &Task) -> Arc<str> {
        let find = || {
            let line = self.sources.position(task.span).line;
            format!("{}:{line}", self.sources.path(task.span.file).display()).into()
        };
        self.of_task(node).map_or_else(find, |known| known.place.get_or_init(find).clone())
    }

    fn of_task(&self, node: &Node) -> Option<&OfTask> {
        self.tasks.get(node.task?.0 as usize)
    }
}

/// A layer with one name in it: a loop's item, a registered result.
pub(super) fn layer(entries: impl IntoIterator<Item = (String, crate::model::Value)>) -> Layer {
    Layer::Values(Arc::new(entries.into_iter().collect::<ValueMap>()))
}
