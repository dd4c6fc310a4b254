//! Which member replaces which: from what was asked for, and what was found, to the change that the playbook makes.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    path::{Path, PathBuf},
};

use super::{
    Change, Condition, Edited, Listing, NewMember, Refusal, Request, Situation, Texts, Verb,
    facts::{self, Facts},
    next_name, pin,
};
use crate::{
    inventory::{Cluster, Host, HostKind, Inventory, sections::EtcdSection},
    model::ValueMap,
    source::from_node,
};

/// What is known of the hosts.
pub struct Ground<'a> {
    pub inventory: &'a Inventory,
    /// Hypervisors that do not answer, and why.
    pub silent_hypervisors: &'a BTreeMap<String, String>,
    /// Whether a hypervisor takes no members for now.
    pub is_drained: &'a dyn Fn(&str) -> bool,
}

/// The file of an inventory that describes a host.
pub struct InventoryFile {
    pub path: PathBuf,
    pub text: String,
    /// A program wrote it, so etcdrun does not edit it.
    pub is_generated: bool,
}

/// The files of the inventory. They are read elsewhere: nothing here touches the disk.
pub trait Files {
    type Error: From<Refusal>;

    /// The file that a host is described in.
    fn of(&self, host: &Host) -> InventoryFile;

    /// The inventory, as if a file of it had this text.
    fn load(&self, path: &Path, text: &str) -> Result<Inventory, Self::Error>;
}

/// What will be done.
pub struct Prepared {
    pub change: Change,
    /// Where the new member is.
    pub new_place: String,
    pub notes: Vec<String>,
    path: PathBuf,
    during: String,
}

impl Prepared {
    /// The file of the inventory that changes, as it is during the change.
    pub fn file(&self) -> (PathBuf, Vec<u8>) {
        (self.path.clone(), self.during.clone().into_bytes())
    }
}

pub fn prepare<F: Files>(
    ground: &Ground<'_>,
    request: &Request,
    situation: &Situation,
    files: &F,
) -> Result<Prepared, F::Error> {
    let cluster = ground.inventory.cluster(&situation.cluster);
    let cluster = cluster.ok_or_else(|| Refusal::input(format!("there is no cluster `{}`", situation.cluster), ""))?;
    Draft { ground, request, situation, cluster, files }.prepare()
}

struct Draft<'a, F: Files> {
    ground: &'a Ground<'a>,
    request: &'a Request,
    situation: &'a Situation,
    cluster: &'a Cluster,
    files: &'a F,
}

/// What must be written down of a member, so that it stays where it is.
fn pin_of(member: &Facts) -> (String, ValueMap) {
    (member.name.clone(), pin(&member.interfaces, member.hypervisor.as_deref()))
}

/// The new member, before it is in any inventory.
struct Coming {
    new: NewMember,
    /// The inventory describes it already.
    is_described: bool,
}

