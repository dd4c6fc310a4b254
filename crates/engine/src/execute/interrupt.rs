//! Ctrl-C: the first stops new work, the second is the caller's to leave at once.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;

/// Asks a run to stop at the next safe point.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<CancellationToken>);

impl Interrupt {
    pub fn stop(&self) {
        self.0.cancel();
    }

    /// For those who wait for something else meanwhile.
    pub(super) fn token(&self) -> CancellationToken {
        (*self.0).clone()
    }

    /// Waits so long, unless the run is interrupted before or meanwhile; says whether it may go on.
    pub(super) async fn pause(&self, time: Duration) -> bool {
        tokio::select! {
            biased;
            () = self.wait() => false,
            () = tokio::time::sleep(time) => true,
        }
    }

    pub(super) async fn wait(&self) {
        self.0.cancelled().await;
    }
}
