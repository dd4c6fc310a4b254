//! A covering array of configurations: each pair of values that go together is in some row, and each row is played as a whole life
//! without faults.

use std::{collections::BTreeSet, path::Path, time::Instant};

use anyhow::Result;
use etcdrun_lab::{ETCD_VERSIONS, Lab};

use crate::{
    choice::Choice,
    lengths::Lengths,
    life::Life,
    operation::Kind,
    operator::Program,
    record::{self, Line},
    row::{Addresses, Auth, Ca, Data, Discovery, Disk, Log, Machines, Origin, Patch, Ports, Row, Shell, Ssh},
};

const MEMBERS: [usize; 4] = [1, 2, 3, 5];
const AUTHS: [Auth; 3] = [Auth::Off, Auth::Certificate, Auth::Password];
const PORTS: [Ports; 2] = [Ports::Usual, Ports::Others];
const LOGS: [Log; 2] = [Log::Long, Log::Short];
const ADDRESSES: [Addresses; 2] = [Addresses::V4, Addresses::V6];
const SSHS: [Ssh; 4] = [Ssh::Root, Ssh::Sudo, Ssh::Port, Ssh::Jump];
const CAS: [Ca; 3] = [Ca::Made, Ca::Brought, Ca::Command];
const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Dash, Shell::Busybox];
const DATA: [Data; 2] = [Data::Small, Data::Large];
const DISCOVERIES: [Discovery; 3] = [Discovery::Inventory, Discovery::Url, Discovery::Srv];
const PATCHES: [Patch; 3] = [Patch::Newest, Patch::Old, Patch::Strict];
const DISKS: [Disk; 3] = [Disk::Mounted, Disk::Root, Disk::Device];
const ORIGINS: [Origin; 2] = [Origin::Made, Origin::Adopted];

/// How many values each dimension has, in the order of `row_of`.
const SIZES: [usize; 14] = [
    ETCD_VERSIONS.len(),
    MEMBERS.len(),
    AUTHS.len(),
    PORTS.len(),
    LOGS.len(),
    ADDRESSES.len(),
    SSHS.len(),
    CAS.len(),
    SHELLS.len(),
    DATA.len(),
    DISCOVERIES.len(),
    PATCHES.len(),
    DISKS.len(),
    ORIGINS.len(),
];
const VERSION: usize = 0;
/// How many arrays are made, of which the shortest is taken; and how many rows are tried for each row of one.
const ARRAYS: u64 = 40;
const CANDIDATES: usize = 20;

/// A value of a dimension: the number of the dimension, and that of the value.
type Value = (usize, usize);

/// All rows, the same each time.
pub fn rows() -> Vec<Row> {
    let arrays = (0..ARRAYS).map(|seed| array(&mut Choice::new(seed)));
    let shortest = arrays.min_by_key(Vec::len).unwrap_or_default();
    shortest.iter().map(|values| row_of(values)).chain(huge()).chain(guests()).collect()
}

/// Rows with much data, which are too slow for more of them.
fn huge() -> [Row; 2] {
    let row = Row { version: "3.5".to_owned(), data: Data::Huge, ..Row::default() };
    let other = Row { log: Log::Short, auth: Auth::Password, disk: Disk::Root, ..row.clone() };
    [row, Row { version: "3.6".to_owned(), ..other }]
}

/// Rows of guests, which are emulated.
fn guests() -> [Row; 2] {
    let row = Row { machines: Machines::Bridge, auth: Auth::Certificate, ..Row::default() };
    let other = Row { version: "3.6".to_owned(), auth: Auth::Password, machines: Machines::Macvtap, ..row.clone() };
    [row, other]
}

fn row_of(values: &[usize]) -> Row {
    Row {
        version: ETCD_VERSIONS[values[0]].to_owned(),
        members: MEMBERS[values[1]],
        auth: AUTHS[values[2]],
        ports: PORTS[values[3]],
        log: LOGS[values[4]],
        addresses: ADDRESSES[values[5]],
        ssh: SSHS[values[6]],
        ca: CAS[values[7]],
        shell: SHELLS[values[8]],
        data: DATA[values[9]],
        discovery: DISCOVERIES[values[10]],
        patch: PATCHES[values[11]],
        disk: DISKS[values[12]],
        origin: ORIGINS[values[13]],
        machines: Machines::Hosts,
    }
}

