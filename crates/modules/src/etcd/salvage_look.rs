//! The look of `etcd_salvage`: what every member still has, and the way on which the least of it is lost.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;

use super::{
    ActionContext, ActionError,
    cluster_args::Member,
    elsewhere::elsewhere,
    pulse::{Pulse, pulse},
    salvage::{ANSWER, Salvage},
};
use crate::{
    model::{ByteSize, Outcome, Value},
    remote::Session,
};
use etcdrun_etcd::etcd::{
    ClusterRecord,
    restore::{Tail, TailReader},
};

/// How long it may take to show its log.
const LOG: Duration = Duration::from_secs(120);
/// How often a log is read that changes while it is read.
const TRIES: usize = 3;

/// What was found on one member.
enum Found {
    Unknown(String),
    Nothing,
    /// It has data, but of another cluster.
    Alien(Box<Left>),
    Data(Box<Left>),
}

/// What a host says.
pub(super) struct Looked {
    pub left: Option<Left>,
    /// The mark of a restore that came half way.
    unfinished: Option<String>,
}

/// What a member has left.
pub(super) struct Left {
    /// The last file of its log.
    pub log: String,
    pub tail: Tail,
    size: u64,
    /// When the log was last written to.
    written: String,
    /// Whether its etcd runs, also if it waits for others.
    pub runs: bool,
    /// What it says itself, if it answers.
    revision: Option<i64>,
}

impl Found {
    fn of(look: Result<Looked, String>, member: &Member, pulse: &Pulse) -> Self {
        let revision = pulse.now.view(&member.name).map(|view| view.revision);
        match look {
            Ok(Looked { left: Some(left), .. }) => Self::Data(Box::new(Left { revision, ..left })),
            Ok(_) => Self::Nothing,
            Err(why) => Self::Unknown(why),
        }
    }

    /// What is of another cluster does not count.
    fn only(self, cluster_id: u64) -> Self {
        match self {
            Self::Data(left) if left.tail.cluster != cluster_id => Self::Alien(left),
            other => other,
        }
    }

    fn describe(&self) -> String {
        let left = match self {
            Self::Unknown(why) => return format!("cannot be inspected ({why})"),
            Self::Nothing => return "has no data".to_owned(),
            Self::Alien(left) => return format!("has data of another cluster, whose id is {:x}", left.tail.cluster),
            Self::Data(left) => left,
        };
        let revision = left.revision.map(|revision| format!(", revision {revision}")).unwrap_or_default();
        let Tail { term, index, commit, .. } = left.tail;
        format!(
            "has data: term {term}, entries up to {index}, of which it knew {commit} to be agreed on{revision}; last written {}, {}; etcd {}",
            left.written,
            ByteSize(left.size),
            if left.runs { "runs" } else { "does not run" }
        )
    }

    fn left(&self) -> Option<&Left> {
        match self {
            Self::Data(left) => Some(left),
            _ => None,
        }
    }

    fn rank(&self) -> Option<(u64, u64)> {
        self.left().map(|left| (left.tail.term, left.tail.index))
    }
}

