//! `etcd_member`: who belongs to a cluster, one change at a time.

use std::time::Duration;

use etcd_client::MemberAddOptions;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::{Instant, sleep};

use super::{
    Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, ResultField, Running,
    cluster_args::{Cluster, ClusterArgs, Member, WHOLE_CLUSTER, etcd_failed, fence, leader, led},
};
use crate::model::{Disruption, Effects, Outcome, Seconds};
use etcdrun_base::mutant::{is_off, repair};
use etcdrun_etcd::etcd::{
    EtcdError, MemberClient,
    observe::{Listed, Observation, View, learner_progress, observe, see},
    rules::{Answer, Consent, Gate, MemberChange, Profile, Situation, judge},
};

/// Adds a member to a cluster as a learner, promotes it to a voter, or removes it.
///
/// Only learners are added: a voter that has not started counts against the quorum. A learner is promoted
/// once it has caught up with the leader; one that does not catch up in time is removed again. A healthy member
/// is removed only after another has replaced it, and never while it is the leader.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EtcdMember {
    /// The member.
    name: String,
    /// The wanted state.
    state: MemberState,
    /// The cluster; default: the member's own. A new member is in its `members`.
    #[serde(default)]
    cluster: ClusterArgs,
    /// The peer port.
    #[serde(default = "super::peer_port")]
    peer_port: u16,
    /// Another member has already replaced it.
    #[serde(default)]
    replaced: bool,
    /// How many voters the cluster had when the replacement was decided; a replaced member is removed only if there are more now.
    #[serde(default)]
    voters: Option<usize>,
    /// Remove it only if it is a learner.
    #[serde(default)]
    learner: bool,
    /// Allow the cluster to have one member less, for good.
    #[serde(default)]
    allow_shrink: bool,
    /// How long a learner may take to catch up.
    #[serde(default = "five_minutes")]
    timeout: Seconds,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum MemberState {
    /// Listed, at least as a learner.
    Learner,
    /// Listed, as a voter.
    Voter,
    /// Not listed.
    Absent,
}

fn five_minutes() -> Seconds {
    Seconds(Duration::from_secs(300))
}

impl Module for EtcdMember {
    const NAME: &'static str = "etcd_member";
    const CLUSTER: &'static [crate::task::ClusterKey] = WHOLE_CLUSTER;
    const EXAMPLE: &'static str = "\
- name: Add the member as a learner
  etcd_member:
    name: \"{{ inventory_hostname }}\"
    state: learner
  register: learner
";
    const RESULT: &'static [ResultField] = &[
        ResultField { name: "id", doc: "The member's id, in hexadecimal." },
        ResultField { name: "environment", doc: "The initial settings of a new member." },
    ];

    fn effects(&self) -> Effects {
        Effects::converging().disrupting(Disruption::Maybe).careful()
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        let cluster = self.cluster.known()?;
        let own = cluster.member(&self.name).cloned();
        let own = match (own, self.state) {
            (None, MemberState::Learner | MemberState::Voter) => {
                return Err(ModuleError::new(format!("`{}` is not among `members`", self.name))
                    .help("add it to the cluster in the inventory"));
            }
            (own, _) => own,
        };
        Ok(Action::Engine(Box::new(Change { cluster, own, module: self })))
    }
}

struct Change {
    module: EtcdMember,
    cluster: Cluster,
    own: Option<Member>,
}

const LOOK: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(200);
/// A server that was restarted serves within this time.
const RESTART: Duration = Duration::from_secs(15);

