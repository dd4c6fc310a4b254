//! What is in the data of a member that 3.6 cannot live with. It does not start with what is left of the v2 API: neither with keys in
//! the newest snapshot of the log, nor with requests in the log behind that; `etcdutl check v2store` asks the same. And it may count
//! wrong voters after it has read a log in which members change.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    pin::Pin,
    task::{Context, Poll},
};

use serde::{Deserialize, de::IgnoredAny};
use tokio::io::AsyncWrite;

use super::log::{ENTRY, Frame, fields, frame_length, read_varint};

/// Where etcd keeps its own things, where users are, and where keys are.
const OWN: &str = "0";
const USERS: &str = "2";
const KEYS: &str = "1";
/// An entry that is no change of the members.
const NORMAL: u64 = 0;

/// The index that the name of a file of the log, or of a snapshot of it, ends with.
pub fn index_of(name: &str, suffix: &str) -> Option<u64> {
    name.strip_suffix(suffix)?.split_once('-').and_then(|(_, index)| u64::from_str_radix(index, 16).ok())
}

/// The files of a log that have entries behind an index, of all its files in order.
pub fn files_behind(files: &[String], index: u64) -> &[String] {
    let begins_before = |name: &String| index_of(name, ".wal").is_some_and(|first| first <= index + 1);
    let start = files.iter().rposition(begins_before).unwrap_or(0);
    &files[start..]
}

/// A key of the v2 API in a snapshot of the log, if there is one. What etcd itself keeps there does not count.
pub fn key_in(snapshot: &[u8]) -> Result<Option<String>, String> {
    let unreadable = || "it is not a snapshot of a log".to_owned();
    let wrapped = fields(snapshot).and_then(|file| file.bytes).ok_or_else(unreadable)?;
    let data = fields(wrapped).and_then(|snapshot| snapshot.bytes).ok_or_else(unreadable)?;
    let store: Store = serde_json::from_slice(data).map_err(|error| format!("it cannot be read: {error}"))?;
    Ok(store.root.visible().find_map(|(name, folder)| match name {
        OWN => None,
        // The folders for users and roles stay when all of them are gone.
        USERS => folder.visible().find_map(|(kind, all)| Some(format!("/{name}/{kind}/{}", all.visible().next()?.0))),
        KEYS => folder.visible().next().map(|(key, _)| format!("/{key}")),
        other => folder.visible().next().map(|(key, _)| format!("/{other}/{key}")),
    }))
}

#[derive(Deserialize)]
struct Store {
    #[serde(rename = "Root")]
    root: Folder<Folder<Folder<IgnoredAny>>>,
}

/// What is further down may be large, and does not matter.
#[derive(Deserialize)]
struct Folder<T> {
    #[serde(rename = "Children")]
    children: Option<HashMap<String, T>>,
}

impl<T> Folder<T> {
    /// etcd does not look at names that begin with an underscore.
    fn visible(&self) -> impl Iterator<Item = (&str, &T)> {
        let all = self.children.iter().flatten().map(|(name, child)| (name.as_str(), child));
        all.filter(|(name, _)| !name.starts_with('_'))
    }
}

/// Finds requests of the v2 API, and changes of members, while the files of a log go by, one after the other. Only the record that
/// is not complete yet is in memory.
pub struct RequestReader {
    /// What is in the snapshot does not count any more.
    after: u64,
    pending: Vec<u8>,
    is_over: bool,
    found: BTreeMap<u64, String>,
    first_request: Option<u64>,
    first_change: Option<u64>,
}

impl RequestReader {
    pub fn new(after: u64) -> Self {
        let (pending, found) = (Vec::new(), BTreeMap::new());
        Self { after, pending, is_over: false, found, first_request: None, first_change: None }
    }

    /// The next file begins.
    pub fn next_file(&mut self) {
        self.pending.clear();
        self.is_over = false;
    }

    /// The first request, if there is one: `PUT /key`.
    pub fn found(&self) -> Option<&str> {
        self.found.first_key_value().map(|(_, request)| request.as_str())
    }

    /// Whether members have changed since the cluster was formed: the first entries of its log are its first members.
    pub fn members_changed(&self) -> bool {
        self.first_change.is_some()
    }

