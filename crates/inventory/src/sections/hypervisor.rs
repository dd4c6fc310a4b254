//! `pools`, `networks` and `images`: what a hypervisor has for its guests.

use schemars::JsonSchema;
use serde::Deserialize;

use super::super::entry::{Cidr, Ip, Parsed};

/// A storage pool that is a directory.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in super::super) struct Pool {
    /// The directory.
    pub path: Option<String>,
}

/// A libvirt network that etcdrun defines.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in super::super) struct Network {
    /// Default: `nat`.
    pub mode: Option<NetworkMode>,
    /// The bridge: the one that libvirt creates, or with `mode: bridge` an existing one.
    pub bridge: Option<String>,
    /// The hypervisor's own address in the network, with its prefix length.
    pub address: Option<Parsed<Cidr>>,
    /// Addresses for DHCP.
    pub dhcp: Option<DhcpRange>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in super::super) enum NetworkMode {
    /// Guests connect out through the hypervisor; they cannot be reached from outside.
    Nat,
    /// As `nat`, without the translation of addresses.
    Route,
    /// Only between the guests of this hypervisor, and itself.
    Isolated,
    /// An existing bridge of the hypervisor.
    Bridge,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "it only checks what roles then read as a node")]
pub(in super::super) struct DhcpRange {
    pub start: Parsed<Ip>,
    pub end: Parsed<Ip>,
}

/// A base image that etcdrun copies to the hypervisor: a file on your workstation, or a URL.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in super::super) struct Image {
    /// The pool for the image; default: `default`.
    pub pool: Option<String>,
    /// A file on your workstation.
    pub file: Option<String>,
    /// The URL to download it from.
    pub url: Option<String>,
    /// Its SHA-256 checksum; required with `url`.
    pub sha256: Option<String>,
}
