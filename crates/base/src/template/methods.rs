//! The methods of Python's strings and dictionaries that playbooks call.

use minijinja::{
    Error, ErrorKind, State, Value,
    value::{ValueKind, from_args},
};

use super::convert::invalid;

pub(super) fn call(_: &mut State<'_, '_>, value: &Value, method: &str, arguments: &[Value]) -> Result<Value, Error> {
    match (value.as_str(), value.kind()) {
        (Some(text), _) => on_string(text, method, arguments),
        (None, ValueKind::Map) => on_map(value, method, arguments),
        (None, ValueKind::Seq | ValueKind::Iterable) => on_list(value, method, arguments),
        _ => Err(ErrorKind::UnknownMethod.into()),
    }
}

fn on_string(text: &str, method: &str, arguments: &[Value]) -> Result<Value, Error> {
    match method {
        "upper" | "lower" | "capitalize" | "title" | "isdigit" | "isalpha" | "isalnum" | "islower" | "isupper"
        | "splitlines" => {
            let () = from_args(arguments)?;
            Ok(of_text(text, method))
        }
        "strip" | "lstrip" | "rstrip" => {
            let (characters,): (Option<&str>,) = from_args(arguments)?;
            Ok(strip(text, method, characters).into())
        }
        "startswith" | "endswith" => {
            let (affix,): (Value,) = from_args(arguments)?;
            affixed(text, method, &affix).map(Value::from)
        }
        "removeprefix" => from_args(arguments).map(|(p,): (&str,)| text.strip_prefix(p).unwrap_or(text).into()),
        "removesuffix" => from_args(arguments).map(|(p,): (&str,)| text.strip_suffix(p).unwrap_or(text).into()),
        "split" | "rsplit" => {
            let (separator, most): (Option<&str>, Option<i64>) = from_args(arguments)?;
            split(text, method == "rsplit", separator, most)
        }
        "replace" => {
            let (from, to, count): (&str, &str, Option<usize>) = from_args(arguments)?;
            Ok(text.replacen(from, to, count.unwrap_or(usize::MAX)).into())
        }
        "find" => from_args(arguments).map(|(part,): (&str,)| position(text, part).map_or(-1, |n| n).into()),
        "count" => from_args(arguments).map(|(part,): (&str,)| text.matches(part).count().into()),
        "join" => {
            let (parts,): (Value,) = from_args(arguments)?;
            let parts = parts.try_iter()?.checked().map(|part| part.map(|part| part.to_string()));
            Ok(parts.collect::<Result<Vec<_>, _>>()?.join(text).into())
        }
        "zfill" => from_args(arguments).map(|(width,): (usize,)| zfill(text, width.min(10_000)).into()),
        "format" => format(text, arguments).map(Value::from),
        _ => Err(ErrorKind::UnknownMethod.into()),
    }
}

fn of_text(text: &str, method: &str) -> Value {
    let all = |test: fn(char) -> bool| Value::from(!text.is_empty() && text.chars().all(test));
    match method {
        "upper" => text.to_uppercase().into(),
        "lower" => text.to_lowercase().into(),
        "capitalize" => capitalize(text).into(),
        "title" => text.split_inclusive(|c: char| !c.is_alphabetic()).map(capitalize).collect::<String>().into(),
        "isdigit" => all(|c| c.is_ascii_digit()),
        "isalpha" => all(char::is_alphabetic),
        "isalnum" => all(char::is_alphanumeric),
        "islower" => Value::from(text.chars().any(char::is_lowercase) && !text.chars().any(char::is_uppercase)),
        "isupper" => Value::from(text.chars().any(char::is_uppercase) && !text.chars().any(char::is_lowercase)),
        _ => text.lines().map(Value::from).collect::<Vec<_>>().into(),
    }
}

fn capitalize(word: &str) -> String {
    let mut characters = word.chars();
    let first = characters.next().map(char::to_uppercase).into_iter().flatten();
    first.chain(characters.as_str().to_lowercase().chars()).collect()
}

