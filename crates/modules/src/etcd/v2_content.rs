//! `etcd_v2_content`: whether members have data that etcd 3.6 cannot live with.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use schemars::JsonSchema;
use serde::Deserialize;
use tokio::{io::AsyncWrite, time::timeout};

use super::{
    Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, ResultField, Running,
    cluster_args::{CLUSTER_MEMBERS, Cluster, ClusterArgs, Member},
};
use crate::{
    model::{Effects, Outcome, Value},
    remote::{Payload, RemoteError, Session},
};
use etcdrun_etcd::etcd::{
    restore::v2::{RequestReader, files_behind, index_of, key_in},
    rules::{NO_V2_CONTENT, is_off},
};

/// Fails if a member still has v2 API data, or v2 requests in its log: etcd 3.6 does not start with either.
///
/// It is read-only, like `etcdutl check v2store`, while all members serve: it reads the newest snapshot of the log of each member, and
/// the log after it. It also says whether members were added or removed in that log: after it has read such a log, etcd 3.6 may count
/// wrong voters. `etcd_checkpoint` puts the log into a snapshot.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EtcdV2Content {
    #[serde(default)]
    cluster: ClusterArgs,
    /// The data directory on the members.
    #[serde(default = "super::data_dir")]
    data_dir: String,
}

impl Module for EtcdV2Content {
    const NAME: &'static str = "etcd_v2_content";
    const CLUSTER: &'static [crate::task::ClusterKey] = CLUSTER_MEMBERS;
    const EXAMPLE: &'static str = "\
- name: Check for v2 API data
  etcd_v2_content:
  once_per: cluster
";
    const RESULT: &'static [ResultField] =
        &[ResultField { name: "members_changed", doc: "Whether the log of a member has a change of the members." }];

    fn effects(&self) -> Effects {
        Effects::read_only()
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        let cluster = self.cluster.known()?;
        Ok(Action::Engine(Box::new(Look { cluster, module: self })))
    }
}

struct Look {
    module: EtcdV2Content,
    cluster: Cluster,
}

const RULE: &str = NO_V2_CONTENT.id;
/// A snapshot of the log that is larger holds more than members and versions.
const LARGEST: usize = 128 << 20;
/// How long a host may take to send one file.
const PATIENCE: Duration = Duration::from_secs(600);

impl EngineAction for Look {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            if is_off(RULE) {
                return Ok(Outcome::ok().with("members_changed", false));
            }
            // One after the other: they serve meanwhile.
            let mut members_changed = false;
            for member in &self.cluster.members {
                let seen = self.look(context, member).await?;
                if let Some(found) = seen.found {
                    return Ok(Outcome { refused: true, ..Outcome::failed(self.told(member, &found)) });
                }
                members_changed |= seen.members_changed;
            }
            let outcome = Outcome { msg: "no member has data of the v2 API".into(), ..Outcome::ok() };
            Ok(outcome.with("members_changed", members_changed))
        })
    }
}

#[derive(Default)]
struct Seen {
    found: Option<Found>,
    members_changed: bool,
}

/// What a member has of the v2 API.
enum Found {
    Key(String),
    Request(String),
    TooLarge,
}

impl Look {
    async fn look(&self, context: &ActionContext, member: &Member) -> Result<Seen, ActionError> {
        let failed = |why: String| {
            ActionError::Failed(format!("{RULE}: cannot see whether {} has data of the v2 API: {why}", member.name))
        };
        let session = context.reach.session(&member.name, &context.session);
        let session = session.ok_or_else(|| failed("it is not in the inventory".into()))?;
        let payload = Payload::new(include_str!("v2_content.sh")).value("data_dir", &self.module.data_dir);
        let outcome = session.run_one(payload, false).await.map_err(ActionError::Remote)?;
        if outcome.failed {
            return Err(failed(outcome.msg));
        }
        let text = |name: &str| outcome.data.get(name).and_then(Value::as_str).unwrap_or_default();
        let files: Vec<String> = text("files").split_whitespace().map(str::to_owned).collect();
        let snapshot = text("snapshot");
        if !snapshot.is_empty()
            && let Some(found) = self.in_snapshot(&session, snapshot).await.map_err(failed)?
        {
            return Ok(Seen { found: Some(found), ..Seen::default() });
        }
        let after = index_of(snapshot, ".snap").unwrap_or(0);
        self.in_log(&session, files_behind(&files, after), after).await.map_err(failed)
    }

    async fn in_snapshot(&self, session: &Session, name: &str) -> Result<Option<Found>, String> {
        let mut file = Bounded::default();
        read(session, &format!("{}/member/snap/{name}", self.module.data_dir), &mut file).await?;
        match file.is_too_large {
            true => Ok(Some(Found::TooLarge)),
            false => key_in(&file.bytes).map(|key| key.map(Found::Key)).map_err(|why| format!("{name}: {why}")),
        }
    }

    async fn in_log(&self, session: &Session, files: &[String], after: u64) -> Result<Seen, String> {
        let mut reader = RequestReader::new(after);
        for name in files {
            reader.next_file();
            read(session, &format!("{}/member/wal/{name}", self.module.data_dir), &mut reader).await?;
        }
        let found = reader.found().map(|request| Found::Request(request.to_owned()));
        Ok(Seen { found, members_changed: reader.members_changed() })
    }

    fn told(&self, member: &Member, found: &Found) -> String {
        let (name, cluster) = (&member.name, &self.cluster.name);
        let (what, way_out) = match found {
            Found::Key(key) => (
                format!("{name} has data of the v2 API, such as the key `{key}`"),
                "copy what is still needed to the v3 API and delete it through the v2 API (`ETCDCTL_API=2 etcdctl rm --recursive KEY`)",
            ),
            Found::TooLarge => (
                format!(
                    "the newest snapshot of the log of {name} is larger than {} MiB, so it has data of the v2 API",
                    LARGEST >> 20
                ),
                "copy what is still needed to the v3 API and delete it through the v2 API (`ETCDCTL_API=2 etcdctl rm --recursive KEY`)",
            ),
            Found::Request(request) => (
                format!("the log of {name} has requests of the v2 API, such as `{request}`"),
                "see that no client uses the v2 API any more",
            ),
        };
        format!(
            "{RULE}: {what}, and etcd 3.6 would not start with it; {way_out}, then run the task `etcd_checkpoint` on `{cluster}`, which puts the logs into snapshots (see docs/rollouts.md), and the upgrade again"
        )
    }
}

/// Reads a file of a server that runs: a log that is written to meanwhile is read as far as it was.
async fn read(session: &Session, path: &str, into: &mut (dyn AsyncWrite + Send + Unpin)) -> Result<(), String> {
    match timeout(PATIENCE, session.download(path, into)).await {
        Err(_) => Err(format!("{path} was not read within {PATIENCE:?}")),
        Ok(Ok(outcome)) if outcome.failed => Err(outcome.msg),
        Ok(Ok(_) | Err(RemoteError::Transfer(_))) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
    }
}

/// A file in memory, unless it is too large.
#[derive(Default)]
struct Bounded {
    bytes: Vec<u8>,
    is_too_large: bool,
}

impl AsyncWrite for Bounded {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.is_too_large |= self.bytes.len() + bytes.len() > LARGEST;
        if !self.is_too_large {
            self.bytes.extend(bytes);
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
