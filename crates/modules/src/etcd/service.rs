//! `etcd_service`: a member that runs, with what it should have read.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::{Instant, sleep};

use super::{
    Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, ResultField, Running,
    checkpoint::add_one,
    cluster_args::{Cluster, ClusterArgs, WHOLE_CLUSTER, etcd_failed, fence, leader, led},
};
use crate::{
    model::{Disruption, Effects, Outcome, Resource, Value},
    remote::Payload,
};
use etcdrun_base::mutant::{is_off, repair};
use etcdrun_etcd::{
    etcd::UNIT,
    etcd::{
        ClusterRecord, EtcdError, MemberClient, Phase,
        lead::{hand_over, successors},
        observe::{Observation, observe, see},
        rules::{Situation, is_at, judge_restart},
    },
};

const BODY: &str = concat!(
    include_str!("../support/systemd.sh"),
    include_str!("../support/staged.sh"),
    include_str!("peers.sh"),
    include_str!("service.sh")
);
const HAND_OVER: Duration = Duration::from_secs(10);
/// How long the others may take to be healthy.
const SOON: Duration = Duration::from_secs(15);
const LOOK: Duration = Duration::from_secs(10);
/// How often an entry is added while a member starts.
const ENTRY_EVERY: Duration = Duration::from_secs(2);
/// How often leadership is transferred away before that is given up.
const TRANSFERS: usize = 3;

/// Starts etcd on a member, and restarts it if files have changed that it reads only at start.
///
/// Members restart one at a time, each only while the other voters that etcd lists have a majority without it; where they do not
/// yet, they have 15 seconds. The leader first transfers leadership, and then the others are checked once more. If the settings
/// have a new peer address, it is registered in etcd before the member starts with it. Then etcdrun waits until the member answers, and
/// has caught up.
///
/// Staged files (FILE.next) are put in place right before the start. etcd may fail with new files: so every
/// other member has to answer then, and a bad change affects only one member.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EtcdService {
    /// The member on the target.
    name: String,
    #[serde(default)]
    cluster: ClusterArgs,
    /// The etcd binary that should run; another running one is replaced.
    #[serde(default)]
    server: Option<String>,
    /// Files that etcd reads at start.
    #[serde(default)]
    reads: Vec<String>,
    /// The member's certificate, which etcd reads at every handshake. A staged one is put in place with its key.
    #[serde(default)]
    certificate: Option<String>,
    /// Accept that the cluster loses quorum during the restart (needed for one or two members).
    #[serde(default)]
    allow_outage: bool,
}

impl Module for EtcdService {
    const NAME: &'static str = "etcd_service";
    const CLUSTER: &'static [crate::task::ClusterKey] = WHOLE_CLUSTER;
    const EXAMPLE: &'static str = "\
- name: Start or restart etcd
  etcd_service:
    name: \"{{ inventory_hostname }}\"
    reads: [/etc/etcd/etcd.env, /etc/etcd/pki/server.key, /etc/etcd/pki/ca.crt]
";
    const RESULT: &'static [ResultField] = &[ResultField { name: "restarted", doc: "Whether it ran before." }];

    fn effects(&self) -> Effects {
        // What it reads may be about to change, and then nobody knows whether it restarts.
        Effects::converging().disrupting(Disruption::Maybe).careful().reading(self.reads.iter().map(Resource::path))
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        let cluster = self.cluster.known()?;
        Ok(Action::Engine(Box::new(Converge { cluster, module: self })))
    }
}

struct Converge {
    module: EtcdService,
    cluster: Cluster,
}

/// One member of a cluster at a time: the one that may restart, and one that did not come up with what is new.
#[derive(Default)]
struct Turn {
    restarts: tokio::sync::Mutex<()>,
    failed: Mutex<Option<String>>,
}

impl EngineAction for Converge {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            let looked = context.run(self.payload("look")).await?;
            let text = |name: &str| looked.data.get(name).and_then(Value::as_str);
            let next: Vec<&str> = text("next_peers").map(|urls| urls.split(',').collect()).unwrap_or_default();
            match (text("state"), text("newer")) {
                _ if looked.failed => Ok(looked),
                (Some("missing"), _) if context.check_mode() => {
                    Ok(Outcome { msg: "would be started".into(), ..Outcome::changed() })
                }
                (Some("active"), None) => Ok(Outcome::ok().with("restarted", false)),
                (Some("active"), Some(newer)) if context.check_mode() => {
                    Ok(Outcome { msg: format!("would restart: {newer} is newer"), ..Outcome::changed() })
                }
                (Some("active"), Some(newer)) => self.restart(context, newer, &next, text("peers")).await,
                _ => self.start(context, &next, &looked).await,
            }
        })
    }
}

