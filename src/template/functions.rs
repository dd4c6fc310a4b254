//! Functions that templates can call.

use minijinja::{Environment, Error, ErrorKind, Value, value::Kwargs};

use super::{
    callables::{CallKind, near},
    convert::invalid,
};

pub(super) fn add_to(environment: &mut Environment<'static>) {
    environment.add_function("undef", undef);
    for name in ["lookup", "query", "q", "now"] {
        let hint = near(CallKind::Function, name).unwrap_or_default();
        environment.add_function(name, move |_: minijinja::value::Rest<Value>| -> Result<Value, Error> {
            Err(invalid(format!("there is no `{name}`: {hint}")))
        });
    }
}

/// A variable that someone must define: fails when used, with a hint.
fn undef(hint: Option<String>, named: Kwargs) -> Result<Value, Error> {
    let hint = match hint {
        Some(hint) => hint,
        None => named.get::<Option<String>>("hint")?.unwrap_or_else(|| "this must be defined".to_owned()),
    };
    named.assert_all_used()?;
    Err(Error::new(ErrorKind::InvalidOperation, hint))
}
