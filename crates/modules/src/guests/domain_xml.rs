//! A libvirt domain as XML: what etcdrun manages of it, the same type for reading and for writing.

use quick_xml::{DeError, SeError, se::Serializer};
use serde::{Deserialize, Serialize};

use crate::model::CpuSet;

/// The namespace of what etcdrun keeps in a domain's metadata.
pub(super) const NAMESPACE: &str = "https://etcdrun.dev/xmlns/guest/1";

/// What etcdrun manages. Anything else in a domain's definition is libvirt's, or somebody else's, and not looked at.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename = "domain")]
pub(super) struct Domain {
    #[serde(rename = "@type")]
    pub kind: String,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
    pub memory: Memory,
    pub vcpu: Vcpu,
    pub os: Os,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sysinfo: Option<Sysinfo>,
    /// Written, never compared: libvirt fills in more of them by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub features: Option<Features>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_crash: Option<String>,
    pub devices: Devices,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Metadata {
    #[serde(
        rename(serialize = "etcdrun:guest", deserialize = "guest"),
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub guest: Option<GuestMark>,
}

/// Says that etcdrun made the domain, and for whom.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct GuestMark {
    #[serde(rename = "@xmlns:etcdrun", default)]
    pub namespace: String,
    #[serde(rename = "@cluster", default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    #[serde(rename = "@member", default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Memory {
    #[serde(rename = "@unit", default)]
    pub unit: String,
    #[serde(rename = "$text")]
    pub amount: u64,
}

