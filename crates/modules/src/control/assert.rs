//! `assert`: conditions that must hold.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Action, BuildContext, Module, ModuleError, ResultField};
use crate::{
    model::{Effects, Outcome},
    template::names_in_expression,
};

/// Fails unless every condition is true. The message shows the false condition and the values of its names.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Assert {
    /// Conditions as in `when`: bare expressions, without braces.
    that: Vec<String>,
    /// The message when a condition is false.
    #[serde(default)]
    fail_msg: Option<String>,
    /// The message when all are true.
    #[serde(default)]
    success_msg: Option<String>,
    /// Do not show the values of the names in a false condition.
    #[serde(default)]
    quiet: bool,
}

impl Module for Assert {
    const NAME: &'static str = "assert";
    const EXAMPLE: &'static str = "\
- name: Check the system and its memory
  assert:
    that:
      - facts.os.family == 'debian'
      - facts.memory_mb >= 2048
    fail_msg: \"{{ inventory_hostname }} is too small, or no Debian\"
";
    const EXPRESSIONS: &'static [&'static str] = &["that"];
    const RESULT: &'static [ResultField] =
        &[ResultField { name: "assertion", doc: "The first condition that was false." }];

    fn effects(&self) -> Effects {
        Effects::read_only()
    }

    fn action(self, context: &BuildContext<'_>) -> Result<Action, ModuleError> {
        if self.that.is_empty() {
            return Err(ModuleError::new("`that` needs at least one condition"));
        }
        for expression in &self.that {
            let holds = context.engine.eval_bool(expression, context.span, context.scope)?;
            if !holds {
                return Ok(Action::Done(Box::new(self.failure(expression, context))));
            }
        }
        let msg = self.success_msg.unwrap_or_else(|| "All assertions passed".into());
        Ok(Action::Done(Box::new(Outcome { msg, ..Outcome::ok() })))
    }
}

impl Assert {
    fn failure(&self, expression: &str, context: &BuildContext<'_>) -> Outcome {
        let mut msg = match &self.fail_msg {
            Some(text) => format!("{text}\nfalse: {expression}"),
            None => format!("Assertion failed: {expression}"),
        };
        if !self.quiet {
            values_in(expression, context).iter().for_each(|line| {
                msg.push_str("\n  ");
                msg.push_str(line);
            });
        }
        Outcome::failed(msg).with("assertion", expression)
    }
}

/// `name = value` for every name that the expression uses and that has a value.
fn values_in(expression: &str, context: &BuildContext<'_>) -> Vec<String> {
    const LONGEST: usize = 200;
    let mut paths: Vec<String> =
        names_in_expression(expression).unwrap_or_default().iter().map(|name| name.path.join(".")).collect();
    paths.sort();
    paths.dedup();
    let show = |path: String| {
        let value = context.engine.eval(&path, context.span, context.scope).ok()?.to_string();
        let short: String = value.chars().take(LONGEST).collect();
        let rest = if short.len() < value.len() { "..." } else { "" };
        Some(format!("{path} = {short}{rest}"))
    };
    paths.into_iter().filter_map(show).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::support::testing::{done, module_error};

    #[test]
    fn a_false_condition_is_named_with_its_values() {
        let vars = json!({"facts": {"memory_mb": 512, "os": {"id": "debian"}}, "least": 1024});
        let args = "{that: [facts.os.id == 'debian', facts.memory_mb >= least]}";
        let outcome = done::<Assert>(args, &vars);
        assert!(outcome.failed);
        assert_eq!(outcome.msg, "Assertion failed: facts.memory_mb >= least\n  facts.memory_mb = 512\n  least = 1024");
        assert_eq!(outcome.data["assertion"], "facts.memory_mb >= least");
    }

    #[test]
    fn messages_can_be_given() {
        let vars = json!({"x": 1});
        assert_eq!(done::<Assert>("{that: x == 1, success_msg: fine}", &vars).msg, "fine");
        let outcome = done::<Assert>("{that: x == 2, fail_msg: 'x is off', quiet: true}", &vars);
        assert_eq!((outcome.failed, outcome.msg.as_str()), (true, "x is off\nfalse: x == 2"));
    }

    #[test]
    fn a_condition_must_be_a_condition() {
        assert!(module_error::<Assert>("{that: x}", &json!({"x": "yes"})).contains("not true or false"));
        assert!(module_error::<Assert>("{that: y}", &json!({})).contains('y'));
    }
}
