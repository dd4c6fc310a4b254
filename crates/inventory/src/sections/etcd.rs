//! `etcd`: what a cluster's servers are like; and the catalogue of releases.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;

use super::Text;
use crate::model::{ByteSize, Version};

/// Settings of etcd, for every member that does not override them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EtcdSection {
    /// The full version of the release to run: 3.5.34. It must be in `etcd_releases`.
    pub version: Option<Version>,
    /// The size of the database at which etcd rejects writes; default: 8GiB.
    pub quota: Option<ByteSize>,
    pub compaction: Compaction,
    /// Whether the REST gateway is enabled. It does not work with certificate authentication, unless authentication is disabled.
    pub gateway: Option<bool>,
    pub metrics: Metrics,
    /// The data directory: a separate directory, not the mount point of a disk; default: /var/lib/etcd/data.
    pub data_dir: Option<String>,
    /// A disk for the data: formatted if it is blank, and mounted on the parent directory of `data_dir`.
    pub data_device: Option<String>,
    /// The file system of `data_device`; default: ext4.
    pub data_fstype: Option<String>,
    /// The port for clients; default: 2379.
    pub client_port: Option<u16>,
    /// The port for other members; default: 2380.
    pub peer_port: Option<u16>,
    /// The address that etcd binds and advertises; default: that of the first interface, or `address`.
    pub ip: Option<String>,
    /// The initial cluster token; default: a random one.
    pub token: Option<String>,
    /// How members find each other at the bootstrap; default: by the inventory.
    pub discovery: Discovery,
    /// debug, info, warn, error, panic or fatal; default: info.
    pub log_level: Option<LogLevel>,
    /// More settings, by the names of etcd's flags. A setting that this version of etcd does not have is an error.
    pub settings: IndexMap<String, Text>,
}

/// How old revisions are compacted.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Compaction {
    /// What `retention` counts; default: revision.
    pub mode: Option<CompactionMode>,
    /// Revisions to keep, or a time such as 1h; default: 1000.
    pub retention: Option<Text>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CompactionMode {
    Revision,
    Periodic,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Metrics {
    /// The level of detail; default: basic.
    pub level: Option<MetricsLevel>,
    /// More URLs that serve `/metrics` and `/health`, such as http://127.0.0.1:2381.
    pub urls: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MetricsLevel {
    Basic,
    Extensive,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    Info,
    Debug,
    Warn,
    Error,
    Panic,
    Fatal,
}

/// Discovery of members without the inventory; set one of them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Discovery {
    /// The URL of a discovery service, created for this cluster.
    pub url: Option<String>,
    /// A domain whose SRV records name the members.
    pub dns_srv: Option<String>,
}

/// One release of etcd: a file here or a URL, and its checksum.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Release {
    /// The etcd binary, or the release's tarball, on your workstation; relative to this file.
    pub file: Option<String>,
    /// Where hosts download the binary, or the release's tarball.
    pub url: Option<String>,
    /// The checksum of the file.
    pub sha256: Option<Sha256Sum>,
}

/// A checksum: 64 hexadecimal digits.
pub type Sha256Sum = String;
