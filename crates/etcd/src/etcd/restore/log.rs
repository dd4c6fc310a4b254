//! The log of a member that has seen nothing but how its cluster began, and its raft snapshot of that; and where other logs end.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use crc_fast::{CrcAlgorithm, Digest};
use tokio::io::AsyncWrite;

use super::{NewCluster, NewMember, TERM, store};

/// Kinds of records in a log.
const METADATA: u64 = 1;
pub(super) const ENTRY: u64 = 2;
const STATE: u64 = 3;
const SUM: u64 = 4;
const SNAPSHOT: u64 = 5;
/// The entry's kind: somebody comes or goes.
const CONF_CHANGE: u64 = 1;
const ADD_NODE: u64 = 0;
/// More is no record, but something that was never written to its end.
const MAX_RECORD: u64 = 256 << 20;

/// A message of protobuf, field by field.
#[derive(Default)]
pub(super) struct Message(pub(super) Vec<u8>);

impl Message {
    pub(super) fn number(mut self, field: u8, value: u64) -> Self {
        self.0.push(field << 3);
        self.varint(value);
        self
    }

    pub(super) fn bytes(mut self, field: u8, value: &[u8]) -> Self {
        self.0.push(field << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend(value);
        self
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

/// CRC-32C, going on from what came before.
pub(super) fn crc(before: u32, bytes: &[u8]) -> u32 {
    let mut sum = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!before));
    sum.update(bytes);
    sum.finalize() as u32
}

/// Records, each behind its length, in steps of eight bytes, and with the sum of all so far.
#[derive(Default)]
struct Log {
    bytes: Vec<u8>,
    crc: u32,
}

impl Log {
    fn record(mut self, kind: u64, data: Option<&Message>) -> Self {
        let mut record = Message::default().number(1, kind);
        self.crc = crc(self.crc, data.map_or(&[], |data| &data.0));
        record = record.number(2, u64::from(self.crc));
        if let Some(data) = data {
            record = record.bytes(3, &data.0);
        }
        let length = record.0.len() as u64;
        let padding = (8 - length % 8) % 8;
        let field = if padding == 0 { length } else { length | (0x80 | padding) << 56 };
        self.bytes.extend(field.to_le_bytes());
        self.bytes.extend(record.0);
        self.bytes.resize(self.bytes.len() + padding as usize, 0);
        self
    }
}

fn conf_state(cluster: &NewCluster) -> Message {
    let voters = cluster.members.iter().fold(Message::default(), |state, member| state.number(1, member.id));
    voters.number(5, 0)
}

pub(super) fn log(cluster: &NewCluster, own: &NewMember) -> Vec<u8> {
    let metadata = Message::default().number(1, own.id).number(2, cluster.id);
    let nothing = Message::default().number(1, 0).number(2, 0);
    let mut log = Log::default().record(SUM, None).record(METADATA, Some(&metadata)).record(SNAPSHOT, Some(&nothing));
    for (index, member) in (1..).zip(&cluster.members) {
        let change =
            Message::default().number(1, 0).number(2, ADD_NODE).number(3, member.id).bytes(4, &member.written());
        let entry = Message::default().number(1, CONF_CHANGE).number(2, TERM).number(3, index).bytes(4, &change.0);
        log = log.record(ENTRY, Some(&entry));
    }
    let last = cluster.last_index();
    let vote = cluster.members.first().map_or(0, |member| member.id);
    let state = Message::default().number(1, TERM).number(2, vote).number(3, last);
    let snapshot = Message::default().number(1, last).number(2, TERM).bytes(3, &conf_state(cluster).0);
    log.record(STATE, Some(&state)).record(SNAPSHOT, Some(&snapshot)).bytes
}

pub(super) fn raft_snapshot(cluster: &NewCluster) -> Vec<u8> {
    let metadata = Message::default().bytes(1, &conf_state(cluster).0).number(2, cluster.last_index()).number(3, TERM);
    let snapshot = Message::default().bytes(1, &store::store(cluster)).bytes(2, &metadata.0);
    Message::default().number(1, u64::from(crc(0, &snapshot.0))).bytes(2, &snapshot.0).0
}

/// Where a log ends, as its last file shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    /// The last entry's. Who has the highest, has the most of what the cluster agreed to.
    pub term: u64,
    pub index: u64,
    /// What the member knew that a majority has.
    pub commit: u64,
    /// How far the file is used.
    pub end: u64,
    /// A file that was just begun has no entry yet; the last one is in the file before.
    pub is_fresh: bool,
    /// The ids of the member and of its cluster.
    pub node: u64,
    pub cluster: u64,
    /// The last state's.
    state_term: u64,
    vote: u64,
    /// The sum of the records.
    crc: u32,
}

impl Tail {
    /// A record which says that a majority has all that is in the log: what may have been acknowledged is not thrown away.
    pub fn all_committed(&self) -> Vec<u8> {
        let state = Message::default().number(1, self.state_term).number(2, self.vote).number(3, self.index);
        Log { bytes: Vec::new(), crc: self.crc }.record(STATE, Some(&state)).bytes
    }
}

