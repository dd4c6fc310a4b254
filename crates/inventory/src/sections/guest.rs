//! `guest`: the virtual machine of a member.

use schemars::JsonSchema;
use serde::Deserialize;

use super::super::entry::{Free, OneOrMany};
use crate::model::{ByteSize, Seconds};

/// The virtual machine of a member.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in super::super) struct GuestSection {
    /// Number of processors; default: 2.
    vcpus: Option<u32>,
    /// Memory; default: 8 GiB.
    memory: Option<ByteSize>,
    /// The processor that the guest sees: host-passthrough, host-model, maximum.
    cpu: Option<String>,
    /// The machine type; default: q35.
    machine: Option<String>,
    /// KVM, or emulation; default: by a probe.
    virt: Option<Virt>,
    /// Start the guest when its hypervisor boots; default: true.
    autostart: Option<bool>,
    /// A channel for the QEMU guest agent; default: true.
    agent: Option<bool>,
    /// A watchdog that resets the guest; default: true.
    watchdog: Option<bool>,
    /// A source of randomness; default: true.
    rng: Option<bool>,
    /// The system disk.
    disk: Option<SystemDisk>,
    /// A disk for etcd's data, which is kept when the guest is rebuilt.
    data_disk: Option<DataDisk>,
    /// Who may log in.
    admin: Option<Admin>,
    /// The data for cloud-init.
    cloud_init: Option<CloudInit>,
    /// An Ignition configuration, used instead of cloud-init; it is merged with etcdrun's own.
    ignition: Option<Free>,
    /// Packages that cloud-init installs.
    packages: Option<OneOrMany>,
    /// Whether cloud-init installs packages at all; default: true.
    install_dependencies: Option<bool>,
    /// How long the guest may take until it accepts SSH logins; default: 10 minutes.
    boot_timeout: Option<Seconds>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Virt {
    Auto,
    Kvm,
    Qemu,
}

/// The system disk: an overlay on a base image.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct SystemDisk {
    /// The base image: one of the hypervisor's `images`, a volume of `base_pool`, or the path of a file there.
    base: Option<String>,
    /// The pool of the base image; default: `default`.
    base_pool: Option<String>,
    /// The pool of the disk; default: `default`.
    pool: Option<String>,
    /// The volume; default: `NAME.qcow2`.
    volume: Option<String>,
    /// The size; default: that of the base image.
    size: Option<ByteSize>,
    /// How the hypervisor caches it: none, writeback, writethrough, directsync, unsafe.
    cache: Option<String>,
}

/// A disk for etcd's data.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct DataDisk {
    /// The pool of the disk; default: that of the system disk.
    pool: Option<String>,
    /// The volume; default: `NAME-data.qcow2`.
    volume: Option<String>,
    /// The size.
    size: Option<ByteSize>,
    /// The format of the file; default: qcow2.
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
    /// The user's name; default: that of the SSH connection.
    user: Option<String>,
    /// Public keys, as in authorized_keys.
    ssh_keys: Option<OneOrMany>,
    /// A password for the console, hashed as in /etc/shadow. SSH never accepts it.
    password_hash: Option<String>,
}

/// The data for cloud-init.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct CloudInit {
    /// The pool of the ISO; default: that of the system disk.
    pool: Option<String>,
    /// The volume of the ISO; default: `NAME-cloud-init.iso`.
    volume: Option<String>,
    /// Further user-data, as in a #cloud-config file.
    user_data: Option<Free>,
}
