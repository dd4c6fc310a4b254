//! `etcd_release`: the binary of a release, out of the catalogue.

use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::OnceCell;

use super::{
    Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, ResultField, Running,
    local::Fingerprint,
    place::{self, Place},
};
use crate::{
    inventory::sections::Release,
    model::{Effects, FileMode, Outcome, Resource, Value, Version},
    remote::Payload,
};
use etcdrun_base::mutant::{is_off, repair};

/// Installs the etcd binary of a release on the target, with the checksum of `etcd_releases`.
///
/// A release is a binary, or a tarball as etcd publishes it (`.tar.gz`), from which the binary is unpacked.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EtcdRelease {
    /// The release.
    version: Version,
    /// The releases: `etcd_releases`.
    #[serde(default)]
    releases: IndexMap<String, Release>,
    /// The path of the etcd binary on the target.
    dest: String,
    /// Also replace the version of a running etcd.
    #[serde(default)]
    replace: bool,
    /// The file on the target that a release with a `url` was downloaded to.
    #[serde(default)]
    downloaded: Option<String>,
    /// The name of the target's cluster. While etcd runs, its members get the file one at a time: disks that are busy with it
    /// slow down only a minority.
    #[serde(default)]
    cluster: Option<String>,
}

impl Module for EtcdRelease {
    const NAME: &'static str = "etcd_release";
    const EXAMPLE: &'static str = "\
- name: Install etcd
  etcd_release:
    version: \"{{ member.etcd.version }}\"
    releases: \"{{ etcd_releases }}\"
    dest: /opt/etcd/3.5.34/etcd
";
    const RESULT: &'static [ResultField] = place::RESULT;

    fn effects(&self) -> Effects {
        Effects::converging().writing([Resource::path(&self.dest)])
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        let version = self.version;
        let mut releases = self.releases.into_iter();
        let found = releases.find(|(name, _)| name.parse() == Ok(version));
        let (_, release) = found.ok_or_else(|| {
            ModuleError::new(format!("etcd {version} is not in `etcd_releases`"))
                .help(format!("add it to the inventory: `etcdrun releases add {version}`"))
        })?;
        let sha256 = release.sha256.ok_or_else(|| ModuleError::new(format!("etcd {version} has no checksum")))?;
        let sha256 = sha256.to_ascii_lowercase();
        let whence = match (release.file, self.downloaded) {
            (Some(file), _) => Whence::File(PathBuf::from(file)),
            (None, Some(path)) => Whence::Target(path),
            (None, None) => {
                return Err(ModuleError::new(format!(
                    "etcd {version} has a `url`: set `downloaded` to the downloaded file"
                )));
            }
        };
        Ok(Action::Engine(Box::new(Install {
            dest: self.dest,
            sha256,
            whence,
            keep: (!self.replace).then_some(version),
            turn: self.cluster.filter(|_| self.replace),
        })))
    }
}

/// Where the release is.
enum Whence {
    /// On this machine.
    File(PathBuf),
    /// On the target already.
    Target(String),
}

struct Install {
    dest: String,
    sha256: String,
    whence: Whence,
    /// A server that runs must be of this version.
    keep: Option<Version>,
    /// The cluster of which only one member at a time writes to its disk.
    turn: Option<String>,
}

/// The sum of a file, which members that are installed at the same time share.
#[derive(Default)]
struct Sum(OnceCell<Fingerprint>);

/// Held by the one of a cluster that writes.
#[derive(Default)]
struct WriteTurn(tokio::sync::Mutex<()>);

impl EngineAction for Install {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            if let Some(version) = self.keep {
                refuse_other(context, version).await?;
            }
            match &self.whence {
                Whence::Target(path) => context.run(self.payload(path, is_tarball(path))).await,
                Whence::File(file) => self.install_file(context, file).await,
            }
        })
    }
}

impl Install {
    /// The file is read, and its sum compared, only if the target needs it.
    async fn install_file(&self, context: &ActionContext, file: &Path) -> Result<Outcome, ActionError> {
        let tarball = is_tarball(&file.to_string_lossy());
        let place = Place { dest: self.dest.clone(), mode: "0755".parse::<FileMode>().ok(), ..Place::default() };
        let size = tokio::fs::metadata(file).await.map(|file| file.len());
        let size = size.map_err(|error| ActionError::Failed(format!("{}: {error}", file.display())))?;
        let fingerprint = Fingerprint { sha256: self.sha256.clone(), size };
        let ask = if tarball { self.payload("", true) } else { place.ask(&fingerprint) };
        let mut asked = context.run(ask).await?;
        let wanted = asked.data.shift_remove("wanted") == Some(Value::Bool(true));
        if asked.failed || !wanted {
            return Ok(asked);
        }
        self.check(context, file).await?;
        if context.check_mode() {
            return Ok(asked);
        }
        let turn = self.turn.as_ref().map(|cluster| context.scope.used::<WriteTurn>(cluster));
        let _turn = match &turn {
            Some(turn) => Some(turn.0.lock().await),
            None => None,
        };
        let staged = context.upload(file).await?;
        context.run(if tarball { self.payload(&staged, true) } else { place.staged(&staged, &fingerprint) }).await
    }

    /// What is here must be what the catalogue says, or nothing is sent.
    async fn check(&self, context: &ActionContext, file: &Path) -> Result<(), ActionError> {
        let sum = context.scope.used::<Sum>(&file.to_string_lossy());
        let found = &sum.0.get_or_try_init(|| place::fingerprint(file)).await?.sha256;
        is_as_listed(file, found, &self.sha256)
    }

    fn payload(&self, staged: &str, tarball: bool) -> Payload {
        Payload::new(include_str!("release.sh"))
            .value("dest", &self.dest)
            .value("sha256", &self.sha256)
            .value("staged", staged)
            .flag("tarball", tarball)
    }
}

/// Another version must not slip in with the next boot.
async fn refuse_other(context: &ActionContext, version: Version) -> Result<(), ActionError> {
    let outcome = context.run(Payload::new(include_str!("running.sh"))).await?;
    let running = outcome.data.get("running").and_then(Value::as_str);
    let running = running.and_then(|path| Path::new(path).parent()?.file_name()?.to_str()?.parse::<Version>().ok());
    match running {
        Some(running) if running != version => Err(ActionError::Failed(format!(
            "etcd {running} runs here, but the inventory has {version}: site.yaml does not change the version of a running member; run `etcdrun playbook upgrade.yaml`"
        ))),
        _ => Ok(()),
    }
}

fn is_tarball(name: &str) -> bool {
    name.ends_with(".tar.gz") || name.ends_with(".tgz")
}

fn is_as_listed(file: &Path, found: &str, listed: &str) -> Result<(), ActionError> {
    if found == listed || is_off(repair::RELEASE_SUM) {
        return Ok(());
    }
    let file = file.display();
    Err(ActionError::Failed(format!("{file} has the sha256 {found}, but `etcd_releases` has {listed}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_the_listed_one_is_not_sent() {
        assert!(is_as_listed(Path::new("etcd"), "aa", "aa").is_ok());
        let why = is_as_listed(Path::new("etcd"), "ab", "aa").unwrap_err().to_string();
        assert!(why.contains("has the sha256 ab, but `etcd_releases` has aa"), "{why}");
    }
}