/// What can be done, with the least that is lost.
enum Way<'m> {
    /// A majority has its data: etcd has to be started on these.
    Start(Vec<&'m str>),
    /// A majority has its data and runs, and still does not serve.
    Mend(Vec<&'m str>),
    /// A new cluster, of what one member has.
    Salvage,
}

impl Salvage {
    pub(super) async fn report(&self, context: &ActionContext) -> Result<Outcome, ActionError> {
        let cluster = &self.cluster.name;
        let clients = self.cluster.onlookers(context).await?;
        let pulse = pulse(context, &clients, &self.cluster).await;
        if let Some(refusal) = pulse.refusal(cluster, &way_out(cluster, &pulse)).filter(|_| pulse.serves()) {
            return Ok(refusal);
        }
        let record = ClusterRecord::load(&context.state, cluster);
        let record = record.map_err(|error| ActionError::Failed(error.to_string()))?;
        let looks = join_all(self.cluster.members.iter().map(|member| self.look_at(context, member))).await;
        let danger = match self.module.force {
            true => None,
            false => self.danger(&pulse, &looks, record.as_ref()),
        };
        let found = looks.into_iter().zip(&self.cluster.members);
        let found: Vec<(&Member, Found)> =
            found.map(|(look, member)| (member, Found::of(look, member, &pulse))).collect();
        let size = self.size(&pulse, record.as_ref());
        let known = record.and_then(|record| u64::from_str_radix(&record.cluster_id?, 16).ok());
        let (found, danger) = match (self.cluster_id(known, &found), danger) {
            (Ok(id), danger) => (found.into_iter().map(|(member, found)| (member, found.only(id))).collect(), danger),
            (Err(why), danger) => (found, danger.or(Some(why))),
        };
        let lines: Vec<String> =
            found.iter().map(|(member, found)| format!("{} {}", member.name, found.describe())).collect();
        match danger {
            Some(danger) => Ok(refused(format!("{danger}.\n{}", lines.join("\n")))),
            None => self.propose(&pulse, size, &found, lines),
        }
    }

    /// How many voters the cluster has: as its members list them, or else as far as is known here.
    fn size(&self, pulse: &Pulse, record: Option<&ClusterRecord>) -> usize {
        match pulse.now.voters().count() {
            0 => record.map_or(0, |record| record.members.len()).max(self.cluster.members.len()),
            voters => voters,
        }
    }

    fn propose(
        &self,
        pulse: &Pulse,
        size: usize,
        found: &[(&Member, Found)],
        lines: Vec<String>,
    ) -> Result<Outcome, ActionError> {
        let cluster = &self.cluster.name;
        let Some((best, rest)) = self.choose(found) else {
            return Err(ActionError::Failed(format!(
                "there is no data to recover `{cluster}` from; restore a backup with `etcdrun restore {cluster}`.\n{}",
                lines.join("\n")
            )));
        };
        let majority = size / 2 + 1;
        let (way, start, proposal) = match self.way(pulse, found, majority) {
            Way::Salvage => {
                let lost = format!("a new cluster of what {} has: with that the least is lost ({rest})", best.name);
                ("salvage", Vec::new(), lost)
            }
            Way::Start(names) => {
                let listed = names.join(", ");
                let proposal = format!(
                    "start etcd on {listed}: then a majority runs with its data, {majority} of {size}, and nothing is lost"
                );
                ("start", names, proposal)
            }
            Way::Mend(names) => {
                return Ok(refused(format!(
                    "etcd runs on {}, which are a majority, but there is no leader: fix what separates them, such as the network, the disks or certificates (`etcdrun certs renew {cluster}`), or restart a server that hangs (`etcdrun ssh {} -- sudo systemctl restart etcd`), and nothing is lost. To create a new cluster from the data of one member anyway, pass --through {}.\n{}",
                    names.join(", "),
                    names.first().copied().unwrap_or_default(),
                    best.name,
                    lines.join("\n")
                )));
            }
        };
        let msg = format!("{}; {proposal}", lines.join("; "));
        let start: Vec<String> = start.into_iter().map(str::to_owned).collect();
        Ok(Outcome { msg, ..Outcome::ok() }
            .with("lines", lines)
            .with("best", best.name.clone())
            .with("way", way)
            .with("start", start)
            .with("majority", majority as u64)
            .with("proposal", proposal))
    }

    /// Where a majority has its data, no member is given up. Somebody who names a member has decided otherwise.
    fn way<'m>(&self, pulse: &Pulse, found: &[(&'m Member, Found)], majority: usize) -> Way<'m> {
        let voters: Vec<u64> = pulse.now.voters().map(|voter| voter.id).collect();
        let votes = |left: &Left| voters.is_empty() || voters.contains(&left.tail.node);
        let whole = found.iter().filter_map(|(member, found)| Some((member.name.as_str(), found.left()?)));
        let whole: Vec<(&str, &Left)> = whole.filter(|(_, left)| votes(left)).collect();
        if self.module.through.is_some() || whole.len() < majority {
            return Way::Salvage;
        }
        let names = |runs: bool| whole.iter().filter(move |(_, left)| left.runs == runs).map(|(name, _)| *name);
        let idle: Vec<&str> = names(false).collect();
        if idle.is_empty() { Way::Mend(names(true).collect()) } else { Way::Start(idle) }
    }

    /// Why there could be two clusters in the end, or less than there was.
    fn danger(
        &self,
        pulse: &Pulse,
        looks: &[Result<Looked, String>],
        record: Option<&ClusterRecord>,
    ) -> Option<String> {
        let cluster = &self.cluster.name;
        let unknown = pulse.refusal(cluster, &way_out(cluster, pulse)).map(|outcome| outcome.msg);
        unknown.or_else(|| self.unfinished(looks)).or_else(|| elsewhere(&self.cluster, record, &pulse.now))
    }

    /// In the middle of a restore the newest data may be that which was set aside.
    fn unfinished(&self, looks: &[Result<Looked, String>]) -> Option<String> {
        let mut pairs = self.cluster.members.iter().zip(looks);
        let (member, note) =
            pairs.find_map(|(member, look)| Some((member, look.as_ref().ok()?.unfinished.as_ref()?)))?;
        Some(format!(
            "a restore of `{}` was interrupted, as {note} on {} shows; to continue it, run `etcdrun resume`. To use only the current data, pass --force",
            self.cluster.name, member.name
        ))
    }

    /// The cluster whose data counts: the one that is known here, that of the member which was named, or the only one there is.
    fn cluster_id(&self, known: Option<u64>, found: &[(&Member, Found)]) -> Result<u64, String> {
        let ids = found.iter().filter_map(|(member, found)| Some((member, found.left()?.tail.cluster)));
        let ids: Vec<(&&Member, u64)> = ids.collect();
        let named = ids.iter().find(|(member, _)| self.module.through.as_ref() == Some(&member.name));
        if let Some(id) = named.map(|(_, id)| *id).or(known) {
            return Ok(id);
        }
        match ids.first() {
            Some((_, first)) if ids.iter().any(|(_, id)| id != first) => {
                let ids: Vec<String> = ids.iter().map(|(member, id)| format!("{} {id:x}", member.name)).collect();
                Err(format!(
                    "the members have data of different clusters ({}), and there is no record here of which is `{}`; name the member to use with --through",
                    ids.join(", "),
                    self.cluster.name
                ))
            }
            first => Ok(first.map_or(0, |(_, id)| *id)),
        }
    }

    /// The member that has the most, or that was named, and how the others compare.
    fn choose<'a>(&self, found: &'a [(&'a Member, Found)]) -> Option<(&'a Member, String)> {
        let named = |member: &Member| self.module.through.as_ref().is_none_or(|name| *name == member.name);
        let fitting = found.iter().filter(|(member, found)| named(member) && found.rank().is_some());
        let (best, data) = fitting.rev().max_by_key(|(_, found)| found.rank())?;
        let (term, index) = data.rank()?;
        let compared = found.iter().filter(|(member, _)| member.name != best.name).map(|(member, found)| {
            let name = &member.name;
            match (found, found.rank()) {
                (_, Some((other, at))) if (other, at) == (term, index) => format!("{name} has the same"),
                (_, Some(other)) if other > (term, index) => format!("{name} HAS MORE"),
                (_, Some((other, at))) if other == term => format!("{name} lags {} entries", index - at),
                (_, Some(_)) => format!("{name} has an older log"),
                (Found::Unknown(_), _) => format!("the data of {name} is unknown"),
                (Found::Alien(_), _) => format!("{name} has data of another cluster"),
                _ => format!("{name} has nothing"),
            }
        });
        let compared: Vec<String> = compared.collect();
        Some((*best, if compared.is_empty() { "there is no other".to_owned() } else { compared.join(", ") }))
    }

    fn session(&self, context: &ActionContext, member: &Member) -> Result<Session, ActionError> {
        let session = context.reach.session(&member.name, &context.session);
        session.ok_or_else(|| ActionError::Failed(format!("`{}` is not in the inventory", member.name)))
    }

    async fn look_at(&self, context: &ActionContext, member: &Member) -> Result<Looked, String> {
        let session = self.session(context, member).map_err(|error| error.to_string())?;
        self.look(&session).await
    }

    pub(super) async fn look(&self, session: &Session) -> Result<Looked, String> {
        let outcome = timeout(ANSWER, session.run_one(self.payload("look"), false)).await;
        let outcome = outcome.map_err(|_| format!("its host did not answer within {ANSWER:?}"))?;
        let outcome = outcome.map_err(|error| error.to_string())?;
        if outcome.failed {
            return Err(outcome.msg);
        }
        let text = |name: &str| outcome.data.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let unfinished = text("unfinished").map(str::to_owned);
        let Some(log) = text("log") else { return Ok(Looked { left: None, unfinished }) };
        let mut tail = end_of(session, log).await?;
        if let Some(before) = text("before").filter(|_| tail.is_fresh) {
            let end = end_of(session, before).await?;
            (tail.term, tail.index) = (end.term, end.index);
        }
        let left = Left {
            log: base(log).to_owned(),
            tail,
            size: outcome.data.get("size").and_then(Value::as_u64).unwrap_or(0),
            written: text("written").unwrap_or("at a time that is not known").to_owned(),
            runs: outcome.data.get("runs").and_then(Value::as_bool).unwrap_or(false),
            revision: None,
        };
        Ok(Looked { left: Some(left), unfinished })
    }
}

