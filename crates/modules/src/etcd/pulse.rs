//! Whether a cluster still serves. That somebody could not be asked is no answer.

use std::time::Duration;

use futures_util::future::{join, join_all};
use tokio::time::{Instant, sleep, timeout};

use super::{
    ActionContext,
    cluster_args::{Cluster, Member},
};
use crate::{
    model::{Outcome, Value},
    remote::Payload,
};
use etcdrun_base::mutant::{is_off, repair};
use etcdrun_etcd::etcd::{
    EtcdError, MemberClient,
    observe::{Observation, View, observe, see},
};

/// Longer than a read takes to fail that nobody agrees to.
const LOOK: Duration = Duration::from_secs(15);
/// How long etcd itself may take to say so.
const READ: Duration = Duration::from_secs(12);
/// How long a member may believe in a leader that is gone: longer than an election takes to begin, unless somebody has set another time.
const BELIEF: Duration = Duration::from_secs(15);
/// How long servers may need until they have found each other.
const START: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(500);
/// How long a machine may take to answer before it counts as one that does not.
const LIMIT: Duration = Duration::from_secs(20);

/// Which members serve, and of which nobody knows, with the reasons. All others certainly do not serve.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    serving: Vec<String>,
    unknown: Vec<(String, String)>,
    /// What they said.
    pub now: Observation,
}

impl Pulse {
    pub fn serves(&self) -> bool {
        !self.serving.is_empty()
    }

    fn of(signs: Vec<(String, Sign)>) -> Self {
        let mut pulse = Self::default();
        for (name, sign) in signs {
            match sign {
                Sign::Serves => pulse.serving.push(name),
                Sign::Unknown(why) => pulse.unknown.push((name, why)),
                Sign::Dead | Sign::Starting => {}
            }
        }
        pulse
    }

    /// The same without members that serve a cluster of this id.
    pub fn except(mut self, cluster_id: u64) -> Self {
        self.serving.retain(|name| self.now.view(name).is_none_or(|view| view.cluster_id != cluster_id));
        self
    }

    /// Refuses what must not be done to a cluster that serves, or that might.
    pub fn refusal(&self, cluster: &str, way_out: &str) -> Option<Outcome> {
        let msg = match (self.serving.is_empty(), self.unknown.is_empty() || is_off(repair::UNKNOWN_SERVES)) {
            (true, true) => return None,
            (false, _) => {
                let serving = self.serving.join(", ");
                format!("`{cluster}` is serving: {serving} answer linearizable reads. {way_out}")
            }
            (true, false) => {
                let unknown: Vec<String> = self.unknown.iter().map(|(name, why)| format!("{name} ({why})")).collect();
                format!(
                    "cannot determine whether `{cluster}` is serving; no answer from: {}. {way_out}",
                    unknown.join("; ")
                )
            }
        };
        Some(Outcome { refused: true, ..Outcome::failed(msg) })
    }
}

/// Asks every member; of those that are silent, their machines. Servers that are about to start get a while.
pub(super) async fn pulse(context: &ActionContext, clients: &[MemberClient], cluster: &Cluster) -> Pulse {
    let begun = Instant::now();
    loop {
        let now = observe(clients, LOOK).await;
        let asking = now.members.iter().map(|seen| async move {
            let member = cluster.member(&seen.name);
            let client = clients.iter().find(|client| *client.name == *seen.name);
            let silence = match &seen.answer {
                Ok(view) => {
                    let ask = Ask { context, member, port: cluster.client_port };
                    return (seen.name.clone(), confirmed(view, client, ask).await);
                }
                Err(why) => why,
            };
            let (probed, looked) = join(probe(client), machine(context, member, cluster.client_port, silence)).await;
            (seen.name.clone(), probed.unwrap_or(looked))
        });
        let signs = join_all(asking).await;
        if signs.iter().all(|(_, sign)| matches!(sign, Sign::Dead | Sign::Starting))
            && signs.iter().any(|(_, sign)| *sign == Sign::Starting)
            && begun.elapsed() < START
        {
            sleep(PAUSE).await;
            continue;
        }
        return Pulse { now, ..Pulse::of(signs) };
    }
}

