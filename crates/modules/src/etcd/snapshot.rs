//! `etcd_snapshot`: the data of a cluster, whole, on a disk.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::fs;

use super::{
    Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, ResultField, Running,
    cluster_args::{Cluster, ClusterArgs, WHOLE_CLUSTER},
    local,
    scratch::Scratch,
};
use crate::{
    model::{ByteSize, Effects, Outcome, Resource, Seconds},
    remote::Payload,
};
use etcdrun_etcd::etcd::{
    MemberClient, Pace,
    observe::{Observation, Seen, observe, settled},
    rules::SNAPSHOT_AGE,
    snapshot::{self, Snapshot, SnapshotError},
};

/// Takes a snapshot of a cluster, and stores it on the operator's workstation or on the target.
///
/// It comes from a healthy follower if there is one, and is written to disk as a stream. Only a complete one is kept: its size
/// and the checksum at its end are compared after it has reached the disk, and only then it gets its name.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EtcdSnapshot {
    #[serde(default)]
    cluster: ClusterArgs,
    /// The file; if it ends in a slash, a directory, in which it is named by cluster and time. On the operator's workstation a
    /// relative path is relative to the playbook.
    dest: String,
    /// Where to store it.
    #[serde(default)]
    on: SnapshotPlace,
    /// The member to take it from.
    #[serde(default)]
    through: Option<String>,
    /// An existing snapshot on the operator's workstation: if it is not older than `max_age`, no other is taken.
    #[serde(default)]
    unless: Option<String>,
    /// The maximum age of that snapshot.
    #[serde(default = "half_an_hour")]
    max_age: Seconds,
    /// The maximum transfer rate per second, like `64MiB`; default: unlimited.
    #[serde(default)]
    rate: Option<ByteSize>,
}

/// Half of what gates allow, so that one which will do now still does in a moment.
fn half_an_hour() -> Seconds {
    Seconds(SNAPSHOT_AGE / 2)
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum SnapshotPlace {
    /// The operator's workstation.
    #[default]
    Operator,
    /// The host of the task.
    Target,
}

impl Module for EtcdSnapshot {
    const NAME: &'static str = "etcd_snapshot";
    const CLUSTER: &'static [crate::task::ClusterKey] = WHOLE_CLUSTER;
    const EXAMPLE: &'static str = "\
- name: Take a snapshot
  etcd_snapshot:
    dest: snapshots/
  once_per: cluster
";
    const RESULT: &'static [ResultField] = &[
        ResultField { name: "dest", doc: "The file." },
        ResultField { name: "size", doc: "Its size in bytes." },
        ResultField { name: "sha256", doc: "The checksum of the data, which is also at its end." },
        ResultField { name: "revision", doc: "The revision that it has at least." },
        ResultField { name: "through", doc: "The member it was taken from." },
    ];

    fn effects(&self) -> Effects {
        match self.on {
            // What is too old by the time a run is resumed is taken again.
            SnapshotPlace::Operator => Effects { here: true, perishable: true, ..Effects::converging() },
            SnapshotPlace::Target => Effects::converging().writing([Resource::tree(&self.dest)]),
        }
    }

    fn action(self, context: &BuildContext<'_>) -> Result<Action, ModuleError> {
        if self.dest.is_empty() {
            return Err(ModuleError::new("`dest` is empty"));
        }
        if self.on == SnapshotPlace::Target && !self.dest.starts_with('/') {
            return Err(ModuleError::new(format!("`{}` is not an absolute path on the target", self.dest)));
        }
        if self.rate == Some(ByteSize(0)) {
            return Err(ModuleError::new("with a `rate` of 0 it would never end"));
        }
        let cluster = self.cluster.known()?;
        let given = local::with_home(&self.dest);
        let dest = match (self.on, context.file_paths.last()) {
            (SnapshotPlace::Operator, Some(folder)) => folder.join(&given),
            _ => given,
        };
        Ok(Action::Engine(Box::new(Take { cluster, dest, module: self })))
    }
}

struct Take {
    module: EtcdSnapshot,
    cluster: Cluster,
    dest: PathBuf,
}

impl EngineAction for Take {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            let dest = self.dest();
            if let Some((path, size)) = self.fresh() {
                let msg = format!("{path} is recent enough");
                return Ok(Outcome { msg, ..Outcome::ok() }.with("dest", path).with("size", size));
            }
            if let Some(unless) = self.module.unless.as_ref().filter(|_| context.check_mode()) {
                let msg = format!("{unless} would do");
                return Ok(Outcome { msg, ..Outcome::ok() }.with("dest", unless.as_str()));
            }
            if context.check_mode() {
                let msg = format!("would be stored as {}", dest.display());
                return Ok(Outcome { msg, ..Outcome::changed() }.with("dest", dest.display().to_string()));
            }
            let clients = self.cluster.clients(context).await?;
            let (now, order) = sources(&clients, self.module.through.as_deref()).await;
            let mut failure = no_source(&self.cluster.name, &now);
            for client in order {
                match self.take(context, client, &dest).await {
                    Ok(snapshot) => {
                        let revision = now.view(&client.name).map_or(0, |view| view.revision);
                        let msg = format!("{} bytes through {}", snapshot.size, client.name);
                        return Ok(Outcome { msg, ..Outcome::changed() }
                            .with("dest", dest.display().to_string())
                            .with("size", snapshot.size)
                            .with("sha256", snapshot.sha256)
                            .with("revision", revision)
                            .with("through", client.name.to_string()));
                    }
                    // Another member may do better; our own disk will not.
                    Err(SnapshotError::Io(error)) => {
                        return Err(ActionError::Failed(format!("cannot write `{}`: {error}", dest.display())));
                    }
                    Err(error) => failure = ActionError::Failed(format!("{}: {error}", client.name)),
                }
            }
            Err(failure)
        })
    }
}

