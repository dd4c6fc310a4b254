//! What a journal is made of: one JSON object a line, with its number and a sum over the rest.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Operator;
use crate::{
    digest::{hex, sha256},
    is_off,
    model::{RunResult, Status},
    repair,
};

/// The version of the format. It goes up when an old reader would misunderstand a new file.
pub const JOURNAL_VERSION: u32 = 1;

/// Which node of which of the run's graphs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeKey {
    pub graph: u32,
    pub node: u32,
    pub id: Arc<str>,
}

/// One transition of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Record {
    Begun {
        version: u32,
        command: Vec<String>,
        operator: Operator,
    },
    Resumed {
        operator: Operator,
    },
    /// The next playbook of the run. The fingerprint is that of its node ids.
    Graph {
        graph: u32,
        playbook: String,
        nodes: usize,
        fingerprint: String,
    },
    /// Written before anything is sent that can change a host.
    Intent {
        #[serde(flatten)]
        key: NodeKey,
        /// For how many seconds this machine had been up: unlike the time of day, nobody sets that.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        up: Option<u64>,
    },
    Settled {
        #[serde(flatten)]
        key: NodeKey,
        status: Status,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        changed: bool,
        /// Whether it ran cannot be told.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        doubt: bool,
        seconds: f64,
        /// What later tasks can read of it, encrypted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        left: Option<String>,
    },
    /// The operator has decided what a node in doubt did.
    Assumed {
        #[serde(flatten)]
        key: NodeKey,
        done: bool,
    },
    /// A graph has come to its end.
    Through {
        graph: u32,
        result: RunResult,
    },
    /// The run has.
    Ended {
        result: RunResult,
    },
}

#[derive(Serialize, Deserialize)]
struct Numbered<R> {
    seq: u64,
    /// Milliseconds since the Unix epoch.
    at: i64,
    #[serde(flatten)]
    record: R,
}

/// The line for a record, with its newline.
pub(super) fn to_line(seq: u64, at: i64, record: &Record) -> Result<Vec<u8>, serde_json::Error> {
    let mut line = serde_json::to_vec(&Numbered { seq, at, record })?;
    let sum = sum(&line);
    line.pop();
    line.extend_from_slice(format!(",\"sum\":\"{sum}\"}}\n").as_bytes());
    Ok(line)
}

/// The record of a line, without its newline. The error says what is wrong with it.
pub(super) fn from_line(line: &[u8], seq: u64) -> Result<(i64, Record), String> {
    let text = std::str::from_utf8(line).map_err(|_| "it is not text".to_owned())?;
    let parts = text.strip_suffix("\"}").and_then(|text| text.rsplit_once(",\"sum\":\""));
    let (body, told) = parts.ok_or_else(|| "it has no sum".to_owned())?;
    let body = format!("{body}}}");
    if sum(body.as_bytes()) != told && !is_off(repair::RECORD_SUM) {
        return Err("its sum is wrong".to_owned());
    }
    let parsed: Numbered<Record> = serde_json::from_str(&body).map_err(|error| error.to_string())?;
    match parsed.seq == seq || is_off(repair::MISSING_RECORD) {
        true => Ok((parsed.at, parsed.record)),
        false => Err(format!("it is number {}, and number {seq} is missing", parsed.seq)),
    }
}

fn sum(bytes: &[u8]) -> String {
    hex(&sha256(bytes)[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_when_it_is_not_what_was_written() {
        let key = NodeKey { graph: 0, node: 7, id: "p/h \"1\"/task\nx".into() };
        let record = Record::Intent { key, up: Some(12) };
        let line = to_line(3, 99, &record).unwrap();
        let line = line.strip_suffix(b"\n").unwrap();
        assert_eq!(from_line(line, 3).unwrap(), (99, record));
        assert!(from_line(line, 4).unwrap_err().contains("number 4 is missing"));
        for position in 0..line.len() {
            let mut other = line.to_vec();
            other[position] ^= 1;
            assert!(from_line(&other, 3).is_err(), "byte {position}");
            assert!(from_line(&line[..position], 3).is_err(), "cut at {position}");
        }
        let _: serde_json::Value = serde_json::from_slice(line).unwrap();
    }
}
