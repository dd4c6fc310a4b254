//! What each version of etcd lets be set. Data; a test asks the servers which flags they take. Their help is not enough: 3.7 still
//! shows `discovery`, and does not take it.

use crate::{model::Version, source::did_you_mean};

/// The minor versions of etcd 3 that are known here.
pub const KNOWN_MINORS: std::ops::RangeInclusive<u16> = 4..=7;

/// A setting by the name of its flag, and the first and the last minor version that has it.
type Setting = (&'static str, u16, u16);

/// Settings that follow from the rest of the inventory, and where.
const OURS: &[(&str, &str)] = &[
    ("advertise-client-urls", "the member's address"),
    ("auto-compaction-mode", "`compaction.mode`"),
    ("auto-compaction-retention", "`compaction.retention`"),
    ("cert-file", "`tls`"),
    ("client-cert-auth", "`auth.method`"),
    ("data-dir", "`data_dir`"),
    ("discovery", "`discovery.url`"),
    ("discovery-srv", "`discovery.dns_srv`"),
    ("enable-grpc-gateway", "`gateway`"),
    ("initial-advertise-peer-urls", "the member's address"),
    ("initial-cluster", "`members`"),
    ("initial-cluster-state", "the data on the members"),
    ("initial-cluster-token", "`token`"),
    ("key-file", "`tls`"),
    ("listen-client-urls", "the member's address"),
    ("listen-metrics-urls", "`metrics.urls`"),
    ("listen-peer-urls", "the member's address"),
    ("log-level", "`log_level`"),
    ("logger", "etcdrun"),
    ("log-outputs", "etcdrun"),
    ("metrics", "`metrics.level`"),
    ("name", "the member's name"),
    ("peer-cert-file", "`tls`"),
    ("peer-client-cert-auth", "`tls`"),
    ("peer-key-file", "`tls`"),
    ("peer-trusted-ca-file", "`tls`"),
    ("quota-backend-bytes", "`quota`"),
    ("trusted-ca-file", "`tls`"),
    ("wal-dir", "`data_dir`"),
];

/// Settings that would undo what etcdrun is there for.
const REFUSED: &[(&str, &str)] = &[
    ("auto-tls", "etcdrun creates the certificates"),
    ("force-new-cluster", "it creates a second cluster from one member"),
    ("peer-auto-tls", "etcdrun creates the certificates"),
    ("unsafe-no-fsync", "it loses data when a host fails"),
];

/// Whether etcdrun knows what this version lets be set.
pub fn is_known(version: Version) -> bool {
    version.major == 3 && KNOWN_MINORS.contains(&version.minor)
}

/// Whether this version has the setting.
pub fn has(version: Version, name: &str) -> bool {
    SETTINGS.iter().any(|(known, first, last)| *known == name && (*first..=*last).contains(&version.minor))
}

/// Every setting that any version has.
pub fn names() -> impl Iterator<Item = &'static str> {
    SETTINGS.iter().map(|(name, ..)| *name)
}

/// Whether a cluster of this version can begin by a URL of a discovery service. Later ones do not know the setting, and each
/// member would begin a cluster of its own.
pub fn has_discovery_url(version: Version) -> bool {
    has(version, "discovery")
}

/// Whether any version has the setting.
pub fn is_setting(name: &str) -> bool {
    SETTINGS.iter().any(|(known, ..)| *known == name)
}

/// Whether the setting follows from the rest of the inventory.
pub fn follows(name: &str) -> bool {
    OURS.iter().any(|(ours, _)| *ours == name)
}

/// Why a setting cannot be given for this version, and the way out.
pub fn problem(version: Version, name: &str) -> Option<(String, Option<String>)> {
    if let Some((_, whence)) = OURS.iter().find(|(ours, _)| *ours == name) {
        return Some((format!("`{name}` cannot be set here: {whence} determines it"), None));
    }
    if let Some((_, why)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
        return Some((format!("`{name}` is not allowed: {why}"), None));
    }
    let Some((_, first, last)) = SETTINGS.iter().find(|(known, ..)| *known == name) else {
        let help = did_you_mean(name, SETTINGS.iter().map(|(known, ..)| *known));
        return Some((format!("no version of etcd has a setting `{name}`"), help));
    };
    if (*first..=*last).contains(&version.minor) {
        return None;
    }
    let message = match version.minor < *first {
        true => format!("etcd {version} has no setting `{name}` yet: it came with 3.{first}"),
        false => format!("etcd {version} has no setting `{name}` any more: 3.{last} was the last to have it"),
    };
    Some((message, successor(version, name)))
}

/// What an experimental setting has become.
fn successor(version: Version, name: &str) -> Option<String> {
    let plain = name.strip_prefix("experimental-")?;
    if has(version, plain) {
        return Some(format!("it is `{plain}` now"));
    }
    let gate = GATES.iter().find(|(old, _)| *old == name)?.1;
    has(version, "feature-gates").then(|| format!("it is a feature gate now: `feature-gates: {gate}=true`"))
}

