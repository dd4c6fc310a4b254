//! Reads a journal back. A crash may have cut its last line short; anything else that is wrong is damage.

use std::{fs, path::Path};

use super::{Record, StateError, record::from_line};
use crate::{is_off, repair};

#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Milliseconds since the Unix epoch.
    pub at: i64,
    pub record: Record,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReadJournal {
    pub lines: Vec<Line>,
    /// How many bytes hold these lines.
    pub length: u64,
    /// The last line is cut short, and is to be removed before another is written.
    pub torn: bool,
}

pub fn read_journal(path: &Path) -> Result<ReadJournal, StateError> {
    let bytes = fs::read(path).map_err(|error| StateError::io(path, &error))?;
    let mut journal = ReadJournal::default();
    for (index, line) in bytes.split_inclusive(|&byte| byte == b'\n').enumerate() {
        let Some(whole) = line.strip_suffix(b"\n").or(is_off(repair::TORN_RECORD).then_some(line)) else {
            journal.torn = true;
            break;
        };
        let number = index as u64 + 1;
        let (at, record) = from_line(whole, number).map_err(|problem| StateError::Damaged {
            path: path.to_owned(),
            line: index + 1,
            problem,
        })?;
        journal.lines.push(Line { at, record });
        journal.length += line.len() as u64;
    }
    Ok(journal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{model::RunResult, state::record::to_line};

    fn journal(count: u64) -> Vec<Vec<u8>> {
        (1..=count).map(|seq| to_line(seq, 0, &Record::Ended { result: RunResult::Success }).unwrap()).collect()
    }

    fn read(bytes: &[u8]) -> Result<ReadJournal, StateError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        fs::write(&path, bytes).unwrap();
        read_journal(&path)
    }

    #[test]
    fn a_torn_last_line_is_left_out_wherever_it_is_cut() {
        let lines = journal(3);
        let whole = lines[..2].concat();
        for cut in 1..lines[2].len() - 1 {
            let found = read(&[&whole, &lines[2][..cut]].concat()).unwrap();
            assert_eq!((found.lines.len(), found.length, found.torn), (2, whole.len() as u64, true));
        }
        let found = read(&lines.concat()).unwrap();
        assert_eq!((found.lines.len(), found.torn), (3, false));
    }

    #[test]
    fn other_damage_is_an_error_that_says_where() {
        let mut lines = journal(4);
        let line_of = |bytes: Vec<u8>| match read(&bytes) {
            Err(StateError::Damaged { line, .. }) => line,
            other => panic!("{other:?}"),
        };
        let removed = [&lines[0], &lines[2], &lines[3]].map(Vec::as_slice).concat();
        assert_eq!(line_of(removed), 2);
        let swapped = [&lines[0], &lines[2], &lines[1]].map(Vec::as_slice).concat();
        assert_eq!(line_of(swapped), 2);
        let zeroed = [lines[0].as_slice(), &[0; 40], b"\n", &lines[1]].concat();
        assert_eq!(line_of(zeroed), 2);
        lines[3][5] ^= 4;
        assert_eq!(line_of(lines.concat()), 4, "a whole line that is wrong is no torn one");
    }
}
