//! Members join as learners, one at a time, and voters come and go one by one.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::violation::{Violation, ViolationKind, seconds};
use crate::{
    history::History,
    record::{Member, MembersRecord},
};

/// Between lists that are further apart, voters may have changed more than once.
const STEP: i64 = Duration::from_millis(400).as_nanos() as i64;
/// Between lists that are further apart, a member may have been a learner.
const LEARNING: i64 = Duration::from_secs(2).as_nanos() as i64;

pub(super) fn check(history: &History) -> Vec<Violation> {
    let mut clusters: BTreeMap<u32, Membership> = BTreeMap::new();
    let mut violations = Vec::new();
    for record in &history.members {
        violations.extend(clusters.entry(record.epoch).or_default().add(record));
    }
    violations
}

/// What is known of the members in one epoch.
#[derive(Default)]
struct Membership<'a> {
    lists: BTreeSet<&'a [Member]>,
    ids: BTreeSet<u64>,
    /// The last new list, and those that came back since, the latest last. A list that comes back is an old answer, or a
    /// change was undone; the lists do not tell, so each of them may be the one before the next new list.
    before: Vec<Seen<'a>>,
}

struct Seen<'a> {
    record: &'a MembersRecord,
    /// The end of the last answer that had it.
    until: i64,
}

impl<'a> Membership<'a> {
    fn add(&mut self, record: &'a MembersRecord) -> Vec<Violation> {
        if let Some((last, previous)) = self.before.last_mut().zip(record.previous) {
            last.until = previous;
        }
        let seen = Seen { record, until: record.returned };
        if !self.lists.insert(&record.members) {
            self.before.retain(|seen| seen.record.members != record.members);
            self.before.push(seen);
            return Vec::new();
        }
        let violations = [self.many_voters(record), self.sudden_voters(record), many_learners(record)];
        self.ids.extend(record.members.iter().map(|member| member.id));
        self.before = vec![seen];
        violations.into_iter().flatten().collect()
    }

    fn many_voters(&self, record: &MembersRecord) -> Option<Violation> {
        let last = self.before.last()?;
        let now = voters(record);
        let is_more_than_one = |seen: &Seen| {
            let before = voters(seen.record);
            let is_learner = |id: &u64| seen.record.members.iter().any(|member| member.id == *id && member.is_learner);
            // A learner that gets its vote, and a member that goes for it, may be 150 ms apart. etcd changes one voter at a time, and
            // refuses the second if the first is not through.
            let (gone, new) = (before.difference(&now).count(), now.difference(&before).collect::<Vec<_>>());
            gone + new.len() > 1 && !(gone == 1 && new.len() == 1 && new.into_iter().all(is_learner))
        };
        if !self.before.iter().all(|seen| seen.is_within(STEP, record) && is_more_than_one(seen)) {
            return None;
        }
        let sentence = format!(
            "More than one voter changed between {} and {}: the voters were {}, and then {}.",
            seconds(last.until),
            seconds(record.returned),
            names(last.record, |member| !member.is_learner),
            names(record, |member| !member.is_learner)
        );
        Some(violation(ViolationKind::VotersNotOneByOne, sentence, [last.record, record]))
    }

    fn sudden_voters(&self, record: &MembersRecord) -> Option<Violation> {
        let last = self.before.last()?;
        let is_sudden = |member: &Member| !member.is_learner && !self.ids.contains(&member.id);
        let may_have_learned = self.before.iter().any(|seen| !seen.is_within(LEARNING, record));
        if may_have_learned || !record.members.iter().any(is_sudden) {
            return None;
        }
        let sentence = format!(
            "{} had a vote at {}, but was no learner before, and no member at all at {}.",
            names(record, is_sudden),
            seconds(record.returned),
            seconds(last.until)
        );
        Some(violation(ViolationKind::VoterWasNoLearner, sentence, [last.record, record]))
    }
}

impl Seen<'_> {
    fn is_within(&self, time: i64, record: &MembersRecord) -> bool {
        record.returned - self.until <= time
    }
}

fn many_learners(record: &MembersRecord) -> Option<Violation> {
    if record.members.iter().filter(|member| member.is_learner).count() < 2 {
        return None;
    }
    let learners = names(record, |member| member.is_learner);
    let sentence = format!("There was more than one learner at {}: {learners}.", seconds(record.returned));
    Some(violation(ViolationKind::TwoLearners, sentence, [record]))
}

fn voters(record: &MembersRecord) -> BTreeSet<u64> {
    record.members.iter().filter(|member| !member.is_learner).map(|member| member.id).collect()
}

/// A member that has not started has no name, and names are no proof: the id of a replaced member is another one.
fn names(record: &MembersRecord, is_meant: impl Fn(&Member) -> bool) -> String {
    let name = |member: &Member| match member.name.as_str() {
        "" => format!("{:x}", member.id),
        name => format!("{name} ({:x})", member.id),
    };
    let names: Vec<String> = record.members.iter().filter(|member| is_meant(member)).map(name).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn violation<'a>(
    kind: ViolationKind,
    sentence: String,
    records: impl IntoIterator<Item = &'a MembersRecord>,
) -> Violation {
    let violation = Violation::new(kind, sentence).with_members(records);
    let epoch = violation.members.last().map(|record| record.epoch);
    Violation { epoch, ..violation }
}
