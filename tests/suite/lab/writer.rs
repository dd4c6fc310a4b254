//! A client that writes as fast as it may, and remembers what was acknowledged.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use etcdrun::etcd::{Credential, Dial, MemberClient, Stream};

/// Between two writes: more than 100 a second.
const PACE: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_millis(500);

pub(super) struct Direct;

#[async_trait]
impl Dial for Direct {
    async fn dial(&self, host: &str, port: u16) -> io::Result<Box<dyn Stream>> {
        let stream = tokio::net::TcpStream::connect((host, port)).await?;
        stream.set_nodelay(true)?;
        Ok(Box::new(stream))
    }
}

pub struct Writer {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Written>,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Written {
    /// Numbers whose write was acknowledged: the keys `/written/NUMBER`.
    pub acknowledged: Vec<u64>,
    /// Calls that failed; what they wrote may be there or not.
    pub errors: Vec<String>,
    /// The longest time from one acknowledged write to the next.
    pub longest: Duration,
}

impl Writer {
    pub fn start(members: &[(String, String)], credential: &Credential) -> Self {
        let (members, credential) = (members.to_vec(), credential.clone());
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let client = |(name, ip): &(String, String)| {
                    MemberClient::new(name, ip, 2379, &credential, Arc::new(Direct)).unwrap()
                };
                write(members.iter().map(client).collect(), &told).await
            })
        });
        Self { stop, thread }
    }

    pub fn stop(self) -> Written {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

async fn write(members: Vec<MemberClient>, stop: &AtomicBool) -> Written {
    let mut written = Written::default();
    let (mut number, mut place) = (0_u64, 0);
    let mut last: Option<Instant> = None;
    while !stop.load(Ordering::Relaxed) {
        let member = &members[place % members.len()];
        place += 1;
        let Ok(Ok(mut client)) = tokio::time::timeout(PATIENCE, member.client()).await else { continue };
        while !stop.load(Ordering::Relaxed) {
            number += 1;
            let key = format!("/written/{number}");
            match tokio::time::timeout(PATIENCE, client.put(key, number.to_string(), None)).await {
                Ok(Ok(_)) => {
                    written.longest = written.longest.max(last.map_or(Duration::ZERO, |last| last.elapsed()));
                    last = Some(Instant::now());
                    written.acknowledged.push(number);
                }
                Ok(Err(error)) => {
                    written.errors.push(format!("{}: {error}", member.name));
                    break;
                }
                Err(_) => {
                    written.errors.push(format!("{}: no answer", member.name));
                    break;
                }
            }
            tokio::time::sleep(PACE).await;
        }
    }
    written
}
