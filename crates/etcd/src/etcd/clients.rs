//! Which clients can work with which versions of etcd.

use super::rules::Step;
use crate::{
    inventory::sections::{ClientName, EtcdClient},
    model::Version,
};

const fn version(major: u16, minor: u16, patch: u16) -> Version {
    Version { major, minor, patch }
}

/// From these on, nobody lists members or renews leases without saying who they are (CVE-2026-33413). 3.7 has it from its start.
const GUARDED: [Version; 3] = [version(3, 4, 42), version(3, 5, 28), version(3, 6, 9)];
/// The first Patroni of each series that does say so there.
const PATRONI: [Version; 3] = [version(3, 3, 9), version(4, 0, 8), version(4, 1, 1)];

/// Why a client would not get on with a step of a cluster that authenticates, and the way out.
pub(super) fn refusal(client: &EtcdClient, step: Step) -> Option<(String, String)> {
    let EtcdClient { name: ClientName::Patroni, version } = client;
    let to = step.to;
    // The first fix went too far: only root could list members, until the next release.
    if GUARDED.contains(&to) {
        return Some((
            format!("authentication is enabled, and etcd {to} lets only root list the members, which Patroni needs"),
            format!("use a later {}.{}", to.major, to.minor),
        ));
    }
    if !is_guarded(to) || is_guarded(step.from) || logs_in_everywhere(*version) {
        return None;
    }
    let [three, four, latest] = PATRONI;
    Some((
        format!(
            "authentication is enabled, and Patroni {version} lists members and renews leases without a login, which etcd {to} refuses: PostgreSQL would lose its leader"
        ),
        format!(
            "upgrade Patroni to {latest} or later (or to {four}, {three}) first, and set its version under `clients`"
        ),
    ))
}

fn is_guarded(version: Version) -> bool {
    match GUARDED.iter().find(|first| first.series() == version.series()) {
        Some(first) => version >= *first,
        None => version.series() > (3, 6),
    }
}

fn logs_in_everywhere(version: Version) -> bool {
    match PATRONI.iter().find(|first| first.series() == version.series()) {
        Some(first) => version >= *first,
        None => version.series() > (4, 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(patroni: &str, from: &str, to: &str) -> String {
        let client = EtcdClient { name: ClientName::Patroni, version: patroni.parse().unwrap() };
        let step = Step { from: from.parse().unwrap(), to: to.parse().unwrap() };
        refusal(&client, step).map(|(what, way_out)| format!("{what}; {way_out}")).unwrap_or_default()
    }

    #[test]
    fn a_patroni_that_does_not_log_in_is_told_at_the_fix() {
        for (from, to) in [("3.5.27", "3.5.29"), ("3.4.41", "3.5.34"), ("3.5.26", "3.6.15"), ("3.6.8", "3.7.2")] {
            for old in ["3.2.2", "3.3.8", "4.0.7", "4.1.0"] {
                assert!(says(old, from, to).contains("4.1.1 or later"), "{old}: {from} to {to}");
            }
            for new in ["3.3.9", "4.0.8", "4.1.1", "4.2.0", "5.0.0"] {
                assert_eq!(says(new, from, to), "", "{new}: {from} to {to}");
            }
        }
        assert_eq!(says("4.0.7", "3.5.29", "3.5.34"), "");
        assert_eq!(says("4.0.7", "3.4.40", "3.4.41"), "");
    }

    #[test]
    fn the_first_fixed_releases_are_for_no_patroni() {
        for (from, to) in [("3.4.41", "3.4.42"), ("3.5.34", "3.5.28"), ("3.6.8", "3.6.9")] {
            assert!(says("4.1.4", from, to).contains("only root"), "{to}");
        }
    }
}
