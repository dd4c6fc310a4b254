//! What an operator sees of the cluster, as the types that the rules are asked with.

use etcdrun_base::model::Version;
use etcdrun_etcd::etcd::{
    agree::{Agreement, KeysHash},
    observe::{Listed, Observation, Seen, View},
    rules::{HostSeen, ReleaseSeen, Room},
};

use crate::{
    cluster::{Cluster, Data, Power, Release},
    list::{Entry, List, Mask, SLOTS, Slot, has, name, slots},
};

pub const OLD: Version = Version { major: 3, minor: 5, patch: 34 };
pub const NEW: Version = Version { major: 3, minor: 6, patch: 15 };
/// The leader's index, and that of a member that is behind.
const INDEX: u64 = 1000;
const EARLIER: u64 = 500;

pub fn version(release: Release) -> Version {
    match release {
        Release::Old => OLD,
        Release::New => NEW,
    }
}

/// A look at some members, by an operator who does not reach all of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Look {
    sights: [Option<Sight>; SLOTS],
    leader: Option<u64>,
    is_raised: bool,
    is_strict: bool,
    /// A member that the asker knows by its address, also before etcd knows its name.
    named: Option<Slot>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Sight {
    answer: Option<Answer>,
    is_reached: bool,
    is_stopped: bool,
    serves_others: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Answer {
    id: u64,
    release: Release,
    is_behind: bool,
    is_learner: bool,
    list: List,
}

fn id(slot: Slot, generation: u8) -> u64 {
    (slot as u64 + 1) << 8 | u64::from(generation)
}

pub fn peer_url(slot: Slot) -> String {
    format!("https://10.0.0.{}:2380", slot + 1)
}

impl Look {
    /// Asks those of `asked`; none of `cut` is reached. Each is asked through its own host.
    pub fn at(cluster: &Cluster, asked: Mask, cut: Mask, is_strict: bool) -> Self {
        let reached = |slot: Slot| !has(cut, slot) && cluster.members[slot].power != Power::Off;
        let has_helper = slots(asked).any(reached);
        let answer = |slot: Slot| {
            let member = &cluster.members[slot];
            let entry = cluster.list.of(slot)?;
            (cluster.runs(slot) && reached(slot)).then_some(Answer {
                id: id(slot, member.generation),
                release: member.release,
                is_behind: member.data == Data::Behind,
                is_learner: entry.is_learner,
                list: member.knows,
            })
        };
        let sight = |slot: Slot| Sight {
            answer: answer(slot),
            is_reached: reached(slot),
            is_stopped: reached(slot) && cluster.members[slot].power == Power::Stopped,
            serves_others: has_helper.then(|| cluster.runs(slot)),
        };
        let leader = cluster.leader.map(|leader| id(leader, cluster.members[leader].generation));
        Self {
            sights: std::array::from_fn(|slot| has(asked, slot).then(|| sight(slot))),
            leader,
            is_raised: cluster.is_raised,
            is_strict,
            named: None,
        }
    }

    /// With the name of one that etcd may know by its address alone, as `etcd_member` has it.
    pub fn named(self, slot: Slot) -> Self {
        Self { named: Some(slot), ..self }
    }

    /// Only what is known of the list.
    pub fn of_list(list: &List) -> Self {
        let answer = Answer { id: id(0, 0), release: Release::Old, is_behind: false, is_learner: false, list: *list };
        let sight = Sight { answer: Some(answer), is_reached: true, is_stopped: false, serves_others: Some(true) };
        let sights = std::array::from_fn(|slot| (slot == 0).then_some(sight));
        Self { sights, leader: Some(id(0, 0)), is_raised: false, is_strict: true, named: None }
    }

    fn asked(&self) -> impl Iterator<Item = (Slot, &Sight)> {
        self.sights.iter().enumerate().filter_map(|(slot, sight)| Some((slot, sight.as_ref()?)))
    }

    pub fn names(&self) -> Vec<String> {
        self.asked().map(|(slot, _)| name(slot)).collect()
    }

    pub fn peers(&self) -> Vec<(String, String)> {
        self.asked().map(|(slot, _)| (name(slot), peer_url(slot))).collect()
    }

    pub fn observation(&self) -> Observation {
        let seen = |(slot, sight): (Slot, &Sight)| Seen {
            name: name(slot),
            answer: sight.answer.as_ref().map(|answer| self.view(answer)).ok_or_else(|| "no answer".to_owned()),
        };
        Observation { members: self.asked().map(seen).collect(), auth: Some(false) }
    }

    fn view(&self, answer: &Answer) -> View {
        let version = version(answer.release);
        let cluster_version = if self.is_raised { NEW } else { OLD }.series();
        let index = if answer.is_behind { EARLIER } else { INDEX };
        // A learner answers no reads, which is no fault of it; what is behind does not answer one in time.
        let reads = answer.is_learner || (self.leader.is_some() && !answer.is_behind);
        View {
            id: answer.id,
            cluster_id: 77,
            version,
            cluster_version: Some(cluster_version),
            storage_version: (version.series() >= (3, 6)).then_some(cluster_version),
            downgrade: None,
            leader: self.leader,
            term: 4,
            counted: None,
            raft_index: index,
            applied_index: index,
            revision: 900,
            db_size: 1 << 20,
            db_in_use: 1 << 19,
            quota: None,
            is_learner: answer.is_learner,
            alarms: Vec::new(),
            complaints: Vec::new(),
            list: match answer.is_learner {
                true => Err("a learner does not tell".to_owned()),
                false => Ok(self.listed(&answer.list)),
            },
            read: if reads { Ok(()) } else { Err("timed out".to_owned()) },
            lacks_majority: self.leader.is_none(),
        }
    }

    fn listed(&self, list: &List) -> Vec<Listed> {
        let knows_name = |slot: Slot, entry: &Entry| entry.has_started || self.named == Some(slot);
        let one = |slot: Slot| {
            let entry = list.of(slot)?;
            Some(Listed {
                id: id(slot, entry.generation),
                name: if knows_name(slot, &entry) { name(slot) } else { String::new() },
                peer_urls: vec![peer_url(slot)],
                is_learner: entry.is_learner,
            })
        };
        let mut listed: Vec<Listed> = (0..SLOTS).filter_map(one).collect();
        listed.sort();
        listed
    }

    pub fn hosts(&self) -> Vec<HostSeen> {
        self.asked().map(|(slot, sight)| self.host(slot, sight)).collect()
    }

    fn host(&self, slot: Slot, sight: &Sight) -> HostSeen {
        let seen = HostSeen { name: name(slot), ..HostSeen::default() };
        if !sight.is_reached {
            let unreachable = Some("timed out".to_owned());
            return HostSeen { unreachable, answers_others: sight.serves_others, ..seen };
        }
        let room = Room { path: "/var/lib/etcd".into(), free: 2 << 20, needed: 1 << 20, what: "a copy".into() };
        let sum = "ab".repeat(32);
        HostSeen {
            clock: Some((0, 10)),
            rooms: vec![room],
            release: Some(ReleaseSeen { path: "/opt/etcd".into(), sha256: Some(sum.clone()), wanted: sum }),
            strict_reconfig: (!sight.is_stopped).then_some(self.is_strict),
            is_stopped: sight.is_stopped,
            client_urls: vec![format!("https://10.0.0.{}:2379", slot + 1)],
            ..seen
        }
    }

    /// Hosts that SSH does not reach, with the reason.
    pub fn unreachable(&self) -> Vec<(String, String)> {
        let cut = self.asked().filter(|(_, sight)| !sight.is_reached);
        cut.map(|(slot, _)| (name(slot), "timed out".to_owned())).collect()
    }

    pub fn reaches(&self, slot: Slot) -> bool {
        self.sights[slot].is_some_and(|sight| sight.is_reached)
    }

    /// The data of all members that answer is the same.
    pub fn data(&self) -> Agreement {
        let hash = |answer: Option<Answer>| match answer {
            Some(_) => Ok(KeysHash { hash: 7, compact_revision: 0 }),
            None => Err("no answer".to_owned()),
        };
        let members = self.asked().map(|(slot, sight)| (name(slot), hash(sight.answer))).collect();
        Agreement { revision: 900, members }
    }
}
