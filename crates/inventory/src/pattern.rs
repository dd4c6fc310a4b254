//! Host patterns, for `hosts:` and `--limit`, with Ansible's meaning.
//!
//! Terms are joined by `,` or `:`. Whatever their order, unions come first, then intersections
//! (`&`), then exclusions (`!`). A term that matches nothing is an error: a mistyped exclusion
//! would otherwise run on the very hosts it was meant to spare.

use std::{collections::HashMap, fmt, path::Path};

use regex::Regex;

use super::{
    collect::inside,
    range::NodeSet,
    types::{Group, GroupKind, HostId, Inventory},
};
use crate::{
    model::{HostName, Span},
    source::{Diagnostic, Sources, did_you_mean},
};

/// Missing names that a message lists; more would only push the useful part away.
const MAX_LISTED: usize = 5;

/// Problems for which a near name is looked for.
pub(super) const MAX_GUESSES: usize = 20;

/// A parsed host pattern.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    terms: Vec<Term>,
}

#[derive(Clone, Debug)]
struct Term {
    operator: Operator,
    text: String,
    span: Option<Span>,
    matcher: Matcher,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Union,
    Intersection,
    Exclusion,
}

#[derive(Clone, Debug)]
enum Matcher {
    All,
    /// `~` and a regular expression, which matches from the start of a name.
    Regex(Regex),
    /// A host, a group, a glob, or a range of those.
    Names(NodeSet),
    /// `group[0]` or `group[0:2]`; if there is no such group, a range after all.
    Subscript {
        group: String,
        first: i64,
        last: Option<i64>,
        range: Option<NodeSet>,
    },
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl Pattern {
    /// Parses a pattern; `span` is where it was written.
    pub fn parse(text: &str, span: impl Into<Option<Span>>) -> Result<Self, Diagnostic> {
        let span = span.into();
        let terms = split(text).map(|(offset, term)| {
            let place = span.map(|span| inside(span, text, offset, term.len()));
            Term::parse(term, place)
        });
        let terms = terms.collect::<Result<Vec<_>, _>>()?;
        if terms.is_empty() {
            let problem = Diagnostic::error(span, "the host pattern is empty");
            return Err(problem.help("name hosts or groups, or write `all`"));
        }
        Ok(Self { text: text.to_owned(), terms })
    }

    /// Parses a limit, in which `@FILE` stands for the patterns in that file, one a line.
    pub fn parse_limit(text: &str, span: impl Into<Option<Span>>, sources: &mut Sources) -> Result<Self, Diagnostic> {
        let span = span.into();
        let mut limit = Self { text: text.to_owned(), terms: Vec::new() };
        for (offset, part) in split(text) {
            let place = span.map(|span| inside(span, text, offset, part.len()));
            match part.strip_prefix('@') {
                Some(file) => limit.terms.extend(terms_of_file(Path::new(file), sources)?),
                None => limit.terms.push(Term::parse(part, place)?),
            }
        }
        if limit.terms.is_empty() {
            return Err(Diagnostic::error(span, "the limit names no host").help("omit it to select all hosts"));
        }
        Ok(limit)
    }
}

fn terms_of_file(path: &Path, sources: &mut Sources) -> Result<Vec<Term>, Diagnostic> {
    let file = sources.read(path)?;
    let text = sources.shared_text(file);
    let mut terms = Vec::new();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let code = line.split('#').next().unwrap_or_default();
        for (offset, term) in split(code) {
            let span = Span::new(file, start + offset, start + offset + term.len());
            terms.push(Term::parse(term, Some(span))?);
        }
        start += line.len();
    }
    Ok(terms)
}

/// The terms of a pattern with their offsets, without blanks around them.
fn split(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut pieces = Vec::new();
    let mut start = 0;
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        let so_far = text[start..at].trim_start();
        let regex = so_far.starts_with('~') || so_far.starts_with("!~") || so_far.starts_with("&~");
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            '(' | '{' if regex => depth += 1,
            ')' | '}' if regex => depth = depth.saturating_sub(1),
            ',' | ':' if depth == 0 && !(c == ':' && in_ipv6(text, at)) => {
                pieces.push((start, &text[start..at]));
                start = at + 1;
            }
            _ => {}
        }
    }
    pieces.push((start, &text[start..]));
    pieces.into_iter().filter_map(|(start, piece)| {
        let term = piece.trim();
        (!term.is_empty()).then(|| (start + (piece.len() - piece.trim_start().len()), term))
    })
}

