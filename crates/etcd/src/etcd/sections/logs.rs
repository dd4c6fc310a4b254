//! What is wrong with the section `fluentbit`. Templates in it are rendered later; the role `fluent_bit` checks their values.

use std::path::Path;

use super::is_encrypted;
use crate::{
    inventory::{
        Cluster, Inventory,
        sections::{AuthMethod, AuthSection, FluentbitSection, Forward, LogSettings, Presence, Program, is_tag},
    },
    model::Span,
    pki,
    source::{Diagnostic, Sources, did_you_mean, from_node},
};

pub(super) fn problems(
    cluster: &Cluster,
    inventory: &Inventory,
    logs: &FluentbitSection,
    sources: &Sources,
) -> Vec<Diagnostic> {
    let mut check = Check { cluster, inventory, sources, found: Vec::new() };
    check.general(logs);
    check.inputs(logs);
    if let Some(forward) = &logs.forward {
        check.forward(forward);
    }
    if logs.etcd.enabled {
        check.settings(&logs.etcd);
    }
    check.program(logs.binary.as_ref(), &["binary"]);
    check.program(logs.etcd.etcdctl.as_ref(), &["etcd", "etcdctl"]);
    check.found
}

struct Check<'a> {
    cluster: &'a Cluster,
    inventory: &'a Inventory,
    sources: &'a Sources,
    found: Vec<Diagnostic>,
}

