//! `fetch`: brings a file of the target to the operator.

use std::{
    io,
    path::{Path, PathBuf},
};

use schemars::JsonSchema;
use serde::Deserialize;
use tokio::fs;

use super::{
    Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, ResultField, Running, copy,
    local, place, scratch::Scratch, yes,
};
use crate::{
    model::{ByteSize, Effects, Outcome, Resource, Value},
    remote::Payload,
};

/// Copies a file of the target to the operator's workstation.
///
/// It is stored as `DEST/HOST/PATH`, so that the files of several hosts do not collide; `flat` stores it as `dest`. A file
/// that already exists with the same content is not copied again.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Fetch {
    /// The file on the target.
    src: String,
    /// The directory on the operator's workstation; with `flat`, the file, or a directory if it ends in a slash. A relative path
    /// is relative to the playbook.
    dest: String,
    /// Store the file as `dest`, without the host's name and the path.
    #[serde(default)]
    flat: bool,
    /// Fail if the file is missing; otherwise the task is ok and `dest` is not changed.
    #[serde(default = "yes")]
    fail_on_missing: bool,
    /// Fail if the file is larger: a host must not be able to fill the operator's disk.
    #[serde(default = "one_gibibyte")]
    max_size: ByteSize,
}

fn one_gibibyte() -> ByteSize {
    ByteSize(1 << 30)
}

impl Module for Fetch {
    const NAME: &'static str = "fetch";
    const EXAMPLE: &'static str = "\
- name: Fetch a copy of the configuration
  fetch:
    src: /etc/etcd/etcd.conf.yml
    dest: collected/
";
    const RESULT: &'static [ResultField] = &[
        ResultField { name: "dest", doc: "The file on the operator's workstation." },
        ResultField { name: "sha256", doc: "The checksum of the file." },
    ];

    fn effects(&self) -> Effects {
        Effects { here: true, ..Effects::converging() }.reading([Resource::path(&self.src)])
    }

    fn action(self, context: &BuildContext<'_>) -> Result<Action, ModuleError> {
        if self.src.is_empty() {
            return Err(ModuleError::new("`src` is empty"));
        }
        let dest = self.local_path(context)?;
        let Self { src, fail_on_missing, max_size, .. } = self;
        Ok(Action::Engine(Box::new(Bring { src, dest, fail_on_missing, max_size })))
    }
}

impl Fetch {
    fn local_path(&self, context: &BuildContext<'_>) -> Result<PathBuf, ModuleError> {
        let given = local::with_home(&self.dest);
        let dest = context.file_paths.last().map_or_else(|| given.clone(), |folder| folder.join(&given));
        if self.flat {
            return Ok(if self.dest.ends_with('/') { dest.join(copy::name_of(&self.src)?) } else { dest });
        }
        let host = context.engine.eval("inventory_hostname", context.span, context.scope);
        let host = host.map_err(|error| ModuleError { message: error.message, help: error.help })?;
        let host = host.as_str().ok_or_else(|| ModuleError::new("`inventory_hostname` is not a name"))?;
        // Parts like `..` would lead out of the folder.
        let inside = self.src.split('/').filter(|part| !matches!(*part, "" | "." | ".."));
        Ok(inside.fold(dest.join(host), |path, part| path.join(part)))
    }
}

struct Bring {
    src: String,
    dest: PathBuf,
    fail_on_missing: bool,
    max_size: ByteSize,
}

impl EngineAction for Bring {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            let probe = context.run(self.probe()).await?;
            if probe.failed {
                return Ok(probe);
            }
            let field = |name: &str| probe.data.get(name).and_then(Value::as_str).unwrap_or_default();
            if probe.data.get("exists") != Some(&Value::Bool(true)) {
                return Ok(self.missing(context.check_mode()));
            }
            let size = probe.data.get("size").and_then(Value::as_u64).unwrap_or_default();
            if size > self.max_size.0 {
                return Ok(self.too_large(ByteSize(size)));
            }
            let sha256 = field("sha256").to_owned();
            let same = self.dest.is_file() && place::fingerprint(&self.dest).await?.sha256 == sha256;
            let outcome = Outcome { changed: !same, ..Outcome::ok() }.with("dest", self.dest.display().to_string());
            if !same && !context.check_mode() {
                return self.bring(context, field("path"), outcome).await;
            }
            Ok(outcome.with("sha256", sha256))
        })
    }
}

impl Bring {
    fn probe(&self) -> Payload {
        Payload::new(concat!(include_str!("../support/attributes.sh"), include_str!("fetch.sh")))
            .value("src", &self.src)
    }

    fn too_large(&self, size: ByteSize) -> Outcome {
        let Self { src, max_size, .. } = self;
        Outcome::failed(format!("{src} has {size}, but `max_size` is {max_size}; set `max_size: {size}` or more"))
    }

    fn missing(&self, check_mode: bool) -> Outcome {
        let msg = format!("{} does not exist", self.src);
        match (self.fail_on_missing, check_mode) {
            (false, _) => Outcome { msg, ..Outcome::ok() },
            (true, true) => Outcome { msg: format!("{msg} yet"), unknown: true, ..Outcome::ok() },
            (true, false) => Outcome::failed(msg),
        }
    }

    /// Writes beside the destination and renames, as on the target.
    async fn bring(&self, context: &ActionContext, path: &str, outcome: Outcome) -> Result<Outcome, ActionError> {
        let failed = |error: io::Error| ActionError::Failed(format!("cannot write `{}`: {error}", self.dest.display()));
        let folder = self.dest.parent().unwrap_or(Path::new("."));
        let permit = context.permit()?;
        fs::create_dir_all(folder).await.map_err(failed)?;
        let (scratch, file) = Scratch::create(folder, &permit).map_err(failed)?;
        let mut file = fs::File::from_std(file);
        let downloaded = context.session.download_up_to(path, &mut file, self.max_size).await?;
        if downloaded.failed {
            return Ok(downloaded);
        }
        file.sync_all().await.map_err(failed)?;
        let sha256 = place::fingerprint(scratch.path()).await?.sha256;
        scratch.keep_as(&self.dest).map_err(failed)?;
        Ok(outcome.with("sha256", sha256))
    }
}
