//! Text on its way to a terminal.

use std::borrow::Cow;

use super::{Look, look::PAINT};
use crate::model::without_escapes;

/// Makes text from a host safe to print: it must not move our cursor or colour our screen.
pub fn sanitize(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let text = without_escapes(text);
    // A carriage return is how progress meters overwrite a line; keep what they ended with.
    let lines = text.split('\n').map(|line| line.trim_end_matches('\r').rsplit('\r').next().unwrap_or(""));
    let joined = lines.collect::<Vec<_>>().join("\n");
    Cow::Owned(joined.chars().map(|c| if is_unsafe(c) { '\u{fffd}' } else { c }).collect())
}

fn is_unsafe(c: char) -> bool {
    c.is_control() && c != '\n' && c != '\t'
}

/// What a command prints. With colours, those of `Look` stay; nothing else that a terminal obeys does.
pub fn sanitize_painted<'t>(text: &'t str, look: &Look) -> Cow<'t, str> {
    if !look.color || !text.contains(is_unsafe) {
        return sanitize(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((at, code)) = next_paint(rest) {
        out += &sanitize(&rest[..at]);
        out += code;
        rest = &rest[at + code.len()..];
    }
    Cow::Owned(out + &sanitize(rest))
}

/// Where our own next colour begins, and which one it is.
fn next_paint(text: &str) -> Option<(usize, &'static str)> {
    text.match_indices('\x1b').find_map(|(at, _)| {
        let code = PAINT.iter().find(|code| text[at..].starts_with(**code))?;
        Some((at, *code))
    })
}

/// JSON has control characters only inside of strings. Those that its writer leaves as they are, terminals may obey.
pub fn sanitize_json(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let escape = |c: char| if is_unsafe(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
    Cow::Owned(text.chars().map(escape).collect())
}

/// As many bytes, so that places in the text stay true.
pub(super) fn sanitize_in_place(text: &str) -> String {
    let harmless = |c: char| match c.len_utf8() {
        _ if !is_unsafe(c) => c,
        1 => ' ',
        _ => '\u{b7}',
    };
    text.chars().map(harmless).collect()
}

/// A duration as a person says it.
pub(super) fn duration(seconds: f64) -> String {
    // A duration is never negative; a clock that was set back must not look as if it were.
    let seconds = seconds.max(0.0);
    if seconds < 9.95 {
        return format!("{seconds:.1}s");
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "A float cast saturates.")]
    let whole = seconds.round() as u64;
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, 0, seconds) => format!("{seconds}s"),
        (0, minutes, seconds) => format!("{minutes}m{seconds:02}s"),
        (hours, minutes, _) => format!("{hours}h{minutes:02}m"),
    }
}

/// `1 task`, `2 tasks`.
pub(super) fn count(number: usize, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ => format!("{number} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn remote_text_cannot_touch_the_terminal() {
        assert_eq!(sanitize("plain\ttext\n"), "plain\ttext\n");
        assert_eq!(sanitize("\x1b[31mred\x1b[0m"), "red");
        assert_eq!(sanitize("10%\r50%\r100%\nnext\r\n"), "100%\nnext\n");
        assert_eq!(sanitize("bell\x07"), "bell\u{fffd}");
    }

    #[test]
    fn only_our_own_colours_reach_the_terminal() {
        let look = Look { color: true, ..Look::PLAIN };
        let painted = format!("{}: {}", look.paint(super::super::Tone::Bad, "not healthy"), "m\x1b[8m1\x1b]0;x\x07");
        let shown = sanitize_painted(&painted, &look);
        assert!(shown.starts_with("\x1b[31m\x1b[1mnot healthy\x1b[0m: m1"), "{shown:?}");
        assert_eq!(shown.matches('\x1b').count(), 3, "{shown:?}");
        assert_eq!(sanitize_painted(&painted, &Look::PLAIN).matches('\x1b').count(), 0);
    }

    #[test]
    fn json_stays_what_it_says() {
        let value = serde_json::json!({ "name": "a\u{9b}31mb\u{7f}\x1b" });
        let shown = sanitize_json(&value.to_string()).into_owned();
        assert!(!shown.contains(is_unsafe), "{shown:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }

    #[test]
    fn durations_read_well() {
        let said: Vec<_> = [0.04, 9.94, 9.96, 59.4, 59.6, 125.0, 3725.0].map(duration).into();
        assert_eq!(said, ["0.0s", "9.9s", "10s", "59s", "1m00s", "2m05s", "1h02m"]);
    }

    proptest! {
        #[test]
        fn no_control_code_survives(text in any::<String>()) {
            prop_assert!(!sanitize(&text).contains(is_unsafe));
            prop_assert_eq!(sanitize_in_place(&text).len(), text.len());
        }
    }
}
