//! A client that writes all the time, as a sensible one does: it has a connection to every member, takes them in turn, and
//! when one fails, it sends the same write to the next at once; when one is slow, the next has it as well, and the first answer
//! counts (gRPC calls that hedging). It remembers what was acknowledged, and when. The bench of rollouts has it, too.

use std::{
    collections::HashSet,
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use async_trait::async_trait;
use etcd_client::{AlarmAction, AlarmType, Client, GetOptions};
use etcdrun::{
    etcd::{Credential, EtcdError, MemberClient},
    http::Dial,
    ssh::Stream,
};
use tokio::task::JoinSet;

/// Where its keys are: `/written/NUMBER`.
pub const PREFIX: &str = "/written/";
/// Keys that are asked for at once.
const PAGE: i64 = 5000;
/// A member that was lost is asked this often whether it is back.
const AGAIN: Duration = Duration::from_millis(20);
const ASK_LIMIT: Duration = Duration::from_secs(1);
/// Then there is one more attempt at the latest.
const LONGEST_WAIT: Duration = Duration::from_millis(500);
/// Gaps that are remembered with their time, to be found in the logs of servers.
const NOTABLE: Duration = Duration::from_millis(30);

/// How an attempt is told that was given up.
pub const SLOW: &str = "no answer within";

pub struct Direct;

#[async_trait]
impl Dial for Direct {
    async fn dial(&self, host: &str, port: u16) -> io::Result<Box<dyn Stream>> {
        let stream = tokio::net::TcpStream::connect((host, port)).await?;
        stream.set_nodelay(true)?;
        Ok(Box::new(stream))
    }
}

/// How it writes.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// So many writes are on their way at once.
    pub lanes: u32,
    /// From one write to the next, of all lanes together.
    pub pace: Duration,
    /// After so long the same write goes to another member as well, and the first answer counts; once all were asked, each
    /// attempt has twice as long. A follower forwards a write to who leads, and one that gets there while the lead is handed
    /// over is dropped without a word.
    pub patience: Duration,
}

impl Default for Manner {
    fn default() -> Self {
        Self { lanes: 1, pace: Duration::from_millis(5), patience: Duration::from_millis(20) }
    }
}

pub struct Writer {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Written, EtcdError>>,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Written {
    /// Numbers whose write was acknowledged: the keys `/written/NUMBER`.
    pub acknowledged: Vec<u64>,
    /// Attempts that failed, each followed by another one; what they wrote may be there or not.
    pub errors: Vec<String>,
    /// The longest time from one acknowledged write to the next.
    pub longest: Duration,
    /// The longest time from the first attempt of a write until it was acknowledged.
    pub slowest: Duration,
    /// How long it wrote.
    pub lasted: Duration,
    /// Long gaps, and when they ended.
    pub gaps: Vec<(SystemTime, Duration)>,
}

impl Writer {
    pub fn start(members: &[(String, String)], credential: &Credential, manner: Manner) -> Self {
        let (members, credential) = (members.to_vec(), credential.clone());
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let work = move || alone(async { write(connect(&members, &credential)?, manner, told).await });
        let thread = std::thread::Builder::new().name("writer".into()).spawn(work);
        let thread = thread.unwrap_or_else(|error| std::panic::panic_any(error));
        Self { stop, thread }
    }

