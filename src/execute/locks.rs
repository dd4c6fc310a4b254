//! Which locks a run needs, and taking them before it begins.
//!
//! A cluster is locked as a whole, because runs on two of its members share a quorum: on a majority of its
//! members, and on their hypervisors. A hypervisor is shared, unless a task disrupts it. Any other host is
//! its own lock.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt as _, stream};
use serde_json::Value;
use tokio::time::Instant;

use super::{Unlocked, context::Context};
use crate::{
    graph::Node,
    inventory::{HostId, HostKind},
    model::{Disruption, EventKind, RunResult},
    playbook::Task,
    remote::{Fence, LockAnswer, LockHolder, LockName, LockOwner, Release, RemoteError, Session, Surroundings},
    state::Operator,
};

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What a run does about locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Locking {
    #[default]
    None,
    /// Takes none, and says who has them.
    Look,
    /// Takes them, and waits so long if others have them.
    Take(Duration),
}

/// Why a run may not begin.
pub(super) enum Refused {
    Held(Vec<String>),
    Interrupted,
    /// Nobody is left to keep the lock of a cluster.
    Unreachable(String),
}

/// What is to be locked: who keeps which locks.
struct Wanted {
    keepers: BTreeMap<HostId, BTreeSet<LockName>>,
    clusters: BTreeSet<String>,
}

/// Locks that are held, by the hosts that keep them.
#[derive(Default)]
pub(super) struct Held {
    hosts: Vec<HostId>,
}

type Answers = HashMap<HostId, Result<LockAnswer, RemoteError>>;

pub(super) async fn take(context: &Arc<Context>) -> Result<Held, Refused> {
    let wanted = wanted(context);
    match context.options.locking {
        Locking::None => Ok(Held::default()),
        Locking::Look => {
            let answers = ask(context, &wanted, true).await;
            for msg in holders(context, &answers) {
                context.emitter.emit(EventKind::Warning { msg });
            }
            Ok(Held::default())
        }
        Locking::Take(patience) => take_all(context, &wanted, patience).await,
    }
}

