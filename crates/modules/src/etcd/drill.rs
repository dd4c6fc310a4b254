//! The drill of `etcd_restore`: a server for a moment, on what a backup makes.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt,
    path::Path,
};

use super::{
    ActionContext, ActionError,
    apart::{Apart, done, peer_url},
    restore::{EtcdRestore, Prepared, Restore, Source, as_expected, folder, forget_others},
};
use crate::{
    model::{ByteSize, Outcome, Value},
    remote::Payload,
};
use etcdrun_etcd::etcd::restore::NewCluster;

impl Restore {
    pub(super) async fn drill(&self, context: &ActionContext) -> Result<Outcome, ActionError> {
        let source = self.find(context).await?;
        if context.check_mode() {
            let msg = format!("would start etcd on {}, and compare", source.describe());
            return Ok(Outcome { msg, ..Outcome::changed() });
        }
        context.permit()?;
        let token = format!("{}-drill-{:016x}", self.cluster.name, rand::random::<u64>());
        let here = folder(&context.state, &token);
        let io_failed = |error: io::Error| ActionError::Failed(format!("cannot write {}: {error}", here.display()));
        forget_others(&context.state, &[format!("{}-drill-", self.cluster.name)]).map_err(io_failed)?;
        self.forget(context, &token).await?;
        DirBuilder::new().recursive(true).mode(0o700).create(&here).map_err(io_failed)?;
        let rehearsed = self.rehearse(context, &source, &token, &here).await;
        // However it went, nothing of it stays: it is all that the cluster holds.
        let removed = fs::remove_dir_all(&here);
        let ended = self.forget(context, &token).await;
        let msg = rehearsed?;
        removed.map_err(io_failed)?;
        ended?;
        Ok(Outcome { msg: format!("{}: {msg}", source.describe()), ..Outcome::ok() })
    }

    /// The server ends, and its data goes; also that of a drill whose operator was killed.
    pub(super) async fn forget(&self, context: &ActionContext, token: &str) -> Result<(), ActionError> {
        done(context.run(self.apart("stop", "")).await?)?;
        done(context.run(self.payload("forget").value("token", token)).await?).map(drop)
    }

    async fn rehearse(
        &self,
        context: &ActionContext,
        source: &Source,
        token: &str,
        here: &Path,
    ) -> Result<String, ActionError> {
        let name = self.module.name.as_deref().unwrap_or_default();
        let member = self.cluster.member(name);
        let member = member.ok_or_else(|| ActionError::Failed(format!("`{name}` is not a member of the cluster")))?;
        let new = NewCluster::new([(name.to_owned(), peer_url())], token);
        let prepared = Prepared { token: token.to_owned(), ..self.make(context, source, here, &new).await? };
        let size = prepared.size;
        let files = new.files(name).ok_or_else(|| ActionError::Failed(format!("`{name}` is not a member")))?;
        let sent = done(self.send(context, &prepared, here, &files).await?)?;
        let there = sent.data.get("folder").and_then(Value::as_str).unwrap_or_default().to_owned();
        let payload = |action: &str| self.apart(action, &there);
        let apart = Apart { cluster: &self.cluster, payload: &payload };
        let (client, revision) = apart.start(context, member, false).await?;
        compare(&client, revision, size, source).await
    }

    /// A step of a server on some folder.
    pub(super) fn apart(&self, action: &str, folder: &str) -> Payload {
        let EtcdRestore { data_dir, user, environment, .. } = &self.module;
        Payload::new(include_str!("salvage.sh"))
            .value("action", action)
            .value("data_dir", data_dir)
            .value("user", user)
            .value("environment", environment.as_deref().unwrap_or("/etc/etcd/etcd.env"))
            .value("folder", folder)
    }
}

/// What the server on the backup's data says, against what the cluster said when the backup was taken.
async fn compare(
    client: &etcdrun_etcd::etcd::MemberClient,
    revision: i64,
    size: u64,
    source: &Source,
) -> Result<String, ActionError> {
    let served = format!("served revision {revision}, {}", ByteSize(size));
    let Some(expected) = source.hash() else {
        return Ok(format!("{served}; it has no hash to be compared with"));
    };
    let as_then = as_expected(client, expected).await;
    let as_then = as_then.map_err(|error| ActionError::Failed(format!("{}: {error}", source.describe())))?;
    Ok(format!("{served}{as_then}"))
}
