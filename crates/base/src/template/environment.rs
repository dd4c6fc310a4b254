//! The minijinja environments: what is strict, what is limited, which filters there are.

use std::sync::LazyLock;

use minijinja::{AutoEscape, Environment, Error, UndefinedBehavior, Value, syntax::SyntaxConfig, value::ValueKind};

use super::{
    convert::{Omit, invalid, is_omit, to_value, undefined},
    filters, functions, limits, methods, predicates,
};

/// For text inside YAML. A template's name is its text, so that each text is compiled once.
pub(super) static INLINE: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = for_files();
    environment.set_loader(|text: &str| Ok(Some(text.to_owned())));
    environment.set_auto_reload(false);
    environment
});

static BASE: LazyLock<Environment<'static>> = LazyLock::new(build);

/// An environment without templates, to put the files of one template into.
pub(super) fn for_files() -> Environment<'static> {
    BASE.clone()
}

/// Ansible's settings: a block tag takes the line end after it, the last line end stays.
pub(super) fn syntax() -> SyntaxConfig {
    static SYNTAX: LazyLock<SyntaxConfig> = LazyLock::new(|| {
        // Only custom delimiters can be refused.
        SyntaxConfig::builder().trim_blocks(true).keep_trailing_newline(true).build().unwrap_or_default()
    });
    SYNTAX.clone()
}

fn build() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_syntax(syntax());
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_formatter(|output, state, value| {
        let text = printable(value)?;
        text.map_or(Ok(()), |value| minijinja::escape_formatter(output, state, value))
    });
    // Makes errors name the undefined value; costs nothing while nothing fails.
    environment.set_debug(true);
    environment.set_fuel(Some(limits::FUEL));
    environment.set_recursion_limit(limits::RECURSION);
    environment.set_unknown_method_callback(methods::call);
    environment.remove_global("debug");
    environment.add_global("omit", Value::from_object(Omit));
    filters::add_to(&mut environment);
    predicates::add_to(&mut environment);
    functions::add_to(&mut environment);
    environment
}

/// What is written for a value; nothing for none. A collection is looked through first: writing it
/// could not fail.
fn printable(value: &Value) -> Result<Option<&Value>, Error> {
    match value.kind() {
        ValueKind::Undefined => Err(undefined(value)),
        ValueKind::None => Ok(None),
        ValueKind::Seq | ValueKind::Map | ValueKind::Iterable => to_value(value).map(|_| Some(value)),
        _ if is_omit(value) => Err(invalid("`omit` is allowed only where a complete value may be omitted")),
        _ => Ok(Some(value)),
    }
}

/// A value as it appears in text.
pub(super) fn to_text(value: &Value) -> Result<String, Error> {
    printable(value).map(|value| value.map_or_else(String::new, ToString::to_string))
}