/// Whether a cluster can have both. For each dimension there is a value that goes with all others, so that a row can always be completed.
fn go_together(one: Value, other: Value) -> bool {
    let (one, other) = (one.min(other), one.max(other));
    let is = |value: Value, dimension: usize, number: usize| value == (dimension, number);
    match one.0 {
        // A service for discovery is for etcd up to 3.6, and the next upgrade must not lead beyond that.
        VERSION if is(other, 10, 1) => one.1 < 2,
        VERSION if other.0 == 11 => Row::release_of(ETCD_VERSIONS[one.1], PATCHES[other.1]).is_some(),
        // What was made by hand has a CA of its own, and members that were listed; and it has mounted its disk.
        7 if is(other, 13, 1) => CAS[one.1] != Ca::Made,
        10 if is(other, 13, 1) => DISCOVERIES[one.1] == Discovery::Inventory,
        12 if is(other, 13, 1) => DISKS[one.1] != Disk::Device,
        _ => true,
    }
}

/// All pairs that rows have to cover.
fn pairs() -> BTreeSet<(Value, Value)> {
    let values = |dimension: usize| (0..SIZES[dimension]).map(move |value| (dimension, value));
    let ones = (0..SIZES.len()).flat_map(values);
    let all = ones.flat_map(|one| (one.0 + 1..SIZES.len()).flat_map(values).map(move |other| (one, other)));
    all.filter(|(one, other)| go_together(*one, *other)).collect()
}

/// Rows, one after the other, each of which covers as much that is new as can be found.
fn array(choice: &mut Choice) -> Vec<Vec<usize>> {
    let mut open = pairs();
    let mut rows = Vec::new();
    while !open.is_empty() {
        let candidates: Vec<Vec<usize>> = (0..CANDIDATES).map(|_| candidate(&open, choice)).collect();
        let Some(best) =
            candidates.into_iter().max_by_key(|row| covered(row).filter(|pair| open.contains(pair)).count())
        else {
            break;
        };
        open.retain(|(one, other)| best[one.0] != one.1 || best[other.0] != other.1);
        rows.push(best);
    }
    rows
}

fn covered(row: &[usize]) -> impl Iterator<Item = (Value, Value)> {
    let value = |dimension: usize| (dimension, row[dimension]);
    let of = move |one: usize| (one + 1..row.len()).map(move |other| (value(one), value(other)));
    (0..row.len()).flat_map(of)
}

/// A row around a pair that no row has yet; the other dimensions get, in any order, what covers most.
fn candidate(open: &BTreeSet<(Value, Value)>, choice: &mut Choice) -> Vec<usize> {
    let pair = open.iter().nth(choice.below(open.len())).copied();
    let mut taken: Vec<Value> = pair.iter().flat_map(|(one, other)| [*one, *other]).collect();
    let mut left: Vec<usize> = (0..SIZES.len()).filter(|it| taken.iter().all(|value| value.0 != *it)).collect();
    while !left.is_empty() {
        let dimension = left.swap_remove(choice.below(left.len()));
        let first = choice.below(SIZES[dimension]);
        let values = (0..SIZES[dimension]).map(|number| (dimension, (number + first) % SIZES[dimension]));
        let fits = |value: &Value| taken.iter().all(|other| go_together(*value, *other));
        let gain =
            |value: &Value| taken.iter().filter(|other| open.contains(&(*value.min(other), *value.max(other)))).count();
        if let Some(best) = values.filter(fits).max_by_key(gain) {
            taken.push(best);
        }
    }
    taken.sort_unstable();
    taken.into_iter().map(|(_, value)| value).collect()
}

/// Plays the rows that were not played yet, or these, as far as they are ours. Whether all that have a result are green.
pub fn run(
    results: &Path,
    program: &Program,
    lab: &str,
    only: &[usize],
    is_ours: impl Fn(usize) -> bool,
) -> Result<bool> {
    let rows = rows();
    for (row, number) in rows.iter().zip(1..) {
        let is_done = || result(results, number, row).is_ok_and(|result| result.is_some());
        if !is_ours(number) || if only.is_empty() { is_done() } else { !only.contains(&number) } {
            continue;
        }
        println!("row {number} of {}: {row}", rows.len());
        let begun = Instant::now();
        if let Err(error) = play(number, row, results, program, lab, begun) {
            let violations = vec![format!("{error:#}")];
            let seconds = begun.elapsed().as_secs_f64();
            let life = record::Life { seed: number as u64, row: row.clone(), steps: 0, seconds, calls: 0, violations };
            record::append(results, &Line::Life(life))?;
        }
    }
    let mut holds = true;
    for (row, number) in rows.iter().zip(1..) {
        let (word, violations) = match result(results, number, row)? {
            None => ("not played", Vec::new()),
            Some(life) if life.violations.is_empty() => ("green", Vec::new()),
            Some(life) => ("RED", life.violations),
        };
        println!("{number:>3} {word:<10} {row}");
        violations.iter().for_each(|violation| println!("      {}", violation.lines().next().unwrap_or_default()));
        holds &= violations.is_empty();
    }
    Ok(holds)
}

