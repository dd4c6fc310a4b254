//! What the hosts of a cluster's members tell of themselves, by SSH: what etcd's own API does not know.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;

use super::{ActionContext, cluster_args::Member};
use crate::{
    model::{Outcome, Value},
    remote::{Payload, Session},
};
use etcdrun_etcd::etcd::{
    observe::Observation,
    rules::{HostSeen, ReleaseSeen, Room},
};

const LIMIT: Duration = Duration::from_secs(15);
/// Neighbours know sooner whether somebody is there.
const NEIGHBOUR_LIMIT: Duration = Duration::from_secs(5);
/// A clock that is read less exactly than that is read again, once.
const EXACT: u64 = 250;
/// Beside the data, for what is written meanwhile; the log has its next piece laid out already.
const SPARE: u64 = 16 << 20;

/// What is asked of each host.
#[derive(Clone, Copy, Debug)]
pub struct Questions<'a> {
    pub data_dir: &'a str,
    pub client_port: u16,
    /// The server that is to run next, its checksum in the catalogue, and its size where it has still to come.
    pub server: Option<Server<'a>>,
    /// The member it is to run on: the others need not read theirs, which keeps a processor busy beside etcd.
    pub target: Option<&'a str>,
}

#[derive(Clone, Copy, Debug)]
pub struct Server<'a> {
    pub path: &'a str,
    pub sha256: &'a str,
    pub size: u64,
}

/// A member's name and address, and the way to its host.
pub struct Way {
    pub name: String,
    pub ip: String,
    pub session: Option<Session>,
}

/// The ways to the members' hosts, from an action.
pub(super) fn ways(context: &ActionContext, members: &[Member]) -> Vec<Way> {
    let way = |member: &Member| Way {
        name: member.name.clone(),
        ip: member.ip.clone(),
        session: context.reach.session(&member.name, &context.session),
    };
    members.iter().map(way).collect()
}

/// Looks at every host at once. `observation` tells how large the data is.
pub async fn see_hosts(ways: &[Way], questions: Questions<'_>, observation: &Observation) -> Vec<HostSeen> {
    let mut hosts = join_all(ways.iter().map(|way| see_host(way, questions, observation))).await;
    for index in 0..hosts.len() {
        if hosts[index].unreachable.is_some() {
            let helpers = ways.iter().zip(&hosts).filter(|(_, host)| host.unreachable.is_none());
            let helpers: Vec<&Session> = helpers.filter_map(|(way, _)| way.session.as_ref()).collect();
            let member = observation.list().iter().find(|member| member.name == ways[index].name);
            let peers = member.into_iter().flat_map(|member| &member.peer_urls).filter_map(|url| host_and_port(url));
            // A firewall may let members through to the peer port alone.
            let ports = std::iter::once((ways[index].ip.as_str(), questions.client_port)).chain(peers);
            hosts[index].answers_others = answers_others(&helpers, &ports.collect::<Vec<_>>()).await;
        }
    }
    if let Some(target) = questions.target {
        let reachable = |name: &str| {
            let mut both = ways.iter().zip(&hosts);
            let found = both.find(|(way, host)| way.name == name && host.unreachable.is_none());
            found.and_then(|(way, _)| way.session.as_ref())
        };
        let asked = ways.iter().map(|way| unreached(&way.name, target, observation, reachable));
        let cut = join_all(asked).await;
        hosts.iter_mut().zip(cut).for_each(|(host, cut)| host.unreached = cut);
    }
    hosts
}

/// Whose peer port this host cannot open a connection to: of the target that of all others, of the others that of the target. Old
/// connections serve for as long as both servers run. Where the other cannot reach itself either, nothing listens, and that is the
/// business of other rules.
async fn unreached<'w>(
    from: &str,
    target: &str,
    observation: &Observation,
    session: impl Fn(&str) -> Option<&'w Session>,
) -> Vec<String> {
    let Some(own) = session(from) else { return Vec::new() };
    let others = observation.views().map(|(name, _)| name).filter(|name| *name != from);
    let others = others.filter(|name| from == target || *name == target);
    let ask = async |name: &str| {
        let other = session(name)?;
        let urls = observation.list().iter().find(|member| member.name == name)?.peer_urls.clone();
        for (host, port) in urls.iter().filter_map(|url| host_and_port(url)) {
            if own.reaches(host, port, NEIGHBOUR_LIMIT).await == Some(false)
                && other.reaches(host, port, NEIGHBOUR_LIMIT).await == Some(true)
            {
                return Some(name.to_owned());
            }
        }
        None
    };
    join_all(others.map(ask)).await.into_iter().flatten().collect()
}

/// Of a URL like https://10.0.0.1:2380 or https://[fd00::1]:2380.
fn host_and_port(url: &str) -> Option<(&str, u16)> {
    let (host, port) = url.split_once("://")?.1.trim_end_matches('/').rsplit_once(':')?;
    Some((host.trim_matches(['[', ']']), port.parse().ok()?))
}

