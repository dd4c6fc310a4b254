//! What a restore makes: by itself, against what etcd's own tool makes of the same, and with servers of every minor version.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use etcd_client::{Client, CompactionOptions, ConnectOptions, PutOptions, Txn, TxnOp, UserAddOptions};
use etcdrun_lab::{etcd, etcd_tools, own_address};
use serde_json::Value;

use super::{
    bolt::{Pairs, testing::database},
    log::Message,
    *,
};

const TOKEN: &str = "prod-restored-1";

fn members() -> Vec<(String, String)> {
    ["a", "b", "c"].iter().zip(1..).map(|(name, at)| ((*name).to_owned(), format!("http://127.0.0.1:{at}"))).collect()
}

fn three() -> NewCluster {
    NewCluster::new(members(), TOKEN)
}

fn bolt(path: &Path) -> Bolt {
    Bolt::open(File::options().read(true).write(true).open(path).unwrap()).unwrap()
}

fn walked(path: &Path) -> u64 {
    let mut walk = Walk::default();
    walk.feed(&fs::read(path).unwrap());
    walk.end().unwrap()
}

fn pairs(entries: &[(&str, &[u8])]) -> Pairs {
    entries.iter().map(|(key, value)| (key.as_bytes().to_vec(), value.to_vec())).collect()
}

/// A database with these buckets beside its own.
fn with_buckets(path: &Path, buckets: &[(&str, Pairs)]) {
    fs::write(path, database(200)).unwrap();
    let mut bolt = bolt(path);
    buckets.iter().for_each(|(name, pairs)| bolt.replace(name, pairs).unwrap());
    bolt.commit().unwrap();
}

#[test]
fn alarms_and_a_downgrade_of_the_old_cluster_do_not_come_along() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let cluster =
        pairs(&[("clusterVersion", b"3.6.0"), ("downgrade", br#"{"target-version":"3.5.0","enabled":true}"#)]);
    with_buckets(&path, &[("alarm", pairs(&[("\u{8}\u{1}\u{10}\u{1}", b"")])), ("cluster", cluster)]);
    assert_eq!(bolt(&path).small_bucket("alarm").unwrap().len(), 1);
    adopt(&path, &three(), 1000, None).unwrap();
    let bolt = bolt(&path);
    assert!(bolt.small_bucket("alarm").unwrap().is_empty());
    assert_eq!(bolt.small_bucket("cluster").unwrap(), pairs(&[("clusterVersion", b"3.6.0")]));
    assert_eq!(bolt.small_bucket("members").unwrap().len(), 3);
    walked(&path);
}

#[test]
fn without_the_page_that_raises_revisions_they_are_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    with_buckets(&path, &[]);
    let before = bolt(&path).revision().unwrap();
    let adopted = adopt(&path, &three(), 1000, None).unwrap();
    assert_eq!((adopted.revision, bolt(&path).revision().unwrap()), (before + 1000, before + 1000));
    let mut bytes = fs::read(&path).unwrap();
    let at = usize::try_from(adopted.bump_at.unwrap()).unwrap();
    bytes[at..at + 80].fill(0);
    fs::write(&path, bytes).unwrap();
    let bolt = bolt(&path);
    assert_eq!(bolt.revision().unwrap(), before);
    assert!(!bolt.small_bucket("meta").unwrap().contains_key(&b"scheduledCompactRev"[..]));
    assert_eq!(bolt.small_bucket("members").unwrap().len(), 3, "it is the new cluster all the same");
}

#[test]
fn root_gets_the_password_that_is_kept_here_however_many_users_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let user = |name: &str| Message::default().bytes(1, name.as_bytes()).bytes(2, b"old").0;
    // More than a page holds; the bucket is one page of many for us, and a tree for etcd.
    let mut users: Pairs = (0..2000).map(|number| (format!("user-{number}").into_bytes(), user("user"))).collect();
    users.insert(b"root".to_vec(), user("root"));
    with_buckets(&path, &[("authUsers", users.clone())]);
    adopt(&path, &three(), 0, Some("new")).unwrap();
    users.insert(b"root".to_vec(), Message::default().bytes(1, b"root").bytes(2, b"new").0);
    assert!(bolt(&path).small_bucket("authUsers").unwrap() == users);
    walked(&path);
    // In a tree of several levels as well, and only where there is such a key.
    let key = 399_u64.to_be_bytes();
    let mut deep = bolt(&path);
    assert!(deep.change("key", &key, |_| Ok(b"changed".to_vec())).unwrap());
    assert!(!deep.change("key", b"nothing", |_| Ok(Vec::new())).unwrap());
    deep.commit().unwrap();
    assert_eq!(bolt(&path).small_bucket("key").unwrap()[&key[..]], b"changed");
    walked(&path);
}