    /// Ends it. What is on its way is awaited.
    pub fn stop(self) -> Result<Written, EtcdError> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Runs it to its end on this thread.
pub fn alone<T>(work: impl Future<Output = Result<T, EtcdError>>) -> Result<T, EtcdError> {
    let broken = |error: io::Error| EtcdError::Unavailable { member: "the client".into(), reason: error.to_string() };
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(broken)?.block_on(work)
}

fn connect(members: &[(String, String)], credential: &Credential) -> Result<Vec<MemberClient>, EtcdError> {
    members.iter().map(|(name, ip)| MemberClient::new(name, ip, 2379, credential, Arc::new(Direct))).collect()
}

/// The numbers whose keys are in the cluster, by the first member that answers.
pub fn found(members: &[(String, String)], credential: &Credential) -> Result<HashSet<u64>, EtcdError> {
    alone(async {
        let mut answer = Ok(HashSet::new());
        for member in connect(members, credential)? {
            answer = read(&member).await;
            if answer.is_ok() {
                break;
            }
        }
        answer
    })
}

async fn read(member: &MemberClient) -> Result<HashSet<u64>, EtcdError> {
    let mut client = member.client().await?;
    let (mut found, mut from) = (HashSet::new(), PREFIX.to_owned());
    loop {
        // `0` comes after `/`: the end of the prefix.
        let options = GetOptions::new().with_range("/written0").with_keys_only().with_limit(PAGE);
        let answer = member.bounded(client.get(from.as_str(), Some(options))).await?;
        let keys: Vec<&str> = answer.kvs().iter().filter_map(|pair| pair.key_str().ok()).collect();
        found.extend(keys.iter().filter_map(|key| key.strip_prefix(PREFIX)?.parse::<u64>().ok()));
        match keys.last() {
            Some(last) if answer.more() => from = format!("{last}\0"),
            _ => return Ok(found),
        }
    }
}

/// Adds entries to the log that change nothing, so many at once.
#[allow(dead_code, reason = "only the bench does by hand what etcdrun does")]
pub fn entries(
    members: &[(String, String)],
    credential: &Credential,
    count: u32,
    at_once: u32,
) -> Result<(), EtcdError> {
    alone(async {
        let members = connect(members, credential)?;
        let Some(member) = members.first() else { return Ok(()) };
        let client = member.client().await?;
        for _ in 0..count / at_once {
            let ask = |_| {
                let (mut client, member) = (client.clone(), member.clone());
                tokio::spawn(async move { member.bounded(client.alarm(AlarmAction::Get, AlarmType::None, None)).await })
            };
            for asked in (0..at_once).map(ask).collect::<Vec<_>>() {
                if let Ok(answer) = asked.await {
                    answer?;
                }
            }
        }
        Ok(())
    })
}

/// Puts so many values of this size into the cluster, beside its own keys, several at a time. Nothing makes them smaller.
#[allow(dead_code, reason = "only the bench wants a cluster that is full")]
pub fn fill(members: &[(String, String)], credential: &Credential, count: u64, size: usize) -> Result<(), EtcdError> {
    const LANES: u64 = 32;
    alone(async {
        let members = connect(members, credential)?;
        let Some(member) = members.first() else { return Ok(()) };
        let client = member.client().await?;
        let put = |lane| {
            let (mut client, member) = (client.clone(), member.clone());
            tokio::spawn(async move {
                for number in (lane..count).step_by(LANES as usize) {
                    member.bounded(client.put(format!("/filled/{number}"), noise(number, size), None)).await?;
                }
                Ok::<(), EtcdError>(())
            })
        };
        for lane in (0..LANES).map(put).collect::<Vec<_>>() {
            if let Ok(filled) = lane.await {
                filled?;
            }
        }
        Ok(())
    })
}

/// Numbers that look like noise (splitmix64), the same in every run.
fn noise(number: u64, size: usize) -> Vec<u8> {
    let mut state = number << 32;
    let mut value = Vec::with_capacity(size + 8);
    while value.len() < size {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value.extend((mixed ^ (mixed >> 31)).to_le_bytes());
    }
    value.truncate(size);
    value
}

/// A member, and whether it answered when it was last asked.
struct End {
    name: Arc<str>,
    client: Client,
    is_there: AtomicBool,
}

struct Shared {
    ends: Vec<Arc<End>>,
    manner: Manner,
    stop: Arc<AtomicBool>,
    tally: Mutex<(Written, Option<Instant>)>,
}

async fn write(members: Vec<MemberClient>, manner: Manner, stop: Arc<AtomicBool>) -> Result<Written, EtcdError> {
    let mut ends = Vec::new();
    for member in members {
        let mut client = member.client().await?;
        // A connection costs the first call more than all others.
        let answers = tokio::time::timeout(ASK_LIMIT, client.status()).await.is_ok_and(|answer| answer.is_ok());
        let end = Arc::new(End { name: member.name.clone(), client, is_there: AtomicBool::new(true) });
        if !answers {
            lose(&end);
        }
        ends.push(end);
    }
    let start = Instant::now();
    let shared = Arc::new(Shared { ends, manner, stop, tally: Mutex::default() });
    let lanes: Vec<_> = (0..manner.lanes).map(|lane| tokio::spawn(shared.clone().lane(lane))).collect();
    for lane in lanes {
        if let Err(error) = lane.await {
            return Err(EtcdError::Unavailable { member: "the client".into(), reason: error.to_string() });
        }
    }
    let (written, _) = std::mem::take(&mut *shared.tally());
    Ok(Written { lasted: start.elapsed(), ..written })
}

impl Shared {
    fn tally(&self) -> std::sync::MutexGuard<'_, (Written, Option<Instant>)> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn lane(self: Arc<Self>, lane: u32) {
        let Manner { lanes, pace, .. } = self.manner;
        let (mut number, mut place) = (u64::from(lane), lane as usize);
        tokio::time::sleep(pace * lane).await;
        let mut ticks = tokio::time::interval(pace * lanes);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while !self.stop.load(Ordering::Relaxed) {
            ticks.tick().await;
            number += u64::from(lanes);
            self.one(number, &mut place).await;
        }
    }

