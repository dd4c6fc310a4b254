//! A client that holds keys by leases: keeps them alive, revokes them, or lets them expire.

use std::{sync::Arc, time::Duration};

use etcd_client::{Client, PutOptions, ResponseHeader};
use rand::{RngExt, rngs::StdRng};
use tokio::time::Instant;

use super::{BREATH, random, rest};
use crate::{
    connect::{Connections, Manner, WithoutLeader, bounded},
    gate::Turn,
    record::{LeaseRecord, LeaseStep, Record},
    shared::Shared,
};

const PREFIX: &str = "/judge/lease/";
/// More leases than these are not left to expire at a time.
const MOST_EXPIRING: usize = 4;
/// A lease that lives on for so long is no longer looked at: the check has its evidence.
const LOOK_FOR: Duration = Duration::from_secs(300);

pub(super) async fn run(shared: Arc<Shared>, client: u32) {
    let (connections, random) = (shared.connections(WithoutLeader::Answer), random(&shared, client.into()));
    let mut holder = Holder { shared, connections, random, client, granted: 0, expiring: Vec::new() };
    while holder.hold().await.is_some() {}
}

struct Holder {
    shared: Arc<Shared>,
    connections: Connections,
    random: StdRng,
    client: u32,
    granted: u64,
    /// Leases that are no longer kept alive.
    expiring: Vec<(Lease, Instant)>,
}

#[derive(Clone)]
struct Lease {
    id: i64,
    epoch: u32,
    key: String,
}

/// A request, and when and where it was answered.
struct Answered<T> {
    value: T,
    endpoint: String,
    called: i64,
    returned: i64,
}

impl Holder {
    /// The life of one lease. None at the end.
    async fn hold(&mut self) -> Option<()> {
        let Some(lease) = self.grant().await? else {
            rest(&self.shared, BREATH).await;
            return Some(());
        };
        for _ in 0..self.random.random_range(1..6) {
            rest(&self.shared, self.shared.settings.lease_ttl / 3).await;
            let Some(turn) = self.turn(&lease).await? else { return Some(()) };
            self.keep_alive(&turn, &lease).await;
            self.read(&turn, &lease).await;
            drop(turn);
            self.look_at_expiring().await;
        }
        let Some(turn) = self.turn(&lease).await? else { return Some(()) };
        if self.expiring.len() < MOST_EXPIRING && self.random.random_bool(0.4) {
            self.record(&lease, &self.now(LeaseStep::Left));
            self.expiring.push((lease, Instant::now()));
        } else {
            self.revoke(&turn, &lease).await;
            self.read(&turn, &lease).await;
        }
        Some(())
    }

    /// A lease of another epoch says nothing: there is no turn for it.
    async fn turn(&self, lease: &Lease) -> Option<Option<Turn>> {
        let turn = self.shared.gate.enter().await?;
        Some((turn.epoch() == lease.epoch).then_some(turn))
    }

    async fn look_at_expiring(&mut self) {
        for (lease, since) in std::mem::take(&mut self.expiring) {
            let Some(Some(turn)) = self.turn(&lease).await else { continue };
            let is_gone = self.read(&turn, &lease).await == Some(false);
            if !is_gone && since.elapsed() < LOOK_FOR {
                self.expiring.push((lease, since));
            }
        }
    }

