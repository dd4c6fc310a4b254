//! `debug`: shows a message or a value.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Action, BuildContext, Module, ModuleError, ResultField, Traits};
use crate::model::{Effects, Outcome, Value};

/// Shows a message, or the value of an expression. Changes nothing and needs no connection.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Debug {
    /// What to show: text, or any other value as JSON.
    #[serde(default)]
    msg: Option<Value>,
    /// An expression, without braces, whose value to show.
    #[serde(default)]
    var: Option<String>,
}

impl Module for Debug {
    const NAME: &'static str = "debug";
    const FREE_FORM: Option<&'static str> = Some("msg");
    const TRAITS: Traits = Traits { is_message: true, ..Traits::NONE };
    const EXAMPLE: &'static str = "\
- debug:
    msg: \"{{ inventory_hostname }} runs {{ facts.kernel }}\"
- debug:
    var: facts.os
";
    const EXPRESSIONS: &'static [&'static str] = &["var"];
    const RESULT: &'static [ResultField] = &[ResultField { name: "value", doc: "The value of `var`." }];

    fn validate(&self) -> Result<(), ModuleError> {
        if self.msg.is_some() && self.var.is_some() {
            return Err(ModuleError::new("`msg` and `var` exclude each other").help("use two `debug` tasks"));
        }
        Ok(())
    }

    fn effects(&self) -> Effects {
        Effects::read_only()
    }

    fn action(self, context: &BuildContext<'_>) -> Result<Action, ModuleError> {
        let Some(expression) = self.var else {
            let msg = self.msg.map_or_else(|| "Hello world!".into(), |value| text_of(&value));
            return Ok(Action::Done(Box::new(Outcome { msg, ..Outcome::ok() })));
        };
        let value = context.engine.eval(&expression, context.span, context.scope)?;
        let msg = format!("{expression} = {value:#}");
        Ok(Action::Done(Box::new(Outcome { msg, ..Outcome::ok() }.with("value", value))))
    }
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => format!("{other:#}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::support::testing::done;

    #[test]
    fn messages_and_values_are_shown() {
        let vars = json!({"list": [1, "two"]});
        assert_eq!(done::<Debug>("{msg: hello}", &vars).msg, "hello");
        assert_eq!(done::<Debug>("{msg: {a: 1}}", &vars).msg, "{\n  \"a\": 1\n}");
        let outcome = done::<Debug>("{var: list}", &vars);
        assert_eq!(outcome.msg, "list = [\n  1,\n  \"two\"\n]");
        assert_eq!(outcome.data["value"], json!([1, "two"]));
    }
}
