//! `etcd_restore`: makes of a backup a new cluster, step by step.

use std::{
    fs::{self, DirBuilder, File},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, ResultField, Running,
    backup::{failed, hash},
    cluster_args::{Cluster, ClusterArgs, WHOLE_CLUSTER},
    elsewhere::elsewhere,
    pulse::pulse,
};
use crate::{
    backup::{self, BackupError, Hash, Keys, Manifest, Place, Store, Trust, Trusted, backups, newest, unpack},
    digest::{Sha256, hex},
    inventory::sections::BackupSection,
    model::{ByteSize, Effects, Outcome, Resource, Value},
    remote::Payload,
};
use etcdrun_base::mutant::{is_off, repair};
use etcdrun_etcd::{
    etcd::UNIT,
    etcd::{
        ClusterRecord, EtcdError, MemberClient, Phase,
        observe::observe,
        restore::{self, Files, NewCluster},
        snapshot,
    },
};

/// Restores a backup as the data of a new cluster, one step per task.
///
/// Every member gets the same data, with a new token, so that no member of an old cluster can join, and with a revision beyond
/// any that clients have seen. Old data is moved aside. `playbooks/restore.yaml` has the steps in their order.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EtcdRestore {
    /// The step.
    state: RestoreState,
    #[serde(default)]
    cluster: ClusterArgs,
    /// The cluster's section `backup`.
    #[serde(default)]
    backup: BackupSection,
    /// The peer port.
    #[serde(default = "super::peer_port")]
    peer_port: u16,
    /// The data directory.
    #[serde(default = "super::data_dir")]
    pub(super) data_dir: String,
    /// The owner of the data.
    #[serde(default = "user")]
    pub(super) user: String,
    /// The member.
    #[serde(default)]
    pub(super) name: Option<String>,
    /// `file:DIRECTORY`, `s3:BUCKET/PREFIX`, or `file:` and a snapshot of `etcdctl snapshot save`.
    #[serde(default)]
    from: Option<String>,
    /// Use the newest backup at or before this time.
    #[serde(default)]
    at: Option<String>,
    /// Use the backup with this name.
    #[serde(default)]
    which: Option<String>,
    /// The cluster of the backup, if it is another one.
    #[serde(default)]
    backup_of: Option<String>,
    /// Add this to the revision and mark everything before it compacted; 0 keeps the revisions.
    #[serde(default = "bump")]
    bump_revision: u64,
    /// The version that the members run.
    #[serde(default)]
    version: Option<String>,
    /// Whether a cluster that serves may be replaced.
    #[serde(default)]
    force: bool,
    /// Whether to accept a backup that was not signed with a known key.
    #[serde(default)]
    unauthenticated: bool,
    /// The token that `prepared` has returned.
    #[serde(default)]
    token: Option<String>,
    /// The file with the settings of etcd, for `started` and a drill.
    #[serde(default)]
    pub(super) environment: Option<String>,
    /// For `started`: a file that the unit reads after `environment`, for the first start. All members have the same data and start
    /// together, so it switches off the comparison in which each waits 7 s for every other.
    #[serde(default)]
    first_start: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum RestoreState {
    /// The backup is found, read completely, and turned into the data of a new cluster, on the operator's workstation.
    Prepared,
    /// An isolated etcd on the target has served the data of the backup; it was removed again.
    Proved,
    /// The data is on the member, next to its current data.
    Placed,
    /// The ID of the new cluster is recorded.
    Recorded,
    /// etcd is stopped, the old data is moved aside, and the new data is in place.
    Switched,
    /// etcd is started.
    Started,
    /// All members have the same hash.
    Compared,
    /// A drill: an isolated etcd on the target has served the data of the backup; it was removed again.
    Drilled,
}

fn user() -> String {
    "etcd".into()
}

/// More than any cluster writes between a backup and its loss.
fn bump() -> u64 {
    1_000_000_000
}

