//! The proof of `etcd_restore`: a server on what the members are about to get, before anything of theirs is touched.

use super::{
    ActionContext, ActionError,
    apart::{Apart, done},
    restore::{Prepared, Restore, as_expected, folder},
};
use crate::{
    inventory::sections::AuthMethod,
    model::{Outcome, Value},
};
use etcdrun_base::mutant::{is_off, repair};
use etcdrun_etcd::etcd::restore;

impl Restore {
    /// Starts a server on the data, apart from everybody, and compares what it has with what the backup says.
    pub(super) async fn prove(&self, context: &ActionContext) -> Result<Outcome, ActionError> {
        if is_off(repair::RESTORE_PROOF) {
            return Ok(Outcome::ok());
        }
        if context.check_mode() {
            return Ok(Outcome {
                msg: "would start an isolated etcd on the data for a moment".into(),
                ..Outcome::ok()
            });
        }
        // So called it is removed with what drills have left.
        let token = format!("{}-drill-proof", self.token()?);
        self.forget(context, &token).await?;
        let proved = self.try_out(context, &token).await;
        let ended = self.forget(context, &token).await;
        let msg = proved.map_err(|error| {
            ActionError::Failed(format!("etcd does not serve the data of the backup: {error}. Nothing was stopped or changed. If it is the data, restore another backup (`etcdrun backup list {}`)", self.cluster.name))
        })?;
        ended?;
        Ok(Outcome { msg, ..Outcome::ok() })
    }

    async fn try_out(&self, context: &ActionContext, token: &str) -> Result<String, ActionError> {
        let name = self.module.name.as_deref().unwrap_or_default();
        let none = || ActionError::Failed(format!("`{name}` is not a member of the cluster"));
        let member = self.cluster.member(name).ok_or_else(none)?;
        let here = folder(&context.state, self.token()?);
        let prepared = Prepared::of(&here).map_err(|error| {
            ActionError::Failed(format!("{} is not there any more ({error}); restore again", here.display()))
        })?;
        let prepared = Prepared { token: token.to_owned(), ..prepared };
        let files = self.new_cluster(self.token()?).files(name).ok_or_else(none)?;
        let sent = done(self.send(context, &prepared, &here, &files).await?)?;
        if let Some(at) = prepared.bump_at {
            let unbump = self.payload("unbump").value("token", token).value("at", at.to_string());
            done(context.run(unbump).await?)?;
        }
        let there = sent.data.get("folder").and_then(Value::as_str).unwrap_or_default().to_owned();
        let payload = |action: &str| self.apart(action, &there);
        let apart = Apart { cluster: &self.cluster, payload: &payload };
        // The others that its data names do not have it yet.
        let (client, revision) = apart.start(context, member, true).await?;
        let as_then = match &prepared.taken {
            Some(expected) => as_expected(&client, expected).await?,
            None => "; the backup has no hash to compare it with",
        };
        Ok(format!("an isolated etcd on {name} had revision {revision}{as_then}"))
    }

    /// The hash of the password that root has in this cluster. The backup may be from before it was changed, or of another cluster,
    /// and then nobody knows the one that it has.
    pub(super) async fn root_hash(&self, context: &ActionContext) -> Result<Option<String>, ActionError> {
        if self.cluster.auth.method() == AuthMethod::Certificate {
            return Ok(None);
        }
        let password = self.cluster.root_password(context).await?;
        let hashed = tokio::task::spawn_blocking(move || restore::password_hash(&password)).await;
        let hashed = hashed.map_err(|error| ActionError::Failed(error.to_string()))?;
        hashed.map(Some).map_err(|error| ActionError::Failed(error.to_string()))
    }
}
