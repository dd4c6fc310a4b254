//! A key lives as long as its lease, and no longer.

use std::{collections::BTreeMap, time::Duration};

use super::{
    figures::Figures,
    violation::{Violation, ViolationKind, seconds},
};
use crate::{
    history::History,
    record::{LeaseRecord, LeaseStep},
};

const SECOND: i64 = Duration::from_secs(1).as_nanos() as i64;

/// A leader that does not know yet that there is a new one may acknowledge what the new one does not know.
fn slack(ttl: i64) -> i64 {
    (ttl / 5).max(SECOND)
}

/// So long a key may outlive a lease that nobody keeps alive, while the leader stays the same: a new one begins all leases anew.
fn patience(ttl: i64) -> i64 {
    4 * ttl + 30 * SECOND
}

pub(super) fn check(history: &History, figures: &mut Figures) -> Vec<Violation> {
    let mut lives: BTreeMap<(u32, &str), Life> = BTreeMap::new();
    let mut violations = Vec::new();
    for record in &history.leases {
        let life = lives.entry((record.epoch, &record.key)).or_default();
        violations.extend(life.add(record, figures));
    }
    violations
}

/// What is known of a lease and its key.
#[derive(Default)]
struct Life<'a> {
    ttl: i64,
    put: Option<&'a LeaseRecord>,
    /// Of the leader at that time.
    term: u64,
    /// The last acknowledgement that the lease lives.
    kept: Option<&'a LeaseRecord>,
    /// From here on it may be revoked.
    revoking: Option<&'a LeaseRecord>,
    revoked: Option<&'a LeaseRecord>,
    left: Option<&'a LeaseRecord>,
    has_expired: bool,
    /// Since it was left to expire, the first read of those in a row that found the key under the same leader.
    alive_since: Option<(u64, &'a LeaseRecord)>,
    has_outlived: bool,
}

impl<'a> Life<'a> {
    fn add(&mut self, record: &'a LeaseRecord, figures: &mut Figures) -> Option<Violation> {
        match record.step {
            LeaseStep::Granted { ttl_seconds } => {
                (self.ttl, self.kept) = (ttl_seconds * SECOND, Some(record));
                figures.leases.granted += 1;
            }
            LeaseStep::Put { raft_term, .. } => (self.put, self.term) = (Some(record), raft_term),
            LeaseStep::Kept => self.kept = Some(record),
            LeaseStep::Left => self.left = Some(record),
            LeaseStep::Revoking => self.revoking = Some(record),
            LeaseStep::Revoked => self.revoked = Some(record),
            LeaseStep::Read { present: false, raft_term, .. } => return self.read_absent(record, raft_term, figures),
            LeaseStep::Read { present: true, raft_term, .. } => return self.read_present(record, raft_term, figures),
        }
        None
    }

    /// The renewal happened after its call, so the lease lives for its whole time from there.
    fn must_be_there(&self, read: &LeaseRecord) -> bool {
        let is_put = self.put.is_some_and(|put| put.returned < read.called);
        let is_kept = self.kept.is_some_and(|kept| read.returned + slack(self.ttl) <= kept.called + self.ttl);
        is_put && is_kept && self.revoking.is_none()
    }

    fn must_be_gone(&self, read: &LeaseRecord) -> bool {
        self.revoked.is_some_and(|revoked| revoked.returned < read.called)
    }

    fn read_absent(&mut self, read: &'a LeaseRecord, term: u64, figures: &mut Figures) -> Option<Violation> {
        figures.leases.reads_after_revoke += usize::from(self.must_be_gone(read));
        if self.left.is_some() && !self.has_expired {
            self.has_expired = true;
            figures.leases.expired += 1;
        }
        if !self.must_be_there(read) {
            return None;
        }
        figures.leases.reads_while_kept += 1;
        let kept = self.kept?;
        let (kind, leader) = if term == self.term {
            (ViolationKind::LeaseKeyVanished, "The leader stayed the same.")
        } else {
            (ViolationKind::LeaseKeyVanishedAfterLeaderChange, "There was a new leader meanwhile.")
        };
        let sentence = format!(
            "{} was gone at {}, though its lease of {} s was acknowledged to live at {}. {leader}",
            read.key,
            seconds(read.called),
            self.ttl / SECOND,
            seconds(kept.called)
        );
        Some(violation(kind, sentence, self.put.into_iter().chain([kept, read])))
    }

    fn read_present(&mut self, read: &'a LeaseRecord, term: u64, figures: &mut Figures) -> Option<Violation> {
        figures.leases.reads_while_kept += usize::from(self.must_be_there(read));
        if self.must_be_gone(read) {
            figures.leases.reads_after_revoke += 1;
            let at = (seconds(read.called), seconds(self.revoked?.returned));
            let sentence = format!("{} was there at {}, though its lease was revoked at {}.", read.key, at.0, at.1);
            return Some(violation(
                ViolationKind::LeaseKeyAfterRevoke,
                sentence,
                self.revoked.into_iter().chain([read]),
            ));
        }
        let left = self.left?;
        let (_, first) = self.alive_since.filter(|(before, _)| *before == term).unwrap_or((term, read));
        self.alive_since = Some((term, first));
        let has_outlived = read.called - first.returned > patience(self.ttl);
        if !has_outlived || std::mem::replace(&mut self.has_outlived, true) {
            return None;
        }
        let sentence = format!(
            "{} was still there at {}, though nobody kept its lease of {} s alive after {}, with the same leader since {}.",
            read.key,
            seconds(read.called),
            self.ttl / SECOND,
            seconds(left.called),
            seconds(first.returned)
        );
        Some(violation(ViolationKind::LeaseKeyOutlivedLease, sentence, [left, first, read]))
    }
}

fn violation<'a>(
    kind: ViolationKind,
    sentence: String,
    records: impl IntoIterator<Item = &'a LeaseRecord>,
) -> Violation {
    let violation = Violation::new(kind, sentence).with_leases(records);
    let (epoch, key) = (violation.leases.first().map(|record| record.epoch), violation.leases.first());
    let key = key.map(|record| record.key.clone());
    Violation { epoch, key, ..violation }
}
