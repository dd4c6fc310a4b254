//! Clean lines: no control codes, nothing that moves. For pipes, files and `--plain`.

use std::io;

use super::{
    Detail, Look, Output, Reporter,
    lines::{Lines, Share},
};
use crate::model::Event;

#[derive(Debug)]
pub struct PlainReporter {
    lines: Lines,
    out: Output,
}

impl PlainReporter {
    pub fn new(look: Look, detail: Detail, out: Output) -> Self {
        Self { lines: Lines::new(look, detail, Share::Most), out }
    }
}

impl Reporter for PlainReporter {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        self.out.write(&self.lines.render(event))
    }
}
