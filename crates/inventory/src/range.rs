//! Node-set ranges: `hv[1-40]`, `hv[01-12,20]`, `r[1-2]n[1-3]`.
//!
//! Ansible's spelling (`web[01:50]`, `db-[a:f]`, a step as in `[0:10:2]`) means the same.

use crate::source::{Kind, Map, Node};

/// More hosts than this is a slip of the keyboard, not a fleet.
pub(super) const MAX_HOSTS: usize = 100_000;

/// A name with none, one or several ranges in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeSet {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Range(Vec<String>),
}

/// One name of a node set, with the values its ranges took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Expanded {
    pub(super) name: String,
    pub(super) values: Vec<String>,
}

/// What is wrong with a range, and in which bytes of the name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(super) struct RangeError {
    pub(super) message: String,
    pub(super) help: Option<String>,
    pub(super) offset: usize,
    pub(super) length: usize,
}

impl NodeSet {
    pub(super) fn parse(text: &str) -> Result<Self, RangeError> {
        let mut parts = Vec::new();
        let mut count: usize = 1;
        let mut at = 0;
        while at < text.len() {
            let rest = &text[at..];
            let stop = rest.find(['[', ']']).unwrap_or(rest.len());
            if stop > 0 {
                parts.push(Part::Text(rest[..stop].to_owned()));
                at += stop;
                continue;
            }
            let (values, length) = bracket(text, at)?;
            count = count.saturating_mul(values.len());
            if count > MAX_HOSTS {
                return Err(wrong(at, length, format!("this range has more than {MAX_HOSTS} hosts")));
            }
            parts.push(Part::Range(values));
            at += length;
        }
        Ok(Self { parts })
    }

    /// How many names this stands for.
    pub(super) fn len(&self) -> usize {
        self.ranges().map(Vec::len).product()
    }

    fn ranges(&self) -> impl Iterator<Item = &Vec<String>> {
        self.parts.iter().filter_map(|part| match part {
            Part::Range(values) => Some(values),
            Part::Text(_) => None,
        })
    }

    /// Every name, the last range turning fastest.
    pub(super) fn expand(&self) -> impl Iterator<Item = Expanded> + '_ {
        (0..self.len()).map(|index| self.nth(index))
    }

    fn nth(&self, index: usize) -> Expanded {
        let mut rest = index;
        let mut values: Vec<String> = Vec::new();
        let ranges: Vec<_> = self.ranges().collect();
        for range in ranges.iter().rev() {
            values.push(range[rest % range.len()].clone());
            rest /= range.len();
        }
        values.reverse();
        let mut taken = values.iter();
        let name = self.parts.iter().map(|part| match part {
            Part::Text(text) => text.as_str(),
            Part::Range(_) => taken.next().map_or("", String::as_str),
        });
        Expanded { name: name.collect(), values }
    }
}

fn wrong(offset: usize, length: usize, message: impl Into<String>) -> RangeError {
    RangeError { message: message.into(), help: None, offset, length }
}

/// Reads the bracket that starts at `at`; returns its values and its length in bytes.
fn bracket(text: &str, at: usize) -> Result<(Vec<String>, usize), RangeError> {
    let rest = &text[at..];
    if rest.starts_with(']') {
        return Err(wrong(at, 1, "`]` without a `[` before it"));
    }
    let Some(length) = rest.find(']').map(|end| end + 1) else {
        return Err(RangeError {
            help: Some("write it like hv[1-40]".into()),
            ..wrong(at, rest.len(), "this range has no `]`")
        });
    };
    let inside = &rest[1..length - 1];
    let mut values = Vec::new();
    let mut offset = at + 1;
    for item in inside.split(',') {
        let room = MAX_HOSTS.saturating_sub(values.len());
        let found = item_values(item.trim(), room).map_err(|(message, help)| {
            let (offset, length) = if item.is_empty() { (at, length) } else { (offset, item.len()) };
            RangeError { message, help, offset, length }
        })?;
        values.extend(found);
        offset += item.len() + 1;
    }
    Ok((values, length))
}

type ItemError = (String, Option<String>);

