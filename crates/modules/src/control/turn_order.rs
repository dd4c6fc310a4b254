//! `turn_order`: who is next in a rollout, as the strategy has found out.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Action, BuildContext, Module, ModuleError, ResultField};
use crate::model::{Effects, Outcome};

/// Tells a rollout the order in which hosts take turns. For the file `tasks/next.yaml` of a strategy, where it is registered as
/// `rollout_next`; it runs again before each turn. Hosts that had their turn, or that are in no turn, are passed over.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TurnOrder {
    /// The hosts, the next one first.
    order: Vec<String>,
}

impl Module for TurnOrder {
    const NAME: &'static str = "turn_order";
    const EXAMPLE: &'static str = "\
- name: Choose the next host
  turn_order:
    order: \"{{ ansible_play_hosts | difference([primary]) + [primary] }}\"
  run_once: true
  register: rollout_next
";
    const RESULT: &'static [ResultField] = &[ResultField { name: "order", doc: "The hosts, the next one first." }];

    fn effects(&self) -> Effects {
        Effects::read_only()
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        let outcome = Outcome { msg: self.order.join(", "), ..Outcome::ok() };
        Ok(Action::Done(Box::new(outcome.with("order", self.order))))
    }
}