impl Converge {
    fn payload(&self, action: &str) -> Payload {
        let payload = Payload::new(BODY)
            .value("unit", UNIT)
            .value("action", action)
            .maybe("certificate", self.module.certificate.as_deref())
            .value("server", self.module.server.as_deref().unwrap_or_default());
        self.module.reads.iter().fold(payload, Payload::arg)
    }

    /// One that does not run takes nobody down. But a cluster that exists must know where it is going to be.
    async fn start(&self, context: &ActionContext, next: &[&str], looked: &Outcome) -> Result<Outcome, ActionError> {
        let record = ClusterRecord::load(&context.state, &self.cluster.name);
        let forms = matches!(record, Ok(Some(ClusterRecord { phase: Phase::Forming, .. })));
        let asks_none = forms || context.check_mode();
        let clients = if asks_none { Vec::new() } else { self.cluster.clients(context).await? };
        if !asks_none {
            let now = observe(&clients, LOOK).await;
            // One that is alone needs no other, and the word of the operator is enough that it goes back to where it was.
            let has_run = looked.data.get("has_data").is_some_and(|data| *data == true);
            if has_run && clients.len() > 1 && !self.module.allow_outage {
                self.can_be_told(&now, next, looked.data.get("peers").and_then(Value::as_str))?;
            }
            let has_nothing = looked.data.get("has_data").is_some_and(|data| *data == false);
            if has_nothing {
                self.has_not_forgotten(&now)?;
            }
            self.tell_address(context, &clients, &now, next).await?;
        }
        let outcome = self.run_along(context, "start", &clients).await?;
        self.remember(context, outcome.failed);
        Ok(outcome.with("restarted", false))
    }

    /// A voter that has lost its data does not know any more what it has agreed to. One that never started has no name in the list.
    fn has_not_forgotten(&self, now: &Observation) -> Result<(), ActionError> {
        let name = self.module.name.as_str();
        match now.voters().any(|voter| voter.name == name) && !is_off(repair::EMPTY_VOTER) {
            false => Ok(()),
            true => Err(ActionError::Refused(format!(
                "{name} is a voter, and has no data: with an empty data directory it would break promises that it has made to the others; to give it its data again, run `etcdrun member replace {name}`"
            ))),
        }
    }

    async fn restart(
        &self,
        context: &ActionContext,
        newer: &str,
        next: &[&str],
        now: Option<&str>,
    ) -> Result<Outcome, ActionError> {
        let turn = context.scope.kept::<Turn>(&self.cluster.name);
        let _mine = turn.restarts.lock().await;
        self.is_first_to_fail(&turn)?;
        let clients = self.cluster.clients(context).await?;
        let mut before = self.spared(&clients).await?;
        // While leadership moves, another member may die, or leadership may come back.
        for _ in 0..TRANSFERS {
            if !self.hand_over(&clients, &before).await? {
                break;
            }
            before = self.spared(&clients).await?;
        }
        self.can_be_told(&before, next, now)?;
        if self.tell_address(context, &clients, &before, next).await? {
            before = self.spared(&clients).await?;
        }
        let outcome = self.run_along(context, "restart", &clients).await?;
        if outcome.failed {
            self.remember(context, true);
            return Ok(outcome);
        }
        let healthy = self.await_healthy(&clients, &before).await;
        self.remember(context, healthy.is_err());
        healthy?;
        Ok(Outcome { msg: format!("{newer} is newer"), ..outcome }.with("restarted", true))
    }

