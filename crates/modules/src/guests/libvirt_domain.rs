//! `libvirt_domain`: a guest's definition, and whether it runs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, ResultField, Running, Traits,
    domain_changes::{self, Changes},
    domain_xml::{self as xml, Domain},
    guest_interface::{Attachment, GuestInterface},
    libvirt,
};
use crate::{
    model::{ByteSize, CpuSet, Diff, DiskName, Disruption, Effects, Outcome, Value},
    remote::Payload,
};

const LOOK: &str =
    concat!(include_str!("libvirt.sh"), include_str!("kvm_probe.sh"), include_str!("libvirt_domain_look.sh"));
const APPLY: &str = concat!(include_str!("libvirt.sh"), include_str!("libvirt_domain_apply.sh"));

/// Manages a libvirt domain: its definition, whether it runs, and whether it starts with the hypervisor.
///
/// Only what is set here is compared with the domain, so libvirt's own additions make no difference. A definition
/// that differs is changed and shown as a diff. Changes that a running domain supports are applied at once; others are reported in
/// `needs_restart` or `needs_rebuild`: this module never restarts a guest.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LibvirtDomain {
    name: String,
    #[serde(default)]
    state: State,
    /// The UUID of a new domain; default: chosen by libvirt.
    #[serde(default)]
    uuid: Option<String>,
    /// The number of processors.
    #[serde(default = "two")]
    vcpus: u32,
    /// The memory.
    #[serde(default = "eight_gib")]
    memory: ByteSize,
    /// The processor that the guest sees: `host-passthrough`, `host-model`, `maximum`; default: without KVM `maximum`, otherwise
    /// `host-passthrough`.
    #[serde(default)]
    cpu: Option<String>,
    /// The processors of the hypervisor that run it, as `0-3,8`; default: all.
    #[serde(default)]
    cpuset: Option<CpuSet>,
    /// The machine type.
    #[serde(default = "q35")]
    machine: String,
    /// KVM, or emulation. `auto` boots something by KVM to see whether that really works here, once after each boot of the
    /// hypervisor.
    #[serde(default)]
    virt: Virt,
    /// Its disks, in the order in which the guest sees them; it boots from the first.
    #[serde(default)]
    disks: Vec<Disk>,
    /// Disks after these, as `disks` of a guest in the inventory: volumes with the names `DOMAIN-NAME.FORMAT`.
    #[serde(default)]
    further_disks: Vec<FurtherDisk>,
    /// Its network interfaces.
    #[serde(default)]
    interfaces: Vec<GuestInterface>,
    /// A file on the hypervisor that logs the guest's serial console.
    #[serde(default)]
    console_log: Option<String>,
    /// A channel for the QEMU guest agent.
    #[serde(default = "yes")]
    agent: bool,
    /// A watchdog that resets a guest that hangs.
    #[serde(default = "yes")]
    watchdog: bool,
    /// A source of randomness.
    #[serde(default = "yes")]
    rng: bool,
    /// Start the guest when the hypervisor boots.
    #[serde(default = "yes")]
    autostart: bool,
    /// A file on the hypervisor with an Ignition configuration, which the guest reads through its firmware.
    #[serde(default)]
    ignition: Option<String>,
    /// The name of the guest's cluster, stored in the domain's metadata; empty for other guests.
    #[serde(default)]
    cluster: Option<String>,
    /// The host in the guest, stored in the domain's metadata.
    #[serde(default)]
    member: Option<String>,
    /// Adopt a domain of this name that etcdrun did not create.
    #[serde(default)]
    adopt: bool,
    /// The name of the domain, repeated, to remove it. Its volumes are kept.
    #[serde(default)]
    confirm: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum State {
    /// Defined, and started if it does not run.
    #[default]
    Running,
    /// Defined; whether it runs is not changed.
    Present,
    /// Powered off, and not defined. Its volumes are kept.
    Absent,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Virt {
    #[default]
    Auto,
    Kvm,
    /// Emulation.
    Qemu,
}

/// A disk: a volume in a pool, or a file or device of the hypervisor.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Disk {
    /// The pool of the volume.
    pool: Option<String>,
    /// The volume in the pool.
    volume: Option<String>,
    /// A file or block device, instead of a volume.
    path: Option<String>,
    /// `qcow2` or `raw`; default: by the name, raw for `.iso`, `.raw` and `.img`, qcow2 otherwise.
    format: Option<String>,
    /// What the guest may find the disk by: /dev/disk/by-id/virtio-SERIAL.
    serial: Option<String>,
    /// How the hypervisor caches: `none`, `writeback`, `writethrough`, `directsync`, `unsafe`.
    cache: Option<String>,
    /// The guest may not write to it.
    readonly: bool,
    /// How much the guest may ask of it.
    limits: Option<Limits>,
}