impl Memory {
    pub fn bytes(bytes: u64) -> Self {
        Self { unit: "KiB".into(), amount: bytes >> 10 }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Vcpu {
    /// The processors of the hypervisor that run it; all of them if there is none.
    #[serde(rename = "@cpuset", default, skip_serializing_if = "Option::is_none")]
    pub cpuset: Option<String>,
    #[serde(rename = "$text")]
    pub count: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Os {
    #[serde(rename = "type")]
    pub kind: OsType,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct OsType {
    #[serde(rename = "@arch", default, skip_serializing_if = "Option::is_none")]
    pub arch: Option<String>,
    #[serde(rename = "@machine", default)]
    pub machine: String,
    #[serde(rename = "$text")]
    pub kind: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Sysinfo {
    #[serde(rename = "@type")]
    pub kind: String,
    #[serde(default)]
    pub entry: Vec<SysinfoEntry>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SysinfoEntry {
    #[serde(rename = "@name", default)]
    pub name: String,
    #[serde(rename = "@file", default)]
    pub file: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Features {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acpi: Option<Empty>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apic: Option<Empty>,
}

/// An element that says all by being there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Empty {}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Cpu {
    #[serde(rename = "@mode", default)]
    pub mode: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub feature: Vec<CpuFeature>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct CpuFeature {
    #[serde(rename = "@policy", default)]
    pub policy: String,
    #[serde(rename = "@name")]
    pub name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Devices {
    #[serde(default)]
    pub disk: Vec<Disk>,
    #[serde(default)]
    pub interface: Vec<Interface>,
    #[serde(default)]
    pub serial: Vec<Serial>,
    #[serde(default)]
    pub channel: Vec<Channel>,
    #[serde(default)]
    pub watchdog: Vec<Watchdog>,
    #[serde(default)]
    pub rng: Vec<Rng>,
    /// Only written: libvirt has more of them than anybody asks for.
    #[serde(default, skip_deserializing)]
    pub controller: Vec<Controller>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Controller {
    #[serde(rename = "@type")]
    pub kind: &'static str,
    #[serde(rename = "@model")]
    pub model: &'static str,
}

impl Controller {
    /// The root that a machine begins with, and places for so many devices.
    pub fn ports(count: usize) -> Vec<Self> {
        let pci = |model| Self { kind: "pci", model };
        std::iter::once(pci("pcie-root")).chain(std::iter::repeat_n(pci("pcie-root-port"), count)).collect()
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename = "disk")]
pub(super) struct Disk {
    #[serde(rename = "@type")]
    pub kind: String,
    #[serde(rename = "@device", default)]
    pub device: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<Driver>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<DiskSource>,
    pub target: Target,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iotune: Option<IoTune>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readonly: Option<Empty>,
}

/// How much a guest may ask of a disk, in a second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct IoTune {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_bytes_sec: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_iops_sec: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Driver {
    #[serde(rename = "@name", default)]
    pub name: String,
    #[serde(rename = "@type", default)]
    pub kind: String,
    #[serde(rename = "@cache", default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct DiskSource {
    #[serde(rename = "@file", default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(rename = "@dev", default, skip_serializing_if = "Option::is_none")]
    pub dev: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Target {
    #[serde(rename = "@dev")]
    pub dev: String,
    #[serde(rename = "@bus", default)]
    pub bus: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename = "interface")]
pub(super) struct Interface {
    #[serde(rename = "@type")]
    pub kind: String,
    pub mac: Mac,
    #[serde(default)]
    pub source: InterfaceSource,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Model>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Mac {
    #[serde(rename = "@address")]
    pub address: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct InterfaceSource {
    #[serde(rename = "@network", default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    #[serde(rename = "@bridge", default, skip_serializing_if = "Option::is_none")]
    pub bridge: Option<String>,
    #[serde(rename = "@dev", default, skip_serializing_if = "Option::is_none")]
    pub dev: Option<String>,
    #[serde(rename = "@mode", default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Model {
    #[serde(rename = "@type")]
    pub kind: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Serial {
    #[serde(rename = "@type")]
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<Log>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Log {
    #[serde(rename = "@file")]
    pub file: String,
    #[serde(rename = "@append", default, skip_serializing_if = "Option::is_none")]
    pub append: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Channel {
    #[serde(rename = "@type")]
    pub kind: String,
    pub target: ChannelTarget,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ChannelTarget {
    #[serde(rename = "@type")]
    pub kind: String,
    #[serde(rename = "@name", default)]
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Watchdog {
    #[serde(rename = "@model")]
    pub model: String,
    #[serde(rename = "@action", default)]
    pub action: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Rng {
    #[serde(rename = "@model")]
    pub model: String,
    pub backend: RngBackend,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RngBackend {
    #[serde(rename = "@model")]
    pub model: String,
    #[serde(rename = "$text", default)]
    pub path: String,
}

/// Any part of a definition as indented XML, everything escaped.
pub(super) fn to_xml(part: &impl Serialize) -> Result<String, SeError> {
    let mut text = String::new();
    let mut serializer = Serializer::new(&mut text);
    serializer.indent(' ', 2);
    part.serialize(serializer)?;
    text.push('\n');
    Ok(text)
}

/// Reads what libvirt prints.
pub(super) fn parse(xml: &str) -> Result<Domain, DeError> {
    quick_xml::de::from_str(xml)
}

impl Domain {
    /// The form in which two definitions are compared: libvirt's own additions and spellings taken out.
    pub fn normalized(mut self, wanted: &Self) -> Self {
        self.features = None;
        self.metadata = self.metadata.filter(|metadata| metadata.guest.is_some());
        if let Some(guest) = self.metadata.as_mut().and_then(|metadata| metadata.guest.as_mut()) {
            guest.namespace = NAMESPACE.into();
        }
        self.memory = Memory { amount: self.memory.amount * factor(&self.memory.unit), unit: "KiB".into() };
        self.vcpu.cpuset = self.vcpu.cpuset.map(|set| set.parse::<CpuSet>().map_or(set, |set| set.to_string()));
        self.os.kind.machine = machine(&self.os.kind.machine, &wanted.os.kind.machine);
        if wanted.os.kind.arch.is_none() {
            self.os.kind.arch = None;
        }
        if wanted.uuid.is_none() {
            self.uuid = None;
        }
        for interface in &mut self.devices.interface {
            interface.mac.address.make_ascii_lowercase();
            // A network may itself be a bridge; a running domain tells which one it got.
            if interface.source.network.is_some() {
                interface.source = InterfaceSource { network: interface.source.network.take(), ..Default::default() };
            }
        }
        self
    }
}

fn factor(unit: &str) -> u64 {
    match unit {
        "MiB" | "M" => 1 << 10,
        "GiB" | "G" => 1 << 20,
        _ => 1,
    }
}

/// libvirt writes the version into the machine's name, where none was asked for.
fn machine(actual: &str, wanted: &str) -> String {
    let family = match wanted {
        "q35" => "pc-q35-",
        "pc" => "pc-i440fx-",
        "virt" => "virt-",
        _ => return actual.to_owned(),
    };
    if actual.starts_with(family) { wanted.to_owned() } else { actual.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> Domain {
        Domain {
            kind: "qemu".into(),
            name: "a<&'\"b".into(),
            uuid: Some("11111111-2222-4333-8444-555555555555".into()),
            metadata: Some(Metadata {
                guest: Some(GuestMark {
                    namespace: NAMESPACE.into(),
                    cluster: Some("prod".into()),
                    member: Some("etcd-1".into()),
                }),
            }),
            memory: Memory::bytes(512 << 20),
            vcpu: Vcpu { cpuset: Some("0-2,5".into()), count: 1 },
            os: Os { kind: OsType { arch: None, machine: "q35".into(), kind: "hvm".into() } },
            devices: Devices {
                interface: vec![Interface {
                    kind: "direct".into(),
                    mac: Mac { address: "52:54:00:00:00:01".into() },
                    source: InterfaceSource {
                        dev: Some("eth0".into()),
                        mode: Some("bridge".into()),
                        ..Default::default()
                    },
                    model: Some(Model { kind: "virtio".into() }),
                }],
                ..Devices::default()
            },
            ..Domain::default()
        }
    }

    #[test]
    fn what_is_written_is_read_again_whatever_is_in_it() {
        let domain = wanted();
        let text = to_xml(&domain).unwrap();
        assert!(!text.contains("<&'"), "{text}");
        assert_eq!(parse(&text).unwrap().normalized(&domain), domain, "{text}");
    }

    #[test]
    fn libvirts_own_additions_make_no_difference() {
        let domain = wanted();
        let text = to_xml(&domain)
            .unwrap()
            .replace("machine=\"q35\"", "arch='x86_64' machine='pc-q35-7.2'")
            .replace(
                "<memory unit=\"KiB\">524288</memory>",
                "<memory unit='MiB'>512</memory><currentMemory>1</currentMemory>",
            )
            .replace("<vcpu cpuset=\"0-2,5\">", "<vcpu placement='static' cpuset='0,1,2,5'>")
            .replace("52:54:00:00:00:01\"/>", "52:54:00:00:00:01\"/><address type='pci'/><alias name='net0'/>")
            .replace("<devices>", "<devices><emulator>/usr/bin/qemu</emulator><controller type='usb'/>");
        assert_eq!(parse(&text).unwrap().normalized(&domain), domain, "{text}");
    }
}