    /// Adds an entry to the log now and then while the member starts. If it gets a snapshot, etcd believes until the next entry that
    /// it has applied nothing, and is not ready; and where no client writes, none comes.
    async fn run_along(
        &self,
        context: &ActionContext,
        action: &str,
        clients: &[MemberClient],
    ) -> Result<Outcome, ActionError> {
        let adding = async {
            loop {
                sleep(ENTRY_EVERY).await;
                let others = clients.iter().filter(|client| *client.name != *self.module.name);
                for client in others.filter(|_| !is_off(repair::ENTRY_AT_START)) {
                    let added = async { add_one(client, client.client().await?).await };
                    match added.await {
                        Ok(()) => break,
                        Err(error) => tracing::debug!(%error, member = %client.name, "no entry was added"),
                    }
                }
            }
        };
        tokio::select! {
            outcome = context.run(self.payload(action)) => Ok(outcome?),
            () = adding => unreachable!("it does not end"),
        }
    }

    /// Whether this member is the one that did not come up. It may come up at a second try.
    fn remember(&self, context: &ActionContext, failed: bool) {
        let turn = context.scope.kept::<Turn>(&self.cluster.name);
        let mut known = turn.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if failed {
            *known = Some(self.module.name.clone());
        } else if known.as_ref() == Some(&self.module.name) {
            *known = None;
        }
    }

    /// What one member did not come up with stays off the others.
    fn is_first_to_fail(&self, turn: &Turn) -> Result<(), ActionError> {
        let failed = turn.failed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // It may itself be on its way back.
        match failed.filter(|failed| *failed != self.module.name && !is_off(repair::FIRST_TO_FAIL)) {
            None => Ok(()),
            Some(other) => Err(ActionError::Refused(format!(
                "{other} did not start, so {} keeps running with its old settings, and the new ones stay staged: see `etcdrun logs {other}`; correct the inventory, and run this again",
                self.module.name
            ))),
        }
    }

    /// How things are once the others can do without this one. Where they elect, or one of them has just started, they soon can.
    async fn spared(&self, clients: &[MemberClient]) -> Result<Observation, ActionError> {
        let start = Instant::now();
        loop {
            let now = observe(clients, LOOK).await;
            match self.can_spare(&now) {
                Err(_) if now.voters().count() != 1 && start.elapsed() < SOON => {
                    sleep(Duration::from_millis(100)).await;
                }
                result => return result.map(|()| now),
            }
        }
    }

    /// The other voters must be a majority of all that etcd lists, whatever state this one is in.
    fn can_spare(&self, now: &Observation) -> Result<(), ActionError> {
        if self.module.allow_outage || is_off(repair::SPARED) {
            return Ok(());
        }
        let (names, name) = (self.cluster.names(), self.module.name.as_str());
        let cluster = self.cluster.name.as_str();
        // The playbook that came here may have no turns, so that `-e rollout_allow_outage=true` would mean nothing to it.
        let command = format!("etcdrun playbook settings.yaml -l {cluster}");
        let situation = Situation { cluster, command: &command, target: Some(name), ..Situation::new(&names, now) };
        let verdict = judge_restart(&situation);
        let lacks = verdict.against().any(|finding| finding.about_outage);
        match (verdict.holds(), lacks) {
            (true, _) => Ok(()),
            (false, true) => Err(ActionError::Refused(format!(
                "{name} has to restart, and the cluster would lose quorum: {}\nTo accept the outage, run `{command} -e rollout_allow_outage=true`",
                verdict.told(),
            ))),
            (false, false) => Err(ActionError::Refused(format!(
                "{name} has to restart with what is new, which waits until all others answer: {}",
                verdict.told()
            ))),
        }
    }

    /// Whether leadership was transferred away. Who leads is read again just before. Afterwards another one leads, and the others
    /// serve with it.
    async fn hand_over(&self, clients: &[MemberClient], before: &Observation) -> Result<bool, ActionError> {
        let name = self.module.name.as_str();
        let Some(own) = clients.iter().find(|client| &*client.name == name) else { return Ok(false) };
        if before.leader().map(|(leader, _)| leader) != Some(name) {
            return Ok(false);
        }
        let now = led(clients).await;
        let client_of = |name: &str| clients.iter().find(|client| *client.name == *name).cloned();
        let others: Vec<_> = successors(&now, name)
            .unwrap_or_default()
            .into_iter()
            .filter_map(|other| client_of(&other.name).map(|client| (other, client)))
            .collect();
        if others.is_empty() {
            // It leads no more, or is alone, which was allowed.
            return Ok(false);
        }
        let failed = |error: EtcdError| ActionError::Failed(format!("cannot transfer leadership: {error}"));
        hand_over(own, &others, HAND_OVER).await.map(|successor| successor.is_some()).map_err(failed)
    }