/// A disk in its volume, which has its name; the guest finds it as /dev/disk/by-id/virtio-NAME.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FurtherDisk {
    name: DiskName,
    /// The size of the volume, which this module does not make.
    #[serde(default, rename = "size")]
    _size: Option<ByteSize>,
    /// The pool of the volume; default: that of the first disk.
    #[serde(default)]
    pool: Option<String>,
    /// `qcow2` or `raw`; default: qcow2.
    #[serde(default)]
    format: Option<String>,
    /// As that of other disks.
    #[serde(default)]
    cache: Option<String>,
    /// As those of other disks.
    #[serde(default)]
    limits: Option<Limits>,
}

/// How much a guest may ask of a disk in a second; default: no limit.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Limits {
    /// Reads and writes.
    iops: Option<u64>,
    /// Bytes.
    bandwidth: Option<ByteSize>,
}

fn two() -> u32 {
    2
}

fn eight_gib() -> ByteSize {
    ByteSize(8 << 30)
}

fn q35() -> String {
    "q35".into()
}

fn yes() -> bool {
    true
}

impl Module for LibvirtDomain {
    const NAME: &'static str = "libvirt_domain";
    const TRAITS: Traits = Traits { is_about_guest: true, ..Traits::NONE };
    const EXAMPLE: &'static str = "\
- name: Define and start the guest
  libvirt_domain:
    name: etcd-1
    vcpus: 2
    memory: 8GiB
    disks:
      - { pool: etcd, volume: etcd-1.qcow2 }
      - { pool: etcd, volume: etcd-1-cloud-init.iso, readonly: true }
    interfaces:
      - { network: mynetwork, mac: \"52:54:00:12:34:56\" }
";
    const RESULT: &'static [ResultField] = &[
        ResultField { name: "uuid", doc: "The UUID of the domain." },
        ResultField { name: "was", doc: "What it did before: `running`, `shut off`, `absent` and so on." },
        ResultField { name: "virt", doc: "`kvm`, or `qemu` for emulation." },
        ResultField { name: "virt_reason", doc: "Why it is not KVM." },
        ResultField { name: "console_log", doc: "The log file of the guest's console." },
        ResultField { name: "needs_restart", doc: "Whether the running domain is not what is defined." },
        ResultField { name: "needs_rebuild", doc: "Whether the request needs a new domain." },
        ResultField { name: "reason", doc: "What a restart or rebuild is needed for." },
    ];

    fn validate(&self) -> Result<(), ModuleError> {
        if self.state == State::Absent && self.confirm.is_none() {
            return Err(ModuleError::new("`state: absent` stops the guest and removes its definition")
                .help("repeat the domain's name in `confirm` if that is what you want"));
        }
        Ok(())
    }

    fn effects(&self) -> Effects {
        let disrupts = if self.state == State::Absent { Disruption::Yes } else { Disruption::No };
        Effects::converging().disrupting(disrupts)
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        libvirt::check_name("domain", &self.name)?;
        if self.state == State::Absent && self.confirm.as_deref() != Some(&self.name) {
            return Err(ModuleError::new(format!("`confirm` is not `{}`, so the domain stays", self.name)));
        }
        if self.vcpus == 0 || self.memory.0 < 16 << 20 {
            return Err(ModuleError::new("a guest has at least one processor and 16 MiB of memory"));
        }
        let parts = self.parts()?;
        // What can be wrong with the arguments is found here, before anything is asked.
        self.domain(&Found { virt: "kvm".into(), parts: vec![String::new(); parts.len()], ..Found::default() })?;
        Ok(Action::Engine(Box::new(Keep { parts, module: self })))
    }
}

