//! A bar for a file on its way, outside of runs.

use indicatif::{ProgressBar, ProgressStyle};

use super::{Look, sanitize};

/// Shows nothing where no person watches. It goes away with its value.
#[derive(Debug)]
pub struct TransferBar(Option<ProgressBar>);

impl TransferBar {
    pub fn new(look: Look, name: &str) -> Self {
        Self(look.live.then(|| ProgressBar::no_length().with_prefix(sanitize(name).into_owned())))
    }

    /// How many bytes are there, and of how many if that is known.
    pub fn show(&self, done: u64, total: Option<u64>) {
        let Some(bar) = &self.0 else { return };
        if bar.length() != total {
            let template = match total {
                Some(_) => "{prefix}  {bar:30} {bytes}/{total_bytes}  {bytes_per_sec}  ETA {eta}",
                None => "{prefix}  {bytes}  {bytes_per_sec}",
            };
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style.progress_chars("━━─"));
            }
            total.inspect(|total| bar.set_length(*total));
        }
        bar.set_position(done);
    }
}

impl Drop for TransferBar {
    fn drop(&mut self) {
        self.0.iter().for_each(ProgressBar::finish_and_clear);
    }
}