/// Whether the colon at `at` is part of an IPv6 address, which then stands between commas.
fn in_ipv6(text: &str, at: usize) -> bool {
    let start = text[..at].rfind(',').map_or(0, |comma| comma + 1);
    let end = text[at..].find(',').map_or(text.len(), |comma| at + comma);
    text[start..end].trim().trim_start_matches(['!', '&']).parse::<std::net::Ipv6Addr>().is_ok()
}

impl Term {
    fn parse(text: &str, span: Option<Span>) -> Result<Self, Diagnostic> {
        let (operator, body) = match text.split_at_checked(1) {
            Some(("!", rest)) => (Operator::Exclusion, rest.trim_start()),
            Some(("&", rest)) => (Operator::Intersection, rest.trim_start()),
            _ => (Operator::Union, text),
        };
        let matcher = Matcher::parse(body, span.map(|span| span.part(text.len() - body.len(), body.len())))?;
        Ok(Self { operator, text: body.to_owned(), span, matcher })
    }
}

impl Matcher {
    fn parse(text: &str, span: Option<Span>) -> Result<Self, Diagnostic> {
        if text.is_empty() {
            return Err(Diagnostic::error(span, "a term of the host pattern is empty"));
        }
        if text == "all" || text == "*" {
            return Ok(Self::All);
        }
        if text.contains("{{") {
            let problem = Diagnostic::error(span, "a host pattern cannot be a template");
            return Err(problem.help("the hosts must be known before anything is rendered"));
        }
        if let Some(expression) = text.strip_prefix('~') {
            return anchored(expression).map(Self::Regex).map_err(|error| {
                let reason =
                    error.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
                Diagnostic::error(span, format!("`{expression}` is not a regular expression: {reason}"))
            });
        }
        let range = NodeSet::parse(text);
        if let Some((group, first, last)) = subscript(text) {
            return Ok(Self::Subscript { group: group.to_owned(), first, last, range: range.ok() });
        }
        range.map(Self::Names).map_err(|problem| {
            let place = span.map(|span| span.part(problem.offset, problem.length));
            Diagnostic::error(place, format!("`{text}`: {problem}")).maybe_help(problem.help)
        })
    }
}

fn anchored(expression: &str) -> Result<Regex, regex::Error> {
    Regex::new(&format!("^(?:{expression})"))
}

/// `name[0]`, `name[-1]`, `name[0:2]`, `name[1:]`; both ends count, as in Ansible.
fn subscript(text: &str) -> Option<(&str, i64, Option<i64>)> {
    let (group, inside) = text.strip_suffix(']')?.rsplit_once('[')?;
    match inside.split_once(':') {
        None => inside.parse().ok().map(|index| (group, index, Some(index))),
        Some((first, last)) => {
            let end = |text: &str, default| if text.is_empty() { Some(default) } else { text.parse().ok().map(Some) };
            Some((group, end(first, Some(0))??, end(last, None)?))
        }
    }
}

