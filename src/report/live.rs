//! Live output of running commands, by whole lines.

use std::{
    collections::{HashMap, HashSet},
    fmt::Write,
    sync::Arc,
};

use super::{Look, Tone, sanitize};
use crate::model::NodeInfo;

/// Pieces of output, on their way to being lines.
#[derive(Debug, Default)]
pub(super) struct Live {
    /// Nodes that have said something already.
    heard: HashSet<Arc<str>>,
    /// Output of which the end of the line has not come yet; by node, `true` for standard error.
    partial: HashMap<(Arc<str>, bool), String>,
}

impl Live {
    /// Takes a piece, and returns the lines that are whole now.
    pub(super) fn add(&mut self, node: &NodeInfo, stderr: bool, piece: &str, look: &Look) -> String {
        self.heard.insert(node.id.clone());
        let partial = self.partial.entry((node.id.clone(), stderr)).or_default();
        partial.push_str(piece);
        let Some(end) = partial.rfind('\n') else { return String::new() };
        let rest = partial.split_off(end + 1);
        let whole = std::mem::replace(partial, rest);
        prefixed(node, stderr, &whole, look)
    }

    /// What a node said without a line end before it ended.
    pub(super) fn rest(&mut self, node: &NodeInfo, look: &Look) -> String {
        let mut rest = |stderr| self.partial.remove(&(node.id.clone(), stderr)).unwrap_or_default();
        let (output, errors) = (rest(false), rest(true));
        prefixed(node, false, &output, look) + &prefixed(node, true, &errors, look)
    }

    /// Whether the node's output was shown while it ran; forgets the node.
    pub(super) fn forget(&mut self, node: &NodeInfo) -> bool {
        self.heard.remove(&node.id)
    }
}

fn prefixed(node: &NodeInfo, stderr: bool, output: &str, look: &Look) -> String {
    let tone = if stderr { Tone::Warning } else { Tone::Quiet };
    let mut text = String::new();
    for line in sanitize(output).lines() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{} {line}", look.paint(tone, format!("{} |", node.host)));
    }
    text
}
