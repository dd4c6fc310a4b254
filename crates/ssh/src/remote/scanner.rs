//! Splits what a runner writes into text and marker lines.

use bytes::{Buf, Bytes, BytesMut};

use super::script::Nonce;

/// Longer than any marker line we write; a longer one is somebody's text.
const MARKER_LIMIT: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Text(Bytes),
    /// A marker line without the nonce and the newline at its end.
    Marker(Bytes),
}

/// An incremental scanner for one stream.
///
/// A marker is `<nonce> WORD ...\n`, wherever it stands: also right behind text that ends without a
/// newline. How the stream is cut into chunks makes no difference.
pub(super) struct Scanner {
    needle: Vec<u8>,
    buffer: BytesMut,
}

impl Scanner {
    pub(super) fn new(nonce: &Nonce) -> Self {
        Self { needle: format!("{nonce} ").into_bytes(), buffer: BytesMut::new() }
    }

    pub(super) fn push(&mut self, chunk: &[u8]) {
        self.buffer.extend_from_slice(chunk);
    }

    /// How many bytes wait to be read.
    pub(super) fn waiting(&self) -> usize {
        self.buffer.len()
    }

    /// The next piece, or `None` until more is pushed.
    pub(super) fn next(&mut self) -> Option<Piece> {
        match self.find() {
            Found::Marker { line } => {
                self.buffer.advance(self.needle.len());
                let marker = self.buffer.split_to(line).freeze();
                self.buffer.advance(1);
                Some(Piece::Marker(marker))
            }
            Found::Text(length) if length > 0 => Some(Piece::Text(self.buffer.split_to(length).freeze())),
            Found::Text(_) => None,
        }
    }

    /// What is left when the stream ends: a marker that was never finished is text.
    pub(super) fn finish(&mut self) -> Bytes {
        self.buffer.split().freeze()
    }

    fn find(&self) -> Found {
        let mut from = 0;
        while let Some(first) = position(&self.buffer[from..], self.needle[0]) {
            let start = from + first;
            match self.judge(&self.buffer[start..]) {
                Verdict::Marker(line) if start == 0 => return Found::Marker { line },
                Verdict::Marker(_) | Verdict::Undecided => return Found::Text(start),
                Verdict::Text => from = start + 1,
            }
        }
        Found::Text(self.buffer.len())
    }

    fn judge(&self, candidate: &[u8]) -> Verdict {
        let Some(line) = candidate.strip_prefix(self.needle.as_slice()) else {
            return match self.needle.starts_with(candidate) {
                true => Verdict::Undecided,
                false => Verdict::Text,
            };
        };
        match position(&line[..line.len().min(MARKER_LIMIT)], b'\n') {
            Some(end) => Verdict::Marker(end),
            None if line.len() < MARKER_LIMIT => Verdict::Undecided,
            None => Verdict::Text,
        }
    }
}

enum Found {
    /// A marker stands at the front; its line has so many bytes.
    Marker { line: usize },
    /// So many bytes at the front are text; what follows is a marker or may become one.
    Text(usize),
}

enum Verdict {
    Marker(usize),
    Undecided,
    Text,
}

fn position(bytes: &[u8], wanted: u8) -> Option<usize> {
    bytes.iter().position(|&byte| byte == wanted)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scan(nonce: &Nonce, stream: &[u8], cuts: &[usize]) -> Vec<Piece> {
        let mut scanner = Scanner::new(nonce);
        let mut pieces: Vec<Piece> = Vec::new();
        let mut add = |piece: Piece| match (pieces.last_mut(), piece) {
            (Some(Piece::Text(before)), Piece::Text(more)) => *before = [&before[..], &more[..]].concat().into(),
            (_, piece) => pieces.push(piece),
        };
        let mut rest = stream;
        for cut in cuts.iter().cycle().take(stream.len() + 1) {
            let (chunk, tail) = rest.split_at((*cut).min(rest.len()));
            rest = tail;
            scanner.push(chunk);
            while let Some(piece) = scanner.next() {
                add(piece);
            }
        }
        scanner.push(rest);
        while let Some(piece) = scanner.next() {
            add(piece);
        }
        let left = scanner.finish();
        if !left.is_empty() {
            add(Piece::Text(left));
        }
        pieces
    }

    /// Text that looks as much like a marker as text can.
    fn hostile(nonce: &Nonce) -> impl Strategy<Value = Vec<u8>> + use<> {
        let nonce = nonce.to_string();
        let half = nonce[..nonce.len() / 2].to_owned();
        let word = prop_oneof![
            Just(b"\n".to_vec()),
            Just(b" end 0 0\n".to_vec()),
            Just(nonce.as_bytes()[..1].to_vec()),
            Just(half.clone().into_bytes()),
            Just(format!("{half}{nonce}\n").into_bytes()),
            Just(format!("{nonce}{nonce}.").into_bytes()),
            proptest::collection::vec(any::<u8>(), 0..8),
        ];
        proptest::collection::vec(word, 0..12).prop_map(|words| words.concat())
    }

    proptest! {
        #[test]
        fn text_and_markers_come_out_as_they_went_in(
            texts in proptest::collection::vec(hostile(&Nonce::fixed()), 1..6),
            cuts in proptest::collection::vec(1usize..20, 1..10),
        ) {
            let nonce = Nonce::fixed();
            let mut stream = Vec::new();
            let mut expected = Vec::new();
            for (number, text) in texts.iter().enumerate() {
                let text = [text.as_slice(), b"."].concat();
                stream.extend_from_slice(&text);
                expected.push(Piece::Text(text.into()));
                stream.extend_from_slice(format!("{nonce} word {number}\n").as_bytes());
                expected.push(Piece::Marker(format!("word {number}").into()));
            }
            prop_assert_eq!(scan(&nonce, &stream, &cuts), expected);
        }

        #[test]
        fn chunks_make_no_difference(
            text in hostile(&Nonce::fixed()),
            cuts in proptest::collection::vec(1usize..20, 1..10),
        ) {
            let nonce = Nonce::fixed();
            prop_assert_eq!(scan(&nonce, &text, &cuts), scan(&nonce, &text, &[usize::MAX]));
        }
    }

    #[test]
    fn a_line_too_long_for_a_marker_is_text() {
        let nonce = Nonce::fixed();
        let stream = format!("{nonce} {}\nrest", "x".repeat(MARKER_LIMIT)).into_bytes();
        assert_eq!(scan(&nonce, &stream, &[7]), [Piece::Text(stream.clone().into())]);
    }
}