    fn feed(&mut self, bytes: &[u8]) {
        if self.is_over {
            return;
        }
        self.pending.extend(bytes);
        let pending = std::mem::take(&mut self.pending);
        let mut rest = pending.as_slice();
        while !self.is_over {
            match frame_length(rest) {
                Frame::Incomplete => break,
                Frame::Nothing => self.is_over = true,
                Frame::Record { body, whole } => {
                    self.record(&rest[8..8 + body]);
                    rest = &rest[whole..];
                }
            }
        }
        self.pending = rest.to_vec();
    }

    fn record(&mut self, bytes: &[u8]) {
        let entry = fields(bytes).filter(|record| record.numbers[0] == ENTRY).and_then(|record| record.bytes);
        let Some(entry) = entry.and_then(fields) else { return };
        let [kind, _, index, _] = entry.numbers;
        // It takes the place of all from its index on.
        drop(self.found.split_off(&index));
        for first in [&mut self.first_request, &mut self.first_change] {
            *first = first.filter(|first| *first < index);
        }
        if index <= self.after {
            return;
        }
        if kind != NORMAL {
            self.first_change = self.first_change.or(self.first_request.map(|_| index));
            return;
        }
        // A new leader adds an entry without a request.
        if entry.bytes.is_some_and(|request| !request.is_empty()) {
            self.first_request.get_or_insert(index);
        }
        if let Some(request) = entry.bytes.and_then(Request::read).filter(|request| !request.is_own()) {
            self.found.insert(index, format!("{} {}", request.method, request.key()));
        }
    }
}

impl AsyncWrite for RequestReader {
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

/// A request of the v2 API.
struct Request<'d> {
    method: &'d str,
    path: &'d str,
}

impl<'d> Request<'d> {
    /// It is an entry by itself, or in the envelope that all requests of the v3 API have.
    fn read(data: &'d [u8]) -> Option<Self> {
        let [second, third] = second_and_third(data)?;
        Self::of(second?, third).or_else(|| {
            let [method, path] = second_and_third(second?)?;
            Self::of(method?, path)
        })
    }

    fn of(method: &'d [u8], path: Option<&'d [u8]>) -> Option<Self> {
        let method = std::str::from_utf8(method).ok()?;
        let is_method = !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase());
        is_method.then_some(Self { method, path: std::str::from_utf8(path.unwrap_or_default()).ok()? })
    }

    /// Members tell their names and the cluster its version like that, up to 3.5; 3.6 understands these.
    fn is_own(&self) -> bool {
        let attributes = || self.path.strip_prefix("/0/members/").and_then(|path| path.split_once('/'));
        self.method == "PUT"
            && (self.path == "/0/version" || attributes().is_some_and(|(_, what)| what == "attributes"))
    }

    /// As a user of the API knows it.
    fn key(&self) -> &str {
        self.path.strip_prefix("/1").unwrap_or(self.path)
    }
}

