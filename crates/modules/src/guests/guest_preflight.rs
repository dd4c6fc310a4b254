//! `guest_preflight`: can a hypervisor take the guests that it is to have? Asked before anything is made.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    Action, ActionContext, BuildContext, EngineAction, Module, ModuleError, ResultField, Running,
    guest_interface::{Attachment, GuestInterface},
};
use crate::{
    model::{ByteSize, CpuSet, Effects, Outcome, Value, ValueMap},
    remote::Payload,
};

const BODY: &str = concat!(include_str!("libvirt.sh"), include_str!("guest_preflight.sh"));
/// etcd wants its writes on disk within this.
const SLOW_FSYNC_MS: f64 = 10.0;

/// Checks that a hypervisor can run its guests: memory, processors and disk space for those that do not
/// exist yet; pools, networks, bridges and base images by name; addresses that are already in use. Read-only.
///
/// It reports all problems at once, including disks with a slow fsync and networks that end at the hypervisor.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GuestPreflight {
    /// The guests on the hypervisor, each in the form of `guest`.
    guests: Vec<Value>,
    /// The pools that will be created, by name, with their `path`.
    #[serde(default)]
    pools: Value,
    /// The networks that will be created, by name.
    #[serde(default)]
    networks: Value,
    /// The base images that will be copied, by name.
    #[serde(default)]
    images: Value,
}

impl Module for GuestPreflight {
    const NAME: &'static str = "guest_preflight";
    const EXAMPLE: &'static str = "\
- name: Check the hypervisor
  guest_preflight:
    guests: \"{{ hypervisor.guests | map('extract', hostvars, 'guest') | list }}\"
  on: hypervisor
  once_per: hypervisor
";
    const RESULT: &'static [ResultField] = &[
        ResultField { name: "missing", doc: "The guests that do not exist yet." },
        ResultField { name: "fsync_ms", doc: "The time of an fsync in milliseconds, by pool." },
        ResultField { name: "warnings", doc: "What works, but should be known." },
    ];

    fn effects(&self) -> Effects {
        Effects::read_only()
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        let guests: Result<Vec<Planned>, ModuleError> = self.guests.iter().map(Planned::read).collect();
        let names = |value: &Value| value.as_object().map(|map| map.keys().cloned().collect()).unwrap_or_default();
        let pools = self.pools.as_object().cloned().unwrap_or_default();
        Ok(Action::Engine(Box::new(Check {
            guests: guests?,
            pools,
            networks: names(&self.networks),
            images: names(&self.images),
        })))
    }
}

/// A guest as the inventory wants it.
struct Planned {
    name: String,
    cluster: String,
    vcpus: u64,
    memory: u64,
    /// Pools, and how much is wanted of them.
    disks: Vec<(String, u64)>,
    /// Pools and names of the volumes.
    volumes: Vec<(String, String)>,
    cpuset: Option<CpuSet>,
    base: Option<Base>,
    interfaces: Vec<GuestInterface>,
    /// Others of its cluster are on other hypervisors.
    is_spread: bool,
}

enum Base {
    File(String),
    Volume { pool: String, name: String },
}

