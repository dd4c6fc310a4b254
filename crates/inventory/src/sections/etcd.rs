//! `etcd`: what a cluster's servers are like; and the catalogue of releases.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;

use super::Text;
use crate::model::{ByteSize, Version};

/// Settings of etcd, the same on every member unless a member says otherwise.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EtcdSection {
    /// The release to run, whole: 3.5.34. It must be in `etcd_releases`.
    pub version: Option<Version>,
    /// How much the database may hold before etcd takes no more writes. 8GiB if not given.
    pub quota: Option<ByteSize>,
    pub compaction: Compaction,
    /// Whether the REST gateway answers. It cannot go with certificate authentication, unless authentication is off.
    pub gateway: Option<bool>,
    pub metrics: Metrics,
    /// Where the data is: a folder of its own, not the mount point of a disk. /var/lib/etcd/data if not given.
    pub data_dir: Option<String>,
    /// A disk for the data: it gets a file system if it has none, and is mounted on the folder above `data_dir`.
    pub data_device: Option<String>,
    /// The file system of `data_device`. ext4 if not given.
    pub data_fstype: Option<String>,
    /// Where clients connect. 2379 if not given.
    pub client_port: Option<u16>,
    /// Where the other members connect. 2380 if not given.
    pub peer_port: Option<u16>,
    /// The address that etcd binds and advertises, if it is not that of the first interface, or `address`.
    pub ip: Option<String>,
    /// What tells this cluster from others while it forms. A random one if not given.
    pub token: Option<String>,
    /// How members find each other when the cluster forms. By the inventory if not given.
    pub discovery: Discovery,
    /// debug, info, warn, error, panic or fatal. info if not given.
    pub log_level: Option<LogLevel>,
    /// More settings, by the names of etcd's own flags. Those that this version of etcd lacks are an error.
    pub settings: IndexMap<String, Text>,
}

/// How old revisions go away.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Compaction {
    /// What `retention` counts. revision if not given.
    pub mode: Option<CompactionMode>,
    /// Revisions to keep, or a time such as 1h. 1000 if not given.
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
    /// How much is measured. basic if not given.
    pub level: Option<MetricsLevel>,
    /// More URLs that answer `/metrics` and `/health`, such as http://127.0.0.1:2381.
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

/// Other ways for members to find each other than the inventory: one of them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Discovery {
    /// The URL of a discovery service, made for this cluster.
    pub url: Option<String>,
    /// A domain whose SRV records name the members.
    pub dns_srv: Option<String>,
}

/// One release of etcd: a file here or a URL, and its checksum.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Release {
    /// The server's binary, or the release's tarball, on this machine; relative to this file.
    pub file: Option<String>,
    /// Where the hosts get the binary, or the release's tarball.
    pub url: Option<String>,
    /// The checksum of the file.
    pub sha256: Option<Sha256Sum>,
}

/// A checksum: 64 hexadecimal digits.
pub type Sha256Sum = String;