/// A server without TLS on loopback, which ends with the test.
struct Server {
    child: Child,
    client: SocketAddr,
}

impl Server {
    fn start(minor: &str, data: &Path, peer: SocketAddr, more: &[&str]) -> Self {
        let own = own_address();
        let (client, peer) = (format!("http://{own}"), format!("http://{peer}"));
        let mut command = Command::new(etcd(minor).unwrap().path);
        command.args(["--data-dir", data.to_str().unwrap(), "--log-level", "error"]);
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]).args(more);
        let child = command.stdout(Stdio::null()).stderr(Stdio::inherit()).spawn().unwrap();
        Self { child, client: own }
    }

    fn alone(minor: &str, data: &Path) -> Self {
        let peer = own_address();
        Self::start(minor, data, peer, &["--name", "a", "--initial-cluster", &format!("a=http://{peer}")])
    }

    /// A client, once it serves.
    async fn client(&self, login: Option<(&str, &str)>) -> Client {
        let options = login.map(|(name, password)| ConnectOptions::new().with_user(name, password));
        let begun = Instant::now();
        loop {
            let client = Client::connect([self.client.to_string()], options.clone()).await;
            if let Ok(mut client) = client
                && client.get("health", None).await.is_ok()
            {
                return client;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "it does not serve");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Keys in a tree of at least three levels, leases, many users, and a compaction that may still be under way.
async fn fill(client: &mut Client) {
    const KEYS: usize = 20_000;
    let value = "v".repeat(200);
    let all: Vec<usize> = (0..KEYS).collect();
    for some in all.chunks(100) {
        let puts: Vec<TxnOp> =
            some.iter().map(|key| TxnOp::put(format!("key-{key:06}"), value.as_str(), None)).collect();
        client.txn(Txn::new().and_then(puts)).await.unwrap();
    }
    for lease in 1..20 {
        client.lease_grant(100_000, Some(etcd_client::LeaseGrantOptions::new().with_id(lease))).await.unwrap();
        client.put(format!("leased-{lease}"), "x", Some(PutOptions::new().with_lease(lease))).await.unwrap();
    }
    client.role_add("root").await.unwrap();
    client.user_add("root", "first", None).await.unwrap();
    client.user_grant_role("root", "root").await.unwrap();
    for user in 0..300 {
        client.user_add(format!("user-{user}"), "", Some(UserAddOptions::new().with_no_pwd())).await.unwrap();
    }
    for key in (0..KEYS).step_by(7) {
        client.delete(format!("key-{key:06}"), None).await.unwrap();
    }
    client.auth_enable().await.unwrap();
}

async fn save(client: &mut Client, path: &Path) -> (u32, i64) {
    let revision = client.get("health", None).await.unwrap().header().unwrap().revision();
    client.compact(revision - 100, Some(CompactionOptions::new())).await.unwrap();
    let mut stream = client.snapshot().await.unwrap();
    let mut bytes = Vec::new();
    while let Some(piece) = stream.message().await.unwrap() {
        bytes.extend(piece.blob());
    }
    fs::write(path, bytes).unwrap();
    crate::etcd::snapshot::verify(path).unwrap();
    (client.hash_kv(revision).await.unwrap().hash(), revision)
}

/// A snapshot of a server of that version, and what it says of its data.
async fn snapshot(minor: &str, folder: &Path) -> (PathBuf, (u32, i64)) {
    let path = folder.join("snapshot.db");
    let server = Server::alone(minor, &folder.join("old"));
    fill(&mut server.client(None).await).await;
    let hash = save(&mut server.client(Some(("root", "first"))).await, &path).await;
    (path, hash)
}

/// The data folder of a member, as this makes it of a snapshot.
fn make(snapshot: &Path, folder: &Path, cluster: &NewCluster, root: Option<&str>) {
    let files = cluster.files("a").unwrap();
    let database = folder.join(DATABASE);
    for (path, bytes) in [files.log, files.snapshot] {
        fs::create_dir_all(folder.join(&path).parent().unwrap()).unwrap();
        fs::write(folder.join(path), bytes).unwrap();
    }
    let bytes = fs::read(snapshot).unwrap();
    fs::write(&database, &bytes[..bytes.len() - 32]).unwrap();
    adopt(&database, cluster, 0, root).unwrap();
    walked(&database);
}

fn etcdutl(words: &[&str]) -> String {
    let output = Command::new(etcd_tools().unwrap().join("etcdutl")).args(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn files(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = ["member/wal", "member/snap"]
        .iter()
        .flat_map(|part| fs::read_dir(folder.join(part)).unwrap().map(move |entry| (part, entry.unwrap())))
        .map(|(part, entry)| format!("{part}/{}", entry.file_name().to_string_lossy()))
        .filter(|name| !name.ends_with(".tmp"))
        .collect();
    names.sort();
    names
}

/// The record of members that a raft snapshot holds. The tool leaves names to the servers, which tell them when they start, and keeps
/// a history of how it made the record, which nobody reads.
fn store_of(path: &Path) -> (Value, Value) {
    let bytes = fs::read(path).unwrap();
    let start = bytes.iter().position(|byte| *byte == b'{').unwrap();
    let mut values = serde_json::Deserializer::from_slice(&bytes[start..]).into_iter::<Value>();
    let mut store = values.next().unwrap().unwrap();
    let members = store["Root"]["Children"]["0"]["Children"]["members"]["Children"].as_object_mut().unwrap();
    for member in members.values_mut() {
        member["Children"].as_object_mut().unwrap().remove("attributes");
    }
    (store["CurrentIndex"].take(), store["Root"].take())
}

fn compare(ours: &Path, theirs: &Path) {
    assert_eq!(files(ours), files(theirs));
    for name in files(ours).iter().filter(|name| name.ends_with(".wal")) {
        let (ours, theirs) = (fs::read(ours.join(name)).unwrap(), fs::read(theirs.join(name)).unwrap());
        assert!(theirs.starts_with(&ours), "{name}: the same records, with the same sums");
        assert!(theirs[ours.len()..].iter().all(|byte| *byte == 0), "{name}: and no others");
    }
    for name in files(ours).iter().filter(|name| name.ends_with(".snap")) {
        assert_eq!(store_of(&ours.join(name)), store_of(&theirs.join(name)), "{name}");
        let (ours, theirs) = (fs::read(ours.join(name)).unwrap(), fs::read(theirs.join(name)).unwrap());
        // What is around the record: who votes, the index and the term.
        assert_eq!(ours[ours.len() - 40..], theirs[theirs.len() - 40..], "{name}");
    }
    let (ours, theirs) = (bolt(&ours.join(DATABASE)), bolt(&theirs.join(DATABASE)));
    assert_eq!(ours.names(), theirs.names());
    for name in ours.names() {
        let (mut own, mut other) = (ours.small_bucket(&name).unwrap(), theirs.small_bucket(&name).unwrap());
        if name == "meta" {
            // The tool leaves the voters of the old cluster there.
            let state = own.remove(&b"confState"[..]);
            assert_eq!(state.is_some(), other.remove(&b"confState"[..]).is_some());
            let voters = state.map(|state| serde_json::from_slice::<Value>(&state).unwrap()["voters"].clone());
            assert!(voters.is_none_or(|voters| voters == serde_json::json!(three().ids())));
        }
        let keys = |pairs: &Pairs| pairs.keys().map(|key| key.escape_ascii().to_string()).collect::<Vec<_>>();
        assert_eq!(keys(&own), keys(&other), "{name}");
        assert!(own == other, "{name}: {:?}", own.iter().find(|(key, value)| other.get(*key) != Some(value)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn etcdutl_makes_the_same_of_the_same_snapshot() {
    for minor in ["3.4", "3.5", "3.6", "3.7"] {
        let folder = tempfile::tempdir().unwrap();
        let (snapshot, _) = snapshot(minor, folder.path()).await;
        let (ours, theirs) = (folder.path().join("ours"), folder.path().join("theirs"));
        make(&snapshot, &ours, &three(), None);
        let peers: Vec<String> = members().iter().map(|(name, url)| format!("{name}={url}")).collect();
        let (path, dir) = (snapshot.to_str().unwrap(), theirs.to_str().unwrap());
        let places = ["--data-dir", dir, "--initial-advertise-peer-urls", &members()[0].1];
        let names = ["--name", "a", "--initial-cluster", &peers.join(","), "--initial-cluster-token", TOKEN];
        etcdutl(&[&["snapshot", "restore", path], &places[..], &names[..]].concat());
        compare(&ours, &theirs);
        // Its own check of every page, and what it reads.
        let status = |folder: &Path| -> Value {
            let path = folder.join(DATABASE);
            let said = etcdutl(&["snapshot", "status", path.to_str().unwrap(), "--write-out", "json"]);
            serde_json::from_str(&said).unwrap()
        };
        let (own, other) = (status(&ours), status(&theirs));
        assert_eq!((&own["revision"], &own["totalKey"]), (&other["revision"], &other["totalKey"]), "{minor}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_start_on_it_restart_and_send_it_to_a_learner() {
    for (from, to) in [("3.4", "3.4"), ("3.4", "3.5"), ("3.5", "3.6"), ("3.6", "3.7"), ("3.7", "3.7")] {
        let folder = tempfile::tempdir().unwrap();
        let (snapshot, (hash, revision)) = snapshot(from, folder.path()).await;
        let (data, peer) = (folder.path().join("new"), own_address());
        let cluster = NewCluster::new([("a".to_owned(), format!("http://{peer}"))], TOKEN);
        // Root has another password by now.
        make(&snapshot, &data, &cluster, Some(&password_hash("second").unwrap()));
        let login = Some(("root", "second"));
        for _ in 0..2 {
            let server = Server::start(to, &data, peer, &["--name", "a"]);
            let mut client = server.client(login).await;
            let found = client.hash_kv(revision).await.unwrap();
            assert_eq!(found.hash(), hash, "{from} -> {to}");
            assert_eq!(client.user_list().await.unwrap().users().len(), 301);
            assert_eq!(client.leases().await.unwrap().leases().len(), 19);
            client.put("later", "there", None).await.unwrap();
        }
        let server = Server::start(to, &data, peer, &["--name", "a"]);
        let mut client = server.client(login).await;
        let other = own_address();
        let url = format!("http://{other}");
        let options = etcd_client::MemberAddOptions::new().with_is_learner();
        let added = client.member_add([url.as_str()], Some(options)).await.unwrap();
        let all = format!("a=http://{peer},b={url}");
        let words = ["--name", "b", "--initial-cluster", &all, "--initial-cluster-state", "existing"];
        let _learner = Server::start(to, &folder.path().join("learner"), other, &words);
        let begun = Instant::now();
        while client.member_promote(added.member().unwrap().id()).await.is_err() {
            assert!(begun.elapsed() < Duration::from_secs(60), "{from} -> {to}: it does not catch up");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let received = fs::metadata(folder.path().join("learner/member/snap/db")).unwrap().len();
        assert!(received > 1 << 20, "{from} -> {to}: {received}");
    }
}

/// As a restore tries it out on one member, before the others have it: with the revisions of the backup, and without the others.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_apart_has_what_the_backup_says() {
    for minor in ["3.4", "3.5", "3.6", "3.7"] {
        let folder = tempfile::tempdir().unwrap();
        let (snapshot, (hash, revision)) = snapshot(minor, folder.path()).await;
        let data = folder.path().join("apart");
        make(&snapshot, &data, &three(), Some(&password_hash("second").unwrap()));
        let database = data.join(DATABASE);
        let adopted = adopt(&database, &three(), 1_000_000_000, None).unwrap();
        walked(&database);
        let mut bytes = fs::read(&database).unwrap();
        let at = usize::try_from(adopted.bump_at.unwrap()).unwrap();
        bytes[at..at + 80].fill(0);
        fs::write(&database, bytes).unwrap();
        let server = Server::start(minor, &data, own_address(), &["--name", "a", "--force-new-cluster"]);
        let mut client = server.client(Some(("root", "second"))).await;
        assert_eq!(client.hash_kv(revision).await.unwrap().hash(), hash, "{minor}");
        assert_eq!(client.member_list().await.unwrap().members().len(), 1, "{minor}");
    }
}

#[test]
fn ids_follow_from_addresses_and_token() {
    let cluster = three();
    assert!(cluster.members.windows(2).all(|pair| pair[0].id < pair[1].id));
    assert_ne!(cluster.id, NewCluster::new(members(), "another").id);
}