impl Planned {
    fn read(guest: &Value) -> Result<Self, ModuleError> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let size = |value: &Value| match value {
            Value::String(text) => {
                text.parse::<ByteSize>().map(|size| size.0).map_err(|e| ModuleError::new(e.to_string()))
            }
            Value::Number(number) => Ok(number.as_u64().unwrap_or(0)),
            _ => Ok(0),
        };
        let name = text(&guest["name"]).unwrap_or_default();
        let pool = text(&guest["disk"]["pool"]).unwrap_or_else(|| "default".into());
        let pool_of = |disk: &Value| text(&disk["pool"]).unwrap_or_else(|| pool.clone());
        // As the role names them.
        let format_of = |disk: &Value| text(&disk["format"]).unwrap_or_else(|| "qcow2".into());
        let volume = |disk: &Value, default: String| (pool_of(disk), text(&disk["volume"]).unwrap_or(default));
        let mut disks = vec![(pool.clone(), size(&guest["disk"]["size"])?)];
        let mut volumes = vec![volume(&guest["disk"], format!("{name}.qcow2"))];
        let data = &guest["data_disk"];
        if data.is_object() {
            disks.push((pool_of(data), size(&data["size"])?));
            volumes.push(volume(data, format!("{name}-data.{}", format_of(data))));
        }
        for disk in guest["disks"].as_array().into_iter().flatten() {
            disks.push((pool_of(disk), size(&disk["size"])?));
            let disk_name = text(&disk["name"]).unwrap_or_default();
            volumes.push((pool_of(disk), format!("{name}-{disk_name}.{}", format_of(disk))));
        }
        disks.push((pool_of(&guest["cloud_init"]), 1 << 20));
        volumes.push(volume(&guest["cloud_init"], format!("{name}-cloud-init.iso")));
        let cpuset = match &guest["cpuset"] {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        };
        let cpuset = cpuset.map(|text| text.parse::<CpuSet>()).transpose();
        let base = text(&guest["disk"]["base"]).map(|base| match base.starts_with('/') {
            true => Base::File(base),
            false => {
                let pool = text(&guest["disk"]["base_pool"]).unwrap_or_else(|| "default".into());
                Base::Volume { pool, name: base }
            }
        });
        let mut interfaces = guest["interfaces"].clone();
        for interface in interfaces.as_array_mut().into_iter().flatten() {
            // One server may be written without a list around it.
            if let Some(dns) = interface.get_mut("dns").filter(|dns| dns.is_string()) {
                *dns = Value::Array(vec![dns.take()]);
            }
        }
        let interfaces = if interfaces.is_null() { Ok(Vec::new()) } else { serde_json::from_value(interfaces) };
        Ok(Self {
            cluster: text(&guest["cluster"]).unwrap_or_default(),
            vcpus: guest["vcpus"].as_u64().unwrap_or(2),
            memory: Some(size(&guest["memory"])?).filter(|size| *size > 0).unwrap_or(8 << 30),
            disks,
            volumes,
            cpuset: cpuset.map_err(|error| ModuleError::new(error.to_string()))?,
            base,
            interfaces: interfaces
                .map_err(|error| ModuleError::new(format!("the interfaces of {name} cannot be read: {error}")))?,
            name,
            is_spread: guest["is_spread"].as_bool().unwrap_or(false),
        })
    }
}

struct Check {
    guests: Vec<Planned>,
    pools: ValueMap,
    networks: BTreeSet<String>,
    images: BTreeSet<String>,
}

/// What the hypervisor answered.
struct Found {
    /// State and MAC addresses, by domain.
    domains: BTreeMap<String, Vec<String>>,
    /// Free bytes, by pool.
    pools: BTreeMap<String, Option<u64>>,
    pool_paths: BTreeMap<String, String>,
    /// UUID, whether it is active, and the mode, by network.
    networks: BTreeMap<String, Vec<String>>,
    links: BTreeMap<String, String>,
    memory: u64,
    cpus: u64,
    /// The highest number of a processor.
    last_cpu: Option<u64>,
    /// AppArmor decides what a guest may read.
    has_apparmor: bool,
    answers: BTreeSet<Vec<String>>,
}

impl Found {
    fn read(outcome: &Outcome) -> Self {
        let text = |name: &str| outcome.data.get(name).and_then(Value::as_str).unwrap_or_default();
        let lines = |name: &str| -> Vec<Vec<String>> {
            let words = text(name).lines().map(|line| line.split_whitespace().map(str::to_owned).collect());
            words.filter(|words: &Vec<String>| !words.is_empty()).collect()
        };
        let named = |name: &str| -> BTreeMap<String, Vec<String>> {
            lines(name)
                .into_iter()
                .filter_map(|mut words| (!words.is_empty()).then(|| (words.remove(0), words)))
                .collect()
        };
        let pools = named("pools");
        Self {
            domains: named("domains"),
            pool_paths: pools
                .iter()
                .map(|(name, words)| (name.clone(), words.get(1..).unwrap_or_default().join(" ")))
                .collect(),
            pools: pools
                .into_iter()
                .map(|(name, words)| (name, words.first().and_then(|kib| kib.parse::<u64>().ok()).map(|kib| kib << 10)))
                .collect(),
            networks: named("networks"),
            links: named("links").into_iter().map(|(name, words)| (name, words.join(" "))).collect(),
            memory: text("memory").trim().parse::<u64>().unwrap_or(0) << 10,
            cpus: text("cpus").trim().parse().unwrap_or(0),
            last_cpu: text("last_cpu").trim().parse().ok(),
            has_apparmor: text("security").trim() == "apparmor",
            answers: lines("answers").into_iter().collect(),
        }
    }