impl Module for EtcdRestore {
    const NAME: &'static str = "etcd_restore";
    const CLUSTER: &'static [crate::task::ClusterKey] = WHOLE_CLUSTER;
    const EXAMPLE: &'static str = "\
- name: Take a backup
  etcd_restore:
    state: prepared
    from: s3:backups/etcd
  once_per: cluster
  register: restore
";
    const RESULT: &'static [ResultField] = &[
        ResultField { name: "token", doc: "What tells the new cluster from others; later steps want it." },
        ResultField { name: "cluster_id", doc: "The id of the new cluster, in hexadecimal." },
        ResultField { name: "revision", doc: "The revision that it starts with." },
        ResultField { name: "which", doc: "The backup." },
        ResultField { name: "aside", doc: "Where the old data is now." },
    ];

    fn effects(&self) -> Effects {
        match self.state {
            RestoreState::Prepared | RestoreState::Recorded => Effects { here: true, ..Effects::converging() },
            RestoreState::Compared => Effects::read_only(),
            RestoreState::Placed => Effects::converging().writing([Resource::tree(&self.data_dir)]),
            RestoreState::Proved => Effects::converging(),
            RestoreState::Drilled => Effects { here: true, ..Effects::converging() },
            // Whether the cluster may go is asked by the step itself; whether it can spare a member is not the question.
            RestoreState::Switched | RestoreState::Started => {
                Effects::converging().writing([Resource::tree(&self.data_dir), Resource::Unit(UNIT.into())])
            }
        }
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        let cluster = self.cluster.known()?;
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
        if self.token.as_deref().is_some_and(|token| token.is_empty() || !is_plain(token)) {
            return Err(ModuleError::new("`token` needs the token of the state `prepared`"));
        }
        if !self.data_dir.starts_with('/') || self.data_dir.len() < 2 {
            return Err(ModuleError::new(format!("`{}` is not an absolute path", self.data_dir)));
        }
        let at = self.at.as_deref().map(time).transpose()?;
        Ok(Action::Engine(Box::new(Restore { cluster, at, module: self })))
    }
}

/// A time with its zone, or one of the universal time.
pub fn time(text: &str) -> Result<Timestamp, ModuleError> {
    let civil = || text.parse::<jiff::civil::DateTime>().ok()?.to_zoned(jiff::tz::TimeZone::UTC).ok();
    let found = text.parse::<Timestamp>().ok().or_else(|| civil().map(|zoned| zoned.timestamp()));
    found
        .ok_or_else(|| ModuleError::new(format!("`{text}` is not a timestamp; expected one like 2026-11-15T12:00:00Z")))
}

pub(super) struct Restore {
    pub(super) module: EtcdRestore,
    pub(super) cluster: Cluster,
    at: Option<Timestamp>,
}

const LOOK: Duration = Duration::from_secs(5);
const DRILL_SPARE: u64 = 192 << 20;

/// What `prepared` leaves beside the database for the steps behind it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Prepared {
    pub(super) token: String,
    pub(super) sha256: String,
    pub(super) size: u64,
    pub(super) revision: i64,
    /// What etcd calculated of the same data when the backup was taken, where revisions stay as they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) expected: Option<Hash>,
    /// What etcd calculated then, whatever becomes of revisions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) taken: Option<Hash>,
    /// Where in the database the page is without which revisions are as they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) bump_at: Option<u64>,
}

impl Prepared {
    const FILE: &str = "prepared.json";

    pub(super) fn of(folder: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&fs::read(folder.join(Self::FILE))?)?)
    }

    fn keep(&self, folder: &Path) -> io::Result<()> {
        fs::write(folder.join(Self::FILE), serde_json::to_vec(self)?)
    }
}

impl EngineAction for Restore {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            match self.module.state {
                RestoreState::Prepared => self.prepare(context).await,
                RestoreState::Proved => self.prove(context).await,
                RestoreState::Placed => self.place(context).await,
                RestoreState::Recorded => self.record(context).await,
                RestoreState::Switched => self.switch(context).await,
                RestoreState::Started => self.on_member(context, "start").await,
                RestoreState::Compared => self.compare(context).await,
                RestoreState::Drilled => self.drill(context).await,
            }
        })
    }
}