fn way_out(cluster: &str, pulse: &Pulse) -> String {
    match pulse.serves() {
        true => format!("There is nothing to recover; `etcdrun status {cluster}` shows other problems"),
        false => "Together with others they may serve, and then there would be two clusters. Restore access to them; remove hosts that are lost for good from the inventory, or replace them; or continue anyway with --force".to_owned(),
    }
}

fn refused(msg: String) -> Outcome {
    Outcome { refused: true, ..Outcome::failed(msg) }
}

/// Where a log on a host ends.
async fn end_of(session: &Session, log: &str) -> Result<Tail, String> {
    let read = timeout(LOG, read_end(session, log)).await;
    read.unwrap_or_else(|_| Err(format!("its log {log} was not read within {LOG:?}")))
}

/// etcd begins another file after 64 MiB; one record, which can be as large as a request, may go beyond that.
const LOG_LIMIT: ByteSize = ByteSize(1 << 30);

/// It may change while it is read.
async fn read_end(session: &Session, log: &str) -> Result<Tail, String> {
    let mut why = String::new();
    for _ in 0..TRIES {
        let unreadable = || format!("its log {log} cannot be read");
        let mut reader = TailReader::new(base(log)).ok_or_else(unreadable)?;
        match session.download_up_to(log, &mut reader, LOG_LIMIT).await {
            Ok(outcome) if outcome.failed => return Err(outcome.msg),
            Ok(_) => return reader.tail().cloned().ok_or_else(unreadable),
            Err(error) => why = error.to_string(),
        }
    }
    Err(why)
}

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::support::cluster_args::ClusterArgs;

    fn salvage(through: Option<&str>) -> Salvage {
        let module = json!({
            "state": "looked", "data_dir": "/data", "user": "etcd", "environment": "/env", "through": through,
        });
        let members = ["a", "b", "c"].map(|name| json!({ "name": name, "ip": "192.0.2.1" }));
        let cluster: ClusterArgs = serde_json::from_value(json!({ "name": "prod", "members": members })).unwrap();
        Salvage { module: serde_json::from_value(module).unwrap(), cluster: cluster.known().unwrap() }
    }

    fn data(term: u64, index: u64, runs: bool) -> Found {
        let mut tail = Tail::default();
        (tail.term, tail.index, tail.cluster) = (term, index, 7);
        Found::Data(Box::new(Left { log: String::new(), tail, size: 0, written: String::new(), runs, revision: None }))
    }

    fn proposal(salvage: &Salvage, found: [Found; 3]) -> Outcome {
        let found: Vec<(&Member, Found)> = salvage.cluster.members.iter().zip(found).collect();
        let id = salvage.cluster_id(Some(7), &found).unwrap();
        let found: Vec<(&Member, Found)> = found.into_iter().map(|(member, found)| (member, found.only(id))).collect();
        salvage.propose(&Pulse::default(), 3, &found, Vec::new()).unwrap()
    }

    fn text(outcome: &Outcome, name: &str) -> String {
        outcome.data[name].as_str().unwrap_or_default().to_owned()
    }

    #[test]
    fn the_least_is_lost_with_the_highest_term_and_then_the_most_entries() {
        let salvage = salvage(None);
        let outcome = proposal(&salvage, [Found::Nothing, Found::Nothing, data(2, 9, true)]);
        assert_eq!((text(&outcome, "way"), text(&outcome, "best")), ("salvage".into(), "c".into()));
        // A longer log of an older term is worth less.
        let found = [data(2, 90, true), data(3, 5, true), data(3, 9, true)];
        let found: Vec<(&Member, Found)> = salvage.cluster.members.iter().zip(found).collect();
        let (best, rest) = salvage.choose(&found).unwrap();
        assert_eq!((best.name.as_str(), rest.as_str()), ("c", "a has an older log, b lags 4 entries"));
        let named = super::tests::salvage(Some("a"));
        let outcome = proposal(&named, [data(2, 90, true), data(3, 5, true), data(3, 9, false)]);
        assert_eq!((text(&outcome, "way"), text(&outcome, "best")), ("salvage".into(), "a".into()));
        assert!(text(&outcome, "proposal").contains("b HAS MORE, c HAS MORE"), "{}", text(&outcome, "proposal"));
    }

    #[test]
    fn a_majority_with_its_data_is_started_and_not_given_up() {
        let salvage = salvage(None);
        let outcome = proposal(&salvage, [data(2, 9, false), Found::Nothing, data(2, 12, true)]);
        assert_eq!((text(&outcome, "way"), &outcome.data["start"]), ("start".into(), &json!(["a"])));
        assert_eq!((text(&outcome, "best"), &outcome.data["majority"]), ("c".into(), &json!(2)));
        let outcome = proposal(&salvage, [data(2, 9, true), Found::Unknown("?".into()), data(2, 12, true)]);
        assert!(outcome.refused && outcome.msg.contains("there is no leader"), "{}", outcome.msg);
        // Data of another cluster makes no majority.
        let Found::Data(mut alien) = data(9, 99, false) else { unreachable!() };
        alien.tail.cluster = 8;
        let outcome = proposal(&salvage, [Found::Data(alien), Found::Nothing, data(2, 12, true)]);
        assert_eq!((text(&outcome, "way"), text(&outcome, "best")), ("salvage".into(), "c".into()));
    }

    #[test]
    fn whose_data_it_is_must_be_known() {
        let found = |ids: [u64; 2]| {
            ids.map(|id| match data(1, 1, false) {
                Found::Data(mut left) => {
                    left.tail.cluster = id;
                    Found::Data(left)
                }
                other => other,
            })
        };
        let ask = |salvage: &Salvage, known: Option<u64>, ids: [u64; 2]| {
            let found: Vec<(&Member, Found)> = salvage.cluster.members.iter().zip(found(ids)).collect();
            salvage.cluster_id(known, &found)
        };
        assert_eq!(ask(&salvage(None), None, [5, 5]), Ok(5));
        assert_eq!(ask(&salvage(None), Some(6), [5, 6]), Ok(6));
        assert_eq!(ask(&salvage(Some("a")), Some(6), [5, 6]), Ok(5));
        assert!(ask(&salvage(None), None, [5, 6]).is_err_and(|why| why.contains("different clusters (a 5, b 6)")));
    }
}
