//! `guest`: the virtual machine of a member.

use std::num::NonZeroU64;

use schemars::JsonSchema;
use serde::Deserialize;

use super::super::entry::{Free, OneOrMany};
use crate::model::{ByteSize, CpuSet, DiskName, Seconds};

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
    /// The processors of the hypervisor that run it: 0-3,8; default: all.
    cpuset: Option<CpuSet>,
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
    /// Further disks, which are kept when the guest is rebuilt.
    disks: Option<Vec<FurtherDisk>>,
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
    /// How much the guest may ask of it.
    limits: Option<DiskLimits>,
}

/// How much a guest may ask of a disk.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct DiskLimits {
    /// Reads and writes per second; default: no limit.
    iops: Option<NonZeroU64>,
    /// Bytes per second; default: no limit.
    bandwidth: Option<ByteSize>,
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
    /// How much the guest may ask of it.
    limits: Option<DiskLimits>,
}

/// A further disk; in the guest it is /dev/disk/by-id/virtio-NAME.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "it checks what roles then read as it was written")]
struct FurtherDisk {
    /// Its name; the volume is GUEST-NAME.FORMAT.
    name: DiskName,
    /// The size.
    size: ByteSize,
    /// The pool of the disk; default: that of the system disk.
    #[serde(default)]
    pool: Option<String>,
    /// The format of the file; default: qcow2.
    #[serde(default)]
    format: Option<Format>,
    /// How the hypervisor caches it: none, writeback, writethrough, directsync, unsafe.
    #[serde(default)]
    cache: Option<String>,
    /// How much the guest may ask of it.
    #[serde(default)]
    limits: Option<DiskLimits>,
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
