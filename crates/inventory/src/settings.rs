//! SSH settings of one level, and how levels merge.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use super::entry::{OneOrMany, SshEntry};
use crate::{model::Span, source::Sources, ssh::Endpoint};

/// How to reach one host, as far as the inventory says; the SSH configuration fills the rest.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Settings {
    pub(super) address: Option<String>,
    pub(super) port: Option<u16>,
    pub(super) user: Option<String>,
    pub(super) identity_files: Option<Vec<PathBuf>>,
    /// Where those were written.
    pub(super) identity_place: Option<Span>,
    pub(super) identities_only: Option<bool>,
    pub(super) certificate_file: Option<PathBuf>,
    pub(super) jump: Option<Vec<String>>,
    pub(super) proxy_command: Option<String>,
    pub(super) known_hosts: Option<Vec<PathBuf>>,
    pub(super) host_key_alias: Option<String>,
    pub(super) connect_timeout: Option<Duration>,
    pub(super) r#become: Option<bool>,
    pub(super) become_user: Option<String>,
}

impl Settings {
    /// `folder` says where the file lies that sets a field; its paths are relative to it.
    pub(super) fn from_entry(entry: SshEntry, folder: impl Fn(&str) -> PathBuf) -> Self {
        let files = |field: &str, list: Option<OneOrMany>| {
            list.map(|list| list.0.iter().map(|file| resolve(&folder(field), file)).collect())
        };
        Self {
            address: None,
            port: entry.port.map(|port| port.0),
            user: entry.user,
            identity_files: files("identity_file", entry.identity_file),
            identity_place: None,
            identities_only: entry.identities_only,
            certificate_file: entry.certificate_file.map(|file| resolve(&folder("certificate_file"), &file)),
            jump: entry.jump.map(|list| list.0),
            proxy_command: entry.proxy_command,
            known_hosts: files("known_hosts", entry.known_hosts),
            host_key_alias: entry.host_key_alias,
            connect_timeout: entry.connect_timeout.map(|seconds| seconds.0),
            r#become: entry.r#become,
            become_user: entry.become_user,
        }
    }

    pub(super) fn endpoint(self, name: &str) -> Endpoint {
        Endpoint {
            name: name.to_owned(),
            address: self.address,
            port: self.port,
            user: self.user,
            identity_files: self.identity_files.unwrap_or_default(),
            identities_only: self.identities_only,
            certificate_file: self.certificate_file,
            jump: self.jump.unwrap_or_default(),
            proxy_command: self.proxy_command,
            known_hosts: self.known_hosts.unwrap_or_default(),
            host_key_alias: self.host_key_alias,
            pin: None,
            connect_timeout: self.connect_timeout,
        }
    }

    /// Takes over whatever the more specific level says.
    pub(super) fn overlay(&mut self, specific: &Self) {
        fn put<T: Clone>(into: &mut Option<T>, from: Option<&T>) {
            if let Some(value) = from {
                *into = Some(value.clone());
            }
        }
        // A jump and a proxy command are two answers to one question: the specific answer replaces both.
        if specific.jump.is_some() || specific.proxy_command.is_some() {
            self.jump.clone_from(&specific.jump);
            self.proxy_command.clone_from(&specific.proxy_command);
        }
        put(&mut self.address, specific.address.as_ref());
        put(&mut self.port, specific.port.as_ref());
        put(&mut self.user, specific.user.as_ref());
        put(&mut self.identity_files, specific.identity_files.as_ref());
        put(&mut self.identity_place, specific.identity_place.as_ref());
        put(&mut self.identities_only, specific.identities_only.as_ref());
        put(&mut self.certificate_file, specific.certificate_file.as_ref());
        put(&mut self.known_hosts, specific.known_hosts.as_ref());
        put(&mut self.host_key_alias, specific.host_key_alias.as_ref());
        put(&mut self.connect_timeout, specific.connect_timeout.as_ref());
        put(&mut self.r#become, specific.r#become.as_ref());
        put(&mut self.become_user, specific.become_user.as_ref());
    }
}

/// A path as the inventory means it: `~/` is the home directory, the rest is relative to the file.
pub(super) fn resolve(folder: &Path, path: &str) -> PathBuf {
    match (path.strip_prefix("~/"), std::env::home_dir()) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => folder.join(path),
    }
}

/// The folder of the file that something was written in.
pub(super) fn folder(sources: &Sources, span: Span) -> PathBuf {
    sources.path(span.file).parent().map(PathBuf::from).unwrap_or_default()
}
