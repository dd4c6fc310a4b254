//! Declared keys: what differs from them, and writing that. A write is good only for the revision that was read for it, so each
//! transaction compares it first.

use std::path::{Path, PathBuf};

use etcd_client::{Compare, CompareOp, GetOptions, KvClient, Txn, TxnOp, TxnOpResponse};

use super::{EtcdError, MemberClient};
use crate::{
    inventory::sections::{DeclaredKey, KeyEntry, KeyProblem, KeysSection, key_problems, request_size},
    source::disk::{self, Found},
};

/// A directory this deep is a loop of links.
const MAX_DEPTH: usize = 64;
/// How many keys with a prefix are read at once, without their values.
const PAGE: i64 = 1000;

/// What a key is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    Value(Vec<u8>),
    /// The value of a key that is not there yet.
    Initial(Vec<u8>),
    Absent,
    /// No key that begins with it.
    NoneWithPrefix,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredValue {
    pub key: String,
    pub wish: Wish,
}

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyChange {
    pub key: Vec<u8>,
    /// The revision of its last change, as of reading it; 0 if there was no such key.
    pub read_at: i64,
    pub before: Before,
    /// Nothing if it is removed.
    pub after: Option<Vec<u8>>,
    /// Whether it is only written if it is not there.
    is_initial: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Before {
    Missing,
    Value(Vec<u8>),
    /// It is there, and goes with its prefix.
    Unread,
}

/// How much etcd accepts at once.
#[derive(Clone, Copy, Debug)]
pub struct RequestLimits {
    pub operations: usize,
    pub bytes: u64,
}

/// A key that is there.
#[derive(Clone, Copy)]
struct Held<'a> {
    revision: i64,
    lease: i64,
    value: &'a [u8],
}

/// Why keys were not written.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    #[error(
        "cannot write `{key}`: it has the lease {lease:x}, and would lose it, so it would no longer expire; remove it from the declared \
         keys, or delete it in etcd and run this again"
    )]
    Leased { key: String, lease: i64 },
    #[error(
        "cannot write `{key}`: it takes {size} bytes of a request, and {limit} are accepted; keep large data elsewhere, or raise \
         `max-request-bytes` in `etcd.settings`"
    )]
    TooLarge { key: String, size: u64, limit: u64 },
    #[error(
        "cannot write `{key}`: another client has changed it since it was read (revision {read_at}, now {now}), and its transaction \
         was not carried out; run this again, or set `only_if_missing: true` if an application owns the value"
    )]
    Overtaken { key: String, read_at: i64, now: i64 },
}

impl KeysError {
    /// Whether another member may answer. A learner takes no reads and writes.
    pub fn is_of_the_member(&self) -> bool {
        match self {
            Self::Etcd(EtcdError::Refused { reason, .. }) => reason.contains("not supported for learner"),
            Self::Etcd(error) => error.is_transient(),
            _ => false,
        }
    }
}

/// Directories replaced by their files, and everything that is wrong with keys before anything is asked.
pub fn expand_keys(keys: &KeysSection) -> Result<KeysSection, Vec<KeyProblem>> {
    let (mut found, mut expanded) = (key_problems(keys), KeysSection::new());
    for (key, entry) in keys {
        let files = match files_of(key, &entry.0) {
            Ok(files) => files,
            Err(problem) => {
                found.push(problem);
                continue;
            }
        };
        let Some(files) = files else {
            expanded.insert(key.clone(), entry.clone());
            continue;
        };
        for (name, path) in files {
            if keys.get(&name).is_some_and(|other| !std::ptr::eq(other, entry)) || expanded.contains_key(&name) {
                let message = format!("`{name}` is declared twice: also by {}", path.display());
                let help = "remove its own entry, or the file";
                found.push(KeyProblem { key: key.clone(), message, help });
            }
            let src = Some(path.to_string_lossy().into_owned());
            expanded.insert(name, KeyEntry(DeclaredKey { src, ..entry.0.clone() }));
        }
    }
    if found.is_empty() {
        // The file of a directory may have the prefix of what is to be removed.
        found = key_problems(&expanded);
    }
    if found.is_empty() { Ok(expanded) } else { Err(found) }
}

