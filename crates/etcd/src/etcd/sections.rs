//! What the sections of a cluster must agree on, once all files have merged.

mod logs;

use std::{collections::HashMap, path::PathBuf};

use super::{
    advisories::{Concern, is_forbidden},
    keys::expand_keys,
    settings,
};
use crate::{
    inventory::{
        self, Cluster, Host, Inventory,
        sections::{
            AuthMethod, AuthRole, AuthSection, BalancerSection, CaSection, ChronySection, EtcdSection,
            FluentbitSection, KeyEntry, KeyProblem, KeysSection, MAX_REQUEST, MemberTls, Presence, Release, TimeSource,
            TlsSection, request_size,
        },
    },
    model::{Span, Version},
    pki::{self, PkiError},
    source::{self, Diagnostic, Diagnostics, Node, Sources, did_you_mean, from_node, is_sealed},
};

/// Loads inventories, and checks what etcd and its certificates ask of them.
pub fn load_inventory(paths: &[PathBuf], sources: &mut Sources, diagnostics: &mut Diagnostics) -> Inventory {
    let inventory = inventory::load(paths, sources, diagnostics);
    agree(&inventory, sources, diagnostics);
    inventory
}

/// Checks every cluster. What does not even have the right shape was reported before, and is passed over.
fn agree(inventory: &Inventory, sources: &Sources, diagnostics: &mut Diagnostics) {
    let releases = releases(inventory, diagnostics);
    for cluster in inventory.clusters() {
        let check = Check { inventory, cluster, releases: &releases, sources, diagnostics };
        check.run();
    }
}

/// The catalogue, with what is wrong in it reported.
fn releases(inventory: &Inventory, diagnostics: &mut Diagnostics) -> HashMap<Version, Release> {
    let mut known = HashMap::new();
    for (name, node) in inventory.etcd_releases.iter() {
        match name.parse::<Version>() {
            Ok(version) => {
                if let Ok(release) = from_node::<Release>(node) {
                    check_release(name, &release, node, diagnostics);
                    known.insert(version, release);
                }
            }
            Err(error) => diagnostics.error(node.span, error.to_string()),
        }
    }
    known
}

fn check_release(name: &str, release: &Release, node: &Node, diagnostics: &mut Diagnostics) {
    match (&release.file, &release.url) {
        (Some(_), Some(_)) => diagnostics.error(node.span, format!("etcd {name} has both a `file` and a `url`")),
        (None, None) => diagnostics.error(node.span, format!("etcd {name} has neither a `file` nor a `url`")),
        _ => {}
    }
    match &release.sha256 {
        Some(sum) if sum.len() == 64 && sum.bytes().all(|byte| byte.is_ascii_hexdigit()) => {}
        Some(sum) => diagnostics.push(
            Diagnostic::error(place(node, "sha256"), format!("`{sum}` is not a SHA-256 checksum"))
                .help("it has 64 hexadecimal digits; `sha256sum FILE` prints it"),
        ),
        None => diagnostics.push(
            Diagnostic::error(node.span, format!("etcd {name} has no checksum"))
                .help("add `sha256`; releases of etcd come with a file SHA256SUMS, and `sha256sum FILE` prints it"),
        ),
    }
}

struct Check<'a> {
    inventory: &'a Inventory,
    cluster: &'a Cluster,
    releases: &'a HashMap<Version, Release>,
    sources: &'a Sources,
    diagnostics: &'a mut Diagnostics,
}