impl EngineAction for Change {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            let cluster = &self.cluster.name;
            let clients = self.cluster.clients(context).await?;
            let now = self.named(led(&clients).await);
            let listed = self.listed(&now).cloned();
            match (self.module.state, listed) {
                (MemberState::Learner, Some(listed)) => Ok(self.told(Outcome::ok(), listed.id, now.list())),
                (MemberState::Learner, None) => self.add(context, &clients, &now).await,
                (MemberState::Voter, Some(listed)) if !listed.is_learner => {
                    Ok(self.told(Outcome::ok(), listed.id, now.list()))
                }
                (MemberState::Voter, Some(listed)) => self.promote(context, &clients, &now, &listed).await,
                (MemberState::Voter, None) if context.check_mode() => Ok(Outcome { unknown: true, ..Outcome::ok() }),
                (MemberState::Voter, None) => Err(ActionError::Failed(format!(
                    "{0} is not a member of `{cluster}`: add it first (`state: learner`); if it was removed because it did not catch up in time, run `etcdrun member replace {0}` or `etcdrun member add {0}` again",
                    self.module.name
                ))),
                (MemberState::Absent, Some(listed)) => self.remove(context, &clients, &now, &listed).await,
                (MemberState::Absent, None) if now.list().is_empty() => {
                    Err(ActionError::Failed(format!("no member of `{cluster}` tells who belongs to it")))
                }
                (MemberState::Absent, None) => Ok(Outcome::ok()),
            }
        })
    }
}

impl Change {
    fn peer_url(&self) -> Option<String> {
        Some(self.own.as_ref()?.peer_url(self.module.peer_port))
    }

    /// Before its first start the cluster knows its address alone. Here its name is known as well.
    fn named(&self, mut now: Observation) -> Observation {
        let url = self.peer_url();
        let lists = now.members.iter_mut().filter_map(|seen| seen.answer.as_mut().ok()?.list.as_mut().ok());
        for member in lists.flatten() {
            if member.name.is_empty() && url.as_ref().is_some_and(|url| member.peer_urls.contains(url)) {
                member.name.clone_from(&self.module.name);
            }
        }
        now
    }

