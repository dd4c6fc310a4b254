//! The stream that reporters write to.

use std::io::{self, Write, stdout};

/// Where lines go. Whole lines at a time, so that two writers never mix within one.
pub struct Output {
    sink: Box<dyn Write + Send>,
}

impl Output {
    pub fn stdout() -> Self {
        Self { sink: Box::new(stdout()) }
    }

    pub fn to(sink: impl Write + Send + 'static) -> Self {
        Self { sink: Box::new(sink) }
    }

    /// Writes text as it is and flushes, so that a reader sees it when it happens.
    pub fn write(&mut self, text: &str) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        self.sink.write_all(text.as_bytes())?;
        self.sink.flush()
    }
}

impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Output")
    }
}
