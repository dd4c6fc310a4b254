//! Keeps events in a file beside what a person sees.

use std::{
    fs::File,
    io::{self, BufWriter, Write as _},
};

use super::Reporter;
use crate::model::{Event, EventKind};

/// Shows events, and writes them to a file as `--json` would print them, without live output.
pub struct Kept {
    file: Option<BufWriter<File>>,
    shown: Option<Box<dyn Reporter>>,
}

impl Kept {
    pub fn new(file: File, shown: Box<dyn Reporter>) -> Self {
        Self { file: Some(BufWriter::new(file)), shown: Some(shown) }
    }

    /// A file that cannot be written is given up: it is for looking back, and the journal is what counts.
    fn write(&mut self, work: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) {
        if self.file.as_mut().is_some_and(|file| work(file).is_err()) {
            self.file = None;
        }
    }

    /// A reader that is gone does not keep events from the file.
    fn show(&mut self, work: impl FnOnce(&mut dyn Reporter) -> io::Result<()>) {
        if self.shown.as_mut().is_some_and(|shown| work(shown.as_mut()).is_err()) {
            self.shown = None;
        }
    }
}

impl Reporter for Kept {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        self.show(|shown| shown.event(event));
        if matches!(event.kind, EventKind::NodeOutput { .. } | EventKind::NodeProgress { .. }) {
            return Ok(());
        }
        self.write(|file| {
            serde_json::to_writer(&mut *file, event)?;
            file.write_all(b"\n")
        });
        Ok(())
    }

    fn frame(&mut self) -> io::Result<()> {
        self.show(|shown| shown.frame());
        self.write(|file| file.flush());
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.show(|shown| shown.finish());
        self.write(|file| file.flush());
        Ok(())
    }
}
