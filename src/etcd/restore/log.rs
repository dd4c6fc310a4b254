//! The log of a member that has seen nothing but how its cluster began, and its raft snapshot of that.

use super::{NewCluster, NewMember, TERM, store};

/// Kinds of records in a log.
const METADATA: u64 = 1;
const ENTRY: u64 = 2;
const STATE: u64 = 3;
const SUM: u64 = 4;
const SNAPSHOT: u64 = 5;
/// The entry's kind: somebody comes or goes.
const CONF_CHANGE: u64 = 1;
const ADD_NODE: u64 = 0;

/// A message of protobuf, field by field.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn number(mut self, field: u8, value: u64) -> Self {
        self.0.push(field << 3);
        self.varint(value);
        self
    }

    fn bytes(mut self, field: u8, value: &[u8]) -> Self {
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
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
    !bytes.iter().fold(!before, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_that_of_castagnoli() {
        assert_eq!(crc(0, b"123456789"), 0xe306_9283);
        assert_eq!(crc(crc(0, b"1234"), b"56789"), 0xe306_9283);
    }
}
