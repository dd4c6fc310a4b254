//! What all clients of a history share, and how one operation is done and recorded.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use etcd_client::{Client, Compare, CompareOp, DeleteOptions, Error, KeyValue, PutOptions, ResponseHeader, Txn, TxnOp};

use crate::{
    availability::Availability,
    clock::Clock,
    cluster::Endpoint,
    connect::{Connections, Reach, WithoutLeader, bounded},
    gate::Gate,
    record::{Answer, Kind, Outcome, Record, Request, Version},
    recorder::Recorder,
    settings::Settings,
};

/// All keys that are judged as registers.
pub(crate) const REGISTERS: &str = "/judge/register/";
/// The key that shows whether writes are acknowledged.
pub(crate) const AVAILABILITY: &str = "/judge/register/availability";

pub(crate) struct Shared {
    pub(crate) run: String,
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    pub(crate) recorder: Recorder,
    pub(crate) reach: Arc<Reach>,
    pub(crate) gate: Gate,
    pub(crate) progress: Progress,
    availability: Mutex<Availability>,
    /// What some client last saw of each key, so that a compare-and-swap has a chance.
    last_seen: Mutex<HashMap<String, Option<String>>>,
    next_request: AtomicU64,
    next_client: AtomicU32,
}

/// How far the writes and the watchers are, to know at the end whether the watchers have seen everything.
pub(crate) struct Progress {
    pub(crate) written: AtomicI64,
    pub(crate) watched: Vec<AtomicI64>,
}

impl Progress {
    /// Revisions of another epoch mean nothing.
    pub(crate) fn begin_epoch(&self) {
        self.written.store(0, Ordering::Relaxed);
        self.watched.iter().for_each(|watched| watched.store(0, Ordering::Relaxed));
    }

    /// The watchers that have not seen the last acknowledged write.
    pub(crate) fn behind(&self) -> Vec<u32> {
        let written = self.written.load(Ordering::Relaxed);
        let numbers = (0..).zip(&self.watched).filter(|(_, watched)| watched.load(Ordering::Relaxed) < written);
        numbers.map(|(number, _)| number).collect()
    }
}

/// An operation that is to be done.
pub(crate) struct Wish<'a> {
    pub(crate) client: u32,
    pub(crate) epoch: u32,
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) key: &'a str,
    pub(crate) kind: Kind,
}

impl Shared {
    pub(crate) fn new(run: String, settings: Settings, clock: Clock, recorder: Recorder, reach: Reach) -> Self {
        let availability = Mutex::new(Availability::new(clock.unix_milliseconds));
        let watched = (0..settings.watchers).map(|_| AtomicI64::new(0)).collect();
        Self {
            run,
            settings,
            clock,
            recorder,
            reach: Arc::new(reach),
            gate: Gate::new(),
            progress: Progress { written: AtomicI64::new(0), watched },
            availability,
            last_seen: Mutex::default(),
            next_request: AtomicU64::new(0),
            next_client: AtomicU32::new(0),
        }
    }

    pub(crate) fn connections(&self, without_leader: WithoutLeader) -> Connections {
        Connections::new(self.reach.clone(), self.settings.timeout, without_leader)
    }