/// Finds the end of a log while a file of it goes by. Only the record that is not complete yet is in memory.
pub struct TailReader {
    tail: Tail,
    pending: Vec<u8>,
    knows_sum: bool,
    is_over: bool,
}

impl TailReader {
    /// In the name of the file is the index that it begins with.
    pub fn new(name: &str) -> Option<Self> {
        let first = name.strip_suffix(".wal")?.split_once('-').and_then(|(_, it)| u64::from_str_radix(it, 16).ok())?;
        let tail = Tail { index: first.saturating_sub(1), is_fresh: true, ..Tail::default() };
        Some(Self { tail, pending: Vec::new(), knows_sum: false, is_over: false })
    }

    /// Where it ends; nothing if not even its beginning could be read, which says whose it is.
    pub fn tail(&self) -> Option<&Tail> {
        (self.tail.cluster != 0).then_some(&self.tail)
    }

    fn feed(&mut self, bytes: &[u8]) {
        if self.is_over {
            return;
        }
        self.pending.extend(bytes);
        let pending = std::mem::take(&mut self.pending);
        let mut at = 0;
        while !self.is_over {
            let rest = pending.get(at..).unwrap_or_default();
            match frame_length(rest) {
                Frame::Incomplete => break,
                Frame::Nothing => self.is_over = true,
                Frame::Record { body, whole } => {
                    self.record(&rest[8..8 + body]);
                    if !self.is_over {
                        at += whole;
                        self.tail.end += whole as u64;
                    }
                }
            }
        }
        self.pending = pending.get(at..).unwrap_or_default().to_vec();
    }

    fn record(&mut self, bytes: &[u8]) {
        let Some(record) = fields(bytes) else {
            self.is_over = true;
            return;
        };
        let [kind, sum, ..] = record.numbers;
        let data = record.bytes.unwrap_or_default();
        let crc = if kind == SUM { sum as u32 } else { crc(self.tail.crc, data) };
        // What was being written when the power went does not count.
        if self.knows_sum && kind != SUM && u64::from(crc) != sum {
            self.is_over = true;
            return;
        }
        (self.tail.crc, self.knows_sum) = (crc, true);
        self.take(kind, data);
    }

    fn take(&mut self, kind: u64, data: &[u8]) {
        let Some(message) = fields(data) else { return };
        let [one, two, three, ..] = message.numbers;
        let tail = &mut self.tail;
        match kind {
            // An entry takes the place of all from its index on.
            ENTRY => (tail.term, tail.index, tail.is_fresh) = (two, three, false),
            METADATA => (tail.node, tail.cluster) = (one, two),
            STATE => (tail.state_term, tail.vote, tail.commit) = (one, two, three),
            // A member that was far behind got everything up to there at once.
            SNAPSHOT if one > tail.index => (tail.term, tail.index, tail.is_fresh) = (two, one, false),
            _ => {}
        }
    }
}

impl AsyncWrite for TailReader {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.feed(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// The fields of a message that matter here: the first numbers, and the first bytes.
pub(super) struct Fields<'m> {
    pub numbers: [u64; 4],
    pub bytes: Option<&'m [u8]>,
}

pub(super) enum Frame {
    /// Its own length, and that with what is before and behind it.
    Record {
        body: usize,
        whole: usize,
    },
    Incomplete,
    Nothing,
}

/// How long the first record is.
pub(super) fn frame_length(bytes: &[u8]) -> Frame {
    let Some(field) = bytes.first_chunk::<8>().map(|field| u64::from_le_bytes(*field)) else {
        return Frame::Incomplete;
    };
    let body = field & ((1 << 56) - 1);
    if body == 0 || body > MAX_RECORD {
        return Frame::Nothing;
    }
    let padding = if field >> 63 == 1 { (field >> 56 & 7) as usize } else { 0 };
    let body = body as usize;
    match 8 + body + padding {
        whole if whole > bytes.len() => Frame::Incomplete,
        whole => Frame::Record { body, whole },
    }
}

pub(super) fn fields(mut bytes: &[u8]) -> Option<Fields<'_>> {
    let mut found = Fields { numbers: [0; 4], bytes: None };
    while !bytes.is_empty() {
        let key = read_varint(&mut bytes)?;
        let field = usize::try_from(key >> 3).ok()?;
        match key & 7 {
            0 => {
                let value = read_varint(&mut bytes)?;
                if let Some(number) = field.checked_sub(1).and_then(|at| found.numbers.get_mut(at)) {
                    *number = value;
                }
            }
            2 => {
                let length = usize::try_from(read_varint(&mut bytes)?).ok()?;
                let value = bytes.get(..length)?;
                found.bytes.get_or_insert(value);
                bytes = &bytes[length..];
            }
            _ => return None,
        }
    }
    Some(found)
}

