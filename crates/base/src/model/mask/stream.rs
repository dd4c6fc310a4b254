//! Masks text that comes in pieces: a secret may begin in one piece and end in the next.

use super::{MASK, MIN_SECRET, Masker, replaced};

/// One stream of output. What could be the start of a secret is held back until more comes.
#[derive(Debug)]
pub struct MaskedStream {
    masker: Masker,
    held: Vec<u8>,
}

impl MaskedStream {
    pub(super) fn new(masker: Masker) -> Self {
        Self { masker, held: Vec::new() }
    }

    /// Takes a piece; returns what can be shown by now. Whole characters, even if the piece had none.
    pub fn push(&mut self, piece: &[u8]) -> String {
        self.held.extend_from_slice(piece);
        let end = whole_characters(&self.held);
        let Some(search) = self.masker.search() else { return self.release(end, &[]) };
        let found = search.find(&self.held);
        let open = search.open_end(&self.held).min(end);
        // A secret that ends where another may begin is shown, masked, once that is settled.
        let end = found.iter().find(|range| range.contains(&open)).map_or(open, |range| range.start);
        let found: Vec<_> = found.into_iter().filter(|range| range.end <= end).collect();
        self.release(end, &found)
    }

    /// The rest. If it is the start of a secret, the output was cut there, and it is not shown.
    pub fn finish(&mut self) -> String {
        let held = std::mem::take(&mut self.held);
        let Some(search) = self.masker.search() else { return text(&held) };
        let masked = replaced(&held, &search.find(&held));
        let open = search.open_end(&masked);
        match masked.len() - open {
            MIN_SECRET.. => text(&masked[..open]) + MASK,
            _ => text(&masked),
        }
    }

    fn release(&mut self, end: usize, found: &[std::ops::Range<usize>]) -> String {
        let shown: Vec<u8> = self.held.drain(..end).collect();
        text(&replaced(&shown, found))
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Up to where the bytes are not the beginning of a character.
fn whole_characters(bytes: &[u8]) -> usize {
    let from = bytes.len().saturating_sub(3);
    let starts = |at: &usize| bytes[*at] & 0b1100_0000 == 0b1100_0000;
    match (from..bytes.len()).rev().find(starts) {
        Some(at) if std::str::from_utf8(&bytes[at..]).is_err_and(|error| error.error_len().is_none()) => at,
        _ => bytes.len(),
    }
}
