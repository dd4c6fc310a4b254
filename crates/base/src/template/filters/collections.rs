//! Lists and mappings.

use std::collections::HashSet;

use minijinja::{
    Environment, Error, Value,
    value::{Kwargs, Rest, ValueKind},
};

use super::{
    super::convert::{invalid, undefined},
    describe, items, named,
};

pub(super) fn add_to(environment: &mut Environment<'static>) {
    environment.add_filter("default", default);
    environment.add_filter("d", default);
    environment.add_filter(super::super::rewrite::FORGIVING_LOOKUP, forgiving_lookup);
    environment.add_filter("join", join);
    environment.add_filter("flatten", flatten);
    environment.add_filter("union", union);
    environment.add_filter("intersect", intersect);
    environment.add_filter("difference", difference);
    environment.add_filter("symmetric_difference", symmetric_difference);
    environment.add_filter("zip_longest", zip_longest);
    environment.add_filter("product", product);
    environment.add_filter("subelements", subelements);
    environment.add_filter("extract", extract);
    environment.add_filter("dict2items", dict2items);
    environment.add_filter("items2dict", items2dict);
    environment.add_filter("combine", combine);
}

fn default(value: &Value, other: Option<Value>, boolean: Option<bool>, names: Kwargs) -> Result<Value, Error> {
    let other = named(other, &names, "default_value")?.unwrap_or_else(|| Value::from(""));
    let boolean = named(boolean, &names, "boolean")?.unwrap_or(false);
    names.assert_all_used()?;
    let missing = value.is_undefined() || boolean && !value.is_true();
    Ok(if missing { other } else { value.clone() })
}

/// `a.b` where an undefined `a` is no error, because `default` or `is defined` is about to ask.
fn forgiving_lookup(value: &Value, key: &Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::Undefined => Ok(Value::UNDEFINED),
        _ => value.get_item(key),
    }
}

/// Unlike minijinja's, does not take an undefined item for an empty one.
fn join(list: &Value, joiner: Option<String>, attribute: Option<String>, names: Kwargs) -> Result<String, Error> {
    let joiner = named(joiner, &names, "d")?.unwrap_or_default();
    let attribute = named(attribute, &names, "attribute")?;
    names.assert_all_used()?;
    if let Some(text) = list.as_str() {
        let characters: Vec<_> = text.chars().map(String::from).collect();
        return Ok(characters.join(&joiner));
    }
    let texts = items(list)?.into_iter().map(|item| {
        let item = match &attribute {
            Some(path) => path.split('.').try_fold(item, |value, key| value.get_attr(key))?,
            None => item,
        };
        if item.is_undefined() { Err(undefined(&item)) } else { Ok(item.to_string()) }
    });
    Ok(texts.collect::<Result<Vec<_>, Error>>()?.join(&joiner))
}

/// Deeper than any value but one that contains itself.
const DEEPEST: usize = 250;

fn flatten(value: Value, levels: Option<usize>, names: Kwargs) -> Result<Value, Error> {
    let levels = named(levels, &names, "levels")?.map_or(DEEPEST, |levels| levels.min(DEEPEST));
    let skip_nulls = names.get::<Option<bool>>("skip_nulls")?.unwrap_or(true);
    names.assert_all_used()?;
    let mut flat = Vec::new();
    flatten_into(&value, levels, skip_nulls, &mut flat)?;
    Ok(flat.into())
}

fn flatten_into(value: &Value, levels: usize, skip_nulls: bool, flat: &mut Vec<Value>) -> Result<(), Error> {
    for item in items(value)? {
        match item.kind() {
            ValueKind::Seq | ValueKind::Iterable if levels > 0 => flatten_into(&item, levels - 1, skip_nulls, flat)?,
            ValueKind::None if skip_nulls => {}
            _ => flat.push(item),
        }
    }
    Ok(())
}

/// Each item once, in the order of first appearance.
fn distinct(list: impl IntoIterator<Item = Value>) -> Value {
    let mut seen = HashSet::new();
    list.into_iter().filter(|item| seen.insert(item.clone())).collect::<Vec<_>>().into()
}