    fn listed<'a>(&self, now: &'a Observation) -> Option<&'a Listed> {
        now.list().iter().find(|member| member.name == self.module.name)
    }

    fn told(&self, outcome: Outcome, id: u64, list: &[Listed]) -> Outcome {
        let name =
            |member: &Listed| if member.name.is_empty() { self.module.name.clone() } else { member.name.clone() };
        let peer =
            |member: &Listed| member.peer_urls.iter().map(|url| format!("{}={url}", name(member))).collect::<Vec<_>>();
        let peers = list.iter().flat_map(peer).collect::<Vec<_>>().join(",");
        let environment = format!("ETCD_INITIAL_CLUSTER_STATE=existing\nETCD_INITIAL_CLUSTER={peers}\n");
        outcome.with("id", format!("{id:x}")).with("environment", environment)
    }

    /// Whether the rules let it happen. What only the hosts know is the business of `etcd_gate`.
    fn judge(&self, now: &Observation, change: MemberChange) -> Result<(), ActionError> {
        let names = self.cluster.names();
        let consent = Consent { no_snapshot: true, outage: true, ..Consent::default() };
        let situation = Situation {
            cluster: &self.cluster.name,
            target: Some(&self.module.name),
            change: Some(change),
            voters_then: self.module.voters,
            consent,
            planning: true,
            ..Situation::new(&names, now)
        };
        let gates: &[Gate] = if change.removes() { &[Gate::Before, Gate::Stop] } else { &[Gate::Before] };
        for gate in gates {
            let verdict = judge(Profile::Replace, *gate, &situation);
            if verdict.against().any(|finding| matches!(finding.answer, Answer::Refused { .. })) {
                return Err(ActionError::Refused(verdict.told()));
            }
        }
        Ok(())
    }

    /// The same in a plan, in which what comes before has not been done: then nobody can say.
    fn foresee(
        &self,
        context: &ActionContext,
        now: &Observation,
        change: MemberChange,
    ) -> Result<Option<Outcome>, ActionError> {
        match self.judge(now, change) {
            Err(ActionError::Refused(msg)) if context.check_mode() => {
                Ok(Some(Outcome { unknown: true, msg, ..Outcome::ok() }))
            }
            judged => judged.map(|()| None),
        }
    }

    async fn add(
        &self,
        context: &ActionContext,
        clients: &[MemberClient],
        now: &Observation,
    ) -> Result<Outcome, ActionError> {
        let url = self.peer_url().ok_or_else(|| ActionError::Failed("it has no address".into()))?;
        if context.check_mode() {
            let added = || Outcome { msg: "would be added as a learner".into(), ..Outcome::changed() };
            return Ok(self.foresee(context, now, MemberChange::AddLearner)?.unwrap_or_else(added));
        }
        let start = Instant::now();
        for attempt in 0.. {
            // Whatever came of the last try.
            let now = self.named(led(clients).await);
            if let Some(listed) = self.listed(&now) {
                let outcome = Outcome { msg: "added as a learner".into(), ..Outcome::changed() };
                return Ok(self.told(outcome, listed.id, now.list()));
            }
            match self.judge(&now, MemberChange::AddLearner) {
                // A server that restarts is back in a moment.
                Err(ActionError::Refused(_)) if start.elapsed() < RESTART => {
                    context.wait(PAUSE).await?;
                    continue;
                }
                judged => judged?,
            }
            let asked = asked(clients, &now, attempt)?;
            fence(context).await?;
            let added = async {
                let mut client = asked.client().await?;
                asked.bounded(client.member_add([url.clone()], Some(as_added()))).await
            };
            pause_after(added.await.map(drop), start).await?;
        }
        Err(ActionError::Failed("it was not added".into()))
    }

    async fn promote(
        &self,
        context: &ActionContext,
        clients: &[MemberClient],
        now: &Observation,
        listed: &Listed,
    ) -> Result<Outcome, ActionError> {
        if let Some(outcome) = self.foresee(context, now, MemberChange::Promote)? {
            return Ok(outcome);
        }
        if context.check_mode() {
            return Ok(Outcome { msg: "would get a vote".into(), ..Outcome::changed() });
        }
        let start = Instant::now();
        let limit = self.module.timeout.0;
        let mark = now.mark().unwrap_or(u64::MAX);
        let problem = loop {
            let problem = match self.try_promotion(context, clients, listed.id, mark).await? {
                None => {
                    return Ok(self.told(
                        Outcome { msg: "has a vote now".into(), ..Outcome::changed() },
                        listed.id,
                        now.list(),
                    ));
                }
                Some(problem) => problem,
            };
            if start.elapsed() >= limit {
                break problem;
            }
            sleep(PAUSE).await;
        };
        // A learner that stays behind is in the way of everything else.
        self.take_out(context, clients, listed.id, None).await?;
        let name = &self.module.name;
        Err(ActionError::Failed(format!(
            "{name} was not ready to become a voter within {limit:?} ({problem}), and was removed again; find out why (`etcdrun logs {name}`), and run the command again: a new attempt starts with empty data"
        )))
    }

    /// Why not yet, if not yet.
    async fn try_promotion(
        &self,
        context: &ActionContext,
        clients: &[MemberClient],
        id: u64,
        mark: u64,
    ) -> Result<Option<String>, ActionError> {
        let name = self.module.name.as_str();
        let Some(own) = clients.iter().find(|client| &*client.name == name) else {
            return Ok(Some(format!("{name} is not in the inventory")));
        };
        match see(own, LOOK).await.answer {
            Err(error) => match learner_progress(own).await {
                None => return Ok(Some(error)),
                Some(learner) if learner.id != id => return Ok(Some(format!("{name} runs as another member"))),
                Some(learner) if learner.applied_index < mark => {
                    return Ok(Some(format!("it has applied {} of {mark}", learner.applied_index)));
                }
                Some(_) => {}
            },
            Ok(view) if view.id != id => return Ok(Some(format!("{name} runs as another member"))),
            Ok(view) if !view.is_learner => return Ok(None),
            Ok(view) => {
                if let Some(problem) = lag(&view, mark) {
                    return Ok(Some(problem));
                }
            }
        }
        let now = observe(clients, LOOK).await;
        // Before 3.6.6 only the leader promotes.
        let Ok(leader) = leader(clients, &now) else { return Ok(Some("there is no leader".into())) };
        fence(context).await?;
        let promoted = async {
            let mut client = leader.client().await?;
            leader.bounded(client.member_promote(id)).await
        };
        match promoted.await {
            Ok(_) => Ok(None),
            Err(error @ EtcdError::Refused { .. }) if error.to_string().contains("not a learner") => Ok(None),
            Err(error) => Ok(Some(error.to_string())),
        }
    }

    async fn remove(
        &self,
        context: &ActionContext,
        clients: &[MemberClient],
        now: &Observation,
        listed: &Listed,
    ) -> Result<Outcome, ActionError> {
        let change = match self.module {
            EtcdMember { replaced: true, .. } => MemberChange::RemoveReplaced,
            EtcdMember { allow_shrink: true, .. } => MemberChange::Shrink,
            _ => MemberChange::Remove,
        };
        self.is_meant(listed)?;
        if let Some(outcome) = if listed.is_learner { None } else { self.foresee(context, now, change)? } {
            return Ok(outcome);
        }
        if context.check_mode() {
            return Ok(Outcome { msg: "would be removed".into(), ..Outcome::changed() });
        }
        self.take_out(context, clients, listed.id, (!listed.is_learner).then_some(change)).await?;
        Ok(Outcome { msg: "removed; its data can never rejoin".into(), ..Outcome::changed() }
            .with("id", format!("{:x}", listed.id)))
    }

    /// A learner that was in the way may have become a voter.
    fn is_meant(&self, listed: &Listed) -> Result<(), ActionError> {
        if self.module.learner && !is_off(repair::LEARNER_ONLY) { self.is_learner(listed) } else { Ok(()) }
    }

    fn is_learner(&self, listed: &Listed) -> Result<(), ActionError> {
        let name = &self.module.name;
        match listed.is_learner {
            true => Ok(()),
            false => Err(ActionError::Refused(format!(
                "{name} is a voter, and no learner of an earlier attempt: it was not removed; see `etcdrun status {}`, and run the command again instead of `etcdrun resume`",
                self.cluster.name
            ))),
        }
    }

    /// A voter goes only while the rules let it, also after tries that took long.
    async fn take_out(
        &self,
        context: &ActionContext,
        clients: &[MemberClient],
        id: u64,
        judged: Option<MemberChange>,
    ) -> Result<(), ActionError> {
        let start = Instant::now();
        for attempt in 0.. {
            let now = self.named(led(clients).await);
            let asked = asked(clients, &now, attempt)?;
            let Some(listed) = now.list().iter().find(|member| member.id == id) else { return Ok(()) };
            match judged {
                Some(change) => self.judge(&now, change)?,
                None => self.is_learner(listed)?,
            }
            fence(context).await?;
            let removed = async {
                let mut client = asked.client().await?;
                asked.bounded(client.member_remove(id)).await
            };
            match removed.await {
                Err(EtcdError::Refused { reason, .. }) if reason.contains("member not found") => return Ok(()),
                removed => pause_after(removed.map(drop), start).await?,
            }
        }
        Err(ActionError::Failed("it was not removed".into()))
    }
}

