//! Escape sequences, as terminals obey them (ECMA-48).

use crate::mutant::{is_off, repair};

const ESCAPE: u8 = 0x1b;
const BELL: u8 = 0x07;
/// U+009B in UTF-8: an escape and a bracket in one character.
const CONTROL_SEQUENCE: [u8; 2] = [0xc2, 0x9b];

/// The length of the escape sequence that the text begins with; 0 if it begins with anything else. One that is cut short by the
/// end of the text counts as far as it goes.
pub fn escape_length(text: &[u8]) -> usize {
    match text {
        [ESCAPE, b'[', ..] => 2 + control_length(&text[2..]),
        [ESCAPE, b']' | b'P' | b'X' | b'^' | b'_', ..] => string_length(text).unwrap_or(1),
        [ESCAPE, ..] => 1 + short_length(&text[1..]),
        _ if text.starts_with(&CONTROL_SEQUENCE) => 2 + control_length(&text[2..]),
        _ => 0,
    }
}

/// The text without escape sequences.
pub fn without_escapes(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut kept = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match escape_length(&bytes[at..]) {
            0 => {
                kept.push(bytes[at]);
                at += 1;
            }
            length => at += length,
        }
    }
    // Sequences are made of whole characters, so what is left is as well.
    String::from_utf8_lossy(&kept).into_owned()
}

/// Text from a host that must stay on the line that it is put on: a line of its own would pass for ours. No control character and
/// no escape sequence is left in it.
pub fn one_line(text: &str) -> String {
    if is_off(repair::ONE_LINE) {
        return text.to_owned();
    }
    let is_break = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    let text = without_escapes(text);
    text.split(is_break).map(str::trim).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

fn count(text: &[u8], is_part: impl Fn(u8) -> bool) -> usize {
    text.iter().take_while(|byte| is_part(**byte)).count()
}

/// Parameters, intermediates and one final byte.
fn control_length(text: &[u8]) -> usize {
    let parameters = count(text, |byte| matches!(byte, b'0'..=b'?'));
    let middle = parameters + count(&text[parameters..], |byte| matches!(byte, b' '..=b'/'));
    middle + usize::from(matches!(text.get(middle), Some(b'@'..=b'~')))
}

/// Intermediates and one final byte, as in `ESC ( B`.
fn short_length(text: &[u8]) -> usize {
    let middle = count(text, |byte| matches!(byte, b' '..=b'/'));
    middle + usize::from(matches!(text.get(middle), Some(b'0'..=b'~')))
}

/// A title or the like, up to its end; nothing if that is not on the same line.
fn string_length(text: &[u8]) -> Option<usize> {
    let inside = 2 + count(&text[2..], |byte| !matches!(byte, ESCAPE | BELL | b'\n'));
    match text[inside..] {
        [BELL, ..] => Some(inside + 1),
        [ESCAPE, b'\\', ..] => Some(inside + 2),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sequences_go_and_text_stays() {
        for (text, left) in [
            ("\x1b[01;31m\x1b[Kred\x1b[m\x1b[K", "red"),
            ("\u{9b}31mred\u{9b}0m", "red"),
            ("\x1b]0;title\x07text\x1b]8;;x\x1b\\link", "textlink"),
            ("\x1b(Bplain\x1b=\x1b[?25l\x1b[2 q", "plain"),
            ("cut\x1b[3", "cut"),
            ("\x1b]never ends", "]never ends"),
            ("plain \u{e4}\u{2713}", "plain \u{e4}\u{2713}"),
        ] {
            assert_eq!(without_escapes(text).replace('\x1b', ""), left, "{text:?}");
        }
    }

    #[test]
    fn what_belongs_on_a_line_stays_there() {
        assert_eq!(one_line("etcd.service\n  ! all is \x1b[2Jwell\r\n"), "etcd.service ! all is well");
        assert_eq!(one_line("plain text"), "plain text");
    }

    proptest! {
        #[test]
        fn no_control_character_is_left(text in any::<String>()) {
            prop_assert!(!one_line(&text).contains(char::is_control));
        }

        #[test]
        fn no_length_is_beyond_the_text(text in any::<Vec<u8>>(), lead in prop::sample::select(vec!["", "\x1b", "\x1b[", "\u{9b}"])) {
            let whole = [lead.as_bytes(), &text].concat();
            prop_assert!(escape_length(&whole) <= whole.len());
        }
    }
}
