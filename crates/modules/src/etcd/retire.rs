//! `etcd_retire`: a machine whose member has left its cluster.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Action, BuildContext, Module, ModuleError, ResultField};
use crate::{
    model::{Disruption, Effects, Resource},
    remote::Payload,
};
use etcdrun_etcd::etcd::UNIT;

const BODY: &str =
    concat!(include_str!("../support/systemd.sh"), include_str!("../support/aside.sh"), include_str!("retire.sh"));

/// Stops etcd on the host of a removed member, and moves its data aside.
///
/// Nothing is deleted: the directory is renamed, with the time in its name. The data of a removed member can
/// never join a cluster again, so it must not be used by a new member.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EtcdRetire {
    /// The data directory.
    data_dir: String,
    /// Do not start it at boot any more.
    #[serde(default)]
    disable: bool,
    /// Move only data of an unfinished join, which this file marks, and what an etcd without a cluster has left. Other data is an error.
    #[serde(default)]
    unfinished: Option<String>,
}

impl Module for EtcdRetire {
    const NAME: &'static str = "etcd_retire";
    const EXAMPLE: &'static str = "\
- name: Stop the old member and move its data aside
  etcd_retire: { data_dir: /var/lib/etcd/data, disable: true }
";
    const RESULT: &'static [ResultField] =
        &[ResultField { name: "aside", doc: "Where the data is now, if there was any." }];

    fn effects(&self) -> Effects {
        // Whether the member may go has been asked before; where it has gone already, nothing is taken down.
        Effects::converging()
            .disrupting(Disruption::Maybe)
            .careful()
            .on([Resource::Unit(UNIT.into()), Resource::tree(&self.data_dir)])
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        let data_dir = self.data_dir.trim_end_matches('/');
        if !data_dir.starts_with('/') || data_dir.matches('/').count() < 2 {
            return Err(ModuleError::new(format!("`{}` is not a directory for data only", self.data_dir)));
        }
        let payload = Payload::new(BODY).value("unit", UNIT).value("data_dir", data_dir).flag("disable", self.disable);
        let payload = payload.value("unfinished", self.unfinished.as_deref().unwrap_or_default());
        Ok(Action::Remote(payload))
    }
}
