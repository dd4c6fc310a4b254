//! Hosts on the way: those of an inventory, and addresses.

use std::{net::IpAddr, path::PathBuf};

use crate::{
    cli::support::{CliError, visit::Hosts},
    etcd::observe::Listed,
    inventory::{Host, HostId, Inventory, is_name},
    membership::{Url, is_address},
    model::{Value, ValueMap},
    remote::Session,
    source::Sources,
};

/// A host to be visited: one of the inventory, or an address.
#[derive(Clone, Debug)]
pub(super) struct Stop {
    pub(super) user: Option<String>,
    pub(super) host: String,
    pub(super) port: Option<u16>,
    /// What it may be called in the inventory.
    pub(super) name: Option<String>,
}

impl Stop {
    pub(super) fn of(via: &str) -> Result<Self, CliError> {
        let wrong = || {
            CliError::usage_with_help(
                format!("`{via}` is not an address"),
                Some("write [user@]address[:port]".to_owned()),
            )
        };
        let (user, rest) = via.rsplit_once('@').map_or((None, via), |(user, rest)| (Some(user.to_owned()), rest));
        let (host, port) = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, port)) => (host, port.strip_prefix(':')),
            None if rest.parse::<IpAddr>().is_ok() => (rest, None),
            None => rest.split_once(':').map_or((rest, None), |(host, port)| (host, Some(port))),
        };
        let port = port.map(str::parse).transpose().map_err(|_| wrong())?;
        match is_name(host) || is_address(host) {
            true => Ok(Self { user, host: host.to_owned(), port, name: Some(host.to_owned()) }),
            false => Err(wrong()),
        }
    }

    pub(super) fn find<'a>(&self, inventory: &'a Inventory) -> Option<&'a Host> {
        let named = self.name.as_deref().and_then(|name| inventory.host(name));
        named.or_else(|| inventory.hosts().find(|host| host.address() == self.host))
    }

    /// As an inventory describes it that does not have it yet.
    pub(super) fn entry(&self) -> Value {
        let mut entry = ValueMap::from_iter([("address".to_owned(), Value::from(self.host.clone()))]);
        entry.extend(self.user.clone().map(|user| ("user".to_owned(), user.into())));
        entry.extend(self.port.map(|port| ("port".to_owned(), port.into())));
        entry.into()
    }
}

/// Hosts that can be visited.
pub(super) struct Way {
    pub(super) hosts: Hosts,
    pub(super) sources: Sources,
    pub(super) r#become: bool,
}

impl Way {
    pub(super) fn session(&self, id: HostId) -> Session {
        self.hosts.visit.session(id)
    }

    /// How a host is reached, as an inventory says it.
    pub(super) fn ssh(&self, id: HostId) -> ValueMap {
        let host = self.hosts.inventory.host_by_id(id);
        let endpoint = &host.endpoint;
        let paths = |paths: &[PathBuf]| -> Option<Value> {
            let whole =
                |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone()).display().to_string();
            (!paths.is_empty()).then(|| paths.iter().map(|path| Value::from(whole(path))).collect())
        };
        let fields = [
            ("user", endpoint.user.clone().map(Value::from)),
            ("port", endpoint.port.map(Value::from)),
            ("identity_file", paths(&endpoint.identity_files)),
            ("identities_only", endpoint.identities_only.map(Value::from)),
            ("certificate_file", endpoint.certificate_file.as_ref().map(|path| path.display().to_string().into())),
            ("jump", (!endpoint.jump.is_empty()).then(|| endpoint.jump.clone().into())),
            ("proxy_command", endpoint.proxy_command.clone().map(Value::from)),
            ("known_hosts", paths(&endpoint.known_hosts)),
            ("host_key_alias", endpoint.host_key_alias.clone().map(Value::from)),
            ("become", (self.r#become || host.r#become == Some(true)).then(|| true.into())),
        ];
        fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }
}

pub(super) fn find(way: &Way, stop: &Stop) -> Result<HostId, CliError> {
    let host = stop.find(&way.hosts.inventory).map(|host| host.id);
    host.ok_or_else(|| CliError::Unexpected(format!("cannot reach {}", stop.host)))
}

/// Where a member's machine is: known for the first, and where its peers find it for the others.
pub(super) fn stop_at(member: &Listed, place: &Url, first: &Stop, first_id: u64) -> Stop {
    match member.id == first_id {
        true => first.clone(),
        false => Stop { host: place.host.clone(), name: Some(member.name.clone()), ..first.clone() },
    }
}