/// How the machine of a member is asked.
#[derive(Clone, Copy)]
struct Ask<'a> {
    context: &'a ActionContext,
    member: Option<&'a Member>,
    port: u16,
}

/// What one member is like.
#[derive(Debug, PartialEq, Eq)]
enum Sign {
    Serves,
    Dead,
    Starting,
    Unknown(String),
}

/// What a member says of a read that tells nobody anything else, such as a stranger: whether he may read is only asked once a
/// majority has agreed to it. Only what etcd itself says counts.
async fn probe(client: Option<&MemberClient>) -> Option<Sign> {
    let client = client?.patient(READ);
    let mut asking = client.client().await.ok()?;
    match client.bounded(asking.get("health", None)).await {
        Ok(_) | Err(EtcdError::Refused { .. }) => Some(Sign::Serves),
        Err(error) if error.tells_no_majority() => Some(Sign::Dead),
        Err(_) => None,
    }
}

/// What the machine says of a member of which nothing was heard.
async fn machine(context: &ActionContext, member: Option<&Member>, port: u16, silence: &str) -> Sign {
    let Some(session) = member.and_then(|member| context.reach.session(&member.name, &context.session)) else {
        return Sign::Unknown("it is not in the inventory".into());
    };
    let look = Payload::new(include_str!("silent.sh")).value("port", port.to_string());
    match timeout(LIMIT, session.run_one(look, false)).await {
        Err(_) => Sign::Unknown(format!("its host did not answer within {LIMIT:?}")),
        Ok(Err(error)) => Sign::Unknown(error.to_string()),
        Ok(Ok(outcome)) if outcome.failed => Sign::Unknown(outcome.msg),
        Ok(Ok(outcome)) => judge(&outcome, port, silence),
    }
}

/// What a member says that answers. A read that fails in time is no proof: where disks or the network are slow, a cluster takes longer
/// and serves all the same. So a member that seems to be without a majority is asked again, until it has no leader any more, either.
///
/// One that answers no more has stopped since, maybe by the very run that asks: then its machine knows.
async fn confirmed(view: &View, client: Option<&MemberClient>, ask: Ask<'_>) -> Sign {
    let mut sign = answered(view);
    let Some(client) = client.filter(|_| sign == Sign::Dead && !view.is_learner) else { return sign };
    let begun = Instant::now();
    loop {
        let again = see(client, LOOK).await;
        sign = match again.answer {
            Ok(again) => answered_again(view, &again),
            Err(why) => machine(ask.context, ask.member, ask.port, &why).await,
        };
        if !matches!(sign, Sign::Unknown(_)) || begun.elapsed() > BELIEF {
            return sign;
        }
        sleep(PAUSE).await;
    }
}

/// What the second answer of a member says that did not answer a read before.
fn answered_again(before: &View, view: &View) -> Sign {
    match answered(view) {
        Sign::Dead if is_off(repair::ONLY_SLOW) => Sign::Dead,
        Sign::Dead if view.leader.is_some() => {
            Sign::Unknown("it answers no read in time, but has a leader: it may only be slow".into())
        }
        Sign::Dead if view.applied_index > before.applied_index => {
            Sign::Unknown("it answers no read in time, but still gets entries: it may only be slow".into())
        }
        sign => sign,
    }
}

/// What one answer says. Whom it takes for the leader is no sign: for a while it believes in one that is gone.
fn answered(view: &View) -> Sign {
    match &view.read {
        // A majority has agreed to the read.
        Ok(()) => Sign::Serves,
        // Without the others it is nothing: it has no vote.
        Err(_) if view.lacks_majority || view.is_learner => Sign::Dead,
        Err(why) => Sign::Unknown(why.clone()),
    }
}

/// What the machine of a silent member says.
fn judge(outcome: &Outcome, port: u16, silence: &str) -> Sign {
    let listens = outcome.data.get("listens").and_then(Value::as_bool) == Some(true);
    match outcome.data.get("state").and_then(Value::as_str) {
        Some("active") => Sign::Unknown(silence.to_owned()),
        // The unit becomes active when a majority has greeted the server: until then it listens in vain.
        Some("activating") => Sign::Starting,
        _ if !listens => Sign::Dead,
        _ => Sign::Unknown(format!("etcd.service does not run there, but something listens at port {port}: {silence}")),
    }
}