    pub(crate) fn new_client(&self) -> u32 {
        self.next_client.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = String> {
        let registers = (0..self.settings.keys).map(register);
        registers.chain([AVAILABILITY.to_owned()])
    }

    pub(crate) fn availability(&self) -> MutexGuard<'_, Availability> {
        self.availability.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn last_seen(&self, key: &str) -> Option<String> {
        self.last_seen.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned().flatten()
    }

    /// Does one operation and records it. A read without an answer says nothing, and is not recorded.
    pub(crate) async fn operate(&self, connections: &Connections, wish: Wish<'_>) -> Option<Answer> {
        let name = &wish.endpoint.name;
        let waiting = self.reach.begin(name);
        let mut connected = match connections.client(wish.endpoint).await {
            Ok(connected) => connected,
            Err(_) => {
                waiting.failed();
                return None;
            }
        };
        let Wish { client: number, epoch, key, kind, .. } = wish;
        let id = self.next_request.fetch_add(1, Ordering::Relaxed);
        let (endpoint, key) = (name.clone(), key.to_owned());
        let request = Request { id, client: number, epoch, endpoint, key, kind, called: self.clock.now() };
        let is_write = request.kind.is_write();
        if is_write {
            self.recorder.record(&Record::Called(request.clone()));
        }
        let result = perform(&mut connected.client, &request, self.settings.timeout).await;
        let returned = self.clock.now();
        let outcome = match result {
            Ok(answer) => {
                self.saw(&request, &answer, returned);
                Outcome::Acknowledged(answer)
            }
            Err(failure) => {
                connections.forget(name, &connected);
                waiting.failed();
                let reason = failure.reason;
                if failure.is_certain { Outcome::Failed { reason } } else { Outcome::Unknown { reason } }
            }
        };
        let answer = match &outcome {
            Outcome::Acknowledged(answer) => Some(answer.clone()),
            Outcome::Failed { .. } | Outcome::Unknown { .. } => None,
        };
        if !is_write && answer.is_some() {
            self.recorder.record(&Record::Called(request));
        }
        if is_write || answer.is_some() {
            self.recorder.record(&Record::Returned { id, returned, outcome });
        }
        answer
    }

    fn saw(&self, request: &Request, answer: &Answer, returned: i64) {
        if request.kind.is_write() {
            self.availability().acknowledged(returned);
        }
        if answer.written {
            self.progress.written.fetch_max(answer.revision, Ordering::Relaxed);
        }
        let now = if answer.written {
            request.kind.value().map(str::to_owned)
        } else {
            answer.seen.as_ref().map(|version| version.value.clone())
        };
        self.last_seen.lock().unwrap_or_else(PoisonError::into_inner).insert(request.key.clone(), now);
    }
}

pub(crate) fn register(number: u32) -> String {
    format!("{REGISTERS}{number}")
}

/// Every request also tells what the key held before, so that an answer leaves nothing open.
async fn perform(client: &mut Client, request: &Request, limit: Duration) -> Result<Answer, crate::failure::Failure> {
    let key = request.key.as_str();
    bounded(limit, async {
        match &request.kind {
            Kind::Get => {
                let response = client.get(key, None).await?;
                let seen = response.kvs().first().map(version);
                Ok(Answer { revision: revision(response.header())?, seen, written: false })
            }
            Kind::Put { value } => {
                let response = client.put(key, value.as_str(), Some(PutOptions::new().with_prev_key())).await?;
                let seen = response.prev_key().map(version);
                Ok(Answer { revision: revision(response.header())?, seen, written: true })
            }
            Kind::Delete => {
                let response = client.delete(key, Some(DeleteOptions::new().with_prev_key())).await?;
                let seen = response.prev_kvs().first().map(version);
                Ok(Answer { revision: revision(response.header())?, seen, written: response.deleted() > 0 })
            }
            Kind::CompareAndSwap { expected, value } => compare_and_swap(client, key, expected.as_deref(), value).await,
        }
    })
    .await
}

async fn compare_and_swap(
    client: &mut Client,
    key: &str,
    expected: Option<&str>,
    value: &str,
) -> Result<Answer, Error> {
    let compare = match expected {
        Some(expected) => Compare::value(key, CompareOp::Equal, expected),
        None => Compare::version(key, CompareOp::Equal, 0),
    };
    let put = TxnOp::put(key, value, Some(PutOptions::new().with_prev_key()));
    let transaction = Txn::new().when([compare]).and_then([put]).or_else([TxnOp::get(key, None)]);
    let response = client.txn(transaction).await?;
    let seen = response.op_responses().iter().find_map(|part| match part {
        etcd_client::TxnOpResponse::Put(put) => put.prev_key().map(version),
        etcd_client::TxnOpResponse::Get(get) => get.kvs().first().map(version),
        _ => None,
    });
    Ok(Answer { revision: revision(response.header())?, seen, written: response.succeeded() })
}

fn version(pair: &KeyValue) -> Version {
    Version { value: String::from_utf8_lossy(pair.value()).into_owned(), mod_revision: pair.mod_revision() }
}

fn revision(header: Option<&ResponseHeader>) -> Result<i64, Error> {
    header.map(ResponseHeader::revision).ok_or_else(|| Error::Internal("the answer has no header".to_owned()))
}
