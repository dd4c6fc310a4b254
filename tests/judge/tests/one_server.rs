//! The judge of a real server, which dies once meanwhile.

use std::{
    fs::File,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::Duration,
};

use anyhow::{Context, Result};
use etcdrun_judge::{Cluster, Endpoint, Judge, Outcome, Settings, ViolationKind, check, hash_kv, hashes_agree, load};
use etcdrun_lab::wait;

/// A server that ends with this.
struct Server {
    process: Child,
    program: PathBuf,
    folder: PathBuf,
    client: SocketAddr,
    peer: SocketAddr,
}

impl Server {
    fn start(folder: &Path) -> Result<Self> {
        let program = etcdrun_lab::etcd("3.6")?.path;
        let (client, peer) = (etcdrun_lab::own_address(), etcdrun_lab::own_address());
        let process = spawn(&program, folder, client, peer)?;
        let server = Self { process, program, folder: folder.to_owned(), client, peer };
        server.wait()?;
        Ok(server)
    }

    /// As if the power failed.
    fn kill(&mut self) -> Result<()> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }

    fn restart(&mut self) -> Result<()> {
        self.process = spawn(&self.program, &self.folder, self.client, self.peer)?;
        self.wait()
    }

    fn wait(&self) -> Result<()> {
        wait::until("etcd listens", Duration::from_secs(30), || Ok(TcpStream::connect(self.client).ok()))?;
        Ok(())
    }

    fn revision(&self) -> Option<i64> {
        Some(hash_kv(&self.cluster(), None).ok()?.first()?.hash.as_ref().ok()?.revision)
    }

    /// Until there are so many more writes.
    fn wait_for_writes(&self, count: i64) -> Result<()> {
        let limit = Duration::from_secs(60);
        let first = wait::until("etcd answers", limit, || Ok(self.revision()))?;
        wait::until("there are writes", limit, || Ok(self.revision().filter(|now| *now > first + count)))?;
        Ok(())
    }

    /// Writes something, and forgets all that is older.
    fn compact(&self) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut client = etcd_client::Client::connect([self.client.to_string()], None).await?;
            let mut revision = 0;
            for _ in 0..3 {
                revision = client.put("something", "else", None).await?.header().map_or(0, |header| header.revision());
            }
            client.compact(revision, None).await?;
            Ok(())
        })
    }

    /// A learner that never starts joins, and is removed again. Both are seen in the history.
    fn have_a_learner(&self, history: &Path) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let options = etcd_client::MemberAddOptions::new().with_is_learner();
        let id = runtime.block_on(async {
            let mut client = etcd_client::Client::connect([self.client.to_string()], None).await?;
            let added = client.member_add([format!("http://{}", etcdrun_lab::own_address())], Some(options)).await?;
            added.member().map(etcd_client::Member::id).context("the answer has no member")
        })?;
        wait_for_list(history, 2)?;
        runtime.block_on(async {
            let mut client = etcd_client::Client::connect([self.client.to_string()], None).await?;
            client.member_remove(id).await
        })?;
        wait_for_list(history, 1)
    }

    fn cluster(&self) -> Cluster {
        let endpoint = Endpoint::new("one", self.client.ip(), self.client.port());
        Cluster { endpoints: vec![endpoint], ..Cluster::default() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn spawn(program: &Path, folder: &Path, client: SocketAddr, peer: SocketAddr) -> Result<Child> {
    let log = File::options().create(true).append(true).open(folder.join("etcd.log"))?;
    let (client, peer) = (format!("http://{client}"), format!("http://{peer}"));
    let mut server = Command::new(program);
    server.arg("--data-dir").arg(folder.join("data")).args(["--name", "one"]);
    server.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    server.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    server.args(["--initial-cluster", &format!("one={peer}")]);
    Ok(server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()?)
}

/// Until the last list of the history has so many members.
fn wait_for_list(history: &Path, count: usize) -> Result<()> {
    wait::until("the list is recorded", Duration::from_secs(60), || {
        // Before it is written for the first time, the file is empty.
        let last = load(history).ok().and_then(|mut history| history.members.pop());
        Ok(last.filter(|list| list.members.len() == count).map(drop))
    })
}

fn settings() -> Settings {
    Settings { seed: 7, rate: 80.0, lease_ttl: Duration::from_secs(2), ..Settings::default() }
}

#[test]
fn a_server_that_dies_keeps_its_promises() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path()).unwrap();
    let history = folder.path().join("history");
    let judge = Judge::start(server.cluster(), settings(), &history).unwrap();
    server.wait_for_writes(250).unwrap();
    server.kill().unwrap();
    sleep(Duration::from_secs(2));
    server.restart().unwrap();
    server.wait_for_writes(250).unwrap();
    let gaps = judge.gaps();
    judge.stop().unwrap();

    let mut history = load(&history).unwrap();
    let verdict = check(&history);
    println!("{}", serde_json::to_string_pretty(&verdict.figures).unwrap());
    let sentences: Vec<&String> = verdict.violations.iter().map(|violation| &violation.sentence).collect();
    assert!(verdict.violations.is_empty(), "{sentences:#?}");
    let figures = &verdict.figures;
    assert!(figures.complete, "{figures:?}");
    assert!(figures.acknowledged > 300, "{figures:?}");
    assert!(figures.unknown > 0, "{figures:?}");
    assert!(figures.events_expected > 300 && figures.events.len() == 2, "{figures:?}");
    assert!(figures.leases.granted > 0 && figures.leases.reads_while_kept > 0, "{figures:?}");
    for operations in ["get", "put", "compare-and-swap", "delete"] {
        assert!(figures.operations[operations].acknowledged > 10, "{figures:?}");
    }
    assert!(figures.member_samples > 10, "{figures:?}");
    assert_eq!((figures.member_changes, history.members.len()), (0, 1), "{:?}", history.members);
    let longest = gaps.longest.unwrap();
    assert!(longest.has_ended && longest.length() > Duration::from_secs(2), "{gaps:?}");
    assert!(figures.gaps.list.contains(&longest), "{gaps:?}");

    // A lie in one answer, to see that it would have been noticed.
    let read = history.operations.iter_mut().rev().find(|operation| {
        let kept = operation.seen().is_some_and(|version| version.mod_revision < figures.highest_revision);
        kept && !operation.request.kind.is_write()
    });
    let Outcome::Acknowledged(answer) = &mut read.unwrap().outcome else { panic!("it was acknowledged") };
    answer.seen.as_mut().unwrap().value.push_str("-not");
    let kinds: Vec<ViolationKind> = check(&history).violations.iter().map(|violation| violation.kind).collect();
    assert!(kinds.contains(&ViolationKind::NotLinearizable), "{kinds:?}");
    assert!(kinds.contains(&ViolationKind::ValueNobodyWrote), "{kinds:?}");
}

