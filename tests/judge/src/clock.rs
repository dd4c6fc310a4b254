//! Times of one history: nanoseconds since its start, which never go back.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

pub(crate) struct Clock {
    start: Instant,
    pub(crate) unix_milliseconds: i64,
}

impl Clock {
    pub(crate) fn start() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { start: Instant::now(), unix_milliseconds: i64::try_from(since.as_millis()).unwrap_or_default() }
    }

    pub(crate) fn now(&self) -> i64 {
        i64::try_from(self.start.elapsed().as_nanos()).unwrap_or(i64::MAX)
    }
}