/// Whether something listens at one of these, as the other hosts see it; nothing if there is no other host.
async fn answers_others(helpers: &[&Session], ports: &[(&str, u16)]) -> Option<bool> {
    let ask = async |session: &Session, (ip, port): (&str, u16)| {
        let opened = tokio::time::timeout(NEIGHBOUR_LIMIT, session.open_tcp(ip, port)).await;
        matches!(opened, Ok(Ok(_)))
    };
    let asked = helpers.iter().flat_map(|session| ports.iter().map(|port| ask(session, *port)));
    let answers = join_all(asked).await;
    (!answers.is_empty()).then(|| answers.into_iter().any(|answer| answer))
}

async fn see_host(way: &Way, questions: Questions<'_>, observation: &Observation) -> HostSeen {
    let seen = HostSeen { name: way.name.clone(), ..HostSeen::default() };
    let Some(session) = &way.session else {
        return HostSeen { unreachable: Some("it is not in the inventory".into()), ..seen };
    };
    let is_meant = questions.target.is_none_or(|target| target == way.name);
    let questions = Questions { server: questions.server.filter(|_| is_meant), ..questions };
    let mut best: Option<(Outcome, Option<(i64, u64)>)> = None;
    for _ in 0..2 {
        let (outcome, clock) = match ask(session, questions).await {
            Ok(answer) => answer,
            Err(why) => return HostSeen { unreachable: Some(why), ..seen },
        };
        let is_exact = clock.is_none_or(|(_, off)| off <= EXACT);
        if best.as_ref().is_none_or(|(_, before)| clock.map(|clock| clock.1) < before.map(|before| before.1)) {
            best = Some((outcome, clock));
        }
        if is_exact {
            break;
        }
    }
    match best {
        Some((outcome, clock)) => told(seen, &outcome, clock, questions, observation),
        None => seen,
    }
}

/// What the host says, and how far its clock is ahead of ours.
async fn ask(session: &Session, questions: Questions<'_>) -> Result<(Outcome, Option<(i64, u64)>), String> {
    let payload = Payload::new(concat!(include_str!("peers.sh"), include_str!("hosts.sh")))
        .value("data_dir", questions.data_dir)
        .value("server", questions.server.map_or("", |server| server.path));
    let start = milliseconds();
    let outcome = match tokio::time::timeout(LIMIT, session.run_one(payload, false)).await {
        Ok(Ok(outcome)) if outcome.failed => return Err(outcome.msg),
        Ok(Ok(outcome)) => outcome,
        Ok(Err(error)) => return Err(error.to_string()),
        Err(_) => return Err(format!("no answer within {LIMIT:?}")),
    };
    let end = milliseconds();
    let clock = number(&outcome, "clock").map(|nanoseconds| {
        let coarse = if outcome.data.contains_key("coarse") { 1000 } else { 0 };
        let there = i64::try_from(nanoseconds / 1_000_000).unwrap_or(i64::MAX);
        (there - (start + end) / 2, (end - start).unsigned_abs() / 2 + coarse)
    });
    Ok((outcome, clock))
}

fn told(
    seen: HostSeen,
    outcome: &Outcome,
    clock: Option<(i64, u64)>,
    questions: Questions<'_>,
    observation: &Observation,
) -> HostSeen {
    let text = |name: &str| outcome.data.get(name).and_then(Value::as_str);
    let in_use = observation.view(&seen.name).map_or(0, |view| view.db_in_use);
    let mut rooms = Vec::new();
    if let Some(free) = number(outcome, "data_free") {
        let what = "a defragmentation".to_owned();
        rooms.push(Room { path: questions.data_dir.into(), free: free * 1024, needed: in_use + SPARE, what });
    }
    if let (Some(free), Some(server), None) = (number(outcome, "server_free"), questions.server, text("sha256")) {
        let what = "the new etcd binary".to_owned();
        rooms.push(Room { path: server.path.into(), free: free * 1024, needed: server.size, what });
    }
    let release = questions.server.map(|server| ReleaseSeen {
        path: server.path.to_owned(),
        sha256: text("sha256").map(str::to_owned),
        wanted: server.sha256.to_owned(),
    });
    let strict_reconfig = text("strict").map(|word| word == "yes");
    let next_peers = text("next_peers").map(|urls| urls.split(',').map(str::to_owned).collect());
    let is_stopped = outcome.data.get("stopped").and_then(Value::as_bool) == Some(true);
    let client_urls = text("client_urls").map(|urls| urls.split(',').map(str::to_owned).collect()).unwrap_or_default();
    HostSeen { clock, rooms, release, strict_reconfig, is_stopped, next_peers, client_urls, ..seen }
}

fn number(outcome: &Outcome, name: &str) -> Option<u64> {
    outcome.data.get(name).and_then(Value::as_str).and_then(|text| text.trim().parse().ok())
}

fn milliseconds() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_urls_have_a_host_and_a_port() {
        assert_eq!(host_and_port("https://10.0.0.1:2380"), Some(("10.0.0.1", 2380)));
        assert_eq!(host_and_port("https://[fd00::1]:12380/"), Some(("fd00::1", 12380)));
        assert_eq!(host_and_port("http://etcd-1.example.org:2380"), Some(("etcd-1.example.org", 2380)));
        assert_eq!(host_and_port("unix://etcd"), None);
    }
}
