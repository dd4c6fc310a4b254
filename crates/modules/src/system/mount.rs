//! `mount`: file systems in fstab and in the tree.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Action, BuildContext, Module, ModuleError, ResultField};
use crate::{
    model::{Disruption, Effects, Resource},
    remote::Payload,
};

/// Manages an entry of /etc/fstab, and mounts or unmounts it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    /// The mount point; `none` for swap.
    path: String,
    /// What to mount: a device, `UUID=...`, `LABEL=...`, a network share.
    #[serde(default)]
    src: Option<String>,
    /// The type of the file system: ext4, xfs, tmpfs, nfs.
    #[serde(default)]
    fstype: Option<String>,
    /// Mount options; default: `defaults`.
    #[serde(default)]
    opts: Option<String>,
    /// The fifth field of fstab.
    #[serde(default)]
    dump: u8,
    /// The sixth field of fstab: the order of checks at boot.
    #[serde(default)]
    passno: u8,
    state: State,
    /// The file to edit.
    #[serde(default = "default_fstab")]
    fstab: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum State {
    // The first state stands for a template at load, so it is one that asks for nothing else.
    /// Not mounted now; fstab is not changed.
    Unmounted,
    /// In fstab, and mounted now.
    Mounted,
    /// In fstab; what is mounted now is not changed.
    Present,
    /// Neither mounted nor in fstab; an empty mount point is removed.
    Absent,
    /// Mounted again, with changed options.
    Remounted,
    /// Mounted now; fstab is not changed.
    Ephemeral,
}

fn default_fstab() -> String {
    "/etc/fstab".into()
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Mounted => "mounted",
            Self::Present => "present",
            Self::Unmounted => "unmounted",
            Self::Absent => "absent",
            Self::Remounted => "remounted",
            Self::Ephemeral => "ephemeral",
        }
    }

    fn needs_source(self) -> bool {
        matches!(self, Self::Mounted | Self::Present | Self::Ephemeral)
    }
}

impl Module for Mount {
    const NAME: &'static str = "mount";
    const EXAMPLE: &'static str = "\
- name: Mount the data disk
  mount:
    path: /var/lib/etcd
    src: /dev/vdb
    fstype: ext4
    opts: noatime
    state: mounted
";
    const RESULT: &'static [ResultField] = &[ResultField { name: "path", doc: "The mount point." }];

    fn validate(&self) -> Result<(), ModuleError> {
        for (name, value) in [("src", &self.src), ("fstype", &self.fstype)] {
            if value.is_none() && self.state.needs_source() {
                return Err(ModuleError::new(format!("`{name}` is missing"))
                    .help(format!("`state: {}` needs `src` and `fstype`", self.state.name())));
            }
        }
        Ok(())
    }

    fn effects(&self) -> Effects {
        let disrupts = if self.state == State::Present { Disruption::No } else { Disruption::Maybe };
        let entry = Resource::Entry { file: self.fstab.clone(), key: self.path.clone() };
        let (path, below) = (Resource::path(&self.path), Resource::tree(&self.path));
        Effects::converging().disrupting(disrupts).reading([path]).writing([below]).on([entry])
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        self.check_values()?;
        let opts = match self.state {
            State::Remounted => self.opts,
            _ => Some(self.opts.unwrap_or_else(|| "defaults".into())),
        };
        let payload = Payload::new(concat!(include_str!("../support/edit.sh"), include_str!("mount.sh")))
            .value("path", trim_slash(&self.path))
            .maybe("src", self.src)
            .maybe("fstype", self.fstype)
            .maybe("opts", opts)
            .value("dump", self.dump.to_string())
            .value("passno", self.passno.to_string())
            .value("state", self.state.name())
            .value("fstab", self.fstab);
        Ok(Action::Remote(payload))
    }
}

impl Mount {
    fn check_values(&self) -> Result<(), ModuleError> {
        let is_swap = self.path == "none";
        if !is_swap && !self.path.starts_with('/') {
            return Err(ModuleError::new(format!("`path` must be absolute, not `{}`", self.path)));
        }
        if is_swap && !matches!(self.state, State::Present | State::Absent) {
            return Err(ModuleError::new(format!("`state: {}` needs a path to mount on", self.state.name()))
                .help("swap can only be kept in fstab: use `present` or `absent`"));
        }
        let texts = [Some(&self.path), self.src.as_ref(), self.fstype.as_ref(), self.opts.as_ref()];
        if texts.into_iter().flatten().any(|text| text.is_empty() || text.contains('\n')) {
            return Err(ModuleError::new("`path`, `src`, `fstype` and `opts` must be one line each, and not empty"));
        }
        Ok(())
    }
}

/// `/mnt/` and `/mnt` are one mount point, and the kernel knows it by the second name.
fn trim_slash(path: &str) -> &str {
    match path.trim_end_matches('/') {
        "" => "/",
        trimmed => trimmed,
    }
}