/// The files with the values of a key, each with the key that it is for; nothing for a key without a file.
fn files_of(key: &str, declared: &DeclaredKey) -> Result<Option<Vec<(String, PathBuf)>>, KeyProblem> {
    let Some(src) = declared.src.as_deref().filter(|src| !src.is_empty() && !src.contains("{{")) else {
        return Ok(None);
    };
    let told = |message: String, help: &'static str| KeyProblem { key: key.to_owned(), message, help };
    let path = Path::new(src.trim_end_matches('/'));
    match (disk::find(path), declared.is_folder()) {
        (Found::File, false) => Ok(Some(vec![(key.to_owned(), path.to_owned())])),
        (Found::Folder, true) => {
            let mut files = Vec::new();
            let walked = walk(key, path, 0, &mut files);
            let unreadable = |error| told(format!("cannot read `{src}`: {error}"), "check its files");
            walked.map(|()| Some(files)).map_err(unreadable)
        }
        (Found::Folder, false) => {
            let message = format!("`{src}` is a directory");
            Err(told(message, "end it in a slash, and the key too: then each file in it is a key"))
        }
        (Found::File, true) => Err(told(format!("`{src}` is not a directory"), "remove the slash at the end")),
        (Found::Absent, _) => Err(told(format!("`{src}` was not found"), "create it, or correct the path")),
    }
}

fn walk(key: &str, folder: &Path, depth: usize, files: &mut Vec<(String, PathBuf)>) -> std::io::Result<()> {
    if depth > MAX_DEPTH {
        return Err(std::io::Error::other("it is nested too deeply"));
    }
    for name in disk::list(folder)? {
        let path = folder.join(&name);
        match disk::find(&path) {
            Found::Folder => walk(&format!("{key}{name}/"), &path, depth + 1, files)?,
            Found::File => files.push((format!("{key}{name}"), path)),
            Found::Absent => {}
        }
    }
    Ok(())
}

/// What differs from what is declared. Reads only.
pub async fn differing_keys(
    member: &MemberClient,
    declared: &[DeclaredValue],
    limits: RequestLimits,
) -> Result<Vec<KeyChange>, KeysError> {
    let mut client = kv_client(member).await?;
    let mut changes = Vec::new();
    let single = declared.iter().filter(|it| it.wish != Wish::NoneWithPrefix).collect::<Vec<_>>();
    for some in batches(&single, limits, |it| request_size(it.key.len(), it.wish.len())) {
        let reads: Vec<TxnOp> = some.iter().map(|it| TxnOp::get(it.key.as_bytes(), None)).collect();
        let answer = member.bounded(client.txn(Txn::new().and_then(reads))).await?;
        for (declared, found) in some.iter().zip(answer.op_responses()) {
            changes.extend(change(declared, first(&found))?);
        }
    }
    for prefix in declared.iter().filter(|it| it.wish == Wish::NoneWithPrefix) {
        changes.extend(with_prefix(member, &mut client, prefix.key.as_bytes()).await?);
    }
    changes.iter().try_for_each(|change| change.fits(limits))?;
    Ok(changes)
}

/// What would be written into a cluster without keys.
pub fn all_keys(declared: &[DeclaredValue]) -> Vec<KeyChange> {
    declared.iter().filter_map(|declared| change(declared, None).ok().flatten()).collect()
}

impl Wish {
    fn len(&self) -> usize {
        match self {
            Self::Value(value) | Self::Initial(value) => value.len(),
            Self::Absent | Self::NoneWithPrefix => 0,
        }
    }
}

impl KeyChange {
    fn size(&self) -> u64 {
        request_size(self.key.len(), self.after.as_ref().map_or(0, Vec::len))
    }

    fn fits(&self, limits: RequestLimits) -> Result<(), KeysError> {
        match self.size() {
            size if size <= limits.bytes => Ok(()),
            size => Err(KeysError::TooLarge { key: shown(&self.key), size, limit: limits.bytes }),
        }
    }

    /// Whether a key is as this would make it, by any client.
    fn is_done(&self, found: Option<Held<'_>>) -> bool {
        match (&self.after, found) {
            (None, None) => true,
            (Some(_), Some(_)) if self.is_initial => true,
            (Some(after), Some(found)) => found.value == after,
            _ => false,
        }
    }
}

/// What one key needs.
fn change(declared: &DeclaredValue, found: Option<Held<'_>>) -> Result<Option<KeyChange>, KeysError> {
    let (after, is_initial) = match &declared.wish {
        Wish::Value(value) => (Some(value.clone()), false),
        Wish::Initial(value) => (Some(value.clone()), true),
        Wish::Absent => (None, false),
        Wish::NoneWithPrefix => return Ok(None),
    };
    let change = KeyChange {
        key: declared.key.clone().into_bytes(),
        read_at: found.map_or(0, |found| found.revision),
        before: found.map_or(Before::Missing, |found| Before::Value(found.value.to_vec())),
        after,
        is_initial,
    };
    if change.is_done(found) {
        return Ok(None);
    }
    match found.map(|found| found.lease).filter(|lease| *lease != 0 && change.after.is_some()) {
        Some(lease) => Err(KeysError::Leased { key: declared.key.clone(), lease }),
        None => Ok(Some(change)),
    }
}