async fn take_all(context: &Arc<Context>, wanted: &Wanted, patience: Duration) -> Result<Held, Refused> {
    let deadline = Instant::now() + patience;
    let mut pause = FIRST_PAUSE;
    loop {
        let answers = ask(context, wanted, false).await;
        let held = Held { hosts: answers.iter().filter(|(_, answer)| answer.is_ok()).map(|(host, _)| *host).collect() };
        let others = holders(context, &answers);
        if others.is_empty() {
            return match enough(context, wanted, &answers) {
                Ok(()) => {
                    fence(context, &answers);
                    Ok(held)
                }
                Err(why) => {
                    held.release(context, Release::Only).await;
                    Err(Refused::Unreachable(why))
                }
            };
        }
        held.release(context, Release::Only).await;
        if Instant::now() + pause > deadline {
            return Err(Refused::Held(others));
        }
        if !context.pause(pause).await {
            return Err(Refused::Interrupted);
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

impl Refused {
    /// Says why, and how the run ends.
    pub(super) async fn tell(self, context: &Context) -> RunResult {
        let (messages, result) = match self {
            Self::Held(messages) => (messages, RunResult::LockHeld),
            Self::Interrupted => (Vec::new(), RunResult::Interrupted),
            Self::Unreachable(message) => (vec![message], RunResult::Unreachable),
        };
        messages.into_iter().for_each(|msg| context.emitter.emit(EventKind::Warning { msg }));
        let (run, execs) = (context.options.run_id.clone(), context.hosts.execs());
        context.emitter.emit(EventKind::RunFinished { run, seconds: 0.0, result, execs });
        context.hosts.close(false).await;
        result
    }
}

impl Held {
    pub(super) async fn release(&self, context: &Arc<Context>, how: Release) {
        let run = &context.options.run_id;
        let releasing = self.hosts.iter().map(|host| async move {
            if let Err(error) = session(context, *host).release_locks(run, how).await {
                let host = context.graph.host(*host);
                let msg = format!("{host} still has the lock of this run ({error}); `etcdrun unlock {run}` removes it");
                context.emitter.emit(EventKind::Warning { msg });
            }
        });
        stream::iter(releasing).buffer_unordered(context.options.forks.max(1)).collect::<Vec<()>>().await;
    }
}

pub(super) async fn unlock(context: &Arc<Context>, hosts: &[HostId], run: &str) -> Vec<Unlocked> {
    let breaking = hosts.iter().map(|host| async move {
        let result = session(context, *host).release_locks(run, Release::Break).await;
        Unlocked { host: context.graph.host(*host).clone(), result }
    });
    let mut unlocked: Vec<Unlocked> =
        stream::iter(breaking).buffer_unordered(context.options.forks.max(1)).collect().await;
    unlocked.sort_by(|one, other| one.host.cmp(&other.host));
    unlocked
}

/// Who keeps which lock, from what the tasks may change.
fn wanted(context: &Context) -> Wanted {
    let (graph, inventory) = (&context.graph, &context.inventory);
    let mut wanted = Wanted { keepers: BTreeMap::new(), clusters: BTreeSet::new() };
    for index in graph.work() {
        let node: &Node = graph.node(index);
        let Some(task) = graph.task_of(index).filter(|task| changes(task)) else { continue };
        for target in node.target.map_or_else(|| graph.hosts_of(node), |target| vec![target]) {
            let name = graph.host(target).as_str();
            match &inventory.host_by_id(target).kind {
                HostKind::Plain => wanted.add(target, "host", name, false),
                HostKind::Hypervisor => {
                    wanted.add(target, "hypervisor", name, task.effects.disrupts < Disruption::Yes);
                }
                HostKind::Member { cluster, .. } => drop(wanted.clusters.insert(cluster.to_string())),
            }
        }
    }
    for cluster in wanted.clusters.clone() {
        for &member in inventory.cluster(&cluster).map_or(&[][..], |cluster| &cluster.members) {
            wanted.add(member, "cluster", &cluster, false);
            if let Some(hypervisor) = inventory.hypervisor_of(member) {
                wanted.add(hypervisor.id, "cluster", &cluster, false);
            }
        }
    }
    wanted
}

impl Wanted {
    /// An exclusive lock wins over a shared one of the same name.
    fn add(&mut self, keeper: HostId, kind: &str, name: &str, shared: bool) {
        let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
        let name: String = format!("{kind}-{name}").chars().map(plain).collect();
        let locks = self.keepers.entry(keeper).or_default();
        if shared && locks.contains(&LockName { name: name.clone(), shared: false }) {
            return;
        }
        locks.remove(&LockName { name: name.clone(), shared: true });
        locks.insert(LockName { name, shared });
    }
}

/// Tasks that only look, or say that they change nothing, need no lock. Nor does what runs here.
fn changes(task: &Task) -> bool {
    let says_no = task.changed_when.iter().any(|condition| condition.value.trim() == "false");
    let is_here = task.on.as_ref().is_some_and(|on| on.value == crate::playbook::On::Operator);
    !(task.effects.read_only || (task.effects.opaque && says_no) || is_here)
}

async fn ask(context: &Arc<Context>, wanted: &Wanted, look: bool) -> Answers {
    let owner = LockOwner { run: context.options.run_id.clone(), about: about() };
    let owner = &owner;
    let asking = wanted.keepers.iter().map(|(host, names)| async move {
        let names: Vec<_> = names.iter().cloned().collect();
        (*host, session(context, *host).take_locks(&names, owner, look).await)
    });
    stream::iter(asking).buffer_unordered(context.options.forks.max(1)).collect().await
}

/// Locks are those of root where tasks become another user, so that all who do so see the same ones.
fn session(context: &Context, host: HostId) -> Session {
    let entry = context.inventory.host_by_id(host);
    let becomes = context.options.r#become || entry.r#become == Some(true);
    let surroundings = Surroundings { become_user: becomes.then(|| "root".into()), ..Surroundings::default() };
    context.hosts.link(&context.inventory, host).session(surroundings)
}

fn fence(context: &Context, answers: &Answers) {
    for (host, answer) in answers {
        let fences: Vec<Fence> = answer.iter().flat_map(|answer| answer.fences.clone()).collect();
        context.hosts.link(&context.inventory, *host).set_fences(fences);
    }
}

/// A cluster needs most of its members; or, where they do not answer, a hypervisor that knows of it.
fn enough(context: &Context, wanted: &Wanted, answers: &Answers) -> Result<(), String> {
    for (host, answer) in answers {
        // A host that cannot be reached will say so itself.
        if let Some(error) = answer.as_ref().err().filter(|error| !error.is_unreachable()) {
            let msg = format!("{} keeps no lock, so nobody else is kept off: {error}", context.graph.host(*host));
            context.emitter.emit(EventKind::Warning { msg });
        }
    }
    for cluster in &wanted.clusters {
        let members = context.inventory.cluster(cluster).map_or(&[][..], |cluster| &cluster.members);
        let grants = |host: &HostId| answers.get(host).is_some_and(Result::is_ok);
        let granted = members.iter().filter(|host| grants(host)).count();
        if granted * 2 > members.len() {
            continue;
        }
        let by_hypervisor = members.iter().filter_map(|host| context.inventory.hypervisor_of(*host));
        let what = format!("{granted} of {} members of cluster {cluster} could be asked for its lock", members.len());
        if !by_hypervisor.into_iter().any(|host| grants(&host.id)) {
            return Err(format!("only {what}, and none of their hypervisors"));
        }
        let msg = format!("only {what}; their hypervisors keep it");
        context.emitter.emit(EventKind::Warning { msg });
    }
    Ok(())
}

/// Everybody who has what we want, in words, each once.
fn holders(context: &Context, answers: &Answers) -> Vec<String> {
    let mut told = BTreeMap::new();
    for (host, answer) in answers {
        for holder in answer.iter().flat_map(|answer| &answer.holders) {
            let (_, hosts) = told.entry(&holder.name).or_insert_with(|| (holder, BTreeSet::new()));
            hosts.insert(context.graph.host(*host).to_string());
        }
    }
    told.into_values().map(|(holder, hosts)| describe(holder, &hosts)).collect()
}

fn describe(holder: &LockHolder, hosts: &BTreeSet<String>) -> String {
    let (kind, name) = holder.name.split_once('-').unwrap_or(("", &holder.name));
    let about: Value = serde_json::from_str(&holder.about).unwrap_or_default();
    let operator: Option<Operator> = serde_json::from_value(about["operator"].clone()).ok();
    let since = about["since"].as_str().unwrap_or("an unknown time");
    let (who, alive) = match &operator {
        Some(it) => (format!("{}@{}, process {}", it.user, it.host, it.pid), it.is_alive()),
        None => ("somebody".to_owned(), None),
    };
    let run = &holder.run;
    let way_out = match alive {
        Some(true) => "it is still running: wait for it, or give --lock-timeout".to_owned(),
        Some(false) => format!(
            "that process is gone, so the run has crashed: `etcdrun resume {run}` goes on with it, `etcdrun unlock {run}` breaks its lock"
        ),
        None => {
            format!("ask there whether it still runs; if not, `etcdrun resume {run}` there, or `etcdrun unlock {run}`")
        }
    };
    let hosts: Vec<_> = hosts.iter().map(String::as_str).collect();
    format!("{kind} {name} is locked by run {run} of {who}, since {since}, on {}; {way_out}", hosts.join(", "))
}

/// Who we are, in one line that others can read.
fn about() -> String {
    let since = jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M:%SZ").to_string();
    serde_json::json!({ "operator": Operator::me(), "since": since }).to_string()
}
