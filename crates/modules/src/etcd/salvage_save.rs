//! What `etcd_salvage` saves: a snapshot of what one member still has.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use tokio::fs;

use super::{
    ActionContext, ActionError,
    apart::{Apart, done},
    cluster_args::Member,
    salvage::Salvage,
    scratch::Scratch,
};
use crate::model::{ByteSize, Outcome, Value};
use etcdrun_etcd::etcd::{MemberClient, Pace, snapshot};

impl Salvage {
    /// Of the target: a copy, a server on it, and a snapshot of that.
    pub(super) async fn save(&self, context: &ActionContext) -> Result<Outcome, ActionError> {
        let name = self.module.through.as_deref().unwrap_or_default();
        let member = self.cluster.member(name);
        let member = member.ok_or_else(|| ActionError::Failed("`through` does not name this member".into()))?;
        if context.check_mode() {
            let msg = format!("would take a snapshot of what {name} has");
            return Ok(Outcome { msg, ..Outcome::changed() }.with("dest", "/not-known-yet"));
        }
        let before = self.look(&context.session).await.map_err(ActionError::Failed)?;
        let ran = before.left.is_some_and(|left| left.runs);
        let saved = self.save_copy(context, member).await;
        let end = self.payload("end").flag("start", ran && saved.is_err());
        let ended = context.run(end).await;
        let (dest, size, revision) = saved?;
        done(ended?)?;
        let msg = format!("{} of {name}, revision {revision}, in {}", ByteSize(size), dest.display());
        Ok(Outcome { msg, ..Outcome::changed() }.with("dest", dest.display().to_string()).with("revision", revision))
    }

    async fn save_copy(&self, context: &ActionContext, member: &Member) -> Result<(PathBuf, u64, i64), ActionError> {
        let copied = done(context.run(self.payload("copy")).await?)?;
        let folder = copied.data.get("folder").and_then(Value::as_str).unwrap_or_default();
        // Since it stopped, nothing is written any more: now the end of its log is the end.
        let left = self.look(&context.session).await.map_err(ActionError::Failed)?;
        let left = left.left.ok_or_else(|| ActionError::Failed(format!("{} has no log", member.name)))?;
        let record = left.tail.all_committed();
        let there = format!("{folder}/record");
        context.session.append_stream(Path::new("record"), &mut &*record, &there, 0, &|_| {}).await?;
        let append = self.payload("append").value("log", &left.log).value("end", left.tail.end.to_string());
        done(context.run(append).await?)?;
        let apart = Apart { cluster: &self.cluster, payload: &|action| self.payload(action) };
        let (client, revision) = apart.start(context, member, true).await?;
        let (dest, size) = self.keep(context, &client, member).await?;
        Ok((dest, size, revision))
    }

    async fn keep(
        &self,
        context: &ActionContext,
        client: &MemberClient,
        member: &Member,
    ) -> Result<(PathBuf, u64), ActionError> {
        let io_failed = |error: std::io::Error| ActionError::Failed(format!("cannot store the snapshot: {error}"));
        let folder = context.state.join("recover");
        fs::create_dir_all(&folder).await.map_err(io_failed)?;
        let time = Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
        let dest = folder.join(format!("{}-{}-{time}.db", self.cluster.name, member.name));
        let dest = std::path::absolute(dest).map_err(io_failed)?;
        let (part, file) = Scratch::create(&folder, &context.permit()?).map_err(io_failed)?;
        let snapshot = snapshot::save(client, file, Pace::default(), &*context.progress).await;
        let snapshot = snapshot.map_err(|error| ActionError::Failed(format!("{}: {error}", member.name)))?;
        part.keep_as(&dest).map_err(io_failed)?;
        Ok((dest, snapshot.size))
    }
}