impl Inventory {
    /// The hosts a pattern means, in the inventory's order, each once.
    pub fn select(&self, pattern: &Pattern) -> Result<Vec<HostId>, Vec<Diagnostic>> {
        let mut problems = Vec::new();
        let mut chosen = vec![false; self.hosts.len()];
        let unions = pattern.terms.iter().filter(|term| term.operator == Operator::Union);
        if unions.clone().next().is_none() {
            chosen.fill(true);
        }
        for term in unions {
            self.matches(term, &mut problems).into_iter().for_each(|host| chosen[host.index()] = true);
        }
        for term in pattern.terms.iter().filter(|term| term.operator == Operator::Intersection) {
            let mut kept = vec![false; chosen.len()];
            self.matches(term, &mut problems).into_iter().for_each(|host| kept[host.index()] = chosen[host.index()]);
            chosen = kept;
        }
        for term in pattern.terms.iter().filter(|term| term.operator == Operator::Exclusion) {
            self.matches(term, &mut problems).into_iter().for_each(|host| chosen[host.index()] = false);
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(self.hosts.iter().map(|host| host.id).filter(|host| chosen[host.index()]).collect())
    }

    fn matches(&self, term: &Term, problems: &mut Vec<Diagnostic>) -> Vec<HostId> {
        let found = match &term.matcher {
            Matcher::All => Ok(self.hosts.iter().map(|host| host.id).collect()),
            Matcher::Regex(regex) => self.match_wildcard(&term.text, regex),
            Matcher::Names(set) => self.match_names(&term.text, set),
            Matcher::Subscript { group, first, last, range } => match (self.group(group), range) {
                (Some(group), _) => subscript_hosts(group, *first, *last),
                // Only Ansible's subscripts are written with a colon, so there it is the group that is missing.
                (None, Some(range)) if !term.text.contains(':') => self.match_names(&term.text, range),
                (None, Some(range)) => self.match_names(&term.text, range).map_err(|_| NoMatch::new(group)),
                (None, None) => Err(NoMatch::new(group)),
            },
        };
        found.unwrap_or_else(|no_match| {
            // Each guess looks at every name; the first few help, the thousandth only costs time.
            let known = self.known_names().take(if problems.len() < MAX_GUESSES { usize::MAX } else { 0 });
            problems.push(no_match.explain(term.span, known));
            Vec::new()
        })
    }

    fn known_names(&self) -> impl Iterator<Item = &str> {
        let groups = self.groups.keys().map(|name| name.as_str());
        groups.chain(["clusters"]).chain(self.hosts.iter().map(|host| host.name.as_str()))
    }

    /// Wildcards look at hosts and at groups, but not at the built-in ones: `a*` is not `all`.
    fn match_wildcard(&self, text: &str, regex: &Regex) -> Result<Vec<HostId>, NoMatch> {
        let groups = self.groups.values().filter(|group| group.kind != GroupKind::Builtin);
        let groups: Vec<_> = groups.filter(|group| regex.is_match(group.name.as_str())).collect();
        let hosts = self.hosts.iter().filter(|host| regex.is_match(host.name.as_str())).map(|host| host.id);
        let found: Vec<_> = groups.iter().flat_map(|group| &group.members).copied().chain(hosts).collect();
        if found.is_empty() && groups.is_empty() { Err(NoMatch::new(text)) } else { Ok(found) }
    }

    fn match_names(&self, text: &str, set: &NodeSet) -> Result<Vec<HostId>, NoMatch> {
        let mut found = Vec::new();
        let mut missing = Vec::new();
        for expanded in set.expand() {
            let name = expanded.name.as_str();
            if let Some(id) = self.by_name.get(name) {
                found.push(*id);
            } else if let Some(group) = self.group(name) {
                found.extend(&group.members);
            } else if let Some(hosts) = glob(name).and_then(|regex| self.match_wildcard(name, &regex).ok()) {
                found.extend(hosts);
            } else {
                missing.push(expanded.name);
            }
        }
        if missing.is_empty() { Ok(found) } else { Err(NoMatch::Names { text: text.to_owned(), names: missing }) }
    }
}

fn subscript_hosts(group: &Group, first: i64, last: Option<i64>) -> Result<Vec<HostId>, NoMatch> {
    let count = i64::try_from(group.members.len()).unwrap_or(i64::MAX);
    let from_end = |index: i64| if index < 0 { index.saturating_add(count) } else { index };
    let (first, last) = (from_end(first), from_end(last.unwrap_or(-1)));
    let inside = |(index, _): &(i64, &HostId)| (first..=last).contains(index);
    let found: Vec<_> = (0_i64..).zip(&group.members).filter(inside).map(|(_, host)| *host).collect();
    if found.is_empty() {
        return Err(NoMatch::Subscript { group: group.name.to_string(), count: group.members.len() });
    }
    Ok(found)
}

/// The regular expression for a glob; `None` if the text is none.
fn glob(text: &str) -> Option<Regex> {
    if !text.contains(['*', '?']) {
        return None;
    }
    let expression = regex::escape(text).replace(r"\*", ".*").replace(r"\?", ".");
    Regex::new(&format!("^{expression}$")).ok()
}

/// A term that fits no host, or names in it that do not.
#[derive(Debug)]
enum NoMatch {
    Names { text: String, names: Vec<String> },
    Subscript { group: String, count: usize },
}

impl NoMatch {
    fn new(text: &str) -> Self {
        Self::Names { text: text.to_owned(), names: vec![text.to_owned()] }
    }