/// Only learners are added: a voter that does not start costs the others their quorum.
fn as_added() -> MemberAddOptions {
    if is_off(repair::AS_LEARNER) { MemberAddOptions::new() } else { MemberAddOptions::new().with_is_learner() }
}

/// Why a learner that answers gets no vote yet.
fn lag(view: &View, mark: u64) -> Option<String> {
    let is_behind = !view.has_reached(mark) && !is_off(repair::CAUGHT_UP);
    is_behind.then(|| format!("it has applied {} of {mark}", view.applied_index))
}

/// Whom to ask for a change of members: the leader, and if it goes on refusing, the other voters in turn. The one that is asked refuses
/// as long as it takes a peer for disconnected; and one that was started again may do so for as long as it runs, although the peer
/// follows it (seen with 3.4).
fn asked<'a>(clients: &'a [MemberClient], now: &Observation, attempt: usize) -> Result<&'a MemberClient, ActionError> {
    const LEADER_ALONE: usize = 30;
    let leader = leader(clients, now)?;
    let votes = |client: &&MemberClient| {
        now.views().any(|(name, view)| *name == *client.name && !view.is_learner) && client.name != leader.name
    };
    let all: Vec<&MemberClient> = std::iter::once(leader).chain(clients.iter().filter(votes)).collect();
    let attempt = if is_off(repair::ASK_OTHERS) { 0 } else { attempt };
    Ok(all[attempt.saturating_sub(LEADER_ALONE) % all.len()])
}

