//! The times in which no write was acknowledged to anybody.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{history::History, record::LeaseStep};

/// Gaps longer than this are listed.
const LISTED: i64 = Duration::from_secs(1).as_nanos() as i64;

/// From one acknowledged write to the next. Pauses end a gap, and the next one begins after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// In nanoseconds since the start of the history.
    pub from: i64,
    /// Until now, if it has not ended.
    pub until: i64,
    pub from_unix_milliseconds: i64,
    pub until_unix_milliseconds: i64,
    pub has_ended: bool,
}

impl Gap {
    pub fn length(&self) -> Duration {
        Duration::from_nanos(u64::try_from(self.until - self.from).unwrap_or_default())
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gaps {
    pub longest: Option<Gap>,
    /// All that are longer than a second.
    pub list: Vec<Gap>,
}

/// Is told of acknowledged writes and pauses.
pub(crate) struct Availability {
    started_unix_milliseconds: i64,
    /// The last acknowledged write; none while the clients are paused.
    since: Option<i64>,
    gaps: Gaps,
}

impl Availability {
    pub(crate) fn new(started_unix_milliseconds: i64) -> Self {
        Self { started_unix_milliseconds, since: Some(0), gaps: Gaps::default() }
    }

    pub(crate) fn acknowledged(&mut self, at: i64) {
        if let Some(since) = self.since
            && since < at
        {
            let gap = self.gap(since, at, true);
            self.gaps.add(gap);
            self.since = Some(at);
        }
    }

    pub(crate) fn paused(&mut self, at: i64) {
        self.acknowledged(at);
        self.since = None;
    }

    pub(crate) fn resumed(&mut self, at: i64) {
        self.since = Some(at);
    }

    /// The gaps so far, with the one that has not ended.
    pub(crate) fn gaps(&self, now: i64) -> Gaps {
        let mut gaps = self.gaps.clone();
        if let Some(since) = self.since.filter(|since| *since < now) {
            gaps.add(self.gap(since, now, false));
        }
        gaps
    }

    fn gap(&self, from: i64, until: i64, has_ended: bool) -> Gap {
        let unix = |at: i64| self.started_unix_milliseconds + at / 1_000_000;
        Gap { from, until, from_unix_milliseconds: unix(from), until_unix_milliseconds: unix(until), has_ended }
    }
}

impl Gaps {
    fn add(&mut self, gap: Gap) {
        if self.longest.is_none_or(|longest| longest.length() < gap.length()) {
            self.longest = Some(gap);
        }
        if gap.until - gap.from > LISTED {
            self.list.push(gap);
        }
    }
}

/// The same, from a history.
pub(crate) fn of(history: &History) -> Gaps {
    enum Moment {
        Acknowledged,
        Paused,
        Resumed,
    }
    let operations = history.operations.iter().filter(|operation| operation.request.kind.is_write());
    let written = operations.filter(|operation| operation.answer().is_some()).map(|operation| operation.returned);
    let leases = history.leases.iter().filter(|record| matches!(record.step, LeaseStep::Put { .. }));
    let mut moments: Vec<(i64, Moment)> =
        written.chain(leases.map(|record| record.returned)).map(|at| (at, Moment::Acknowledged)).collect();
    for pause in &history.pauses {
        moments.push((pause.from, Moment::Paused));
        moments.extend(pause.until.map(|until| (until, Moment::Resumed)));
    }
    moments.sort_by_key(|(at, _)| *at);
    let mut availability = Availability::new(history.start.unix_milliseconds);
    for (at, moment) in moments {
        match moment {
            Moment::Acknowledged => availability.acknowledged(at),
            Moment::Paused => availability.paused(at),
            Moment::Resumed => availability.resumed(at),
        }
    }
    availability.gaps(history.until)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn gaps_are_between_acknowledged_writes() {
        let mut availability = Availability::new(1_000);
        availability.acknowledged(SECOND / 2);
        availability.acknowledged(3 * SECOND);
        availability.acknowledged(3 * SECOND + 1);
        let gaps = availability.gaps(3 * SECOND + 2);
        assert_eq!(gaps.list.len(), 1);
        assert_eq!(gaps.longest, Some(gaps.list[0]));
        assert_eq!(gaps.list[0].length(), Duration::from_millis(2_500));
        assert_eq!((gaps.list[0].from_unix_milliseconds, gaps.list[0].until_unix_milliseconds), (1_500, 4_000));
    }

    #[test]
    fn a_gap_that_has_not_ended_counts() {
        let mut availability = Availability::new(0);
        availability.acknowledged(SECOND);
        let gaps = availability.gaps(6 * SECOND);
        assert_eq!(gaps.list.len(), 1);
        assert!(!gaps.list[0].has_ended);
    }

    #[test]
    fn pauses_do_not_count() {
        let mut availability = Availability::new(0);
        availability.acknowledged(1);
        availability.paused(SECOND / 2);
        availability.resumed(60 * SECOND);
        availability.acknowledged(60 * SECOND + SECOND / 2);
        assert_eq!(availability.gaps(61 * SECOND).list, []);
    }
}