fn set(value: &Value) -> Result<HashSet<Value>, Error> {
    Ok(items(value)?.into_iter().collect())
}

fn union(a: &Value, b: &Value) -> Result<Value, Error> {
    Ok(distinct(items(a)?.into_iter().chain(items(b)?)))
}

fn intersect(a: &Value, b: &Value) -> Result<Value, Error> {
    let b = set(b)?;
    Ok(distinct(items(a)?.into_iter().filter(|item| b.contains(item))))
}

fn difference(a: &Value, b: &Value) -> Result<Value, Error> {
    let b = set(b)?;
    Ok(distinct(items(a)?.into_iter().filter(|item| !b.contains(item))))
}

fn symmetric_difference(a: &Value, b: &Value) -> Result<Value, Error> {
    union(&difference(a, b)?, &difference(b, a)?)
}

fn zip_longest(first: Value, others: Rest<Value>, names: Kwargs) -> Result<Value, Error> {
    let mut lists = others.0;
    let fill = names.get::<Option<Value>>("fillvalue")?.unwrap_or_else(|| Value::from(()));
    names.assert_all_used()?;
    lists.insert(0, first);
    let lists = lists.iter().map(items).collect::<Result<Vec<_>, _>>()?;
    let longest = lists.iter().map(Vec::len).max().unwrap_or(0);
    let row = |n: usize| lists.iter().map(|list| list.get(n).unwrap_or(&fill).clone()).collect::<Vec<_>>();
    Ok((0..longest).map(|n| Value::from(row(n))).collect::<Vec<_>>().into())
}

fn product(first: Value, others: Rest<Value>) -> Result<Value, Error> {
    const MOST: usize = 100_000;
    let mut rows = vec![Vec::new()];
    for list in std::iter::once(&first).chain(others.iter()) {
        let list = items(list)?;
        if rows.len().saturating_mul(list.len()) > MOST {
            return Err(invalid(format!("a product of more than {MOST} items")));
        }
        let extended = rows.iter().flat_map(|row: &Vec<Value>| {
            list.iter().map(move |item| row.iter().cloned().chain([item.clone()]).collect::<Vec<_>>())
        });
        rows = extended.collect();
    }
    Ok(rows.into_iter().map(Value::from).collect::<Vec<_>>().into())
}

/// Pairs each item with each element of a list in it.
fn subelements(list: &Value, path: String, names: Kwargs) -> Result<Value, Error> {
    let skip_missing = names.get::<Option<bool>>("skip_missing")?.unwrap_or(false);
    names.assert_all_used()?;
    let mut pairs = Vec::new();
    for item in items(list)? {
        let elements =
            path.split('.').try_fold(item.clone(), |value, key| forgiving_lookup(&value, &Value::from(key)))?;
        if elements.is_undefined() && skip_missing {
            continue;
        }
        pairs.extend(items(&elements)?.into_iter().map(|element| Value::from(vec![item.clone(), element])));
    }
    Ok(pairs.into())
}

/// `names | map('extract', hostvars, 'address')`.
fn extract(key: &Value, container: &Value, more: Option<Value>, names: Kwargs) -> Result<Value, Error> {
    let more = named(more, &names, "morekeys")?;
    names.assert_all_used()?;
    let found = container.get_item(key)?;
    match more {
        None => Ok(found),
        Some(keys) if keys.kind() == ValueKind::Seq => {
            items(&keys)?.iter().try_fold(found, |value, key| value.get_item(key))
        }
        Some(key) => found.get_item(&key),
    }
}

/// The entries of a mapping.
fn entries(value: &Value) -> Result<Vec<(Value, Value)>, Error> {
    if value.kind() != ValueKind::Map {
        return Err(invalid(format!("expected a mapping, found {}", describe(value))));
    }
    let keys = value.try_iter()?.checked();
    keys.map(|key| key.and_then(|key| value.get_item(&key).map(|item| (key, item)))).collect()
}

