//! minijinja values to run-time values.

use std::{fmt, sync::Arc};

use minijinja::{
    Error, ErrorKind, Value,
    value::{Object, ObjectRepr, ValueKind},
};

use crate::model::{self, ValueMap};

const MAX_DEPTH: usize = 128;

/// The value that leaves out the argument it is given to.
#[derive(Debug)]
pub(super) struct Omit;

impl Object for Omit {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("omit")
    }
}

pub(super) fn is_omit(value: &Value) -> bool {
    value.downcast_object_ref::<Omit>().is_some()
}

/// Drops laziness. Undefined and broken values are errors, wherever they are nested.
pub(super) fn to_value(value: &Value) -> Result<model::Value, Error> {
    nested(value, MAX_DEPTH)
}

/// A run-time value for minijinja.
pub(super) fn from_value(value: &model::Value) -> Value {
    Value::from(minijinja::value::Serde(value))
}

fn nested(value: &Value, depth: usize) -> Result<model::Value, Error> {
    if depth == 0 {
        return Err(invalid(format!("a value that contains itself, or is nested more than {MAX_DEPTH} levels deep")));
    }
    Ok(match value.kind() {
        ValueKind::Undefined => return Err(undefined(value)),
        ValueKind::None => model::Value::Null,
        ValueKind::Bool => value.is_true().into(),
        ValueKind::Number => number(value)?,
        ValueKind::String => value.as_str().unwrap_or_default().into(),
        ValueKind::Bytes => String::from_utf8_lossy(value.as_bytes().unwrap_or_default()).into(),
        ValueKind::Seq | ValueKind::Iterable => sequence(value, depth)?,
        ValueKind::Map => map(value, depth)?,
        ValueKind::Invalid => return Err(revealed(value)),
        _ if is_omit(value) => return Err(invalid("`omit` is allowed only where a complete value may be omitted")),
        _ => return Err(invalid("a function is not a value; is a call missing its parentheses?")),
    })
}

fn number(value: &Value) -> Result<model::Value, Error> {
    if !value.is_integer() {
        return Ok(f64::try_from(value.clone())?.into());
    }
    if let Some(number) = value.as_i64() {
        return Ok(number.into());
    }
    u64::try_from(value.clone()).map(Into::into).or_else(|_| f64::try_from(value.clone()).map(Into::into))
}

fn sequence(value: &Value, depth: usize) -> Result<model::Value, Error> {
    let items = value.try_iter()?.checked().filter(|item| !item.as_ref().is_ok_and(is_omit));
    items.map(|item| nested(&item?, depth - 1)).collect::<Result<Vec<_>, _>>().map(Into::into)
}

fn map(value: &Value, depth: usize) -> Result<model::Value, Error> {
    let mut map = ValueMap::new();
    for key in value.try_iter()?.checked() {
        let key = key?;
        let item = value.get_item(&key)?;
        if !is_omit(&item) {
            map.insert(key_text(&key)?, nested(&item, depth - 1)?);
        }
    }
    Ok(map.into())
}

fn key_text(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String | ValueKind::Number | ValueKind::Bool => Ok(key.to_string()),
        kind => Err(invalid(format!("{kind} cannot be a key"))),
    }
}

/// The error an invalid value carries.
fn revealed(value: &Value) -> Error {
    // Only iteration gives it away.
    let items = Value::from(vec![value.clone()]);
    let error = items.try_iter().ok().and_then(|iter| iter.checked().find_map(Result::err));
    error.unwrap_or_else(|| invalid("a value that could not be computed"))
}

pub(super) fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

/// The error of using an undefined value, which knows the name it came from.
pub(super) fn undefined(value: &Value) -> Error {
    value.get_attr("").err().unwrap_or_else(|| ErrorKind::UndefinedError.into())
}