impl Take {
    fn pace(&self) -> Pace {
        Pace::at_most(self.module.rate)
    }

    /// The one that is there already, if it will do, and its size. Whether each page of it is as it should be, gates ask anyway.
    fn fresh(&self) -> Option<(&str, u64)> {
        let unless = self.module.unless.as_deref()?;
        let path = Path::new(unless);
        let size = path.metadata().ok()?.len();
        let will_do = snapshot::age(path)? <= self.module.max_age.0 && snapshot::could_be(size);
        will_do.then_some((unless, size))
    }

    fn dest(&self) -> PathBuf {
        if !self.module.dest.ends_with('/') {
            return self.dest.clone();
        }
        let time = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
        self.dest.join(format!("{}-{time}.db", self.cluster.name))
    }

    async fn take(
        &self,
        context: &ActionContext,
        client: &MemberClient,
        dest: &Path,
    ) -> Result<Snapshot, SnapshotError> {
        match self.module.on {
            SnapshotPlace::Operator => self.take_here(context, client, dest).await,
            SnapshotPlace::Target => self.take_there(context, client, dest).await,
        }
    }

    /// It goes through here, and nothing of it stays.
    async fn take_there(
        &self,
        context: &ActionContext,
        client: &MemberClient,
        dest: &Path,
    ) -> Result<Snapshot, SnapshotError> {
        const BUFFER: usize = 256 * 1024;
        let failed = |error: &dyn std::fmt::Display| SnapshotError::Io(io::Error::other(error.to_string()));
        let part = with_part(dest).display().to_string();
        // Each side has its end to itself, so that the other hears when it is over.
        let (writer, reader) = tokio::io::duplex(BUFFER);
        let send = async move {
            let mut writer = writer;
            snapshot::stream(client, &mut writer, self.pace(), &*context.progress).await
        };
        let keep = async move {
            let mut reader = reader;
            context.session.append_stream(dest, &mut reader, &part, 0, &|_| {}).await
        };
        let (sent, kept) = tokio::join!(send, keep);
        kept.map_err(|error| failed(&error))?;
        let snapshot = sent?;
        let payload = Payload::new(include_str!("snapshot.sh")).value("dest", dest.display().to_string());
        let outcome = context.run(payload).await.map_err(|error| failed(&error))?;
        match outcome.failed {
            true => Err(SnapshotError::Broken(outcome.msg)),
            false => Ok(snapshot),
        }
    }

    async fn take_here(
        &self,
        context: &ActionContext,
        client: &MemberClient,
        dest: &Path,
    ) -> Result<Snapshot, SnapshotError> {
        let permit = context.permit().map_err(|error| io::Error::other(error.to_string()))?;
        let folder = dest.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::create_dir_all(folder).await?;
        let (part, file) = Scratch::create_as(&with_part(dest), &permit)?;
        snapshot::save(client, file, self.pace(), &*context.progress).await?;
        let path = part.path().to_owned();
        let read = tokio::task::spawn_blocking(move || snapshot::verify(&path)).await;
        let snapshot = read.map_err(|error| io::Error::other(error.to_string()))??;
        part.keep_as(dest)?;
        fs::File::open(folder).await?.sync_all().await?;
        Ok(snapshot)
    }
}

/// Followers that are well before the leader; those with the most entries first. Who is named has to do, well or not.
/// Members that data can be taken from, the best one first. An election, or a machine under load, has its time.
pub(super) async fn sources<'a>(
    clients: &'a [MemberClient],
    named: Option<&str>,
) -> (Observation, Vec<&'a MemberClient>) {
    const LOOK: Duration = Duration::from_secs(10);
    let now = settled(|| observe(clients, LOOK), |now| !order(clients, now, named).is_empty()).await;
    let order = order(clients, &now, named);
    (now, order)
}

pub(super) fn no_source(cluster: &str, now: &Observation) -> ActionError {
    let trouble = now.members.iter().find_map(Seen::trouble).unwrap_or_else(|| "none is named so".to_owned());
    ActionError::Failed(format!(
        "no member of `{cluster}` is healthy enough to take data from: {trouble}; see `etcdrun status {cluster}`"
    ))
}

fn order<'a>(clients: &'a [MemberClient], now: &Observation, named: Option<&str>) -> Vec<&'a MemberClient> {
    let leader = now.leader().map(|(name, _)| name.to_owned());
    let rank = |client: &MemberClient| {
        let view = now.view(&client.name);
        (leader.as_deref() == Some(&*client.name), std::cmp::Reverse(view.map_or(0, |view| view.applied_index)))
    };
    let is_well = |name: &str| now.members.iter().any(|seen| seen.name == name && seen.is_well());
    let wanted = |client: &&MemberClient| named.map_or_else(|| is_well(&client.name), |named| named == &*client.name);
    let mut order: Vec<&MemberClient> = clients.iter().filter(wanted).collect();
    order.sort_by_key(|client| rank(client));
    order
}

fn with_part(dest: &Path) -> PathBuf {
    let mut name = dest.as_os_str().to_owned();
    name.push(".part");
    PathBuf::from(name)
}
