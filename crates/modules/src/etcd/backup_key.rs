//! `etcd_backup_key`: the key that the backups of a cluster are signed with.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    Action, ActionContext, BuildContext, EngineAction, Module, ModuleError, ResultField, Running, backup::failed,
};
use crate::{
    backup::Keys,
    model::{Effects, Outcome},
};

/// Creates the key that signs the backups of a cluster, if it does not exist: `backups/CLUSTER.key` in the state directory.
///
/// The first backup creates it too. This is for playbooks that copy it to another host, whose backups must be
/// accepted here.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EtcdBackupKey {
    /// The name of the cluster.
    cluster: String,
}

impl Module for EtcdBackupKey {
    const NAME: &'static str = "etcd_backup_key";
    const EXAMPLE: &'static str = "\
- name: Create the backup key
  etcd_backup_key: { cluster: prod }
";
    const RESULT: &'static [ResultField] = &[];

    fn effects(&self) -> Effects {
        Effects { here: true, ..Effects::converging() }
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if self.cluster.is_empty() || self.cluster.starts_with('.') || !self.cluster.bytes().all(is_plain) {
            return Err(ModuleError::new(format!("`{}` is not a name of a cluster", self.cluster)));
        }
        Ok(Action::Engine(Box::new(self)))
    }
}

impl EngineAction for EtcdBackupKey {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            if context.check_mode() {
                let keys = Keys::load(&context.state, &self.cluster).map_err(failed)?;
                return Ok(Outcome { changed: keys.is_empty(), ..Outcome::ok() });
            }
            context.permit()?;
            let (_, made) = Keys::make(&context.state, &self.cluster).map_err(failed)?;
            Ok(Outcome { changed: made, ..Outcome::ok() })
        })
    }
}
