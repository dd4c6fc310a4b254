//! A client that asks who the members are, and records each change.

use std::{sync::Arc, time::Duration};

use etcd_client::{Client, Error, ResponseHeader};
use rand::rngs::StdRng;
use tokio::time::MissedTickBehavior;

use super::random;
use crate::{
    connect::{Connections, Manner, WithoutLeader, bounded},
    gate::Turn,
    record::{Member, MembersRecord, Record},
    shared::{AVAILABILITY, Shared},
};

const INTERVAL: Duration = Duration::from_millis(150);
/// Another member may answer sooner.
const LIMIT: Duration = Duration::from_secs(1);

pub(super) async fn run(shared: Arc<Shared>, client: u32) {
    // A member without a leader cannot say who the members are, so it need not try.
    let connections = Connections::new(shared.reach.clone(), LIMIT, WithoutLeader::Refuse);
    let random = random(&shared, client.into());
    let mut sampler = Sampler {
        shared: shared.clone(),
        connections,
        random,
        endpoint: String::new(),
        count: 0,
        epoch: 0,
        last: None,
    };
    let mut times = tokio::time::interval(INTERVAL);
    times.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = times.tick() => {}
            () = shared.gate.leaving() => break,
        }
        let Some(turn) = shared.gate.enter().await else { break };
        sampler.sample(&turn).await;
    }
    shared.recorder.record(&Record::Sampled { at: shared.clock.now(), count: sampler.count });
}

struct Sampler {
    shared: Arc<Shared>,
    connections: Connections,
    random: StdRng,
    /// Where it asked last.
    endpoint: String,
    count: u64,
    epoch: u32,
    /// The last list of this epoch, and when its answer ended.
    last: Option<(Vec<Member>, i64)>,
}

impl Sampler {
    /// Asks one member, once. A failure says nothing of the members, nor to other clients: it may be a matter of roles.
    async fn sample(&mut self, turn: &Turn) {
        let Some(endpoint) = self.shared.reach.choose(&mut self.random, Manner::Careful, Some(&self.endpoint)) else {
            return;
        };
        self.endpoint = endpoint.name.clone();
        let Ok(mut connected) = self.connections.client(&endpoint).await else { return };
        let called = self.shared.clock.now();
        let listed = bounded(LIMIT, list(&mut connected.client)).await;
        let returned = self.shared.clock.now();
        match listed {
            Ok(members) => self.take(turn, members, called, returned),
            // Another login has the same roles, and is expensive for the server.
            Err(failure) if failure.reason.contains("permission denied") => {}
            Err(_) => self.connections.forget(&endpoint.name, &connected),
        }
    }

    fn take(&mut self, turn: &Turn, members: Vec<Member>, called: i64, returned: i64) {
        if turn.epoch() != self.epoch {
            (self.epoch, self.last) = (turn.epoch(), None);
        }
        self.count += 1;
        let last = self.last.replace((members.clone(), returned));
        if last.as_ref().is_none_or(|(before, _)| *before != members) {
            let (epoch, endpoint, number) = (self.epoch, self.endpoint.clone(), self.count);
            let previous = last.map(|(_, at)| at);
            let record = MembersRecord { epoch, endpoint, number, previous, called, returned, members };
            self.shared.recorder.record(&Record::Members(record));
        }
    }
}

/// The library cannot ask for a linearizable list, and etcd 3.4 has none. But who answers a linearizable read has applied all
/// that was committed when it was asked, so the list that it gives next is not older than that.
async fn list(client: &mut Client) -> Result<Vec<Member>, Error> {
    let read = client.get(AVAILABILITY, None).await?;
    let list = client.member_list().await?;
    let source = |header: Option<&ResponseHeader>| header.map(|header| (header.cluster_id(), header.member_id()));
    if source(read.header()) != source(list.header()) {
        return Err(Error::Internal("the list is of another member than the read".to_owned()));
    }
    let mut members: Vec<Member> = list.members().iter().map(member).collect();
    members.sort();
    Ok(members)
}

fn member(listed: &etcd_client::Member) -> Member {
    let mut peer_urls = listed.peer_urls().to_vec();
    peer_urls.sort();
    Member { id: listed.id(), name: listed.name().to_owned(), is_learner: listed.is_learner(), peer_urls }
}
