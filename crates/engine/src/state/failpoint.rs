//! Ends the process at a chosen record, so that tests can look at what a crash there leaves behind.

use std::env;

/// `PLACE:NUMBER`, where PLACE is `before` (nothing of the record is written), `torn` (half of it is),
/// `written` (all of it, not yet synced) or `after` (synced). Or `settled:STEP`: behind the first record that settles a step whose
/// name has this in it.
pub(super) const VARIABLE: &str = "ETCDRUN_TEST_DIE";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Before,
    Torn,
    Written,
    After,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failpoint {
    Record(Place, u64),
    Settled(String),
}

impl Failpoint {
    pub(super) fn from_environment() -> Option<Self> {
        let text = env::var(VARIABLE).ok()?;
        let (place, record) = text.split_once(':')?;
        let place = match place {
            "before" => Place::Before,
            "torn" => Place::Torn,
            "written" => Place::Written,
            "after" => Place::After,
            "settled" => return Some(Self::Settled(record.to_owned())),
            _ => return None,
        };
        Some(Self::Record(place, record.parse().ok()?))
    }

    /// Where in the writing of this record to die, if it is the one.
    pub(super) fn at(&self, number: u64, line: &[u8]) -> Option<Place> {
        match self {
            Self::Record(place, record) => (*record == number).then_some(*place),
            Self::Settled(step) => {
                let line = String::from_utf8_lossy(line);
                (line.contains("\"settled\"") && line.contains(step.as_str())).then_some(Place::After)
            }
        }
    }
}

/// As a power cut would: no destructor runs, no buffer is flushed.
pub(super) fn die() -> ! {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    std::process::abort()
}
