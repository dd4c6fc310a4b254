//! What a campaign has shown so far, as a table for docs/safety.md.

use std::{collections::BTreeMap, fmt::Write as _};

use crate::{
    operation::Kind,
    record::{Life, Line, Step},
};

/// What was found, with the seed of the life.
pub fn violations(lines: &[Line]) -> Vec<String> {
    let lives = lines.iter().filter_map(|line| if let Line::Life(life) = line { Some(life) } else { None });
    let named =
        |life: &Life| life.violations.iter().map(|said| format!("seed {}: {said}", life.seed)).collect::<Vec<_>>();
    lives.flat_map(named).collect()
}

/// Figures of all operations, by what they were.
pub fn table(lines: &[Line]) -> String {
    let steps: Vec<&Step> =
        lines.iter().filter_map(|line| if let Line::Step(step) = line { Some(step) } else { None }).collect();
    let lives: Vec<&Life> =
        lines.iter().filter_map(|line| if let Line::Life(life) = line { Some(life) } else { None }).collect();
    let mut text = String::new();
    let (rollouts, others) =
        (count(&steps, |step| step.operation.is_rollout()), count(&steps, |step| !step.operation.is_rollout()));
    let faults = steps.iter().flat_map(|step| &step.faults).filter(|fault| !fault.came_too_late).count();
    let meanwhile: usize = steps.iter().map(|step| step.meanwhile.len()).sum();
    let calls: u64 = lives.iter().map(|life| life.calls).sum();
    let violations = violations(lines);
    let _ = writeln!(
        text,
        "{} clusters, {rollouts} rollouts, {others} other operations, {faults} faults, {meanwhile} changes between a death and what followed, {calls} acknowledged calls, {} violations\n",
        lives.len(),
        violations.len(),
    );
    for violation in &violations {
        let _ = writeln!(text, "VIOLATION: {violation}\n");
    }
    let _ = writeln!(text, "| members | clusters | rollouts | other operations | faults |\n|---|---|---|---|---|");
    for members in [1, 2, 3, 5] {
        let of: Vec<&Step> = steps.iter().filter(|step| step.row.members == members).copied().collect();
        let faults = of.iter().flat_map(|step| &step.faults).filter(|fault| !fault.came_too_late).count();
        let _ = writeln!(
            text,
            "| {members} | {} | {} | {} | {faults} |",
            lives.iter().filter(|life| life.row.members == members).count(),
            count(&of, |step| step.operation.is_rollout()),
            count(&of, |step| !step.operation.is_rollout()),
        );
    }
    let mut by_fault: BTreeMap<String, usize> = BTreeMap::new();
    for fault in steps.iter().flat_map(|step| &step.faults).filter(|fault| !fault.came_too_late) {
        *by_fault.entry(word(&fault.fault)).or_default() += 1;
    }
    let mut by_kind: BTreeMap<Kind, usize> = BTreeMap::new();
    steps.iter().for_each(|step| *by_kind.entry(step.operation).or_default() += 1);
    let listed = |(name, count): (String, usize)| format!("{name} {count}");
    let faults: Vec<String> = by_fault.into_iter().map(listed).collect();
    let kinds: Vec<String> = by_kind.into_iter().map(|(kind, count)| listed((word(&kind), count))).collect();
    let _ = writeln!(text, "\nOperations: {}.\n\nFaults: {}.", kinds.join(", "), faults.join(", "));
    text
}

fn count(steps: &[&Step], is_meant: impl Fn(&Step) -> bool) -> usize {
    steps.iter().filter(|step| is_meant(step)).count()
}

/// Its name in the results, in words.
fn word(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| Some(value.as_str()?.replace('_', " "))).unwrap_or_default()
}
