//! What will be done, for the person who decides.

use crate::{
    membership::{Condition, Prepared, Request, Situation, Step, Verb, arithmetic},
    report::sanitize,
};

const HEAD: [&str; 5] = ["STEP", "VOTERS", "HEALTHY", "QUORUM", "CAN LOSE"];

pub fn plan(prepared: &Prepared, request: &Request, situation: &Situation) -> String {
    let change = &prepared.change;
    let (voters, well) = situation.voters();
    let condition = request.old.as_deref().map(|old| situation.condition(old));
    let mut text = format!("{}: {}\n", situation.cluster, heading(request.verb, prepared, condition.as_ref()));
    let listed = matches!(condition, Some(Condition::Alive | Condition::Dead(_)));
    let steps = arithmetic(request.verb, &change.old, &change.new, change.alive, listed, (voters, well.len()));
    text += &table(&steps);
    for note in notes(prepared, &steps) {
        text += &format!("  - {note}\n");
    }
    text
}

fn heading(verb: Verb, prepared: &Prepared, condition: Option<&Condition>) -> String {
    let (old, new) = (&prepared.change.old, &prepared.change.new);
    let how = match condition {
        Some(Condition::Alive) => format!("{old} is healthy"),
        Some(Condition::Dead(why)) => format!("{old} has failed ({})", sanitize(why)),
        Some(Condition::Gone) => format!("{old} is not a voter"),
        None => String::new(),
    };
    match verb {
        Verb::Add => format!("add {new} at {}", prepared.new_place),
        Verb::Remove => format!("remove {old}; {how}"),
        Verb::Restart => format!("restart {old}; {how}"),
        Verb::Replace | Verb::Move if old == new => format!("rebuild {old} at {}; {how}", prepared.new_place),
        Verb::Replace | Verb::Move => format!("replace {old} with {new} at {}; {how}", prepared.new_place),
    }
}

fn notes(prepared: &Prepared, steps: &[Step]) -> Vec<String> {
    let change = &prepared.change;
    let mut notes = prepared.notes.clone();
    if change.fence {
        notes.push(format!(
            "the guest {} is powered off on {}, and its disks are moved aside",
            change.old, change.old_hypervisor
        ));
    }
    if !change.old_host.is_empty() {
        notes.push(format!("etcd on {} is stopped, and its data is moved aside and never used again", change.old_host));
    }
    if change.leftover {
        notes.push(format!("the learner {} of an earlier attempt is removed first", change.new));
    }
    if change.snapshot {
        notes.push("a snapshot is taken first".to_owned());
    }
    if let Some(last) = steps.last().filter(|last| last.voters % 2 == 0) {
        let less = last.voters - 1;
        notes.push(format!("{} voters tolerate no more failures than {less}: an odd number is better", last.voters));
    }
    if !change.inventory.edits.is_empty() {
        notes.push(format!("{} is updated at the end", change.inventory.path));
    }
    notes
}

fn table(steps: &[Step]) -> String {
    let cells = |step: &Step| {
        let spare = step.spare().map_or_else(|| "loses quorum".to_owned(), |spare| spare.to_string());
        [step.what.clone(), step.voters.to_string(), step.well.to_string(), step.majority().to_string(), spare]
    };
    let rows: Vec<[String; 5]> = [HEAD.map(str::to_owned)].into_iter().chain(steps.iter().map(cells)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..HEAD.len()).map(width).collect();
    let line = |row: &[String; 5]| {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("  {}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}
