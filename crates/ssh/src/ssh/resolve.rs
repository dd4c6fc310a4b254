//! From what the inventory says and what `~/.ssh/config` says to what is actually done.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::config::{Config, HostConfig, Local, ProxySetting, Query};
use super::{Endpoint, SshError};

/// Beyond this a chain of jump hosts is taken for a loop.
const MAX_JUMPS: usize = 16;

/// The effective settings for one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    pub name: String,
    pub address: String,
    pub port: u16,
    pub user: String,
    pub identity_files: Vec<PathBuf>,
    /// So many of them, from the front, the inventory asked for: those must exist and be readable.
    pub required_identities: usize,
    pub identities_only: bool,
    pub agent_socket: Option<PathBuf>,
    pub certificate_files: Vec<PathBuf>,
    pub proxy: Proxy,
    pub user_known_hosts: Vec<PathBuf>,
    pub global_known_hosts: Vec<PathBuf>,
    pub host_key_alias: Option<String>,
    pub connect_timeout: Duration,
    /// Whether a key that was never seen may be recorded.
    pub accept_new: bool,
    /// Nothing but a key that was learnt before vouches for it.
    pub is_pinned: bool,
}

/// How to get to the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proxy {
    Direct,
    /// Through these hosts, nearest to us first. Only the first one's own `proxy` counts.
    Jump(Vec<Resolved>),
    /// Over the standard input and output of a local command.
    Command(String),
}

impl Resolved {
    /// `user@address:port`, the identity of a connection.
    pub(super) fn target(&self) -> String {
        match self.address.contains(':') {
            true => format!("{}@[{}]:{}", self.user, self.address, self.port),
            false => format!("{}@{}:{}", self.user, self.address, self.port),
        }
    }

    /// How messages call the host: its name, and where that is not the whole story its address.
    pub(super) fn label(&self) -> String {
        let address = match (self.address.contains(':'), self.port) {
            (false, 22) => self.address.clone(),
            (true, 22) => format!("[{}]", self.address),
            (false, port) => format!("{}:{port}", self.address),
            (true, port) => format!("[{}]:{port}", self.address),
        };
        match self.name == address {
            true => address,
            false => format!("{} ({address})", self.name),
        }
    }
}

/// Everything a lookup needs.
pub(super) struct Resolver<'a> {
    pub config: &'a Config,
    pub local: &'a Local,
    pub hosts: &'a HashMap<String, Endpoint>,
    pub connect_timeout: Duration,
    pub accept_new: bool,
    pub pins: Option<&'a Path>,
}

