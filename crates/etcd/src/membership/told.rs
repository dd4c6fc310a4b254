//! What a server of a foreign cluster was told, by its file, its flags and its environment, and what of that an inventory
//! can say.

use std::{collections::BTreeSet, net::IpAddr};

use indexmap::IndexMap;

use super::Refusal;
use crate::{
    etcd::{CLIENT_PORT, DATA_DIR, observe::Listed, settings},
    inventory::is_name,
    model::{Value, ValueMap, Version},
    source::{Diagnostics, Sources, parse},
};

/// What etcd takes if nobody says, and what etcdrun does.
const THEIR_QUOTA: u64 = 2 << 30;
const OUR_QUOTA: u64 = 8 << 30;

/// What a server was told, by the names of etcd's flags: by its configuration file, or by flags and the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told(IndexMap<String, String>);

impl Told {
    /// The file that alone counts, if there is one.
    pub fn config_file(arguments: &[String], environment: &[(String, String)]) -> Option<String> {
        let Self(mut told) = Self::by_words(arguments, environment);
        told.shift_remove("config-file").filter(|path| !path.is_empty())
    }

    /// A flag wins over the environment.
    pub fn by_words(arguments: &[String], environment: &[(String, String)]) -> Self {
        let mut told = IndexMap::new();
        for (name, value) in environment {
            if let Some(name) = name.strip_prefix("ETCD_") {
                told.insert(name.to_ascii_lowercase().replace('_', "-"), value.clone());
            }
        }
        let mut words = arguments.iter().skip(1).peekable();
        while let Some(word) = words.next() {
            let Some(flag) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else { continue };
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, value.to_owned()),
                // A flag without a value is one that is either on or off.
                None => (flag, words.next_if(|next| is_value(next)).cloned().unwrap_or_else(|| "true".to_owned())),
            };
            told.insert(name.to_owned(), value);
        }
        Self(told)
    }

    /// With a configuration file etcd looks at nothing else.
    pub fn by_file(path: &str, text: &str) -> Result<Self, Refusal> {
        let mut sources = Sources::default();
        let mut diagnostics = Diagnostics::default();
        let file = sources.add(path, text);
        let node = parse(&sources, file, &mut diagnostics);
        let Some(Value::Object(map)) = node.map(|node| node.to_value()) else {
            return Err(Refusal::gate(format!("{path}, which etcd was started with, is not a mapping in YAML"), ""));
        };
        let mut told = IndexMap::new();
        for (name, value) in &map {
            match (name.as_str(), value) {
                ("client-transport-security", Value::Object(inner)) => tls_of("", inner, &mut told),
                ("peer-transport-security", Value::Object(inner)) => tls_of("peer-", inner, &mut told),
                (name, value) => put(&mut told, name.to_owned(), value),
            }
        }
        Ok(Self(told))
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn is_on(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| value == "true" || value == "1")
    }

    /// A path, whole.
    pub fn path(&self, name: &str, folder: &str) -> Option<String> {
        self.get(name).map(|path| whole(path, folder))
    }

    pub fn data_dir(&self, folder: &str) -> String {
        let default = || format!("{}.etcd", self.get("name").unwrap_or("default"));
        whole(&self.get("data-dir").map_or_else(default, str::to_owned), folder)
    }

    /// Whether clients have to show a certificate.
    pub fn wants_certificates(&self) -> bool {
        self.is_on("client-cert-auth") || self.get("trusted-ca-file").is_some()
    }

    /// Where clients connect.
    pub fn client_port(&self) -> u16 {
        let urls = self.get("advertise-client-urls").or_else(|| self.get("listen-client-urls")).unwrap_or_default();
        urls.split(',').filter_map(Url::parse).find(|url| url.is_secure).map_or(CLIENT_PORT, |url| url.port)
    }

    /// Whether etcdrun could run this server at all.
    pub fn check(&self, name: &str, folder: &str) -> Result<(), Refusal> {
        if self.is_on("auto-tls") || self.is_on("peer-auto-tls") {
            return Err(Refusal::gate(
                format!("{name} creates its certificates itself (auto-tls), so they cannot be verified"),
                "give the members certificates of one CA first",
            ));
        }
        let is_plain = |flag: &str| {
            self.get(flag).into_iter().flat_map(|urls| urls.split(',')).any(|url| url.starts_with("http:"))
        };
        let files = ["cert-file", "key-file", "peer-cert-file", "peer-key-file", "peer-trusted-ca-file"];
        let missing = files.into_iter().find(|file| self.get(file).is_none());
        let plain = ["advertise-client-urls", "initial-advertise-peer-urls"].into_iter().find(|flag| is_plain(flag));
        if let Some(what) = missing.map(|file| format!("no `{file}`")).or(plain.map(|flag| format!("http in `{flag}`")))
        {
            return Err(Refusal::gate(
                format!("{name} does not use TLS for clients and peers: it has {what}"),
                "etcdrun runs clusters with TLS only: enable it as etcd's documentation describes, then adopt the cluster",
            ));
        }
        let inside = format!("{}/member/wal", self.data_dir(folder));
        match self.path("wal-dir", folder).filter(|wal| *wal != inside) {
            Some(wal) => Err(Refusal::gate(
                format!(
                    "{name} has its log in {wal}, outside of its data directory, and etcdrun keeps both in one directory"
                ),
                "replace the members by ones without `wal-dir`, one at a time, then adopt the cluster",
            )),
            None => Ok(()),
        }
    }

    /// The section `etcd` that comes to the same, without what is the same anyway; and what it cannot say.
    pub(super) fn section(&self, version: Version, folder: &str, remarks: &mut Vec<String>) -> ValueMap {
        let mut section = ValueMap::new();
        let mut put = |name: &str, value: Value| drop(section.insert(name.to_owned(), value));
        match self.get("quota-backend-bytes").unwrap_or("0").parse::<i64>() {
            Ok(quota) if quota < 0 => remarks.push("its database has no quota; with etcdrun it has 8GiB".to_owned()),
            Ok(quota) => match u64::try_from(quota).unwrap_or_default() {
                0 => put("quota", size(THEIR_QUOTA)),
                OUR_QUOTA => {}
                quota => put("quota", size(quota)),
            },
            Err(_) => {}
        }
        let mode = self.get("auto-compaction-mode").unwrap_or("periodic");
        let retention = self.get("auto-compaction-retention").unwrap_or("0");
        if (mode, retention) != ("revision", "1000") {
            put("compaction", serde_json::json!({ "mode": mode, "retention": retention }));
        }
        match (self.get("enable-grpc-gateway") != Some("false"), self.wants_certificates()) {
            (true, false) => put("gateway", true.into()),
            (true, true) if self.get("enable-grpc-gateway").is_some() => {
                remarks.push(
                    "its REST gateway is enabled; etcdrun disables it, because it does not forward the identity of clients"
                        .to_owned(),
                );
            }
            _ => {}
        }
        let mut metrics = ValueMap::new();
        if let Some("extensive") = self.get("metrics") {
            metrics.insert("level".into(), "extensive".into());
        }
        if let Some(urls) = self.get("listen-metrics-urls") {
            metrics.insert("urls".into(), urls.split(',').map(Value::from).collect());
        }
        if !metrics.is_empty() {
            put("metrics", metrics.into());
        }
        if let Some(level) = self.get("log-level").filter(|level| *level != "info" && !level.starts_with("d-")) {
            put("log_level", level.into());
        }
        let data_dir = self.data_dir(folder);
        if data_dir != DATA_DIR {
            put("data_dir", data_dir.into());
        }
        let client_port = self.client_port();
        if client_port != CLIENT_PORT {
            put("client_port", client_port.into());
        }
        let more = self.more(version, remarks);
        if !more.is_empty() {
            put("settings", more.into());
        }
        section
    }

    /// Settings that etcdrun has no word of its own for.
    fn more(&self, version: Version, remarks: &mut Vec<String>) -> ValueMap {
        let mut more = ValueMap::new();
        for (name, value) in &self.0 {
            let forms = name.starts_with("discovery") || name.starts_with("initial-");
            // A variable that only looks like one of etcd's, such as a version that a package sets.
            if value.is_empty() || forms || !settings::is_setting(name) {
                continue;
            }
            match settings::problem(version, name) {
                None => drop(more.insert(name.clone(), value.clone().into())),
                Some(_) if settings::follows(name) => {}
                Some((problem, _)) => remarks.push(format!("`{name}: {value}` is not kept: {problem}")),
            }
        }
        let named =
            ["peer-cert-allowed-cn", "peer-cert-allowed-hostname"].into_iter().find(|name| more.contains_key(*name));
        if let Some(name) = named {
            remarks.push(format!("`{name}` restricts peers by their certificates; in certificates of etcdrun the common name is the member's name"));
        }
        more
    }
}

