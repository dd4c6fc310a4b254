//! A client that writes and reads a key all the time, to see what clients of a cluster see.
//!
//! In: a client for each member. Out: how many writes were acknowledged, what failed, and the longest time without one.
//! It goes on with another member when one does not answer, as clients do, and ends with the last handle to it.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use etcd_client::Client;
use tokio::{task::JoinHandle, time::Instant};

use super::MemberClient;

/// Between two writes.
const PACE: Duration = Duration::from_millis(50);
/// A member that has not answered by then is given up for another.
const PATIENCE: Duration = Duration::from_secs(1);
/// Logins expire after some minutes.
const FRESH: Duration = Duration::from_secs(60);
/// Errors that are kept word for word.
const KEPT: usize = 20;

/// What it has seen so far.
#[derive(Clone, Debug, Default)]
pub struct Sight {
    /// Writes that were acknowledged, and read back.
    pub writes: u64,
    /// Calls that failed. What they wrote may be there or not.
    pub errors: u64,
    /// The first of them, in words.
    pub words: Vec<String>,
    /// The longest time from one acknowledged write to the next.
    pub longest: Duration,
    /// How long ago the last one was.
    pub since: Duration,
}

pub struct Canary {
    shared: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

struct State {
    sight: Sight,
    last: Instant,
}

impl Canary {
    pub fn start(members: Vec<MemberClient>, key: String) -> Self {
        let shared = Arc::new(Mutex::new(State { sight: Sight::default(), last: Instant::now() }));
        let task = tokio::spawn(sing(members, key, shared.clone()));
        Self { shared, task }
    }

    pub fn sight(&self) -> Sight {
        let state = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let since = state.last.elapsed();
        Sight { since, longest: state.sight.longest.max(since), ..state.sight.clone() }
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn sing(members: Vec<MemberClient>, key: String, shared: Arc<Mutex<State>>) {
    let mut place = 0;
    let mut value = 0_u64;
    loop {
        let Some(member) = members.get(place % members.len().max(1)) else { return };
        // A login that has become old is no failure of the cluster's.
        if let Err(error) = verses(member, &key, &mut value, &shared).await {
            complain(&shared, &format!("{}: {error}", member.name));
            place += 1;
            tokio::time::sleep(PACE).await;
        }
    }
}

/// A call failed.
fn complain(shared: &Mutex<State>, error: &str) {
    let mut state = shared.lock().unwrap_or_else(PoisonError::into_inner);
    state.sight.errors += 1;
    if state.sight.words.len() < KEPT {
        let since = state.last.elapsed().as_millis();
        state.sight.words.push(format!("{error} ({since} ms after the last write)"));
    }
}

/// Through one member, until it fails or the login has become old.
async fn verses(member: &MemberClient, key: &str, value: &mut u64, shared: &Mutex<State>) -> Result<(), String> {
    let start = Instant::now();
    let mut client = in_time(async { member.client().await.map_err(|error| error.to_string()) }).await?;
    while start.elapsed() < FRESH {
        *value += 1;
        verse(&mut client, key, *value).await?;
        note(shared);
        tokio::time::sleep(PACE).await;
    }
    Ok(())
}

/// A write was acknowledged.
fn note(shared: &Mutex<State>) {
    let mut state = shared.lock().unwrap_or_else(PoisonError::into_inner);
    let gap = state.last.elapsed();
    state.last = Instant::now();
    state.sight.writes += 1;
    // What came before the first is not a gap between two.
    if state.sight.writes > 1 {
        state.sight.longest = state.sight.longest.max(gap);
    }
}

async fn verse(client: &mut Client, key: &str, value: u64) -> Result<(), String> {
    let value = value.to_string();
    let told = |error: etcd_client::Error| error.to_string();
    in_time(async { client.put(key, value.as_str(), None).await.map_err(told) }).await?;
    let read = in_time(async { client.get(key, None).await.map_err(told) }).await?;
    let found = read.kvs().first().map(|pair| String::from_utf8_lossy(pair.value()).into_owned());
    match found {
        Some(found) if found == value => Ok(()),
        Some(found) => Err(format!("wrote {value} and read {found}")),
        None => Err(format!("wrote {value} and read nothing")),
    }
}

async fn in_time<T>(call: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    match tokio::time::timeout(PATIENCE, call).await {
        Ok(result) => result,
        Err(_) => Err(format!("no answer within {PATIENCE:?}")),
    }
}