impl LibvirtDomain {
    /// What the hypervisor is asked for: the paths of the disks, then the names of the networks.
    fn parts(&self) -> Result<Vec<String>, ModuleError> {
        let mut parts = Vec::new();
        let disks = self.all_disks();
        for (position, disk) in disks.iter().enumerate() {
            parts.push(disk.part()?);
            let has_serial = |other: &&Disk| other.serial.is_some() && other.serial == disk.serial;
            if let Some(Disk { serial: Some(serial), .. }) = disks[..position].iter().find(has_serial) {
                return Err(ModuleError::new(format!("two disks have the name `{serial}`")));
            }
        }
        for interface in &self.interfaces {
            if let Attachment::Network(name) = interface.attachment()? {
                parts.push(format!("network {name}"));
            }
        }
        Ok(parts)
    }

    fn all_disks(&self) -> Vec<Disk> {
        let pool = self.disks.first().and_then(|disk| disk.pool.as_ref());
        let further = self.further_disks.iter().map(|disk| {
            let format = disk.format.clone().unwrap_or_else(|| "qcow2".into());
            Disk {
                pool: disk.pool.as_ref().or(pool).cloned(),
                volume: Some(format!("{}-{}.{format}", self.name, disk.name)),
                format: Some(format),
                serial: Some(disk.name.to_string()),
                cache: disk.cache.clone(),
                limits: disk.limits.clone(),
                ..Disk::default()
            }
        });
        self.disks.iter().cloned().chain(further).collect()
    }

    /// The definition, with what the hypervisor said about its parts.
    fn domain(&self, found: &Found) -> Result<Domain, ModuleError> {
        let mut parts = found.parts.iter();
        let mut disks = Vec::new();
        for (position, disk) in self.all_disks().iter().enumerate() {
            disks.push(disk.device(position, parts.next().map_or("", String::as_str)));
        }
        let mut interfaces = Vec::new();
        for (position, interface) in self.interfaces.iter().enumerate() {
            let network = match interface.attachment()? {
                Attachment::Network(_) => parts.next().map(String::as_str),
                _ => None,
            };
            interfaces.push(interface.device(&self.name, position, network)?);
        }
        let uuid = self.uuid.as_deref().map(libvirt::checked_uuid).transpose()?;
        let is_kvm = found.virt == "kvm";
        let ignition = self.ignition.as_deref().map(|path| libvirt::checked_path("ignition", path)).transpose()?;
        let console = self.console_log.as_deref().map(|path| libvirt::checked_path("console_log", path)).transpose()?;
        Ok(Domain {
            kind: found.virt.clone(),
            name: self.name.clone(),
            uuid,
            metadata: Some(xml::Metadata {
                guest: Some(xml::GuestMark {
                    namespace: xml::NAMESPACE.into(),
                    cluster: self.cluster.clone(),
                    member: self.member.clone(),
                }),
            }),
            memory: xml::Memory::bytes(self.memory.0),
            vcpu: xml::Vcpu { cpuset: self.cpuset.as_ref().map(CpuSet::to_string), count: self.vcpus },
            os: xml::Os { kind: xml::OsType { arch: None, machine: self.machine.clone(), kind: "hvm".into() } },
            sysinfo: ignition.map(|file| xml::Sysinfo {
                kind: "fwcfg".into(),
                entry: vec![xml::SysinfoEntry { name: "opt/com.coreos/config".into(), file: file.into() }],
            }),
            features: None,
            cpu: Some(self.cpu(is_kvm)),
            on_crash: Some("restart".into()),
            devices: xml::Devices {
                disk: disks,
                interface: interfaces,
                serial: vec![xml::Serial {
                    kind: "pty".into(),
                    log: console.map(|file| xml::Log { file: file.into(), append: Some("on".into()) }),
                }],
                channel: channel(self.agent),
                watchdog: watchdog(self.watchdog),
                rng: rng(self.rng),
                controller: Vec::new(),
            },
        })
    }

