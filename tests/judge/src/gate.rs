//! Lets clients work, or keeps them waiting. Who closes it knows that nothing is under way any more.

use std::sync::Arc;

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock, watch};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Running,
    Paused,
    /// Only watchers continue, to see the last writes.
    Draining,
    Stopped,
}

pub(crate) struct Gate {
    /// Each request holds it for reading.
    epoch: Arc<RwLock<u32>>,
    phase: watch::Sender<Phase>,
}

/// The right to use the cluster, in one epoch.
pub(crate) struct Turn(OwnedRwLockReadGuard<u32>);

impl Turn {
    pub(crate) fn epoch(&self) -> u32 {
        *self.0
    }
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self { epoch: Arc::default(), phase: watch::Sender::new(Phase::Running) }
    }

    pub(crate) fn set(&self, phase: Phase) {
        self.phase.send_replace(phase);
    }

    /// Waits while the clients are paused. None once they shall end.
    pub(crate) async fn enter(&self) -> Option<Turn> {
        self.enter_while(|phase| phase == Phase::Running).await
    }

    /// The same for watchers, which end later.
    pub(crate) async fn enter_watcher(&self) -> Option<Turn> {
        self.enter_while(|phase| matches!(phase, Phase::Running | Phase::Draining)).await
    }

    async fn enter_while(&self, may_work: impl Fn(Phase) -> bool) -> Option<Turn> {
        let mut phase = self.phase.subscribe();
        loop {
            phase.wait_for(|phase| *phase != Phase::Paused).await.ok()?;
            let turn = Turn(self.epoch.clone().read_owned().await);
            match *phase.borrow() {
                Phase::Paused => {}
                phase => return may_work(phase).then_some(turn),
            }
        }
    }

    /// Ends when the clients are paused or stopped.
    pub(crate) async fn closing(&self) {
        let _ = self.phase.subscribe().wait_for(|phase| matches!(phase, Phase::Paused | Phase::Stopped)).await;
    }

    /// Ends when the clients shall end.
    pub(crate) async fn leaving(&self) {
        let _ = self.phase.subscribe().wait_for(|phase| matches!(phase, Phase::Draining | Phase::Stopped)).await;
    }

    /// Ends when nothing is under way; nothing begins as long as the guard lives.
    pub(crate) async fn close(&self) -> OwnedRwLockWriteGuard<u32> {
        self.set(Phase::Paused);
        self.epoch.clone().write_owned().await
    }
}