    fn explain<'n>(self, span: Option<Span>, known: impl Iterator<Item = &'n str>) -> Diagnostic {
        match self {
            Self::Names { text, names } => unknown_names(&text, &names, span, known),
            Self::Subscript { group, count } => {
                let message = format!("there is no such host in `{group}`, which has {count}");
                Diagnostic::error(span, message).help("the first is [0], the last is [-1]")
            }
        }
    }
}

fn unknown_names<'n>(
    text: &str,
    names: &[String],
    span: Option<Span>,
    known: impl Iterator<Item = &'n str>,
) -> Diagnostic {
    let first = names.first().map_or("", String::as_str);
    let near = did_you_mean(first, known);
    let message = if names.len() == 1 && first == text {
        format!("no host or group matches `{text}`")
    } else {
        let listed = names.iter().take(MAX_LISTED).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = names.len().saturating_sub(MAX_LISTED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("`{text}` names hosts that do not exist: {listed}{more}")
    };
    Diagnostic::error(span, message).maybe_help(near)
}

/// The hosts that a term in a group's `hosts` means: a name, a range, a glob or a regular expression.
/// `guess` says whether a near name is to be looked for if there are none.
pub(super) fn match_hosts(
    term: &str,
    span: Span,
    hosts: &HashMap<HostName, HostId>,
    guess: bool,
) -> Result<Vec<HostId>, Diagnostic> {
    let scan = |regex: &Regex| {
        let mut found: Vec<_> =
            hosts.iter().filter(|(name, _)| regex.is_match(name.as_str())).map(|(_, id)| *id).collect();
        found.sort_unstable();
        found
    };
    let known = hosts.keys().map(HostName::as_str).take(if guess { usize::MAX } else { 0 });
    let set = match Matcher::parse(term, Some(span))? {
        Matcher::All => NodeSet::parse("*").ok(),
        Matcher::Names(set) => Some(set),
        Matcher::Subscript { range, .. } => range,
        Matcher::Regex(regex) => {
            let found = scan(&regex);
            return if found.is_empty() { Err(NoMatch::new(term).explain(Some(span), known)) } else { Ok(found) };
        }
    };
    let mut found = Vec::new();
    let mut missing = Vec::new();
    for expanded in set.iter().flat_map(NodeSet::expand) {
        match (hosts.get(expanded.name.as_str()), glob(&expanded.name).map(|regex| scan(&regex))) {
            (Some(id), _) => found.push(*id),
            (None, Some(hosts)) if !hosts.is_empty() => found.extend(hosts),
            _ => missing.push(expanded.name),
        }
    }
    if missing.is_empty() && set.is_some() { Ok(found) } else { Err(unknown_names(term, &missing, Some(span), known)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(text: &str) -> Vec<&str> {
        split(text).map(|(_, term)| term).collect()
    }

    #[test]
    fn patterns_split_outside_of_brackets() {
        assert_eq!(terms("a:b,!c : &d"), ["a", "b", "!c", "&d"]);
        assert_eq!(terms("hv[1-3,5],web[0:2]:x"), ["hv[1-3,5]", "web[0:2]", "x"]);
        assert_eq!(terms("~a{1,2}(?:b|c),d"), ["~a{1,2}(?:b|c)", "d"]);
        assert_eq!(terms("fe80::1,!::2"), ["fe80::1", "!::2"]);
        assert_eq!(terms(" , :"), [""; 0]);
    }

    #[test]
    fn subscripts_are_told_from_ranges() {
        assert_eq!(subscript("web[0]"), Some(("web", 0, Some(0))));
        assert_eq!(subscript("web[-1]"), Some(("web", -1, Some(-1))));
        assert_eq!(subscript("web[1:]"), Some(("web", 1, None)));
        assert_eq!(subscript("web[:2]"), Some(("web", 0, Some(2))));
        assert_eq!(subscript("web[1-3]"), None);
        assert_eq!(subscript("web[1,3]"), None);
        assert_eq!(subscript("web"), None);
    }

    #[test]
    fn bad_patterns_are_refused() {
        for text in ["", " ", ",", "!", "a,&", "hv[9-1]", "hv[", "~(", "{{ x }}"] {
            assert!(Pattern::parse(text, None).is_err(), "{text}");
        }
    }
}