    fn answered(&self, words: &[&str]) -> bool {
        self.answers.iter().any(|answer| answer == words)
    }
}

#[derive(Default)]
struct Report {
    problems: Vec<String>,
    warnings: Vec<String>,
    fsync: ValueMap,
}

impl EngineAction for Check {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            let first = context.run(Payload::new(BODY)).await?;
            if first.failed {
                return Ok(first);
            }
            let found = Found::read(&first);
            let missing: Vec<&Planned> =
                self.guests.iter().filter(|guest| !found.domains.contains_key(&guest.name)).collect();
            let mut report = Report::default();
            self.check_addresses(&found, &mut report);
            self.check_volumes(&mut report);
            self.check_processors(&found, &mut report);
            if !missing.is_empty() {
                let asked = context.run(self.questions(&missing, &found)).await?;
                if asked.failed {
                    return Ok(asked);
                }
                let found = Found::read(&asked);
                self.check_room(&missing, &found, &mut report);
                missing.iter().for_each(|guest| self.check_parts(guest, &found, &mut report));
                check_fsync(&found, &mut report);
            }
            let names: Vec<&str> = missing.iter().map(|guest| guest.name.as_str()).collect();
            Ok(report.outcome().with("missing", names))
        })
    }
}

impl Report {
    fn outcome(self) -> Outcome {
        let outcome = match self.problems.as_slice() {
            [] => Outcome { msg: self.warnings.join("; "), ..Outcome::ok() },
            problems => Outcome::failed(problems.join("; ")),
        };
        outcome.with("warnings", self.warnings).with("fsync_ms", self.fsync)
    }
}

impl Check {
    /// What is only asked for guests that are to be made.
    fn questions(&self, missing: &[&Planned], found: &Found) -> Payload {
        let mut questions = BTreeSet::new();
        for guest in missing {
            match &guest.base {
                Some(Base::File(path)) => questions.insert(format!("file {path}")),
                Some(Base::Volume { pool, .. }) => questions.insert(format!("volumes {pool}")),
                None => false,
            };
            for interface in &guest.interfaces {
                if let Ok(Some(address)) = interface.address() {
                    questions.insert(format!("ping {}", address.addr()));
                }
            }
            for (pool, _) in &guest.disks {
                let planned = self.pools.get(pool).and_then(|pool| pool["path"].as_str()).map(str::to_owned);
                if let Some(path) = found.pool_paths.get(pool).cloned().or(planned) {
                    questions.insert(format!("fsync {path}"));
                }
            }
        }
        questions.iter().fold(Payload::new(BODY), Payload::arg)
    }

    /// MAC addresses that a domain has which is none of these guests.
    fn check_addresses(&self, found: &Found, report: &mut Report) {
        for guest in &self.guests {
            for (position, interface) in guest.interfaces.iter().enumerate() {
                let mac = interface.mac(&guest.name, position);
                let others = found.domains.iter().filter(|(name, _)| **name != guest.name);
                for (other, _) in others.filter(|(_, words)| words.iter().skip(1).any(|word| *word == mac)) {
                    report
                        .problems
                        .push(format!("{}: the domain {other} already has the MAC address {mac}", guest.name));
                }
            }
        }
    }

    /// A volume that two disks would have.
    fn check_volumes(&self, report: &mut Report) {
        let mut owners: BTreeMap<&(String, String), &str> = BTreeMap::new();
        for guest in &self.guests {
            for volume in &guest.volumes {
                let Some(first) = owners.insert(volume, &guest.name) else { continue };
                let (pool, name) = volume;
                report.problems.push(format!(
                    "the volume {name} in the pool {pool} would be two disks, of {first} and of {}; give one of them another name",
                    guest.name
                ));
            }
        }
    }

