//! What a task may do to its target, said before it runs.

/// Whether a task can take a service or a machine down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Disruption {
    #[default]
    No,
    Maybe,
    Yes,
}

/// Something on a target that a task looks at or changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resource {
    /// A file or a folder itself, not what is in it.
    Path(String),
    /// A path and all that is below it.
    Tree(String),
    /// One line of a file that other tasks may share: a mount in fstab, a setting in a file of sysctl.
    Entry {
        file: String,
        key: String,
    },
    /// What systemd knows of a unit.
    Unit(String),
    AllUnits,
    Package(String),
    AllPackages,
    User(String),
    Group(String),
}

impl Resource {
    pub fn path(path: impl Into<String>) -> Self {
        Self::Path(trimmed(path.into()))
    }

    pub fn tree(path: impl Into<String>) -> Self {
        Self::Tree(trimmed(path.into()))
    }

    /// What a path or a pattern like `/var/lib/*.db` may name.
    pub fn glob(pattern: &str) -> Self {
        match pattern.find(['*', '?', '[']) {
            None => Self::tree(pattern),
            Some(at) => Self::tree(pattern[..at].rsplit_once('/').map_or("", |(folder, _)| folder)),
        }
    }

    /// A folder, and those above it that may have to be made.
    pub fn folders(path: &str) -> Vec<Self> {
        let path = trimmed(path.to_owned());
        let above = path.match_indices('/').filter(|(at, _)| *at > 0).map(|(at, _)| Self::Path(path[..at].to_owned()));
        above.chain([Self::Path(path.clone())]).collect()
    }

    /// Whether changing one could change what is seen of the other.
    pub fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Entry { file: one, key: a }, Self::Entry { file: other, key: b }) => one == other && a == b,
            (Self::Entry { file, .. }, other) | (other, Self::Entry { file, .. }) => {
                other.overlaps(&Self::Path(file.clone()))
            }
            (Self::Tree(one), Self::Tree(other)) => is_in(one, other) || is_in(other, one),
            (Self::Tree(tree), Self::Path(path)) | (Self::Path(path), Self::Tree(tree)) => is_in(path, tree),
            (Self::AllUnits, Self::Unit(_) | Self::AllUnits) | (Self::Unit(_), Self::AllUnits) => true,
            (Self::AllPackages, Self::Package(_) | Self::AllPackages) | (Self::Package(_), Self::AllPackages) => true,
            (one, other) => one == other,
        }
    }

    /// What a person calls it.
    pub fn describe(&self) -> String {
        match self {
            Self::Path(path) | Self::Tree(path) => path.clone(),
            Self::Entry { file, key } => format!("{key} in {file}"),
            Self::Unit(name) => format!("the unit {name}"),
            Self::AllUnits => "what runs there".to_owned(),
            Self::Package(name) => format!("the package {name}"),
            Self::AllPackages => "the packages".to_owned(),
            Self::User(name) => format!("the user {name}"),
            Self::Group(name) => format!("the group {name}"),
        }
    }
}

fn trimmed(path: String) -> String {
    match path.trim_end_matches('/') {
        "" => "/".to_owned(),
        short => short.to_owned(),
    }
}

fn is_in(path: &str, tree: &str) -> bool {
    let tree = tree.trim_end_matches('/');
    path.strip_prefix(tree).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A module's statement about one call with given arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Changes nothing, so it also runs in check mode.
    pub read_only: bool,
    /// What it does cannot be known without running it (raw commands).
    pub opaque: bool,
    pub disrupts: Disruption,
    /// What it says holds for the moment: a run that is resumed asks again before it acts on it.
    pub perishable: bool,
    /// Asks the cluster itself before it takes a member down.
    pub careful: bool,
    /// Changes files of the operator.
    pub here: bool,
    /// What its result follows from, on its target.
    pub reads: Vec<Resource>,
    /// What it may change there.
    pub writes: Vec<Resource>,
}

impl Effects {
    /// A module that looks before it changes and can predict the change.
    pub fn converging() -> Self {
        Self::default()
    }

    pub fn read_only() -> Self {
        Self { read_only: true, ..Self::default() }
    }

    pub fn perishable(self) -> Self {
        Self { perishable: true, ..self }
    }

    pub fn opaque() -> Self {
        Self { opaque: true, disrupts: Disruption::Maybe, ..Self::default() }
    }

    /// Whatever it takes down, it asks the cluster first.
    pub fn careful(self) -> Self {
        Self { careful: true, ..self }
    }

    pub fn disrupting(self, disrupts: Disruption) -> Self {
        Self { disrupts, ..self }
    }

    pub fn reading(mut self, reads: impl IntoIterator<Item = Resource>) -> Self {
        self.reads.extend(reads);
        self
    }

    pub fn writing(mut self, writes: impl IntoIterator<Item = Resource>) -> Self {
        self.writes.extend(writes);
        self
    }

    /// Brings these into a state, so it looks at them too.
    pub fn on(self, resources: impl IntoIterator<Item = Resource>) -> Self {
        let resources: Vec<_> = resources.into_iter().collect();
        self.reading(resources.clone()).writing(resources)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_overlaps_is_said_by_paths_not_by_their_letters() {
        let (path, tree) = (|text: &str| Resource::path(text), |text: &str| Resource::tree(text));
        let entry = |key: &str| Resource::Entry { file: "/etc/fstab".into(), key: key.into() };
        let overlapping = [
            (path("/etc/motd"), path("/etc/motd/")),
            (tree("/opt/etcd"), path("/opt/etcd/bin/etcd")),
            (tree("/opt"), tree("/opt/etcd")),
            (tree("/"), path("/etc")),
            (entry("/data"), path("/etc/fstab")),
            (entry("/data"), entry("/data")),
            (Resource::AllUnits, Resource::Unit("etcd.service".into())),
            (Resource::glob("/var/lib/*.db"), path("/var/lib/x.db")),
        ];
        let apart = [
            (path("/etc"), path("/etc/motd")),
            (tree("/opt/etcd"), path("/opt/etcd2")),
            (entry("/data"), entry("/other")),
            (entry("/data"), path("/etc")),
            (Resource::User("etcd".into()), Resource::Group("etcd".into())),
            (Resource::Package("a".into()), Resource::Package("b".into())),
        ];
        for (overlaps, pairs) in [(true, overlapping.as_slice()), (false, &apart)] {
            for (one, other) in pairs {
                let both = (one.overlaps(other), other.overlaps(one));
                assert_eq!(both, (overlaps, overlaps), "{one:?} and {other:?}");
            }
        }
        assert_eq!(Resource::folders("/a/b/"), [path("/a"), path("/a/b")]);
    }
}
