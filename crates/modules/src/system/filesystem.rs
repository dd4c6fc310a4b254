//! `filesystem`: makes file systems, on empty devices only.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Action, BuildContext, Module, ModuleError, ResultField};
use crate::{
    model::{Effects, Resource},
    remote::Payload,
};

/// Creates a file system on a blank device.
///
/// A device that already has the wanted type is not changed, even with `force`. Anything else on
/// it, be it another file system, a partition table or a trace of one, makes the task fail unless
/// `force` is true. A device in use (mounted, swap, part of LVM or RAID) is never changed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Filesystem {
    /// The block device, or a file with an image.
    dev: String,
    fstype: FsType,
    /// Options for mkfs, as one string.
    #[serde(default)]
    opts: Option<String>,
    /// Destroy the content of the device, if it has another type.
    #[serde(default)]
    force: bool,
    /// Grow an existing file system to the size of the device. For ext2, ext3 and ext4.
    #[serde(default)]
    resizefs: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum FsType {
    Ext4,
    Ext3,
    Ext2,
    Xfs,
    Btrfs,
    Vfat,
    Swap,
}

impl FsType {
    fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Ext3 => "ext3",
            Self::Ext2 => "ext2",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            Self::Vfat => "vfat",
            Self::Swap => "swap",
        }
    }

    fn can_grow(self) -> bool {
        matches!(self, Self::Ext4 | Self::Ext3 | Self::Ext2)
    }
}

impl Module for Filesystem {
    const NAME: &'static str = "filesystem";
    const EXAMPLE: &'static str = "\
- name: Format the data disk
  filesystem:
    dev: /dev/vdb
    fstype: ext4
    opts: -L etcd
";
    const RESULT: &'static [ResultField] = &[
        ResultField { name: "dev", doc: "The device." },
        ResultField { name: "fstype", doc: "The type of its file system." },
    ];

    fn validate(&self) -> Result<(), ModuleError> {
        if self.resizefs && !self.fstype.can_grow() {
            return Err(ModuleError::new(format!("`resizefs` cannot grow {}", self.fstype.name()))
                .help("it works for ext2, ext3 and ext4"));
        }
        Ok(())
    }

    fn effects(&self) -> Effects {
        Effects::converging().on([Resource::path(&self.dev)])
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        if !self.dev.starts_with('/') {
            return Err(ModuleError::new(format!("`dev` must be an absolute path, not `{}`", self.dev)));
        }
        let payload = Payload::new(include_str!("filesystem.sh"))
            .value("dev", self.dev)
            .value("fstype", self.fstype.name())
            .flag("force", self.force)
            .flag("resizefs", self.resizefs);
        let options = self.opts.unwrap_or_default();
        Ok(Action::Remote(options.split_whitespace().fold(payload, Payload::arg)))
    }
}