    /// Fails if the member is to start elsewhere than it did before, and no other can be asked where etcd has it.
    fn can_be_told(&self, seen: &Observation, next: &[&str], before: Option<&str>) -> Result<(), ActionError> {
        let moves = |before: &str| !before.split(',').any(|listens| is_at(listens, next));
        if next.is_empty() || !before.is_some_and(moves) || !seen.list().is_empty() || is_off(repair::CAN_BE_TOLD) {
            return Ok(());
        }
        Err(ActionError::Refused(format!(
            "cannot start {} at {}: no member answers where the inventory has it, so the new peer address cannot be registered in etcd. Put the old `peer_port` and `ip` back, and change them while the cluster answers; if this is the old address, and another one was only tried: `etcdrun playbook site.yaml -l {} -e etcd_allow_outage=true`",
            self.module.name,
            next.join(", "),
            self.cluster.name
        )))
    }

    /// Tells the cluster where this member is going to be, if its settings have it listen elsewhere than etcd lists it. Without
    /// that it would look healthy, since it dials the others, and none of them could dial it.
    async fn tell_address(
        &self,
        context: &ActionContext,
        clients: &[MemberClient],
        now: &Observation,
        next: &[&str],
    ) -> Result<bool, ActionError> {
        let name = self.module.name.as_str();
        let Some(listed) = now.list().iter().find(|member| member.name == name) else { return Ok(false) };
        if is_off(repair::TELL_ADDRESS)
            || next.is_empty()
            || next.iter().any(|listens| is_at(listens, &listed.peer_urls))
        {
            return Ok(false);
        }
        let (old, next) = (listed.peer_urls.join(", "), next.join(", "));
        let wanted = self.cluster.peer_urls().into_iter().find(|(member, url)| member == name && next == *url);
        let refused = |why: &str| {
            Err(ActionError::Refused(format!(
                "cannot start {name} at {next}: etcd lists it at {old}, and {why}; nothing was restarted. Put the old address back, or move the member with `etcdrun member move`"
            )))
        };
        match wanted {
            None => refused("the inventory has neither of the two"),
            // Before 3.5.31 and 3.6.12 an update makes a voter of a learner, ready or not.
            Some(_) if listed.is_learner => refused("it is a learner, whose address etcd does not change safely"),
            Some((_, url)) => {
                let leader = leader(clients, now)?;
                fence(context).await?;
                let mut client = leader.client().await.map_err(etcd_failed)?;
                leader.bounded(client.member_update(listed.id, [url])).await.map_err(etcd_failed)?;
                Ok(true)
            }
        }
    }

    /// It answers, and has applied all that was there before.
    async fn await_healthy(&self, clients: &[MemberClient], before: &Observation) -> Result<(), ActionError> {
        const LIMIT: Duration = Duration::from_secs(120);
        let name = self.module.name.as_str();
        let Some(own) = clients.iter().find(|client| &*client.name == name) else { return Ok(()) };
        let index = before.views().map(|(_, view)| view.raft_index).max().unwrap_or_default();
        let start = Instant::now();
        loop {
            let seen = see(own, LOOK).await;
            let problem = match (&seen.answer, seen.trouble()) {
                (Ok(view), None) if view.has_reached(index) => return Ok(()),
                (Ok(view), None) => format!("it has applied {} of {index}", view.applied_index),
                (_, problem) => problem.unwrap_or_default(),
            };
            if start.elapsed() >= LIMIT {
                return Err(ActionError::Failed(format!(
                    "{name} is not healthy {LIMIT:?} after its restart: {problem}"
                )));
            }
            sleep(Duration::from_millis(100)).await;
        }
    }
}

/// A member's service that does not run, and why.
pub(super) enum Down {
    /// Somebody stopped it, and nobody starts it.
    Stopped(String),
    /// It was given up.
    Failed(String),
    /// It starts over and over.
    Restarting(String),
}

impl Down {
    pub fn text(self) -> String {
        let (Self::Stopped(text) | Self::Failed(text) | Self::Restarting(text)) = self;
        text
    }
}

/// Why a member's service does not run although it was started, and will not by itself, if that is so.
pub(super) async fn trouble(context: &ActionContext, member: &str) -> Option<String> {
    match down(context, member).await? {
        Down::Stopped(_) => None,
        other => Some(other.text()),
    }
}

