//! Histories made by hand: good ones, and for every kind of violation a bad one.

mod leases;
mod members;
mod registers;
mod watches;

use super::{ViolationKind, check};
use crate::{
    history::History,
    record::{
        Answer, End, Epoch, Kind, LeaseRecord, LeaseStep, Member, MembersRecord, Operation, Outcome, Request, Start,
        Version, WatchRecord, Watched,
    },
    settings::Settings,
};

const KEY: &str = "/judge/register/0";

/// A history that grows, in the first epoch until another one begins.
struct Sample(History);

/// What a key holds: a value and its revision.
type Held<'a> = Option<(&'a str, i64)>;

impl Sample {
    fn new() -> Self {
        let start = Start { run: "r".to_owned(), unix_milliseconds: 0, settings: Settings::default() };
        Self(History {
            start,
            operations: Vec::new(),
            watches: Vec::new(),
            leases: Vec::new(),
            members: Vec::new(),
            member_samples: 0,
            epochs: Vec::new(),
            pauses: Vec::new(),
            end: Some(End::default()),
            until: 1_000_000,
        })
    }

    fn epoch(&mut self) -> u32 {
        self.0.epochs.last().map_or(0, |epoch| epoch.number)
    }

    fn begin_epoch(&mut self) -> &mut Self {
        let epoch = Epoch { number: self.epoch() + 1, at: 0, reason: "restored".to_owned() };
        self.0.epochs.push(epoch);
        self
    }

    fn operation(&mut self, times: [i64; 2], kind: Kind, outcome: Outcome) -> &mut Self {
        let (id, epoch) = (self.0.operations.len() as u64, self.epoch());
        let [called, returned] = times;
        let (endpoint, key) = ("one".to_owned(), KEY.to_owned());
        let request = Request { id, client: id as u32, epoch, endpoint, key, kind, called };
        self.0.operations.push(Operation { request, returned, outcome });
        self.0.operations.sort_by_key(|operation| operation.request.called);
        self
    }

    fn answer(&mut self, times: [i64; 2], kind: Kind, seen: Held, revision: i64, written: bool) -> &mut Self {
        let seen = seen.map(|(value, mod_revision)| Version { value: value.to_owned(), mod_revision });
        self.operation(times, kind, Outcome::Acknowledged(Answer { revision, seen, written }))
    }

    fn get(&mut self, times: [i64; 2], seen: Held, revision: i64) -> &mut Self {
        self.answer(times, Kind::Get, seen, revision, false)
    }

    fn put(&mut self, times: [i64; 2], value: &str, seen: Held, revision: i64) -> &mut Self {
        self.answer(times, put(value), seen, revision, true)
    }

    fn swap(&mut self, times: [i64; 2], words: [&str; 2], seen: Held, revision: i64, written: bool) -> &mut Self {
        self.answer(times, swap(words), seen, revision, written)
    }

    fn delete(&mut self, times: [i64; 2], seen: Held, revision: i64) -> &mut Self {
        self.answer(times, Kind::Delete, seen, revision, seen.is_some())
    }

    fn unknown(&mut self, times: [i64; 2], kind: Kind) -> &mut Self {
        self.operation(times, kind, Outcome::Unknown { reason: "no answer in time".to_owned() })
    }

    fn refused(&mut self, times: [i64; 2], kind: Kind) -> &mut Self {
        self.operation(times, kind, Outcome::Failed { reason: "permission denied".to_owned() })
    }

    fn watch(&mut self, watcher: u32, at: i64, what: Watched) -> &mut Self {
        let (epoch, endpoint) = (self.epoch(), "one".to_owned());
        self.0.watches.push(WatchRecord { watcher, epoch, endpoint, at, what });
        self
    }

    fn lease(&mut self, times: [i64; 2], step: LeaseStep) -> &mut Self {
        let (epoch, endpoint, key) = (self.epoch(), "one".to_owned(), "/judge/lease/r/9/1".to_owned());
        let [called, returned] = times;
        self.0.leases.push(LeaseRecord { client: 9, epoch, endpoint, lease: 77, key, called, returned, step });
        self
    }

    /// Another list. The times are in milliseconds: when the one before was seen for the last time, and when this one was seen.
    fn members(&mut self, [previous, returned]: [i64; 2], members: &[Member]) -> &mut Self {
        let (epoch, endpoint, number) = (self.epoch(), "one".to_owned(), self.0.members.len() as u64 + 1);
        let is_first = self.0.members.last().is_none_or(|last| last.epoch != epoch);
        let previous = (!is_first).then_some(previous * 1_000_000);
        let (called, returned, members) = (returned * 1_000_000 - 1, returned * 1_000_000, members.to_vec());
        self.0.members.push(MembersRecord { epoch, endpoint, number, previous, called, returned, members });
        self.0.member_samples = number;
        self
    }

    /// The kinds of violations, each once.
    fn kinds(&self) -> Vec<ViolationKind> {
        let mut kinds: Vec<ViolationKind> = check(&self.0).violations.iter().map(|violation| violation.kind).collect();
        kinds.sort();
        kinds.dedup();
        kinds
    }

    fn assert_good(&self) {
        let violations = check(&self.0).violations;
        let sentences: Vec<&String> = violations.iter().map(|violation| &violation.sentence).collect();
        assert!(violations.is_empty(), "{sentences:#?}");
    }
}

fn put(value: &str) -> Kind {
    Kind::Put { value: value.to_owned() }
}

fn swap([expected, value]: [&str; 2]) -> Kind {
    Kind::CompareAndSwap { expected: Some(expected.to_owned()), value: value.to_owned() }
}
