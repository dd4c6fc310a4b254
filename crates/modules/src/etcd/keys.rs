//! `etcd_keys`: keys of a cluster and their values.

use std::{collections::HashSet, time::Duration};

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, ResultField, Running,
    cluster_args::{Cluster, ClusterArgs, WHOLE_CLUSTER, fence},
    local::{self, Files, INLINE_LIMIT},
};
use crate::{
    digest::{hex, sha256},
    inventory::sections::{
        DeclaredKey, KeyEntry, KeyProblem, KeysSection, MAX_OPERATIONS, MAX_REQUEST, Presence, key_problems,
    },
    model::{ByteSize, Diff, Effects, Masker, Outcome},
};
use etcdrun_etcd::etcd::{
    Before, DeclaredValue, EtcdError, KeyChange, KeysError, MemberClient, RequestLimits, Wish, all_keys,
    differing_keys, expand_keys, shown_key, transactions, write_keys,
};

/// Large values take a while through SSH.
const CALL_LIMIT: Duration = Duration::from_secs(30);

/// Writes and removes keys of a cluster. Keys that are not declared are not changed.
///
/// A key is written only if its value differs. The keys of a task are written in as few transactions as etcd accepts, prefixes are
/// removed last. Each transaction is carried out only if all its keys are as they were when etcdrun read them. If another client
/// has changed one of them, the task fails, unless the key is now as declared. A key with a lease keeps it: a task that would
/// write another value fails.
///
/// In check mode, and with `--diff`, each key is shown with its old and new value. Encrypted values and those with `secret` are not
/// shown. Works with certificates, with passwords, and without authentication.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EtcdKeys {
    #[serde(default)]
    cluster: ClusterArgs,
    /// By key: its value, or a mapping with `content`, `base64` or `src`, `state`, `prefix`, `only_if_missing` and `secret`. A relative
    /// `src` is searched in the role's `files` and next to the playbook.
    keys: KeysSection,
    /// The number of keys in one transaction, at most; etcd's `max-txn-ops`.
    #[serde(default = "max_operations")]
    max_operations: u32,
    /// The size of one transaction, at most; etcd's `max-request-bytes`.
    #[serde(default = "max_request")]
    max_request: ByteSize,
}

fn max_operations() -> u32 {
    MAX_OPERATIONS
}

fn max_request() -> ByteSize {
    ByteSize(MAX_REQUEST)
}

