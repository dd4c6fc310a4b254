//! The settings of one server, for the version that it runs.

use std::fmt::Write;

use indexmap::IndexMap;

use super::settings::has;
use crate::{
    inventory::sections::{CompactionMode, EtcdSection, LogLevel, MetricsLevel},
    model::Version,
};

const QUOTA: u64 = 8 << 30;
const CORRUPT_CHECK_TIME: &str = "12h";

/// What a server is like, beside what its section says.
#[derive(Clone, Debug)]
pub struct ServerConfig<'a> {
    pub name: &'a str,
    pub ip: &'a str,
    pub version: Version,
    pub etcd: &'a EtcdSection,
    pub data_dir: &'a str,
    pub client_port: u16,
    pub peer_port: u16,
    /// Clients show certificates.
    pub client_certificates: bool,
    pub authority: &'a str,
    pub certificate: &'a str,
    pub key: &'a str,
}

/// The settings as variables of the environment, one a line, by name. etcd reads each flag from one, and, unlike in its
/// configuration file, every kind of value is written as on a command line.
pub fn environment(config: &ServerConfig<'_>) -> String {
    let mut settings = own(config);
    corruption_checks(config.version, &mut settings);
    for (name, value) in &config.etcd.settings {
        add_gates_or_replace(&mut settings, name, &value.0);
    }
    settings.sort_keys();
    settings.iter().fold(String::new(), |mut text, (name, value)| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}={}", variable(name), quoted(value));
        text
    })
}

/// Feature gates add up; of anything else the last word counts.
fn add_gates_or_replace(settings: &mut IndexMap<String, String>, name: &str, value: &str) {
    match settings.get_mut(name) {
        Some(gates) if name == "feature-gates" => {
            let named: Vec<&str> = value.split(',').filter_map(|gate| gate.split('=').next()).collect();
            let kept = gates.split(',').filter(|gate| !named.contains(&gate.split('=').next().unwrap_or_default()));
            *gates = kept.chain([value]).collect::<Vec<_>>().join(",");
        }
        _ => drop(settings.insert(name.to_owned(), value.to_owned())),
    }
}

fn own(config: &ServerConfig<'_>) -> IndexMap<String, String> {
    let ServerConfig { etcd, ip, client_port, peer_port, .. } = config;
    let host = if ip.contains(':') { format!("[{ip}]") } else { (*ip).to_owned() };
    let loopback = if ip.contains(':') { "[::1]" } else { "127.0.0.1" };
    let mode = etcd.compaction.mode.unwrap_or(CompactionMode::Revision);
    let retention = etcd.compaction.retention.as_ref().map_or("1000", |text| text.0.as_str());
    let mut settings: IndexMap<String, String> = IndexMap::new();
    let mut set = |name: &str, value: &str| drop(settings.insert(name.to_owned(), value.to_owned()));
    set("name", config.name);
    set("data-dir", config.data_dir);
    set("listen-client-urls", &format!("https://{host}:{client_port},https://{loopback}:{client_port}"));
    set("advertise-client-urls", &format!("https://{host}:{client_port}"));
    set("listen-peer-urls", &format!("https://{host}:{peer_port}"));
    set("initial-advertise-peer-urls", &format!("https://{host}:{peer_port}"));
    // Without data of its own a member must not begin a cluster; the first start is told otherwise from outside.
    set("initial-cluster-state", "existing");
    for (flag, path) in [("cert-file", config.certificate), ("key-file", config.key)] {
        set(flag, path);
        set(&format!("peer-{flag}"), path);
    }
    set("peer-trusted-ca-file", config.authority);
    // Whoever is given an authority asks clients for certificates, whatever the next setting says.
    if config.client_certificates {
        set("trusted-ca-file", config.authority);
    }
    set("client-cert-auth", &config.client_certificates.to_string());
    set("peer-client-cert-auth", "true");
    set("quota-backend-bytes", &etcd.quota.map_or(QUOTA, |quota| quota.0).to_string());
    set("auto-compaction-mode", if mode == CompactionMode::Revision { "revision" } else { "periodic" });
    set("auto-compaction-retention", retention);
    set("enable-grpc-gateway", &etcd.gateway.unwrap_or(false).to_string());
    set(
        "metrics",
        match etcd.metrics.level {
            Some(MetricsLevel::Extensive) => "extensive",
            _ => "basic",
        },
    );
    if !etcd.metrics.urls.is_empty() {
        set("listen-metrics-urls", &etcd.metrics.urls.join(","));
    }
    set("logger", "zap");
    set("log-outputs", "stderr");
    set("log-level", level(etcd.log_level));
    // 3.4 has it, and off; later ones have it on.
    set("pre-vote", "true");
    set("strict-reconfig-check", "true");
    settings
}