    fn check_processors(&self, found: &Found, report: &mut Report) {
        let Some(last) = found.last_cpu else { return };
        for guest in &self.guests {
            let Some(set) = guest.cpuset.as_ref().filter(|set| u64::from(set.last()) > last) else { continue };
            let name = &guest.name;
            report
                .problems
                .push(format!("{name}: `cpuset` is {set}, and the last processor of the hypervisor is {last}"));
        }
    }

    fn check_room(&self, missing: &[&Planned], found: &Found, report: &mut Report) {
        let memory: u64 = missing.iter().map(|guest| guest.memory).sum();
        if memory > found.memory {
            let names: Vec<&str> = missing.iter().map(|guest| guest.name.as_str()).collect();
            report.problems.push(format!(
                "{} need {} of memory, and {} are free",
                names.join(", "),
                ByteSize(memory),
                ByteSize(found.memory)
            ));
        }
        for guest in missing.iter().filter(|guest| guest.vcpus > found.cpus) {
            report
                .problems
                .push(format!("{} needs {} processors, and there are {}", guest.name, guest.vcpus, found.cpus));
        }
        let vcpus: u64 = missing.iter().map(|guest| guest.vcpus).sum();
        if vcpus > found.cpus {
            report.warnings.push(format!("{vcpus} processors of guests share {} of the hypervisor", found.cpus));
        }
        let mut wanted: BTreeMap<&str, u64> = BTreeMap::new();
        for (pool, size) in missing.iter().flat_map(|guest| &guest.disks) {
            *wanted.entry(pool).or_default() += size;
        }
        for (pool, size) in wanted {
            match found.pools.get(pool) {
                Some(Some(free)) if size > *free => {
                    report.problems.push(format!(
                        "the pool {pool} has {} free, and {} are wanted",
                        ByteSize(*free),
                        ByteSize(size)
                    ));
                }
                Some(_) => {}
                None if self.pools.contains_key(pool) => {}
                None => {
                    report.problems.push(format!("there is no pool {pool}; there are: {}", list(found.pools.keys())))
                }
            }
        }
    }

    fn check_parts(&self, guest: &Planned, found: &Found, report: &mut Report) {
        let name = &guest.name;
        match &guest.base {
            Some(Base::File(path)) if !found.answered(&["file", path]) => {
                report.problems.push(format!("{name}: there is no base image {path}"));
            }
            Some(Base::Volume { pool, name: volume })
                if !self.images.contains(volume) && !found.answered(&["volume", pool, volume]) =>
            {
                let there = found
                    .answers
                    .iter()
                    .filter(|answer| answer.len() == 3 && answer[0] == "volume" && answer[1] == *pool);
                let there = list(there.map(|answer| &answer[2]));
                report
                    .problems
                    .push(format!("{name}: there is no base image {volume} in the pool {pool}; there are: {there}"));
            }
            _ => {}
        }
        let base = guest.base.as_ref().and_then(|base| match base {
            Base::File(path) => Some(path.clone()),
            Base::Volume { pool, name } => found.pool_paths.get(pool).map(|path| format!("{path}/{name}")),
        });
        if let Some(path) = base.filter(|path| found.has_apparmor && !is_readable_by_profile(path)) {
            report.warnings.push(format!(
                "{name}: AppArmor may deny libvirt to read the base image {path}; let its name end in .qcow2, .img or .raw, or add `{path} r,` to /etc/apparmor.d/local/usr.lib.libvirt.virt-aa-helper"
            ));
        }
        if let Some(first) = guest.interfaces.first() {
            check_reach(guest, first, found, report);
        }
        for interface in &guest.interfaces {
            self.check_attachment(guest, interface, found, report);
            if let Ok(Some(address)) = interface.address()
                && found.answered(&["ping", &address.addr().to_string()])
            {
                report.problems.push(format!("{name}: something already answers at {}", address.addr()));
            }
        }
    }