impl Resolver<'_> {
    pub fn resolve(&self, endpoint: &Endpoint) -> Result<Resolved, SshError> {
        self.resolve_at(endpoint, 0)
    }

    fn resolve_at(&self, endpoint: &Endpoint, depth: usize) -> Result<Resolved, SshError> {
        let found = self.config.query(Query {
            alias: &endpoint.name,
            address: endpoint.address.as_deref(),
            user: endpoint.user.as_deref(),
            local: self.local,
        })?;
        let mut resolved = self.merge(endpoint, &found)?;
        resolved.proxy = self.proxy(endpoint, &found, &resolved, depth)?;
        Ok(resolved)
    }

    fn merge(&self, endpoint: &Endpoint, found: &HostConfig) -> Result<Resolved, SshError> {
        let configured = found.host_name.as_ref().map(|name| {
            let name = name.replace("%h", &endpoint.name);
            name.replace("%%", "%")
        });
        let address = endpoint.address.clone().or(configured);
        let address = address.unwrap_or_else(|| endpoint.name.clone());
        if address.is_empty() || address.starts_with('-') || address.contains(char::is_whitespace) {
            return Err(SshError::BadEndpoint {
                host: endpoint.name.clone(),
                problem: format!("`{address}` is neither a host name nor an address"),
            });
        }
        let user = endpoint.user.clone().or_else(|| found.user.clone());
        if let Some(user) = user.as_ref().filter(|user| user.starts_with('-')) {
            return Err(SshError::BadEndpoint {
                host: endpoint.name.clone(),
                problem: format!("`{user}` is not a user name: it starts with a dash"),
            });
        }
        let mut resolved = Resolved {
            name: endpoint.name.clone(),
            address,
            port: endpoint.port.or(found.port).unwrap_or(22),
            user: user.unwrap_or_else(|| self.local.user.clone()),
            identity_files: Vec::new(),
            required_identities: 0,
            identities_only: endpoint.identities_only.or(found.identities_only).unwrap_or(false),
            agent_socket: None,
            certificate_files: Vec::new(),
            proxy: Proxy::Direct,
            user_known_hosts: Vec::new(),
            global_known_hosts: Vec::new(),
            host_key_alias: endpoint.host_key_alias.clone().or_else(|| found.host_key_alias.clone()),
            connect_timeout: endpoint.connect_timeout.or(found.connect_timeout).unwrap_or(self.connect_timeout),
            accept_new: self.accept_new && found.strict_host_keys != Some(true),
            is_pinned: false,
        };
        self.add_identities(endpoint, found, &mut resolved);
        match endpoint.pin.as_ref().filter(|_| endpoint.host_key_alias.is_none()) {
            Some(pin) => self.believe_only(pin, &mut resolved),
            None => self.add_known_hosts(endpoint, found, &mut resolved),
        }
        Ok(resolved)
    }

    fn add_identities(&self, endpoint: &Endpoint, found: &HostConfig, resolved: &mut Resolved) {
        let configured = found.identity_files.iter();
        let configured = configured.filter(|file| !file.eq_ignore_ascii_case("none"));
        let mut files = self.own_paths(&endpoint.identity_files);
        resolved.required_identities = files.len();
        files.extend(configured.map(|file| self.path(file, resolved)));
        if files.is_empty() && found.identity_files.is_empty() {
            let folder = self.local.home.join(".ssh");
            files = ["id_rsa", "id_ecdsa", "id_ed25519"].map(|name| folder.join(name)).into();
        }
        resolved.identity_files = files;

        let certificates = found.certificate_files.iter();
        let certificates = certificates.map(|file| self.path(file, resolved));
        let own = self.own_paths(endpoint.certificate_file.as_slice());
        resolved.certificate_files = own.into_iter().chain(certificates).collect();

        let environment = || std::env::var_os("SSH_AUTH_SOCK").filter(|path| !path.is_empty());
        resolved.agent_socket = match found.identity_agent.as_deref() {
            Some(none) if none.eq_ignore_ascii_case("none") => None,
            None | Some("SSH_AUTH_SOCK") => environment().map(PathBuf::from),
            Some(variable) if variable.starts_with('$') && !variable.starts_with("${") => {
                std::env::var_os(&variable[1..]).map(PathBuf::from)
            }
            Some(path) => Some(self.path(path, resolved)),
        };
    }

    /// The key of a guest was learnt from its hypervisor; nothing else may vouch for it.
    fn believe_only(&self, pin: &str, resolved: &mut Resolved) {
        resolved.host_key_alias = Some(pin.to_owned());
        resolved.user_known_hosts = self.pins.iter().map(|path| path.to_path_buf()).collect();
        resolved.accept_new = false;
        resolved.is_pinned = true;
    }

    fn add_known_hosts(&self, endpoint: &Endpoint, found: &HostConfig, resolved: &mut Resolved) {
        let folder = self.local.home.join(".ssh");
        let default_user = || vec![folder.join("known_hosts"), folder.join("known_hosts2")];
        let default_global = || {
            let names = ["/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"];
            names.map(PathBuf::from).into()
        };
        let listed = |names: &Vec<String>| -> Vec<PathBuf> {
            let names = names.iter().filter(|name| !name.eq_ignore_ascii_case("none"));
            names.map(|name| self.path(name, resolved)).collect()
        };
        let user = found.user_known_hosts.as_ref().map_or_else(default_user, listed);
        let global = found.global_known_hosts.as_ref().map_or_else(default_global, listed);
        let own = self.own_paths(&endpoint.known_hosts);
        resolved.user_known_hosts = own.into_iter().chain(user).collect();
        resolved.global_known_hosts = global;
    }

    /// Inventory paths know `~` but no percent tokens: a `%` in them is a `%`.
    fn own_paths(&self, paths: &[PathBuf]) -> Vec<PathBuf> {
        let expand = |path: &PathBuf| match path.to_str() {
            Some(text) => self.local.expand_home(text),
            None => path.clone(),
        };
        paths.iter().map(expand).collect()
    }

    fn path(&self, text: &str, resolved: &Resolved) -> PathBuf {
        let text = expand_environment(text);
        let text = expand_tokens(&text, resolved, self.local);
        self.local.expand_home(&text)
    }

    fn proxy(
        &self,
        endpoint: &Endpoint,
        found: &HostConfig,
        resolved: &Resolved,
        depth: usize,
    ) -> Result<Proxy, SshError> {
        let setting = match (endpoint.jump.as_slice(), &endpoint.proxy_command) {
            ([], None) => found.proxy.clone().unwrap_or(ProxySetting::None),
            ([], Some(command)) => ProxySetting::Command(command.clone()),
            ([none], _) if none.eq_ignore_ascii_case("none") => ProxySetting::None,
            (hops, _) => ProxySetting::Jump(hops.to_vec()),
        };
        match setting {
            ProxySetting::None => Ok(Proxy::Direct),
            ProxySetting::Command(command) if command.eq_ignore_ascii_case("none") => Ok(Proxy::Direct),
            ProxySetting::Command(command) => {
                refuse_shell_syntax(resolved)?;
                Ok(Proxy::Command(expand_tokens(&command, resolved, self.local)))
            }
            ProxySetting::Jump(hops) => self.jumps(endpoint, &hops, depth),
        }
    }

    fn jumps(&self, endpoint: &Endpoint, hops: &[String], depth: usize) -> Result<Proxy, SshError> {
        let bad = |problem: String| SshError::BadEndpoint { host: endpoint.name.clone(), problem };
        if depth >= MAX_JUMPS {
            return Err(bad("its jump hosts form a cycle".to_owned()));
        }
        let mut chain: Vec<Resolved> = Vec::new();
        for hop in hops {
            let mut hop =
                self.hop(hop).ok_or_else(|| bad(format!("`{hop}` is not a jump host; expected [user@]host[:port]")))?;
            if !chain.is_empty() {
                // It is reached through the hop before it, whatever its own settings say.
                hop.jump = vec!["none".to_owned()];
                hop.proxy_command = None;
            }
            let mut resolved = self.resolve_at(&hop, depth + 1)?;
            if let Proxy::Jump(before) = &mut resolved.proxy {
                chain.append(before);
                resolved.proxy = Proxy::Direct;
            }
            chain.push(resolved);
        }
        if chain.len() > MAX_JUMPS {
            return Err(bad(format!("more than {MAX_JUMPS} jump hosts in a row")));
        }
        Ok(Proxy::Jump(chain))
    }

    /// An inventory host by name, or `[user@]host[:port]`, with `ssh://` in front if you like.
    fn hop(&self, text: &str) -> Option<Endpoint> {
        if let Some(endpoint) = self.hosts.get(text) {
            return Some(endpoint.clone());
        }
        let text = text.strip_prefix("ssh://").unwrap_or(text);
        let (user, rest) = match text.rsplit_once('@') {
            Some((user, rest)) => (Some(user), rest),
            None => (None, text),
        };
        let (host, port) = split_port(rest)?;
        if host.is_empty() || user.is_some_and(str::is_empty) {
            return None;
        }
        let mut endpoint = match self.hosts.get(host) {
            Some(endpoint) => endpoint.clone(),
            None => Endpoint::new(host),
        };
        endpoint.user = user.map(str::to_owned).or(endpoint.user);
        endpoint.port = port.or(endpoint.port);
        Some(endpoint)
    }
}

