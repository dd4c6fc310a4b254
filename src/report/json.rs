//! `--json`: one event a line, as documented in docs/events.md.

use std::io;

use super::{Output, Reporter};
use crate::model::Event;

#[derive(Debug)]
pub struct JsonReporter {
    out: Output,
}

impl JsonReporter {
    pub fn new(out: Output) -> Self {
        Self { out }
    }
}

impl Reporter for JsonReporter {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        let mut line = serde_json::to_string(event)?;
        line.push('\n');
        self.out.write(&line)
    }
}
