//! What the inventory says about how to reach a host.

use std::path::PathBuf;
use std::time::Duration;

/// How to reach one host. Whatever is left out comes from `~/.ssh/config`, then from defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, serde::Serialize)]
pub struct Endpoint {
    /// The inventory name; also the alias that is looked up in the SSH configuration.
    pub name: String,
    pub address: Option<String>,
    pub port: Option<u16>,
    pub user: Option<String>,
    pub identity_files: Vec<PathBuf>,
    pub identities_only: Option<bool>,
    pub certificate_file: Option<PathBuf>,
    /// A ProxyJump chain of `[user@]host[:port]` or inventory names, nearest to us first. Empty
    /// means whatever the SSH configuration says; `["none"]` means to go directly.
    pub jump: Vec<String>,
    pub proxy_command: Option<String>,
    /// Known-hosts files in front of the ones the SSH configuration names.
    pub known_hosts: Vec<PathBuf>,
    pub host_key_alias: Option<String>,
    /// A guest that etcdrun made: the name that its key is pinned by in [`super::Options::pins`]. No other file vouches for
    /// it, and its first answer is never taken on trust.
    pub pin: Option<String>,
    pub connect_timeout: Option<Duration>,
}

impl Endpoint {
    pub fn new(name: impl Into<String>) -> Self {
        Endpoint { name: name.into(), ..Endpoint::default() }
    }
}
