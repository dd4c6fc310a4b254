//! Connections to members, which come and go, and which of them to use next.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
    time::{Duration, Instant},
};

use etcd_client::{Certificate, Client, ConnectOptions, Error, Identity, TlsOptions};
use rand::{RngExt, rngs::StdRng};
use tokio::time::timeout;

use crate::{
    cluster::{Cluster, Endpoint},
    failure::Failure,
};

/// A request that is not answered after this time makes careful clients use another member.
const SUSPICIOUS: Duration = Duration::from_millis(300);
/// So long do careful clients stay away from a member that failed.
const SHUNNED: Duration = Duration::from_secs(1);
/// etcd refuses clients that ping more often than every 5 s.
const PING_INTERVAL: Duration = Duration::from_secs(6);
const PING_LIMIT: Duration = Duration::from_secs(3);

/// How a client chooses its member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// One that answers, if there is one.
    Careful,
    /// Any, so that one that is cut off is asked, too: it must not give old answers.
    Any,
}

/// How the cluster is reached at this moment, and how its members are.
pub(crate) struct Reach {
    current: RwLock<(u64, Arc<Cluster>)>,
    health: Mutex<HashMap<String, Health>>,
}

#[derive(Default)]
struct Health {
    waiting: Vec<Instant>,
    failed: Option<Instant>,
}

impl Reach {
    pub(crate) fn new(cluster: Cluster) -> Self {
        Self { current: RwLock::new((0, Arc::new(cluster))), health: Mutex::default() }
    }

    /// All connections are made anew after it.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Cluster)) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        current.0 += 1;
        change(Arc::make_mut(&mut current.1));
    }

    fn current(&self) -> (u64, Arc<Cluster>) {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A member to use next, and if possible not the one that was used last.
    pub(crate) fn choose(&self, random: &mut StdRng, manner: Manner, last: Option<&str>) -> Option<Endpoint> {
        let (_, cluster) = self.current();
        let all: Vec<&Endpoint> = cluster.endpoints.iter().collect();
        let others: Vec<&Endpoint> =
            all.iter().copied().filter(|endpoint| Some(endpoint.name.as_str()) != last).collect();
        let mut candidates = if others.is_empty() { all } else { others };
        if manner == Manner::Careful {
            let health = self.health();
            let good: Vec<&Endpoint> =
                candidates.iter().copied().filter(|one| is_good(health.get(&one.name))).collect();
            if !good.is_empty() {
                candidates = good;
            }
        }
        if candidates.is_empty() {
            return None;
        }
        Some(candidates[random.random_range(0..candidates.len())].clone())
    }

    /// A request to this member begins.
    pub(crate) fn begin(&self, endpoint: &str) -> Waiting<'_> {
        let since = Instant::now();
        self.health().entry(endpoint.to_owned()).or_default().waiting.push(since);
        Waiting { reach: self, endpoint: endpoint.to_owned(), since }
    }

    fn health(&self) -> MutexGuard<'_, HashMap<String, Health>> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_good(health: Option<&Health>) -> bool {
    health.is_none_or(|health| {
        health.waiting.iter().all(|since| since.elapsed() < SUSPICIOUS)
            && health.failed.is_none_or(|at| at.elapsed() > SHUNNED)
    })
}

/// A request that is not answered yet.
pub(crate) struct Waiting<'a> {
    reach: &'a Reach,
    endpoint: String,
    since: Instant,
}

impl Waiting<'_> {
    pub(crate) fn failed(self) {
        self.reach.health().entry(self.endpoint.clone()).or_default().failed = Some(Instant::now());
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(health) = self.reach.health().get_mut(&self.endpoint) {
            let place = health.waiting.iter().position(|since| *since == self.since);
            place.map(|place| health.waiting.swap_remove(place));
        }
    }
}

/// What a member without a leader shall do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WithoutLeader {
    /// Answer as it thinks right: that is judged.
    Answer,
    /// End a watch, which otherwise would be silent.
    Refuse,
}

/// The connections of one client.
pub(crate) struct Connections {
    reach: Arc<Reach>,
    limit: Duration,
    without_leader: WithoutLeader,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    generation: u64,
    places: HashMap<String, Arc<Place>>,
}

/// Where a connection is or will be. Who needs it while it is made waits, because a login is expensive for the server.
type Place = tokio::sync::Mutex<Option<Client>>;

/// A client, and where it came from.
pub(crate) struct Connected {
    pub(crate) client: Client,
    place: Arc<Place>,
}

impl Connections {
    pub(crate) fn new(reach: Arc<Reach>, limit: Duration, without_leader: WithoutLeader) -> Self {
        Self { reach, limit, without_leader, kept: Mutex::default() }
    }

    /// Connects, and logs in where there is a login, unless that was done already.
    pub(crate) async fn client(&self, endpoint: &Endpoint) -> Result<Connected, Failure> {
        timeout(self.limit, self.connected(endpoint)).await.map_err(|_| Failure::timed_out())?
    }

