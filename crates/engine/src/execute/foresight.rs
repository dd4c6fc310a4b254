//! What check mode cannot know: it does not run tasks that would change something, and others follow from them.
//!
//! Unknown travels in two ways only. A template reads what such a task leaves behind; or a task looks at something
//! on its target that such a task would change. That one merely comes after the other is no reason.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
};

use minijinja::value::{Enumerator, Object, ObjectRepr, Value};

use super::{node::NodeRun, node::Trouble, registered::lock, surroundings::Target};
use crate::{
    graph::{PlayIndex, TaskIndex},
    inventory::HostId,
    model::{Effects, Forecast, Outcome, Prediction, Resource, Status},
    playbook::{Task, constant},
    source::{Node, disk::sum},
    template::{DynamicLayer, Layer, Scope},
};

/// How a handler is notified: by play, host and task.
pub(super) type Notice = (PlayIndex, HostId, TaskIndex);

/// What is foreseen and not done, while a run in check mode lasts.
#[derive(Default)]
pub(super) struct Foresight(Mutex<Foreseen>);

#[derive(Default)]
struct Foreseen {
    names: HashMap<(HostId, String), Doubt>,
    changes: HashMap<Target, Vec<Change>>,
    /// Handlers that run only if a task changes something of which nobody knows whether it does.
    handlers: HashMap<Notice, Arc<str>>,
    /// Guests for which something would be done on their hypervisor, and the task that does it last.
    guests: HashMap<HostId, Arc<str>>,
    /// Those of them that were found not to answer.
    absent: HashSet<HostId>,
}

/// Something that a task would leave behind.
#[derive(Clone)]
struct Doubt {
    task: Arc<str>,
    /// A registered result. What is set by `set_fact` can be any value.
    is_result: bool,
    /// The task would change something: that much is known of its result.
    changes: bool,
}

/// Something that a task would or might change on a target.
struct Change {
    /// `None` if nobody can name it.
    what: Option<Resource>,
    task: Arc<str>,
    host: HostId,
    play: PlayIndex,
}

/// What a part of a node does, and where.
pub(super) struct At {
    pub effects: Effects,
    pub target: Target,
}

/// Hears of reads that no plan can answer.
#[derive(Debug, Default)]
pub(super) struct Reads(Mutex<Option<String>>);

impl Reads {
    fn note(&self, why: String) {
        lock(&self.0).get_or_insert(why);
    }

    /// Why what was rendered since the last call is worth nothing, if that is so.
    pub(super) fn take(&self) -> Option<String> {
        lock(&self.0).take()
    }
}

impl Foresight {
    /// The names of a host as variables, for as far as they are in doubt.
    pub(super) fn layer(self: &Arc<Self>, host: HostId, reads: &Arc<Reads>) -> Layer {
        Layer::Dynamic(Arc::new(Doubtful { foresight: self.clone(), host, reads: reads.clone() }))
    }

    pub(super) fn may_notify(&self, notice: Notice, task: &Arc<str>) {
        lock(&self.0).handlers.insert(notice, task.clone());
    }

    pub(super) fn notifies(&self, notice: &Notice) {
        lock(&self.0).handlers.remove(notice);
    }

    fn leave(&self, hosts: &[HostId], task: &Task, outcome: &Outcome, is_prediction: bool) {
        let in_doubt = is_prediction && (outcome.unknown || outcome.changed);
        let mut foreseen = lock(&self.0);
        for name in task.leavings() {
            let is_result = task.register.as_ref().is_some_and(|register| &*register.value == name);
            let doubt = Doubt { task: task.name.as_str().into(), is_result, changes: !outcome.unknown };
            for &host in hosts {
                match in_doubt {
                    true => drop(foreseen.names.insert((host, name.to_owned()), doubt.clone())),
                    false => drop(foreseen.names.remove(&(host, name.to_owned()))),
                }
            }
        }
    }
}

impl Change {
    /// Hosts of one play run free of each other; then neither comes first.
    fn comes_before(&self, run: &NodeRun) -> bool {
        self.host == run.host || self.play.0 < run.play.0
    }
}

impl NodeRun {
    /// Whether its result is what would be, rather than what is.
    fn predicts(&self) -> bool {
        self.context.options.check_mode && self.check_mode()
    }