fn entry_names(names: &Kwargs) -> Result<(String, String), Error> {
    let key = names.get::<Option<String>>("key_name")?.unwrap_or_else(|| "key".into());
    let value = names.get::<Option<String>>("value_name")?.unwrap_or_else(|| "value".into());
    names.assert_all_used()?;
    Ok((key, value))
}

fn dict2items(map: &Value, names: Kwargs) -> Result<Value, Error> {
    let (key_name, value_name) = entry_names(&names)?;
    let pairs = entries(map)?.into_iter();
    let maps = pairs.map(|(key, value)| Value::from_pairs([(key_name.clone(), key), (value_name.clone(), value)]));
    Ok(maps.collect::<Vec<_>>().into())
}

fn items2dict(list: &Value, names: Kwargs) -> Result<Value, Error> {
    let (key_name, value_name) = entry_names(&names)?;
    let field = |item: &Value, name: &str| match item.get_attr(name)? {
        value if value.is_undefined() => Err(invalid(format!("an item has no `{name}`: {item}"))),
        value => Ok(value),
    };
    let pairs = items(list)?;
    let pairs = pairs.iter().map(|item| Ok((field(item, &key_name)?, field(item, &value_name)?)));
    Ok(Value::from_pairs(pairs.collect::<Result<Vec<_>, Error>>()?))
}

#[derive(Clone, Copy)]
enum ListMerge {
    Replace,
    Keep,
    Append,
    Prepend,
    AppendNew,
    PrependNew,
}

impl ListMerge {
    fn parse(text: &str) -> Result<Self, Error> {
        Ok(match text {
            "replace" => Self::Replace,
            "keep" => Self::Keep,
            "append" => Self::Append,
            "prepend" => Self::Prepend,
            "append_rp" => Self::AppendNew,
            "prepend_rp" => Self::PrependNew,
            other => return Err(invalid(format!("unknown `list_merge`: {other}"))),
        })
    }

    fn merge(self, old: &Value, new: &Value) -> Result<Value, Error> {
        let (first, second) = match self {
            Self::Replace => return Ok(new.clone()),
            Self::Keep => return Ok(old.clone()),
            Self::Append => (items(old)?, items(new)?),
            Self::Prepend => (items(new)?, items(old)?),
            Self::AppendNew => (items(&difference(old, new)?)?, items(new)?),
            Self::PrependNew => (items(new)?, items(&difference(old, new)?)?),
        };
        Ok(first.into_iter().chain(second).collect::<Vec<_>>().into())
    }
}

/// Mappings into one; the last wins.
fn combine(first: Value, others: Rest<Value>, names: Kwargs) -> Result<Value, Error> {
    let recursive = names.get::<Option<bool>>("recursive")?.unwrap_or(false);
    let lists =
        names.get::<Option<String>>("list_merge")?.map_or(Ok(ListMerge::Replace), |text| ListMerge::parse(&text))?;
    names.assert_all_used()?;
    let mut all = Vec::new();
    for value in std::iter::once(first).chain(others.0) {
        match value.kind() {
            ValueKind::Seq | ValueKind::Iterable => all.extend(items(&value)?),
            _ => all.push(value),
        }
    }
    let empty = Value::from_pairs(Vec::<(Value, Value)>::new());
    all.iter().try_fold(empty, |old, new| merge(&old, new, recursive, lists, DEEPEST))
}

fn merge(old: &Value, new: &Value, recursive: bool, lists: ListMerge, depth: usize) -> Result<Value, Error> {
    let mut merged: indexmap::IndexMap<Value, Value> = entries(old)?.into_iter().collect();
    for (key, value) in entries(new)? {
        let value = match (merged.get(&key), value.kind()) {
            (Some(old), ValueKind::Map) if recursive && depth > 0 && old.kind() == ValueKind::Map => {
                merge(old, &value, recursive, lists, depth - 1)?
            }
            (Some(old), ValueKind::Seq) if old.kind() == ValueKind::Seq => lists.merge(old, &value)?,
            _ => value,
        };
        merged.insert(key, value);
    }
    Ok(Value::from_pairs(merged))
}