impl Check<'_> {
    fn run(mut self) {
        self.count();
        let auth = self.section::<AuthSection>("auth");
        let etcd = self.section::<EtcdSection>("etcd");
        if let Some(tls) = self.section::<TlsSection>("tls") {
            self.authority(&tls);
        }
        if let Some(auth) = &auth {
            self.auth(auth);
        }
        if let Some(chrony) = self.section::<ChronySection>("chrony") {
            self.time(&chrony);
        }
        if let (Some(Some(balancer)), Some(tls)) =
            (self.section::<Option<BalancerSection>>("balancer"), self.section::<TlsSection>("tls"))
        {
            self.balancer(&balancer, &tls);
        }
        self.keys();
        if let Some(logs) = self.section::<FluentbitSection>("fluentbit") {
            let found = logs::problems(self.cluster, self.inventory, &logs, self.sources);
            found.into_iter().for_each(|diagnostic| self.diagnostics.push(diagnostic));
        }
        let cluster = self.cluster;
        if let (Some(node), Some(etcd)) = (cluster.sections.get("etcd"), &etcd) {
            self.etcd(etcd, node, auth.as_ref());
            self.data_folder(etcd, place(node, "data_dir"));
        }
        for host in cluster.members.iter().map(|id| self.inventory.host_by_id(*id)) {
            self.member(host, auth.as_ref());
        }
    }

    fn balancer(&mut self, balancer: &BalancerSection, tls: &TlsSection) {
        let (cluster, name) = (&self.cluster.name, &balancer.name);
        let place = self.place("balancer", "name");
        if !balancer.has_name() {
            let message = format!("`{name}` in `balancer` of `{cluster}` is no name and no address");
            self.diagnostics.push(Diagnostic::error(place, message).help("write it as etcd.example.org or 10.0.0.5"));
        } else if !balancer.is_named_in(&tls.names) {
            let message =
                format!("clients of `{cluster}` would reject its members: `tls.names` does not have `{name}`");
            let help =
                format!("add it: `tls: {{ names: [{name}] }}`; `etcdrun playbook site.yaml` renews the certificates");
            self.diagnostics.push(Diagnostic::error(place, message).help(help));
        }
    }

    fn time(&mut self, chrony: &ChronySection) {
        let (cluster, place) = (&self.cluster.name, |field| self.place("chrony", field));
        let mut found = Vec::new();
        let has_sources = chrony.sources().next().is_some();
        if chrony.enabled && !has_sources {
            let message = format!("`chrony` of `{cluster}` has no `servers` and no `pools`");
            found.push(Diagnostic::error(place("enabled"), message).help("add at least one of them; see docs/time.md"));
        }
        if !chrony.enabled && has_sources {
            let message = format!("`chrony` of `{cluster}` has no effect: it is not enabled");
            let help = "set `enabled: true` in it, or remove the section";
            found.push(Diagnostic::warning(place("enabled"), message).help(help));
        }
        for (field, sources) in [("servers", &chrony.servers), ("pools", &chrony.pools)] {
            for source in sources.iter().filter(|source| !source.has_name()) {
                let message =
                    format!("`{}` in `chrony.{field}` of `{cluster}` is no name and no address", source.url.0);
                found.push(Diagnostic::error(place(field), message).help("write it as ntp1.example.org or 192.0.2.1"));
            }
            for option in sources.iter().filter_map(TimeSource::wrong_option) {
                let message = format!("`{}` in `chrony.{field}` of `{cluster}` is no option of chrony", option.0);
                found.push(
                    Diagnostic::error(place(field), message).help("options are words such as iburst or maxsources 3"),
                );
            }
        }
        if chrony.makestep.is_some_and(|step| step.threshold.is_nan() || step.threshold <= 0.0) {
            let message = format!("`chrony.makestep.threshold` of `{cluster}` must be more than 0 seconds");
            found.push(Diagnostic::error(place("makestep"), message));
        }
        found.into_iter().for_each(|diagnostic| self.diagnostics.push(diagnostic));
    }

    /// Values may be templates, so what can be said without them is said.
    fn keys(&mut self) {
        let Some(node) = self.cluster.sections.get("keys") else { return };
        let Some(Some(keys)) = source::check::<Option<KeysSection>>(node, &mut Diagnostics::default()) else { return };
        let keys = match expand_keys(&keys) {
            Ok(keys) => keys,
            Err(problems) => {
                for KeyProblem { key, message, help } in problems {
                    let span = key_place(node, &key).unwrap_or(node.span);
                    self.diagnostics.push(Diagnostic::error(span, message).help(help));
                }
                return;
            }
        };
        let etcd = self.section::<EtcdSection>("etcd").unwrap_or_default();
        let limit = etcd.settings.get("max-request-bytes").map_or(Some(MAX_REQUEST), |limit| limit.0.parse().ok());
        for (key, KeyEntry(declared)) in &keys {
            let length = match &declared.src {
                Some(src) => std::fs::metadata(src).ok().and_then(|file| usize::try_from(file.len()).ok()),
                None => declared.value().map(|value| value.len()),
            };
            let size = request_size(key.len(), length.unwrap_or_default());
            if limit.is_some_and(|limit| size > limit) {
                let limit = limit.unwrap_or_default();
                let message = format!("the value of `{key}` is too large: etcd accepts {limit} bytes in a request");
                let help = "keep it elsewhere, or raise `max-request-bytes` in `etcd.settings`";
                let span = key_place(node, key).unwrap_or(node.span);
                self.diagnostics.push(Diagnostic::error(span, message).help(help));
            }
        }
    }

    /// A section whose values are all known; nothing if a template in it must be rendered first.
    fn section<T: serde::de::DeserializeOwned + Default>(&self, name: &str) -> Option<T> {
        match self.cluster.sections.get(name) {
            Some(node) if holds_template(node) => None,
            Some(node) => from_node(node).ok(),
            None => Some(T::default()),
        }
    }

    fn place(&self, section: &str, field: &str) -> Option<Span> {
        self.cluster.sections.get(section).map(|node| place(node, field)).or(self.cluster.span)
    }

    fn count(&mut self) {
        let count = self.cluster.members.len();
        if count > 0 && count.is_multiple_of(2) {
            let name = &self.cluster.name;
            let message =
                format!("the cluster `{name}` has {count} members; it tolerates no more failures than {}", count - 1);
            self.diagnostics.push(Diagnostic::warning(self.cluster.span, message).help("use an odd number of members"));
        }
    }

    fn authority(&mut self, tls: &TlsSection) {
        let ca = &tls.ca;
        let span = self.place("tls", "ca");
        match (&ca.certificate, &ca.key, ca.sign_command.is_empty()) {
            (Some(_), None, true) => self.diagnostics.push(
                Diagnostic::error(span, "the CA has a certificate, but no key")
                    .help("set its `key`, which may be encrypted with age, or a `sign_command`"),
            ),
            (None, Some(_), _) => {
                self.diagnostics.push(Diagnostic::error(span, "the CA has a key, but no certificate"));
            }
            (_, Some(_), false) => {
                self.diagnostics.push(Diagnostic::error(span, "`key` and `sign_command` exclude each other"));
            }
            (None, _, false) => self.diagnostics.push(
                Diagnostic::error(span, "`sign_command` needs the `certificate` of the CA")
                    .help("members need the CA certificate"),
            ),
            // What only a key opens that is not at hand here is left to whoever has it.
            (Some(_), Some(key), _) if self.sources.value_opener().is_none() && is_encrypted(key) => {}
            (Some(_), ..) => {
                // It must be known before the first change, and there may be many before the first certificate.
                let checked = pki::check_authority(ca, self.sources.opener());
                self.told(span, checked);
            }
            _ => {}
        }
        self.next_authority(ca);
        if let (Some(validity), Some(early)) = (tls.validity, tls.early_renewal)
            && early >= validity
        {
            let span = self.place("tls", "early_renewal");
            let message = "certificates would be renewed all the time: `early_renewal` is not shorter than `validity`";
            self.diagnostics.push(Diagnostic::error(span, message));
        }
    }

    fn next_authority(&mut self, ca: &CaSection) {
        let Some(next) = &ca.next else { return };
        let span = self.place("tls", "ca");
        if next.key.is_some() != next.sign_command.is_empty() {
            let message = "`next` needs the `certificate` of the next CA, and its `key` or a `sign_command`";
            self.diagnostics.push(Diagnostic::error(span, message));
        } else if self.sources.value_opener().is_some() || !next.key.as_deref().is_some_and(is_encrypted) {
            let checked = pki::check_next_authority(next, self.sources.opener());
            self.told(span, checked);
        }
    }

    fn told(&mut self, span: Option<Span>, checked: Result<(), PkiError>) {
        if let Err(error) = checked {
            self.diagnostics.push(Diagnostic::error(span, error.message).maybe_help(error.help));
        }
    }

    fn auth(&mut self, auth: &AuthSection) {
        let names = || self.cluster.members.iter().map(|id| self.inventory.host_by_id(*id).name.as_str());
        if let Some(bootstrap) = &auth.bootstrap
            && !names().any(|name| name == bootstrap.0)
        {
            let help = did_you_mean(&bootstrap.0, names());
            let message = format!("`{}` is not a member of `{}`", bootstrap.0, self.cluster.name);
            self.diagnostics.push(Diagnostic::error(self.place("auth", "bootstrap"), message).maybe_help(help));
        }
        let users = self.cluster.sections.get("auth").and_then(|node| node.as_map()?.get("users"));
        for (name, user) in &auth.users {
            let span = users.map(|users| place(users, name)).or(self.cluster.span);
            if names().any(|member| member == name) {
                let message = format!("the user `{name}` has the name of a member");
                let help = "a member's certificate would also authenticate as this user: rename one of them";
                self.diagnostics.push(Diagnostic::error(span, message).help(help));
            }
            let user = user.clone().unwrap_or_default();
            if user.state == Presence::Absent {
                let has_more = user.password.is_some() || !user.roles.is_empty();
                removal_problem("user", name, has_more, span).into_iter().for_each(|it| self.diagnostics.push(it));
                continue;
            }
            if auth.method() == AuthMethod::Password && user.password.is_none() && name != "root" {
                let message = format!("the user `{name}` has no password");
                self.diagnostics.push(
                    Diagnostic::error(span, message).help("add `password: !age |`, see `etcdrun secret encrypt`"),
                );
            }
            let is_absent = |role: &Option<AuthRole>| role.as_ref().is_some_and(|role| role.state == Presence::Absent);
            for role in user.roles.iter().filter(|role| *role != "root") {
                match auth.roles.get(role) {
                    Some(known) if is_absent(known) => {
                        let message = format!("the user `{name}` has the role `{role}`, which is to be absent");
                        let help = format!("remove it from `roles` of `{name}`, or remove its `state: absent`");
                        self.diagnostics.push(Diagnostic::error(span, message).help(help));
                    }
                    Some(_) => {}
                    None => {
                        let help = did_you_mean(role, auth.roles.keys().map(String::as_str));
                        let message = format!("the user `{name}` has the role `{role}`, which is not in `roles`");
                        self.diagnostics.push(Diagnostic::error(span, message).maybe_help(help));
                    }
                }
            }
        }
        let roles = self.cluster.sections.get("auth").and_then(|node| node.as_map()?.get("roles"));
        for (name, role) in &auth.roles {
            let span = roles.map(|roles| place(roles, name)).or(self.cluster.span);
            let Some(role) = role else { continue };
            if role.state == Presence::Absent {
                let has_more = !role.permissions.is_empty();
                removal_problem("role", name, has_more, span).into_iter().for_each(|it| self.diagnostics.push(it));
                continue;
            }
            for (index, permission) in role.permissions.iter().enumerate() {
                if let Some((problem, help)) = permission.problem() {
                    let message = format!("a permission of the role `{name}` {problem}");
                    self.diagnostics.push(Diagnostic::error(span, message).help(help));
                } else if role.permissions[..index].iter().any(|other| other.has_keys_of(permission)) {
                    let message = format!("two permissions of the role `{name}` are about the same keys");
                    let help = "etcd has one for each range of keys: keep one, with the `access` that is meant";
                    self.diagnostics.push(Diagnostic::error(span, message).help(help));
                }
            }
        }
    }

    /// It belongs to etcd alone; with a disk of its own, so does the folder above.
    fn data_folder(&mut self, etcd: &EtcdSection, span: Span) {
        let Some(folder) = etcd.data_dir.as_deref() else { return };
        let trimmed = folder.trim_end_matches('/');
        let above = trimmed.rsplit_once('/').map_or("", |(above, _)| above);
        let is_shared = |path: &str| SHARED_FOLDERS.contains(&path);
        let help = "such as `data_dir: /var/lib/etcd/data`";
        if !folder.starts_with('/') || is_shared(trimmed) {
            let message = format!(
                "`{folder}` cannot be the data directory: it must be the absolute path of a separate directory"
            );
            self.diagnostics.push(Diagnostic::error(span, message).help(help));
        } else if is_shared(above) && self.has_data_disk(etcd) {
            let above = if above.is_empty() { "/" } else { above };
            let message = format!("the data disk would be mounted on {above}, the parent directory of `data_dir`");
            self.diagnostics.push(Diagnostic::error(span, message).help(help));
        }
    }

    fn has_data_disk(&self, etcd: &EtcdSection) -> bool {
        let has =
            |section: Option<&Node>, name| section.and_then(Node::as_map).is_some_and(|map| map.get(name).is_some());
        let hosts = self.cluster.members.iter().map(|id| &self.inventory.host_by_id(*id).sections);
        etcd.data_device.is_some()
            || has(self.cluster.sections.get("guest"), "data_disk")
            || hosts.into_iter().any(|own| has(own.get("etcd"), "data_device") || has(own.get("guest"), "data_disk"))
    }

    /// A member's own settings, on top of the cluster's.
    fn member(&mut self, host: &Host, auth: Option<&AuthSection>) {
        if let Some(tls) = host.sections.get("tls").filter(|tls| !holds_template(tls)) {
            self.certificate(host, tls);
        }
        let Some(own) = host.sections.get("etcd") else { return };
        if holds_template(own) {
            return;
        }
        for name in ["data_dir", "client_port", "peer_port", "token", "discovery"] {
            if let Some(span) = key_place(own, name) {
                let message = format!("`{name}` belongs to the cluster: it must be the same on all members");
                self.diagnostics.push(Diagnostic::error(span, message));
            }
        }
        if let Ok(etcd) = from_node::<EtcdSection>(own) {
            self.etcd(&etcd, own, auth);
        }
    }

    /// A certificate that was brought along must be one that a member can use, and must fit its key.
    fn certificate(&mut self, host: &Host, node: &Node) {
        let Ok(tls) = from_node::<MemberTls>(node) else { return };
        let (Some(certificate), Some(key)) = (&tls.certificate, &tls.key) else {
            if tls != MemberTls::default() {
                self.diagnostics.error(node.span, "a member's certificate and its `key` go together");
            }
            return;
        };
        if self.sources.value_opener().is_none() && is_encrypted(key) {
            return;
        }
        if let Err(error) = pki::check_brought(certificate, key, self.sources.opener()) {
            let message = format!("{}: {}", host.name, error.message);
            self.diagnostics.push(Diagnostic::error(place(node, "certificate"), message).maybe_help(error.help));
        }
    }

    fn etcd(&mut self, etcd: &EtcdSection, node: &Node, auth: Option<&AuthSection>) {
        let certificates = auth.is_some_and(|auth| auth.is_enabled() && auth.method() == AuthMethod::Certificate);
        if etcd.gateway == Some(true) && certificates {
            let message = "the gateway cannot be used with certificate authentication: it does not forward the identity of the client";
            let help = "use `auth: {method: password}`, or remove `gateway`";
            self.diagnostics.push(Diagnostic::error(place(node, "gateway"), message).help(help));
        }
        if etcd.discovery.url.is_some() && etcd.discovery.dns_srv.is_some() {
            self.diagnostics.error(place(node, "discovery"), "`url` and `dns_srv` exclude each other");
        }
        let general = || self.section::<EtcdSection>("etcd").and_then(|section| section.version);
        let Some(version) = etcd.version.or_else(general) else { return };
        if etcd.version.is_some() {
            self.version(version, place(node, "version"));
        }
        if !settings::is_known(version) {
            return;
        }
        self.discovery_url(etcd, version, node);
        let written = node.as_map().and_then(|map| map.get("settings"));
        for name in etcd.settings.keys() {
            if let Some((message, help)) = settings::problem(version, name) {
                let span = written.and_then(|settings| key_place(settings, name)).unwrap_or(node.span);
                self.diagnostics.push(Diagnostic::error(span, message).maybe_help(help));
            }
        }
    }

    /// A member may be of another version than its cluster, whose `discovery` it has.
    fn discovery_url(&mut self, etcd: &EtcdSection, version: Version, node: &Node) {
        let general = || self.section::<EtcdSection>("etcd").is_some_and(|section| section.discovery.url.is_some());
        let field = match (&etcd.discovery.url, etcd.version) {
            (Some(_), _) => "discovery",
            (None, Some(_)) if general() => "version",
            _ => return,
        };
        if settings::has_discovery_url(version) {
            return;
        }
        let span = place(node, field);
        let message = format!(
            "etcd {version} cannot bootstrap a cluster by `discovery.url`: 3.6 was the last version to have it"
        );
        let help = "remove it: an existing cluster does not need it, and a new one uses the members of the inventory, or from DNS with `discovery: {dns_srv: DOMAIN}`";
        self.diagnostics.push(Diagnostic::error(span, message).help(help));
    }

    fn version(&mut self, version: Version, span: Span) {
        if !settings::is_known(version) {
            let (first, last) = (settings::KNOWN_MINORS.start(), settings::KNOWN_MINORS.end());
            let message = format!("etcd {version} is not supported; 3.{first} to 3.{last} are");
            self.diagnostics.push(Diagnostic::error(span, message));
            return;
        }
        if is_forbidden(version) {
            let message = format!("etcd {version} can lose data: 3.5.0 to 3.5.2 must not be run");
            self.diagnostics.push(Diagnostic::error(span, message).help("use the newest 3.5"));
            return;
        }
        if let Some(concern) = Concern::of(version) {
            let message = format!("etcd {version} has known problems: {}", concern.told());
            let help = format!("use {} or later", concern.fixed_in);
            self.diagnostics.push(Diagnostic::warning(span, message).help(help));
        }
        // Whoever lists releases means to install one of them; an inventory without any may be for other things.
        if !self.inventory.etcd_releases.is_empty() && !self.releases.contains_key(&version) {
            let known: Vec<String> = self.inventory.etcd_releases.keys().map(ToString::to_string).collect();
            let message = format!("etcd {version} is not in `etcd_releases`");
            let help = format!("run `etcdrun releases add {version}`, or use one of: {}", known.join(", "));
            self.diagnostics.push(Diagnostic::error(span, message).help(help));
        }
    }
}