    /// What can be said of a part by itself, if what was rendered for it was in doubt. It may still be known what
    /// it would change.
    pub(super) fn in_doubt(&self, scope: &Scope) -> Option<(Outcome, Option<At>)> {
        let why = self.reads.take()?;
        let at = self.build(scope).ok().zip(self.target(scope).ok());
        let at =
            at.filter(|_| self.reads.take().is_none()).map(|(built, target)| At { effects: built.effects, target });
        Some((unknown(why), at))
    }

    /// A handler of which nobody knows whether it will be notified.
    pub(super) fn may_not_run(&self) -> Option<Outcome> {
        if !self.context.options.check_mode {
            return None;
        }
        let notice = (self.play, self.host, self.context.graph.node(self.index).task?);
        let task = lock(&self.context.foresight.0).handlers.get(&notice).cloned()?;
        Some(unknown(format!("runs only if “{task}” changes something")))
    }

    /// What came of a part, once it is held against what earlier tasks would have changed.
    pub(super) fn foresee(&self, at: Option<&At>, result: Result<Outcome, Trouble>) -> Result<Outcome, Trouble> {
        if !self.predicts() {
            return result;
        }
        let outcome = match result {
            Ok(outcome) if outcome.failed => self.excused(at, &outcome).map_or(outcome, unknown),
            Err(Trouble::Failed(outcome, hint)) => match self.excused(at, &outcome) {
                Some(why) => unknown(why),
                None => return Err(Trouble::Failed(outcome, hint)),
            },
            Err(trouble @ Trouble::Unreachable { .. }) => return self.not_there_yet().ok_or(trouble),
            other => other?,
        };
        let Some(at) = at.filter(|_| !outcome.skipped) else { return Ok(outcome) };
        let outcome = match self.depends(at) {
            Some(why) => unknown(why),
            None => outcome,
        };
        if outcome.changed || outcome.unknown {
            self.would_change(at, &outcome);
        }
        Ok(outcome)
    }

    /// A guest need not answer as long as its hypervisor has not been told all about it.
    fn not_there_yet(&self) -> Option<Outcome> {
        let target = self.context.graph.node(self.index).target.unwrap_or(self.host);
        let mut foreseen = lock(&self.context.foresight.0);
        let task = foreseen.guests.get(&target)?.clone();
        foreseen.absent.insert(target);
        Some(unknown(format!("the guest cannot be reached yet; “{task}” comes before")))
    }

    /// Whether the target is a guest that is not there yet, so that nobody has to try again.
    pub(super) fn is_absent(&self) -> Option<Trouble> {
        let target = self.context.graph.node(self.index).target.unwrap_or(self.host);
        let is_absent = self.predicts() && lock(&self.context.foresight.0).absent.contains(&target);
        is_absent.then(|| Trouble::Unreachable { msg: "it was not there before".to_owned(), hint: None, sent: false })
    }

    /// Remembers what would be done for guests on their hypervisor.
    fn would_make(&self, hosts: &[HostId], outcome: &Outcome) {
        let Some(target) = self.context.graph.node(self.index).target else { return };
        if !self.predicts() || !(outcome.changed || outcome.unknown) {
            return;
        }
        let task: Arc<str> = self.task.name.as_str().into();
        let is_there = |host: &&HostId| self.context.inventory.hypervisor_of(**host).is_some_and(|at| at.id == target);
        let guests = hosts.iter().filter(is_there).map(|host| (*host, task.clone()));
        lock(&self.context.foresight.0).guests.extend(guests);
    }

    fn depends(&self, at: &At) -> Option<String> {
        let foreseen = lock(&self.context.foresight.0);
        let changes = foreseen.changes.get(&at.target)?.iter().filter(|change| change.comes_before(self));
        changes.filter_map(|change| Some((change, change.what.as_ref()?))).find_map(|(change, what)| {
            at.effects.reads.iter().find(|read| read.overlaps(what))?;
            Some(format!("depends on {}, which “{}” would change", what.describe(), change.task))
        })
    }

    /// A failure need not be one once a command has run, or a package is there, that a plan leaves out.
    fn excused(&self, at: Option<&At>, outcome: &Outcome) -> Option<String> {
        if let Some(why) = at.and_then(|at| self.depends(at)) {
            return Some(why);
        }
        let foreseen = lock(&self.context.foresight.0);
        let places = [Some(Target::Operator), at.map(|at| at.target), Some(Target::Host(self.host))];
        let changes = places.into_iter().flatten().filter_map(|place| foreseen.changes.get(&place)).flatten();
        let could_help = |change: &&Change| matches!(change.what, None | Some(Resource::Package(_)));
        let change = changes.filter(could_help).find(|change| change.comes_before(self))?;
        Some(format!("as things are now it would fail ({}); “{}” comes before", outcome.msg, change.task))
    }

