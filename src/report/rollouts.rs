//! What a plan says of rollouts as a whole: the way, who is first, what is asked when, and how long it may take.

use std::fmt::Write;

use indexmap::IndexMap;

use super::{
    sanitize,
    text::{count, duration},
};
use crate::model::{RolloutPart, Shown, Value};

/// One cluster that rolls.
#[derive(Debug, Default)]
struct Rolling {
    /// The versions, beginning with the one that runs; none if the version stays.
    way: Option<Vec<String>>,
    order: Vec<String>,
    leader: Option<String>,
    turn_seconds: Option<f64>,
    /// How many rules each gate asks, and which do not hold yet.
    gates: IndexMap<String, (usize, Vec<String>)>,
}

/// A few lines for each cluster; `results` are those of the plan's tasks with what they say of rollouts, in the order of the playbook.
pub(super) fn told<'r>(results: impl Iterator<Item = (RolloutPart, &'r Shown)>) -> String {
    let mut clusters: IndexMap<String, Rolling> = IndexMap::new();
    for (part, result) in results {
        let Some(name) = result.data.get("cluster").and_then(Value::as_str) else { continue };
        match part {
            RolloutPart::Path => clusters.entry(name.to_owned()).or_default().go(result),
            RolloutPart::Order => clusters.entry(name.to_owned()).or_default().line_up(result),
            // Gates alone are no rollout.
            RolloutPart::Gate => clusters.get_mut(name).into_iter().for_each(|rolling| rolling.pass(result)),
        }
    }
    let mut text = String::new();
    for (name, rolling) in clusters.iter().filter(|(_, rolling)| rolling.is_told()) {
        rolling.tell(&mut text, name);
    }
    text
}

impl Rolling {
    fn go(&mut self, result: &Shown) {
        let hops = words(result.data.get("hops"));
        let from = hops.first().and_then(|first| result.data.get("from")?.get(first)?.as_str());
        self.way = Some(from.map(str::to_owned).into_iter().chain(hops).collect());
    }

    fn line_up(&mut self, result: &Shown) {
        if self.order.is_empty() {
            self.order = words(result.data.get("order"));
            self.leader = result.data.get("leader").and_then(Value::as_str).map(str::to_owned);
            self.turn_seconds = result.data.get("turn_seconds").and_then(Value::as_f64);
        }
    }

    fn pass(&mut self, result: &Shown) {
        let Some(gate) = result.data.get("gate").and_then(Value::as_str) else { return };
        let findings = result.data.get("findings").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let shut = findings.iter().filter(|finding| finding["answer"] != "holds");
        let shut = shut.filter_map(|finding| finding["rule"].as_str().map(str::to_owned)).collect();
        self.gates.entry(gate.to_owned()).or_insert((findings.len(), shut));
    }

    fn tell(&self, text: &mut String, name: &str) {
        let way = match &self.way {
            Some(way) if way.is_empty() => ": nothing to do, all members run the version of the inventory".to_owned(),
            Some(way) => format!(": {}", way.join(" → ")),
            None => String::new(),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\nRollout of {}{}", sanitize(name), sanitize(&way));
        if self.turns() == 0 {
            return;
        }
        let last = self.leader.as_ref().filter(|leader| self.order.last() == Some(leader));
        let leads = if last.is_some() { " (the leader)" } else { "" };
        let _ = writeln!(text, "  order  {}{leads}", sanitize(&self.order.join(", ")));
        let gates: Vec<String> = self.gates.iter().map(|(gate, (rules, shut))| asked(gate, *rules, shut)).collect();
        if !gates.is_empty() {
            let _ = writeln!(text, "  gates  {}", gates.join("; "));
        }
        let turns = count(self.turns(), "turn");
        let _ = match self.turn_seconds {
            #[expect(clippy::cast_precision_loss, reason = "There are few turns.")]
            Some(seconds) => {
                let all = duration(seconds * self.turns() as f64);
                writeln!(
                    text,
                    "  time   {turns}, about {all}: the longest of the last rollout took {}",
                    duration(seconds)
                )
            }
            None => writeln!(text, "  time   {turns}; an estimate is available after the first rollout"),
        };
    }

    /// There are turns, or it is known that there are none.
    fn is_told(&self) -> bool {
        !self.order.is_empty() || self.way.as_ref().is_some_and(Vec::is_empty)
    }

    /// Each member has one for each version.
    fn turns(&self) -> usize {
        self.order.len() * self.way.as_ref().map_or(1, |way| way.len().saturating_sub(1))
    }
}

fn asked(gate: &str, rules: usize, shut: &[String]) -> String {
    let when = match gate {
        "settled" => "all settled",
        gate => gate,
    };
    match (gate, shut) {
        // What comes later cannot hold yet.
        ("before", [_, ..]) => format!("{when}: {} (not yet: {})", count(rules, "rule"), shut.join(", ")),
        _ => format!("{when}: {}", count(rules, "rule")),
    }
}

fn words(value: Option<&Value>) -> Vec<String> {
    let words = value.and_then(Value::as_array).into_iter().flatten();
    words.filter_map(|word| word.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(data: Value) -> Shown {
        Shown { data: data.as_object().cloned().unwrap(), ..Shown::default() }
    }

    fn gate(gate: &str) -> (RolloutPart, Shown) {
        let findings =
            json!([{ "rule": "answers", "answer": "holds" }, { "rule": "binary-verified", "answer": "unknown" }]);
        (RolloutPart::Gate, shown(json!({ "cluster": "prod", "gate": gate, "findings": findings })))
    }

    fn order(seconds: Option<f64>) -> (RolloutPart, Shown) {
        let order = ["etcd-2", "etcd-3", "etcd-1"];
        let data = json!({ "cluster": "prod", "order": order, "leader": "etcd-1", "turn_seconds": seconds });
        (RolloutPart::Order, shown(data))
    }

    fn text(results: &[(RolloutPart, Shown)]) -> String {
        told(results.iter().map(|(part, result)| (*part, result)))
    }

    #[test]
    fn a_rollout_is_told_as_a_whole() {
        let from = json!({ "3.6.15": "3.5.34", "3.7.2": "3.6.15" });
        let path = shown(json!({ "cluster": "prod", "hops": ["3.6.15", "3.7.2"], "from": from }));
        let all = [(RolloutPart::Path, path), order(Some(12.0)), gate("before"), gate("after"), gate("settled")];
        insta::assert_snapshot!(text(&all), @r"
        
        Rollout of prod: 3.5.34 → 3.6.15 → 3.7.2
          order  etcd-2, etcd-3, etcd-1 (the leader)
          gates  before: 2 rules (not yet: binary-verified); after: 2 rules; all settled: 2 rules
          time   6 turns, about 1m12s: the longest of the last rollout took 12s
        ");
        insta::assert_snapshot!(text(&[order(None)]), @r"
        
        Rollout of prod
          order  etcd-2, etcd-3, etcd-1 (the leader)
          time   3 turns; an estimate is available after the first rollout
        ");
        let path = shown(json!({ "cluster": "prod", "hops": [], "from": {} }));
        insta::assert_snapshot!(text(&[(RolloutPart::Path, path)]), @r"
        
        Rollout of prod: nothing to do, all members run the version of the inventory
        ");
        assert_eq!(text(&[gate("before")]), "");
    }
}
