//! What check mode cannot know: it does not run tasks that would change something, and others follow from them.
//!
//! Unknown travels in two ways only. A template reads what such a task leaves behind; or a task looks at something
//! on its target that such a task would change. That one merely comes after the other is no reason.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
};

use minijinja::value::{Enumerator, Object, ObjectRepr, Value};

use crate::execute::{node::NodeError, registered::lock, scheduler::Notice, surroundings::Target};
use crate::{
    graph::PlayIndex,
    inventory::{HostId, Inventory},
    model::{Effects, Outcome, Resource},
    playbook::{Task, constant},
    template::{DynamicLayer, Layer},
};

/// What is foreseen and not done, while a run in check mode lasts.
pub(in crate::execute) struct Foresight {
    inventory: Arc<Inventory>,
    /// The whole run only looks.
    check_mode: bool,
    foreseen: Mutex<Foreseen>,
}

/// Whose result is looked at: all that matters of a node here.
pub(in crate::execute) struct Who<'a> {
    pub host: HostId,
    pub play: PlayIndex,
    /// Where the graph says that it runs.
    pub target: Option<HostId>,
    pub task: &'a Task,
    /// By which it is notified, if it is a handler.
    pub notice: Option<Notice>,
    /// It only looks, as a whole run in check mode does, or as the task says itself.
    pub only_looks: bool,
}

#[derive(Default)]
struct Foreseen {
    names: HashMap<(HostId, String), Doubt>,
    changes: HashMap<Target, Vec<Change>>,
    /// Handlers that run only if a task changes something, which is unknown.
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
    /// `None` if it has no name.
    what: Option<Resource>,
    task: Arc<str>,
    host: HostId,
    play: PlayIndex,
}

/// What a part of a node does, and where.
pub(in crate::execute) struct At {
    pub effects: Effects,
    pub target: Target,
}

/// Hears of reads that no plan can answer.
#[derive(Debug, Default)]
pub(in crate::execute) struct Reads(Mutex<Option<String>>);

impl Reads {
    fn note(&self, why: String) {
        lock(&self.0).get_or_insert(why);
    }

    /// Why what was rendered since the last call is worth nothing, if that is so.
    pub(in crate::execute) fn take(&self) -> Option<String> {
        lock(&self.0).take()
    }
}

impl Foresight {
    pub(in crate::execute) fn new(inventory: Arc<Inventory>, check_mode: bool) -> Self {
        Self { inventory, check_mode, foreseen: Mutex::default() }
    }

    /// Whether its result is what would be, rather than what is.
    fn predicts(&self, who: &Who<'_>) -> bool {
        self.check_mode && who.only_looks
    }

    /// The names of a host as variables, for as far as they are in doubt.
    pub(in crate::execute) fn layer(self: &Arc<Self>, host: HostId, reads: &Arc<Reads>) -> Layer {
        Layer::Dynamic(Arc::new(Doubtful { foresight: self.clone(), host, reads: reads.clone() }))
    }

    pub(in crate::execute) fn may_notify(&self, notice: Notice, task: &Arc<str>) {
        lock(&self.foreseen).handlers.insert(notice, task.clone());
    }

    pub(in crate::execute) fn notifies(&self, notice: &Notice) {
        lock(&self.foreseen).handlers.remove(notice);
    }

    /// A handler of which it is unknown whether it will be notified.
    pub(in crate::execute) fn handler_in_doubt(&self, who: &Who<'_>) -> Option<Outcome> {
        let notice = who.notice.filter(|_| self.check_mode)?;
        let task = lock(&self.foreseen).handlers.get(&notice).cloned()?;
        Some(unknown(format!("runs only if “{task}” changes something")))
    }

    /// What came of a part, once it is held against what earlier tasks would have changed.
    pub(in crate::execute) fn foresee(
        &self,
        who: &Who<'_>,
        at: Option<&At>,
        result: Result<Outcome, NodeError>,
    ) -> Result<Outcome, NodeError> {
        if !self.predicts(who) {
            return result;
        }
        let outcome = match result {
            Ok(outcome) if outcome.failed => self.excused(who, at, &outcome).map_or(outcome, unknown),
            Err(NodeError::Failed(outcome, hint)) => match self.excused(who, at, &outcome) {
                Some(why) => unknown(why),
                None => return Err(NodeError::Failed(outcome, hint)),
            },
            Err(trouble @ NodeError::Unreachable { .. }) => return self.not_there_yet(who).ok_or(trouble),
            other => other?,
        };
        let Some(at) = at.filter(|_| !outcome.skipped) else { return Ok(outcome) };
        let outcome = match self.depends(who, at) {
            Some(why) => unknown(why),
            None => outcome,
        };
        if outcome.changed || outcome.unknown {
            self.would_change(who, at, &outcome);
        }
        Ok(outcome)
    }

