//! Tests beyond minijinja's own: what stands after `is`.

use std::{cmp::Ordering, collections::HashSet};

use minijinja::{
    Environment, Error, Value,
    value::{Kwargs, ValueKind},
};

use super::{
    convert::{invalid, undefined},
    filters::{Flags, address_version, network_contains, pattern},
};

pub(super) fn add_to(environment: &mut Environment<'static>) {
    for name in ["succeeded", "success"] {
        environment.add_test(name, |r: &Value| Ok::<_, Error>(!flag(r, "failed")? && !flag(r, "unreachable")?));
    }
    for name in ["failed", "failure"] {
        environment.add_test(name, |result: &Value| flag(result, "failed"));
    }
    for name in ["skipped", "skip"] {
        environment.add_test(name, |result: &Value| flag(result, "skipped"));
    }
    for name in ["version", "version_compare"] {
        environment.add_test(name, version);
    }
    environment.add_test("changed", |result: &Value| flag(result, "changed"));
    environment.add_test("match", |text: String, regex: String, names: Kwargs| matches(&text, &regex, true, &names));
    environment.add_test("search", |text: String, regex: String, names: Kwargs| matches(&text, &regex, false, &names));
    environment.add_test("regex", |text: String, regex: String, names: Kwargs| matches(&text, &regex, false, &names));
    environment.add_test("contains", |list: &Value, item: &Value| is_in(item, list));
    environment.add_test("subset", |a: &Value, b: &Value| Ok::<_, Error>(set(a)?.is_subset(&set(b)?)));
    environment.add_test("superset", |a: &Value, b: &Value| Ok::<_, Error>(set(a)?.is_superset(&set(b)?)));
    environment.add_test("all", |list: &Value| Ok::<_, Error>(items(list)?.iter().all(Value::is_true)));
    environment.add_test("any", |list: &Value| Ok::<_, Error>(items(list)?.iter().any(Value::is_true)));
    environment.add_test("truthy", |value: &Value, names: Kwargs| truth(value, &names));
    environment.add_test("falsy", |value: &Value, names: Kwargs| truth(value, &names).map(|truth| !truth));
    environment.add_test("in_network", |address: &Value, network: &Value| network_contains(network, address));
    environment.add_test("ip", |value: &Value| address_version(value).is_some());
    environment.add_test("ipv4", |value: &Value| address_version(value) == Some(4));
    environment.add_test("ipv6", |value: &Value| address_version(value) == Some(6));
}

/// A field of a registered result. One that has no such field was not.
fn flag(result: &Value, name: &str) -> Result<bool, Error> {
    match result.kind() {
        ValueKind::Map => Ok(result.get_attr(name)?.is_true()),
        ValueKind::Undefined => Err(undefined(result)),
        kind => Err(invalid(format!("`is {name}` needs a registered result, and this is a {kind}"))),
    }
}

fn matches(text: &str, regex: &str, anchored: bool, names: &Kwargs) -> Result<bool, Error> {
    let flags = Flags { anchored, ..Flags::read(None, None, names)? };
    names.assert_all_used()?;
    Ok(pattern(regex, flags)?.is_match(text))
}

fn items(value: &Value) -> Result<Vec<Value>, Error> {
    value.try_iter()?.checked().collect()
}

fn set(value: &Value) -> Result<HashSet<Value>, Error> {
    Ok(items(value)?.into_iter().collect())
}

fn is_in(item: &Value, container: &Value) -> Result<bool, Error> {
    match container.as_str() {
        Some(text) => Ok(text.contains(&item.to_string())),
        None => Ok(items(container)?.contains(item)),
    }
}

fn truth(value: &Value, names: &Kwargs) -> Result<bool, Error> {
    let convert = names.get::<Option<bool>>("convert_bool")?.unwrap_or(false);
    names.assert_all_used()?;
    match value.as_str().map(str::to_ascii_lowercase).as_deref() {
        Some("false" | "no" | "off" | "n" | "f" | "0") if convert => Ok(false),
        _ if value.is_undefined() => Err(undefined(value)),
        _ => Ok(value.is_true()),
    }
}

/// Compares as semantic versions do: by numbers, a pre-release before its release.
fn version(value: Value, other: Value, operator: Option<String>, names: Kwargs) -> Result<bool, Error> {
    let operator = super::filters::named(operator, &names, "operator")?.unwrap_or_else(|| "==".into());
    // Ansible's ways of reading a version; here there is one.
    names.get::<Option<bool>>("strict")?;
    names.get::<Option<String>>("version_type")?;
    names.assert_all_used()?;
    let order = Version::parse(&value.to_string())?.cmp(&Version::parse(&other.to_string())?);
    Ok(match operator.as_str() {
        "==" | "=" | "eq" => order.is_eq(),
        "!=" | "<>" | "ne" => order.is_ne(),
        "<" | "lt" => order.is_lt(),
        "<=" | "le" => order.is_le(),
        ">" | "gt" => order.is_gt(),
        ">=" | "ge" => order.is_ge(),
        other => return Err(invalid(format!("`{other}` is not a comparison; use <, <=, ==, !=, >= or >"))),
    })
}

#[derive(Debug, PartialEq, Eq)]
struct Version<'t> {
    numbers: Vec<u64>,
    pre_release: Option<&'t str>,
}

impl<'t> Version<'t> {
    fn parse(text: &'t str) -> Result<Self, Error> {
        let wrong = || invalid(format!("`{text}` is not a version; it looks like 3.5.26 or 3.6.0-rc.1"));
        let plain = text.trim().trim_start_matches(['v', 'V']);
        let plain = plain.split_once('+').map_or(plain, |(version, _build)| version);
        let (numbers, pre_release) = match plain.split_once(['-', '~']) {
            Some((numbers, rest)) => (numbers, Some(rest)),
            None => (plain, None),
        };
        let parsed = numbers.split('.').map(|part| part.parse().map_err(|_| wrong()));
        let mut numbers = parsed.collect::<Result<Vec<u64>, _>>()?;
        while numbers.last() == Some(&0) {
            numbers.pop();
        }
        Ok(Self { numbers, pre_release })
    }
}

impl Ord for Version<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.numbers.cmp(&other.numbers).then_with(|| match (self.pre_release, other.pre_release) {
            (None, None) => Ordering::Equal,
            (None, Some(_)) => Ordering::Greater,
            (Some(_), None) => Ordering::Less,
            (Some(a), Some(b)) => compare_pre_release(a, b),
        })
    }
}

impl PartialOrd for Version<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

fn compare_pre_release(a: &str, b: &str) -> Ordering {
    // Numbers come before words.
    let part = |part: &str| part.parse::<u64>().map_or((1, 0, part.to_owned()), |number| (0, number, String::new()));
    a.split('.').map(part).cmp(b.split('.').map(part))
}