impl Module for EtcdKeys {
    const NAME: &'static str = "etcd_keys";
    const CLUSTER: &'static [crate::task::ClusterKey] = WHOLE_CLUSTER;
    const EXAMPLE: &'static str = "\
- name: Write the settings of the application
  etcd_keys:
    keys:
      /app/limit: \"100\"
      /app/colors: { content: [red, blue] }
      /app/token: { content: \"{{ app_token }}\", secret: true }
      /app/logo: { src: logo.png }
      /app/counter: { content: \"0\", only_if_missing: true }
      /app/old: { state: absent }
      /app/legacy/: { state: absent, prefix: true }
  once_per: cluster
";
    const RESULT: &'static [ResultField] = &[
        ResultField { name: "created", doc: "Keys that were missing." },
        ResultField { name: "updated", doc: "Keys that had another value." },
        ResultField { name: "removed", doc: "Keys that were removed." },
    ];

    fn validate(&self) -> Result<(), ModuleError> {
        if self.max_operations == 0 {
            return Err(ModuleError::new("`max_operations` must be at least 1"));
        }
        key_problems(&self.keys).into_iter().next().map_or(Ok(()), |problem| Err(told(problem)))
    }

    fn effects(&self) -> Effects {
        Effects::converging()
    }

    fn action(self, context: &BuildContext<'_>) -> Result<Action, ModuleError> {
        let cluster = self.cluster.known()?;
        let found: Result<KeysSection, ModuleError> =
            self.keys.into_iter().map(|(key, entry)| Ok((key, with_path(entry, context)?))).collect();
        let keys = expand_keys(&found?).map_err(|problems| {
            problems.into_iter().next().map_or_else(|| ModuleError::new("the keys are not clear"), told)
        })?;
        let files = Files::new(context, true);
        let (mut declared, mut secret) = (Vec::new(), HashSet::new());
        for (key, KeyEntry(entry)) in keys {
            let is_secret = entry.secret;
            let (wish, is_encrypted) = wish(entry, &files)?;
            if is_secret || is_encrypted {
                secret.insert(key.clone().into_bytes());
            }
            if is_secret && let Wish::Value(value) | Wish::Initial(value) = &wish {
                // It may stand in other messages too.
                context.sources.masker().add(&String::from_utf8_lossy(value));
            }
            declared.push(DeclaredValue { key, wish });
        }
        let operations = usize::try_from(self.max_operations).unwrap_or(usize::MAX);
        let limits = RequestLimits { operations, bytes: self.max_request.0 };
        Ok(Action::Engine(Box::new(Write { cluster, declared, secret, limits })))
    }
}

fn told(problem: KeyProblem) -> ModuleError {
    ModuleError::new(problem.message).help(problem.help)
}

/// With the path of its file where that was found.
fn with_path(KeyEntry(declared): KeyEntry, context: &BuildContext<'_>) -> Result<KeyEntry, ModuleError> {
    let Some(src) = &declared.src else { return Ok(KeyEntry(declared)) };
    let found = local::find(src, context.file_paths)?.to_string_lossy().into_owned();
    let slash = if src.ends_with('/') && !found.ends_with('/') { "/" } else { "" };
    Ok(KeyEntry(DeclaredKey { src: Some(found + slash), ..declared }))
}

/// What a key is to be, and whether its value was encrypted in a file.
fn wish(declared: DeclaredKey, files: &Files) -> Result<(Wish, bool), ModuleError> {
    let (value, is_encrypted) = match (declared.state, &declared.src) {
        (Presence::Absent, _) if declared.prefix => return Ok((Wish::NoneWithPrefix, false)),
        (Presence::Absent, _) => return Ok((Wish::Absent, false)),
        (Presence::Present, Some(src)) => {
            files.bytes(src.as_ref()).map(|(bytes, is_encrypted)| (bytes.to_vec(), is_encrypted))?
        }
        (Presence::Present, None) => (declared.value().unwrap_or_default(), false),
    };
    Ok((if declared.only_if_missing { Wish::Initial(value) } else { Wish::Value(value) }, is_encrypted))
}

struct Write {
    cluster: Cluster,
    declared: Vec<DeclaredValue>,
    /// Keys whose values are not shown.
    secret: HashSet<Vec<u8>>,
    limits: RequestLimits,
}

/// What was written, or would be, by key.
type Changes = IndexMap<Vec<u8>, KeyChange>;

impl EngineAction for Write {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            let name = &self.cluster.name;
            if context.check_mode() && super::pki::ca::authority(context, &self.cluster).await?.is_none() {
                return Ok(self.outcome(&by_key(all_keys(&self.declared)), &context.masker));
            }
            let mut changes = Changes::new();
            let (mut msg, mut is_silent) = (format!("the cluster `{name}` has no members"), false);
            // Any member will do. What one has not answered is read again through the next.
            for client in self.cluster.clients(context).await? {
                let Err(error) = self.converge(context, &client.patient(CALL_LIMIT), &mut changes).await? else {
                    return Ok(self.outcome(&changes, &context.masker));
                };
                is_silent = error.is_of_the_member();
                msg = self.explained(&error);
                if !is_silent {
                    break;
                }
            }
            if context.check_mode() && is_silent {
                return Ok(Outcome { unknown: true, msg, ..Outcome::ok() });
            }
            // Transactions before the one that failed were carried out.
            Ok(Outcome { failed: true, msg, ..self.outcome(&changes, &context.masker) })
        })
    }
}

impl Write {
    /// Reads through one member, and writes. `changes` gets what is written, before it is.
    async fn converge(
        &self,
        context: &ActionContext,
        member: &MemberClient,
        changes: &mut Changes,
    ) -> Result<Result<(), KeysError>, ActionError> {
        let differing = match differing_keys(member, &self.declared, self.limits).await {
            Ok(differing) => differing,
            Err(error) => return Ok(Err(error)),
        };
        if context.check_mode() {
            changes.extend(by_key(differing));
            return Ok(Ok(()));
        }
        for transaction in transactions(&differing, self.limits) {
            fence(context).await?;
            let written = write_keys(member, transaction).await;
            // Without an answer it may have been carried out.
            if written.is_ok() || written.as_ref().is_err_and(KeysError::is_of_the_member) {
                changes.extend(by_key(transaction.to_vec()));
            }
            if written.is_err() {
                return Ok(written);
            }
        }
        Ok(Ok(()))
    }

    /// What etcd has refused, with what to do.
    fn explained(&self, error: &KeysError) -> String {
        let name = &self.cluster.name;
        let KeysError::Etcd(EtcdError::Refused { reason, .. }) = error else { return error.to_string() };
        let limit = |argument: &str, setting: &str| {
            format!("set `{argument}` of the task, or `{setting}` in `etcd.settings`, to what etcd runs with")
        };
        let hint = match reason {
            reason if reason.contains("too many operations") => limit("max_operations", "max-txn-ops"),
            reason if reason.contains("request is too large") => limit("max_request", "max-request-bytes"),
            reason if reason.contains("database space exceeded") => {
                format!("run `etcdrun playbook nospace.yaml -l {name}`, then run this again")
            }
            _ => return error.to_string(),
        };
        format!("{error}; {hint}")
    }