/// The next word belongs to the flag before it.
fn is_value(word: &str) -> bool {
    !word.starts_with('-') || word[1..].starts_with(|first: char| first.is_ascii_digit())
}

fn whole(path: &str, folder: &str) -> String {
    let path = path.trim_end_matches('/');
    match path.starts_with('/') {
        true => path.to_owned(),
        false => format!("{}/{}", folder.trim_end_matches('/'), path.trim_start_matches("./")),
    }
}

fn tls_of(prefix: &str, section: &ValueMap, told: &mut IndexMap<String, String>) {
    for (name, value) in section {
        let name = match name.as_str() {
            "allowed-cn" | "allowed-hostname" => format!("{prefix}cert-{name}"),
            name => format!("{prefix}{name}"),
        };
        put(told, name, value);
    }
}

fn put(told: &mut IndexMap<String, String>, name: String, value: &Value) {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match value {
        Value::Null | Value::Object(_) => {}
        Value::Array(items) => drop(told.insert(name, items.iter().map(text).collect::<Vec<_>>().join(","))),
        value => drop(told.insert(name, text(value))),
    }
}

fn size(bytes: u64) -> Value {
    let unit = [(1_u64 << 30, "GiB"), (1 << 20, "MiB")].into_iter().find(|(unit, _)| bytes.is_multiple_of(*unit));
    unit.map_or_else(|| bytes.into(), |(unit, name)| format!("{}{name}", bytes / unit).into())
}