impl Check<'_> {
    fn general(&mut self, logs: &FluentbitSection) {
        let name = &self.cluster.name;
        if !logs.enabled {
            if logs.has_content() {
                let message = format!("`fluentbit` of `{name}` has no effect: it is not enabled");
                let help = "set `enabled: true` in it, or remove the section";
                self.found.push(Diagnostic::warning(self.place(&["enabled"]), message).help(help));
            }
            return;
        }
        if logs.forward.is_none() && !logs.etcd.enabled {
            let message = format!("`fluentbit` of `{name}` has no `forward`: it does not say where to send logs");
            self.error(
                &["enabled"],
                message,
                "add `forward: { domain: ..., ca_cert: ..., shared_key: ... }`; see docs/logs.md",
            );
        }
        if !logs.has_inputs() && !logs.etcd.enabled {
            let message = format!("`fluentbit` of `{name}` has no inputs: it does not say which logs to send");
            self.error(&["enabled"], message, "add `etcd_tag`, `journal` or `files`; see docs/logs.md");
        }
    }

    fn inputs(&mut self, logs: &FluentbitSection) {
        let name = &self.cluster.name;
        let mut wrong = Vec::new();
        for (field, tag) in logs.tags().filter(|(_, tag)| !is_tag(tag)) {
            let message = format!("`{}` in `fluentbit.{field}` of `{name}` is no tag", tag.0);
            wrong.push((field, message, "a tag has letters, digits, `.`, `_` and `-`, like prod.etcd"));
        }
        for input in logs.journal.iter().filter(|input| !input.is_unit()) {
            let message = format!("`{}` in `fluentbit.journal` of `{name}` is no unit", input.unit.0);
            wrong.push(("journal", message, "write it with its suffix, like ssh.service"));
        }
        for input in logs.files.iter().filter(|input| !input.is_path()) {
            let message = format!("`{}` in `fluentbit.files` of `{name}` is no path of log files", input.path.0);
            wrong.push((
                "files",
                message,
                "it must be absolute, without blanks, commas and `$`, like /var/log/app/*.log",
            ));
        }
        if !logs.metrics.has_address() {
            let message = format!("`fluentbit.metrics.listen` of `{name}` is not an IP address");
            wrong.push(("metrics", message, "write it like 127.0.0.1 or 0.0.0.0"));
        }
        if logs.buffer.limit.is_some_and(|limit| limit.0 < 1 << 20) {
            let message = format!("`fluentbit.buffer.limit` of `{name}` is too small");
            wrong.push(("buffer", message, "it must be at least 1MiB; it holds the logs of an outage of the receiver"));
        }
        wrong.into_iter().for_each(|(field, message, help)| self.error(&[field], message, help));
    }

    fn forward(&mut self, forward: &Forward) {
        let name = self.cluster.name.clone();
        if !forward.has_domain() {
            let message =
                format!("`{}` in `fluentbit.forward.domain` of `{name}` is no name and no address", forward.domain.0);
            self.error(
                &["forward", "domain"],
                message,
                "write it as logs.example.org or 192.0.2.1; the port is `port`",
            );
        }
        if forward.port == Some(0) {
            self.error(
                &["forward", "port"],
                format!("`fluentbit.forward.port` of `{name}` is 0"),
                "Fluentd listens on 24224",
            );
        }
        if !forward.has_hostname() {
            let message = format!("`fluentbit.forward.hostname` of `{name}` is no name");
            self.error(&["forward", "hostname"], message, "a name has letters, digits, `.`, `_` and `-`");
        }
        if !forward.has_shared_key() {
            let message =
                format!("`fluentbit.forward.shared_key` of `{name}` is empty, or has blanks, line ends or `$` in it");
            self.error(
                &["forward", "shared_key"],
                message,
                "choose another one: Fluent Bit would not read it as it is",
            );
        }
        if let Some(option) = forward.wrong_option() {
            let message = format!("`{option}` in `fluentbit.forward.options` of `{name}` is no further property");
            let help = "it has letters, digits, `.` and `_`, a value in one line without `$`, and no key of its own in `forward`";
            self.error(&["forward", "options"], message, help);
        }
        let tls = forward.tls.unwrap_or(true);
        if let Some(file) = &forward.ca_cert {
            if !tls {
                let message = format!("`fluentbit.forward` of `{name}` has a `ca_cert`, and no TLS");
                self.error(&["forward", "tls"], message, "remove one of them");
            } else {
                self.trusted(file, &["forward", "ca_cert"]);
            }
        }
    }

    fn settings(&mut self, settings: &LogSettings) {
        let name = self.cluster.name.clone();
        if !settings.has_prefix() {
            let message = format!("`fluentbit.etcd.key_prefix` of `{name}` is missing, or is no prefix of keys");
            self.error(
                &["etcd", "key_prefix"],
                message,
                "it has letters, digits, `.`, `_`, `-` and `/`, like /fluent-bit/",
            );
        }
        if settings.cluster.is_some() != settings.endpoints.is_empty() {
            let message = format!("`fluentbit.etcd` of `{name}` needs one of `cluster` and `endpoints`");
            self.error(
                &["etcd", "endpoints"],
                message,
                "`cluster` is one of this inventory; `endpoints` are like 10.0.0.1:2379",
            );
        }
        if let Some(endpoint) = settings.wrong_endpoint() {
            let message = format!("`{endpoint}` in `fluentbit.etcd.endpoints` of `{name}` is no address with a port");
            self.error(
                &["etcd", "endpoints"],
                message,
                "write it like 10.0.0.1:2379 or [fd00::1]:2379, without https://",
            );
        }
        match &settings.cluster {
            Some(other) => self.own_cluster(other, settings),
            None => self.foreign_cluster(settings),
        }
    }

    fn own_cluster(&mut self, other: &str, settings: &LogSettings) {
        let client = &settings.client;
        let Some(owner) = self.inventory.clusters().find(|cluster| cluster.name.as_str() == other) else {
            let names = self.inventory.clusters().map(|cluster| cluster.name.as_str());
            let help = did_you_mean(other, names).unwrap_or_else(|| "name a cluster, or use `endpoints`".to_owned());
            self.error(&["etcd", "cluster"], format!("the inventory has no cluster `{other}`"), &help);
            return;
        };
        if settings.ca_certificate.is_some() || client.certificate.is_some() || client.key.is_some() {
            let message = "`ca_certificate`, `certificate` and `key` in `fluentbit.etcd` do not go with `cluster`";
            self.error(
                &["etcd", "cluster"],
                message.to_owned(),
                "remove them: etcdrun has the CA of that cluster, and issues a certificate",
            );
        }
        let auth = match owner.sections.get("auth") {
            Some(node) => from_node::<AuthSection>(node).ok(),
            None => Some(AuthSection::default()),
        };
        let Some(auth) = auth.filter(AuthSection::is_enabled) else { return };
        let user = client.username.as_deref().unwrap_or_default();
        let known = auth.users.get(user).map(|user| user.clone().unwrap_or_default());
        let known = known.filter(|user| user.state == Presence::Present);
        let has_password = client.password.is_some() || known.as_ref().is_some_and(|user| user.password.is_some());
        if known.is_none() || auth.method() == AuthMethod::Password && !has_password {
            let what = if auth.method() == AuthMethod::Password { " with a password" } else { "" };
            let message =
                format!("`auth.users` of `{other}` has no user `{user}`{what}, which reads Fluent Bit's configuration");
            let help =
                "name one in `fluentbit.etcd.client.username`, with a role that reads `key_prefix`; see docs/logs.md";
            self.error(&["etcd", "client"], message, help);
        }
    }

    fn foreign_cluster(&mut self, settings: &LogSettings) {
        let (name, client) = (self.cluster.name.clone(), &settings.client);
        match &settings.ca_certificate {
            Some(file) => self.trusted(file, &["etcd", "ca_certificate"]),
            None if !settings.endpoints.is_empty() => {
                let message = format!("`fluentbit.etcd` of `{name}` has no `ca_certificate`");
                self.error(&["etcd", "endpoints"], message, "add the certificate of the CA of that etcd cluster");
            }
            None => {}
        }
        let place = &["etcd", "client"];
        if client.username.is_some() != client.password.is_some() {
            self.error(place, "`username` and `password` go together".to_owned(), "set both, or use a certificate");
        }
        match (&client.certificate, &client.key) {
            (Some(certificate), Some(key)) => {
                let are_here = [certificate, key].map(|file| self.is_here(file, place));
                if are_here.contains(&false) || self.sources.value_opener().is_none() && is_encrypted(key) {
                    return;
                }
                if let Err(error) = pki::check_client(certificate, key, self.sources.opener()) {
                    self.found.push(Diagnostic::error(self.place(place), error.message).maybe_help(error.help));
                }
            }
            (None, None) => {}
            _ => self.error(place, "`certificate` and `key` go together".to_owned(), "set both, or use a password"),
        }
    }

    fn program(&mut self, program: Option<&Program>, path: &[&str]) {
        let Some(Program { file, url, sha256 }) = program else { return };
        let (name, field) = (self.cluster.name.clone(), path.join("."));
        if file.is_some() == url.is_some() {
            let message = format!("`fluentbit.{field}` of `{name}` needs one of `file` and `url`");
            self.error(path, message, "`file` is on your workstation; hosts download from `url`");
        }
        if let Some(file) = file {
            self.is_here(file, path);
        }
        if !sha256.as_deref().is_some_and(|sum| sum.len() == 64 && sum.bytes().all(|byte| byte.is_ascii_hexdigit())) {
            let message = format!("`fluentbit.{field}` of `{name}` has no SHA-256 checksum");
            self.error(path, message, "add `sha256`, 64 hexadecimal digits; `sha256sum FILE` prints it");
        }
    }

    fn trusted(&mut self, file: &str, path: &[&str]) {
        if self.is_here(file, path)
            && let Err(error) = pki::check_trusted(file)
        {
            self.found.push(Diagnostic::error(self.place(path), error.message).maybe_help(error.help));
        }
    }

    /// Only the role `fluent_bit` needs these files, and an inventory may also be on hosts that only take backups.
    fn is_here(&mut self, file: &str, path: &[&str]) -> bool {
        let is_here = Path::new(file).exists();
        if !is_here {
            let message = format!("cannot copy {file}: there is no such file");
            let help = "`site.yaml` fails without it; other commands do not need it";
            self.found.push(Diagnostic::warning(self.place(path), message).help(help));
        }
        is_here
    }

    fn error(&mut self, path: &[&str], message: String, help: &str) {
        self.found.push(Diagnostic::error(self.place(path), message).help(help));
    }

    /// Where this is written, or what it belongs to.
    fn place(&self, path: &[&str]) -> Option<Span> {
        let mut node = self.cluster.sections.get("fluentbit")?;
        for field in path {
            match node.as_map().and_then(|map| map.get(field)) {
                Some(inner) => node = inner,
                None => break,
            }
        }
        Some(node.span)
    }
}