    /// A guest need not answer as long as its hypervisor has not been told all about it.
    fn not_there_yet(&self, who: &Who<'_>) -> Option<Outcome> {
        let target = who.target.unwrap_or(who.host);
        let mut foreseen = lock(&self.foreseen);
        let task = foreseen.guests.get(&target)?.clone();
        foreseen.absent.insert(target);
        Some(unknown(format!("the guest cannot be reached yet; “{task}” comes before")))
    }

    /// Whether the target is a guest that is not there yet, so that no other task has to try.
    pub(in crate::execute) fn is_absent(&self, who: &Who<'_>) -> Option<NodeError> {
        let target = who.target.unwrap_or(who.host);
        let is_absent = self.predicts(who) && lock(&self.foreseen).absent.contains(&target);
        is_absent.then(|| NodeError::Unreachable { msg: "it was not there before".to_owned(), hint: None, sent: false })
    }

    /// Remembers what would be done for guests on their hypervisor.
    fn would_make(&self, who: &Who<'_>, hosts: &[HostId], outcome: &Outcome) {
        let Some(target) = who.target else { return };
        if !self.predicts(who) || !(outcome.changed || outcome.unknown) {
            return;
        }
        let task: Arc<str> = who.task.name.as_str().into();
        let is_there = |host: &&HostId| self.inventory.hypervisor_of(**host).is_some_and(|at| at.id == target);
        let guests = hosts.iter().filter(is_there).map(|host| (*host, task.clone()));
        lock(&self.foreseen).guests.extend(guests);
    }

    fn depends(&self, who: &Who<'_>, at: &At) -> Option<String> {
        let foreseen = lock(&self.foreseen);
        let changes = foreseen.changes.get(&at.target)?.iter().filter(|change| change.comes_before(who));
        changes.filter_map(|change| Some((change, change.what.as_ref()?))).find_map(|(change, what)| {
            at.effects.reads.iter().find(|read| read.overlaps(what))?;
            Some(format!("depends on {}, which “{}” would change", what.describe(), change.task))
        })
    }

    /// A failure need not be one once a command has run, or a package is there, that a plan leaves out.
    fn excused(&self, who: &Who<'_>, at: Option<&At>, outcome: &Outcome) -> Option<String> {
        if let Some(why) = at.and_then(|at| self.depends(who, at)) {
            return Some(why);
        }
        let foreseen = lock(&self.foreseen);
        let places = [Some(Target::Operator), at.map(|at| at.target), Some(Target::Host(who.host))];
        let changes = places.into_iter().flatten().filter_map(|place| foreseen.changes.get(&place)).flatten();
        let could_help = |change: &&Change| matches!(change.what, None | Some(Resource::Package(_)));
        let change = changes.filter(could_help).find(|change| change.comes_before(who))?;
        Some(format!("as things are now it would fail ({}); “{}” comes before", outcome.msg, change.task))
    }

    fn would_change(&self, who: &Who<'_>, at: &At, outcome: &Outcome) {
        let Effects { writes, opaque, here, .. } = &at.effects;
        // Packages bring others along.
        let changes = outcome.data.get("changes").and_then(crate::model::Value::as_array).into_iter().flatten();
        let names = changes.filter_map(|change| change.as_str()?.split(' ').nth(1));
        let packages = names.map(|name| Resource::Package(name.to_owned()));
        let change = |what| Change { what, task: who.task.name.as_str().into(), host: who.host, play: who.play };
        let mut foreseen = lock(&self.foreseen);
        let there = foreseen.changes.entry(at.target).or_default();
        there.extend(writes.iter().cloned().chain(packages).map(Some).map(change));
        there.extend((*opaque && !who.task.says_unchanged()).then(|| change(None)));
        if *here {
            foreseen.changes.entry(Target::Operator).or_default().push(change(None));
        }
    }

    /// The node has ended: what it leaves for these hosts, others may read.
    pub(in crate::execute) fn leave(&self, who: &Who<'_>, hosts: &[HostId], outcome: &Outcome) {
        if !self.check_mode {
            return;
        }
        self.leave_names(who, hosts, outcome);
        self.would_make(who, hosts, outcome);
        if let Some(notice) = &who.notice {
            self.notifies(notice);
        }
    }

