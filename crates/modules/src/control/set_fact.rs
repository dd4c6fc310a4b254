//! `set_fact`: gives the host variables for the rest of the run.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Action, BuildContext, Module, ModuleError, ResultField, Sets, Traits};
use crate::model::{Effects, Outcome, Value, ValueMap};

/// Sets variables of the host, for all later tasks of the run. Every argument is a variable.
///
/// A value that is a single template keeps its type: `"{{ [1, 2] }}"` is a list.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct SetFact(IndexMap<String, Value>);

impl Module for SetFact {
    const NAME: &'static str = "set_fact";
    const TRAITS: Traits = Traits { sets: Sets::Arguments, ..Traits::NONE };
    const EXAMPLE: &'static str = "\
- name: Set the address of etcd
  set_fact:
    client_url: \"https://{{ address }}:2379\"
    tuned: true
";
    const RESULT: &'static [ResultField] = &[ResultField { name: "facts", doc: "The variables that were set." }];

    fn validate(&self) -> Result<(), ModuleError> {
        if self.0.is_empty() {
            return Err(
                ModuleError::new("`set_fact` needs at least one variable").help("write `set_fact: {name: value}`")
            );
        }
        match self.0.keys().find(|name| !is_name(name)) {
            Some(name) => Err(ModuleError::new(format!("`{name}` cannot be the name of a variable"))
                .help("a name has letters, digits and underscores, and starts with no digit")),
            None => Ok(()),
        }
    }

    fn effects(&self) -> Effects {
        Effects::read_only()
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        let facts: ValueMap = self.0.into_iter().collect();
        Ok(Action::Done(Box::new(Outcome::ok().with("facts", facts))))
    }
}

fn is_name(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_identifiers() {
        let facts = |name: &str| SetFact(IndexMap::from([(name.to_owned(), Value::Null)]));
        assert!(facts("client_url2").validate().is_ok());
        for bad in ["", "2nd", "client-url", "a.b", "ä"] {
            assert!(facts(bad).validate().is_err(), "{bad}");
        }
        assert!(SetFact(IndexMap::new()).validate().is_err());
    }
}