#[cfg(test)]
pub(super) mod testing {
    use super::View;
    use etcdrun_etcd::etcd::observe::Listed;

    /// A member that answers, and lists these.
    pub fn view(list: Result<Vec<Listed>, String>) -> View {
        View {
            id: 1,
            cluster_id: 1,
            version: "3.6.15".parse().unwrap(),
            cluster_version: None,
            storage_version: None,
            downgrade: None,
            leader: Some(2),
            term: 1,
            counted: None,
            raft_index: 1,
            applied_index: 1,
            revision: 1,
            db_size: 1,
            db_in_use: 1,
            quota: None,
            is_learner: false,
            alarms: Vec::new(),
            complaints: Vec::new(),
            list,
            read: Ok(()),
            lacks_majority: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{testing::view, *};

    fn said(state: Option<&str>, listens: bool) -> Sign {
        let outcome = state.into_iter().fold(Outcome::ok(), |outcome, state| outcome.with("state", state));
        let outcome = if listens { outcome.with("listens", true) } else { outcome };
        judge(&outcome, 2379, "silence")
    }

    #[test]
    fn only_a_machine_that_says_so_has_no_server() {
        assert_eq!(said(Some("inactive"), false), Sign::Dead);
        assert_eq!(said(Some("failed"), false), Sign::Dead);
        assert_eq!(said(Some("activating"), true), Sign::Starting, "it waits for a majority");
        assert_eq!(said(Some("active"), true), Sign::Unknown("silence".into()));
        assert_eq!(said(Some("active"), false), Sign::Unknown("silence".into()));
        assert!(matches!(said(Some("inactive"), true), Sign::Unknown(why) if why.contains("listens at port 2379")));
        assert!(matches!(said(None, true), Sign::Unknown(_)));
    }

    #[test]
    fn a_read_that_fails_for_want_of_a_majority_is_the_only_dead_one() {
        let said = |read: Result<(), &str>, lacks_majority: bool, is_learner: bool| {
            let read = read.map_err(str::to_owned);
            answered(&View { is_learner, read, lacks_majority, ..view(Ok(Vec::new())) })
        };
        assert_eq!(said(Ok(()), false, false), Sign::Serves);
        assert_eq!(said(Err("request timed out"), true, false), Sign::Dead, "although it still believes in a leader");
        assert_eq!(said(Err("invalid auth"), false, false), Sign::Unknown("invalid auth".into()));
        assert_eq!(said(Err("rpc not supported for learner"), false, true), Sign::Dead);
    }

    #[test]
    fn a_cluster_that_is_slow_is_not_a_dead_one() {
        let late = View { read: Err("Timeout expired".into()), lacks_majority: true, ..view(Ok(Vec::new())) };
        assert_eq!(answered(&late), Sign::Dead, "by one look alone");
        let again = |change: fn(&mut View)| {
            let mut view = View { leader: None, ..late.clone() };
            change(&mut view);
            answered_again(&late, &view)
        };
        assert_eq!(again(|_| {}), Sign::Dead, "nobody leads, and nothing comes");
        assert!(matches!(again(|view| view.leader = Some(2)), Sign::Unknown(why) if why.contains("has a leader")));
        assert!(matches!(again(|view| view.applied_index += 1), Sign::Unknown(why) if why.contains("gets entries")));
        assert_eq!(again(|view| view.read = Ok(())), Sign::Serves);
    }

    #[test]
    fn who_could_not_be_asked_is_no_proof() {
        let text = |pulse: Pulse| pulse.refusal("prod", "--force does it.").map(|outcome| outcome.msg);
        assert_eq!(text(Pulse::default()), None);
        let unknown = vec![("etcd-1".to_owned(), "no route to host".to_owned())];
        let told = text(Pulse { unknown: unknown.clone(), ..Pulse::default() }).unwrap();
        assert_eq!(
            told,
            "cannot determine whether `prod` is serving; no answer from: etcd-1 (no route to host). --force does it."
        );
        let told = text(Pulse { serving: vec!["etcd-2".into()], unknown, ..Pulse::default() }).unwrap();
        assert!(told.starts_with("`prod` is serving: etcd-2 answer linearizable reads"), "{told}");
    }
}
