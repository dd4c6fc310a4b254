//! Text on its way to a terminal.

use std::borrow::Cow;

use console::strip_ansi_codes;

/// Makes text from a host safe to print: it must not move our cursor or colour our screen.
pub fn sanitize(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let text = strip_ansi_codes(text);
    // A carriage return is how progress meters overwrite a line; keep what they ended with.
    let lines = text.split('\n').map(|line| line.trim_end_matches('\r').rsplit('\r').next().unwrap_or(""));
    let joined = lines.collect::<Vec<_>>().join("\n");
    Cow::Owned(joined.chars().map(|c| if is_unsafe(c) { '\u{fffd}' } else { c }).collect())
}

fn is_unsafe(c: char) -> bool {
    c.is_control() && c != '\n' && c != '\t'
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
    fn durations_read_well() {
        let said: Vec<_> = [0.04, 9.94, 9.96, 59.4, 59.6, 125.0, 3725.0].map(duration).into();
        assert_eq!(said, ["0.0s", "9.9s", "10s", "59s", "1m00s", "2m05s", "1h02m"]);
    }

    proptest! {
        #[test]
        fn no_control_code_survives(text in any::<String>()) {
            prop_assert!(!sanitize(&text).contains(is_unsafe));
        }
    }
}
