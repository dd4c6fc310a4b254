//! A client that connects anew all the time, to every member, and remembers who was not to be trusted, or did not trust it. The
//! bench has it, too.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use etcdrun::etcd::{Credential, EtcdError, MemberClient};

use super::writer::{Direct, alone};

const PAUSE: Duration = Duration::from_millis(10);

pub struct Knocking {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Knocked, EtcdError>>,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Knocked {
    pub handshakes: usize,
    pub refused: Vec<String>,
}

impl Knocking {
    pub fn start(members: &[(String, String)], credential: &Credential) -> Self {
        let (members, credential) = (members.to_vec(), credential.clone());
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let thread = std::thread::spawn(move || alone(async { go(&members, &credential, &told).await }));
        Self { stop, thread }
    }

    pub fn stop(self) -> Result<Knocked, EtcdError> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

async fn go(members: &[(String, String)], credential: &Credential, stop: &AtomicBool) -> Result<Knocked, EtcdError> {
    let mut knocked = Knocked::default();
    while !stop.load(Ordering::Relaxed) {
        for (name, ip) in members {
            match knock(name, ip, credential).await {
                Ok(()) => knocked.handshakes += 1,
                Err(error) if is_refusal(&error) => knocked.refused.push(error.to_string()),
                // It restarts.
                Err(_) => {}
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(knocked)
}

/// A call over a connection of its own.
pub async fn knock(name: &str, ip: &str, credential: &Credential) -> Result<(), EtcdError> {
    let member = MemberClient::new(name, ip, 2379, credential, Arc::new(Direct))?;
    let mut client = member.client().await?;
    member.bounded(client.status()).await.map(drop)
}

/// Either side said of the other's certificate that it is not good.
fn is_refusal(error: &EtcdError) -> bool {
    let error = error.to_string();
    ["certificate", "alert", "UnknownCA", "UnknownIssuer"].iter().any(|word| error.contains(word))
}
