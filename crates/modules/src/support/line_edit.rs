//! The edit behind `line_in_file`: bytes in, bytes out.

use regex::bytes::{Captures, Regex};

/// What to do to a text.
#[derive(Debug)]
pub(crate) enum Edit {
    Ensure { line: Vec<u8>, found: Option<Match>, insert: Insert, first: bool, backrefs: bool },
    Remove(Match),
}

/// Which lines are meant.
#[derive(Debug)]
pub(crate) enum Match {
    Pattern(Regex),
    Text(Vec<u8>),
    Line(Vec<u8>),
}

/// Where a line goes that is not there yet.
#[derive(Debug)]
pub(crate) enum Insert {
    Start,
    End,
    After(Regex),
    Before(Regex),
}

impl Match {
    fn matches(&self, line: &[u8]) -> bool {
        match self {
            Self::Pattern(pattern) => pattern.is_match(line),
            Self::Text(text) => text.is_empty() || line.windows(text.len()).any(|part| part == text),
            Self::Line(wanted) => line == wanted,
        }
    }
}

impl Edit {
    pub fn removes(&self) -> bool {
        matches!(self, Self::Remove(_))
    }

    /// The new text, or nothing if it stays as it is.
    pub fn apply(&self, text: &[u8]) -> Option<Vec<u8>> {
        let mut lines: Vec<Vec<u8>> = text.split_inclusive(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
        match self {
            Self::Remove(found) => lines.retain(|line| !found.matches(bare(line))),
            Self::Ensure { line, found, insert, first, backrefs } => {
                let at = |test: &dyn Fn(&[u8]) -> bool| position(&lines, *first, test);
                let matched = found.as_ref().and_then(|found| at(&|line| found.matches(line)));
                if let (Some(index), Some(Match::Pattern(pattern)), true) = (matched, found, *backrefs) {
                    let expanded = expand(line, pattern, bare(&lines[index]));
                    replace(&mut lines, index, &expanded);
                } else if let Some(index) = matched {
                    replace(&mut lines, index, line);
                } else if !backrefs && at(&|there| there == line).is_none() {
                    let index = insert.index(&lines, *first);
                    insert_at(&mut lines, index, line);
                }
            }
        }
        let edited = lines.concat();
        (edited != text).then_some(edited)
    }
}

impl Insert {
    fn index(&self, lines: &[Vec<u8>], first: bool) -> usize {
        let end = lines.len();
        match self {
            Self::Start => 0,
            Self::End => end,
            Self::After(pattern) => position(lines, first, &|line| pattern.is_match(line)).map_or(end, |at| at + 1),
            Self::Before(pattern) => position(lines, first, &|line| pattern.is_match(line)).unwrap_or(end),
        }
    }
}

fn position(lines: &[Vec<u8>], first: bool, test: &dyn Fn(&[u8]) -> bool) -> Option<usize> {
    let mut lines = lines.iter().map(|line| bare(line));
    if first { lines.position(test) } else { lines.rposition(test) }
}

/// A line without its end.
fn bare(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Keeps the line's end; a line that had none, being the last, gets one if its text changes.
fn replace(lines: &mut [Vec<u8>], index: usize, new: &[u8]) {
    let old = &lines[index];
    if bare(old) == new {
        return;
    }
    let end: &[u8] = if old.ends_with(b"\r\n") { b"\r\n" } else { b"\n" };
    lines[index] = [new, end].concat();
}

fn insert_at(lines: &mut Vec<Vec<u8>>, index: usize, line: &[u8]) {
    // The last line of a file may lack its end.
    if let Some(above) = index.checked_sub(1).and_then(|above| lines.get_mut(above))
        && !above.ends_with(b"\n")
    {
        above.push(b'\n');
    }
    lines.insert(index, [line, b"\n"].concat());
}

/// Puts the groups of a match into `\1` and `\g<name>`.
fn expand(template: &[u8], pattern: &Regex, line: &[u8]) -> Vec<u8> {
    let Some(groups) = pattern.captures(line) else {
        return template.to_vec();
    };
    let mut expanded = Vec::new();
    let mut rest = template;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            expanded.push(byte);
            continue;
        }
        rest = reference(rest, &groups, &mut expanded);
    }
    expanded
}

