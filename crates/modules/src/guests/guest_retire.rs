//! `guest_retire`: a guest whose member leaves its cluster.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Action, BuildContext, Module, ModuleError, ResultField, domain_xml::NAMESPACE, libvirt};
use crate::{
    model::{Disruption, Effects},
    remote::Payload,
};

const BODY: &str =
    concat!(include_str!("libvirt.sh"), "\n", include_str!("../support/aside.sh"), include_str!("guest_retire.sh"));

/// Powers a guest off for good, and moves its disks aside.
///
/// The disks are renamed, with the time in their names, and the definition of the guest is saved next to them; then it is undefined.
/// Nothing is deleted without `purge`. A guest that etcdrun did not create, or that belongs to another cluster, is not changed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GuestRetire {
    name: String,
    /// The name of the cluster that it must belong to.
    cluster: String,
    /// Delete its disks instead of moving them aside.
    #[serde(default)]
    purge: bool,
}

impl Module for GuestRetire {
    const NAME: &'static str = "guest_retire";
    const EXAMPLE: &'static str = "\
- name: Stop the old guest and move its disks aside
  guest_retire: { name: etcd-2, cluster: prod }
  delegate_to: hv2
";
    const RESULT: &'static [ResultField] = &[
        ResultField { name: "was", doc: "What it did before: `running`, `shut off`, `absent` and so on." },
        ResultField { name: "aside", doc: "Where its disks are now, a line each." },
    ];

    fn effects(&self) -> Effects {
        // Whether the cluster can spare its member has been asked before.
        Effects::converging().disrupting(Disruption::Maybe).careful()
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        libvirt::check_name("guest", &self.name)?;
        let payload = Payload::new(BODY)
            .value("name", &self.name)
            .value("cluster", &self.cluster)
            .value("namespace", NAMESPACE)
            .flag("purge", self.purge);
        Ok(Action::Remote(payload))
    }
}
