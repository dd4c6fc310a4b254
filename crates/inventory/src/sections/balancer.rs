//! `balancer`: the one address that clients of a cluster use.

use schemars::JsonSchema;
use serde::Deserialize;

/// The load balancer in front of a cluster, for the role `load_balancer`. `etcdrun url` prints its URL.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BalancerSection {
    /// The name or address that clients connect to. It must also be in `tls.names`.
    pub name: String,
    /// The port that clients connect to; default: `client_port` of `etcd`.
    pub port: Option<u16>,
}

impl BalancerSection {
    /// Whether certificates with these names are valid for it: it is one of them, or a wildcard of one label covers it.
    pub fn is_named_in(&self, names: &[String]) -> bool {
        let wildcard = self.name.split_once('.').map(|(_, rest)| format!("*.{rest}"));
        names.iter().any(|name| name.eq_ignore_ascii_case(&self.name) || Some(name) == wildcard.as_ref())
    }

    /// Whether it can stand in a URL.
    pub fn has_name(&self) -> bool {
        let is_label = |label: &str| {
            !label.is_empty()
                && !label.starts_with('-')
                && label.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-')
        };
        self.name.parse::<std::net::IpAddr>().is_ok() || self.name.split('.').all(is_label)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_valid_for_it_by_name_or_wildcard() {
        let balancer = |name: &str| BalancerSection { name: name.to_owned(), port: None };
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert!(balancer("etcd.example.org").is_named_in(&names(&["a", "etcd.example.org"])));
        assert!(balancer("etcd.example.org").is_named_in(&names(&["*.example.org"])));
        assert!(!balancer("a.etcd.example.org").is_named_in(&names(&["*.example.org", "example.org"])));
        assert!(balancer("10.0.0.5").has_name() && balancer("fd00::5").has_name() && balancer("etcd").has_name());
        assert!(!balancer("https://etcd").has_name() && !balancer("a..b").has_name() && !balancer("").has_name());
    }
}