/// The keys with a prefix, each of which is removed only as it was read: one that is made later stays.
async fn with_prefix(member: &MemberClient, client: &mut KvClient, prefix: &[u8]) -> Result<Vec<KeyChange>, KeysError> {
    let (mut from, end) = (prefix.to_vec(), super::auth::behind(prefix));
    let mut changes = Vec::new();
    loop {
        let options = GetOptions::new().with_range(end.clone()).with_keys_only().with_limit(PAGE);
        let answer = member.bounded(client.get(from.clone(), Some(options))).await?;
        changes.extend(answer.kvs().iter().map(|found| KeyChange {
            key: found.key().to_vec(),
            read_at: found.mod_revision(),
            before: Before::Unread,
            after: None,
            is_initial: false,
        }));
        let Some(last) = answer.kvs().last().filter(|_| answer.more()) else { return Ok(changes) };
        from = [last.key(), &[0]].concat();
    }
}

/// What is written in one transaction each.
pub fn transactions(changes: &[KeyChange], limits: RequestLimits) -> Vec<&[KeyChange]> {
    batches(changes, limits, KeyChange::size)
}

/// Pieces that etcd accepts; one that is too large by itself is a piece too.
fn batches<T>(items: &[T], limits: RequestLimits, size: impl Fn(&T) -> u64) -> Vec<&[T]> {
    let (mut pieces, mut start, mut bytes) = (Vec::new(), 0, 0);
    for (index, item) in items.iter().enumerate() {
        let size = size(item);
        if index > start && (index - start >= limits.operations || bytes + size > limits.bytes) {
            pieces.push(&items[start..index]);
            (start, bytes) = (index, 0);
        }
        bytes += size;
    }
    if start < items.len() {
        pieces.push(&items[start..]);
    }
    pieces
}

/// Writes one transaction: all of it, if every key is as it was read. What another client has made so already is fine.
pub async fn write_keys(member: &MemberClient, changes: &[KeyChange]) -> Result<(), KeysError> {
    let mut client = kv_client(member).await?;
    let mut left: Vec<&KeyChange> = changes.iter().collect();
    while !left.is_empty() {
        let answer = member.bounded(client.txn(transaction(&left))).await?;
        if answer.succeeded() {
            break;
        }
        left = still_needed(&left, &answer.op_responses())?;
    }
    Ok(())
}

fn transaction(changes: &[&KeyChange]) -> Txn {
    let as_read = |change: &&KeyChange| Compare::mod_revision(change.key.clone(), CompareOp::Equal, change.read_at);
    let write = |change: &&KeyChange| match &change.after {
        Some(value) => TxnOp::put(change.key.clone(), value.clone(), None),
        None => TxnOp::delete(change.key.clone(), None),
    };
    let read = |change: &&KeyChange| TxnOp::get(change.key.clone(), None);
    Txn::new()
        .when(changes.iter().map(as_read).collect::<Vec<_>>())
        .and_then(changes.iter().map(write).collect::<Vec<_>>())
        .or_else(changes.iter().map(read).collect::<Vec<_>>())
}

/// The changes of a transaction that was not carried out, without those that another client has made.
fn still_needed<'c>(changes: &[&'c KeyChange], now: &[TxnOpResponse]) -> Result<Vec<&'c KeyChange>, KeysError> {
    let mut left = Vec::new();
    for (change, now) in changes.iter().zip(now) {
        let now = first(now);
        let revision = now.map_or(0, |now| now.revision);
        if revision == change.read_at {
            left.push(*change);
        } else if !change.is_done(now) {
            return Err(KeysError::Overtaken { key: shown(&change.key), read_at: change.read_at, now: revision });
        }
    }
    Ok(left)
}

fn first(answer: &TxnOpResponse) -> Option<Held<'_>> {
    let TxnOpResponse::Get(answer) = answer else { return None };
    let held = answer.kvs().first()?;
    Some(Held { revision: held.mod_revision(), lease: held.lease(), value: held.value() })
}

/// A key, as a person reads it.
pub fn shown(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}