impl<F: Files> Draft<'_, F> {
    fn prepare(&self) -> Result<Prepared, F::Error> {
        let old = match &self.request.old {
            Some(name) => Some(Facts::of(facts::member(self.ground.inventory, name)?.0)),
            None => None,
        };
        let condition = old.as_ref().map(|old| self.situation.condition(&old.name));
        let alive = condition == Some(Condition::Alive);
        let coming = self.coming(old.as_ref(), alive)?;
        self.situation.check(self.request)?;
        let mut notes = Vec::new();
        let texts = self.texts(old.as_ref(), coming.as_ref(), alive, &mut notes)?;
        let texts = self.pinned(texts, coming.as_ref())?;
        let during = self.files.load(&texts.path, &texts.during)?;
        let after = self.files.load(&texts.path, &texts.after)?;
        let new = match &coming {
            Some(coming) => Some(Facts::of(facts::member(&during, &coming.new.name)?.0)),
            None => None,
        };
        let change = self.change(old.as_ref(), new.as_ref(), alive, &texts, &after, &mut notes)?;
        let new_place = new.map(|new| match new.hypervisor {
            Some(hypervisor) => format!("{} on {hypervisor}", new.ip),
            None => new.ip,
        });
        Ok(Prepared { change, new_place: new_place.unwrap_or_default(), notes, path: texts.path, during: texts.during })
    }

    /// The member that comes, if one does.
    fn coming(&self, old: Option<&Facts>, alive: bool) -> Result<Option<Coming>, Refusal> {
        let Request { verb, to, ip, .. } = self.request;
        if let Some(to) = to {
            facts::hypervisor(self.ground.inventory, to)?;
            if (self.ground.is_drained)(to) {
                let help = format!("run `etcdrun undrain {to}` first, or name another hypervisor with --to");
                return Err(Refusal::input(format!("{to} is drained, and accepts no members"), help));
            }
            if let Some(why) = self.ground.silent_hypervisors.get(to) {
                return Err(Refusal::gate(format!("{to} is unreachable ({why})"), "name another hypervisor with --to"));
            }
        }
        match (verb, old) {
            (Verb::Remove | Verb::Restart, _) => return Ok(None),
            (Verb::Move, Some(old)) => self.check_move(old)?,
            _ => {}
        }
        let members = facts::members(self.ground.inventory, self.cluster.name.as_str());
        let like = old.cloned().or_else(|| members.last().cloned());
        let like = like.ok_or_else(|| Refusal::input("the cluster has no members", ""))?;
        let name = match (&self.request.new_name, old) {
            (Some(name), _) => name.clone(),
            (None, Some(old)) if !alive => old.name.clone(),
            (None, _) => {
                let taken: Vec<&str> = self.ground.inventory.hosts().map(|host| host.name.as_str()).collect();
                next_name(&like.name, &taken)
            }
        };
        let is_same = old.is_some_and(|old| old.name == name);
        let is_described = !is_same && self.is_described(&name)?;
        let is_guest = like.is_guest || (like.hypervisor.is_none() && to.is_some());
        if !like.is_guest && to.is_some() {
            let message = format!("{} is not a guest on a hypervisor", like.name);
            return Err(Refusal::input(message, "name another host with --ip"));
        }
        if let Some(ip) = ip {
            self.check_address(ip, &name)?;
        }
        if is_same && alive {
            return Err(Refusal::input(
                format!(
                    "{name} is healthy: both members exist during the replacement, so the new one needs its own name"
                ),
                format!(
                    "omit --new-name, or choose another name; to only restart {name}, run `etcdrun member restart {name}`"
                ),
            ));
        }
        let has_pool = self.cluster.sections.contains_key("address_pool");
        let needs_address = !is_same && !is_described && ip.is_none() && (alive || old.is_none() || !is_guest);
        let from_pool = needs_address && has_pool && is_guest;
        if needs_address && !from_pool {
            let help = match is_guest {
                true => "pass --ip, or give the cluster an `address_pool`",
                false => "name its host with --ip",
            };
            return Err(Refusal::input(format!("the new member {name} needs its own address"), help));
        }
        let (to, ip, interfaces) = (to.clone(), ip.clone(), like.interfaces);
        Ok(Some(Coming { new: NewMember { name, to, ip, is_guest, from_pool, interfaces }, is_described }))
    }

    fn check_move(&self, old: &Facts) -> Result<(), Refusal> {
        let name = &old.name;
        let to = self.request.to.as_deref().unwrap_or_default();
        if !old.is_guest {
            return Err(Refusal::input(format!("{name} is not a guest on a hypervisor"), ""));
        }
        if old.hypervisor.as_deref() == Some(to) {
            return Err(Refusal::input(format!("{name} is already on {to}"), ""));
        }
        match self.situation.condition(name) {
            Condition::Alive => Ok(()),
            _ => Err(Refusal::gate(
                format!("{name} is unhealthy, and only a healthy member can be moved"),
                format!("to rebuild it there, run `etcdrun member replace {name} --to {to}`"),
            )),
        }
    }

    /// Whether the inventory has the new member already; an error if the name is taken by another host or group.
    fn is_described(&self, name: &str) -> Result<bool, Refusal> {
        let inventory = self.ground.inventory;
        let taken =
            |what: String| Refusal::input(format!("the name `{name}` is taken: it is {what}"), "choose another");
        match inventory.host(name).map(|host| &host.kind) {
            Some(HostKind::Member { cluster }) if *cluster == self.cluster.name => {
                match self.situation.condition(name) {
                    Condition::Gone => Ok(true),
                    _ if self.request.verb == Verb::Replace || self.request.verb == Verb::Move => {
                        Err(taken(format!("a member of `{cluster}`")))
                    }
                    _ => Err(taken(format!("already a member of `{cluster}`"))),
                }
            }
            Some(HostKind::Member { cluster }) => Err(taken(format!("a member of `{cluster}`"))),
            Some(HostKind::Hypervisor) => Err(taken("a hypervisor".into())),
            Some(HostKind::Plain) => Err(taken("a host".into())),
            None if inventory.group(name).is_some() => Err(taken("a group".into())),
            None => Ok(false),
        }
    }

    fn check_address(&self, ip: &str, name: &str) -> Result<(), Refusal> {
        let address = ip.split_once('/').map_or(ip, |(address, _)| address);
        if address.parse::<IpAddr>().is_err() {
            return Err(Refusal::input(format!("`{ip}` is not an IP address"), "write it like 10.0.0.24"));
        }
        let taken =
            self.ground.inventory.hosts().find(|host| {
                host.name.as_str() != name && (host.address() == address || Facts::of(host).ip == address)
            });
        match taken {
            Some(host) => Err(Refusal::input(format!("{address} is the address of {}", host.name), "choose another")),
            None => Ok(()),
        }
    }

    /// What the inventory says during the change, and afterwards.
    fn texts(
        &self,
        old: Option<&Facts>,
        coming: Option<&Coming>,
        alive: bool,
        notes: &mut Vec<String>,
    ) -> Result<Texts, F::Error> {
        let cluster = self.cluster.name.as_str();
        let members = facts::members(self.ground.inventory, cluster);
        let like = old.or(members.last()).map(|facts| facts.name.clone()).unwrap_or_default();
        let (host, _) = facts::member(self.ground.inventory, &like)?;
        let InventoryFile { path, text, is_generated } = self.files.of(host);
        let texts = Texts::unchanged(path, text);
        let is_same = old.zip(coming).is_some_and(|(old, coming)| old.name == coming.new.name);
        let texts = match coming {
            None => texts,
            Some(coming) if coming.is_described => texts,
            Some(coming) if is_same && coming.new.to.is_none() && coming.new.ip.is_none() => texts,
            Some(coming) if is_same => texts.moved(cluster, &coming.new)?,
            Some(coming) => texts.added(cluster, &like, &coming.new)?,
        };
        let goes = match (self.request.verb, old) {
            (Verb::Remove, Some(old)) => old,
            (Verb::Replace | Verb::Move, Some(old)) if !is_same => old,
            _ => return Ok(texts),
        };
        if is_generated {
            notes.push(format!(
                "{} is generated, so etcdrun does not edit it: remove {} from it",
                texts.path.display(),
                goes.name
            ));
            return Ok(texts);
        }
        let texts = texts.removed(cluster, &goes.name)?;
        // One that is powered off may leave its address to the new one, and then they cannot both be there.
        Ok(if !alive && goes.is_guest && coming.is_some() { texts.at_once() } else { texts })
    }

    /// Members whose hypervisor or address follows from their order keep what they have, also while both members exist.
    fn pinned(&self, mut texts: Texts, coming: Option<&Coming>) -> Result<Texts, F::Error> {
        let cluster = self.cluster.name.as_str();
        let place = |facts: &Facts| (facts.ip.clone(), facts.hypervisor.clone());
        let before = facts::members(self.ground.inventory, cluster);
        // What one of them is given back, another may have had.
        for _ in 0..before.len() {
            let [during, after] = self.both(&texts)?;
            let moves = |was: &&Facts| {
                let now = |list: &[Facts]| list.iter().find(|now| now.name == was.name).map(place);
                let is_new = coming.is_some_and(|coming| coming.new.name == was.name && !coming.is_described);
                let stays = now(&after).filter(|_| was.is_guest && !is_new);
                stays.is_some_and(|there| there != place(was) || now(&during).is_some_and(|there| there != place(was)))
            };
            let pins: Vec<_> = before.iter().filter(moves).map(pin_of).collect();
            if pins.is_empty() {
                break;
            }
            texts = texts.pinned(cluster, &pins)?;
        }
        let Some(coming) = coming.filter(|coming| !coming.is_described) else { return Ok(texts) };
        let [during, after] = self.both(&texts)?;
        let named = |list: &[Facts]| list.iter().find(|member| member.name == coming.new.name).cloned();
        match (named(&during), named(&after)) {
            (Some(during), Some(after)) if during.is_guest && place(&during) != place(&after) => {
                Ok(texts.pinned(cluster, &[pin_of(&during)])?)
            }
            _ => Ok(texts),
        }
    }

    /// The members as they are while both exist, and afterwards.
    fn both(&self, texts: &Texts) -> Result<[Vec<Facts>; 2], F::Error> {
        let members = |text: &str| -> Result<Vec<Facts>, F::Error> {
            Ok(facts::members(&self.files.load(&texts.path, text)?, self.cluster.name.as_str()))
        };
        Ok([members(&texts.during)?, members(&texts.after)?])
    }

    fn change(
        &self,
        old: Option<&Facts>,
        new: Option<&Facts>,
        alive: bool,
        texts: &Texts,
        after: &Inventory,
        notes: &mut Vec<String>,
    ) -> Result<Change, F::Error> {
        let Request { verb, snapshot, allow_outage, .. } = self.request;
        let cluster = self.cluster.name.as_str();
        let via = self.situation.via(old.map(|old| old.name.as_str()));
        let via = via
            .or_else(|| self.situation.via(None))
            .ok_or_else(|| Refusal::gate(format!("no member of `{cluster}` is healthy"), "run `etcdrun status`"))?;
        let members = facts::members(self.ground.inventory, cluster);
        let (_, names) = self.situation.voters();
        let well: Vec<Listing> =
            members.iter().filter(|member| names.contains(&member.name.as_str())).map(Facts::listing).collect();
        let is_same = old.zip(new).is_some_and(|(old, new)| old.name == new.name);
        let ends = self.ends(old, new, alive, is_same, notes)?;
        let mut before = well.clone();
        if let Some(old) = old.filter(|_| !alive) {
            before.push(old.listing());
        }
        let mut during = well.clone();
        if let Some(new) = new.filter(|new| !well.iter().any(|member| member.name == new.name)) {
            during.push(new.listing());
        }
        let voters = self.situation.observation.voters();
        let mut others = voters.filter(|voter| old.is_none_or(|old| old.name != voter.name));
        let whole = others.all(|voter| names.contains(&voter.name.as_str()));
        let url = new.map(|new| self.peer_url(&new.ip)).unwrap_or_default();
        let name = |facts: Option<&Facts>| facts.map(|facts| facts.name.clone()).unwrap_or_default();
        let listed = old.is_some_and(|old| self.situation.condition(&old.name) != Condition::Gone);
        Ok(Change {
            cluster: cluster.to_owned(),
            old: name(old),
            new: if *verb == Verb::Restart { name(old) } else { name(new) },
            alive,
            corrupt: old.is_some_and(|old| self.situation.is_corrupt(&old.name)),
            first: match (verb, alive) {
                (Verb::Remove, true) => "shrink",
                (Verb::Remove, false) => "remove",
                (_, false) if listed => "remove",
                _ => "add",
            },
            version: self.version(via, new.is_some())?,
            via: via.to_owned(),
            old_host: ends.old_host,
            old_hypervisor: ends.old_hypervisor,
            new_machine: new.is_some_and(|new| !new.is_guest),
            new_hypervisor: new
                .is_some_and(|new| new.is_guest && old.is_none_or(|old| old.hypervisor != new.hypervisor)),
            fence: ends.fence,
            waived: ends.waived,
            leftover: new.is_some_and(|new| self.situation.has_learner(&new.name, &url)),
            voters: self.situation.observation.voters().count(),
            whole,
            snapshot: *snapshot && *verb != Verb::Restart,
            allow_outage: *allow_outage,
            before,
            well,
            during,
            after: self.after(after, old.filter(|_| !is_same)),
            inventory: Edited::of(texts, cluster),
        })
    }

    /// Who is left: a generated inventory still has the one that goes.
    fn after(&self, after: &Inventory, old: Option<&Facts>) -> Vec<Listing> {
        let goes = old.filter(|_| self.request.verb != Verb::Restart);
        let members = facts::members(after, self.cluster.name.as_str()).into_iter();
        members.filter(|member| goes.is_none_or(|old| old.name != member.name)).map(|member| member.listing()).collect()
    }

    /// What is stopped of the old member, and where.
    fn ends(
        &self,
        old: Option<&Facts>,
        new: Option<&Facts>,
        alive: bool,
        is_same: bool,
        notes: &mut Vec<String>,
    ) -> Result<Ends, Refusal> {
        let mut ends = Ends::default();
        let Some(old) = old.filter(|_| self.request.verb != Verb::Restart) else { return Ok(ends) };
        let unreachable = self.situation.unreachable(&old.name);
        if !old.is_guest {
            let is_elsewhere = new.is_some_and(|new| new.ip != old.ip);
            if is_same && is_elsewhere {
                notes.push(format!(
                    "nothing is stopped at {}, the host of {}: if it comes back, the other members reject its etcd",
                    old.ip, old.name
                ));
            }
            match unreachable {
                Some(why) if is_same && !is_elsewhere => {
                    return Err(Refusal::gate(
                        format!("the host of {} does not answer ({why})", old.name),
                        "make it reachable, with or without data, or name another host with --ip",
                    ));
                }
                Some(_) if !is_same => notes.push(format!(
                    "the host of {0} does not answer, and nothing is stopped there: if it comes back, the other members reject its etcd",
                    old.name
                )),
                _ => ends.old_host.clone_from(&old.name),
            }
            return Ok(ends);
        }
        let hypervisor = old.hypervisor.clone().unwrap_or_default();
        match self.ground.silent_hypervisors.get(&hypervisor) {
            None => {
                ends.fence = true;
                ends.old_host = if alive { old.name.clone() } else { String::new() };
                ends.old_hypervisor = hypervisor;
            }
            Some(why) if !self.request.fence_unreachable => {
                return Err(Refusal::gate(
                    format!(
                        "{hypervisor} is unreachable ({why}), so etcdrun cannot confirm that the guest {} is off",
                        old.name
                    ),
                    "if it returns, it has the same address and its old data, next to its replacement; power it off, then repeat with --fence-unreachable",
                ));
            }
            Some(_) if new.is_some_and(|new| new.hypervisor.as_deref() == Some(&hypervisor)) => {
                return Err(Refusal::gate(
                    format!("{hypervisor} is unreachable, so no guest can be created there"),
                    "name another hypervisor with --to",
                ));
            }
            Some(_) => {
                ends.waived = true;
                notes
                    .push(format!("the guest {} on {hypervisor} is NOT powered off: with --fence-unreachable you confirm that it is off", old.name));
            }
        }
        Ok(ends)
    }

    fn peer_url(&self, ip: &str) -> String {
        let etcd: EtcdSection =
            self.cluster.sections.get("etcd").and_then(|node| from_node(node).ok()).unwrap_or_default();
        let host = if ip.contains(':') { format!("[{ip}]") } else { ip.to_owned() };
        format!("https://{host}:{}", etcd.peer_port.unwrap_or(2380))
    }

    /// A new member runs what the others run, whatever the inventory is about to ask of all of them.
    fn version(&self, via: &str, comes: bool) -> Result<String, Refusal> {
        let view = self.situation.observation.view(via).filter(|_| comes);
        let Some(version) = view.map(|view| view.version.to_string()) else { return Ok(String::new()) };
        match self.ground.inventory.etcd_releases.contains_key(version.as_str()) {
            true => Ok(version),
            false => Err(Refusal::input(
                format!("the members run etcd {version}, which `etcd_releases` does not have"),
                "add it there with its sha256: a new member runs the version of the others",
            )),
        }
    }
}

