//! What is known to be wrong with releases of etcd. Data, from etcd's change logs and security advisories.

use crate::model::Version;

/// Something that is wrong with all releases of some minor versions below the one that fixes it.
#[derive(Debug, PartialEq, Eq)]
pub struct Advisory {
    /// A CVE, or etcd's own name for it.
    pub id: &'static str,
    pub what: &'static str,
    /// The first release of each minor version that does not have it; minor versions that are not here do not have it, or are not
    /// known to.
    fixed: &'static [Version],
}

const fn three(minor: u16, patch: u16) -> Version {
    Version { major: 3, minor, patch }
}

#[rustfmt::skip]
pub static ADVISORIES: &[Advisory] = &[
    Advisory {
        id: "etcd-io/etcd#13908",
        what: "data and revisions can differ between members after a crash",
        fixed: &[three(5, 3)],
    },
    Advisory {
        id: "CVE-2021-28235",
        what: "passwords can be read through debugging endpoints",
        fixed: &[three(4, 25), three(5, 8)],
    },
    Advisory {
        id: "etcd-io/etcd#14733",
        what: "revisions can differ between members after a crash during a defragmentation",
        fixed: &[three(5, 6)],
    },
    Advisory {
        id: "etcd-io/etcd#20653",
        what: "a defragmentation while a snapshot arrives can damage the data",
        fixed: &[three(4, 38), three(5, 23), three(6, 5)],
    },
    Advisory {
        id: "CVE-2026-33413",
        what: "some requests are answered without authentication",
        fixed: &[three(4, 42), three(5, 28), three(6, 9)],
    },
    Advisory {
        id: "CVE-2026-33343",
        what: "nested transactions bypass permissions",
        fixed: &[three(4, 42), three(5, 28), three(6, 9)],
    },
    Advisory {
        id: "etcd-io/etcd#21682",
        what: "writes in transactions can read values and attach leases without permission",
        fixed: &[three(4, 44), three(5, 30), three(6, 11)],
    },
    Advisory {
        id: "GHSA-3wh4-j44w-pg92",
        what: "with `listen-client-http-urls`, revoked certificates are accepted",
        fixed: &[three(5, 32), three(6, 13)],
    },
    Advisory {
        id: "GHSA-xg4h-6gfc-h4m8",
        what: "a user who may read one key can watch all keys after it",
        fixed: &[three(5, 33), three(6, 14), three(7, 1)],
    },
    Advisory {
        id: "CVE-2026-73500",
        what: "connections that never finish their handshake use up memory",
        fixed: &[three(5, 33), three(6, 14), three(7, 1)],
    },
];

/// Whether etcdrun refuses a release: it loses data.
pub fn is_forbidden(version: Version) -> bool {
    version.series() == (3, 5) && version.patch < 3
}

/// What is wrong with one release.
#[derive(Debug, PartialEq, Eq)]
pub struct Concern {
    pub version: Version,
    pub advisories: Vec<&'static Advisory>,
    /// The first release of the same minor version that has none of them.
    pub fixed_in: Version,
}

impl Concern {
    /// Nothing if no advisory is known for the release.
    pub fn of(version: Version) -> Option<Self> {
        let fix = |advisory: &&'static Advisory| {
            let fixed = advisory.fixed.iter().find(|fixed| fixed.series() == version.series() && version < **fixed);
            fixed.map(|fixed| (*fixed, *advisory))
        };
        let found: Vec<_> = ADVISORIES.iter().filter_map(|advisory| fix(&advisory)).collect();
        let fixed_in = found.iter().map(|(fixed, _)| *fixed).max()?;
        Some(Self { version, advisories: found.into_iter().map(|(_, advisory)| advisory).collect(), fixed_in })
    }

    /// The ids and what they are about.
    pub fn told(&self) -> String {
        let told: Vec<String> = self.advisories.iter().map(|it| format!("{} ({})", it.id, it.what)).collect();
        told.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(version: &str) -> (Vec<&'static str>, String) {
        let concern = Concern::of(version.parse().unwrap());
        let fixed = concern.as_ref().map(|concern| concern.fixed_in.to_string()).unwrap_or_default();
        (concern.map(|it| it.advisories.iter().map(|it| it.id).collect()).unwrap_or_default(), fixed)
    }

    #[test]
    fn a_release_is_told_with_the_one_that_has_all_fixes() {
        let (found, fixed) = ids("3.5.27");
        assert_eq!(found.len(), 6, "{found:?}");
        assert!(found.contains(&"CVE-2026-33413") && found.contains(&"GHSA-xg4h-6gfc-h4m8"), "{found:?}");
        assert_eq!(fixed, "3.5.33");
        assert_eq!(ids("3.5.2").0.first(), Some(&"etcd-io/etcd#13908"));
        assert_eq!(ids("3.4.41").1, "3.4.44");
        assert_eq!(ids("3.6.13").1, "3.6.14");
        assert_eq!(ids("3.7.0"), (vec!["GHSA-xg4h-6gfc-h4m8", "CVE-2026-73500"], "3.7.1".to_owned()));
    }

    #[test]
    fn the_newest_of_each_minor_version_has_none() {
        for version in ["3.4.45", "3.5.34", "3.6.15", "3.7.2", "3.8.0"] {
            assert_eq!(Concern::of(version.parse().unwrap()), None, "{version}");
        }
    }

    #[test]
    fn every_advisory_is_told_once_and_is_documented() {
        let page = include_str!("../../../../docs/etcd.md");
        for (place, advisory) in ADVISORIES.iter().enumerate() {
            assert!(ADVISORIES[..place].iter().all(|before| before.id != advisory.id), "{}", advisory.id);
            let fixed: Vec<String> = advisory.fixed.iter().map(ToString::to_string).collect();
            let row = format!("| {} | {} | {} |", advisory.id, advisory.what, fixed.join(", "));
            assert!(page.contains(&row), "{row}");
        }
    }
}