pub(super) async fn down(context: &ActionContext, member: &str) -> Option<Down> {
    let session = context.reach.session(member, &context.session)?;
    let payload = Payload::new(BODY).value("unit", UNIT).value("action", "trouble").value("server", "");
    let outcome = session.run_one(payload, false).await.ok()?;
    let text = |name: &str| outcome.data.get(name).and_then(Value::as_str);
    let said = format!("etcd does not stay up on {member}:\n{}", text("said")?);
    Some(match text("state") {
        Some("inactive") => {
            Down::Stopped(format!("etcd is stopped on {member}; `systemctl start etcd` there starts it"))
        }
        Some("failed") => Down::Failed(said),
        _ => Down::Restarting(said),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::etcd::pulse::testing::view;
    use etcdrun_etcd::etcd::observe::{Listed, Seen, View};

    /// The task of the member `a` of three.
    fn converge() -> Converge {
        let members: Vec<_> = ["a", "b", "c"].iter().map(|name| json!({ "name": name, "ip": "192.0.2.1" })).collect();
        let cluster: ClusterArgs = serde_json::from_value(json!({ "name": "prod", "members": members })).unwrap();
        Converge { module: serde_json::from_value(json!({ "name": "a" })).unwrap(), cluster: cluster.known().unwrap() }
    }

    /// Members of the inventory, of which `silent` do not answer; the others list `voters`.
    fn seen(silent: &[&str], voters: &[&str]) -> Observation {
        let listed = |(name, id): (&&str, u64)| Listed {
            id,
            name: (*name).to_owned(),
            peer_urls: vec![format!("https://{name}:2380")],
            is_learner: false,
        };
        let list: Vec<Listed> = voters.iter().zip(1..).map(listed).collect();
        let one = |(name, id): (&str, u64)| Seen {
            name: name.to_owned(),
            answer: match silent.contains(&name) {
                true => Err("no answer".to_owned()),
                false => Ok(View { id, ..view(Ok(list.clone())) }),
            },
        };
        Observation { members: ["a", "b", "c"].into_iter().zip(1..).map(one).collect(), auth: None }
    }

    #[test]
    fn a_member_restarts_only_if_the_other_voters_of_etcd_are_a_majority() {
        let three = ["a", "b", "c"];
        assert!(converge().can_spare(&seen(&[], &three)).is_ok());
        assert!(matches!(converge().can_spare(&seen(&["c"], &three)), Err(ActionError::Refused(_))));
        // All of the inventory are healthy, and two voters that it does not have may be dead.
        assert!(converge().can_spare(&seen(&[], &["a", "b", "c", "d", "e"])).is_err());
    }

    #[test]
    fn a_voter_without_data_does_not_start() {
        let refused = converge().has_not_forgotten(&seen(&["a"], &["a", "b", "c"]));
        assert!(refused.unwrap_err().to_string().contains("etcdrun member replace a"));
        assert!(converge().has_not_forgotten(&seen(&["a"], &["b", "c"])).is_ok());
    }

    #[test]
    fn nothing_starts_at_a_new_address_that_no_member_can_be_told() {
        let (alone, all) = (seen(&["a", "b", "c"], &[]), seen(&["a"], &["a", "b", "c"]));
        let told = |now: &Observation, next: &str| converge().can_be_told(now, &[next], Some("https://192.0.2.1:2380"));
        assert!(told(&alone, "https://192.0.2.1:2390").unwrap_err().to_string().contains("cannot be registered"));
        assert!(told(&alone, "https://192.0.2.1:2380").is_ok());
        assert!(told(&all, "https://192.0.2.1:2390").is_ok());
    }

    #[test]
    fn what_one_member_did_not_start_with_stays_off_the_others() {
        let turn = Turn::default();
        assert!(converge().is_first_to_fail(&turn).is_ok());
        *turn.failed.lock().unwrap() = Some("a".to_owned());
        assert!(converge().is_first_to_fail(&turn).is_ok(), "it may come up at a second try");
        *turn.failed.lock().unwrap() = Some("b".to_owned());
        assert!(converge().is_first_to_fail(&turn).unwrap_err().to_string().contains("b did not start"));
    }
}
