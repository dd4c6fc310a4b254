//! `libvirt_volume`: disks of guests.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Action, BuildContext, Module, ModuleError, ResultField, image, libvirt};
use crate::{
    model::{ByteSize, Disruption, Effects},
    remote::Payload,
};

const BODY: &str = concat!(include_str!("libvirt.sh"), include_str!("libvirt_volume.sh"));

/// Manages a volume in a pool that is a directory: an empty disk, or a qcow2 overlay on a base image.
///
/// An existing volume is never recreated: it grows if it should be larger, and a change that needs a new one is reported in
/// `needs_rebuild`. It is deleted only by `state: absent` with its name repeated in `confirm`, and never while a domain
/// has it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LibvirtVolume {
    name: String,
    /// The pool it is in.
    pool: String,
    /// The size of the disk; default: that of the base image.
    #[serde(default)]
    size: Option<ByteSize>,
    /// The format of the file.
    #[serde(default)]
    format: Format,
    /// The image it is an overlay on.
    #[serde(default)]
    base: Option<Base>,
    /// Where a base image comes from: the volume is then this image, unchanged. Once to each hypervisor, and a transfer
    /// that was interrupted continues where it stopped.
    #[serde(default)]
    source: Option<image::Source>,
    /// The disk space to allocate from the start; default: none.
    #[serde(default)]
    preallocation: Option<Preallocation>,
    #[serde(default)]
    state: State,
    /// The name of the volume, repeated, to delete it.
    #[serde(default)]
    confirm: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Format {
    #[default]
    Qcow2,
    Raw,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Preallocation {
    Metadata,
    Falloc,
    Full,
}

/// Where a base image is: `pool` and `name`, or `path`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Base {
    /// The pool of the image; default: that of the volume.
    #[serde(default)]
    pool: Option<String>,
    /// The volume in the pool.
    #[serde(default)]
    name: Option<String>,
    /// A file of the hypervisor.
    #[serde(default)]
    path: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum State {
    #[default]
    Present,
    Absent,
}

impl Module for LibvirtVolume {
    const NAME: &'static str = "libvirt_volume";
    const EXAMPLE: &'static str = "\
- name: Create the system disk
  libvirt_volume:
    pool: etcd
    name: etcd-1.qcow2
    size: 30GiB
    base: { pool: default, name: ubuntu-24.04.qcow2 }
- name: Copy a base image
  libvirt_volume:
    pool: default
    name: ubuntu-24.04.qcow2
    source: { url: \"{{ image_url }}\", sha256: \"{{ image_sha256 }}\" }
  once_per: hypervisor
- name: Create the data disk
  libvirt_volume: { pool: etcd, name: etcd-1-data.raw, size: 20GiB, format: raw }
";
    const RESULT: &'static [ResultField] = &[
        ResultField { name: "path", doc: "The file of the volume." },
        ResultField { name: "needs_rebuild", doc: "Whether the request needs a new volume." },
        ResultField { name: "reason", doc: "Why it needs a rebuild." },
    ];

    fn validate(&self) -> Result<(), ModuleError> {
        if self.state == State::Absent && self.confirm.is_none() {
            return Err(ModuleError::new("`state: absent` deletes the volume and all that is in it")
                .help("repeat the volume's name in `confirm` if that is what you want"));
        }
        if self.source.is_some() && (self.base.is_some() || self.size.is_some()) {
            return Err(ModuleError::new("an image from elsewhere has its own size, and no `base`"));
        }
        match &self.base {
            Some(Base { name: None, path: None, .. }) => {
                Err(ModuleError::new("a base image has a `name` in a pool, or a `path`"))
            }
            Some(_) if self.format == Format::Raw => Err(ModuleError::new("a raw volume has no base image")
                .help("leave `format` out: an overlay is a qcow2 file")),
            _ => Ok(()),
        }
    }

    fn effects(&self) -> Effects {
        let disrupts = if self.state == State::Absent { Disruption::Maybe } else { Disruption::No };
        Effects::converging().disrupting(disrupts)
    }

    fn action(self, context: &BuildContext<'_>) -> Result<Action, ModuleError> {
        libvirt::check_name("pool", &self.pool)?;
        libvirt::check_name("volume", &self.name)?;
        if self.state == State::Absent && self.confirm.as_deref() != Some(&self.name) {
            return Err(ModuleError::new(format!("`confirm` is not `{}`, so the volume stays", self.name)));
        }
        if let Some(source) = self.source.filter(|_| self.state == State::Present) {
            return Ok(Action::Engine(Box::new(source.action(self.pool, self.name, context)?)));
        }
        let base = self.base.unwrap_or_default();
        if base.name.is_some() && base.path.is_some() {
            return Err(ModuleError::new("`name` and `path` of a base image exclude each other"));
        }
        for (what, name) in [("pool", &base.pool), ("volume", &base.name)] {
            name.as_deref().map_or(Ok(()), |name| libvirt::check_name(what, name))?;
        }
        let base_path = match base.path.as_deref() {
            Some(path) => Some(libvirt::checked_path("path", path)?),
            None => None,
        };
        let preallocation = self.preallocation.map(|kind| match kind {
            Preallocation::Metadata => "metadata",
            Preallocation::Falloc => "falloc",
            Preallocation::Full => "full",
        });
        let payload = Payload::new(BODY)
            .value("state", if self.state == State::Present { "present" } else { "absent" })
            .value("pool", self.pool)
            .value("name", self.name)
            .maybe("size", self.size.map(|size| size.0.to_string()))
            .value("format", if self.format == Format::Raw { "raw" } else { "qcow2" })
            .maybe("base_pool", base.pool)
            .maybe("base_name", base.name)
            .maybe("base_path", base_path)
            .maybe("preallocation", preallocation);
        Ok(Action::Remote(payload))
    }
}
