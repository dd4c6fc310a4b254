//! Small edits to a template's text before it is compiled, and the way back to the original offsets.
//!
//! Strict mode refuses `a.b` when `a` is undefined, even in `a.b | default(1)` and `a.b is defined`,
//! which people rely on. There, and only there, `.b` is rewritten to a filter that forgives.

/// The filter that looks up a key or gives undefined.
pub(super) const FORGIVING_LOOKUP: &str = "__lookup";

/// A range of the original text and what stands there instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Edit {
    pub start: usize,
    pub end: usize,
    pub replacement: String,
}

/// An edited text that remembers where its parts came from.
#[derive(Clone, Debug)]
pub(super) struct Rewritten {
    pub text: String,
    edits: Vec<Edit>,
}

impl Rewritten {
    pub fn new(original: &str, mut edits: Vec<Edit>) -> Self {
        edits.sort_by_key(|edit| edit.start);
        edits.dedup();
        let mut text = String::with_capacity(original.len() + edits.len() * 16);
        let mut copied = 0;
        for edit in &edits {
            text.push_str(original.get(copied..edit.start).unwrap_or(""));
            text.push_str(&edit.replacement);
            copied = edit.end;
        }
        text.push_str(original.get(copied..).unwrap_or(""));
        Self { text, edits }
    }

    /// The offset in the original text for one in the edited text.
    pub fn original_offset(&self, offset: usize) -> usize {
        let (mut original, mut edited) = (0, 0);
        for edit in &self.edits {
            let kept = edit.start - original;
            if offset < edited + kept {
                break;
            }
            (original, edited) = (edit.start, edited + kept);
            if offset < edited + edit.replacement.len() {
                return original;
            }
            (original, edited) = (edit.end, edited + edit.replacement.len());
        }
        original + offset.saturating_sub(edited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_lead_back() {
        let edits = vec![
            Edit { start: 5, end: 6, replacement: "LONGER".into() },
            Edit { start: 1, end: 3, replacement: "-".into() },
        ];
        let rewritten = Rewritten::new("abcdefgh", edits);
        assert_eq!(rewritten.text, "a-deLONGERgh");
        let back: Vec<_> = (0..=rewritten.text.len()).map(|n| rewritten.original_offset(n)).collect();
        assert_eq!(back, [0, 1, 3, 4, 5, 5, 5, 5, 5, 5, 6, 7, 8]);
    }
}
