//! Text, paths and addresses of the web.

use std::sync::LazyLock;

use minijinja::{
    Environment, Error, Value,
    value::{Kwargs, Rest},
};
use regex::Regex;

use super::{super::convert::invalid, items, named};

/// A width that text is laid out in; nobody means more.
const WIDEST: usize = 10_000;

pub(super) fn add_to(environment: &mut Environment<'static>) {
    environment.add_filter("quote", quote);
    environment.add_filter("comment", comment);
    environment.add_filter("center", center);
    environment.add_filter("wordwrap", wordwrap);
    environment.add_filter("basename", |path: String| path.rsplit('/').next().unwrap_or_default().to_owned());
    environment.add_filter("dirname", dirname);
    environment.add_filter("splitext", splitext);
    environment.add_filter("path_join", path_join);
    environment.add_filter("urlsplit", urlsplit);
}

/// One word for a POSIX shell.
fn quote(value: Value) -> String {
    let text = value.to_string();
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"@%+=:,./-_".contains(&b);
    if !text.is_empty() && text.bytes().all(plain) {
        return text;
    }
    String::from_utf8(crate::shell::quote(text.as_bytes())).unwrap_or(text)
}

fn comment(text: String, style: Option<String>, names: Kwargs) -> Result<String, Error> {
    let style = named(style, &names, "style")?;
    let (begin, default, end) = match style.as_deref().unwrap_or("plain") {
        "plain" => ("", "# ", ""),
        "c" => ("", "// ", ""),
        "erlang" => ("", "% ", ""),
        "cblock" => ("/*\n", " * ", "\n */"),
        "xml" => ("<!--\n", " - ", "\n-->"),
        other => return Err(invalid(format!("unknown comment style `{other}`: use plain, c, erlang, cblock or xml"))),
    };
    let decoration = names.get::<Option<String>>("decoration")?.unwrap_or_else(|| default.to_owned());
    names.assert_all_used()?;
    let blank = decoration.trim_end();
    let body = text.lines().map(|line| format!("{decoration}{line}").trim_end().to_owned());
    let lines: Vec<_> = std::iter::once(blank.to_owned()).chain(body).chain([blank.to_owned()]).collect();
    Ok(format!("{begin}{}{end}", lines.join("\n")))
}

fn center(text: String, width: Option<usize>) -> String {
    let width = width.unwrap_or(80).min(WIDEST);
    format!("{text:^width$}")
}

fn wordwrap(text: String, width: Option<usize>) -> String {
    let width = width.unwrap_or(79).clamp(1, WIDEST);
    let lines = text.lines().map(|line| wrap_line(line, width));
    lines.collect::<Vec<_>>().join("\n")
}

fn wrap_line(line: &str, width: usize) -> String {
    let (mut wrapped, mut column) = (String::new(), 0);
    for word in line.split_whitespace() {
        let len = word.chars().count();
        if column > 0 && column + 1 + len > width {
            wrapped.push('\n');
            column = 0;
        } else if column > 0 {
            wrapped.push(' ');
            column += 1;
        }
        wrapped.push_str(word);
        column += len;
    }
    wrapped
}

fn dirname(path: String) -> String {
    match path.rsplit_once('/') {
        Some((parent, _)) if parent.trim_matches('/').is_empty() => "/".into(),
        Some((parent, _)) => parent.trim_end_matches('/').into(),
        None => String::new(),
    }
}

fn splitext(path: String) -> Vec<String> {
    let name = path.rfind('/').map_or(0, |slash| slash + 1);
    let stem = path[name..].trim_start_matches('.');
    let hidden = path.len() - stem.len();
    match stem.rfind('.') {
        Some(dot) => vec![path[..hidden + dot].into(), path[hidden + dot..].into()],
        None => vec![path, String::new()],
    }
}

fn path_join(parts: &Value, more: Rest<String>) -> Result<String, Error> {
    let first = match parts.as_str() {
        Some(text) => vec![text.to_owned()],
        None => items(parts)?.iter().map(ToString::to_string).collect(),
    };
    Ok(first.into_iter().chain(more.0).fold(String::new(), |path, part| match part.starts_with('/') {
        true => part,
        false if path.is_empty() || path.ends_with('/') => path + &part,
        false => format!("{path}/{part}"),
    }))
}

/// The parts of a URL, or one of them.
fn urlsplit(url: String, query: Option<String>) -> Result<Value, Error> {
    static URL: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"^(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):)?(?://(?P<netloc>[^/?#]*))?(?P<path>[^?#]*)(?:\?(?P<query>[^#]*))?(?:#(?P<fragment>.*))?$").ok()
    });
    let captures = URL.as_ref().and_then(|regex| regex.captures(&url));
    let part = |name: &str| captures.as_ref().and_then(|found| found.name(name)).map_or("", |found| found.as_str());
    let netloc = part("netloc");
    let (user, host) = netloc.rsplit_once('@').map_or((None, netloc), |(user, host)| (Some(user), host));
    let (username, password) = match user.map(|user| user.split_once(':').unwrap_or((user, ""))) {
        Some((name, password)) => (Value::from(name), Value::from(password)),
        None => (Value::from(()), Value::from(())),
    };
    let (hostname, port) = split_port(host);
    let parts = [
        ("scheme", Value::from(part("scheme"))),
        ("netloc", Value::from(netloc)),
        ("hostname", Value::from(hostname)),
        ("port", port.map_or_else(|| Value::from(()), Value::from)),
        ("path", Value::from(part("path"))),
        ("query", Value::from(part("query"))),
        ("fragment", Value::from(part("fragment"))),
        ("username", username),
        ("password", password),
    ];
    let Some(query) = query else { return Ok(Value::from_pairs(parts)) };
    let found = parts.into_iter().find(|(name, _)| *name == query).map(|(_, value)| value);
    found.ok_or_else(|| invalid(format!("a URL has no part `{query}`")))
}

fn split_port(host: &str) -> (&str, Option<u16>) {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, port.parse().ok()),
        _ => (host, None),
    };
    (name.trim_start_matches('[').trim_end_matches(']'), port)
}