    fn cpu(&self, is_kvm: bool) -> xml::Cpu {
        let default = if is_kvm { "host-passthrough" } else { "maximum" };
        let mode = self.cpu.clone().unwrap_or_else(|| default.into());
        // Emulated, five levels of page tables only cost time.
        let off = |name: &str| xml::CpuFeature { policy: "disable".into(), name: name.into() };
        let feature = if !is_kvm && mode == "maximum" { vec![off("la57")] } else { Vec::new() };
        xml::Cpu { mode, feature }
    }
}

fn channel(wanted: bool) -> Vec<xml::Channel> {
    let target = xml::ChannelTarget { kind: "virtio".into(), name: "org.qemu.guest_agent.0".into() };
    wanted.then(|| xml::Channel { kind: "unix".into(), target }).into_iter().collect()
}

fn watchdog(wanted: bool) -> Vec<xml::Watchdog> {
    wanted.then(|| xml::Watchdog { model: "i6300esb".into(), action: "reset".into() }).into_iter().collect()
}

fn rng(wanted: bool) -> Vec<xml::Rng> {
    let backend = xml::RngBackend { model: "random".into(), path: "/dev/urandom".into() };
    wanted.then(|| xml::Rng { model: "virtio".into(), backend }).into_iter().collect()
}

impl Disk {
    fn part(&self) -> Result<String, ModuleError> {
        if self.limits.as_ref().is_some_and(|limits| limits.iops == Some(0) || limits.bandwidth == Some(ByteSize(0))) {
            return Err(ModuleError::new("a limit of a disk is more than 0; leave it out for no limit"));
        }
        match (&self.pool, &self.volume, &self.path) {
            (Some(pool), Some(volume), None) => {
                libvirt::check_name("pool", pool)?;
                libvirt::check_name("volume", volume)?;
                Ok(format!("volume {pool} {volume}"))
            }
            (None, None, Some(path)) => Ok(format!("path {}", libvirt::checked_path("path", path)?)),
            _ => Err(ModuleError::new("a disk has `pool` and `volume`, or `path`")),
        }
    }

    fn device(&self, position: usize, path: &str) -> xml::Disk {
        let is_device = path.starts_with("/dev/");
        let (file, dev) = if is_device { (None, Some(path.to_owned())) } else { (Some(path.to_owned()), None) };
        let name = self.volume.as_deref().or(self.path.as_deref()).unwrap_or_default();
        let is_raw = is_device || [".iso", ".raw", ".img"].iter().any(|suffix| name.ends_with(suffix));
        let format = self.format.clone().unwrap_or_else(|| if is_raw { "raw" } else { "qcow2" }.into());
        xml::Disk {
            kind: if is_device { "block" } else { "file" }.into(),
            device: "disk".into(),
            driver: Some(xml::Driver { name: "qemu".into(), kind: format, cache: self.cache.clone() }),
            source: Some(xml::DiskSource { file, dev }),
            target: xml::Target { dev: disk_name(position), bus: "virtio".into() },
            iotune: self.limits.as_ref().filter(|limits| limits.iops.is_some() || limits.bandwidth.is_some()).map(
                |limits| xml::IoTune {
                    total_bytes_sec: limits.bandwidth.map(|bandwidth| bandwidth.0),
                    total_iops_sec: limits.iops,
                },
            ),
            serial: self.serial.clone(),
            readonly: self.readonly.then(xml::Empty::default),
        }
    }
}

/// vda, vdb, and so on.
fn disk_name(position: usize) -> String {
    let letter = |n: usize| char::from(b'a' + u8::try_from(n % 26).unwrap_or(0));
    match position / 26 {
        0 => format!("vd{}", letter(position)),
        tens => format!("vd{}{}", letter(tens - 1), letter(position)),
    }
}

/// Every device of a q35 machine has a port of its own, and libvirt makes no more of them than are needed: none would be free for a
/// device that comes while the guest runs. Beside disks and interfaces these are for four that every guest has, and four to come.
const MORE_PORTS: usize = 8;

/// What the hypervisor has.
#[derive(Debug, Default)]
struct Found {
    state: String,
    virt: String,
    virt_reason: String,
    parts: Vec<String>,
    defined: Option<String>,
    live: Option<String>,
    autostart: bool,
}

