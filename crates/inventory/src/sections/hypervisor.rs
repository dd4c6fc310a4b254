//! `pools`, `networks` and `images`: what a hypervisor has for its guests.

use schemars::JsonSchema;
use serde::Deserialize;

use super::super::entry::{Cidr, Ip, Parsed};

/// A storage pool that is a folder.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in super::super) struct Pool {
    /// The folder.
    pub path: Option<String>,
}

/// A libvirt network that etcdrun keeps.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in super::super) struct Network {
    /// `nat` if not given.
    pub mode: Option<NetworkMode>,
    /// The bridge: the one that libvirt makes, or with `mode: bridge` the one that exists.
    pub bridge: Option<String>,
    /// The hypervisor's own address in the network, with its prefix length.
    pub address: Option<Parsed<Cidr>>,
    /// Addresses that are given out by DHCP.
    pub dhcp: Option<DhcpRange>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in super::super) enum NetworkMode {
    /// Guests reach out through the hypervisor; nobody else reaches them.
    Nat,
    /// As `nat`, without the translation of addresses.
    Route,
    /// Only between the guests of this hypervisor, and itself.
    Isolated,
    /// A bridge of the hypervisor that exists.
    Bridge,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "it only checks what roles then read as a node")]
pub(in super::super) struct DhcpRange {
    pub start: Parsed<Ip>,
    pub end: Parsed<Ip>,
}

/// A base image that etcdrun brings to the hypervisor: a file of the operator, or a URL.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in super::super) struct Image {
    /// The pool it is kept in; `default` if not given.
    pub pool: Option<String>,
    /// A file of the operator.
    pub file: Option<String>,
    /// Where it can be downloaded.
    pub url: Option<String>,
    /// Its SHA-256 checksum; needed with `url`.
    pub sha256: Option<String>,
}