    /// A lease with its key.
    async fn grant(&mut self) -> Option<Option<Lease>> {
        let turn = self.shared.gate.enter().await?;
        let seconds = i64::try_from(self.shared.settings.lease_ttl.as_secs()).unwrap_or(10);
        let granted = self.ask(async |client| {
            let response = client.lease_grant(seconds, None).await?;
            Ok((response.id(), response.ttl()))
        });
        let Some(granted) = granted.await else { return Some(None) };
        let (id, ttl_seconds) = granted.value;
        self.granted += 1;
        let key = format!("{PREFIX}{}/{}/{}", self.shared.run, self.client, self.granted);
        let lease = Lease { id, epoch: turn.epoch(), key };
        self.record(&lease, &granted.with(LeaseStep::Granted { ttl_seconds }));
        let key = lease.key.clone();
        let put = self.ask(async move |client| {
            let response = client.put(key, "held", Some(PutOptions::new().with_lease(id))).await?;
            let header = response.header();
            let revision = header.map_or(0, ResponseHeader::revision);
            Ok(LeaseStep::Put { revision, raft_term: header.map_or(0, ResponseHeader::raft_term) })
        });
        let Some(put) = put.await else { return Some(None) };
        self.shared.availability().acknowledged(put.returned);
        self.record(&lease, &put);
        Some(Some(lease))
    }

    async fn keep_alive(&mut self, _turn: &Turn, lease: &Lease) {
        let id = lease.id;
        // It fails if the answer says that there is no such lease.
        let kept = self.ask(async move |client| client.lease_keep_alive(id).await).await;
        if let Some(kept) = kept {
            self.record(lease, &kept.with(LeaseStep::Kept));
        }
    }

    async fn revoke(&mut self, _turn: &Turn, lease: &Lease) {
        let id = lease.id;
        self.record(lease, &self.now(LeaseStep::Revoking));
        let revoked = self.ask(async move |client| client.lease_revoke(id).await.map(drop)).await;
        if let Some(revoked) = revoked {
            self.record(lease, &revoked.with(LeaseStep::Revoked));
        }
    }

    /// Whether the key is there, as far as that is known.
    async fn read(&mut self, _turn: &Turn, lease: &Lease) -> Option<bool> {
        let key = lease.key.clone();
        let read = self.ask(async move |client| {
            let response = client.get(key, None).await?;
            let header = response.header();
            let revision = header.map_or(0, ResponseHeader::revision);
            let raft_term = header.map_or(0, ResponseHeader::raft_term);
            Ok(LeaseStep::Read { present: !response.kvs().is_empty(), revision, raft_term })
        });
        let read = read.await?;
        self.record(lease, &read);
        Some(matches!(read.value, LeaseStep::Read { present: true, .. }))
    }

    /// Asks a member, once. What was not answered is not recorded.
    async fn ask<T>(
        &mut self,
        call: impl AsyncFnOnce(&mut Client) -> Result<T, etcd_client::Error>,
    ) -> Option<Answered<T>> {
        let endpoint = self.shared.reach.choose(&mut self.random, Manner::Careful, None)?;
        let waiting = self.shared.reach.begin(&endpoint.name);
        let Ok(mut connected) = self.connections.client(&endpoint).await else {
            waiting.failed();
            return None;
        };
        let called = self.shared.clock.now();
        let result = bounded(self.shared.settings.timeout, call(&mut connected.client)).await;
        let returned = self.shared.clock.now();
        match result {
            Ok(value) => Some(Answered { value, endpoint: endpoint.name, called, returned }),
            Err(_) => {
                self.connections.forget(&endpoint.name, &connected);
                waiting.failed();
                None
            }
        }
    }

    /// A step that asks no member.
    fn now(&self, value: LeaseStep) -> Answered<LeaseStep> {
        let now = self.shared.clock.now();
        Answered { value, endpoint: String::new(), called: now, returned: now }
    }

    fn record(&self, lease: &Lease, answered: &Answered<LeaseStep>) {
        self.shared.recorder.record(&Record::Lease(LeaseRecord {
            client: self.client,
            epoch: lease.epoch,
            endpoint: answered.endpoint.clone(),
            lease: lease.id,
            key: lease.key.clone(),
            called: answered.called,
            returned: answered.returned,
            step: answered.value.clone(),
        }));
    }
}

impl<T> Answered<T> {
    fn with<U>(&self, value: U) -> Answered<U> {
        Answered { value, endpoint: self.endpoint.clone(), called: self.called, returned: self.returned }
    }
}