/// Expands what follows a backslash; returns what follows that.
fn reference<'t>(rest: &'t [u8], groups: &Captures<'_>, expanded: &mut Vec<u8>) -> &'t [u8] {
    let digits = rest.iter().take(2).take_while(|byte| byte.is_ascii_digit()).count();
    if digits > 0 {
        let number = rest[..digits].iter().fold(0, |number, byte| number * 10 + usize::from(byte - b'0'));
        expanded.extend(groups.get(number).map_or(&b""[..], |group| group.as_bytes()));
        return &rest[digits..];
    }
    if let Some(named) = rest.strip_prefix(b"g<")
        && let Some(end) = named.iter().position(|&byte| byte == b'>')
        && let Ok(name) = std::str::from_utf8(&named[..end])
    {
        let group = name.parse().map_or_else(|_| groups.name(name), |number: usize| groups.get(number));
        expanded.extend(group.map_or(&b""[..], |group| group.as_bytes()));
        return &named[end + 1..];
    }
    match rest.split_first() {
        Some((b't', after)) => {
            expanded.push(b'\t');
            after
        }
        Some((b'\\', after)) => {
            expanded.push(b'\\');
            after
        }
        _ => {
            expanded.push(b'\\');
            rest
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ensure(line: &str, pattern: Option<&str>) -> Edit {
        Edit::Ensure {
            line: line.into(),
            found: pattern.map(|pattern| Match::Pattern(Regex::new(pattern).unwrap())),
            insert: Insert::End,
            first: false,
            backrefs: false,
        }
    }

    fn placed(line: &str, place: Insert) -> Edit {
        Edit::Ensure { line: line.into(), found: None, insert: place, first: false, backrefs: false }
    }

    fn run(edit: &Edit, text: &str) -> Option<String> {
        edit.apply(text.as_bytes()).map(|text| String::from_utf8(text).unwrap())
    }

    fn pattern(text: &str) -> Regex {
        Regex::new(text).unwrap()
    }

    #[test]
    fn a_line_is_added_once() {
        assert_eq!(run(&ensure("b", None), "a\n").as_deref(), Some("a\nb\n"));
        assert_eq!(run(&ensure("b", None), "a").as_deref(), Some("a\nb\n"));
        assert_eq!(run(&ensure("b", None), "").as_deref(), Some("b\n"));
        assert_eq!(run(&ensure("b", None), "b\na\n"), None);
        assert_eq!(run(&ensure("b", None), "a\nb"), None);
    }

    #[test]
    fn the_last_match_is_replaced() {
        assert_eq!(run(&ensure("x=1", Some("^x=")), "x=2\ny\nx=3\n").as_deref(), Some("x=2\ny\nx=1\n"));
        assert_eq!(run(&ensure("x=1", Some("^x=")), "y\nx=1\n"), None);
        assert_eq!(run(&ensure("x=1", Some("^z=")), "x=1\n"), None, "the line is there already");
        assert_eq!(run(&ensure("x=1", Some("^x=")), "x=2\r\ny\r\n").as_deref(), Some("x=1\r\ny\r\n"));
    }

    #[test]
    fn a_new_line_goes_where_it_should() {
        let text = "a\nb\na\nc";
        assert_eq!(run(&placed("n", Insert::Start), text).as_deref(), Some("n\na\nb\na\nc"));
        assert_eq!(run(&placed("n", Insert::After(pattern("a"))), text).as_deref(), Some("a\nb\na\nn\nc"));
        assert_eq!(run(&placed("n", Insert::Before(pattern("a"))), text).as_deref(), Some("a\nb\nn\na\nc"));
        assert_eq!(run(&placed("n", Insert::After(pattern("c"))), text).as_deref(), Some("a\nb\na\nc\nn\n"));
        assert_eq!(run(&placed("n", Insert::Before(pattern("z"))), text).as_deref(), Some("a\nb\na\nc\nn\n"));
    }

    #[test]
    fn groups_are_expanded_and_nothing_happens_without_them() {
        let edit = |line: &str| Edit::Ensure {
            line: line.into(),
            found: Some(Match::Pattern(pattern("^(?P<key>k)=(.*)$"))),
            insert: Insert::End,
            first: false,
            backrefs: true,
        };
        assert_eq!(run(&edit(r"\g<key>=\2,c"), "k=a,b\n").as_deref(), Some("k=a,b,c\n"));
        assert_eq!(run(&edit(r"\1\\\x"), "k=a\n").as_deref(), Some("k\\\\x\n"));
        assert_eq!(run(&edit("k=1"), "nothing\n"), None);
    }

    #[test]
    fn lines_are_removed_by_pattern_text_or_whole() {
        let text = "a.b\naxb\nab\n";
        assert_eq!(run(&Edit::Remove(Match::Pattern(pattern("a.b"))), text).as_deref(), Some("ab\n"));
        assert_eq!(run(&Edit::Remove(Match::Text("a.b".into())), text).as_deref(), Some("axb\nab\n"));
        assert_eq!(run(&Edit::Remove(Match::Line("ab".into())), text).as_deref(), Some("a.b\naxb\n"));
        assert_eq!(run(&Edit::Remove(Match::Line("no".into())), text), None);
    }

    proptest! {
        #[test]
        fn a_second_edit_changes_nothing(
            text in "([ab=]{0,3}\r?\n){0,6}[ab=]{0,3}",
            line in "[ab=]{0,3}",
            found in prop::option::of(0_usize..3),
            insert in 0_usize..4,
        ) {
            // A pattern that `line` itself does not match asks for a new edit each time, as it does elsewhere.
            let found = found.map(|n| ["", "^", "."][n]).filter(|found| !found.contains('.') || !line.is_empty());
            let insert = match insert {
                0 => Insert::Start,
                1 => Insert::After(pattern("a")),
                2 => Insert::Before(pattern("b")),
                _ => Insert::End,
            };
            let found = found.map(|found| Match::Pattern(pattern(found)));
            let edit = Edit::Ensure { line: line.clone().into(), found, insert, first: false, backrefs: false };
            let once = edit.apply(text.as_bytes()).unwrap_or_else(|| text.clone().into_bytes());
            prop_assert_eq!(edit.apply(&once), None);
        }
    }
}