/// The last result of a row, if it is of the row as it is now.
fn result(results: &Path, number: usize, row: &Row) -> Result<Option<record::Life>> {
    let mut lives = record::read(results)?.into_iter().filter_map(|line| match line {
        Line::Life(life) => Some(life),
        Line::Step(_) => None,
    });
    Ok(lives.rfind(|life| life.seed == number as u64 && life.row == *row))
}

fn play(number: usize, row: &Row, results: &Path, program: &Program, lab: &str, begun: Instant) -> Result<()> {
    let mut lengths = Lengths::new()?;
    let mut life = Life::begin(number as u64, row, results, program, Lab::open(lab)?, &mut lengths)?;
    let mut violations = Vec::new();
    for kind in Kind::WHOLE_LIFE {
        let step = match life.step(kind, &[]) {
            Ok(Some(step)) => step,
            Ok(None) => {
                println!("    {kind:?}: not for this cluster");
                continue;
            }
            Err(error) => {
                violations.push(format!("{kind:?}: {error:#}"));
                break;
            }
        };
        violations
            .extend(step.violations.iter().map(|violation| format!("step {}, {kind:?}: {violation}", step.number)));
        // There are no faults, so nothing may need a second attempt.
        if step.codes.iter().any(|code| *code != Some(0)) {
            violations.push(format!("step {}, {kind:?}: commands ended with {:?}", step.number, step.codes));
        }
        // What follows an operation that did not come to its end proves nothing.
        if step.codes.last() != Some(&Some(0)) {
            break;
        }
    }
    let life = life.end(violations, begun, false)?;
    println!("  {} operations in {:.0} s, {} violations", life.steps, life.seconds, life.violations.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_that_goes_together_is_in_a_row() {
        let rows = rows();
        let place = |row: &Row| {
            let number = |at: Option<usize>| at.unwrap();
            vec![
                number(ETCD_VERSIONS.iter().position(|it| *it == row.version)),
                number(MEMBERS.iter().position(|it| *it == row.members)),
                number(AUTHS.iter().position(|it| *it == row.auth)),
                number(PORTS.iter().position(|it| *it == row.ports)),
                number(LOGS.iter().position(|it| *it == row.log)),
                number(ADDRESSES.iter().position(|it| *it == row.addresses)),
                number(SSHS.iter().position(|it| *it == row.ssh)),
                number(CAS.iter().position(|it| *it == row.ca)),
                number(SHELLS.iter().position(|it| *it == row.shell)),
                number(DATA.iter().position(|it| *it == row.data)),
                number(DISCOVERIES.iter().position(|it| *it == row.discovery)),
                number(PATCHES.iter().position(|it| *it == row.patch)),
                number(DISKS.iter().position(|it| *it == row.disk)),
                number(ORIGINS.iter().position(|it| *it == row.origin)),
            ]
        };
        let (array, guests) = rows.split_at(rows.len() - 2);
        assert!(guests.iter().all(|row| row.machines.are_guests()));
        let (array, huge) = array.split_at(array.len() - 2);
        assert!(huge.iter().all(|row| row.data == Data::Huge && row.members == 3));
        let seen: BTreeSet<_> = array.iter().flat_map(|row| covered(&place(row)).collect::<Vec<_>>()).collect();
        assert_eq!(seen, pairs(), "all that go together, and none that do not");
        // Versions and members alone take 16.
        assert!((18..=26).contains(&rows.len()), "{} rows", rows.len());
        assert_eq!(rows, super::rows(), "the same each time");
    }

    #[test]
    fn results_of_earlier_campaigns_are_still_read() {
        let old = r#"{"version":"3.5","members":3,"auth":"off","ports":"usual","log":"long"}"#;
        assert_eq!(serde_json::from_str::<Row>(old).unwrap(), Row::default());
    }
}