#[test]
fn clients_pause_and_begin_an_epoch() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path()).unwrap();
    // A lease would expire in the pause, which is a write.
    let settings = Settings { lease_clients: 0, ..settings() };
    let history = folder.path().join("history");
    let judge = Judge::start(server.cluster(), settings, &history).unwrap();
    server.wait_for_writes(50).unwrap();
    wait_for_list(&history, 1).unwrap();
    server.have_a_learner(&history).unwrap();
    judge.pause().unwrap();
    let paused = server.revision();
    sleep(Duration::from_secs(2));
    assert_eq!(server.revision(), paused, "somebody wrote in a pause");
    server.compact().unwrap();
    judge.resume();
    server.wait_for_writes(50).unwrap();
    judge.new_epoch("nothing was replaced, but it could have been").unwrap();
    judge.resume();
    server.wait_for_writes(50).unwrap();
    hashes_agree(&server.cluster(), Duration::from_secs(5)).unwrap();
    // Nobody listens at the second endpoint.
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let gone = Endpoint::new("gone", Ipv4Addr::LOCALHOST.into(), port);
    judge.now_members(server.cluster().endpoints.into_iter().chain([gone]).collect());
    server.wait_for_writes(50).unwrap();
    let mut history = judge.stop().unwrap();

    let verdict = check(&history);
    let sentences: Vec<&String> = verdict.violations.iter().map(|violation| &violation.sentence).collect();
    assert!(verdict.violations.is_empty(), "{sentences:#?}");
    assert!(verdict.figures.complete && verdict.figures.unknown > 0, "{:?}", verdict.figures);
    assert_eq!(verdict.figures.compacted, 2, "{:?}", verdict.figures);
    // The end is one, too.
    assert_eq!((verdict.figures.epochs, history.pauses.len()), (2, 3));
    assert!(history.operations.iter().any(|operation| operation.request.epoch == 1));
    let [first, with_learner, without, again] = &history.members[..] else { panic!("{:?}", history.members) };
    assert_eq!((verdict.figures.member_changes, first.epoch, again.epoch), (2, 0, 1));
    assert_eq!((&first.members, first.previous), (&again.members, again.previous));
    assert_eq!((&first.members, first.members.len()), (&without.members, 1));
    assert_eq!((first.members[0].name.as_str(), first.members[0].is_learner), ("one", false));
    assert_eq!(first.members[0].peer_urls, [format!("http://{}", server.peer)]);
    assert_eq!(with_learner.members.iter().filter(|member| member.is_learner).count(), 1);

    // Had it been no learner, that would have been noticed.
    let list = &mut history.members[1];
    list.previous = Some(list.called);
    list.members.iter_mut().for_each(|member| member.is_learner = false);
    let kinds: Vec<ViolationKind> = check(&history).violations.iter().map(|violation| violation.kind).collect();
    assert_eq!(kinds, [ViolationKind::VoterWasNoLearner]);
}
