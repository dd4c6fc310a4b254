//! How fast something goes. A member that sends all its data has clients as well, who are to notice nothing.

use std::time::{Duration, Instant};

use crate::model::ByteSize;

/// Who was late may make up for so much; what woke up a little late would else never be as fast as it may.
const CREDIT: Duration = Duration::from_millis(50);

/// As fast as it can be, or so many bytes a second.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    rate: Option<u64>,
    next: Option<Instant>,
}

impl Pace {
    pub fn at_most(rate: Option<ByteSize>) -> Self {
        Self { rate: rate.map(|rate| rate.0.max(1)), next: None }
    }

    /// These bytes have gone by. Waits until more may.
    pub(super) async fn keep(&mut self, bytes: usize) {
        if let Some(next) = self.next(Instant::now(), bytes as u64) {
            tokio::time::sleep_until(next.into()).await;
        }
    }

    fn next(&mut self, now: Instant, bytes: u64) -> Option<Instant> {
        let nanoseconds = u128::from(bytes) * 1_000_000_000 / u128::from(self.rate?);
        let takes = Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
        let from = self.next.map_or(now, |next| next.max(now.checked_sub(CREDIT).unwrap_or(now)));
        self.next = Some(from + takes);
        self.next.filter(|next| *next > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;

    /// How long so many pieces take if each comes as soon as it may, or `late` after that.
    fn takes(pace: &mut Pace, begun: Instant, pieces: u32, late: Duration) -> Duration {
        let mut now = begun;
        for _ in 0..pieces {
            now = pace.next(now, MIB).unwrap_or(now) + late;
        }
        now - begun
    }

    #[test]
    fn it_is_as_fast_as_it_may_and_does_not_make_up_for_a_long_wait() {
        let mut pace = Pace::at_most(Some(ByteSize(64 * MIB)));
        let begun = Instant::now();
        assert_eq!(takes(&mut pace, begun, 64, Duration::ZERO), Duration::from_secs(1));
        // Who is woken a little late each time still gets through in time.
        let begun = begun + Duration::from_secs(1);
        let took = takes(&mut pace, begun, 64, Duration::from_millis(2));
        assert!(took < Duration::from_millis(1010), "{took:?}");
        let begun = begun + Duration::from_secs(60);
        let took = takes(&mut pace, begun, 64, Duration::ZERO);
        assert_eq!(took, Duration::from_secs(1) - CREDIT);
        assert_eq!(Pace::default().next(begun, 1 << 40), None);
    }
}
