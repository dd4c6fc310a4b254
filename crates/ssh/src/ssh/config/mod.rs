//! `ssh_config`: what `~/.ssh/config` says about one host.
//!
//! A parser of our own, because the crates at hand read the file differently from `ssh`:
//! ssh2-config has neither `Match` nor percent tokens, and russh-config has neither `Include` nor
//! `Match`. Reading it differently would mean connecting elsewhere than `ssh` does.
//!
//! The first value of a keyword wins, except `IdentityFile` and `CertificateFile`, which add up.
//! Unknown keywords are ignored. `Match exec` never matches: looking up a host runs nothing.

mod parse;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::SshError;
use super::pattern;
use parse::{Block, Condition, Criterion, Item, Setting};

/// The operator's side of the lookup: whose home, and which user name by default.
#[derive(Debug, Clone)]
pub(super) struct Local {
    pub home: PathBuf,
    pub user: String,
}

impl Local {
    pub fn from_env() -> Self {
        let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME"));
        Local {
            home: std::env::var_os("HOME").map_or_else(|| PathBuf::from("/root"), PathBuf::from),
            user: user.unwrap_or_else(|_| "root".to_owned()),
        }
    }

    /// Replaces a leading `~`, as the shell would.
    pub fn expand_home(&self, path: &str) -> PathBuf {
        match path.strip_prefix('~') {
            Some("") => self.home.clone(),
            Some(rest) if rest.starts_with('/') => self.home.join(rest.trim_start_matches('/')),
            _ => PathBuf::from(path),
        }
    }
}

/// All configuration files, in the order in which they are asked.
#[derive(Debug, Clone, Default)]
pub(super) struct Config {
    files: Vec<Arc<[Block]>>,
}

/// Whom a lookup is about. The overrides are what the inventory has already decided.
#[derive(Debug, Clone, Copy)]
pub(super) struct Query<'a> {
    pub alias: &'a str,
    pub address: Option<&'a str>,
    pub user: Option<&'a str>,
    pub local: &'a Local,
}

/// What the files say about one host. Paths still hold their tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct HostConfig {
    pub host_name: Option<String>,
    pub user: Option<String>,
    pub port: Option<u16>,
    pub identity_files: Vec<String>,
    pub identities_only: Option<bool>,
    pub identity_agent: Option<String>,
    pub certificate_files: Vec<String>,
    pub proxy: Option<ProxySetting>,
    pub user_known_hosts: Option<Vec<String>>,
    pub global_known_hosts: Option<Vec<String>>,
    pub host_key_alias: Option<String>,
    pub connect_timeout: Option<Duration>,
    /// `StrictHostKeyChecking yes`; the weaker values are not honoured and read as absent.
    pub strict_host_keys: Option<bool>,
}

/// ProxyJump and ProxyCommand compete: the first of either wins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProxySetting {
    None,
    Jump(Vec<String>),
    Command(String),
}

impl Config {
    /// Reads one given file, which must exist.
    pub fn load_file(path: &Path, local: &Local) -> Result<Self, SshError> {
        let blocks = parse::read_file(path, &local.home.join(".ssh"), local)?;
        Ok(Config { files: vec![blocks.into()] })
    }

    /// Reads the user's and the system's file, as far as they exist.
    pub fn load_default(local: &Local) -> Result<Self, SshError> {
        let user_folder = local.home.join(".ssh");
        let places = [
            (user_folder.join("config"), user_folder.as_path()),
            (PathBuf::from("/etc/ssh/ssh_config"), Path::new("/etc/ssh")),
        ];
        let mut files = Vec::new();
        for (path, folder) in places {
            if path.exists() {
                files.push(parse::read_file(&path, folder, local)?.into());
            }
        }
        Ok(Config { files })
    }

    pub fn query(&self, query: Query<'_>) -> Result<HostConfig, SshError> {
        let mut found = HostConfig::default();
        for blocks in &self.files {
            apply_blocks(blocks, query, &mut found)?;
        }
        Ok(found)
    }
}

fn apply_blocks(blocks: &[Block], query: Query<'_>, found: &mut HostConfig) -> Result<(), SshError> {
    for block in blocks {
        if !applies(&block.condition, query, found) {
            continue;
        }
        for item in &block.items {
            match item {
                Item::Setting(setting) => found.apply(setting)?,
                Item::Include(blocks) => apply_blocks(blocks, query, found)?,
            }
        }
    }
    Ok(())
}

fn applies(condition: &Condition, query: Query<'_>, found: &HostConfig) -> bool {
    match condition {
        Condition::Always => true,
        Condition::Host(patterns) => pattern::any_matches(patterns.iter().map(String::as_str), query.alias),
        Condition::Match(criteria) => criteria.iter().all(|c| holds(c, query, found)),
    }
}

fn holds(criterion: &Criterion, query: Query<'_>, found: &HostConfig) -> bool {
    let in_list = |list: &str, text: &str| pattern::any_matches(list.split(','), text);
    let outcome = match criterion.name.as_str() {
        "all" => true,
        "host" => {
            let named = found.host_name.as_ref().map(|n| n.replace("%h", query.alias));
            let host = query.address.map(str::to_owned).or(named);
            in_list(&criterion.value, host.as_deref().unwrap_or(query.alias))
        }
        "originalhost" => in_list(&criterion.value, query.alias),
        "user" => {
            let user = query.user.or(found.user.as_deref());
            in_list(&criterion.value, user.unwrap_or(&query.local.user))
        }
        "localuser" => in_list(&criterion.value, &query.local.user),
        // `exec` would run a command, and `canonical` and `final` need a second pass: we know
        // neither, so such a block does not apply, negated or not.
        _ => return false,
    };
    outcome != criterion.negated
}

impl HostConfig {
    fn apply(&mut self, setting: &Setting) -> Result<(), SshError> {
        match setting.keyword.as_str() {
            "hostname" => first(&mut self.host_name, || setting.one())?,
            "user" => first(&mut self.user, || setting.one())?,
            "port" => first(&mut self.port, || setting.port())?,
            "identityfile" => self.identity_files.push(setting.one()?),
            "certificatefile" => self.certificate_files.push(setting.one()?),
            "identitiesonly" => first(&mut self.identities_only, || setting.flag())?,
            "identityagent" => first(&mut self.identity_agent, || setting.one())?,
            "proxyjump" => first(&mut self.proxy, || setting.proxy_jump())?,
            "proxycommand" => first(&mut self.proxy, || setting.proxy_command())?,
            "userknownhostsfile" => first(&mut self.user_known_hosts, || setting.all())?,
            "globalknownhostsfile" => first(&mut self.global_known_hosts, || setting.all())?,
            "hostkeyalias" => first(&mut self.host_key_alias, || setting.one())?,
            "connecttimeout" => {
                let timeout = setting.timeout()?;
                self.connect_timeout = self.connect_timeout.or(timeout);
            }
            "stricthostkeychecking" => {
                let value = setting.one()?.to_ascii_lowercase();
                first(&mut self.strict_host_keys, || Ok(value == "yes" || value == "true"))?;
            }
            _ => {}
        }
        Ok(())
    }
}

fn first<T>(slot: &mut Option<T>, value: impl FnOnce() -> Result<T, SshError>) -> Result<(), SshError> {
    let value = value()?;
    slot.get_or_insert(value);
    Ok(())
}

#[cfg(test)]
mod tests;
