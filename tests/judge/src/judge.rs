//! Starts the clients, pauses them, and ends them with a history.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    time::Duration,
};

use anyhow::{Context, Result};
use tokio::{
    runtime::{Builder, Runtime},
    sync::OwnedRwLockWriteGuard,
    task::JoinHandle,
};

use crate::{
    availability::Gaps,
    clients,
    clock::Clock,
    cluster::{Cluster, Endpoint, Login, Tls},
    connect::Reach,
    gate::Phase,
    history::{History, load},
    record::{End, Epoch, Record, Start},
    recorder::Recorder,
    settings::Settings,
    shared::Shared,
};

/// A history on a file is at most this old.
const FLUSH: Duration = Duration::from_secs(1);
/// So long the keys are tried to be read at the end.
const LAST_READS: Duration = Duration::from_secs(20);
/// So long the watchers may take for the last events.
const LAST_EVENTS: Duration = Duration::from_secs(20);

/// Clients that use a cluster from threads of their own. Without `stop`, they end when it is dropped.
pub struct Judge {
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
    clients: Vec<JoinHandle<()>>,
    watchers: Vec<JoinHandle<()>>,
    /// Keeps the clients waiting.
    closed: Mutex<Option<OwnedRwLockWriteGuard<u32>>>,
    folder: PathBuf,
}

impl Judge {
    /// The folder must not have a history yet.
    pub fn start(cluster: Cluster, settings: Settings, folder: &Path) -> Result<Self> {
        let (recorder, clock) = (Recorder::create(folder)?, Clock::start());
        let run = format!("{:08x}", rand::random::<u32>());
        let start = Start { run: run.clone(), unix_milliseconds: clock.unix_milliseconds, settings: settings.clone() };
        recorder.record(&Record::Start(start));
        let shared = Arc::new(Shared::new(run, settings, clock, recorder, Reach::new(cluster)));
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("judge").enable_all().build();
        let runtime = runtime.context("could not start the threads of the judge")?;
        let handle = runtime.handle();
        let watchers = clients::start_watchers(handle, &shared);
        let clients = clients::start(handle, &shared);
        handle.spawn(flush(shared.clone()));
        let (closed, folder) = (Mutex::default(), folder.to_owned());
        Ok(Self { shared, runtime: Some(runtime), clients, watchers, closed, folder })
    }

    /// Members come and go.
    pub fn now_members(&self, endpoints: Vec<Endpoint>) {
        self.shared.reach.change(|cluster| cluster.endpoints = endpoints);
    }

    /// Certificates are renewed, authorities rotated, passwords changed.
    pub fn now_credentials(&self, tls: Option<Tls>, login: Option<Login>) {
        self.shared.reach.change(|cluster| (cluster.tls, cluster.login) = (tls, login));
    }

    /// Returns when no client uses the cluster any more.
    pub fn pause(&self) -> Result<()> {
        let mut closed = self.closed();
        if closed.is_none() {
            let shared = self.shared.clone();
            *closed = Some(self.wait(async move { shared.gate.close().await })?);
            let at = self.shared.clock.now();
            self.shared.recorder.record(&Record::Paused { at });
            self.shared.availability().paused(at);
        }
        Ok(())
    }

    pub fn resume(&self) {
        let mut closed = self.closed();
        if closed.is_some() {
            let at = self.shared.clock.now();
            self.shared.recorder.record(&Record::Resumed { at });
            self.shared.availability().resumed(at);
            self.shared.gate.set(Phase::Running);
            *closed = None;
        }
    }

    /// From here on, keys may have older values, because an older state of the cluster was brought back. Pause before you
    /// replace the cluster, and resume when it is done, or the clients see both.
    pub fn new_epoch(&self, reason: &str) -> Result<()> {
        let was_running = self.closed().is_none();
        self.pause()?;
        if let Some(epoch) = self.closed().as_mut() {
            **epoch += 1;
            let (number, at) = (**epoch, self.shared.clock.now());
            self.shared.recorder.record(&Record::Epoch(Epoch { number, at, reason: reason.to_owned() }));
            self.shared.progress.begin_epoch();
        }
        if was_running {
            self.resume();
        }
        Ok(())
    }

    /// The times without an acknowledged write so far.
    pub fn gaps(&self) -> Gaps {
        self.shared.availability().gaps(self.shared.clock.now())
    }

    /// Reads every key once more, lets the watchers catch up, and ends. The history says what could not be read.
    pub fn stop(mut self) -> Result<History> {
        let at = self.shared.clock.now();
        let was_running = self.closed().is_none();
        self.shared.gate.set(Phase::Draining);
        *self.closed() = None;
        if was_running {
            self.shared.recorder.record(&Record::Paused { at });
            self.shared.availability().paused(at);
        }
        let (shared, clients) = (self.shared.clone(), std::mem::take(&mut self.clients));
        let watchers = std::mem::take(&mut self.watchers);
        self.wait(async move {
            join(clients).await;
            let unread = clients::read_all(&shared, LAST_READS).await;
            let watchers_behind = clients::await_watchers(&shared, LAST_EVENTS).await;
            clients::end(&shared);
            join(watchers).await;
            shared.recorder.record(&Record::End(End { at: shared.clock.now(), unread, watchers_behind }));
        })?;
        self.shared.recorder.finish()?;
        load(&self.folder)
    }

    fn closed(&self) -> MutexGuard<'_, Option<OwnedRwLockWriteGuard<u32>>> {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a task without being one, so that it does not matter what thread asks.
    fn wait<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> Result<T> {
        let runtime = self.runtime.as_ref().context("the judge has ended")?;
        let (sender, receiver) = mpsc::sync_channel(1);
        runtime.spawn(async move {
            let _ = sender.send(task.await);
        });
        receiver.recv().context("the judge broke down")
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        self.shared.gate.set(Phase::Stopped);
        self.shared.recorder.flush();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn flush(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(FLUSH).await;
        shared.recorder.flush();
    }
}

/// A client that broke down has said why on standard error; the others count nevertheless.
async fn join(tasks: Vec<JoinHandle<()>>) {
    for task in tasks {
        let _ = task.await;
    }
}