    async fn connected(&self, endpoint: &Endpoint) -> Result<Connected, Failure> {
        let (generation, cluster) = self.reach.current();
        let place = self.kept(generation).places.entry(endpoint.name.clone()).or_default().clone();
        let mut kept = place.lock().await;
        let client = match &*kept {
            Some(client) => client.clone(),
            None => connect(&cluster, endpoint, self.limit, self.without_leader).await?,
        };
        *kept = Some(client.clone());
        drop(kept);
        Ok(Connected { client, place })
    }

    /// The next request to this member gets a new connection and a new login, unless it has another one already.
    pub(crate) fn forget(&self, endpoint: &str, connected: &Connected) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.places.get(endpoint).is_some_and(|place| Arc::ptr_eq(place, &connected.place)) {
            kept.places.remove(endpoint);
        }
    }

    fn kept(&self, generation: u64) -> MutexGuard<'_, Kept> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.generation != generation {
            *kept = Kept { generation, places: HashMap::new() };
        }
        kept
    }
}

/// A client of one member.
pub(crate) async fn connect(
    cluster: &Cluster,
    endpoint: &Endpoint,
    limit: Duration,
    without_leader: WithoutLeader,
) -> Result<Client, Failure> {
    let mut options = ConnectOptions::new()
        .with_connect_timeout(limit)
        .with_keep_alive(PING_INTERVAL, PING_LIMIT)
        .with_require_leader(without_leader == WithoutLeader::Refuse);
    if let Some(tls) = tls(cluster, endpoint) {
        options = options.with_tls(tls);
    }
    let scheme = if cluster.tls.is_some() { "https" } else { "http" };
    let url = match endpoint.ip {
        IpAddr::V4(ip) => format!("{scheme}://{ip}:{}", endpoint.port),
        IpAddr::V6(ip) => format!("{scheme}://[{ip}]:{}", endpoint.port),
    };
    let Some(login) = &cluster.login else {
        return bounded(limit, Client::connect([&url], Some(options))).await;
    };
    let with_login = options.clone().with_user(&login.user, &login.password);
    match bounded(limit, Client::connect([&url], Some(with_login))).await {
        Err(failure) if failure.reason.contains("authentication is not enabled") => {
            bounded(limit, Client::connect([&url], Some(options))).await
        }
        result => result,
    }
}

fn tls(cluster: &Cluster, endpoint: &Endpoint) -> Option<TlsOptions> {
    let tls = cluster.tls.as_ref()?;
    let authority = Certificate::from_pem(&tls.ca_pem);
    // The name in the address of an IPv6 endpoint has brackets, which no certificate has.
    let options = TlsOptions::new().ca_certificate(authority).domain_name(endpoint.ip.to_string());
    Some(match (&tls.certificate_pem, &tls.key_pem) {
        (Some(certificate), Some(key)) => options.identity(Identity::from_pem(certificate, key)),
        _ => options,
    })
}

/// One call, which ends in time.
pub(crate) async fn bounded<T>(limit: Duration, call: impl Future<Output = Result<T, Error>>) -> Result<T, Failure> {
    timeout(limit, call).await.map_err(|_| Failure::timed_out())?.map_err(Failure::from)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use rand::SeedableRng;

    use super::*;

    fn reach() -> Reach {
        let endpoint = |name| Endpoint::new(name, Ipv4Addr::LOCALHOST.into(), 1);
        Reach::new(Cluster { endpoints: vec![endpoint("one"), endpoint("two")], ..Cluster::default() })
    }

    #[test]
    fn careful_clients_avoid_a_member_that_failed() {
        let (reach, mut random) = (reach(), StdRng::seed_from_u64(1));
        reach.begin("one").failed();
        for _ in 0..50 {
            assert_eq!(reach.choose(&mut random, Manner::Careful, None).unwrap().name, "two");
        }
        assert!((0..50).any(|_| reach.choose(&mut random, Manner::Any, None).unwrap().name == "one"));
        reach.begin("two").failed();
        assert!((0..50).any(|_| reach.choose(&mut random, Manner::Careful, None).unwrap().name == "one"));
    }

    #[test]
    fn another_member_than_the_last_if_there_is_one() {
        let (reach, mut random) = (reach(), StdRng::seed_from_u64(1));
        for _ in 0..50 {
            assert_eq!(reach.choose(&mut random, Manner::Any, Some("two")).unwrap().name, "one");
        }
        reach.change(|cluster| cluster.endpoints.truncate(1));
        assert_eq!(reach.choose(&mut random, Manner::Any, Some("one")).unwrap().name, "one");
        reach.change(|cluster| cluster.endpoints.clear());
        assert_eq!(reach.choose(&mut random, Manner::Any, None), None);
    }
}
