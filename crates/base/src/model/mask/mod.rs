//! Keeps secrets out of everything that is shown or written down.
//!
//! One `Masker` goes with a whole invocation. Whoever opens a secret adds it; whoever shows or
//! records text asks for it masked: the `Emitter` for events, `cli` for problems and the log, and
//! whatever writes a journal. Values in memory stay as they are, since tasks need them.
//!
//! A secret is found in any of its `forms` (base64, escaped, ...), also inside longer text, across line
//! ends, as `base64` and `fold` put them, and with colour codes in it, as `grep --color` puts them: those
//! are taken out before text is shown, and the secret would be whole again. What a hash or a cipher made
//! of it is not found, nor need it be.

mod forms;
mod stream;

use std::{
    borrow::Cow,
    collections::BTreeSet,
    fmt,
    ops::{Bound, Range},
    sync::{Arc, PoisonError, RwLock},
};

use aho_corasick::AhoCorasick;
use zeroize::Zeroize;

pub use stream::MaskedStream;

use super::{Diff, Value, escape::escape_length};
use crate::mutant::{is_off, repair};

/// What stands where a secret was.
pub const MASK: &str = "<secret>";

/// A shorter secret is not masked: it would take half of every text with it.
pub const MIN_SECRET: usize = 4;

/// A shorter line of a secret file is not masked by itself: it says `done` or `else` more often than not.
const MIN_FILE_LINE: usize = 8;

/// What a line of an older file is replaced by, if that could hold an older secret.
const HIDDEN_LINE: &str = "<hidden: may be an older secret>\n";

/// All secrets of an invocation. Cheap to clone; clones share what was added.
#[derive(Clone, Default)]
pub struct Masker(Arc<RwLock<Known>>);

#[derive(Default)]
struct Known {
    patterns: Patterns,
    /// Made when it is needed, and anew after something was added.
    search: Option<Arc<Search>>,
}

/// The forms of all secrets, sorted, so that the start of one is found by looking beside it.
#[derive(Clone, Default)]
struct Patterns(BTreeSet<Vec<u8>>);

impl Drop for Patterns {
    fn drop(&mut self) {
        std::mem::take(&mut self.0).into_iter().for_each(|mut pattern| pattern.zeroize());
    }
}

impl Patterns {
    /// Whether a longer pattern starts like this.
    fn starts_with(&self, start: &[u8]) -> bool {
        let longer = self.0.range::<[u8], _>((Bound::Excluded(start), Bound::Unbounded)).next();
        longer.is_some_and(|pattern| pattern.starts_with(start))
    }
}

struct Search {
    automaton: Option<AhoCorasick>,
    patterns: Patterns,
    longest: usize,
}

impl fmt::Debug for Masker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Masker")
    }
}

impl Masker {
    /// Adds a secret value: as a whole, and line by line. False if it is too short to be masked.
    pub fn add(&self, secret: &str) -> bool {
        self.add_parts(secret, MIN_SECRET)
    }

    /// Adds the text of a secret file, such as a private key or a script.
    pub fn add_file(&self, text: &str) {
        self.add_parts(text, MIN_FILE_LINE);
    }

    fn add_parts(&self, secret: &str, shortest_line: usize) -> bool {
        let whole = secret.trim();
        if whole.chars().count() < MIN_SECRET {
            return false;
        }
        let lines = whole.lines().map(str::trim).filter(|line| line.chars().count() >= shortest_line);
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.patterns.0.contains(whole.as_bytes()) {
            return true;
        }
        for part in std::iter::once(whole).chain(lines) {
            // Short forms of short secrets would match everywhere; the secret itself is long enough.
            known.patterns.0.extend(forms::of(part).into_iter().filter(|form| form.len() >= MIN_SECRET));
        }
        known.search = None;
        true
    }

    /// The text without secrets.
    pub fn mask<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let Some(search) = self.search() else { return Cow::Borrowed(text) };
        let found = search.find(text.as_bytes());
        if found.is_empty() {
            return Cow::Borrowed(text);
        }
        // Forms may start or end inside a character only if the text is not what we think it is.
        let masked = replaced(text.as_bytes(), &found);
        Cow::Owned(String::from_utf8(masked).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into()))
    }

    pub fn mask_in_place(&self, text: &mut String) {
        if let Cow::Owned(masked) = self.mask(text) {
            *text = masked;
        }
    }

    /// A value without secrets: in texts, names and numbers, wherever they are nested.
    pub fn mask_value(&self, value: &mut Value) {
        if self.search().is_none() {
            return;
        }
        match value {
            Value::String(text) => self.mask_in_place(text),
            Value::Number(number) if self.is_in(number.to_string().as_bytes()) => *value = MASK.into(),
            Value::Array(items) => items.iter_mut().for_each(|item| self.mask_value(item)),
            Value::Object(map) => self.mask_map(map),
            _ => {}
        }
    }

    pub fn mask_map(&self, map: &mut super::ValueMap) {
        if self.search().is_none() {
            return;
        }
        let entries = std::mem::take(map);
        map.extend(entries.into_iter().map(|(mut name, mut value)| {
            self.mask_in_place(&mut name);
            self.mask_value(&mut value);
            (name, value)
        }));
    }

    /// A diff without secrets. Where a secret is written, a line that goes away may hold the secret
    /// that was there before, which nobody has told us.
    pub fn mask_diff(&self, diff: &mut Diff) {
        if self.is_in(diff.after.as_bytes()) {
            let kept: std::collections::HashSet<&str> = diff.after.lines().collect();
            let before = diff.before.split_inclusive('\n');
            diff.before = before.map(|line| if kept.contains(line.trim_end()) { line } else { HIDDEN_LINE }).collect();
        }
        [&mut diff.label, &mut diff.before, &mut diff.after].into_iter().for_each(|text| self.mask_in_place(text));
    }

    /// Whether there is nothing to hide so far.
    pub fn is_empty(&self) -> bool {
        self.search().is_none()
    }

    /// Whether a secret is in there, in any form.
    pub fn is_in(&self, bytes: &[u8]) -> bool {
        self.search().is_some_and(|search| !search.find(bytes).is_empty())
    }

    /// For text that comes in pieces.
    pub fn stream(&self) -> MaskedStream {
        MaskedStream::new(self.clone())
    }

    /// `None` while there is nothing to hide.
    fn search(&self) -> Option<Arc<Search>> {
        {
            let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
            if known.patterns.0.is_empty() {
                return None;
            }
            if let Some(search) = &known.search {
                return Some(search.clone());
            }
        }
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let patterns = known.patterns.clone();
        Some(known.search.get_or_insert_with(|| Arc::new(Search::new(patterns))).clone())
    }
}

