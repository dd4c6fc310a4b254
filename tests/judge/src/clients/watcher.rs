//! A client that watches all registers, on one member at a time, and continues on another one where it was.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use etcd_client::{Event, EventType, ResponseHeader, WatchOptions, WatchResponse, WatchStream};
use rand::rngs::StdRng;
use tokio::time::timeout;

use super::{BREATH, random};
use crate::{
    connect::{Connections, Manner, WithoutLeader, bounded},
    gate::Turn,
    record::{Record, WatchRecord, Watched},
    shared::{REGISTERS, Shared},
};

/// The writers are never silent for so long; then the watch is tried elsewhere.
const SILENCE: Duration = Duration::from_secs(10);

pub(super) async fn run(shared: Arc<Shared>, number: u32) {
    let (connections, random) = (shared.connections(WithoutLeader::Refuse), random(&shared, u64::from(number) << 32));
    let mut watcher = Watcher { shared, connections, random, number, epoch: 0, next: None, endpoint: String::new() };
    let shared = watcher.shared.clone();
    while let Some(turn) = shared.gate.enter_watcher().await {
        tokio::select! {
            () = watcher.watch(&turn) => {}
            () = shared.gate.closing() => watcher.record(Watched::Ended { reason: "paused or stopped".to_owned() }),
        }
        drop(turn);
        tokio::time::sleep(BREATH).await;
    }
}

struct Watcher {
    shared: Arc<Shared>,
    connections: Connections,
    random: StdRng,
    number: u32,
    epoch: u32,
    /// The first revision that is not seen yet, in this epoch.
    next: Option<i64>,
    /// Where it watches, or did last.
    endpoint: String,
}

impl Watcher {
    /// Until something breaks.
    async fn watch(&mut self, turn: &Turn) {
        if turn.epoch() != self.epoch {
            (self.epoch, self.next) = (turn.epoch(), None);
        }
        let Some(endpoint) = self.shared.reach.choose(&mut self.random, Manner::Any, Some(&self.endpoint)) else {
            return;
        };
        self.endpoint = endpoint.name.clone();
        let limit = self.shared.settings.timeout;
        let Ok(mut connected) = self.connections.client(&endpoint).await else { return };
        let client = &mut connected.client;
        let opened = bounded(limit * 2, async {
            let from = match self.next {
                Some(next) => next,
                // A linearizable read: what is written from now on has a later revision.
                None => client.get(REGISTERS, None).await?.header().map_or(0, ResponseHeader::revision) + 1,
            };
            let options = WatchOptions::new().with_prefix().with_start_revision(from).with_progress_notify();
            Ok((from, client.watch(REGISTERS, Some(options)).await?))
        });
        match opened.await {
            Ok((from, stream)) => {
                self.next = Some(from);
                self.record(Watched::Began { from });
                let reason = self.follow(stream).await;
                self.record(Watched::Ended { reason });
            }
            Err(failure) => self.record(Watched::Ended { reason: failure.reason }),
        }
        self.connections.forget(&endpoint.name, &connected);
    }

    /// Why it ended.
    async fn follow(&mut self, mut stream: WatchStream) -> String {
        loop {
            match timeout(SILENCE, stream.message()).await {
                Ok(Ok(Some(response))) => {
                    self.take(&response);
                    if response.canceled() {
                        return format!("canceled: {}", response.cancel_reason());
                    }
                }
                Ok(Ok(None)) => return "closed".to_owned(),
                Ok(Err(error)) => return error.to_string(),
                Err(_) => return "silent".to_owned(),
            }
        }
    }

    fn take(&mut self, response: &WatchResponse) {
        for event in response.events() {
            self.take_event(event);
        }
        let compact_revision = response.compact_revision();
        if response.canceled() && compact_revision > 0 {
            self.record(Watched::Compacted { asked: self.next.unwrap_or_default(), compact_revision });
            self.next = Some(compact_revision);
        }
        let is_progress = response.events().is_empty() && !response.created() && !response.canceled();
        if let Some(header) = response.header().filter(|_| is_progress) {
            self.record(Watched::Progress { revision: header.revision() });
            self.reached(header.revision());
        }
    }

    fn take_event(&mut self, event: &Event) {
        let Some(pair) = event.kv() else { return };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let value = (event.event_type() == EventType::Put).then(|| text(pair.value()));
        let revision = pair.mod_revision();
        self.record(Watched::Event { revision, key: text(pair.key()), value });
        self.reached(revision);
    }

    fn reached(&mut self, revision: i64) {
        self.next = self.next.max(Some(revision + 1));
        if let Some(watched) = self.shared.progress.watched.get(self.number as usize) {
            watched.fetch_max(revision, Ordering::Relaxed);
        }
    }

    fn record(&self, what: Watched) {
        let (watcher, epoch, endpoint) = (self.number, self.epoch, self.endpoint.clone());
        let at = self.shared.clock.now();
        self.shared.recorder.record(&Record::Watch(WatchRecord { watcher, epoch, endpoint, at, what }));
    }
}