    fn leave_names(&self, who: &Who<'_>, hosts: &[HostId], outcome: &Outcome) {
        let in_doubt = self.predicts(who) && (outcome.unknown || outcome.changed);
        let task = who.task;
        let mut foreseen = lock(&self.foreseen);
        for name in task.produced_names() {
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

    /// The playbook wants to judge a result that is not there yet.
    pub(in crate::execute) fn judges_prediction(&self, who: &Who<'_>, outcome: &Outcome) -> bool {
        let Task { changed_when, failed_when, until, .. } = who.task;
        let conditions = changed_when.iter().chain(failed_when).chain(until);
        let asks = conditions.into_iter().any(|condition| constant(condition).is_none());
        asks && outcome.changed && self.predicts(who)
    }
}

impl Change {
    /// Hosts of one play run free of each other; then neither comes first.
    fn comes_before(&self, who: &Who<'_>) -> bool {
        self.host == who.host || self.play.0 < who.play.0
    }
}

pub(in crate::execute) fn unknown(why: impl Into<String>) -> Outcome {
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
        let doubt = lock(&self.foresight.foreseen).names.get(&(self.host, name.to_owned())).cloned()?;
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
        lock(&self.foresight.foreseen).names.contains_key(&(self.host, name.to_owned()))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        playbook::Task,
        testing::{FLEET, inventory, run},
    };

    fn task(name: &str) -> Arc<Task> {
        let (run, _) =
            run(&inventory(FLEET), &format!("- hosts: all\n  tasks:\n    - {{ name: {name}, say: {{}} }}\n"));
        let task = run.graph.work().find_map(|index| run.graph.task_of(index).cloned());
        task.unwrap()
    }

    fn who<'a>(foresight: &Foresight, host: &str, task: &'a Task) -> Who<'a> {
        let host = foresight.inventory.host(host).unwrap().id;
        Who { host, play: PlayIndex(0), target: None, task, notice: None, only_looks: true }
    }

    fn at(who: &Who<'_>, effects: Effects) -> At {
        At { effects, target: Target::Host(who.host) }
    }

    fn file() -> Resource {
        Resource::Path("/etc/x".into())
    }

    #[test]
    fn what_a_task_would_change_makes_a_later_look_at_it_unknown() {
        let foresight = Foresight::new(inventory(FLEET), true);
        let (writes, reads) = (task("write"), task("read"));
        let writer = who(&foresight, "plain", &writes);
        let reader = who(&foresight, "plain", &reads);
        let look = || at(&reader, Effects { reads: vec![file()], ..Effects::read_only() });
        let seen = foresight.foresee(&reader, Some(&look()), Ok(Outcome::ok())).ok().unwrap();
        assert!(!seen.unknown);
        let write = at(&writer, Effects::converging().writing([file()]));
        assert!(foresight.foresee(&writer, Some(&write), Ok(Outcome::changed())).is_ok());
        let seen = foresight.foresee(&reader, Some(&look()), Ok(Outcome::ok())).ok().unwrap();
        assert!(seen.unknown && seen.msg.contains("“write” would change"), "{}", seen.msg);
        // Hosts of one play run free of each other, and elsewhere it is another file.
        let other = who(&foresight, "m1", &reads);
        let seen = foresight.foresee(&other, Some(&at(&other, look().effects)), Ok(Outcome::ok())).ok().unwrap();
        assert!(!seen.unknown);
    }

    #[test]
    fn a_failure_behind_a_command_that_was_left_out_need_not_be_one() {
        let foresight = Foresight::new(inventory(FLEET), true);
        let (command, later) = (task("command"), task("later"));
        let first = who(&foresight, "plain", &command);
        let second = who(&foresight, "plain", &later);
        let fails = || Err(NodeError::failed("not there"));
        assert!(foresight.foresee(&second, None, fails()).is_err());
        let left_out = Ok(unknown("a command"));
        assert!(foresight.foresee(&first, Some(&at(&first, Effects::opaque())), left_out).is_ok());
        let seen = foresight.foresee(&second, None, fails()).ok().unwrap();
        assert!(seen.unknown && seen.msg.contains("“command” comes before"), "{}", seen.msg);
    }

    #[test]
    fn a_guest_that_would_be_made_need_not_answer() {
        let foresight = Foresight::new(inventory(FLEET), true);
        let (make, reach) = (task("make"), task("reach"));
        let maker =
            Who { target: foresight.inventory.host("kvm1").map(|host| host.id), ..who(&foresight, "m1", &make) };
        let guest = who(&foresight, "m1", &reach);
        let gone = || Err(NodeError::Unreachable { msg: "no route".to_owned(), hint: None, sent: false });
        assert!(foresight.foresee(&guest, None, gone()).is_err());
        foresight.leave(&maker, &[maker.host], &Outcome::changed());
        assert!(foresight.foresee(&guest, None, gone()).is_ok_and(|seen| seen.unknown));
        assert!(foresight.is_absent(&guest).is_some());
    }

    #[test]
    fn a_run_that_changes_things_foresees_nothing() {
        let foresight = Foresight::new(inventory(FLEET), false);
        let (writes, reads) = (task("write"), task("read"));
        let (writer, reader) = (who(&foresight, "plain", &writes), who(&foresight, "plain", &reads));
        let write = at(&writer, Effects::converging().writing([file()]));
        assert!(foresight.foresee(&writer, Some(&write), Ok(Outcome::changed())).is_ok_and(|seen| seen.changed));
        let look = at(&reader, Effects { reads: vec![file()], ..Effects::read_only() });
        assert!(foresight.foresee(&reader, Some(&look), Ok(Outcome::ok())).is_ok_and(|seen| !seen.unknown));
    }
}