    /// One write, until it is acknowledged. Whoever is slow may still be the first to answer.
    async fn one(&self, number: u64, place: &mut usize) {
        let start = Instant::now();
        let (mut patience, mut attempts) = (self.manner.patience, JoinSet::new());
        while start.elapsed() < Duration::from_secs(60) {
            let end = self.next(place).clone();
            let mut client = end.client.clone();
            attempts.spawn({
                let end = end.clone();
                async move { (client.put(format!("{PREFIX}{number}"), number.to_string(), None).await, end) }
            });
            match tokio::time::timeout(patience, attempts.join_next()).await {
                Ok(Some(Ok((Ok(_), _)))) => return self.acknowledged(number, start),
                Ok(Some(Ok((Err(error), end)))) => {
                    self.failed(&end.name, &error.to_string());
                    if lose(&end) {
                        // Nobody is asked over and over without a pause.
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                }
                Ok(None | Some(Err(_))) => {}
                Err(_) => {
                    self.failed(&end.name, &format!("{SLOW} {patience:?}"));
                    if attempts.len() >= self.ends.len() {
                        patience = (patience * 2).min(LONGEST_WAIT);
                    }
                }
            }
        }
    }

    /// The next of those that are there; if none is, the next.
    fn next(&self, place: &mut usize) -> &Arc<End> {
        for _ in 0..self.ends.len() {
            *place += 1;
            let end = &self.ends[*place % self.ends.len()];
            if end.is_there.load(Ordering::Relaxed) {
                return end;
            }
        }
        &self.ends[*place % self.ends.len()]
    }

    fn acknowledged(&self, number: u64, since: Instant) {
        let mut tally = self.tally();
        let (written, last) = &mut *tally;
        let gap = last.map_or(Duration::ZERO, |last| last.elapsed());
        *last = Some(Instant::now());
        written.longest = written.longest.max(gap);
        written.slowest = written.slowest.max(since.elapsed());
        if gap >= NOTABLE {
            written.gaps.push((SystemTime::now(), gap));
        }
        written.acknowledged.push(number);
    }

    fn failed(&self, name: &str, error: &str) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.tally().0.errors.push(format!("{:.3} {name}: {error}", now.as_secs_f64()));
    }
}

/// The member is left out until it answers again. Whether it was left out before.
fn lose(end: &Arc<End>) -> bool {
    if !end.is_there.swap(false, Ordering::Relaxed) {
        return true;
    }
    let end = end.clone();
    tokio::spawn(async move {
        let mut client = end.client.clone();
        while !matches!(tokio::time::timeout(ASK_LIMIT, client.status()).await, Ok(Ok(_))) {
            tokio::time::sleep(AGAIN).await;
        }
        end.is_there.store(true, Ordering::Relaxed);
    });
    false
}
