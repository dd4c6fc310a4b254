//! Locks on a target's disk, and the fence that every change looks at.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use super::{
    Payload, RemoteError, Session, Step,
    run::KILL,
    script::{compact, quoted},
};
use crate::model::{Ending, Outcome, Value};

static TAKE: LazyLock<String> =
    LazyLock::new(|| compact(concat!(include_str!("lock_folder.sh"), include_str!("lock_take.sh"))));
static RELEASE: LazyLock<String> = LazyLock::new(|| {
    compact(concat!(include_str!("lock_folder.sh"), include_str!("ledger_forget.sh"), include_str!("lock_release.sh")))
});
static FENCE: LazyLock<String> = LazyLock::new(|| compact(include_str!("fence.sh")));

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
    /// The folder that locks are kept in.
    pub place: Arc<str>,
}

/// The folder on hosts that locks are kept in, unless the settings name another.
pub const LOCK_FOLDER: &str = "/var/tmp/etcdrun-locks";

/// How long a host may take to grant or release locks: its disk may be slow, and other users of the host may try to keep us waiting.
const LIMIT: Duration = Duration::from_secs(300);

/// What else happens when locks are released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// Nothing is released; only who has them is wanted.
    Look,
    Only,
    /// The run's ledger is removed too: nobody will ask for it.
    AndForget,
    /// The generation goes up, so that a run that still believes to hold them stops. What it is at is awaited.
    Break(Duration),
}

/// What came of releasing the locks of a run on one target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Released {
    pub count: u64,
    /// What the owners said of themselves, each once.
    pub owners: Vec<String>,
    /// Runners that are still at work on a step.
    pub busy: Vec<u32>,
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
        let mut ahead = format!("_look_ahead {} {}", quoted(&owner.run), quoted(&owner.place));
        let mut payload = Payload::new(&TAKE)
            .value("place", &*owner.place)
            .value("run", &*owner.run)
            .value("owner", &owner.about)
            .flag("look", look)
            .brief();
        for LockName { name, shared } in names {
            let mode = if *shared { "shared" } else { "exclusive" };
            payload = payload.arg(name).arg(mode);
            ahead = format!("{ahead} {} {mode}", quoted(name));
        }
        let payload = payload.ahead(ahead);
        let outcome = self.run_step(Step { timeout: Some(LIMIT), ..self.step(payload, look) }).await?;
        match outcome.failed {
            true => Err(failed(&outcome)),
            false => Ok(answer(&outcome, &owner.run)),
        }
    }

    /// Releases these locks of a run on this target; all that it has, if none is named.
    pub async fn release_locks(
        &self,
        place: &str,
        run: &str,
        names: &[LockName],
        how: Release,
    ) -> Result<Released, RemoteError> {
        let wait = if let Release::Break(wait) = how { wait.as_secs() } else { 0 };
        let payload = names.iter().fold(Payload::new(&RELEASE), |payload, lock| payload.arg(&lock.name));
        let payload = payload
            .value("place", place)
            .value("run", run)
            .value("wait", wait.to_string())
            .flag("look", how == Release::Look)
            .flag("break", matches!(how, Release::Break(_)))
            .flag("forget", how == Release::AndForget)
            .with_ledger()
            .brief();
        let limit = LIMIT + Duration::from_secs(wait);
        let outcome = self.run_step(Step { timeout: Some(limit), ..self.step(payload, false) }).await?;
        if outcome.failed {
            return Err(failed(&outcome));
        }
        if how == Release::AndForget {
            self.link.ledger_is_gone(run, self.surroundings.become_user.as_ref());
        }
        let text = |name: &str| outcome.data.get(name).and_then(Value::as_str).unwrap_or_default();
        let mut owners: Vec<_> = text("owners").lines().map(str::to_owned).collect();
        owners.dedup();
        let count = outcome.data.get("released").and_then(Value::as_u64).unwrap_or_default();
        let busy = text("busy").split(' ').filter_map(|pid| pid.parse().ok()).collect();
        Ok(Released { count, owners, busy })
    }

    /// Ends a runner of any run, with all it started.
    pub async fn end_process(&self, runner: u32) -> Result<(), RemoteError> {
        self.run_one(Payload::new(KILL).value("runner", runner.to_string()), false).await.map(drop)
    }
}

/// An error for a step that did not run, because its lock was broken.
pub fn lock_is_held(outcome: &Outcome) -> Result<(), RemoteError> {
    match outcome.ending == Ending::LockLost {
        true => Err(RemoteError::LockLost(outcome.msg.as_str().into())),
        false => Ok(()),
    }
}

fn failed(outcome: &Outcome) -> RemoteError {
    RemoteError::Job(format!("{} {}", outcome.msg, outcome.stderr.trim()).trim_end().into())
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
    format!("{}_fence() {{ {}; }}\n", *FENCE, all.join(" && "))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_lock_that_was_lost_or_never_ours_does_not_become_held() {
        for shell in [&["dash"][..], &["bash"], &["busybox", "sh"]] {
            let folder = tempfile::tempdir().unwrap();
            let fence = |name: &str| Fence {
                path: folder.path().join(name).to_str().unwrap().to_owned(),
                line: format!("7 {name}"),
            };
            let script = format!(
                "cd {}\nask() {{ if _fence; then echo held; else echo lost; fi; }}\n{}{}",
                folder.path().display(),
                fence_script(&[fence("first"), fence("second")]),
                r#"
                ask
                echo 6 other >first; echo 7 second >second
                ask; ask
                rm first; echo 7 first >first
                ask; ask
                mv first aside; ask
                echo 8 other >first; ask
                mv aside first; ask
                echo 8 other >new; mv new second; ask"#
            );
            let output = Command::new(shell[0]).args(&shell[1..]).args(["-c", &script]).output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(said, "lost lost lost held held lost lost held lost", "{shell:?} {output:?}");
        }
    }
}
