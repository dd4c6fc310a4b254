//! The JSON Schema of an inventory file, for editors.

use std::collections::BTreeMap;

use schemars::{JsonSchema, generate::SchemaSettings};

use super::{
    entry::{ClusterEntry, Free, FreeMap, GroupEntry, HostEntry, HypervisorEntry, SshEntry},
    sections::Release,
};
use crate::model::Value;

/// An inventory of etcdrun: hypervisors, hosts, groups and clusters.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "it only stands for the shape of a file, which is read section by section")]
struct InventoryFile {
    /// Defaults for every connection.
    #[schemars(default)]
    ssh: SshEntry,
    /// Variables of every host.
    #[schemars(default)]
    vars: FreeMap,
    /// KVM hosts by name; a name can be a range like hv[1-40].
    #[schemars(default)]
    hypervisors: BTreeMap<String, Option<HypervisorEntry>>,
    /// Other hosts by name.
    #[schemars(default)]
    hosts: BTreeMap<String, Option<HostEntry>>,
    #[schemars(default)]
    groups: BTreeMap<String, Option<GroupEntry>>,
    #[schemars(default)]
    clusters: BTreeMap<String, Option<ClusterEntry>>,
    /// Releases of etcd that can be installed, by version.
    #[schemars(default)]
    etcd_releases: BTreeMap<String, Release>,
    /// An inventory in Ansible's own shape.
    #[schemars(default)]
    all: Free,
}

pub fn schema() -> Value {
    let mut schema = SchemaSettings::draft07().into_generator().into_root_schema_for::<InventoryFile>();
    schema.insert("title".into(), "etcdrun inventory".into());
    schema.to_value()
}