    fn check_attachment(&self, guest: &Planned, interface: &GuestInterface, found: &Found, report: &mut Report) {
        let name = &guest.name;
        let is_bridge = |link: &str| found.links.get(link).map(String::as_str) == Some("bridge");
        match interface.attachment() {
            Ok(Attachment::Network(network)) => {
                let known = found
                    .networks
                    .iter()
                    .find(|(name, words)| *name == network || words.first().map(String::as_str) == Some(network));
                match known {
                    None if self.networks.contains(network) => {}
                    None => {
                        let there = list(found.networks.keys());
                        report.problems.push(format!("{name}: there is no network {network}; there are: {there}"));
                    }
                    Some((_, words))
                        if words.get(1).map(String::as_str) == Some("no") && !self.networks.contains(network) =>
                    {
                        report.problems.push(format!("{name}: the network {network} is not active"));
                    }
                    Some(_) => {}
                }
            }
            Ok(Attachment::Bridge(bridge)) if !is_bridge(bridge) => {
                let bridges = found.links.iter().filter(|(_, kind)| *kind == "bridge").map(|(name, _)| name);
                report.problems.push(format!("{name}: there is no bridge {bridge}; there are: {}", list(bridges)));
            }
            Ok(Attachment::Macvtap(link)) if !found.links.contains_key(link) => {
                report
                    .problems
                    .push(format!("{name}: there is no interface {link}; there are: {}", list(found.links.keys())));
            }
            Ok(_) => {}
            Err(error) => report.problems.push(format!("{name}: {error}")),
        }
    }
}

/// Members talk to each other by their first interface. Networks that the inventory describes were looked at when it was
/// loaded; this is for those that only the hypervisor knows.
fn check_reach(guest: &Planned, first: &GuestInterface, found: &Found, report: &mut Report) {
    let Ok(Attachment::Network(network)) = first.attachment() else { return };
    let is_it = |name: &String, words: &[String]| name == network || words.first().map(String::as_str) == Some(network);
    let Some((_, words)) = found.networks.iter().find(|(name, words)| is_it(name, words)) else { return };
    let mode = words.get(2).map_or("", String::as_str);
    if guest.is_spread && matches!(mode, "nat" | "isolated") {
        report.problems.push(format!(
            "{}: the network {network} ({mode}) ends at this hypervisor, and other members of {} are on others; they could not reach each other",
            guest.name, guest.cluster
        ));
    }
}

/// Whether libvirt's profile for AppArmor lets its helper read an image, to find out what it is based on. Without that a guest gets no
/// permission for its base image.
fn is_readable_by_profile(path: &str) -> bool {
    let directories = ["/var/lib/libvirt/images/", "/media/", "/mnt/", "/opt/", "/srv/", "/home/", "/root/"];
    let is_image = |end: &str| {
        matches!(end, "img" | "raw" | "qcow" | "qcow2" | "qed" | "vmdk" | "vhd") || end.eq_ignore_ascii_case("iso")
    };
    let name = path.rsplit('/').next().unwrap_or_default();
    directories.iter().any(|directory| path.starts_with(directory))
        || name.rsplit_once('.').is_some_and(|(_, end)| is_image(end))
}

fn check_fsync(found: &Found, report: &mut Report) {
    for answer in found.answers.iter().filter(|answer| answer.len() >= 3 && answer[0] == "fsync") {
        let Some(seconds) = answer.last().and_then(|text| text.parse::<f64>().ok()) else { continue };
        // A hundred writes were timed.
        let milliseconds = (seconds * 10.0 * 100.0).round() / 100.0;
        let folder = answer[1..answer.len() - 1].join(" ");
        if milliseconds > SLOW_FSYNC_MS {
            report
                .warnings
                .push(format!("an fsync in {folder} takes {milliseconds} ms; etcd needs less than {SLOW_FSYNC_MS}"));
        }
        report.fsync.insert(folder, milliseconds.into());
    }
}

fn list<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let names: Vec<&str> = names.map(String::as_str).collect();
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::is_readable_by_profile;

    #[test]
    fn images_that_apparmor_denies_have_odd_names() {
        for good in ["/data/a.qcow2", "/srv/debian-12", "/var/lib/libvirt/images/debian"] {
            assert!(is_readable_by_profile(good), "{good}");
        }
        for bad in ["/data/debian-12", "/data/img", "/data/a.qcow2/debian", "/data/a.IMG"] {
            assert!(!is_readable_by_profile(bad), "{bad}");
        }
    }
}