/// `7`, `1-9`, `01:12`, `0:10:2` or `a:f`.
fn item_values(item: &str, room: usize) -> Result<Vec<String>, ItemError> {
    let unclear = || (format!("`{item}` is not a range"), Some("write it like [1-40], [01-12,20] or [a:f]".to_owned()));
    if item.is_empty() {
        return Err(("this range is empty".into(), Some("write it like [1-40] or [01-12,20]".into())));
    }
    let fields: Vec<&str> = item.split(['-', ':']).map(str::trim).collect();
    let (first, last, step) = match fields.as_slice() {
        [only] => (*only, *only, "1"),
        [first, last] => (*first, *last, "1"),
        [first, last, step] if item.matches(':').count() == 2 => (*first, *last, *step),
        _ => return Err(unclear()),
    };
    let step = step.parse::<u64>().ok().filter(|step| *step > 0).ok_or_else(unclear)?;
    if let (Some(low), Some(high)) = (letter(first), letter(last)) {
        return span(item, u64::from(low), u64::from(high), step, room)?
            .map(|code| u8::try_from(code).map(|byte| char::from(byte).to_string()).map_err(|_| unclear()))
            .collect();
    }
    let width = padding(first, last).ok_or_else(|| {
        let help = "write both ends with the same number of digits, like [01-12]".to_owned();
        (format!("`{item}` pads only one end with zeros"), Some(help))
    })?;
    let (Some(low), Some(high)) = (number(first), number(last)) else { return Err(unclear()) };
    Ok(span(item, low, high, step, room)?.map(|n| format!("{n:0width$}")).collect())
}

fn span(item: &str, low: u64, high: u64, step: u64, room: usize) -> Result<impl Iterator<Item = u64>, ItemError> {
    if low > high {
        let separator = if item.contains(':') { ':' } else { '-' };
        let help = item.split_once(separator).map(|(first, last)| format!("write [{last}{separator}{first}]"));
        return Err((format!("the range `{item}` runs backwards"), help));
    }
    if (high - low) / step >= room as u64 {
        return Err((format!("this range has more than {MAX_HOSTS} hosts"), None));
    }
    let step = usize::try_from(step).unwrap_or(usize::MAX);
    Ok((low..=high).step_by(step))
}

fn letter(text: &str) -> Option<u8> {
    match text.as_bytes() {
        [byte] if byte.is_ascii_alphabetic() => Some(*byte),
        _ => None,
    }
}

