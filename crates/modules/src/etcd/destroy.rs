//! `etcd_destroy`: a cluster that is no more.

use std::{fs, io, path::Path};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, ResultField, Running,
};
use crate::{
    model::{Disruption, Effects, Outcome, Resource},
    remote::Payload,
};
use etcdrun_etcd::etcd::UNIT;

const BODY: &str =
    concat!(include_str!("../support/systemd.sh"), include_str!("../support/aside.sh"), include_str!("destroy.sh"));

/// Deletes a cluster: on a host, etcd with its data; on the operator's workstation, the records of the cluster.
///
/// There is no quorum check. So the name of the cluster is required twice, and a host that is a
/// member of another cluster is not changed. `etcdrun destroy` takes a last backup, and prompts.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EtcdDestroy {
    /// The step.
    state: DestroyState,
    /// The cluster's name.
    cluster: String,
    /// Its name, repeated.
    confirm: String,
    /// The data directory.
    #[serde(default = "super::data_dir")]
    data_dir: String,
    /// The directory with the settings and the keys.
    #[serde(default = "config_dir")]
    config_dir: String,
    /// The etcd binary.
    #[serde(default)]
    server: Option<String>,
    /// Move the data and the records of the cluster aside instead of deleting them.
    #[serde(default)]
    keep_data: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum DestroyState {
    /// The target is no longer a member.
    Gone,
    /// The state directory has no records of the cluster any more: neither its ID, nor its CA and certificates.
    Forgotten,
}

fn config_dir() -> String {
    "/etc/etcd".into()
}

impl Module for EtcdDestroy {
    const NAME: &'static str = "etcd_destroy";
    const EXAMPLE: &'static str = "\
- name: Remove the member
  etcd_destroy: { state: gone, cluster: test, confirm: test }
";
    const RESULT: &'static [ResultField] =
        &[ResultField { name: "aside", doc: "Where the data is now, with `keep_data`, if there was any." }];

    fn effects(&self) -> Effects {
        match self.state {
            DestroyState::Forgotten => Effects { here: true, ..Effects::converging() },
            // Whoever says the name twice knows that the cluster goes.
            DestroyState::Gone => {
                let settings = [Resource::Unit(UNIT.into()), Resource::tree(&self.data_dir)];
                let settings = settings.into_iter().chain([Resource::tree(&self.config_dir)]);
                Effects::converging().disrupting(Disruption::Maybe).careful().on(settings)
            }
        }
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        if self.confirm != self.cluster {
            return Err(ModuleError::new(format!("`confirm` has to be `{}`, the name of the cluster", self.cluster)));
        }
        if self.state == DestroyState::Forgotten {
            return Ok(Action::Engine(Box::new(self)));
        }
        for path in [Some(&self.data_dir), Some(&self.config_dir), self.server.as_ref()].into_iter().flatten() {
            let path = path.trim_end_matches('/');
            if !path.starts_with('/') || path.matches('/').count() < 2 || path.contains("/..") {
                return Err(ModuleError::new(format!("`{path}` was not created by etcdrun")));
            }
        }
        let payload = Payload::new(BODY)
            .value("cluster", &self.cluster)
            .value("data_dir", &self.data_dir)
            .value("config_dir", &self.config_dir)
            .value("server", self.server.as_deref().unwrap_or_default())
            .flag("keep_data", self.keep_data);
        Ok(Action::Remote(payload))
    }
}

impl EngineAction for EtcdDestroy {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            let known = known(&context.state, &self.cluster);
            let there: Vec<&str> =
                known.iter().map(String::as_str).filter(|path| context.state.join(path).exists()).collect();
            if there.is_empty() {
                return Ok(Outcome::ok());
            }
            if !context.check_mode() {
                context.permit()?;
                let time = Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
                let aside = self.keep_data.then(|| format!("destroyed/{}-{time}", self.cluster));
                for path in &there {
                    let done = forget(&context.state, path, aside.as_deref());
                    done.map_err(|error| ActionError::Failed(format!("{path} in the state directory: {error}")))?;
                }
            }
            Ok(Outcome { msg: there.join(", "), ..Outcome::changed() })
        })
    }
}

/// What the state folder may have of a cluster. What says that it was formed goes last: until then it is not forgotten.
fn known(state: &Path, cluster: &str) -> Vec<String> {
    let beginning_with = |folder: &str, beginning: String| -> Vec<String> {
        let entries = fs::read_dir(state.join(folder)).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with(&beginning)).map(|name| format!("{folder}/{name}")).collect()
    };
    let former = beginning_with("restore", format!("{cluster}-restored-"));
    let older = beginning_with("clusters", format!("{cluster}.before-"));
    let rest = [format!("pki/{cluster}"), format!("clusters/{cluster}.turns"), format!("clusters/{cluster}.json")];
    former.into_iter().chain(older).chain(rest).collect()
}

fn forget(state: &Path, path: &str, aside: Option<&str>) -> io::Result<()> {
    let there = state.join(path);
    if let Some(aside) = aside {
        let dest = state.join(aside).join(path);
        fs::create_dir_all(dest.parent().unwrap_or(state))?;
        return fs::rename(there, dest);
    }
    match there.is_dir() {
        true => fs::remove_dir_all(there),
        false => fs::remove_file(there),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_another_cluster_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        };
        let own =
            ["pki/prod/ca.crt", "clusters/prod.json", "restore/prod-restored-1/db", "clusters/prod.before-1.json"];
        let other = ["pki/prod-2/ca.crt", "clusters/prod-2.json", "restore/prod-2-restored-1/db"];
        own.iter().chain(&other).for_each(|name| write(name));
        for path in known(folder.path(), "prod") {
            if folder.path().join(&path).exists() {
                forget(folder.path(), &path, None).unwrap();
            }
        }
        assert!(own.iter().all(|name| !folder.path().join(name).exists()));
        assert!(other.iter().all(|name| folder.path().join(name).exists()));
        forget(folder.path(), "pki/prod-2", Some("destroyed/x")).unwrap();
        assert!(folder.path().join("destroyed/x/pki/prod-2/ca.crt").exists());
    }
}