/// A place where etcd answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    pub is_secure: bool,
    pub host: String,
    pub port: u16,
}

impl Url {
    pub fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = text.trim().split_once("://")?;
        let rest = rest.split('/').next().unwrap_or_default();
        let (host, port) = rest.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Some(Self { is_secure: scheme == "https", host: host.to_owned(), port: port.parse().ok()? })
    }
}

/// Whether the members, as they list each other, can be those of an inventory. Gives where each of them is.
pub fn places(cluster: &str, list: &[Listed]) -> Result<Vec<Url>, Refusal> {
    let (mut places, mut names) = (Vec::new(), BTreeSet::new());
    for member in list {
        let (name, id, urls) = (&member.name, member.id, member.peer_urls.join(", "));
        if name.is_empty() {
            return Err(Refusal::gate(
                format!("a member at {urls} was added and never started"),
                format!("start it, or remove it: `etcdctl member remove {id:x}`"),
            ));
        }
        if member.is_learner {
            return Err(Refusal::gate(
                format!("{name} is a learner: a change is in progress"),
                format!("promote it (`etcdctl member promote {id:x}`), or remove it, then adopt the cluster"),
            ));
        }
        if !is_name(name) || name == cluster {
            let why = if name == cluster {
                "is that of the cluster".to_owned()
            } else {
                format!("cannot be that of a host ({name:?})")
            };
            return Err(Refusal::gate(
                format!("the name of the member at {urls} {why}"),
                "names consist of letters, digits, `.`, `_` and `-`; restart it with another `--name`, which etcd accepts, or choose another name for the cluster",
            ));
        }
        if !names.insert(name) {
            return Err(Refusal::gate(
                format!("two members have the name {name}"),
                "restart one of them with another `--name`, which etcd accepts",
            ));
        }
        match member.peer_urls.iter().filter_map(|url| Url::parse(url)).next() {
            Some(url) if url.is_secure && !is_name(&url.host) && url.host.parse::<IpAddr>().is_err() => {
                return Err(Refusal::gate(
                    format!("{name} is at {urls:?}, and {:?} is neither an address nor a name of a host", url.host),
                    "`etcdctl member update` gives a member another URL",
                ));
            }
            Some(url) if url.is_secure => places.push(url),
            _ => {
                return Err(Refusal::gate(
                    format!("{name} is at {urls}, which is not an https URL with a port"),
                    "etcdrun runs clusters with TLS only: `etcdctl member update` gives a member another URL",
                ));
            }
        }
    }
    match places.windows(2).find(|pair| pair[0].port != pair[1].port) {
        Some(pair) => Err(Refusal::gate(
            format!("members listen for their peers at different ports: {} and {}", pair[0].port, pair[1].port),
            "`peer_port` must be the same in the whole cluster",
        )),
        None => Ok(places),
    }
}