fn number(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// How many digits every number of the range gets; `None` if its ends disagree.
fn padding(first: &str, last: &str) -> Option<usize> {
    let padded = |text: &str| text.len() > 1 && text.starts_with('0');
    match (padded(first), padded(last)) {
        (false, false) => Some(0),
        (true, _) if last.len() >= first.len() => Some(first.len().min(20)),
        (false, true) if first.len() == last.len() => Some(first.len().min(20)),
        _ => None,
    }
}

/// Puts the values of the ranges into the strings of an entry: `{n}`, or `{1}`, `{2}` where the
/// name has several ranges; `{n+10}` adds, and drops the zeros in front.
pub(super) fn fill(node: &Node, values: &[String]) -> Result<Node, (Node, String)> {
    let kind = match &node.kind {
        Kind::String(text) => {
            let filled = fill_text(text, values).map_err(|message| (node.clone(), message))?;
            filled.map_or_else(|| node.kind.clone(), |text| Kind::String(text.into()))
        }
        Kind::Seq(items) => Kind::Seq(items.iter().map(|item| fill(item, values)).collect::<Result<_, _>>()?),
        Kind::Map(map) => Kind::Map(Map::new(
            map.iter().map(|(key, item)| Ok((key.clone(), fill(item, values)?))).collect::<Result<_, _>>()?,
        )),
        other => other.clone(),
    };
    Ok(Node { span: node.span, tag: node.tag.clone(), kind })
}

fn fill_text(text: &str, values: &[String]) -> Result<Option<String>, String> {
    if !text.contains('{') {
        return Ok(None);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        out.push_str(&rest[..open]);
        rest = &rest[open..];
        let length = template_length(rest);
        if length > 0 {
            out.push_str(&rest[..length]);
            rest = &rest[length..];
            continue;
        }
        let placeholder = rest.find('}').map(|close| &rest[1..close]);
        match placeholder.map(|inside| value_of(inside, values)).transpose()?.flatten() {
            Some((value, length)) => {
                out.push_str(&value);
                rest = &rest[length + 2..];
            }
            None => {
                out.push('{');
                rest = &rest[1..];
            }
        }
    }
    out.push_str(rest);
    Ok(Some(out))
}

/// The length of the template expression that starts here; those are rendered later, not here.
fn template_length(text: &str) -> usize {
    [("{{", "}}"), ("{%", "%}"), ("{#", "#}")]
        .into_iter()
        .find(|(open, _)| text.starts_with(open))
        .map_or(0, |(_, close)| text.find(close).map_or(text.len(), |end| end + 2))
}

/// The text for one placeholder and its length, `None` if the braces mean something else.
fn value_of(inside: &str, values: &[String]) -> Result<Option<(String, usize)>, String> {
    let split = inside.find(['+', '-']).unwrap_or(inside.len());
    let (name, offset) = inside.split_at(split);
    let index = match name {
        "n" if values.len() == 1 => 0,
        "n" => return Err(format!("`{{n}}` is unclear in a name with {} ranges; write {{1}} or {{2}}", values.len())),
        _ if values.len() < 2 => return Ok(None),
        _ => match name.parse::<usize>() {
            Ok(number) if (1..=values.len()).contains(&number) => number - 1,
            Ok(_) => return Err(format!("`{{{inside}}}`: the name has only {} ranges", values.len())),
            Err(_) => return Ok(None),
        },
    };
    let value = &values[index];
    if offset.is_empty() {
        return Ok(Some((value.clone(), inside.len())));
    }
    let Ok(offset) = offset.parse::<i64>() else { return Ok(None) };
    let sum = value.parse::<i64>().ok().and_then(|n| n.checked_add(offset));
    let sum = sum.ok_or_else(|| format!("`{{{inside}}}`: `{value}` is not a number to add to"))?;
    Ok(Some((sum.to_string(), inside.len())))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(text: &str) -> Vec<String> {
        NodeSet::parse(text).unwrap().expand().map(|e| e.name).collect()
    }

    fn problem(text: &str) -> String {
        NodeSet::parse(text).unwrap_err().message
    }

    #[test]
    fn ranges_expand_in_order() {
        assert_eq!(names("hv1"), ["hv1"]);
        assert_eq!(names("hv[1-3]"), ["hv1", "hv2", "hv3"]);
        assert_eq!(names("hv[08-10,20].x"), ["hv08.x", "hv09.x", "hv10.x", "hv20.x"]);
        assert_eq!(names("r[1-2]n[1-3]"), ["r1n1", "r1n2", "r1n3", "r2n1", "r2n2", "r2n3"]);
        assert_eq!(names("db-[a:c]"), ["db-a", "db-b", "db-c"]);
        assert_eq!(names("w[0:6:3]"), ["w0", "w3", "w6"]);
        assert_eq!(names("w[99-101]"), ["w99", "w100", "w101"]);
        assert_eq!(names("w[01-100]").last().unwrap(), "w100");
    }

    #[test]
    fn bad_ranges_say_what_is_wrong() {
        assert!(problem("hv[9-1]").contains("backwards"));
        assert!(problem("hv[]").contains("empty"));
        assert!(problem("hv[1,]").contains("empty"));
        assert!(problem("hv[1-").contains("no `]`"));
        assert!(problem("hv1]").contains("without"));
        assert!(problem("hv[1-x]").contains("not a range"));
        assert!(problem("hv[1-012]").contains("pads"));
        assert!(problem("hv[1-100001]").contains("more than"));
        assert!(problem("hv[1-1000]n[1-1000]").contains("more than"));
        assert!(problem("hv[0-18446744073709551615]").contains("more than"));
        assert!(problem("hv[0-99999999999999999999999]").contains("not a range"));
        assert!(problem("hv[0:5:0]").contains("not a range"));
    }

    #[test]
    fn placeholders_are_filled_and_templates_left() {
        let one = ["07".to_owned()];
        let text = |t: &str| fill_text(t, &one).unwrap().unwrap_or_else(|| t.to_owned());
        assert_eq!(text("10.0.0.{n}"), "10.0.0.07");
        assert_eq!(text("10.0.0.{n+10}/{n-7}"), "10.0.0.17/0");
        assert_eq!(text("{{ n }}{{n}} {n"), "{{ n }}{{n}} {n");
        assert_eq!(text("{x} a{1} {%if n%}"), "{x} a{1} {%if n%}");
        let two = ["1".to_owned(), "b".to_owned()];
        assert_eq!(fill_text("{2}-{1}", &two).unwrap().unwrap(), "b-1");
        assert!(fill_text("{n}", &two).is_err());
        assert!(fill_text("{3}", &two).is_err());
        assert!(fill_text("{2+1}", &two).is_err());
    }

    proptest! {
        #[test]
        fn never_panics(text in "[a-z0-9\\[\\],:ü-]{0,24}", inside in "[{}n0-9+%a-]{0,16}") {
            if let Ok(set) = NodeSet::parse(&text) {
                prop_assert_eq!(set.expand().take(1000).count(), set.len().min(1000));
            }
            let _ = fill_text(&inside, &["1".to_owned()]);
            let _ = fill_text(&inside, &["1".to_owned(), "x".to_owned()]);
        }
    }
}