impl Search {
    fn new(patterns: Patterns) -> Self {
        let longest = patterns.0.iter().map(Vec::len).max().unwrap_or(0);
        // Fails only beyond billions of bytes of patterns; then everything counts as secret.
        Self { automaton: AhoCorasick::new(&patterns.0).ok(), patterns, longest }
    }

    /// Where secrets are: sorted, apart from each other.
    fn find(&self, text: &[u8]) -> Vec<Range<usize>> {
        if is_off(repair::MASK) {
            return Vec::new();
        }
        let Some(automaton) = &self.automaton else { return std::iter::once(0..text.len()).collect() };
        let mut found: Vec<_> = automaton.find_overlapping_iter(text).map(|hit| hit.range()).collect();
        if (0..text.len()).any(|at| dropped_at(&text[at..]) > 0) && !is_off(repair::MASK_CODES) {
            let squeezed = Squeezed::new(text);
            let hits = automaton.find_overlapping_iter(&squeezed.text).map(|hit| hit.range());
            found.extend(hits.map(|hit| squeezed.place(hit.start)..squeezed.place(hit.end - 1) + 1));
        }
        merged(found)
    }

    /// Where the rest of the text begins that could be the start of a secret still to come.
    fn open_end(&self, text: &[u8]) -> usize {
        // Line ends and colour codes come on top of the secret's own length.
        let from = text.len().saturating_sub(2 * self.longest + ROOM_FOR_CODES);
        let whole = (from..text.len()).find(|&at| self.patterns.starts_with(&text[at..]));
        let squeezed = Squeezed::new(&text[from..]);
        let wrapped = (0..squeezed.text.len()).find(|&at| self.patterns.starts_with(&squeezed.text[at..]));
        let wrapped = wrapped.map(|at| from + squeezed.place(at));
        whole.into_iter().chain(wrapped).min().unwrap_or(text.len())
    }
}

/// A text without its line ends, control characters and escape sequences.
struct Squeezed {
    text: Vec<u8>,
    /// Where they were.
    removed: Vec<usize>,
}

impl Squeezed {
    fn new(text: &[u8]) -> Self {
        let (mut kept, mut removed) = (Vec::with_capacity(text.len()), Vec::new());
        let mut at = 0;
        while at < text.len() {
            let dropped = dropped_at(&text[at..]);
            removed.extend(at..at + dropped);
            if dropped == 0 {
                kept.push(text[at]);
            }
            at += dropped.max(1);
        }
        Self { text: kept, removed }
    }

    /// Where a byte stood before.
    fn place(&self, at: usize) -> usize {
        let (mut low, mut high) = (0, self.removed.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.removed[middle] - middle <= at { low = middle + 1 } else { high = middle }
        }
        at + low
    }
}

/// A few colour codes inside of one secret.
const ROOM_FOR_CODES: usize = 64;

/// How many bytes at the start of this are nothing that is shown: a control character, or a whole escape sequence.
fn dropped_at(text: &[u8]) -> usize {
    match (escape_length(text), text.first()) {
        (0, Some(byte)) if byte.is_ascii_control() && *byte != b'\t' => 1,
        (length, _) => length,
    }
}

fn merged(mut found: Vec<Range<usize>>) -> Vec<Range<usize>> {
    found.sort_by_key(|range| range.start);
    let mut apart: Vec<Range<usize>> = Vec::with_capacity(found.len());
    for range in found {
        match apart.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => apart.push(range),
        }
    }
    apart
}

fn replaced(text: &[u8], found: &[Range<usize>]) -> Vec<u8> {
    let mut masked = Vec::with_capacity(text.len());
    let mut at = 0;
    for range in found {
        masked.extend_from_slice(&text[at..range.start]);
        masked.extend_from_slice(MASK.as_bytes());
        at = range.end;
    }
    masked.extend_from_slice(&text[at..]);
    masked
}

#[cfg(test)]
mod tests;
