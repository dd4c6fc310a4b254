//! Locks on a target's disk, and the fence that every change looks at.

use std::sync::Arc;

use super::{Payload, RemoteError, Session, script::quoted};
use crate::model::{Outcome, Value};

const TAKE: &str = concat!(include_str!("lock_folder.sh"), include_str!("lock_take.sh"));
const RELEASE: &str = concat!(include_str!("lock_folder.sh"), include_str!("lock_release.sh"));
const FENCE: &str = include_str!("fence.sh");

/// The result that says that a step did not run, because its lock was broken.
pub const LOCK_LOST: &str = "lock_lost";

/// What a lock is asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockName {
    /// Letters, digits, dots, dashes and underscores.
    pub name: String,
    pub shared: bool,
}

/// Who asks: the run, and a line that says whose it is.
#[derive(Clone, Debug)]
pub struct LockOwner {
    pub run: Arc<str>,
    pub about: String,
}

/// What else happens when locks are released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    Only,
    /// The run's ledger is removed too: nobody will ask for it.
    AndForget,
    /// The generation goes up, so that a run that still believes to hold them stops.
    Break,
}

/// Somebody else has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    pub name: String,
    pub run: String,
    pub about: String,
}

/// What a target says of the locks it was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockAnswer {
    /// How many of them are ours now.
    pub granted: Vec<String>,
    pub fences: Vec<Fence>,
    pub holders: Vec<LockHolder>,
}

/// A lock that was granted: the file, and what its first line must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    path: String,
    line: String,
}

impl Session {
    /// Takes locks on this target, all or none. `look` takes none, and asks who has them.
    pub async fn take_locks(
        &self,
        names: &[LockName],
        owner: &LockOwner,
        look: bool,
    ) -> Result<LockAnswer, RemoteError> {
        let mut payload = Payload::new(TAKE).value("run", &*owner.run).value("owner", &owner.about).flag("look", look);
        for LockName { name, shared } in names {
            payload = payload.arg(name).arg(if *shared { "shared" } else { "exclusive" });
        }
        let outcome = self.run_one(payload, false).await?;
        match outcome.failed {
            true => Err(RemoteError::Job(format!("locks: {} {}", outcome.msg, outcome.stderr.trim()).into())),
            false => Ok(answer(&outcome, &owner.run)),
        }
    }

    /// Releases all locks of a run on this target; says how many there were.
    pub async fn release_locks(&self, run: &str, how: Release) -> Result<u64, RemoteError> {
        let payload = Payload::new(RELEASE)
            .value("run", run)
            .flag("break", how == Release::Break)
            .flag("forget", how == Release::AndForget);
        let outcome = self.run_one(payload, false).await?;
        match outcome.failed {
            true => Err(RemoteError::Job(format!("locks: {}", outcome.msg).into())),
            false => {
                if how == Release::AndForget {
                    self.link.ledger_is_gone(run, self.surroundings.become_user.as_ref());
                }
                Ok(outcome.data.get("released").and_then(Value::as_u64).unwrap_or_default())
            }
        }
    }
}

fn answer(outcome: &Outcome, run: &str) -> LockAnswer {
    let mut answer = LockAnswer::default();
    let said = outcome.data.get("locks").and_then(Value::as_str).unwrap_or_default();
    for line in said.lines() {
        let mut words = line.splitn(4, ' ');
        let (what, name) = (words.next().unwrap_or_default(), words.next().unwrap_or_default().to_owned());
        let generation = words.next().unwrap_or_default();
        let rest = words.next().unwrap_or_default();
        match what {
            "granted" => {
                answer.fences.push(Fence { path: rest.to_owned(), line: format!("{generation} {run}") });
                answer.granted.push(name);
            }
            _ => {
                let (run, about) = rest.split_once(' ').unwrap_or((rest, ""));
                answer.holders.push(LockHolder { name, run: run.to_owned(), about: about.to_owned() });
            }
        }
    }
    answer
}

/// The shell function `_fence`, which says whether all of the locks are still held.
pub(super) fn fence_script(fences: &[Fence]) -> String {
    let held = |fence: &Fence| format!("_held {} {}", quoted(&fence.path), quoted(&fence.line));
    let all: Vec<_> = fences.iter().map(held).collect();
    format!("{FENCE}_fence() {{ {}; }}\n", all.join(" && "))
}