/// Members compare their data when they start, and now and then.
fn corruption_checks(version: Version, settings: &mut IndexMap<String, String>) {
    let mut set = |name: &str, value: &str| drop(settings.insert(name.to_owned(), value.to_owned()));
    if has(version, "feature-gates") {
        set("feature-gates", "InitialCorruptCheck=true,CompactHashCheck=true");
        set("corrupt-check-time", CORRUPT_CHECK_TIME);
        return;
    }
    set("experimental-initial-corrupt-check", "true");
    set("experimental-corrupt-check-time", CORRUPT_CHECK_TIME);
    if has(version, "experimental-compact-hash-check-enabled") {
        set("experimental-compact-hash-check-enabled", "true");
    }
}

fn level(level: Option<LogLevel>) -> &'static str {
    match level.unwrap_or(LogLevel::Info) {
        LogLevel::Debug => "debug",
        LogLevel::Info => "info",
        LogLevel::Warn => "warn",
        LogLevel::Error => "error",
        LogLevel::Panic => "panic",
        LogLevel::Fatal => "fatal",
    }
}

fn variable(flag: &str) -> String {
    format!("ETCD_{}", flag.to_ascii_uppercase().replace('-', "_"))
}

/// As systemd reads an EnvironmentFile.
fn quoted(value: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/:,.=_-+@%[]".contains(c);
    match !value.is_empty() && value.chars().all(plain) {
        true => value.to_owned(),
        false => format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(version: &str, etcd: &EtcdSection) -> String {
        environment(&ServerConfig {
            name: "etcd-1",
            ip: "10.0.0.1",
            version: version.parse().unwrap(),
            etcd,
            data_dir: "/var/lib/etcd/data",
            client_port: 2379,
            peer_port: 2380,
            client_certificates: true,
            authority: "/etc/etcd/pki/ca.crt",
            certificate: "/etc/etcd/pki/server.crt",
            key: "/etc/etcd/pki/server.key",
        })
    }

    #[test]
    fn every_setting_is_one_that_the_version_has() {
        for version in ["3.4.45", "3.5.34", "3.6.15", "3.7.2"] {
            let text = config(version, &EtcdSection::default());
            for line in text.lines() {
                let name = line.split('=').next().unwrap().trim_start_matches("ETCD_").to_lowercase().replace('_', "-");
                assert!(has(version.parse().unwrap(), &name), "etcd {version} has no {name}");
            }
            assert!(text.contains("CORRUPT_CHECK"), "{text}");
            assert!(text.contains("ETCD_INITIAL_CLUSTER_STATE=existing\n") && !text.contains("INITIAL_CLUSTER="));
        }
    }

    #[test]
    fn what_the_inventory_says_is_set() {
        let etcd: EtcdSection = serde_json::from_value(serde_json::json!({
            "compaction": {"mode": "periodic", "retention": "1h"},
            "settings": {"snapshot-count": "5000", "feature-gates": "CompactHashCheck=false"},
        }))
        .unwrap();
        let text = config("3.6.15", &etcd);
        assert!(text.contains("ETCD_AUTO_COMPACTION_MODE=periodic\nETCD_AUTO_COMPACTION_RETENTION=1h\n"));
        assert!(text.contains("ETCD_SNAPSHOT_COUNT=5000\n"));
        assert!(text.contains("ETCD_FEATURE_GATES=InitialCorruptCheck=true,CompactHashCheck=false\n"), "{text}");
    }

    #[test]
    fn odd_values_are_quoted_for_systemd() {
        assert_eq!(quoted("a b\"c\\"), r#""a b\"c\\""#);
        assert_eq!(quoted(""), "\"\"");
        assert_eq!(quoted("10.0.0.1:2379"), "10.0.0.1:2379");
    }
}
