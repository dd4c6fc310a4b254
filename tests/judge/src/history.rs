//! What happened, put together from the lines of a file.

use std::{collections::HashMap, fs::File, io::BufRead, io::BufReader, path::Path};

use anyhow::{Context, Result, bail};

use crate::{
    record::{End, Epoch, LeaseRecord, MembersRecord, Operation, Outcome, Pause, Record, Request, Start, WatchRecord},
    recorder,
};

/// Operations are in the order of their calls; the rest is in the order in which it happened.
#[derive(Clone, Debug)]
pub struct History {
    pub start: Start,
    pub operations: Vec<Operation>,
    pub watches: Vec<WatchRecord>,
    pub leases: Vec<LeaseRecord>,
    /// Each change of the list of members.
    pub members: Vec<MembersRecord>,
    /// How many lists of members were seen; if the history breaks off, up to the last change.
    pub member_samples: u64,
    pub epochs: Vec<Epoch>,
    pub pauses: Vec<Pause>,
    /// Absent if the history breaks off.
    pub end: Option<End>,
    /// The time of the last record.
    pub until: i64,
}

/// Reads the history that was recorded in a folder, to judge it again. It may break off in the middle of a line.
pub fn load(folder: &Path) -> Result<History> {
    let path = recorder::path(folder);
    let file = File::open(&path).with_context(|| format!("could not open {}", path.display()))?;
    let mut lines = BufReader::new(file).split(b'\n').enumerate().peekable();
    let mut pieces = Pieces::default();
    while let Some((number, line)) = lines.next() {
        let line = line.with_context(|| format!("could not read {}", path.display()))?;
        match serde_json::from_slice(&line) {
            Ok(record) => pieces.add(record),
            Err(_) if lines.peek().is_none() => break,
            Err(error) => bail!("line {} of {} is not a record: {error}", number + 1, path.display()),
        }
    }
    pieces.into_history().with_context(|| format!("{} has no start", path.display()))
}

#[derive(Default)]
struct Pieces {
    start: Option<Start>,
    called: HashMap<u64, Request>,
    operations: Vec<Operation>,
    watches: Vec<WatchRecord>,
    leases: Vec<LeaseRecord>,
    members: Vec<MembersRecord>,
    member_samples: u64,
    epochs: Vec<Epoch>,
    pauses: Vec<Pause>,
    end: Option<End>,
    until: i64,
}

impl Pieces {
    fn add(&mut self, record: Record) {
        let at = match record {
            Record::Start(start) => {
                self.start = Some(start);
                0
            }
            Record::Called(request) => {
                let at = request.called;
                self.called.insert(request.id, request);
                at
            }
            Record::Returned { id, returned, outcome } => {
                if let Some(request) = self.called.remove(&id) {
                    self.operations.push(Operation { request, returned, outcome });
                }
                returned
            }
            Record::Watch(record) => {
                let at = record.at;
                self.watches.push(record);
                at
            }
            Record::Lease(record) => {
                let at = record.returned;
                self.leases.push(record);
                at
            }
            Record::Members(record) => {
                let at = record.returned;
                self.member_samples = self.member_samples.max(record.number);
                self.members.push(record);
                at
            }
            Record::Sampled { at, count } => {
                self.member_samples = self.member_samples.max(count);
                at
            }
            Record::Epoch(epoch) => {
                let at = epoch.at;
                self.epochs.push(epoch);
                at
            }
            Record::Paused { at } => {
                self.pauses.push(Pause { from: at, until: None });
                at
            }
            Record::Resumed { at } => {
                if let Some(pause) = self.pauses.last_mut() {
                    pause.until = Some(at);
                }
                at
            }
            Record::End(end) => {
                let at = end.at;
                self.end = Some(end);
                at
            }
        };
        self.until = self.until.max(at);
    }

    fn into_history(mut self) -> Option<History> {
        let until = self.until;
        let unanswered = self.called.into_values().map(|request| {
            let reason = "the history ends before the answer".to_owned();
            Operation { request, returned: until, outcome: Outcome::Unknown { reason } }
        });
        self.operations.extend(unanswered);
        self.operations.sort_by_key(|operation| (operation.request.called, operation.request.id));
        Some(History {
            start: self.start?,
            operations: self.operations,
            watches: self.watches,
            leases: self.leases,
            members: self.members,
            member_samples: self.member_samples,
            epochs: self.epochs,
            pauses: self.pauses,
            end: self.end,
            until,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{
        record::{Kind, Member},
        settings::Settings,
    };

    #[test]
    fn a_history_that_breaks_off_keeps_what_was_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let start = Start { run: "r".to_owned(), unix_milliseconds: 0, settings: Settings::default() };
        let kind = Kind::Put { value: "r.1.1".to_owned() };
        let (endpoint, key) = ("one".to_owned(), "/judge/register/0".to_owned());
        let request = Request { id: 7, client: 1, epoch: 0, endpoint, key, kind, called: 5 };
        let mut text = serde_json::to_string(&Record::Start(start)).unwrap() + "\n";
        text += &(serde_json::to_string(&Record::Called(request)).unwrap() + "\n");
        text += "{\"record\":\"returned\",\"id\":7,\"retu";
        fs::write(recorder::path(folder.path()), &text).unwrap();

        let history = load(folder.path()).unwrap();
        assert!(history.end.is_none());
        assert_eq!(history.operations.len(), 1);
        assert!(matches!(history.operations[0].outcome, Outcome::Unknown { .. }));

        fs::write(recorder::path(folder.path()), text.replacen("called", "cal", 1)).unwrap();
        assert!(load(folder.path()).unwrap_err().to_string().starts_with("line 2 "));
    }

    #[test]
    fn a_history_may_have_no_lists_of_members() {
        let folder = tempfile::tempdir().unwrap();
        let start = Start { run: "r".to_owned(), unix_milliseconds: 0, settings: Settings::default() };
        let mut text = serde_json::to_string(&Record::Start(start)).unwrap() + "\n";
        fs::write(recorder::path(folder.path()), &text).unwrap();
        let history = load(folder.path()).unwrap();
        assert_eq!((history.members, history.member_samples), (Vec::new(), 0));

        let member =
            Member { id: u64::MAX, name: String::new(), is_learner: true, peer_urls: vec!["http://one".to_owned()] };
        let (endpoint, members) = ("one".to_owned(), vec![member]);
        let record =
            MembersRecord { epoch: 1, endpoint, number: 5, previous: Some(3), called: 4, returned: 9, members };
        text += &(serde_json::to_string(&Record::Members(record.clone())).unwrap() + "\n");
        fs::write(recorder::path(folder.path()), &text).unwrap();
        let history = load(folder.path()).unwrap();
        assert_eq!((history.members, history.member_samples, history.until), (vec![record], 5, 9));

        text += &serde_json::to_string(&Record::Sampled { at: 20, count: 8 }).unwrap();
        fs::write(recorder::path(folder.path()), text).unwrap();
        assert_eq!(load(folder.path()).unwrap().member_samples, 8);
    }
}