impl Found {
    fn read(outcome: &Outcome, parts: usize, virt: Virt) -> Self {
        let text = |name: &str| outcome.data.get(name).and_then(Value::as_str).map(str::to_owned);
        Self {
            state: text("state").unwrap_or_default(),
            virt: match virt {
                Virt::Auto => text("virt").unwrap_or_else(|| "qemu".into()),
                Virt::Kvm => "kvm".into(),
                Virt::Qemu => "qemu".into(),
            },
            virt_reason: text("virt_reason").unwrap_or_default(),
            parts: (0..parts).map(|number| text(&format!("part{number}")).unwrap_or_default()).collect(),
            defined: text("xml"),
            live: text("live_xml"),
            autostart: text("autostart").as_deref() == Some("enable"),
        }
    }

    fn is_off(&self) -> bool {
        matches!(self.state.as_str(), "absent" | "shut off" | "crashed")
    }
}

struct Keep {
    module: LibvirtDomain,
    parts: Vec<String>,
}

impl EngineAction for Keep {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            let looked = context.run(self.look()).await?;
            if looked.failed {
                return Ok(looked);
            }
            if looked.unknown {
                return Ok(self.foreseen(looked));
            }
            let found = Found::read(&looked, self.parts.len(), self.module.virt);
            match self.module.state {
                State::Absent => self.remove(context, &found).await,
                _ => self.keep(context, &found).await,
            }
        })
    }
}

impl Keep {
    fn look(&self) -> Payload {
        let is_kept = self.module.state != State::Absent;
        let payload =
            Payload::new(LOOK).value("name", &self.module.name).flag("virt", is_kept && self.module.virt == Virt::Auto);
        let parts = self.parts.iter().filter(|_| is_kept);
        parts.fold(payload, |payload, part| payload.arg(part))
    }

    /// A domain that is not there would be made, whatever else a plan cannot know.
    fn foreseen(&self, looked: Outcome) -> Outcome {
        let LibvirtDomain { vcpus, memory, .. } = &self.module;
        if self.module.state == State::Absent || looked.data.get("state").and_then(Value::as_str) != Some("absent") {
            return looked;
        }
        let msg = format!("would create a guest with {vcpus} processors and {memory} of memory; {}", looked.msg);
        Outcome { msg, ..Outcome::changed() }
    }

    fn apply(&self) -> Payload {
        Payload::new(APPLY).value("name", &self.module.name)
    }

    async fn remove(&self, context: &ActionContext, found: &Found) -> Result<Outcome, ActionError> {
        let outcome = Outcome::ok().with("was", found.state.as_str());
        let Some(before) = &found.defined else { return Ok(outcome) };
        let label = format!("domain {}", self.module.name);
        let diff = vec![Diff { label, before: before.clone(), after: String::new() }];
        if !context.check_mode() {
            let removed = context.run(self.apply().flag("remove", true)).await?;
            if removed.failed {
                return Ok(removed);
            }
        }
        Ok(Outcome { changed: true, diff, ..outcome })
    }

    async fn keep(&self, context: &ActionContext, found: &Found) -> Result<Outcome, ActionError> {
        let failed = |error: ModuleError| ActionError::Failed(error.message);
        let wanted = self.module.domain(found).map_err(failed)?;
        let mut changes = self.changes(&wanted, found)?;
        let power = match self.module.state {
            State::Running if found.is_off() => "start",
            _ => "",
        };
        let autostart = match (self.module.autostart, found.autostart) {
            (true, false) => "on",
            (false, true) => "off",
            _ => "",
        };
        let mut will_change = changes.is_change() || !power.is_empty() || !autostart.is_empty();
        if will_change && !context.check_mode() {
            let definition = changes.define.then(|| self.written(&wanted, &changes)).transpose()?;
            let payload = self
                .apply()
                .flag("remove", false)
                .maybe("xml", definition)
                .maybe("console", self.module.console_log.as_deref())
                .value("autostart", autostart)
                .value("power", power);
            let payload = changes.live.iter().fold(payload, Payload::arg);
            let applied = context.run(payload).await?;
            if applied.failed {
                return Ok(applied);
            }
            let later = applied.data.get("later").and_then(Value::as_str).and_then(|number| number.parse().ok());
            if let Some(later @ 1..) = later {
                changes.restart.push("a device for which it has no free slot".into());
                changes.live.truncate(changes.live.len().saturating_sub(later));
                will_change = changes.is_change() || !power.is_empty() || !autostart.is_empty();
            }
        }
        Ok(self.outcome(found, &wanted, changes, will_change))
    }

