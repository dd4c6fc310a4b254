//! What a cluster was found to be like, as far as its members are concerned.

use etcdrun_base::mutant::{is_off, repair};

use super::{Refusal, Request, Verb};
use crate::etcd::observe::{Listed, Observation};

/// A cluster that was looked at.
#[derive(Clone, Debug)]
pub struct Situation {
    pub cluster: String,
    pub observation: Observation,
    /// Members whose hosts cannot be reached, and why.
    pub unreachable: Vec<(String, String)>,
}

/// How the member that goes is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// A voter that is well.
    Alive,
    /// A voter that is not, and why.
    Dead(String),
    /// Not a member, or a learner at most: what is left of it is in nobody's way.
    Gone,
}

impl Situation {
    /// Voters, and the names of those that are well.
    pub fn voters(&self) -> (usize, Vec<&str>) {
        let is_voter = |id: u64| self.observation.voters().any(|voter| voter.id == id);
        let well = self.observation.members.iter().filter(|seen| seen.is_well()).filter_map(|seen| {
            let view = seen.answer.as_ref().ok()?;
            is_voter(view.id).then_some(seen.name.as_str())
        });
        (self.observation.voters().count(), well.collect())
    }

    pub fn listed(&self, name: &str) -> Option<&Listed> {
        self.observation.list().iter().find(|listed| listed.name == name)
    }

    pub fn condition(&self, name: &str) -> Condition {
        match self.listed(name) {
            Some(listed) if !listed.is_learner => {}
            _ => return Condition::Gone,
        }
        if self.voters().1.contains(&name) {
            return Condition::Alive;
        }
        let seen = self.observation.members.iter().find(|seen| seen.name == name);
        Condition::Dead(seen.and_then(|seen| seen.trouble()).unwrap_or_else(|| "it does not answer".into()))
    }

    /// Whether etcd has found its data damaged.
    pub fn is_corrupt(&self, name: &str) -> bool {
        self.listed(name).is_some_and(|listed| self.observation.is_corrupt(listed.id))
    }

    pub fn unreachable(&self, name: &str) -> Option<&str> {
        self.unreachable.iter().find(|(host, _)| host == name).map(|(_, why)| why.as_str())
    }

    /// A member that is well and does not go, through which the cluster is spoken to; followers before the leader.
    pub fn via(&self, not: Option<&str>) -> Option<&str> {
        let leader = self.observation.leader().map(|(name, _)| name);
        let (_, well) = self.voters();
        let mut others = well.into_iter().filter(|name| Some(*name) != not);
        let first = others.next()?;
        if Some(first) != leader { Some(first) } else { others.next().or(Some(first)) }
    }

    /// Whether a learner is there for this name, also one that has never started and has no name yet.
    pub fn has_learner(&self, name: &str, peer_url: &str) -> bool {
        let meant = |listed: &&Listed| {
            listed.name == name || (listed.name.is_empty() && listed.peer_urls.iter().any(|url| url == peer_url))
        };
        self.observation.list().iter().filter(meant).any(|listed| listed.is_learner)
    }

    /// Whether what is asked for leaves the cluster answering; the playbook asks again, by all the rules.
    pub fn check(&self, request: &Request) -> Result<(), Refusal> {
        let (voters, well) = self.voters();
        let cluster = &self.cluster;
        if self.observation.list().is_empty() {
            self.check_in_sight(0, self.observation.members.len())?;
            return Err(Refusal::gate(
                format!("no member of `{cluster}` lists its members"),
                format!(
                    "`etcdrun recover {cluster} --check` shows what data its members have; if no data survives, run `etcdrun restore {cluster}`"
                ),
            ));
        }
        let majority = voters / 2 + 1;
        if well.len() < majority {
            self.check_strangers(well.len(), voters)?;
            self.check_in_sight(well.len(), voters)?;
            return Err(Refusal::gate(
                format!(
                    "only {} of the {voters} voters of `{cluster}` are healthy, and quorum needs {majority}: it has lost quorum",
                    well.len()
                ),
                format!(
                    "`etcdrun recover {cluster} --check` shows what data survives; `etcdrun recover {cluster}` starts the members that can start, or creates a new cluster from the surviving data"
                ),
            ));
        }
        let old = request.old.as_deref();
        self.check_others(request.verb, old)?;
        self.check_missing(request)?;
        match (request.verb, old.map(|old| (old, self.condition(old)))) {
            (Verb::Remove, Some((old, Condition::Alive))) if well.len() - 1 < (voters - 1) / 2 + 1 => {
                Err(Refusal::gate(
                    format!(
                        "without {old} only {} of {} voters would be healthy, and quorum needs {}: `{cluster}` would lose quorum",
                        well.len() - 1,
                        voters - 1,
                        (voters - 1) / 2 + 1
                    ),
                    format!(
                        "repair the unhealthy members first: `etcdrun status {cluster}` names them, and what to run"
                    ),
                ))
            }
            (Verb::Remove, Some(_)) if voters == 1 => Err(Refusal::gate(
                format!("{} is the only voter of `{cluster}`: without it there is no cluster", old.unwrap_or_default()),
                "",
            )),
            _ => Ok(()),
        }
    }