    fn would_change(&self, at: &At, outcome: &Outcome) {
        let Effects { writes, opaque, here, .. } = &at.effects;
        // Packages bring others along.
        let changes = outcome.data.get("changes").and_then(crate::model::Value::as_array).into_iter().flatten();
        let names = changes.filter_map(|change| change.as_str()?.split(' ').nth(1));
        let packages = names.map(|name| Resource::Package(name.to_owned()));
        let change = |what| Change { what, task: self.task.name.as_str().into(), host: self.host, play: self.play };
        let mut foreseen = lock(&self.context.foresight.0);
        let there = foreseen.changes.entry(at.target).or_default();
        there.extend(writes.iter().cloned().chain(packages).map(Some).map(change));
        there.extend(opaque.then(|| change(None)));
        if *here {
            foreseen.changes.entry(Target::Operator).or_default().push(change(None));
        }
    }

    /// The node has ended: what it leaves, others may read.
    pub(super) fn leave_foreseen(&self, hosts: &[HostId], outcome: &Outcome) {
        if !self.context.options.check_mode {
            return;
        }
        self.context.foresight.leave(hosts, &self.task, outcome, self.predicts());
        self.would_make(hosts, outcome);
        if let Some(task) = self.context.graph.node(self.index).task {
            self.context.foresight.notifies(&(self.play, self.host, task));
        }
    }

    /// Keeps what the arguments were rendered to, a line for each time.
    pub(super) fn note_arguments(&self, args: &Node) {
        if self.context.options.check_mode {
            let mut arguments = lock(&self.arguments);
            arguments.push_str(&args.to_value().to_string());
            arguments.push('\n');
        }
    }

    /// Says in the plan what would become of the node.
    pub(super) fn predict(&self, outcome: &Outcome, status: Status) {
        if !self.context.options.check_mode {
            return;
        }
        self.context.options.predictions.add(Prediction {
            id: self.info.id.clone(),
            host: self.info.host.clone(),
            task: self.info.task.clone(),
            forecast: Forecast::of(status, outcome.unknown),
            arguments: sum(lock(&self.arguments).as_bytes()),
            diff: outcome.diff.clone(),
            hidden: self.task.no_log,
        });
    }

    /// The playbook wants to judge a result that is not there yet.
    pub(super) fn judges_prediction(&self, outcome: &Outcome) -> bool {
        let conditions = self.task.changed_when.iter().chain(&self.task.failed_when).chain(&self.task.until);
        let asks = conditions.into_iter().any(|condition| constant(condition).is_none());
        asks && outcome.changed && self.predicts()
    }
}

pub(super) fn unknown(why: impl Into<String>) -> Outcome {
    Outcome { unknown: true, msg: why.into(), ..Outcome::ok() }
}

struct Doubtful {
    foresight: Arc<Foresight>,
    host: HostId,
    reads: Arc<Reads>,
}

/// Lies above what tasks have left, and has nothing but what is in doubt.
impl DynamicLayer for Doubtful {
    fn get(&self, name: &str) -> Option<Value> {
        let doubt = lock(&self.foresight.0).names.get(&(self.host, name.to_owned())).cloned()?;
        if doubt.is_result {
            return Some(Value::from_object(DoubtfulResult {
                name: name.to_owned(),
                doubt,
                reads: self.reads.clone(),
            }));
        }
        self.reads.note(format!("depends on `{name}`, which “{}” would set", doubt.task));
        None
    }

    fn contains(&self, name: &str) -> bool {
        lock(&self.foresight.0).names.contains_key(&(self.host, name.to_owned()))
    }

    fn names(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A registered result of a task that was not run. That it would change something may be known, and no more.
struct DoubtfulResult {
    name: String,
    doubt: Doubt,
    reads: Arc<Reads>,
}

impl DoubtfulResult {
    fn note(&self) {
        let Self { name, doubt, reads } = self;
        reads.note(format!("depends on `{name}`, the result of “{}”", doubt.task));
    }
}

impl std::fmt::Debug for DoubtfulResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.note();
        f.write_str("unknown")
    }
}

impl Object for DoubtfulResult {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Map
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        match key.as_str() {
            Some("changed") if self.doubt.changes => Some(true.into()),
            Some("failed" | "skipped") if self.doubt.changes => Some(false.into()),
            _ => {
                self.note();
                None
            }
        }
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        self.note();
        Enumerator::Empty
    }
}