/// A user or role that is to be absent has nothing else, and is not root.
fn removal_problem(what: &str, name: &str, has_more: bool, span: Option<Span>) -> Option<Diagnostic> {
    if name == "root" {
        let message = format!("the {what} `root` cannot be absent: etcd needs it while authentication is enabled");
        let help = "remove `state: absent`; without authentication, write `auth: { enabled: false }`";
        return Some(Diagnostic::error(span, message).help(help));
    }
    let message = format!("the {what} `{name}` is to be absent, but its entry has more than `state`");
    has_more.then(|| Diagnostic::error(span, message).help("remove the rest, or `state: absent`"))
}

fn is_encrypted(path: &str) -> bool {
    std::fs::read(path).is_ok_and(|bytes| is_sealed(&bytes))
}

fn holds_template(node: &Node) -> bool {
    node.is_template()
        || node.as_seq().is_some_and(|items| items.iter().any(holds_template))
        || node.as_map().is_some_and(|map| map.iter().any(|(_, node)| holds_template(node)))
}

/// Folders that others have things in, without a slash at the end.
const SHARED_FOLDERS: &[&str] = &[
    "",
    "/bin",
    "/boot",
    "/data",
    "/dev",
    "/etc",
    "/home",
    "/lib",
    "/media",
    "/mnt",
    "/opt",
    "/proc",
    "/root",
    "/run",
    "/sbin",
    "/srv",
    "/sys",
    "/tmp",
    "/usr",
    "/usr/local",
    "/var",
    "/var/lib",
    "/var/tmp",
];

fn place(node: &Node, field: &str) -> Span {
    node.as_map().and_then(|map| map.get(field)).map_or(node.span, |node| node.span)
}

fn key_place(node: &Node, name: &str) -> Option<Span> {
    node.as_map()?.iter().find(|(key, _)| &*key.name == name).map(|(key, _)| key.span)
}
