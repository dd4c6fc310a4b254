//! Problems of the input, with their source lines: drawn on a terminal, compact elsewhere.

use std::fmt::{self, Write};

use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteDiagnostic, NamedSource};
use serde_json::json;

use super::{
    Look, Tone, sanitize,
    text::{count, sanitize_in_place},
};
use crate::{
    model::Span,
    source::{Diagnostic, Diagnostics, Severity, Sources},
};

/// More than a person will mend in one go; the rest is counted.
const MAX_SHOWN: usize = 100;

/// The part of a long line that is shown around its mark.
const MAX_LINE: usize = 160;

/// All problems, in the order of their files, and how many there are.
pub fn render_diagnostics(diagnostics: &Diagnostics, sources: &Sources, look: &Look) -> String {
    let mut sorted = diagnostics.clone();
    sorted.sort();
    let mut text = String::new();
    for diagnostic in sorted.iter().take(MAX_SHOWN) {
        text.push_str(&render(diagnostic, sources, look));
    }
    if let Some(summary) = summary(&sorted) {
        text.push_str(&summary);
        text.push('\n');
    }
    text
}

/// One JSON object a line, as in docs/events.md.
pub fn diagnostics_as_json(diagnostics: &Diagnostics, sources: &Sources) -> String {
    let mut sorted = diagnostics.clone();
    sorted.sort();
    sorted.iter().map(|diagnostic| format!("{}\n", as_json(diagnostic, sources))).collect()
}

fn as_json(diagnostic: &Diagnostic, sources: &Sources) -> serde_json::Value {
    let place = |span: Span| {
        let position = sources.position(span);
        let file = sources.path(span.file).display().to_string();
        json!({ "file": file, "line": position.line, "column": position.column })
    };
    let related = |(span, note): &(Span, String)| json!({ "place": place(*span), "message": note });
    json!({
        "event": "diagnostic",
        "severity": severity_name(diagnostic.severity),
        "message": diagnostic.message,
        "place": diagnostic.span.map(place),
        "help": diagnostic.help,
        "related": diagnostic.related.iter().map(related).collect::<Vec<_>>(),
    })
}

fn severity_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    }
}

fn summary(diagnostics: &Diagnostics) -> Option<String> {
    let errors = diagnostics.iter().filter(|d| d.severity == Severity::Error).count();
    let all = diagnostics.iter().count();
    let mut parts = Vec::new();
    if errors > 0 {
        parts.push(count(errors, "error"));
    }
    if all > errors {
        parts.push(count(all - errors, "warning"));
    }
    if all > MAX_SHOWN {
        parts.push(format!("the first {MAX_SHOWN} of them shown"));
    }
    (all > 0).then(|| parts.join(", "))
}

fn render(diagnostic: &Diagnostic, sources: &Sources, look: &Look) -> String {
    // A drawing around a line of a megabyte helps nobody; the compact form cuts it.
    let drawable = diagnostic.span.is_none_or(|span| marked_line(span, sources).text.chars().count() <= MAX_LINE);
    match look.live && drawable {
        true => draw(diagnostic, sources, look).unwrap_or_else(|_| compact(diagnostic, sources, look)),
        false => compact(diagnostic, sources, look),
    }
}

