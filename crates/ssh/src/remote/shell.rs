//! Shells that stay on a target for a moment, so that the next script finds one.
//!
//! A session of sshd, a login shell and a `sh` cost more than most scripts do. A shell that has done its script waits
//! for the next one, which runs in a subshell and so finds nothing of what the last one did; only our own functions stay.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::{sync::oneshot, task::JoinHandle, time::sleep};

use super::{
    channel::{Input, Output},
    script::{Become, Library},
};

/// Long enough for hundreds of hosts to have their locks taken, one after the other, before the first of them goes on; not much longer:
/// that a connection has died is noticed by keepalives, or when something is sent, and then nobody knows whether it has arrived.
const STAY: Duration = Duration::from_secs(20);
/// On one target. Others may need the sessions that they hold.
const MOST: usize = 2;

/// A bootstrap that waits for a script.
pub(super) struct Shell {
    pub(super) input: Input,
    pub(super) output: Output,
    /// It has run a script before, so whatever sudo wanted is behind it.
    pub(super) used: bool,
    /// What that script has brought along.
    pub(super) library: Library,
}

/// Those of one target that have nothing to do.
#[derive(Default)]
pub(super) struct Shells(Mutex<State>);

#[derive(Default)]
struct State {
    idle: Vec<Idle>,
    /// How many wait for a session; they need those of the idle ones.
    waiting: usize,
}

struct Idle {
    as_root: bool,
    wanted: oneshot::Sender<()>,
    /// Comes back with the shell, unless it is no good any more.
    keeper: JoinHandle<Option<Shell>>,
}

/// Somebody waits for a session.
pub(super) struct Waiting<'a>(&'a Shells);

impl Shells {
    /// One that stayed behind, if it is still there.
    pub(super) async fn take(&self, as_whom: Become<'_>) -> Option<Shell> {
        let as_root = stays_as_root(as_whom)?;
        loop {
            let idle = self.with(|state| {
                let position = state.idle.iter().rposition(|idle| idle.as_root == as_root)?;
                Some(state.idle.remove(position))
            })?;
            if idle.wanted.send(()).is_err() {
                continue;
            }
            if let Ok(Some(shell)) = idle.keeper.await {
                return Some(shell);
            }
        }
    }

    /// Lets a shell that has done its script wait for another.
    pub(super) fn keep(&self, as_whom: Become<'_>, shell: Shell) {
        let Some(as_root) = stays_as_root(as_whom) else { return };
        self.with(|state| {
            state.idle.retain(|idle| !idle.keeper.is_finished());
            if state.waiting > 0 || shell.output.is_cut_off() {
                return;
            }
            if state.idle.len() >= MOST {
                state.idle.remove(0);
            }
            let (wanted, call) = oneshot::channel();
            let keeper = tokio::spawn(stay(Shell { used: true, ..shell }, call));
            state.idle.push(Idle { as_root, wanted, keeper });
        });
    }

    /// Ends those that have nothing to do.
    pub(super) fn clear(&self) {
        self.with(|state| state.idle.clear());
    }

    /// Ends them, and lets none stay, until what this returns goes out of scope.
    pub(super) fn make_room(&self) -> Waiting<'_> {
        self.with(|state| {
            state.idle.clear();
            state.waiting += 1;
        });
        Waiting(self)
    }

    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.with(|state| state.waiting -= 1);
    }
}

/// Whether it stays as root or as who has logged in. Others do not stay: what they may do depends on groups, which a
/// task can change, and sudo looks at them when it starts a shell.
fn stays_as_root(as_whom: Become<'_>) -> Option<bool> {
    match as_whom {
        Become::Nobody => Some(false),
        Become::Silently("root") | Become::WithPassword("root") => Some(true),
        Become::Silently(_) | Become::WithPassword(_) => None,
    }
}

/// Reads what comes meanwhile, since that would hold up the whole connection. Where something left behind goes on
/// talking, the next script gets a shell of its own.
async fn stay(mut shell: Shell, call: oneshot::Receiver<()>) -> Option<Shell> {
    tokio::select! {
        biased;
        _ = shell.output.next() => None,
        called = call => called.is_ok().then_some(shell),
        () = sleep(STAY) => None,
    }
}