pub(super) fn read_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A snapshot of a log whose store is this.
    pub(in super::super) fn snapshot_file(store: &[u8]) -> Vec<u8> {
        let metadata = Message::default().number(2, 9).number(3, 1);
        let snapshot = Message::default().bytes(1, store).bytes(2, &metadata.0);
        Message::default().number(1, u64::from(crc(0, &snapshot.0))).bytes(2, &snapshot.0).0
    }

    /// A log that has entries at these places, and room behind them.
    pub(in super::super) fn log_of(entries: &[(u64, Vec<u8>)]) -> Vec<u8> {
        log_of_kinds(&entries.iter().map(|(index, data)| (*index, 0, data.clone())).collect::<Vec<_>>())
    }

    /// The same, with the kind of each entry behind its index.
    pub(in super::super) fn log_of_kinds(entries: &[(u64, u64, Vec<u8>)]) -> Vec<u8> {
        let metadata = Message::default().number(1, 1).number(2, 2);
        let begun = Log::default().record(SUM, None).record(METADATA, Some(&metadata));
        let log = entries.iter().fold(begun, |log, (index, kind, data)| {
            log.record(ENTRY, Some(&Message::default().number(1, *kind).number(2, 1).number(3, *index).bytes(4, data)))
        });
        [log.bytes, vec![0; 512]].concat()
    }

    /// A request of the v2 API.
    pub(in super::super) fn request_bytes(method: &str, path: &str) -> Vec<u8> {
        Message::default().number(1, 77).bytes(2, method.as_bytes()).bytes(3, path.as_bytes()).bytes(4, b"value").0
    }

    /// A request in the envelope of the v3 API.
    pub(in super::super) fn enveloped(field: u8, request: &[u8]) -> Vec<u8> {
        Message::default().number(1, 78).bytes(field, request).0
    }

    #[test]
    fn the_sum_is_that_of_castagnoli() {
        assert_eq!(crc(0, b"123456789"), 0xe306_9283);
        assert_eq!(crc(crc(0, b"1234"), b"56789"), 0xe306_9283);
    }

    const NAME: &str = "0000000000000000-0000000000000000.wal";

    /// In pieces, as it comes over a network.
    fn end_of(name: &str, bytes: &[u8], piece: usize) -> Tail {
        let mut reader = TailReader::new(name).unwrap();
        bytes.chunks(piece).for_each(|piece| reader.feed(piece));
        reader.tail().unwrap().clone()
    }

    fn three() -> NewCluster {
        let members = ["a", "b", "c"].map(|name| (name.to_owned(), format!("https://{name}:2380")));
        NewCluster::new(members, "token")
    }

    #[test]
    fn the_end_of_a_log_is_found_and_goes_on() {
        let cluster = three();
        let begun = log(&cluster, &cluster.members[0]);
        let length = begun.len();
        let entry = Message::default().number(1, 0).number(2, 2).number(3, 4).bytes(4, b"put");
        let crc = end_of(NAME, &begun, 4096).crc;
        let mut bytes = begun.clone();
        bytes.extend(Log { bytes: Vec::new(), crc }.record(ENTRY, Some(&entry)).bytes);
        bytes.resize(bytes.len() + 4096, 0);
        for piece in [1, 7, 64, 1 << 20] {
            let tail = end_of(NAME, &bytes, piece);
            assert_eq!((tail.term, tail.index, tail.commit, tail.is_fresh), (2, 4, 3, false), "{piece}");
        }
        let tail = end_of(NAME, &bytes, 4096);
        let mut committed = bytes[..usize::try_from(tail.end).unwrap()].to_vec();
        committed.extend(tail.all_committed());
        let after = end_of(NAME, &committed, 4096);
        assert_eq!((after.index, after.commit, after.end), (4, 4, committed.len() as u64));
        // A record that was only half written does not count.
        let torn = end_of(NAME, &bytes[..length + 12], 4096);
        assert_eq!((torn.index, torn.end), (3, length as u64));
        let mut bad = bytes.clone();
        bad[length + 20] ^= 1;
        assert_eq!(end_of(NAME, &bad, 5).end, length as u64);
    }

    #[test]
    fn a_file_that_was_just_begun_has_its_last_entry_in_the_one_before() {
        let metadata = Message::default().number(1, 1).number(2, 2);
        let state = Message::default().number(1, 7).number(2, 1).number(3, 40);
        let begun = Log::default().record(SUM, None).record(METADATA, Some(&metadata)).record(STATE, Some(&state));
        let name = "0000000000000003-0000000000000030.wal";
        let tail = end_of(name, &begun.bytes, 4096);
        assert_eq!((tail.index, tail.commit, tail.is_fresh), (0x2f, 40, true));
        assert_eq!((tail.node, tail.cluster), (1, 2));
        // Somebody far behind gets a snapshot.
        let snapshot = Message::default().number(1, 900).number(2, 7);
        let tail = end_of(name, &begun.record(SNAPSHOT, Some(&snapshot)).bytes, 4096);
        assert_eq!((tail.term, tail.index, tail.is_fresh), (7, 900, false));
    }
}