/// The drawn form, by miette.
fn draw(diagnostic: &Diagnostic, sources: &Sources, look: &Look) -> Result<String, fmt::Error> {
    let theme = if look.color { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
    let handler = GraphicalReportHandler::new_themed(theme).with_width(look.width).with_links(false);
    let mut shown = MietteDiagnostic::new(sanitize(&diagnostic.message));
    shown.severity = Some(match diagnostic.severity {
        Severity::Error => miette::Severity::Error,
        Severity::Warning => miette::Severity::Warning,
    });
    shown.help = diagnostic.help.as_deref().map(|help| sanitize(help).into_owned());
    let mut text = String::new();
    let Some(span) = diagnostic.span else {
        handler.render_report(&mut text, &shown)?;
        text.push('\n');
        return Ok(text);
    };
    let (here, elsewhere): (Vec<_>, Vec<_>) = diagnostic.related.iter().partition(|(s, _)| s.file == span.file);
    let label = |text: &String| sanitize(text).into_owned();
    let primary = LabeledSpan::new_primary_with_span(diagnostic.label.as_ref().map(label), range(span, sources));
    let others =
        here.into_iter().map(|(span, note)| LabeledSpan::new_with_span(Some(label(note)), range(*span, sources)));
    shown.labels = Some(std::iter::once(primary).chain(others).collect());
    let report = miette::Report::new(shown).with_source_code(source_of(span, sources));
    handler.render_report(&mut text, report.as_ref())?;
    for (span, note) in elsewhere {
        mark(&mut text, *span, &format!("note: {}", sanitize(note)), None, sources, look);
    }
    text.push('\n');
    Ok(text)
}

/// The bytes of a span; miette panics where they are not in the text.
fn range(span: Span, sources: &Sources) -> std::ops::Range<usize> {
    let text = sources.text(span.file);
    floor(text, span.start as usize)..floor(text, span.end as usize)
}

fn source_of(span: Span, sources: &Sources) -> NamedSource<String> {
    let name = sources.path(span.file).display().to_string();
    NamedSource::new(sanitize(&name), sanitize_in_place(sources.text(span.file)))
}

/// The compact form: `file:line:column: error: message`, as compilers and editors know it.
fn compact(diagnostic: &Diagnostic, sources: &Sources, look: &Look) -> String {
    let tone = match diagnostic.severity {
        Severity::Error => Tone::Bad,
        Severity::Warning => Tone::Warning,
    };
    let kind = look.paint(tone, severity_name(diagnostic.severity));
    let message = format!("{kind}: {}", sanitize(&diagnostic.message));
    let mut text = String::new();
    match diagnostic.span {
        Some(span) => {
            mark(&mut text, span, &message, diagnostic.label.as_deref(), sources, look);
        }
        None => push_line(&mut text, format_args!("{message}")),
    }
    for (span, note) in &diagnostic.related {
        mark(&mut text, *span, &format!("note: {}", sanitize(note)), None, sources, look);
    }
    if let Some(help) = &diagnostic.help {
        push_line(&mut text, format_args!("  help: {}", sanitize(help)));
    }
    text.push('\n');
    text
}

/// A message with its place, the line, and a mark under the span.
fn mark(text: &mut String, span: Span, message: &str, label: Option<&str>, sources: &Sources, look: &Look) {
    push_line(text, format_args!("{}: {message}", look.paint(Tone::Strong, sanitize(&sources.describe(span)))));
    let line = marked_line(span, sources).cut();
    if line.text.is_empty() {
        return;
    }
    let number = sources.position(span).line.to_string();
    let before: String = line.text.chars().take(line.column).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
    let carets = look.paint(Tone::Bad, "^".repeat(line.length.max(1)));
    push_line(text, format_args!("  {number} | {}", sanitize(&line.text)));
    let label = label.map(|label| format!(" {}", sanitize(label))).unwrap_or_default();
    push_line(text, format_args!("  {} | {before}{carets}{label}", " ".repeat(number.len())));
}

/// The first line of a span; column and length count characters, from zero.
struct MarkedLine {
    text: String,
    column: usize,
    length: usize,
}

fn marked_line(span: Span, sources: &Sources) -> MarkedLine {
    let file = sources.text(span.file);
    let start = floor(file, span.start as usize);
    let end = floor(file, span.end as usize);
    let line_start = file[..start].rfind('\n').map_or(0, |at| at + 1);
    let line_end = file[start..].find('\n').map_or(file.len(), |at| start + at);
    let column = file[line_start..start].chars().count();
    let length = file[start..end.clamp(start, line_end)].chars().count();
    MarkedLine { text: file[line_start..line_end].trim_end_matches('\r').to_owned(), column, length }
}

impl MarkedLine {
    /// Keeps a window around the mark if the line is very long.
    fn cut(self) -> Self {
        if self.text.chars().count() <= MAX_LINE {
            return self;
        }
        let skip = self.column.saturating_sub(MAX_LINE / 2);
        let text: String = self.text.chars().skip(skip).take(MAX_LINE).collect();
        let column = self.column - skip;
        Self { text, column, length: self.length.min(MAX_LINE - column) }
    }
}

/// The nearest character boundary at or before an offset.
fn floor(text: &str, offset: usize) -> usize {
    (0..=offset.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

fn push_line(text: &mut String, line: fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{line}");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIVE: Look = Look { color: false, live: true, width: 80 };

    fn example() -> (Diagnostics, Sources) {
        let mut sources = Sources::default();
        let play = sources.add("site.yaml", "- name: Web\n  hostz: all\n  name: Again\n");
        let inventory = sources.add("inventory.yaml", "hosts: {}\n");
        let mut diagnostics = Diagnostics::default();
        diagnostics.push(
            Diagnostic::error(Span::new(play, 27, 31), "duplicate key `name`")
                .related(Span::new(play, 2, 6), "first set here"),
        );
        diagnostics.push(
            Diagnostic::error(Span::new(play, 14, 19), "unknown key `hostz`")
                .help("did you mean `hosts`?")
                .label("here"),
        );
        diagnostics.push(
            Diagnostic::warning(Span::new(play, 21, 24), "`all` matches no host")
                .related(Span::new(inventory, 0, 5), "the inventory has no hosts"),
        );
        diagnostics.push(Diagnostic::error(None, "roles/web: no such file"));
        (diagnostics, sources)
    }

    #[test]
    fn compact_form() {
        let (diagnostics, sources) = example();
        insta::assert_snapshot!(render_diagnostics(&diagnostics, &sources, &Look::PLAIN));
    }

    #[test]
    fn drawn_form() {
        let (diagnostics, sources) = example();
        insta::assert_snapshot!(render_diagnostics(&diagnostics, &sources, &LIVE));
    }

    #[test]
    fn json_form() {
        let (diagnostics, sources) = example();
        insta::assert_snapshot!(diagnostics_as_json(&diagnostics, &sources));
    }

    #[test]
    fn a_very_long_line_is_cut_around_its_mark() {
        let mut sources = Sources::default();
        let file = sources.add("long.yaml", format!("{}bad{}", "x".repeat(100_000), "y".repeat(100_000)));
        let mut diagnostics = Diagnostics::default();
        diagnostics.error(Span::new(file, 100_000, 100_003), "no");
        for look in [Look::PLAIN, LIVE] {
            let text = render_diagnostics(&diagnostics, &sources, &look);
            assert!(text.contains("xxbadyy") && text.len() < 1000, "{text}");
        }
    }

    #[test]
    fn a_span_behind_the_end_is_drawn_at_the_end() {
        let mut sources = Sources::default();
        let file = sources.add("x", "short".to_owned());
        let mut diagnostics = Diagnostics::default();
        diagnostics.error(Span::new(file, 6, 6), "no");
        assert!(render_diagnostics(&diagnostics, &sources, &LIVE).contains("no"));
    }

    proptest! {
        #[test]
        fn any_span_in_any_text_can_be_shown(source in any::<String>(), a in 0usize..40, b in 0usize..40, live: bool) {
            let mut sources = Sources::default();
            let file = sources.add("x", source);
            let mut diagnostics = Diagnostics::default();
            diagnostics.error(Span::new(file, a.min(b), a.max(b)), "no");
            let look = Look { live, ..LIVE };
            prop_assert!(render_diagnostics(&diagnostics, &sources, &look).contains("no"));
        }
    }
}