    /// Where a member answers a linearizable read, there is a quorum, with voters that the inventory does not have.
    fn check_strangers(&self, well: usize, voters: usize) -> Result<(), Refusal> {
        let is_known = |name: &str| self.observation.members.iter().any(|seen| seen.name == name);
        let stranger = self.observation.voters().find(|voter| !is_known(&voter.name));
        match stranger.filter(|_| well > 0 && !is_off(repair::STRANGERS)) {
            None => Ok(()),
            Some(stranger) => Err(Refusal::gate(
                format!(
                    "{} at {} is a voter of `{}`, and not in the inventory: only {well} of its {voters} voters are known to be healthy",
                    stranger.name,
                    stranger.peer_urls.join(", "),
                    self.cluster
                ),
                format!(
                    "add {} to the members of the cluster in the inventory, and run the command again",
                    stranger.name
                ),
            )),
        }
    }

    /// Members on hosts that cannot be reached may be healthy: who lost the network here must not be sent to `recover`.
    fn check_in_sight(&self, well: usize, voters: usize) -> Result<(), Refusal> {
        if self.unreachable.is_empty() || is_off(repair::IN_SIGHT) || well + self.unreachable.len() < voters / 2 + 1 {
            return Ok(());
        }
        let silent: Vec<String> = self.unreachable.iter().map(|(name, why)| format!("{name} ({why})")).collect();
        let cluster = &self.cluster;
        Err(Refusal::gate(
            format!("cannot reach {}, so it is unknown whether `{cluster}` has quorum", silent.join(", ")),
            format!(
                "check the network between this machine and these hosts, and run the command again; if the hosts are lost, `etcdrun recover {cluster} --check` shows what data survives"
            ),
        ))
    }

    /// A healthy member is replaced only while all others are there: what comes may be meant for the place of one that is missing.
    fn check_missing(&self, request: &Request) -> Result<(), Refusal> {
        let is_alive = |old: &&str| self.condition(old) == Condition::Alive && !is_off(repair::MISSING_FIRST);
        let Some(old) = request.old.as_deref().filter(is_alive) else {
            return Ok(());
        };
        let comes = |name: &str| request.new_name.as_deref() == Some(name);
        let is_voter = |name: &str| self.observation.voters().any(|voter| voter.name == name);
        let missing =
            self.observation.members.iter().map(|seen| seen.name.as_str()).find(|name| !is_voter(name) && !comes(name));
        match missing.filter(|_| matches!(request.verb, Verb::Replace | Verb::Move)) {
            None => Ok(()),
            Some(missing) => Err(Refusal::gate(
                format!("{missing} is not a voter of `{}`, and {old} is healthy: {missing} comes first", self.cluster),
                format!("run `etcdrun member replace {missing}`, or remove {missing} from the inventory"),
            )),
        }
    }

    /// Nothing is added while another voter is dead: each dead one goes first.
    fn check_others(&self, verb: Verb, old: Option<&str>) -> Result<(), Refusal> {
        if matches!(verb, Verb::Remove | Verb::Restart) {
            return Ok(());
        }
        let (cluster, (_, well)) = (&self.cluster, self.voters());
        let dead = self
            .observation
            .voters()
            .find(|voter| !well.contains(&voter.name.as_str()) && Some(voter.name.as_str()) != old);
        match dead {
            None => Ok(()),
            Some(dead) if dead.name.is_empty() => Err(Refusal::gate(
                format!("the voter {:x} at {} was added and never started", dead.id, dead.peer_urls.join(", ")),
                format!(
                    "continue with `etcdrun resume`, or remove it: `etcdrun etcdctl {cluster} -- member remove {:x}`",
                    dead.id
                ),
            )),
            Some(dead) if self.unreachable(&dead.name).is_some() && !is_off(repair::IN_SIGHT) => Err(Refusal::gate(
                format!(
                    "cannot reach {} ({}), so it is unknown whether it has failed",
                    dead.name,
                    self.unreachable(&dead.name).unwrap_or_default()
                ),
                format!(
                    "check the network between this machine and {0}, and run the command again; if {0} is lost, `etcdrun member replace {0}`",
                    dead.name
                ),
            )),
            Some(dead) => Err(Refusal::gate(
                format!("{} has failed: another member would only raise the quorum", dead.name),
                format!(
                    "remove it first (`etcdrun member remove {0}`), and add it again afterwards (`etcdrun member add {0}`)",
                    dead.name
                ),
            )),
        }
    }
}