/// The fields 2 and 3 of a message, where they are bytes; nothing if it is no message.
fn second_and_third(mut bytes: &[u8]) -> Option<[Option<&[u8]>; 2]> {
    let mut found = [None; 2];
    while !bytes.is_empty() {
        let key = read_varint(&mut bytes)?;
        let length = match key & 7 {
            0 => {
                read_varint(&mut bytes)?;
                continue;
            }
            1 => 8,
            2 => usize::try_from(read_varint(&mut bytes)?).ok()?,
            5 => 4,
            _ => return None,
        };
        let value = bytes.get(..length)?;
        bytes = &bytes[length..];
        match key {
            0x12 => found[0] = Some(value),
            0x1a => found[1] = Some(value),
            _ => {}
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{super::log::tests::*, *};

    fn folder(children: Value) -> Value {
        json!({ "Path": "/", "Value": "", "Children": children })
    }

    fn key(root: Value) -> Option<String> {
        let store = json!({ "Root": folder(root), "CurrentVersion": 2 });
        key_in(&snapshot_file(store.to_string().as_bytes())).unwrap()
    }

    #[test]
    fn keys_of_the_old_api_are_found_in_a_snapshot() {
        let own = folder(json!({ "members": folder(json!({ "a": folder(json!({})) })) }));
        let value = json!({ "Path": "/1/x", "Value": "y", "Children": null });
        assert_eq!(key(json!({ "0": own, "1": folder(json!({})) })), None);
        assert_eq!(key(json!({ "0": own, "1": folder(json!({ "x": value })) })), Some("/x".into()));
        assert_eq!(key(json!({ "0": own, "1": folder(json!({ "_hidden": value })) })), None);
        // Users, and what is left when all of them are gone.
        let users =
            |users: Value| json!({ "0": own, "2": folder(json!({ "enabled": value, "users": folder(users) })) });
        assert_eq!(key(users(json!({}))), None);
        assert_eq!(key(users(json!({ "root": value }))), Some("/2/users/root".into()));
    }

    #[test]
    fn our_own_snapshots_have_none_and_others_are_told() {
        let members = ["a", "b"].map(|name| (name.to_owned(), format!("https://{name}:2380")));
        let cluster = super::super::NewCluster::new(members, "token");
        assert_eq!(key_in(&super::super::log::raft_snapshot(&cluster)), Ok(None));
        assert!(key_in(b"no snapshot").is_err());
        assert!(key_in(&snapshot_file(b"{")).is_err());
    }

    fn request(method: &str, path: &str) -> Vec<u8> {
        request_bytes(method, path)
    }

    /// What is found in a log of these entries, however it comes.
    fn found(after: u64, entries: &[(u64, Vec<u8>)]) -> Option<String> {
        let bytes = log_of(entries);
        let all = [1, 7, 64, 1 << 20].map(|piece| {
            let mut reader = RequestReader::new(after);
            bytes.chunks(piece).for_each(|piece| reader.feed(piece));
            reader.found().map(str::to_owned)
        });
        assert!(all.iter().all(|found| *found == all[0]), "{all:?}");
        all[0].clone()
    }

    #[test]
    fn requests_of_the_old_api_are_found_in_a_log() {
        let own = request("PUT", "/0/members/8e9e05c52164694d/attributes");
        let harmless = [(4, own), (5, request("PUT", "/0/version")), (6, enveloped(4, b"\x0a\x01k\x12\x01v"))];
        assert_eq!(found(0, &harmless), None);
        let with = |index: u64, data: Vec<u8>| [&harmless[..], &[(index, data)]].concat();
        assert_eq!(found(0, &with(7, request("PUT", "/1/x"))), Some("PUT /x".into()));
        assert_eq!(found(0, &with(7, request("DELETE", "/1/x"))), Some("DELETE /x".into()));
        assert_eq!(found(0, &with(7, enveloped(2, &request("SYNC", "")))), Some("SYNC ".into()));
        assert_eq!(found(7, &with(7, request("PUT", "/1/x"))), None, "it is in the snapshot");
        // The leader was another one, and it never happened.
        let replaced = [&with(7, request("PUT", "/1/x"))[..], &[(7, enveloped(4, b"\x0a\x01k"))]].concat();
        assert_eq!(found(0, &replaced), None);
    }

    #[test]
    fn changes_of_members_are_found_but_not_the_first_members() {
        const CHANGE: u64 = 1;
        let changed = |after: u64, entries: &[(u64, u64, Vec<u8>)]| {
            let mut reader = RequestReader::new(after);
            reader.feed(&log_of_kinds(entries));
            reader.members_changed()
        };
        let request = || enveloped(4, b"\x0a\x01k");
        let formed = [(1, CHANGE, vec![1]), (2, CHANGE, vec![2]), (3, NORMAL, Vec::new()), (4, NORMAL, request())];
        let with = |more: &[(u64, u64, Vec<u8>)]| [&formed[..], more].concat();
        assert!(!changed(0, &formed));
        assert!(changed(0, &with(&[(5, CHANGE, vec![3])])));
        assert!(!changed(5, &with(&[(5, CHANGE, vec![3])])), "it is in the snapshot");
        assert!(!changed(0, &with(&[(5, CHANGE, vec![3]), (5, NORMAL, request())])), "it never happened");
    }

    #[test]
    fn only_files_with_entries_behind_the_snapshot_are_read() {
        let files = ["0-0", "1-2f", "2-5a"].map(|name| format!("{name}.wal"));
        assert_eq!(files_behind(&files, 0).len(), 3);
        assert_eq!(files_behind(&files, 0x2d).len(), 3);
        assert_eq!(files_behind(&files, 0x2e).len(), 2);
        assert_eq!(files_behind(&files, 0x100), ["2-5a.wal"]);
        assert_eq!(files_behind(&files[1..], 0).len(), 2);
        assert!(files_behind(&[], 7).is_empty());
    }
}
