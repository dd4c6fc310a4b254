//! The clients: each uses the cluster in its own way, and survives whatever happens to it.

mod leases;
mod members;
mod registers;
mod watcher;

use std::{sync::Arc, time::Duration};

use rand::{SeedableRng, rngs::StdRng};
use tokio::{runtime::Handle, task::JoinHandle};

use crate::{
    connect::{Manner, WithoutLeader},
    gate::Phase,
    record::Kind,
    shared::{Shared, Wish},
};

/// For what is asked once more after a failure.
const BREATH: Duration = Duration::from_millis(200);

/// Starts all clients but the watchers.
pub(crate) fn start(runtime: &Handle, shared: &Arc<Shared>) -> Vec<JoinHandle<()>> {
    let mut tasks = registers::start(runtime, shared);
    for _ in 0..shared.settings.lease_clients {
        tasks.push(runtime.spawn(leases::run(shared.clone(), shared.new_client())));
    }
    tasks.push(runtime.spawn(members::run(shared.clone(), shared.new_client())));
    tasks
}

pub(crate) fn start_watchers(runtime: &Handle, shared: &Arc<Shared>) -> Vec<JoinHandle<()>> {
    (0..shared.settings.watchers).map(|number| runtime.spawn(watcher::run(shared.clone(), number))).collect()
}

/// Reads every key for the last time; the keys that could not be read.
pub(crate) async fn read_all(shared: &Shared, limit: Duration) -> Vec<String> {
    let (connections, client, mut random) =
        (shared.connections(WithoutLeader::Answer), shared.new_client(), random(shared, u64::MAX));
    let deadline = tokio::time::Instant::now() + limit;
    let mut unread: Vec<String> = shared.keys().collect();
    while !unread.is_empty() && tokio::time::Instant::now() < deadline {
        let Some(turn) = shared.gate.enter_watcher().await else { break };
        let Some(endpoint) = shared.reach.choose(&mut random, Manner::Careful, None) else { break };
        let wish =
            Wish { client, epoch: turn.epoch(), endpoint: &endpoint, key: &unread[unread.len() - 1], kind: Kind::Get };
        if shared.operate(&connections, wish).await.is_some() {
            unread.pop();
        } else {
            drop(turn);
            tokio::time::sleep(BREATH).await;
        }
    }
    unread
}

/// Waits until every watcher has seen the last acknowledged write; those that have not.
pub(crate) async fn await_watchers(shared: &Shared, limit: Duration) -> Vec<u32> {
    let deadline = tokio::time::Instant::now() + limit;
    loop {
        let behind = shared.progress.behind();
        if behind.is_empty() || tokio::time::Instant::now() > deadline {
            return behind;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Ends the watchers, too.
pub(crate) fn end(shared: &Shared) {
    shared.gate.set(Phase::Stopped);
}

/// What a client decides by.
fn random(shared: &Shared, client: u64) -> StdRng {
    StdRng::seed_from_u64(shared.settings.seed.wrapping_add(client.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

/// Sleeps, unless the clients shall end.
async fn rest(shared: &Shared, time: Duration) {
    tokio::select! {
        () = tokio::time::sleep(time) => {}
        () = shared.gate.leaving() => {}
    }
}