/// A backup, or a snapshot that some other tool has saved.
pub(super) enum Source {
    Backup(Box<(Store, Trusted)>),
    File(PathBuf),
}

impl Restore {
    pub(super) fn new_cluster(&self, token: &str) -> NewCluster {
        let peers =
            self.cluster.members.iter().map(|member| (member.name.clone(), member.peer_url(self.module.peer_port)));
        NewCluster::new(peers, token)
    }

    pub(super) fn token(&self) -> Result<&str, ActionError> {
        self.module.token.as_deref().ok_or_else(|| ActionError::Failed("`token` is not set".into()))
    }

    async fn prepare(&self, context: &ActionContext) -> Result<Outcome, ActionError> {
        let cluster = &self.cluster.name;
        let source = self.find(context).await?;
        let described = source.describe();
        if let Some(refusal) = self.refusal(context).await? {
            return Ok(refusal);
        }
        if context.check_mode() {
            let msg = format!("would restore {described}");
            return Ok(Outcome { msg, ..Outcome::changed() }.with("token", "not-known-yet").with("which", described));
        }
        context.permit()?;
        let token = format!("{cluster}-restored-{:016x}", rand::random::<u64>());
        let folder = folder(&context.state, &token);
        let io_failed = |error: io::Error| ActionError::Failed(format!("cannot write {}: {error}", folder.display()));
        let beginnings = [format!("{cluster}-restored-"), format!("{cluster}-drill-")];
        forget_others(&context.state, &beginnings).map_err(io_failed)?;
        DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(io_failed)?;
        let new = self.new_cluster(&token);
        let made = self.make(context, &source, &folder, &new).await;
        if made.is_err() {
            // A broken one is of no use, and it holds what somebody may have wanted encrypted.
            let _ = fs::remove_dir_all(&folder);
        }
        let prepared = Prepared { token: token.clone(), ..made? };
        let (size, revision) = (prepared.size, prepared.revision);
        prepared.keep(&folder).map_err(io_failed)?;
        let msg = format!("{described}, {}; it starts with revision {revision}", ByteSize(size));
        Ok(Outcome { msg, ..Outcome::changed() }
            .with("token", token)
            .with("cluster_id", format!("{:x}", new.id))
            .with("revision", revision)
            .with("which", described))
    }

