//! Breaking the locks of a run that will not come back, or must not go on.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt as _, stream};

use super::{RunOptions, fleet::Fleet, locks::owner};
use crate::{
    inventory::{HostId, Inventory},
    model::{HostName, Masker},
    remote::{Release, Released, RemoteError},
    ssh::Connector,
    state::Operator,
};

/// What one host says of the locks of a run.
pub struct HostLocks {
    id: HostId,
    pub host: HostName,
    pub result: Result<Released, RemoteError>,
}

/// The hosts that may have locks of a run, and a way to them.
pub struct Unlocking {
    inventory: Arc<Inventory>,
    fleet: Fleet,
    run: Arc<str>,
    lock_dir: Arc<str>,
    /// Hosts at once.
    forks: usize,
}

impl Unlocking {
    pub fn new(inventory: Arc<Inventory>, connector: Connector, options: &RunOptions, run: &str) -> Self {
        let fleet = Fleet::new(inventory.clone(), connector, options, Masker::default());
        Self { inventory, fleet, run: run.into(), lock_dir: options.lock_dir.clone(), forks: options.forks.max(1) }
    }

    /// Asks all of them, and changes nothing.
    pub async fn look(&self, hosts: &[HostId]) -> Vec<HostLocks> {
        self.each(hosts.to_vec(), Release::Look).await
    }

    /// Breaks the locks where there are some, and waits so long for what the run is at there.
    pub async fn break_all(&self, found: &[HostLocks], wait: Duration) -> Vec<HostLocks> {
        self.each(found.iter().filter(|it| it.has_locks()).map(|it| it.id).collect(), Release::Break(wait)).await
    }

    /// Ends what is still at work; returns what could not be ended.
    pub async fn end(&self, broken: &[HostLocks]) -> Vec<(HostName, RemoteError)> {
        let mut failed = Vec::new();
        for it in broken {
            for &runner in it.busy() {
                if let Err(error) = self.fleet.own_session(it.id, false).end_process(runner).await {
                    failed.push((it.host.clone(), error));
                }
            }
        }
        failed
    }

    pub async fn close(&self) {
        self.fleet.close(false).await;
    }

    async fn each(&self, hosts: Vec<HostId>, how: Release) -> Vec<HostLocks> {
        let asking = hosts.into_iter().map(|id| async move {
            let result = self.fleet.own_session(id, false).release_locks(&self.lock_dir, &self.run, &[], how).await;
            HostLocks { id, host: self.inventory.host_by_id(id).name.clone(), result }
        });
        let mut answers: Vec<_> = stream::iter(asking).buffer_unordered(self.forks).collect().await;
        answers.sort_by(|one, other| one.host.cmp(&other.host));
        answers
    }
}

impl HostLocks {
    pub fn has_locks(&self) -> bool {
        self.result.as_ref().is_ok_and(|released| released.count > 0)
    }

    /// Runners that are still at work.
    pub fn busy(&self) -> &[u32] {
        self.result.as_ref().map_or(&[], |released| &released.busy)
    }

    /// Who holds the locks, each once.
    pub fn owners(&self) -> Vec<Operator> {
        let owners = self.result.iter().flat_map(|released| &released.owners);
        owners.filter_map(|about| owner(about).0).collect()
    }
}
