//! Clients that read and write registers: keys that each hold one value.

use std::{sync::Arc, time::Duration};

use rand::{RngExt, rngs::StdRng};
use tokio::{runtime::Handle, task::JoinHandle, time::Instant};

use super::{random, rest};
use crate::{
    connect::{Connections, Manner, WithoutLeader},
    record::Kind,
    shared::{AVAILABILITY, Shared, Wish, register},
};

pub(super) fn start(runtime: &Handle, shared: &Arc<Shared>) -> Vec<JoinHandle<()>> {
    let settings = &shared.settings;
    let every = Duration::from_secs_f64(f64::from(settings.writers.max(1)) / settings.rate.max(0.1));
    let writers = (0..settings.writers).map(|number| {
        // Every second one asks members that do not answer, too.
        let manner = if number % 2 == 0 { Manner::Careful } else { Manner::Any };
        runtime.spawn(Writer::new(shared, shared.connections(WithoutLeader::Answer).into(), manner).write(every))
    });
    let writers: Vec<JoinHandle<()>> = writers.collect();
    writers.into_iter().chain(start_probes(runtime, shared)).collect()
}

/// As many as are needed so that one begins at each interval even if none is answered.
fn start_probes(runtime: &Handle, shared: &Arc<Shared>) -> Vec<JoinHandle<()>> {
    let interval = shared.settings.probe_interval.max(Duration::from_millis(10));
    let count = shared.settings.timeout.div_duration_f64(interval).ceil().max(1.0) as u32;
    let connections = Arc::new(shared.connections(WithoutLeader::Answer));
    let probe = |number| {
        let writer = Writer::new(shared, connections.clone(), Manner::Careful);
        runtime.spawn(writer.probe(interval * number, interval * count))
    };
    (0..count).map(probe).collect()
}

/// One client. It never has more than one operation under way.
struct Writer {
    shared: Arc<Shared>,
    connections: Arc<Connections>,
    manner: Manner,
    client: u32,
    random: StdRng,
    /// How many values it has written; each is another one.
    written: u64,
}

impl Writer {
    fn new(shared: &Arc<Shared>, connections: Arc<Connections>, manner: Manner) -> Self {
        let client = shared.new_client();
        let random = random(shared, client.into());
        Self { shared: shared.clone(), connections, manner, client, random, written: 0 }
    }

    /// Does something about this often, until the end.
    async fn write(mut self, every: Duration) {
        let mut next = Instant::now();
        loop {
            next = (next + every.mul_f64(self.random.random_range(0.5..1.5))).max(Instant::now());
            rest(&self.shared, next.saturating_duration_since(Instant::now())).await;
            let key = register(self.random.random_range(0..self.shared.settings.keys.max(1)));
            let kind = self.next_kind(&key);
            if !self.operate(&key, kind).await {
                return;
            }
        }
    }

    /// Puts a value at fixed times, until the end.
    async fn probe(mut self, first: Duration, every: Duration) {
        let mut times = tokio::time::interval_at(Instant::now() + first, every);
        times.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                _ = times.tick() => {}
                () = self.shared.gate.leaving() => return,
            }
            let kind = Kind::Put { value: self.next_value() };
            if !self.operate(AVAILABILITY, kind).await {
                return;
            }
        }
    }

    fn next_kind(&mut self, key: &str) -> Kind {
        match self.random.random_range(0..100) {
            0..30 => Kind::Get,
            30..60 => Kind::Put { value: self.next_value() },
            60..90 => Kind::CompareAndSwap { expected: self.shared.last_seen(key), value: self.next_value() },
            _ => Kind::Delete,
        }
    }

    fn next_value(&mut self) -> String {
        self.written += 1;
        format!("{}.{}.{}", self.shared.run, self.client, self.written)
    }

    /// False at the end.
    async fn operate(&mut self, key: &str, kind: Kind) -> bool {
        let Some(turn) = self.shared.gate.enter().await else { return false };
        if let Some(endpoint) = self.shared.reach.choose(&mut self.random, self.manner, None) {
            let wish = Wish { client: self.client, epoch: turn.epoch(), endpoint: &endpoint, key, kind };
            self.shared.operate(&self.connections, wish).await;
        }
        true
    }
}