/// Values may be larger than what a client accepts by itself.
async fn kv_client(member: &MemberClient) -> Result<KvClient, EtcdError> {
    Ok(member.client().await?.kv_client().max_decoding_message_size(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::sections::Presence;

    fn held(value: &str, revision: i64, lease: i64) -> Held<'_> {
        Held { revision, lease, value: value.as_bytes() }
    }

    fn needed(wish: Wish, found: Option<Held<'_>>) -> Option<(i64, Option<String>)> {
        let change = change(&DeclaredValue { key: "/a".into(), wish }, found).unwrap()?;
        Some((change.read_at, change.after.map(|value| String::from_utf8(value).unwrap())))
    }

    #[test]
    fn a_key_is_written_only_if_it_differs() {
        let (old, value) = (held("old", 7, 0), |text: &str| Wish::Value(text.into()));
        assert_eq!(needed(value("old"), Some(old)), None);
        assert_eq!(needed(value("new"), Some(old)), Some((7, Some("new".into()))));
        assert_eq!(needed(value("new"), None), Some((0, Some("new".into()))));
        assert_eq!(needed(Wish::Initial("new".into()), Some(old)), None);
        assert_eq!(needed(Wish::Initial("new".into()), None), Some((0, Some("new".into()))));
        assert_eq!(needed(Wish::Absent, Some(old)), Some((7, None)));
        assert_eq!(needed(Wish::Absent, None), None);
    }

    #[test]
    fn a_key_does_not_lose_its_lease() {
        let leased = held("old", 7, 0x1f);
        let declared = |wish| DeclaredValue { key: "/a".into(), wish };
        let told = change(&declared(Wish::Value("new".into())), Some(leased)).unwrap_err().to_string();
        assert!(told.contains("`/a`") && told.contains("lease 1f"), "{told}");
        assert_eq!(change(&declared(Wish::Value("old".into())), Some(leased)).unwrap(), None);
        assert!(change(&declared(Wish::Absent), Some(leased)).unwrap().is_some());
    }

    #[test]
    fn a_transaction_has_no_more_than_etcd_accepts() {
        let limits = RequestLimits { operations: 3, bytes: 1000 };
        let sizes =
            |sizes: &[u64]| batches(sizes, limits, |size| *size).iter().map(|some| some.len()).collect::<Vec<_>>();
        assert_eq!(sizes(&[]), [0; 0]);
        assert_eq!(sizes(&[1, 1, 1, 1]), [3, 1]);
        assert_eq!(sizes(&[600, 400, 1, 5000, 1]), [2, 1, 1, 1]);
        let large = KeyChange {
            key: b"/a".to_vec(),
            read_at: 0,
            before: Before::Missing,
            after: Some(vec![0; 1000]),
            is_initial: false,
        };
        assert!(large.fits(limits).unwrap_err().to_string().contains("`/a`"));
    }

    #[test]
    fn what_another_client_has_made_so_is_done() {
        let change = |wish| change(&DeclaredValue { key: "/a".into(), wish }, None).unwrap().unwrap();
        let (value, initial) = (change(Wish::Value("new".into())), change(Wish::Initial("new".into())));
        assert!(value.is_done(Some(held("new", 9, 0))) && !value.is_done(Some(held("other", 9, 0))));
        assert!(initial.is_done(Some(held("other", 9, 0))) && !initial.is_done(None));
    }

    #[test]
    fn a_directory_stands_for_its_files() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("more")).unwrap();
        for name in ["one", "more/two"] {
            std::fs::write(folder.path().join(name), name).unwrap();
        }
        let src = format!("{}/", folder.path().display());
        let keys = |more: &[(&str, DeclaredKey)]| {
            let files = DeclaredKey { src: Some(src.clone()), ..DeclaredKey::default() };
            let all = [("/a/", files)].into_iter().chain(more.iter().cloned());
            expand_keys(&all.map(|(key, declared)| (key.to_owned(), KeyEntry(declared))).collect())
        };
        assert_eq!(keys(&[]).unwrap().keys().collect::<Vec<_>>(), ["/a/more/two", "/a/one"]);
        let text = DeclaredKey { content: Some("x".into()), ..DeclaredKey::default() };
        assert!(keys(&[("/a/one", text)]).unwrap_err()[0].message.contains("`/a/one` is declared twice"));
        let gone = DeclaredKey { state: Presence::Absent, prefix: true, ..DeclaredKey::default() };
        assert!(keys(&[("/a/more/", gone)]).unwrap_err()[0].message.contains("`/a/more/two` would be removed"));
        let missing = DeclaredKey { src: Some("/nowhere/at-all".into()), ..DeclaredKey::default() };
        assert!(keys(&[("/b", missing)]).unwrap_err()[0].message.contains("was not found"));
    }
}