    fn outcome(&self, changes: &Changes, masker: &Masker) -> Outcome {
        let names = |wanted: fn(&KeyChange) -> bool| {
            changes.values().filter(|change| wanted(change)).map(|change| shown_key(&change.key)).collect::<Vec<_>>()
        };
        Outcome { changed: !changes.is_empty(), diff: self.diffs(changes, masker), ..Outcome::ok() }
            .with("created", names(|change| change.after.is_some() && change.before == Before::Missing))
            .with("updated", names(|change| change.after.is_some() && change.before != Before::Missing))
            .with("removed", names(|change| change.after.is_none()))
    }

    /// One for each key; those that go with their prefix have one together.
    fn diffs(&self, changes: &Changes, masker: &Masker) -> Vec<Diff> {
        let name = &self.cluster.name;
        let (unread, read): (Vec<&KeyChange>, Vec<&KeyChange>) =
            changes.values().partition(|change| change.before == Before::Unread);
        let diff = |change: &KeyChange| {
            let before = if let Before::Value(value) = &change.before { Some(value.as_slice()) } else { None };
            let after = change.after.as_deref();
            let is_secret = self.secret.contains(&change.key)
                || [before, after].into_iter().flatten().any(|value| masker.is_in(value));
            let (before, after) = if is_secret { secret_texts(before, after) } else { texts(before, after) };
            Diff { label: format!("{name}: {}", shown_key(&change.key)), before, after }
        };
        let removed = (!unread.is_empty()).then(|| Diff {
            label: format!("{name}: keys"),
            before: unread.iter().map(|change| shown_key(&change.key) + "\n").collect(),
            after: String::new(),
        });
        read.into_iter().map(diff).chain(removed).collect()
    }
}

fn by_key(changes: Vec<KeyChange>) -> Changes {
    changes.into_iter().map(|change| (change.key.clone(), change)).collect()
}

fn secret_texts(before: Option<&[u8]>, after: Option<&[u8]>) -> (String, String) {
    let new = if before.is_some() { "(another secret)\n" } else { "(secret)\n" };
    (before.map_or("", |_| "(secret)\n").to_owned(), after.map_or("", |_| new).to_owned())
}

/// Values as lines. Few values end a line, so that is only shown where one does.
fn texts(before: Option<&[u8]>, after: Option<&[u8]>) -> (String, String) {
    let ends_line = [before, after].into_iter().flatten().any(|value| value.ends_with(b"\n"));
    let text = |value: Option<&[u8]>| match value.map(text) {
        Some(text) if ends_line => text,
        Some(text) => text + "\n",
        None => String::new(),
    };
    (text(before), text(after))
}

/// A value as text; a large one, and bytes, by their sum.
fn text(value: &[u8]) -> String {
    match std::str::from_utf8(value) {
        Ok(text) if value.len() as u64 <= INLINE_LIMIT && !value.contains(&0) => text.to_owned(),
        _ => format!("({} bytes with the SHA-256 sum {})", value.len(), hex(sha256(value))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::support::testing::module_error;

    #[test]
    fn what_makes_no_sense_is_refused() {
        let error = |keys: &str| {
            let args = format!("{{cluster: {{name: prod, members: []}}, keys: {keys}}}");
            module_error::<EtcdKeys>(&args, &json!({}))
        };
        assert_eq!(error("{/a: {secret: true}}"), "`/a` has no value");
        assert!(error("{/a/: {state: absent, prefix: true}, /a/b: x}").contains("`/a/b` would be removed"));
        assert!(error("{/a: {src: /nowhere/at-all}}").contains("was not found"));
        assert_eq!(error("{/a: x}, max_operations: 0"), "`max_operations` must be at least 1");
    }

    #[test]
    fn values_are_shown_as_lines_or_by_their_sum() {
        assert_eq!(texts(Some(b"one"), Some(b"two")), ("one\n".into(), "two\n".into()));
        assert_eq!(texts(Some(b"one"), Some(b"one\n")), ("one".into(), "one\n".into()));
        assert_eq!(texts(None, Some(b"")), (String::new(), "\n".into()));
        assert!(texts(None, Some(&[0xff])).1.starts_with("(1 bytes with the SHA-256 sum "));
        assert_eq!(secret_texts(Some(b"one"), Some(b"two")), ("(secret)\n".into(), "(another secret)\n".into()));
    }
}
