//! Filters beyond minijinja's own, with the names and the meaning they have in Ansible.

mod collections;
mod data;
mod network;
mod regular;
mod text;

use minijinja::{Environment, Error, Value, value::Kwargs};

use super::convert::invalid;
pub(super) use network::contains as network_contains;
pub(super) use network::version as address_version;
pub(super) use regular::{Flags, pattern};

pub(super) fn add_to(environment: &mut Environment<'static>) {
    collections::add_to(environment);
    data::add_to(environment);
    network::add_to(environment);
    regular::add_to(environment);
    text::add_to(environment);
}

/// An argument given by position or by name.
pub(super) fn named<T>(given: Option<T>, names: &Kwargs, name: &str) -> Result<Option<T>, Error>
where
    T: for<'a> minijinja::value::ArgType<'a, Output = T>,
{
    match given {
        Some(value) => Ok(Some(value)),
        None => names.get::<Option<T>>(name),
    }
}

fn items(value: &Value) -> Result<Vec<Value>, Error> {
    let is_collection = matches!(
        value.kind(),
        minijinja::value::ValueKind::Seq | minijinja::value::ValueKind::Iterable | minijinja::value::ValueKind::Map
    );
    if !is_collection {
        return Err(invalid(format!("expected a list, found {}", describe(value))));
    }
    value.try_iter()?.checked().collect()
}

/// What a value is, for messages.
fn describe(value: &Value) -> String {
    use minijinja::value::ValueKind;
    match value.kind() {
        ValueKind::Undefined => "something undefined".into(),
        ValueKind::None => "none".into(),
        ValueKind::Seq | ValueKind::Iterable => "a list".into(),
        ValueKind::Map => "a mapping".into(),
        ValueKind::String => format!("the string {:?}", value.to_string()),
        kind => format!("the {kind} {value}"),
    }
}
