//! `package`: packages of the distribution, by apt or dnf.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Action, BuildContext, Module, ModuleError, ResultField};
use crate::{
    model::{Disruption, Effects, Resource, Seconds},
    remote::Payload,
};

/// Installs, upgrades or removes packages with the target's own package manager.
///
/// Changed configuration files are kept, the task waits for a busy package manager, and nothing
/// prompts. needrestart does not restart services.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Package {
    /// Packages: `NAME`, or `NAME=VERSION` to have that version.
    #[serde(default)]
    name: Option<Vec<String>>,
    #[serde(default)]
    state: State,
    /// Upgrade all that is installed. What is new and needed for that is installed too; nothing is removed.
    #[serde(default)]
    upgrade: bool,
    /// Update the package lists first. Without `name` this is all the task does.
    #[serde(default)]
    update_cache: Option<bool>,
    /// Lists younger than this need no update. Implies `update_cache`.
    #[serde(default)]
    cache_valid_time: Option<Seconds>,
    /// Whether to install recommended packages; default: the host's configuration.
    #[serde(default)]
    install_recommends: Option<bool>,
    /// Accept a version that is older than the one installed (apt).
    #[serde(default)]
    allow_downgrade: bool,
    /// Remove configuration files too, with `state: absent` (apt).
    #[serde(default)]
    purge: bool,
    /// Remove dependencies that nothing needs any more.
    #[serde(default)]
    autoremove: bool,
    /// How long to wait for another apt or dpkg to end.
    #[serde(default = "default_lock_timeout")]
    lock_timeout: Seconds,
    #[serde(default)]
    manager: Manager,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum State {
    /// Installed, in any version unless `name` gives one.
    #[default]
    Present,
    Absent,
    /// Installed, in the newest version of the lists.
    Latest,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Manager {
    /// The first of apt, dnf and yum that the target has.
    #[default]
    Auto,
    Apt,
    Dnf,
    Yum,
}

fn default_lock_timeout() -> Seconds {
    Seconds(std::time::Duration::from_secs(60))
}

impl Module for Package {
    const NAME: &'static str = "package";
    const FREE_FORM: Option<&'static str> = Some("name");
    const EXAMPLE: &'static str = "\
- name: Install chrony and jq
  package:
    name: [chrony, jq]
    update_cache: true
    cache_valid_time: 1h
";
    const RESULT: &'static [ResultField] = &[
        ResultField { name: "manager", doc: "Which package manager did it: apt or dnf." },
        ResultField { name: "cache_updated", doc: "Whether the package lists were updated." },
        ResultField { name: "changes", doc: "What was done: a list of lines like `install tree 2.1.0-1`." },
    ];

    fn validate(&self) -> Result<(), ModuleError> {
        if self.upgrade && self.name.is_some() {
            return Err(ModuleError::new("`upgrade` is about all packages, `name` about some").help("keep one of them"));
        }
        if self.name.is_none() && !self.upgrade && self.update_cache.is_none() && self.cache_valid_time.is_none() {
            return Err(ModuleError::new("`name` is missing")
                .help("only `update_cache: true` and `upgrade: true` go without it"));
        }
        Ok(())
    }

    fn effects(&self) -> Effects {
        let names = self.name.iter().flatten().map(|name| name.split('=').next().unwrap_or(name).to_owned());
        let lists = ["/etc/apt", "/etc/yum.repos.d", "/etc/dnf"].map(Resource::tree);
        let all = self.upgrade.then_some(Resource::AllPackages);
        Effects::converging().disrupting(Disruption::Maybe).reading(lists).on(names.map(Resource::Package).chain(all))
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        let names = self.name.unwrap_or_default();
        names.iter().try_for_each(|name| check_name(name))?;
        let update_cache = self.update_cache.unwrap_or(self.cache_valid_time.is_some());
        let cache_valid_time = self.cache_valid_time.map_or(0, |time| time.0.as_secs());
        let payload = Payload::new(include_str!("package.sh"))
            .value("state", self.state.name())
            .flag("upgrade", self.upgrade)
            .flag("update_cache", update_cache)
            .value("cache_valid_time", cache_valid_time.to_string())
            .maybe("install_recommends", self.install_recommends.map(|wanted| wanted.to_string()))
            .flag("allow_downgrade", self.allow_downgrade)
            .flag("purge", self.purge)
            .flag("autoremove", self.autoremove)
            .value("lock_timeout", self.lock_timeout.0.as_secs().to_string())
            .value("manager", self.manager.name());
        Ok(Action::Remote(names.iter().fold(payload, Payload::arg)))
    }
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Present => "present",
            Self::Absent => "absent",
            Self::Latest => "latest",
        }
    }
}

impl Manager {
    fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Apt => "apt",
            Self::Dnf => "dnf",
            Self::Yum => "yum",
        }
    }
}

/// Keeps out what the tools would take for an option, a pattern or several words.
fn check_name(name: &str) -> Result<(), ModuleError> {
    let (package, version) = name.split_once('=').unwrap_or((name, "-"));
    let allowed = |c: char| c.is_ascii_alphanumeric() || "+-._:~@/()^".contains(c);
    let starts_well = package.starts_with(|c: char| c.is_ascii_alphanumeric() || "@/".contains(c));
    let is_version = !version.is_empty() && version.chars().all(|c| allowed(c) || c == '*');
    if starts_well && package.chars().all(allowed) && is_version {
        return Ok(());
    }
    Err(ModuleError::new(format!("`{name}` is not the name of a package"))
        .help("write NAME or NAME=VERSION, several as a list"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_become_options_or_patterns() {
        for good in ["tree", "libstdc++6", "libc6:amd64", "etcd=3.5.*", "etcd=1:3.5.16-1~deb12u1", "@development"] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in ["", "-y", "a b", "tree*", "tree=", "--purge", "a;b", "tree\n"] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }
}
