//! `unarchive`: unpacks an archive on the target.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    Action, ActionContext, BuildContext, EngineAction, Module, ModuleError, OperatorFile, ResultField, Running, Traits,
    copy::{checked_dest, name_of},
    local::{self, Fingerprint},
    place,
};
use crate::{
    model::{Effects, Resource, Value},
    remote::Payload,
};

const BODY: &str = concat!(include_str!("../support/attributes.sh"), include_str!("unarchive.sh"));

/// The endings of the archives, and the format they mean.
const FORMATS: &[(&str, &str)] = &[
    (".tar", "tar"),
    (".tar.gz", "gz"),
    (".tgz", "gz"),
    (".tar.bz2", "bz2"),
    (".tbz2", "bz2"),
    (".tar.xz", "xz"),
    (".txz", "xz"),
    (".tar.zst", "zst"),
    (".tzst", "zst"),
    (".zip", "zip"),
];

/// Unpacks an archive into a directory of the target: .tar, .tar.gz, .tar.bz2, .tar.xz, .tar.zst or .zip.
///
/// A hidden file in `dest` (`.etcdrun-….sha256`) lists the checksums of what was unpacked. While they match, the archive
/// is neither sent nor unpacked again; after a change or a loss of any of its files it is. The target needs tar, and
/// unzip or zstd for those formats.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Unarchive {
    /// The archive of the operator, searched in the role's `files` and next to the playbook.
    src: String,
    /// The directory on the target; it must exist.
    dest: String,
    /// `src` is an archive that is already on the target.
    #[serde(default)]
    remote_src: bool,
    /// Do nothing if this path exists.
    #[serde(default)]
    creates: Option<String>,
    /// How many leading parts to drop from the names in the archive. Not for .zip.
    #[serde(default)]
    strip_components: u8,
    /// The owner of the unpacked files, by name or UID. Default: as in the archive, if tar runs as root.
    #[serde(default)]
    owner: Option<String>,
    /// The group of the unpacked files, by name or GID.
    #[serde(default)]
    group: Option<String>,
}

impl Module for Unarchive {
    const NAME: &'static str = "unarchive";
    const TRAITS: Traits = Traits { file: OperatorFile::Archive, ..Traits::NONE };
    const EXAMPLE: &'static str = "\
- name: Unpack etcd
  unarchive:
    src: /var/cache/etcd/etcd-v3.5.34-linux-amd64.tar.gz
    remote_src: true
    dest: /opt/etcd/v3.5.34
    strip_components: 1
    owner: root
    group: root
";
    const RESULT: &'static [ResultField] = &[ResultField { name: "dest", doc: "The directory on the target." }];

    fn effects(&self) -> Effects {
        let archive = self.remote_src.then(|| Resource::path(&self.src));
        let creates = self.creates.as_deref().map(Resource::path);
        Effects::converging().reading(archive.into_iter().chain(creates)).on([Resource::tree(&self.dest)])
    }

    fn action(self, context: &BuildContext<'_>) -> Result<Action, ModuleError> {
        let format = format_of(&self.src)?;
        if format == "zip" && self.strip_components > 0 {
            return Err(ModuleError::new("`strip_components` does not go with a .zip archive"));
        }
        let payload = self.payload(format)?;
        if self.remote_src {
            return Ok(Action::Remote(payload.value("archive", self.src).value("sha256", "")));
        }
        let path = local::find(&self.src, context.file_paths)?;
        context.sources.used().note(&path);
        if !path.is_file() {
            return Err(ModuleError::new(format!("`{}` is not a file", path.display())));
        }
        Ok(Action::Engine(Box::new(Unpack { payload, path })))
    }
}

impl Unarchive {
    fn payload(&self, format: &str) -> Result<Payload, ModuleError> {
        let payload = Payload::new(BODY)
            .value("dest", checked_dest(self.dest.clone())?)
            .value("name", name_of(&self.src)?)
            .value("format", format)
            .value("strip", self.strip_components.to_string())
            .value("variant", self.variant())
            .maybe("creates", self.creates.as_deref())
            .flag("remote", self.remote_src);
        Ok(place::attributes(payload, self.owner.as_deref(), self.group.as_deref(), None))
    }

    /// Tells apart the ways in which one archive can be unpacked.
    fn variant(&self) -> String {
        let text = format!("{:?}", (self.strip_components, &self.owner, &self.group));
        Fingerprint::of(text.as_bytes()).sha256[..8].to_owned()
    }
}

fn format_of(src: &str) -> Result<&'static str, ModuleError> {
    let lower = src.to_ascii_lowercase();
    let found = FORMATS.iter().find(|(ending, _)| lower.ends_with(ending));
    found.map(|(_, format)| *format).ok_or_else(|| {
        let endings: Vec<&str> = FORMATS.iter().map(|(ending, _)| *ending).collect();
        ModuleError::new(format!("`{src}` has no file extension of an archive"))
            .help(format!("known endings: {}", endings.join(", ")))
    })
}

/// An archive of the operator, which travels only if it is wanted.
struct Unpack {
    payload: Payload,
    path: PathBuf,
}

impl EngineAction for Unpack {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            let fingerprint = place::fingerprint(&self.path).await?;
            let payload = self.payload.clone().value("sha256", &fingerprint.sha256);
            let asked = context.run(payload.clone().value("archive", "")).await?;
            let wanted = asked.data.get("wanted") == Some(&Value::Bool(true));
            if asked.failed || context.check_mode() || !wanted {
                return Ok(asked);
            }
            let staged = context.upload(&self.path).await?;
            context.run(payload.value("archive", staged)).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::format_of;

    #[test]
    fn the_ending_says_the_format() {
        for (name, format) in [("a/etcd.tar.gz", "gz"), ("x.TGZ", "gz"), ("x.tar", "tar"), ("x.zip", "zip")] {
            assert_eq!(format_of(name).unwrap(), format);
        }
        assert!(format_of("etcd.rar").unwrap_err().help.unwrap().contains(".tar.zst"));
    }
}