    /// The database of the new cluster, and what is known of it.
    pub(super) async fn make(
        &self,
        context: &ActionContext,
        source: &Source,
        folder: &Path,
        new: &NewCluster,
    ) -> Result<Prepared, ActionError> {
        let root = self.root_hash(context).await?;
        let database = folder.join("db");
        let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&database);
        let io_failed = |error: io::Error| ActionError::Failed(format!("cannot write {}: {error}", database.display()));
        let file = file.map_err(io_failed)?;
        source.unpack(context, file.try_clone().map_err(io_failed)?).await?;
        if let Source::File(path) = source {
            let version = restore::version(&database);
            let version = version.map_err(|error| ActionError::Failed(format!("{}: {error}", path.display())))?;
            self.fits(version.as_deref().unwrap_or_default())?;
        }
        let (path, made, bump) = (database.clone(), new.clone(), self.module.bump_revision);
        let adopted = tokio::task::spawn_blocking(move || adopt(&path, &file, &made, bump, root.as_deref())).await;
        let adopted = adopted.map_err(|error| ActionError::Failed(error.to_string()))?;
        let prepared = adopted.map_err(|error| ActionError::Failed(format!("{}: {error}", source.describe())))?;
        let taken = source.hash().cloned();
        Ok(Prepared { expected: taken.clone().filter(|_| bump == 0), taken, ..prepared })
    }

    pub(super) async fn find(&self, context: &ActionContext) -> Result<Source, ActionError> {
        let EtcdRestore { backup, from, which, backup_of, .. } = &self.module;
        let from = from.as_ref().or(backup.to.as_ref()).filter(|from| !from.is_empty());
        let from = from.ok_or_else(|| ActionError::Failed("no backup location: set `from`".into()))?;
        let place: Place = from.parse().map_err(failed)?;
        if let Place::Folder(path) = &place
            && path.is_file()
        {
            return Ok(Source::File(path.clone()));
        }
        let store = Store::open(&place, &backup::Access::of(backup)).map_err(failed)?;
        let of = backup_of.as_ref().unwrap_or(&self.cluster.name);
        let kept = backups(&store, of).await.map_err(failed)?;
        let named = |manifest: &&Manifest| {
            which
                .as_ref()
                .is_none_or(|which| manifest.name().trim_end_matches(".json") == which.trim_end_matches(".json"))
        };
        let fitting: Vec<Manifest> = kept.backups.iter().filter(named).cloned().collect();
        let Some(manifest) = newest(&fitting, self.at) else {
            let what = match (which, self.at) {
                (Some(which), _) => format!("`{which}`"),
                (None, Some(at)) => format!("of {at} or before"),
                (None, None) => "at all".to_owned(),
            };
            return Err(ActionError::Failed(format!(
                "{place} has no backup of `{of}` {what}; list them with `etcdrun backup list`, or use the backup of another cluster with --backup-of"
            )));
        };
        if let Some(newer) = kept.damaged_since(manifest, self.at).next().filter(|_| which.is_none()) {
            let name = manifest.name();
            return Err(ActionError::Failed(format!(
                "there is a newer backup: {}; to use the newest that can be read, set `which: {}`",
                newer.why,
                name.trim_end_matches(".json")
            )));
        }
        let trust = Trust {
            keys: Keys::load(&context.state, of).map_err(failed)?,
            encrypted: !backup.recipients.is_empty(),
            anyway: self.module.unauthenticated,
        };
        let manifest = trust.check(&store.call(&manifest.name()), manifest).map_err(failed)?;
        self.fits(&manifest.etcd_version)?;
        Ok(Source::Backup(Box::new((store, manifest))))
    }

    /// A server reads what its own minor version has written, or the one before. What does not say who wrote it is let through.
    fn fits(&self, written_by: &str) -> Result<(), ActionError> {
        let series = |text: &str| -> Option<(u32, u32)> {
            let mut numbers = text.split('.').map(str::parse::<u32>);
            Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
        };
        let Some(version) = &self.module.version else { return Ok(()) };
        let (Some(old), Some(new)) = (series(written_by), series(version)) else { return Ok(()) };
        match old == new || (old.0, old.1 + 1) == new {
            true => Ok(()),
            false => Err(ActionError::Failed(format!(
                "the backup is of etcd {written_by}, and `{}` is to run {version}, which cannot be trusted to read it; restore it with etcd {}.{}, then change the version",
                self.cluster.name, old.0, old.1
            ))),
        }
    }

    /// Whether the cluster still serves, or might: then nothing is to be restored, unless somebody insists.
    async fn refusal(&self, context: &ActionContext) -> Result<Option<Outcome>, ActionError> {
        if self.module.force {
            return Ok(None);
        }
        let clients = match self.cluster.onlookers(context).await {
            Ok(clients) => clients,
            Err(error) => return Ok(self.strangers(context, &error).await),
        };
        let pulse = pulse(context, &clients, &self.cluster).await;
        let refusal = pulse.refusal(
            &self.cluster.name,
            "A restore replaces its data by the backup; to do so, pass --force, which moves the old data aside",
        );
        let record = ClusterRecord::load(&context.state, &self.cluster.name);
        let record = record.map_err(|error| ActionError::Failed(error.to_string()))?;
        let elsewhere = || elsewhere(&self.cluster, record.as_ref(), &pulse.now);
        Ok(refusal.or_else(|| Some(Outcome { refused: true, ..Outcome::failed(elsewhere()?) })))
    }

    /// Hours may lie between the look before the upload and this step, and another process may have taken that look. Members that
    /// run with the restored data already are no obstacle.
    async fn came_back(&self, context: &ActionContext) -> Result<Option<Outcome>, ActionError> {
        if self.module.force || context.check_mode() || is_off(repair::SERVES_AGAIN) {
            return Ok(None);
        }
        let cluster = &self.cluster.name;
        let clients = self.cluster.onlookers(context).await?;
        let pulse = pulse(context, &clients, &self.cluster).await.except(self.new_cluster(self.token()?).id);
        let way_out = format!(
            "When this restore was decided on, `{cluster}` did not serve. So nothing was stopped and no data was moved. To keep `{cluster}` as it is now, do nothing; to replace it anyway, run `etcdrun restore {cluster} --force`, which moves the old data aside"
        );
        Ok(pulse.refusal(cluster, &way_out))
    }

    async fn switch(&self, context: &ActionContext) -> Result<Outcome, ActionError> {
        match self.came_back(context).await? {
            Some(refusal) => Ok(refusal),
            None => self.on_member(context, "switch").await,
        }
    }

    /// Without a certificate nobody can be asked whether the cluster serves; but whether there is data can be seen.
    async fn strangers(&self, context: &ActionContext, why: &ActionError) -> Option<Outcome> {
        for member in &self.cluster.members {
            let look = Payload::new(include_str!("bootstrap.sh")).value("data_dir", &self.module.data_dir);
            let found = match context.reach.session(&member.name, &context.session) {
                Some(session) => session.run_one(look, false).await.map_err(|error| error.to_string()),
                None => Err("it is not in the inventory".to_owned()),
            };
            let what = match found {
                Ok(outcome) if outcome.failed => format!("cannot be inspected ({})", outcome.msg),
                Ok(outcome) if outcome.data.get("found").and_then(Value::as_str) == Some("data") => {
                    "has data".to_owned()
                }
                Ok(_) => continue,
                Err(error) => format!("cannot be reached ({error})"),
            };
            let msg = format!(
                "{} {what}, and cannot be queried whether it serves: {why}. Name another state directory with --state-dir; or restore anyway with --force, which moves the old data aside",
                member.name
            );
            return Some(Outcome { refused: true, ..Outcome::failed(msg) });
        }
        None
    }

    pub(super) fn payload(&self, action: &str) -> Payload {
        let payload = Payload::new(concat!(include_str!("../support/aside.sh"), include_str!("restore.sh")))
            .value("action", action);
        let EtcdRestore { data_dir, user, environment, first_start, .. } = &self.module;
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let payload = payload.value("environment", text(environment)).value("first_start", text(first_start));
        payload.value("data_dir", data_dir).value("user", user)
    }

    async fn on_member(&self, context: &ActionContext, action: &str) -> Result<Outcome, ActionError> {
        context.run(self.payload(action).value("token", self.token()?)).await
    }

    async fn place(&self, context: &ActionContext) -> Result<Outcome, ActionError> {
        let token = self.token()?;
        if context.check_mode() {
            return Ok(Outcome { msg: "would get the data, next to its current data".into(), ..Outcome::changed() });
        }
        let folder = folder(&context.state, token);
        let gone = |error: io::Error| {
            ActionError::Failed(format!("{} is not there any more ({error}); restore again", folder.display()))
        };
        let prepared = Prepared::of(&folder).map_err(gone)?;
        let name = self.module.name.as_deref().unwrap_or_default();
        let files = self.new_cluster(token).files(name);
        let files = files.ok_or_else(|| ActionError::Failed(format!("`{name}` is not a member of the cluster")))?;
        self.send(context, &prepared, &folder, &files).await
    }

    /// The data as a folder of the target, beside what is there.
    pub(super) async fn send(
        &self,
        context: &ActionContext,
        prepared: &Prepared,
        folder: &Path,
        files: &Files,
    ) -> Result<Outcome, ActionError> {
        let token = &prepared.token;
        // The logs of a server on it need room as well.
        let is_tried = matches!(self.module.state, RestoreState::Drilled | RestoreState::Proved);
        let spare = if is_tried { DRILL_SPARE } else { 0 };
        let room = self.payload("room").value("token", token).value("size", (prepared.size + spare).to_string());
        let room = context.run(room).await?;
        let there = room.data.get("folder").and_then(Value::as_str).map(str::to_owned);
        let Some(there) = there.filter(|_| !room.failed) else { return Ok(room) };
        let size = prepared.size;
        let progress = |sent: u64| (context.progress)(sent, size);
        let database = format!("{there}/{}", restore::DATABASE);
        context.session.append(&folder.join("db"), &database, 0, &progress).await?;
        for (path, bytes) in [&files.log, &files.snapshot] {
            let there = format!("{there}/{path}");
            context.session.append_stream(Path::new(path), &mut &**bytes, &there, 0, &|_| {}).await?;
        }
        let seal = self.payload("seal").value("token", token).value("sha256", &prepared.sha256);
        let sealed = context.run(seal).await?;
        if sealed.failed {
            return Ok(sealed);
        }
        let others = room.data.get("others").and_then(Value::as_str).filter(|others| !others.is_empty());
        let others = others.map(|others| format!("; interrupted restores have left {others}: remove them"));
        let msg = format!("{}{}", ByteSize(size), others.unwrap_or_default());
        Ok(Outcome { msg, ..sealed }.with("folder", there))
    }

    /// What was known of the old cluster is kept beside it.
    async fn record(&self, context: &ActionContext) -> Result<Outcome, ActionError> {
        if let Some(refusal) = self.came_back(context).await? {
            return Ok(refusal);
        }
        let (cluster, token) = (&self.cluster.name, self.token()?);
        let wrong = |error: crate::state::StateError| ActionError::Failed(error.to_string());
        let before = ClusterRecord::load(&context.state, cluster).map_err(wrong)?;
        let id = format!("{:x}", self.new_cluster(token).id);
        if before.as_ref().is_some_and(|record| record.cluster_id.as_ref() == Some(&id)) {
            return Ok(Outcome::ok());
        }
        if context.check_mode() {
            return Ok(Outcome::changed());
        }
        context.permit()?;
        if let Some(before) = &before {
            let time = Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
            before.keep(&context.state, &format!("{cluster}.before-{time}")).map_err(wrong)?;
        }
        let (members, token) = (self.cluster.names(), token.to_owned());
        let record = ClusterRecord { phase: Phase::Forming, token, members, cluster_id: Some(id.clone()) };
        record.keep(&context.state, cluster).map_err(wrong)?;
        Ok(Outcome { msg: format!("the cluster {id}"), ..Outcome::changed() })
    }

    /// The end: all of them have the same, and nothing of it has to stay here.
    async fn compare(&self, context: &ActionContext) -> Result<Outcome, ActionError> {
        if context.check_mode() {
            return Ok(Outcome { unknown: true, msg: "would compare the members".into(), ..Outcome::ok() });
        }
        let clients = self.cluster.clients(context).await?;
        let revision = observe(&clients, LOOK).await.views().map(|(_, view)| view.revision).min().unwrap_or(0);
        let hashes = futures_util::future::join_all(clients.iter().map(|client| hash(client, revision))).await;
        let mut found = Vec::new();
        for (client, hash) in clients.iter().zip(hashes) {
            let hash = hash.map_err(|error| ActionError::Failed(format!("{}: {error}", client.name)))?;
            found.push((client.name.to_string(), hash.hash));
        }
        if found.windows(2).any(|pair| pair[0].1 != pair[1].1) {
            return Err(ActionError::Failed(format!("the members differ: {found:?}")));
        }
        // Who looks again, because the first look was broken off, finds it gone.
        let prepared = self.module.token.as_ref().and_then(|token| Prepared::of(&folder(&context.state, token)).ok());
        let expected = prepared.and_then(|prepared| prepared.expected);
        let as_then = match (&expected, clients.first()) {
            (Some(expected), Some(client)) => as_expected(client, expected).await?,
            _ => "",
        };
        if let Some(token) = &self.module.token {
            // It is a copy of everything that the cluster holds.
            let _ = fs::remove_dir_all(folder(&context.state, token));
        }
        let hash = found.first().map_or(0, |(_, hash)| *hash);
        Ok(Outcome { msg: format!("revision {revision}, hash {hash} on all{as_then}"), ..Outcome::ok() }
            .with("revision", revision)
            .with("hash", hash))
    }
}