/// What is stopped of the old member, and where.
#[derive(Default)]
struct Ends {
    old_host: String,
    old_hypervisor: String,
    fence: bool,
    waived: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        etcd::{
            load_inventory,
            observe::{Listed, Observation, Seen, View},
        },
        source::{Diagnostics, Sources, disk},
    };

    const HOSTS: &str = "\
etcd_releases: { 3.6.5: { sha256: { amd64: aa, arm64: bb } } }
clusters:
  prod:
    members:
      etcd-1: { address: 10.0.0.1 }
      etcd-2: { address: 10.0.0.2 }
      etcd-3: { address: 10.0.0.3 }
";

    /// An inventory of one file.
    struct Text(&'static str);

    impl Files for Text {
        type Error = Refusal;

        fn of(&self, _: &Host) -> InventoryFile {
            InventoryFile { path: "inventory.yaml".into(), text: self.0.to_owned(), is_generated: false }
        }

        fn load(&self, path: &Path, text: &str) -> Result<Inventory, Refusal> {
            let (mut sources, mut diagnostics) = (Sources::default(), Diagnostics::default());
            let files = BTreeMap::from([(path.to_owned(), text.as_bytes().to_vec())]);
            let paths = [path.to_owned()];
            let inventory = disk::pretend(files, || load_inventory(&paths, &mut sources, &mut diagnostics));
            Ok(inventory)
        }
    }

    /// Three voters, of which those of these numbers do not answer.
    fn situation(failed: &[u64]) -> Situation {
        let listed = |id: u64| Listed {
            id,
            name: format!("etcd-{id}"),
            peer_urls: vec![format!("https://10.0.0.{id}:2380")],
            is_learner: false,
        };
        let list: Vec<Listed> = (1..=3).map(listed).collect();
        let leader = (1..=3).find(|id| !failed.contains(id));
        let view = |id: u64| View {
            id,
            cluster_id: 7,
            version: "3.6.5".parse().unwrap(),
            cluster_version: None,
            storage_version: None,
            downgrade: None,
            leader,
            term: 1,
            counted: None,
            raft_index: 1,
            applied_index: 1,
            revision: 1,
            db_size: 0,
            db_in_use: 0,
            quota: None,
            is_learner: false,
            alarms: Vec::new(),
            complaints: Vec::new(),
            list: Ok(list.clone()),
            read: Ok(()),
            lacks_majority: false,
        };
        let seen = |id: u64| Seen {
            name: format!("etcd-{id}"),
            answer: if failed.contains(&id) { Err("no answer".to_owned()) } else { Ok(view(id)) },
        };
        let observation = Observation { members: (1..=3).map(seen).collect(), auth: None };
        Situation { cluster: "prod".to_owned(), observation, unreachable: Vec::new() }
    }

    fn request(verb: Verb, old: Option<&str>, new_name: Option<&str>, ip: Option<&str>) -> Request {
        let text = |text: Option<&str>| text.map(str::to_owned);
        Request {
            verb,
            old: text(old),
            new_name: text(new_name),
            to: None,
            ip: text(ip),
            fence_unreachable: false,
            snapshot: true,
            allow_outage: false,
        }
    }

    fn prepared(request: &Request, situation: &Situation) -> Result<Prepared, Refusal> {
        let files = Text(HOSTS);
        let inventory = files.load(Path::new("inventory.yaml"), HOSTS).unwrap();
        let silent_hypervisors = BTreeMap::new();
        let ground = Ground {
            inventory: &inventory,
            silent_hypervisors: &silent_hypervisors,
            is_drained: &|name| name == "hv1",
        };
        prepare(&ground, request, situation, &files)
    }

    fn refused(request: &Request, situation: &Situation) -> String {
        prepared(request, situation).err().unwrap().to_string()
    }

    fn names(list: &[Listing]) -> Vec<&str> {
        list.iter().map(|member| member.name.as_str()).collect()
    }

    #[test]
    fn a_failed_member_is_removed_first_and_rebuilt_under_its_name() {
        let change = prepared(&request(Verb::Replace, Some("etcd-2"), None, None), &situation(&[2])).unwrap().change;
        assert_eq!((change.old.as_str(), change.new.as_str()), ("etcd-2", "etcd-2"));
        assert_eq!((change.first, change.alive, change.whole), ("remove", false, true));
        assert_eq!((change.via.as_str(), change.version.as_str()), ("etcd-3", "3.6.5"), "a follower before the leader");
        assert_eq!(names(&change.during), ["etcd-1", "etcd-3", "etcd-2"]);
        assert!(change.inventory.edits.is_empty(), "the inventory stays as it is");
    }

    #[test]
    fn a_voter_that_the_inventory_does_not_have_is_no_lost_quorum() {
        let mut seen = situation(&[2]);
        let stranger = Listed {
            id: 4,
            name: "etcd-4".to_owned(),
            peer_urls: vec!["https://10.0.0.4:2380".to_owned()],
            is_learner: false,
        };
        for member in &mut seen.observation.members {
            if let Ok(view) = &mut member.answer {
                view.list.as_mut().unwrap().push(stranger.clone());
            }
        }
        let said = refused(&request(Verb::Replace, Some("etcd-2"), None, None), &seen);
        assert!(
            said.contains("etcd-4 at https://10.0.0.4:2380 is a voter of `prod`, and not in the inventory"),
            "{said}"
        );
        // If none answers, it is one.
        let said = refused(&request(Verb::Replace, Some("etcd-2"), None, None), &situation(&[1, 2, 3]));
        assert!(said.contains("no member of `prod` lists its members"), "{said}");
    }

    #[test]
    fn hosts_that_are_out_of_sight_are_no_lost_quorum() {
        let replace = request(Verb::Replace, Some("etcd-2"), Some("etcd-4"), Some("10.0.0.4"));
        let unseen = |failed: &[u64], unreachable: &[&str]| {
            let mut seen = situation(failed);
            seen.unreachable = unreachable.iter().map(|name| ((*name).to_owned(), "timed out".to_owned())).collect();
            refused(&replace, &seen)
        };
        for failed in [&[2, 3][..], &[1, 2, 3]] {
            let said = unseen(failed, &["etcd-2", "etcd-3"]);
            assert!(said.contains("cannot reach etcd-2 (timed out), etcd-3 (timed out), so it is unknown"), "{said}");
        }
        let said = unseen(&[1, 2, 3], &["etcd-3"]);
        assert!(said.contains("no member of `prod` lists its members"), "one of three more is no majority: {said}");
        let said = unseen(&[3], &["etcd-3"]);
        assert!(said.contains("cannot reach etcd-3 (timed out), so it is unknown whether it has failed"), "{said}");
    }

    #[test]
    fn a_healthy_member_goes_last_and_the_new_one_has_its_own_name_and_address() {
        let whole = situation(&[]);
        let replace = |name, ip| request(Verb::Replace, Some("etcd-2"), name, ip);
        let done = prepared(&replace(None, Some("10.0.0.4")), &whole).unwrap();
        assert_eq!(
            (done.change.first, done.change.new.as_str(), done.new_place.as_str()),
            ("add", "etcd-4", "10.0.0.4")
        );
        assert_eq!(names(&done.change.after), ["etcd-1", "etcd-4", "etcd-3"]);
        assert!(done.during.contains("etcd-2") && done.during.contains("etcd-4"), "{}", done.during);
        assert!(refused(&replace(None, None), &whole).contains("needs its own address"));
        assert!(refused(&replace(Some("etcd-2"), None), &whole).contains("both members exist"));
        assert!(refused(&replace(Some("etcd-3"), Some("10.0.0.4")), &whole).contains("is taken"));
        assert!(refused(&replace(None, Some("10.0.0.3")), &whole).contains("is the address of etcd-3"));
        assert!(refused(&replace(None, Some("etcd.example")), &whole).contains("is not an IP address"));
    }

    #[test]
    fn a_healthy_member_is_not_replaced_while_another_is_missing() {
        let mut seen = situation(&[]);
        for member in &mut seen.observation.members {
            if let Ok(view) = &mut member.answer {
                view.list.as_mut().unwrap().retain(|listed| listed.name != "etcd-3");
            }
        }
        let replace = request(Verb::Replace, Some("etcd-2"), Some("etcd-4"), Some("10.0.0.4"));
        let said = refused(&replace, &seen);
        assert!(said.contains("etcd-3 comes first"), "{said}");
    }

    #[test]
    fn a_member_that_leaves_shrinks_the_cluster_and_its_data_is_stopped() {
        let change = prepared(&request(Verb::Remove, Some("etcd-3"), None, None), &situation(&[])).unwrap().change;
        assert_eq!((change.first, change.old_host.as_str(), change.new.as_str()), ("shrink", "etcd-3", ""));
        assert_eq!(names(&change.after), ["etcd-1", "etcd-2"]);
        let change = prepared(&request(Verb::Restart, Some("etcd-3"), None, None), &situation(&[])).unwrap().change;
        assert_eq!((change.new.as_str(), change.old_host.as_str(), change.snapshot), ("etcd-3", "", false));
    }

    #[test]
    fn a_host_without_an_answer_is_not_rebuilt_in_place() {
        let mut lost = situation(&[2]);
        lost.unreachable.push(("etcd-2".to_owned(), "timed out".to_owned()));
        let replace = |name, ip| request(Verb::Replace, Some("etcd-2"), name, ip);
        assert!(refused(&replace(None, None), &lost).contains("the host of etcd-2 does not answer (timed out)"));
        let elsewhere = prepared(&replace(Some("etcd-4"), Some("10.0.0.4")), &lost).unwrap();
        assert_eq!(elsewhere.change.old_host, "", "nothing is stopped there");
        assert!(elsewhere.notes.join("\n").contains("the other members reject its etcd"), "{:?}", elsewhere.notes);
    }
}