/// etcd changes no members within seconds of an election, or while one is slow. What was asked may have been done although the
/// answer was lost, so the list is looked at again either way.
async fn pause_after(result: Result<(), EtcdError>, start: Instant) -> Result<(), ActionError> {
    const CALM: Duration = Duration::from_secs(30);
    match result {
        Err(error) if !error.is_transient() || start.elapsed() >= CALM => Err(etcd_failed(error)),
        Ok(()) if start.elapsed() >= CALM => {
            Err(ActionError::Failed("etcd accepted the change, but its member list does not show it".into()))
        }
        _ => {
            sleep(PAUSE).await;
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::etcd::pulse::testing::view;
    use etcdrun_etcd::{
        etcd::{Credential, observe::Seen},
        http::Dial,
    };

    struct Nowhere;

    #[async_trait::async_trait]
    impl Dial for Nowhere {
        async fn dial(&self, _: &str, _: u16) -> std::io::Result<Box<dyn crate::ssh::Stream>> {
            Err(std::io::Error::other("nowhere"))
        }
    }

    // A channel wants a runtime.
    #[tokio::test]
    async fn others_are_asked_when_the_leader_goes_on_refusing() {
        let credential = Credential { authority: String::new(), identity: None, login: None };
        let client = |name: &str| MemberClient::new(name, "127.0.0.1", 1, &credential, Arc::new(Nowhere)).unwrap();
        let clients = ["follower", "leader", "learner", "silent"].map(client);
        let seen = |(id, name): (u64, &str)| {
            let view = View { id, leader: Some(2), is_learner: name == "learner", ..view(Ok(Vec::new())) };
            Seen { name: name.to_owned(), answer: if name == "silent" { Err("no answer".into()) } else { Ok(view) } }
        };
        let members = [(1, "follower"), (2, "leader"), (3, "learner"), (4, "silent")].map(seen).to_vec();
        let now = Observation { members, auth: None };
        let name = |attempt| asked(&clients, &now, attempt).unwrap().name.to_string();
        assert_eq!([0, 29, 30, 31, 32].map(name), ["leader", "leader", "leader", "follower", "leader"]);
    }

    #[test]
    fn a_leftover_that_votes_by_now_is_no_leftover() {
        let args = serde_json::json!({ "name": "prod", "members": [{ "name": "a", "ip": "192.0.2.1" }] });
        let args: ClusterArgs = serde_json::from_value(args).unwrap();
        let module = serde_json::json!({ "name": "a", "state": "absent", "learner": true });
        let module: EtcdMember = serde_json::from_value(module).unwrap();
        let change = Change { module, cluster: args.known().unwrap(), own: None };
        let listed = |is_learner| Listed { id: 1, name: "a".to_owned(), peer_urls: Vec::new(), is_learner };
        assert!(change.is_meant(&listed(true)).is_ok());
        assert!(change.is_meant(&listed(false)).unwrap_err().to_string().contains("is a voter"));
    }

    #[test]
    fn who_is_added_has_no_vote_until_it_has_caught_up() {
        assert!(format!("{:?}", as_added()).contains("is_learner: true"));
        let view = |applied_index| View { applied_index, is_learner: true, ..view(Ok(Vec::new())) };
        assert_eq!(lag(&view(9), 10).as_deref(), Some("it has applied 9 of 10"));
        assert_eq!(lag(&view(10), 10), None);
    }
}