/// What there is to say about the hash that a backup has, once a member has its data.
pub(super) async fn as_expected(client: &MemberClient, expected: &Hash) -> Result<&'static str, ActionError> {
    let same = match hash(client, expected.revision).await {
        Ok(found) => expected.equals(&found).map_err(ActionError::Failed)?,
        Err(EtcdError::Refused { reason, .. }) if reason.contains("has been compacted") => false,
        Err(error) => return Err(ActionError::Failed(error.to_string())),
    };
    Ok(match same {
        true => ", with the same hash as when the backup was taken",
        false => "; the cluster was compacted while the backup was taken, so that its hash cannot be compared",
    })
}

/// Where the data of a restore is while it lasts.
pub(super) fn folder(state: &Path, token: &str) -> PathBuf {
    state.join("restore").join(token)
}

/// What others have left that broke off, by how their tokens begin.
pub(super) fn forget_others(state: &Path, beginnings: &[String]) -> io::Result<()> {
    let Ok(entries) = fs::read_dir(state.join("restore")) else { return Ok(()) };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if beginnings.iter().any(|beginning| name.starts_with(beginning)) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// The checksum behind the database goes; the database becomes that of the new cluster.
fn adopt(path: &Path, file: &File, cluster: &NewCluster, bump: u64, root: Option<&str>) -> Result<Prepared, String> {
    const SUM: u64 = 32;
    let io_failed = |error: io::Error| error.to_string();
    let size = file.metadata().map_err(io_failed)?.len();
    file.set_len(size.saturating_sub(SUM)).map_err(io_failed)?;
    let adopted = restore::adopt(path, cluster, bump, root).map_err(|error| error.to_string())?;
    let mut seen = Seen::default();
    let size = io::copy(&mut File::open(path).map_err(io_failed)?, &mut seen).map_err(io_failed)?;
    seen.pages.end().map_err(|error| error.to_string())?;
    let sha256 = hex(seen.sum.finish());
    let restore::Adopted { revision, bump_at } = adopted;
    Ok(Prepared { token: String::new(), sha256, size, revision, expected: None, taken: None, bump_at })
}

/// What goes by is summed up, and every page of it looked at.
#[derive(Default)]
struct Seen {
    sum: Sha256,
    pages: restore::Walk,
}

impl Write for Seen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.sum.update(bytes);
        self.pages.feed(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Source {
    /// What etcd calculated of the data when the backup was taken.
    pub(super) fn hash(&self) -> Option<&Hash> {
        match self {
            Self::Backup(found) => found.1.hash.as_ref(),
            Self::File(_) => None,
        }
    }

    pub(super) fn describe(&self) -> String {
        match self {
            Self::Backup(found) => {
                let manifest = &found.1;
                format!(
                    "{} (revision {}, taken {})",
                    manifest.name().trim_end_matches(".json"),
                    manifest.revision,
                    manifest.taken
                )
            }
            Self::File(path) => path.display().to_string(),
        }
    }

    /// All of it, checked.
    async fn unpack(&self, context: &ActionContext, mut into: File) -> Result<(), ActionError> {
        match self {
            Self::Backup(found) => {
                let (store, manifest) = &**found;
                unpack(store, manifest, context.opener.clone(), into).await.map(drop).map_err(failed)
            }
            Self::File(path) => {
                let (path, name) = (path.clone(), path.display().to_string());
                let read =
                    tokio::task::spawn_blocking(move || snapshot::read_through(&mut File::open(path)?, &mut into));
                let read = read.await.map_err(|error| ActionError::Failed(error.to_string()))?;
                read.map(drop).map_err(|error| failed(BackupError::Damaged { name, why: error.to_string() }))
            }
        }
    }
}
