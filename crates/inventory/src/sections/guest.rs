//! `guest`: the virtual machine of a member.

use schemars::JsonSchema;
use serde::Deserialize;

use super::super::entry::{Free, OneOrMany};
use crate::model::{ByteSize, Seconds};

/// The virtual machine that a member lives in.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in super::super) struct GuestSection {
    /// How many processors; 2 if not given.
    vcpus: Option<u32>,
    /// How much memory; 8 GiB if not given.
    memory: Option<ByteSize>,
    /// The processor that the guest sees: host-passthrough, host-model, maximum.
    cpu: Option<String>,
    /// The kind of machine; q35 if not given.
    machine: Option<String>,
    /// KVM, or emulation; by a probe if not given.
    virt: Option<Virt>,
    /// Start the guest when its hypervisor boots; true if not given.
    autostart: Option<bool>,
    /// A channel for the QEMU guest agent; true if not given.
    agent: Option<bool>,
    /// A watchdog that resets the guest; true if not given.
    watchdog: Option<bool>,
    /// A source of randomness; true if not given.
    rng: Option<bool>,
    /// The disk of the system.
    disk: Option<SystemDisk>,
    /// A disk for etcd's data, which is kept when the guest is built anew.
    data_disk: Option<DataDisk>,
    /// Who may log in.
    admin: Option<Admin>,
    /// What the guest is told at its first boot.
    cloud_init: Option<CloudInit>,
    /// Sets the guest up by Ignition instead of cloud-init: a configuration, which is merged with what etcdrun says.
    ignition: Option<Free>,
    /// Packages that cloud-init installs.
    packages: Option<OneOrMany>,
    /// Whether cloud-init installs packages at all; true if not given.
    install_dependencies: Option<bool>,
    /// How long the guest may take until it can be logged into; 10 minutes if not given.
    boot_timeout: Option<Seconds>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Virt {
    Auto,
    Kvm,
    Qemu,
}

/// The disk of the system: an overlay on a base image.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct SystemDisk {
    /// The base image: one of the hypervisor's `images`, a volume of `base_pool`, or the path of a file there.
    base: Option<String>,
    /// The pool of the base image; `default` if not given.
    base_pool: Option<String>,
    /// The pool of the disk; `default` if not given.
    pool: Option<String>,
    /// The volume; `NAME.qcow2` if not given.
    volume: Option<String>,
    /// How large it is; as large as the base image if not given.
    size: Option<ByteSize>,
    /// How the hypervisor caches it: none, writeback, writethrough, directsync, unsafe.
    cache: Option<String>,
}

/// A disk for etcd's data.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct DataDisk {
    /// The pool of the disk; that of the system's disk if not given.
    pool: Option<String>,
    /// The volume; `NAME-data.qcow2` if not given.
    volume: Option<String>,
    /// How large it is.
    size: Option<ByteSize>,
    /// The format of the file; qcow2 if not given.
    format: Option<Format>,
    /// How the hypervisor caches it: none, writeback, writethrough, directsync, unsafe.
    cache: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Format {
    Qcow2,
    Raw,
}

/// The administrator of a guest.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Admin {
    /// The user's name; that of the SSH connection if not given.
    user: Option<String>,
    /// Public keys, as in authorized_keys.
    ssh_keys: Option<OneOrMany>,
    /// A password for the console, hashed as in /etc/shadow. SSH never takes it.
    password_hash: Option<String>,
}

/// What cloud-init is given.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct CloudInit {
    /// The pool of the ISO; that of the system's disk if not given.
    pool: Option<String>,
    /// The volume of the ISO; `NAME-cloud-init.iso` if not given.
    volume: Option<String>,
    /// Further user-data, as in a #cloud-config file.
    user_data: Option<Free>,
}
