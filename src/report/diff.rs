//! Diffs as people read them.

use std::fmt::Write;

use similar::{ChangeTag, TextDiff};

use super::{Look, Tone, sanitize};
use crate::model::Diff;

/// A unified diff; empty if nothing differs.
pub fn unified(diff: &Diff, look: &Look) -> String {
    between(diff, ["before", "after"], look)
}

/// What has moved since it was planned, line by line.
pub(super) fn moved(diff: &Diff, look: &Look) -> Vec<String> {
    between(diff, ["planned", "now"], look).lines().map(str::to_owned).collect()
}

fn between(diff: &Diff, [then, now]: [&str; 2], look: &Look) -> String {
    let (before, after) = (sanitize(&diff.before), sanitize(&diff.after));
    let changes = TextDiff::from_lines(before.as_ref(), after.as_ref());
    let mut text = String::new();
    for hunk in changes.unified_diff().context_radius(3).iter_hunks() {
        if text.is_empty() {
            line(&mut text, look, Tone::Strong, &format!("--- {then}: {}", diff.label));
            line(&mut text, look, Tone::Strong, &format!("+++ {now}: {}", diff.label));
        }
        line(&mut text, look, Tone::Quiet, &hunk.header().to_string());
        for change in hunk.iter_changes() {
            let (sign, tone) = match change.tag() {
                ChangeTag::Delete => ('-', Tone::Bad),
                ChangeTag::Insert => ('+', Tone::Good),
                ChangeTag::Equal => (' ', Tone::Plain),
            };
            line(&mut text, look, tone, &format!("{sign}{}", change.value().trim_end_matches('\n')));
            if change.missing_newline() {
                line(&mut text, look, Tone::Quiet, "\\ No newline at end of file");
            }
        }
    }
    text
}

fn line(text: &mut String, look: &Look, tone: Tone, content: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{}", look.paint(tone, content));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diff(before: &str, after: &str) -> String {
        unified(&Diff { label: "/etc/motd".into(), before: before.into(), after: after.into() }, &Look::PLAIN)
    }

    #[test]
    fn a_diff_shows_what_changes_and_what_is_around_it() {
        insta::assert_snapshot!(diff("a\nb\nc\n", "a\nB\nc\nd"), @r"
        --- before: /etc/motd
        +++ after: /etc/motd
        @@ -1,3 +1,4 @@
         a
        -b
        +B
         c
        +d
        \ No newline at end of file
        ");
    }

    #[test]
    fn equal_texts_have_no_diff() {
        assert_eq!(diff("a\n", "a\n"), "");
    }
}