    fn changes(&self, wanted: &Domain, found: &Found) -> Result<Changes, ActionError> {
        let name = &self.module.name;
        let read = |text: &String| {
            xml::parse(text)
                .map_err(|error| ActionError::Failed(format!("cannot read the definition of {name}: {error}")))
        };
        let defined = found.defined.as_ref().map(read).transpose()?;
        let live = found.live.as_ref().map(read).transpose()?;
        if let Some(defined) = &defined {
            self.check_owner(defined)?;
        }
        domain_changes::between(defined, live, wanted)
            .map_err(|error| ActionError::Failed(format!("cannot write the definition of {name}: {error}")))
    }

    /// A domain that somebody else made is not touched.
    fn check_owner(&self, defined: &Domain) -> Result<(), ActionError> {
        let mark = defined.metadata.as_ref().and_then(|metadata| metadata.guest.as_ref());
        let name = &self.module.name;
        match mark {
            None if !self.module.adopt => Err(ActionError::Failed(format!(
                "there is a domain {name} on this host that etcdrun did not create; rename one of them, or adopt it with `adopt: true`"
            ))),
            Some(mark)
                if mark.cluster.is_some() && self.module.cluster.is_some() && mark.cluster != self.module.cluster =>
            {
                let owner = match mark.cluster.as_deref().unwrap_or_default() {
                    "" => "is a guest of no cluster".to_owned(),
                    other => format!("belongs to the cluster {other}"),
                };
                Err(ActionError::Failed(format!("the domain {name} on this host {owner}")))
            }
            _ => Ok(()),
        }
    }

    /// What libvirt gets: also what is never compared, and the UUID that the domain has.
    fn written(&self, wanted: &Domain, changes: &Changes) -> Result<String, ActionError> {
        let features = Some(xml::Features { acpi: Some(xml::Empty {}), apic: Some(xml::Empty {}) });
        let uuid = changes.uuid.clone().or_else(|| wanted.uuid.clone());
        let mut domain = Domain { features, uuid, ..wanted.clone() };
        if self.module.machine.contains("q35") {
            let xml::Devices { disk, interface, controller, .. } = &mut domain.devices;
            *controller = xml::Controller::ports(disk.len() + interface.len() + MORE_PORTS);
        }
        xml::to_xml(&domain).map_err(|error| ActionError::Failed(error.to_string()))
    }

    fn outcome(&self, found: &Found, wanted: &Domain, changes: Changes, changed: bool) -> Outcome {
        let label = format!("domain {}", self.module.name);
        let diff = changes.diff.map(|(before, after)| Diff { label, before, after });
        let needs = [("a restart", &changes.restart), ("a rebuild", &changes.rebuild)];
        let needs: Vec<String> = needs
            .iter()
            .filter(|(_, why)| !why.is_empty())
            .map(|(what, why)| format!("needs {what}: {}", why.join(", ")))
            .collect();
        let uuid = changes.uuid.or_else(|| wanted.uuid.clone());
        let mut outcome = Outcome { changed, diff: diff.into_iter().collect(), msg: needs.join("; "), ..Outcome::ok() }
            .with("uuid", uuid)
            .with("was", found.state.as_str())
            .with("virt", found.virt.as_str())
            .with("needs_restart", !changes.restart.is_empty())
            .with("needs_rebuild", !changes.rebuild.is_empty())
            .with("console_log", self.module.console_log.clone());
        if !found.virt_reason.is_empty() {
            outcome = outcome.with("virt_reason", found.virt_reason.as_str());
        }
        if !needs.is_empty() {
            outcome = outcome.with("reason", needs.join("; "));
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::disk_name;

    #[test]
    fn disks_are_named_as_the_kernel_names_them() {
        assert_eq!([0, 1, 25, 26, 52].map(disk_name), ["vda", "vdb", "vdz", "vdaa", "vdba"]);
    }
}