fn strip<'t>(text: &'t str, method: &str, characters: Option<&str>) -> &'t str {
    let wanted = |c: char| characters.map_or(c.is_whitespace(), |set| set.contains(c));
    match method {
        "lstrip" => text.trim_start_matches(wanted),
        "rstrip" => text.trim_end_matches(wanted),
        _ => text.trim_matches(wanted),
    }
}

fn affixed(text: &str, method: &str, affix: &Value) -> Result<bool, Error> {
    let test = |affix: &str| if method == "startswith" { text.starts_with(affix) } else { text.ends_with(affix) };
    match affix.as_str() {
        Some(affix) => Ok(test(affix)),
        None => Ok(affix.try_iter()?.any(|affix| affix.as_str().is_some_and(test))),
    }
}

fn position(text: &str, part: &str) -> Option<i64> {
    text.find(part).and_then(|at| i64::try_from(text[..at].chars().count()).ok())
}

fn split(text: &str, from_right: bool, separator: Option<&str>, most: Option<i64>) -> Result<Value, Error> {
    let pieces = most.and_then(|most| usize::try_from(most).ok()).map_or(usize::MAX, |most| most.saturating_add(1));
    let parts: Vec<&str> = match (separator, from_right) {
        (Some(""), _) => return Err(invalid("an empty separator")),
        (Some(separator), false) => text.splitn(pieces, separator).collect(),
        (Some(separator), true) => text.rsplitn(pieces, separator).collect::<Vec<_>>().into_iter().rev().collect(),
        (None, _) => text.split_whitespace().collect(),
    };
    Ok(parts.into_iter().map(Value::from).collect::<Vec<_>>().into())
}

fn zfill(text: &str, width: usize) -> String {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text),
    };
    let width = width.saturating_sub(sign.len());
    format!("{sign}{digits:0>width$}")
}

/// `'{} {}'.format(a, b)` and `'{0} {1}'.format(a, b)`, without format specifications.
fn format(text: &str, arguments: &[Value]) -> Result<String, Error> {
    let (mut out, mut rest, mut next) = (String::new(), text, 0);
    while let Some((before, after)) = rest.split_once('{') {
        out += before;
        let (field, following) = after.split_once('}').ok_or_else(|| invalid("a `{` without its `}`"))?;
        let index = if field.is_empty() { next } else { field.parse().map_err(|_| unsupported(field))? };
        next += 1;
        let argument =
            arguments.get(index).ok_or_else(|| invalid(format!("`format` was given no argument {index}")))?;
        out += &argument.to_string();
        rest = following;
    }
    Ok(out + rest)
}

fn unsupported(field: &str) -> Error {
    invalid(format!("`{{{field}}}` is not supported here; use `{{}}`, or the `format` filter"))
}

fn on_map(map: &Value, method: &str, arguments: &[Value]) -> Result<Value, Error> {
    let entries = |pick: fn(Value, Value) -> Value| {
        let () = from_args(arguments)?;
        let keys = map.try_iter()?.checked();
        let values = keys.map(|key| key.and_then(|key| map.get_item(&key).map(|value| pick(key, value))));
        values.collect::<Result<Vec<_>, _>>().map(Value::from)
    };
    match method {
        "items" => entries(|key, value| Value::from(vec![key, value])),
        "keys" => entries(|key, _| key),
        "values" => entries(|_, value| value),
        "get" => {
            let (key, default): (Value, Option<Value>) = from_args(arguments)?;
            let found = map.get_item(&key)?;
            Ok(if found.is_undefined() { default.unwrap_or_else(|| Value::from(())) } else { found })
        }
        _ => Err(ErrorKind::UnknownMethod.into()),
    }
}

fn on_list(list: &Value, method: &str, arguments: &[Value]) -> Result<Value, Error> {
    let (wanted,): (Value,) = match method {
        "index" | "count" => from_args(arguments)?,
        _ => return Err(ErrorKind::UnknownMethod.into()),
    };
    let mut items = list.try_iter()?;
    match method {
        "count" => Ok(items.filter(|item| *item == wanted).count().into()),
        _ => items
            .position(|item| item == wanted)
            .map(Value::from)
            .ok_or_else(|| invalid(format!("{wanted} is not in the list"))),
    }
}
