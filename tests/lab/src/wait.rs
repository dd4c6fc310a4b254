//! Waiting for a condition, never for a time.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};

/// Asks until the answer is there; fails with what was awaited when the time is over.
pub fn until<T>(what: &str, limit: Duration, mut ask: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let start = Instant::now();
    // Some questions start a process; asked all the time, they would keep what is awaited from the processors.
    let mut pause = Duration::from_millis(20);
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        if start.elapsed() > limit {
            bail!("waited {} s in vain until {what}", limit.as_secs());
        }
        thread::sleep(pause);
        pause = (pause * 5 / 4).min(Duration::from_millis(100));
    }
}
