//! `!age` values inside YAML text: finds them, and puts others in their place. Everything else of the
//! text, comments and layout included, stays byte for byte.

use std::path::Path;

use crate::{
    model::Span,
    source::{Diagnostic, Diagnostics, Kind, Node, Sources, parse},
};

/// A value ready to be pasted behind `key: `, its lines indented by so many blanks.
pub fn block(armored: &str, indent: usize) -> String {
    let blanks = " ".repeat(indent);
    let lines = armored.lines().map(|line| format!("{blanks}{}\n", line.trim_end()));
    std::iter::once("!age |\n".to_owned()).chain(lines).collect()
}

/// A value with the tag `!age`, whatever its text is.
pub(super) struct Tagged {
    pub span: Span,
    pub text: String,
    /// Its line, counted from one.
    pub line: usize,
}

/// All values with the tag, from the first to the last.
pub(super) fn tagged(path: &Path, text: &str) -> Result<Vec<Tagged>, Vec<Diagnostic>> {
    let mut sources = Sources::default();
    let file = sources.add(path, text);
    let mut diagnostics = Diagnostics::default();
    let Some(root) = parse(&sources, file, &mut diagnostics).filter(|_| !diagnostics.has_errors()) else {
        return Err(diagnostics.iter().cloned().collect());
    };
    let mut found = Vec::new();
    collect(&root, &sources, &mut found);
    // An alias repeats the value of its anchor.
    found.sort_by_key(|value| value.span.start);
    found.dedup_by_key(|value| value.span.start);
    Ok(found)
}

fn collect(node: &Node, sources: &Sources, found: &mut Vec<Tagged>) {
    match &node.kind {
        Kind::String(text) if node.is_sealed() => {
            let (span, text, line) = (node.span, text.to_string(), sources.position(node.span).line);
            found.push(Tagged { span, text, line });
        }
        Kind::Seq(items) => items.iter().for_each(|item| collect(item, sources, found)),
        Kind::Map(map) => map.iter().for_each(|(_, value)| collect(value, sources, found)),
        _ => {}
    }
}

/// The text with every `!age` value replaced by what `replace` makes of it (armored text and its line
/// to armored text), and how many there were.
pub fn rewrite_values<E>(
    path: &Path,
    text: &str,
    mut replace: impl FnMut(&str, usize) -> Result<String, E>,
) -> Result<Result<(String, usize), E>, Vec<Diagnostic>> {
    let found = tagged(path, text)?;
    let mut rewritten = text.to_owned();
    for value in found.iter().rev() {
        match replace(&value.text, value.line) {
            Ok(new) => put(&mut rewritten, value.span, &new),
            Err(error) => return Ok(Err(error)),
        }
    }
    Ok(Ok((rewritten, found.len())))
}

/// Replaces the armored lines between the first and the last of the old ones; what surrounds them
/// (the tag, quotes, the block's indentation) is kept.
fn put(text: &mut String, span: Span, armored: &str) {
    let value = &text[span.start as usize..span.end as usize];
    let (Some(first), Some(last)) = (value.find(BEGIN), value.rfind(END)) else { return };
    let (start, end) = (span.start as usize + first, span.start as usize + last + END.len());
    let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
    let lead = &text[line_start..start];
    let separator = match text[start..end].contains('\n') {
        // In a block every line has the indentation of the first.
        true => format!("\n{}", if lead.trim().is_empty() { lead } else { "" }),
        // Quoted on one line.
        false => "\\n".to_owned(),
    };
    let new = armored.lines().map(str::trim_end).collect::<Vec<_>>().join(&separator);
    text.replace_range(start..end, &new);
}

const BEGIN: &str = "-----BEGIN AGE ENCRYPTED FILE-----";
const END: &str = "-----END AGE ENCRYPTED FILE-----";

#[cfg(test)]
mod tests {
    use super::*;

    fn swapped(text: &str) -> String {
        let new = format!("{BEGIN}\nNEW1\nNEW2\n{END}\n");
        let rewritten = rewrite_values(Path::new("t.yaml"), text, |_, _| Ok::<_, ()>(new.clone()));
        rewritten.unwrap().unwrap().0
    }

    #[test]
    fn values_change_and_nothing_else() {
        let text = format!(
            "# comment\na: !age |\n    {BEGIN}\n    OLD\n    {END}\n\n# more\nb:\n  - !age |-\n    {BEGIN}\n    OLD\n    {END} \n  - x   # kept\nc: !age \"{BEGIN}\\nOLD\\n{END}\\n\"\n"
        );
        let expected = text.replace("\n    OLD\n", "\n    NEW1\n    NEW2\n").replace("\\nOLD\\n", "\\nNEW1\\nNEW2\\n");
        assert_eq!(swapped(&text), expected);
    }

    #[test]
    fn a_block_is_indented() {
        assert_eq!(block("one\ntwo\n", 2), "!age |\n  one\n  two\n");
    }
}
