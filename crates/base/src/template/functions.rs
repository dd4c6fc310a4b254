//! Functions that templates can call.

use minijinja::{Environment, Error, ErrorKind, Value, value::Kwargs};

pub(super) fn add_to(environment: &mut Environment<'static>) {
    environment.add_function("undef", undef);
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