/// Settings that became feature gates.
const GATES: &[(&str, &str)] = &[
    ("experimental-compact-hash-check-enabled", "CompactHashCheck"),
    ("experimental-initial-corrupt-check", "InitialCorruptCheck"),
    ("experimental-enable-lease-checkpoint", "LeaseCheckpoint"),
    ("experimental-enable-lease-checkpoint-persist", "LeaseCheckpointPersist"),
    ("experimental-stop-grpc-service-on-defrag", "StopGRPCServiceOnDefrag"),
    ("experimental-txn-mode-write-with-shared-buffer", "TxnModeWriteWithSharedBuffer"),
];

const SETTINGS: &[Setting] = &[
    ("advertise-client-urls", 4, 7),
    ("auth-token", 4, 7),
    ("auth-token-ttl", 4, 7),
    ("auto-compaction-mode", 4, 7),
    ("auto-compaction-retention", 4, 7),
    ("auto-tls", 4, 7),
    ("backend-batch-interval", 4, 7),
    ("backend-batch-limit", 4, 7),
    ("backend-bbolt-freelist-type", 5, 7),
    ("bcrypt-cost", 4, 7),
    ("bootstrap-defrag-threshold-megabytes", 6, 7),
    ("cert-file", 4, 7),
    ("cipher-suites", 4, 7),
    ("client-cert-allowed-hostname", 4, 7),
    ("client-cert-auth", 4, 7),
    ("client-cert-file", 5, 7),
    ("client-crl-file", 4, 7),
    ("client-key-file", 5, 7),
    ("compact-hash-check-time", 6, 7),
    ("compaction-batch-limit", 6, 7),
    ("compaction-sleep-interval", 6, 7),
    ("corrupt-check-time", 6, 7),
    ("cors", 4, 7),
    ("data-dir", 4, 7),
    ("debug", 4, 4),
    ("discovery", 4, 6),
    ("discovery-cacert", 6, 7),
    ("discovery-cert", 6, 7),
    ("discovery-dial-timeout", 6, 7),
    ("discovery-endpoints", 6, 7),
    ("discovery-fallback", 4, 7),
    ("discovery-insecure-skip-tls-verify", 6, 7),
    ("discovery-insecure-transport", 6, 7),
    ("discovery-keepalive-time", 6, 7),
    ("discovery-keepalive-timeout", 6, 7),
    ("discovery-key", 6, 7),
    ("discovery-password", 6, 7),
    ("discovery-proxy", 4, 6),
    ("discovery-request-timeout", 6, 7),
    ("discovery-srv", 4, 7),
    ("discovery-srv-name", 4, 7),
    ("discovery-token", 6, 7),
    ("discovery-user", 6, 7),
    ("distributed-tracing-address", 6, 7),
    ("distributed-tracing-instance-id", 6, 7),
    ("distributed-tracing-sampling-rate", 6, 7),
    ("distributed-tracing-service-name", 6, 7),
    ("downgrade-check-time", 6, 7),
    ("election-timeout", 4, 7),
    ("enable-distributed-tracing", 6, 7),
    ("enable-grpc-gateway", 4, 7),
    ("enable-log-rotation", 5, 7),
    ("enable-pprof", 4, 7),
    ("enable-v2", 4, 5),
    ("experimental-backend-bbolt-freelist-type", 4, 4),
    ("experimental-bootstrap-defrag-threshold-megabytes", 5, 6),
    ("experimental-compact-hash-check-enabled", 5, 6),
    ("experimental-compact-hash-check-time", 5, 6),
    ("experimental-compaction-batch-limit", 4, 6),
    ("experimental-compaction-sleep-interval", 5, 6),
    ("experimental-corrupt-check-time", 4, 6),
    ("experimental-distributed-tracing-address", 5, 6),
    ("experimental-distributed-tracing-instance-id", 5, 6),
    ("experimental-distributed-tracing-sampling-rate", 5, 6),
    ("experimental-distributed-tracing-service-name", 5, 6),
    ("experimental-downgrade-check-time", 5, 6),
    ("experimental-enable-distributed-tracing", 5, 6),
    ("experimental-enable-lease-checkpoint", 4, 6),
    ("experimental-enable-lease-checkpoint-persist", 4, 6),
    ("experimental-enable-v2v3", 4, 5),
    ("experimental-initial-corrupt-check", 4, 6),
    ("experimental-memory-mlock", 5, 6),
    ("experimental-peer-skip-client-san-verification", 4, 6),
    ("experimental-snapshot-catchup-entries", 5, 6),
    ("experimental-stop-grpc-service-on-defrag", 5, 6),
    ("experimental-txn-mode-write-with-shared-buffer", 5, 6),
    ("experimental-warning-apply-duration", 4, 6),
    ("experimental-warning-unary-request-duration", 6, 6),
    ("experimental-watch-progress-notify-interval", 4, 6),
    ("feature-gates", 6, 7),
    ("force-new-cluster", 4, 7),
    ("grpc-keepalive-interval", 4, 7),
    ("grpc-keepalive-min-time", 4, 7),
    ("grpc-keepalive-timeout", 4, 7),
    ("heartbeat-interval", 4, 7),
    ("host-whitelist", 4, 7),
    ("initial-advertise-peer-urls", 4, 7),
    ("initial-cluster", 4, 7),
    ("initial-cluster-state", 4, 7),
    ("initial-cluster-token", 4, 7),
    ("initial-election-tick-advance", 4, 7),
    ("key-file", 4, 7),
    ("listen-client-http-urls", 4, 7),
    ("listen-client-urls", 4, 7),
    ("listen-metrics-urls", 4, 7),
    ("listen-peer-urls", 4, 7),
    ("log-format", 6, 7),
    ("log-level", 4, 7),
    ("log-outputs", 4, 7),
    ("log-package-levels", 4, 4),
    ("log-rotation-config-json", 5, 7),
    ("logger", 4, 7),
    ("max-concurrent-streams", 4, 7),
    ("max-learners", 6, 7),
    ("max-request-bytes", 4, 7),
    ("max-snapshots", 4, 7),
    ("max-txn-ops", 4, 7),
    ("max-wals", 4, 7),
    ("memory-mlock", 6, 7),
    ("metrics", 4, 7),
    ("name", 4, 7),
    ("next-cluster-version-compatible", 4, 4),
    ("peer-auto-tls", 4, 7),
    ("peer-cert-allowed-cn", 4, 7),
    ("peer-cert-allowed-hostname", 4, 7),
    ("peer-cert-file", 4, 7),
    ("peer-client-cert-auth", 4, 7),
    ("peer-client-cert-file", 5, 7),
    ("peer-client-key-file", 5, 7),
    ("peer-crl-file", 4, 7),
    ("peer-key-file", 4, 7),
    ("peer-skip-client-san-verification", 6, 7),
    ("peer-trusted-ca-file", 4, 7),
    ("pre-vote", 4, 7),
    ("proxy", 4, 5),
    ("proxy-dial-timeout", 4, 5),
    ("proxy-failure-wait", 4, 5),
    ("proxy-read-timeout", 4, 5),
    ("proxy-refresh-interval", 4, 5),
    ("proxy-write-timeout", 4, 5),
    ("quota-backend-bytes", 4, 7),
    ("raft-read-timeout", 5, 7),
    ("raft-write-timeout", 5, 7),
    ("self-signed-cert-validity", 5, 7),
    ("snapshot-catchup-entries", 6, 7),
    ("snapshot-count", 4, 7),
    ("socket-reuse-address", 5, 7),
    ("socket-reuse-port", 5, 7),
    ("strict-reconfig-check", 4, 7),
    ("tls-max-version", 4, 7),
    ("tls-min-version", 4, 7),
    ("trusted-ca-file", 4, 7),
    ("unsafe-no-fsync", 4, 7),
    ("v2-deprecation", 5, 7),
    ("wal-dir", 4, 7),
    ("warning-apply-duration", 6, 7),
    ("warning-unary-request-duration", 6, 7),
    ("watch-progress-notify-interval", 6, 7),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn said(version: &str, name: &str) -> String {
        let (message, help) = problem(version.parse().unwrap(), name).unwrap();
        format!("{message}; {}", help.unwrap_or_default())
    }

    #[test]
    fn every_setting_is_listed_once_and_in_order() {
        assert!(SETTINGS.windows(2).all(|pair| pair[0].0 < pair[1].0));
        for (name, _) in OURS.iter().chain(REFUSED).chain(GATES) {
            assert!(SETTINGS.iter().any(|(known, ..)| known == name), "{name}");
        }
    }

    #[test]
    fn a_setting_that_a_version_lacks_is_told_with_its_successor() {
        assert_eq!(problem("3.5.34".parse().unwrap(), "snapshot-count"), None);
        assert!(said("3.6.15", "enable-v2").contains("3.5 was the last"));
        assert!(said("3.5.34", "feature-gates").contains("it came with 3.6"));
        assert!(said("3.7.2", "experimental-corrupt-check-time").ends_with("it is `corrupt-check-time` now"));
        assert!(said("3.7.2", "experimental-initial-corrupt-check").contains("InitialCorruptCheck=true"));
        assert!(said("3.5.34", "snapshot-cont").ends_with("did you mean `snapshot-count`?"));
        assert!(said("3.5.34", "data-dir").contains("determines it"));
        assert!(said("3.5.34", "force-new-cluster").contains("not allowed"));
        assert!(said("3.7.2", "discovery-proxy").contains("3.6 was the last"));
        assert!(has_discovery_url("3.6.15".parse().unwrap()) && !has_discovery_url("3.7.2".parse().unwrap()));
    }
}
