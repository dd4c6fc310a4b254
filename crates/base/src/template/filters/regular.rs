//! Regular expressions. The syntax is that of the regex crate: no look-around, no backreferences
//! in a pattern, and so no pattern that takes for ever.

use std::{
    collections::HashMap,
    sync::{LazyLock, PoisonError, RwLock},
};

use minijinja::{
    Environment, Error, Value,
    value::{Kwargs, Rest},
};
use regex::{Captures, Regex, RegexBuilder};

use super::{super::convert::invalid, named};

pub(super) fn add_to(environment: &mut Environment<'static>) {
    environment.add_filter("regex_replace", regex_replace);
    environment.add_filter("regex_search", regex_search);
    environment.add_filter("regex_findall", regex_findall);
    environment.add_filter("regex_escape", |text: String| regex::escape(&text));
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(in super::super) struct Flags {
    pub ignorecase: bool,
    pub multiline: bool,
    /// The match must begin where the text begins.
    pub anchored: bool,
}

impl Flags {
    pub fn read(ignorecase: Option<bool>, multiline: Option<bool>, names: &Kwargs) -> Result<Self, Error> {
        Ok(Self {
            ignorecase: named(ignorecase, names, "ignorecase")?.unwrap_or(false),
            multiline: named(multiline, names, "multiline")?.unwrap_or(false),
            anchored: false,
        })
    }
}

/// A compiled pattern; the same one is usually applied on every host.
pub(in super::super) fn pattern(text: &str, flags: Flags) -> Result<Regex, Error> {
    const KEPT: usize = 1000;
    type Patterns = RwLock<HashMap<(String, Flags), Regex>>;
    static PATTERNS: LazyLock<Patterns> = LazyLock::new(Patterns::default);
    let key = (text.to_owned(), flags);
    if let Some(known) = PATTERNS.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
        return Ok(known.clone());
    }
    let source = if flags.anchored { format!(r"\A(?:{text})") } else { text.to_owned() };
    let built = RegexBuilder::new(&source)
        .case_insensitive(flags.ignorecase)
        .multi_line(flags.multiline)
        .build()
        .map_err(|error| invalid(format!("`{text}` is not a regular expression: {}", last_line(&error))))?;
    let mut patterns = PATTERNS.write().unwrap_or_else(PoisonError::into_inner);
    if patterns.len() >= KEPT {
        patterns.clear();
    }
    patterns.insert(key, built.clone());
    Ok(built)
}

fn last_line(error: &regex::Error) -> String {
    let text = error.to_string();
    text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

fn regex_replace(
    text: String,
    regex: String,
    with: String,
    count: Option<usize>,
    names: Kwargs,
) -> Result<String, Error> {
    let flags = Flags::read(None, None, &names)?;
    let count = named(count, &names, "count")?.unwrap_or(0);
    names.assert_all_used()?;
    let with = replacement(&with);
    Ok(pattern(&regex, flags)?.replacen(&text, count, with.as_str()).into_owned())
}

/// `\1` and `\g<name>`, as Python writes them, to `${1}` and `${name}`.
fn replacement(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        rest = &rest[character.len_utf8()..];
        match character {
            '$' => out.push_str("$$"),
            '\\' => rest = escape(rest, &mut out),
            other => out.push(other),
        }
    }
    out
}

/// What stands after a backslash; returns what follows it.
fn escape<'t>(rest: &'t str, out: &mut String) -> &'t str {
    if let Some((name, after)) = rest.strip_prefix("g<").and_then(|rest| rest.split_once('>')) {
        *out += &format!("${{{name}}}");
        return after;
    }
    let digits = rest.bytes().take(2).take_while(u8::is_ascii_digit).count();
    if digits > 0 {
        *out += &format!("${{{}}}", &rest[..digits]);
        return &rest[digits..];
    }
    for (name, character) in [("n", "\n"), ("t", "\t"), ("\\", "\\")] {
        if let Some(after) = rest.strip_prefix(name) {
            *out += character;
            return after;
        }
    }
    out.push('\\');
    rest
}

fn regex_search(text: String, regex: String, groups: Rest<Value>, names: Kwargs) -> Result<Value, Error> {
    let flags = Flags::read(None, None, &names)?;
    names.assert_all_used()?;
    search(&text, &pattern(&regex, flags)?, &groups)
}

fn search(text: &str, regex: &Regex, groups: &[Value]) -> Result<Value, Error> {
    let Some(captures) = regex.captures(text) else { return Ok(Value::from(())) };
    if groups.is_empty() {
        return Ok(Value::from(&captures[0]));
    }
    groups.iter().map(|group| capture(&captures, &group.to_string())).collect::<Result<Vec<_>, _>>().map(Value::from)
}

/// A group by `\1`, `\g<1>` or `\g<name>`.
fn capture(captures: &Captures<'_>, group: &str) -> Result<Value, Error> {
    let name = group.trim_start_matches('\\');
    let name = name.strip_prefix("g<").and_then(|name| name.strip_suffix('>')).unwrap_or(name);
    let found = match name.parse::<usize>() {
        Ok(number) if number < captures.len() => captures.get(number),
        Ok(number) => return Err(invalid(format!("the pattern has no group {number}"))),
        Err(_) => captures.name(name),
    };
    Ok(found.map_or_else(|| Value::from(()), |found| Value::from(found.as_str())))
}

fn regex_findall(
    text: String,
    regex: String,
    multiline: Option<bool>,
    ignorecase: Option<bool>,
    names: Kwargs,
) -> Result<Value, Error> {
    let flags = Flags::read(ignorecase, multiline, &names)?;
    names.assert_all_used()?;
    let regex = pattern(&regex, flags)?;
    let group = |captures: &Captures<'_>, n| Value::from(captures.get(n).map_or("", |found| found.as_str()));
    let found = regex.captures_iter(&text).map(|captures| match captures.len() {
        1 => group(&captures, 0),
        2 => group(&captures, 1),
        len => (1..len).map(|n| group(&captures, n)).collect::<Vec<_>>().into(),
    });
    Ok(found.collect::<Vec<_>>().into())
}
