//! The newest releases, as far as this build knows, and what is to be said of a version. Data; `--online` adds to it.

use std::collections::BTreeMap;

use crate::{
    etcd::{
        advisories::{Concern, is_forbidden},
        settings,
    },
    model::Version,
};

/// When the table was last compared with what is published.
pub const AS_OF: &str = "2026-11-17";

const fn three(minor: u16, patch: u16) -> Version {
    Version { major: 3, minor, patch }
}

/// The newest release of each minor version, and whether it gets fixes.
static SERIES: [(Version, bool); 4] =
    [(three(4, 45), false), (three(5, 34), true), (three(6, 15), true), (three(7, 2), true)];

/// The newest release of each minor version.
#[derive(Clone, Debug)]
pub struct Newest(BTreeMap<(u16, u16), Version>);

impl Newest {
    pub fn built_in() -> Self {
        let mut newest = Self(BTreeMap::new());
        newest.learn(SERIES.iter().map(|(version, _)| *version));
        newest
    }

    /// What a place has besides. One that lacks a release does not make it unknown.
    pub fn learn(&mut self, versions: impl IntoIterator<Item = Version>) {
        for version in versions {
            let known = self.0.entry(version.series()).or_insert(version);
            *known = version.max(*known);
        }
    }

    pub fn of(&self, version: Version) -> Option<Version> {
        self.0.get(&version.series()).copied()
    }

    /// The newest release that etcdrun can install.
    pub fn usable(&self) -> Option<Version> {
        self.0.values().copied().filter(|version| settings::is_known(*version)).max()
    }

    /// The newest of the minor versions that are too new for etcdrun.
    pub fn beyond(&self) -> Option<Version> {
        self.0.values().copied().max().filter(|version| !settings::is_known(*version))
    }
}

/// Something that is to be said of a version.
#[derive(Debug, PartialEq, Eq)]
pub enum Finding {
    /// It loses data.
    Forbidden,
    Advisories(Concern),
    /// Its minor version gets no fixes.
    Ended {
        usable: Option<Version>,
    },
    /// There is a newer patch.
    Outdated {
        newest: Version,
    },
}

/// What is to be said of a version, the worst first.
pub fn findings(version: Version, newest: &Newest) -> Vec<Finding> {
    let mut found = Vec::new();
    if is_forbidden(version) {
        found.push(Finding::Forbidden);
    }
    found.extend(Concern::of(version).map(Finding::Advisories));
    if SERIES.iter().any(|(last, has_fixes)| last.series() == version.series() && !has_fixes) {
        found.push(Finding::Ended { usable: newest.usable() });
    }
    found.extend(newest.of(version).filter(|newest| *newest > version).map(|newest| Finding::Outdated { newest }));
    found
}

impl Finding {
    /// Its name for programs, and in the table.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Forbidden => "loses-data",
            Self::Advisories(_) => "advisories",
            Self::Ended { .. } => "end-of-life",
            Self::Outdated { .. } => "outdated",
        }
    }

    /// What it means, and what to do.
    pub fn told(&self, version: Version) -> String {
        match self {
            Self::Forbidden => "it can lose data: 3.5.0 to 3.5.2 must not be run".to_owned(),
            Self::Advisories(concern) => format!("{}; fixed in {}", concern.told(), concern.fixed_in),
            Self::Ended { usable } => {
                let (major, minor) = version.series();
                let next =
                    usable.map(|usable| format!("; upgrade to a later minor version, the newest release is {usable}"));
                format!("{major}.{minor} gets no more fixes{}", next.unwrap_or_default())
            }
            Self::Outdated { newest } => {
                let (major, minor) = version.series();
                format!("{newest} is the newest {major}.{minor}; run `etcdrun releases add {newest}`")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(version: &str, newest: &Newest) -> Vec<&'static str> {
        findings(version.parse().unwrap(), newest).iter().map(Finding::name).collect()
    }

    #[test]
    fn versions_are_judged_by_the_table() {
        let newest = Newest::built_in();
        assert_eq!(names("3.5.34", &newest), [""; 0]);
        assert_eq!(names("3.5.33", &newest), ["outdated"]);
        assert_eq!(names("3.5.2", &newest), ["loses-data", "advisories", "outdated"]);
        assert_eq!(names("3.4.45", &newest), ["end-of-life"]);
        assert_eq!(names("3.9.1", &newest), [""; 0]);
        assert_eq!((newest.usable(), newest.beyond()), (Some(three(7, 2)), None));
    }

    #[test]
    fn a_place_adds_what_it_has_and_takes_nothing_away() {
        let mut newest = Newest::built_in();
        newest.learn([three(5, 36), three(5, 35), three(6, 1), three(8, 0)]);
        assert_eq!(names("3.5.34", &newest), ["outdated"]);
        assert_eq!((newest.of(three(6, 0)), newest.beyond()), (Some(three(6, 15)), Some(three(8, 0))));
        assert_eq!(newest.usable(), Some(three(7, 2)));
        let told = findings(three(5, 34), &newest)[0].told(three(5, 34));
        assert_eq!(told, "3.5.36 is the newest 3.5; run `etcdrun releases add 3.5.36`");
    }

    #[test]
    fn the_table_has_every_minor_version_and_no_release_with_a_known_problem() {
        for minor in settings::KNOWN_MINORS {
            let (newest, _) = SERIES.iter().find(|(version, _)| version.minor == minor).unwrap();
            assert_eq!(Concern::of(*newest), None, "{newest}");
        }
        let page = include_str!("../../../../docs/etcd.md");
        for (newest, has_fixes) in &SERIES {
            let (major, minor) = newest.series();
            let told = page.contains(&format!("{major}.{minor} gets no fixes after {newest}"));
            assert_eq!(told, !has_fixes, "{newest}");
        }
        assert!(AS_OF.parse::<jiff::civil::Date>().is_ok());
    }
}
