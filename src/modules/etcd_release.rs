//! `etcd_release`: the binary of a release, out of the catalogue.

use std::path::PathBuf;

use async_trait::async_trait;
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, ResultField,
    local::Source,
    place::{self, Place, Upload},
};
use crate::{
    inventory::sections::Release,
    model::{Effects, FileMode, Outcome, Version},
};

/// Puts the server of a release on the target, with the checksum that the catalogue has for it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EtcdRelease {
    /// The release.
    version: Version,
    /// The catalogue.
    #[serde(default)]
    releases: IndexMap<String, Release>,
    /// The path of the server on the target.
    dest: String,
}

impl Module for EtcdRelease {
    const NAME: &'static str = "etcd_release";
    const EXAMPLE: &'static str = "\
- name: Server
  etcd_release:
    version: \"{{ member.etcd.version }}\"
    releases: \"{{ etcd_releases }}\"
    dest: /opt/etcd/3.5.34/etcd
";
    const RESULT: &'static [ResultField] = place::RESULT;

    fn effects(&self) -> Effects {
        Effects::converging()
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        let version = self.version;
        let mut releases = self.releases.into_iter();
        let found = releases.find(|(name, _)| name.parse() == Ok(version));
        let (_, release) = found.ok_or_else(|| {
            ModuleError::new(format!("etcd {version} is not in `etcd_releases`"))
                .help("add it to the inventory, with a `file` or a `url` and its `sha256`")
        })?;
        let sha256 = release.sha256.ok_or_else(|| ModuleError::new(format!("etcd {version} has no checksum")))?;
        let Some(file) = release.file else {
            return Err(ModuleError::new(format!("etcd {version} has no `file`")));
        };
        let place = Place { dest: self.dest, mode: "0755".parse::<FileMode>().ok(), ..Place::default() };
        let (file, sha256) = (PathBuf::from(file), sha256.to_ascii_lowercase());
        Ok(Action::Engine(Box::new(Install {
            upload: Upload { place, source: Source::File(file.clone()) },
            file,
            sha256,
        })))
    }
}

struct Install {
    upload: Upload,
    file: PathBuf,
    sha256: String,
}

#[async_trait]
impl EngineAction for Install {
    async fn run(&self, context: &ActionContext) -> Result<Outcome, ActionError> {
        let found = place::fingerprint(&self.file).await?.sha256;
        if found != self.sha256 {
            let file = self.file.display();
            return Err(ActionError::Failed(format!(
                "{file} has the sha256 {found}, and the catalogue says {}",
                self.sha256
            )));
        }
        self.upload.run(context).await
    }
}