/// These become part of a shell command line, where a name like `$(reboot)` would be run.
fn refuse_shell_syntax(resolved: &Resolved) -> Result<(), SshError> {
    let syntax = |c: char| c.is_whitespace() || c.is_control() || "'`\"$\\;&<>|(){}*?!#".contains(c);
    let alias = resolved.host_key_alias.iter();
    for value in [&resolved.name, &resolved.address, &resolved.user].into_iter().chain(alias) {
        // What begins with a dash would be taken for an option.
        if value.contains(syntax) || value.starts_with('-') {
            return Err(SshError::BadEndpoint {
                host: resolved.name.clone(),
                problem: format!("`{value}` is not allowed in a ProxyCommand"),
            });
        }
    }
    Ok(())
}

fn split_port(text: &str) -> Option<(&str, Option<u16>)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, port) = rest.split_once(']')?;
        let port = match port.strip_prefix(':') {
            Some(port) => Some(port.parse().ok()?),
            None if port.is_empty() => None,
            None => return None,
        };
        return Some((host, port));
    }
    match text.split_once(':') {
        // Several colons without brackets: an IPv6 address.
        Some((_, rest)) if rest.contains(':') => Some((text, None)),
        Some((host, port)) => Some((host, Some(port.parse().ok()?))),
        None => Some((text, None)),
    }
}

/// ssh's percent tokens, as far as they make sense before a connection is made.
fn expand_tokens(text: &str, resolved: &Resolved, local: &Local) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('%') => out.push('%'),
            Some('h') => out.push_str(&resolved.address),
            Some('n') => out.push_str(&resolved.name),
            Some('p') => out.push_str(&resolved.port.to_string()),
            Some('r') => out.push_str(&resolved.user),
            Some('u') => out.push_str(&local.user),
            Some('d') => out.push_str(&local.home.to_string_lossy()),
            Some('k') => {
                out.push_str(resolved.host_key_alias.as_deref().unwrap_or(&resolved.name));
            }
            Some(other) => out.extend(['%', other]),
            None => out.push('%'),
        }
    }
    out
}

/// `${NAME}`, which ssh allows in the paths of its configuration. Unset names stay as they are.
fn expand_environment(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((name, tail)) = after.split_once('}') else {
            break;
        };
        out.push_str(before);
        match std::env::var(name) {
            Ok(value) => out.push_str(&value),
            Err(_) => out.push_str(&format!("${{{name}}}")),
        }
        rest = tail;
    }
    out + rest
}

#[cfg(test)]
mod tests;
