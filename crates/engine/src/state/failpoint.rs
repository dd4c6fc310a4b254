//! Ends the process at a chosen record, so that tests can look at what a crash there leaves behind.

use std::env;

/// `PLACE:NUMBER`, where PLACE is `before` (nothing of the record is written), `torn` (half of it is),
/// `written` (all of it, not yet synced) or `after` (synced).
pub(super) const VARIABLE: &str = "ETCDRUN_TEST_DIE";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Before,
    Torn,
    Written,
    After,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failpoint {
    pub(super) place: Place,
    pub(super) record: u64,
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
            _ => return None,
        };
        Some(Self { place, record: record.parse().ok()? })
    }
}

/// As a power cut would: no destructor runs, no buffer is flushed.
pub(super) fn die() -> ! {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    std::process::abort()
}
