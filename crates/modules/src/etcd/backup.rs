//! `etcd_backup`: the data of a cluster, compressed and on request encrypted, in a folder or a bucket.

use std::sync::{Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::oneshot;

use super::{
    Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, ResultField, Running,
    cluster_args::{Cluster, ClusterArgs, WHOLE_CLUSTER},
    snapshot::{no_source, sources},
    unwritten::PROCESS,
};
use crate::{
    backup::{
        self, BackupError, Damaged, Hash, Keep, Keys, Manifest, Place, Sink, Store, Verdict, backups, keep_stream,
        stem, superfluous,
    },
    inventory::sections::{AuthMethod, BackupSection},
    model::{ByteSize, Effects, Outcome},
    secret::Recipients,
};
use etcdrun_etcd::{
    etcd::{
        Credential, EtcdError, MemberClient, Pace,
        agree::{Agreement, KeysHash, in_order, keys_hash},
        observe::View,
        pipe::pipe,
        snapshot::{self, Snapshot, SnapshotError},
    },
    pki,
};

/// Takes a backup of a cluster: a snapshot, compressed with zstd and optionally encrypted with age, and a manifest next to it.
///
/// It comes from a healthy follower if there is one, and is stored as a stream, so that neither memory nor disk has to
/// hold it. Only a complete one gets its name: its size and the checksum at its end are verified first. It is named by cluster,
/// revision and time, and is complete once its manifest is written. Old backups of the same cluster are deleted only after that.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EtcdBackup {
    #[serde(default)]
    cluster: ClusterArgs,
    /// The cluster's section `backup`: defaults for the arguments below, and access to a bucket.
    #[serde(default)]
    backup: BackupSection,
    /// `file:DIRECTORY`, an absolute path on the operator's workstation, or `s3:BUCKET/PREFIX`.
    #[serde(default)]
    to: Option<String>,
    /// Public keys of age or SSH to encrypt to.
    #[serde(default)]
    recipients: Option<Vec<String>>,
    /// The number of backups to keep.
    #[serde(default)]
    keep_last: Option<u32>,
    /// The number of days to keep backups.
    #[serde(default)]
    keep_days: Option<u32>,
    /// The member to take it from, healthy or not.
    #[serde(default)]
    through: Option<String>,
}

impl Module for EtcdBackup {
    const NAME: &'static str = "etcd_backup";
    const CLUSTER: &'static [crate::task::ClusterKey] = WHOLE_CLUSTER;
    const EXAMPLE: &'static str = "\
- name: Take a backup
  etcd_backup:
    to: s3:backups/etcd
    keep_last: 7
  once_per: cluster
";
    const RESULT: &'static [ResultField] = &[
        ResultField { name: "dest", doc: "The manifest of the backup." },
        ResultField { name: "revision", doc: "The revision that it has at least." },
        ResultField { name: "at", doc: "When it was taken." },
        ResultField { name: "by", doc: "What tells the process that has taken it from others; for `etcd_unwritten`." },
        ResultField { name: "cluster_id", doc: "The id of the cluster, in hexadecimal." },
        ResultField { name: "size", doc: "The size of the snapshot in bytes." },
        ResultField { name: "stored_size", doc: "What is left of that in the store." },
        ResultField { name: "through", doc: "The member it was taken from." },
        ResultField { name: "removed", doc: "The old backups that are gone." },
        ResultField { name: "leftovers", doc: "Files that are gone as well, of backups that never came to their end." },
    ];

    fn effects(&self) -> Effects {
        Effects { here: true, ..Effects::converging() }
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        let cluster = self.cluster.known()?;
        let to = self.to.as_ref().or(self.backup.to.as_ref()).filter(|to| !to.is_empty());
        let to = to.ok_or_else(|| {
            ModuleError::new(format!("no destination for the backup of `{}`", cluster.name))
                .help("pass --to, or set `backup: {to: ...}` in the cluster")
        })?;
        let place: Place = to.parse().map_err(|error: BackupError| ModuleError::new(error.to_string()))?;
        if matches!(&place, Place::Folder(path) if !path.is_absolute()) {
            return Err(ModuleError::new(format!("`{place}` is not an absolute path")));
        }
        let recipients = self.recipients.clone().unwrap_or_else(|| self.backup.recipients.clone());
        Recipients::parse(recipients.iter().map(String::as_str)).map_err(ModuleError::new)?;
        let keep = match (self.keep_last, self.keep_days) {
            (None, None) => Keep { last: self.backup.keep_last, days: self.backup.keep_days },
            (last, days) => Keep { last, days },
        };
        Ok(Action::Engine(Box::new(Take { cluster, place, recipients, keep, module: self })))
    }
}

struct Take {
    module: EtcdBackup,
    cluster: Cluster,
    place: Place,
    recipients: Vec<String>,
    keep: Keep,
}

/// Before a certificate ends, whoever looks after backups should hear of it for a while.
const SOON: SignedDuration = SignedDuration::from_hours(30 * 24);

pub(super) fn failed(error: BackupError) -> ActionError {
    ActionError::Failed(error.to_string())
}

impl EngineAction for Take {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            let cluster = &self.cluster;
            let store = Store::open(&self.place, &backup::Access::of(&self.module.backup)).map_err(failed)?;
            // A bucket that is not there, or not ours, is told before anybody is asked for anything.
            let there = match store.list().await {
                Err(BackupError::NoPlace(_)) if matches!(self.place, Place::Folder(_)) => Vec::new(),
                listed => listed.map_err(failed)?,
            };
            if context.check_mode() {
                let count = there.iter().filter(|entry| entry.name.ends_with(".json")).count();
                let msg = format!("would be stored in {}, which has {count}", self.place);
                return Ok(Outcome { msg, ..Outcome::changed() });
            }
            context.permit()?;
            let (keys, is_new) = Keys::make(&context.state, &cluster.name).map_err(failed)?;
            let of = |kept: &KeptCredential| cluster.clients_with(context, &kept.credential);
            let (clients, warning) = match kept(context, cluster) {
                Some(kept) if !kept.ends_soon() => (of(&kept)?, String::new()),
                // Where the authority's key is, there is a new certificate before the old one ends.
                old => match (cluster.clients(context).await, old) {
                    (Err(_), Some(old)) => (of(&old)?, old.warning()),
                    (new, _) => (new?, String::new()),
                },
            };
            let warning = warning + &self.said_of_place(&store, &keys, is_new).await?;
            let (now, order) = sources(&clients, self.module.through.as_deref()).await;
            let mut failure = no_source(&cluster.name, &now);
            let members = in_order(&clients, &now);
            for client in order {
                let Some(view) = now.view(&client.name) else {
                    failure = ActionError::Failed(format!("{} does not answer", client.name));
                    continue;
                };
                match self.take(context, (client, &members), view, &store, &keys).await {
                    Ok((manifest, said)) => {
                        return self.finish(&store, &manifest, &keys, &format!("{said}{warning}")).await;
                    }
                    // Another member may do better; the store will not.
                    Err(BackupError::Snapshot(error)) => {
                        failure = ActionError::Failed(format!("{}: {error}", client.name));
                    }
                    Err(error) => return Err(failed(error)),
                }
            }
            Err(failure)
        })
    }
}

impl Take {
    /// What there is to say about the place before anything goes there.
    async fn said_of_place(&self, store: &Store, keys: &Keys, is_new: bool) -> Result<String, ActionError> {
        let access = backup::Access::of(&self.module.backup);
        let exposed = access.exposed().filter(|_| matches!(self.place, Place::Bucket { .. }));
        let mut said: String = exposed.map(|exposed| format!("; {exposed}")).unwrap_or_default();
        if !is_new {
            return Ok(said);
        }
        let there = match backups(store, &self.cluster.name).await {
            Err(BackupError::NoPlace(_)) => return Ok(said),
            found => found.map_err(failed)?.backups,
        };
        let strange = there.iter().filter(|it| keys.verdict(it) == Verdict::OtherKey).count();
        if strange > 0 {
            said += &format!(
                "; {strange} backups there were signed with another key than the one that was created now: add that key to backups/{}.key in the state directory, from where they were taken",
                self.cluster.name
            );
        }
        Ok(said)
    }

    async fn take(
        &self,
        context: &ActionContext,
        (client, members): (&MemberClient, &[&MemberClient]),
        view: &View,
        store: &Store,
        keys: &Keys,
    ) -> Result<(Manifest, String), BackupError> {
        let taken = Timestamp::now();
        let stem = stem(&self.cluster.name, view.revision, taken);
        let extension = if self.recipients.is_empty() { "db.zst" } else { "db.zst.age" };
        let file = format!("{stem}.{extension}");
        let sink = store.sink(&file).await?;
        let (begun, has_begun) = oneshot::channel();
        // Both read all of the database, so at the same time. A member that calculates begins no snapshot before it is done.
        let compare = async {
            match has_begun.await {
                Ok(()) => compare(client, members, view.revision).await,
                Err(_) => Agreement::default(),
            }
        };
        let sent = tokio::try_join!(self.send(context, client, sink, begun), async { Ok(compare.await) });
        let ((snapshot, sink, packed), compared) = sent?;
        let said = match Compared::of(&client.name, &compared) {
            Compared::Differs(why) if self.module.through.is_none() => {
                sink.abandon().await;
                return Err(SnapshotError::Damaged(why).into());
            }
            Compared::Differs(why) => format!("; {why}"),
            Compared::Same(said) => said,
        };
        let hash = compared.members.first().and_then(|(_, hash)| hash.as_ref().ok());
        let (revision, hash) = (view.revision, hash.copied());
        let hash = hash.map(|KeysHash { hash, compact_revision }| Hash { hash, revision, compact_revision });
        sink.keep().await?;
        let manifest = Manifest {
            format: Manifest::FORMAT,
            cluster: self.cluster.name.clone(),
            cluster_id: format!("{:x}", view.cluster_id),
            revision: view.revision,
            // As the name has it.
            taken: Timestamp::from_second(taken.as_second()).unwrap_or(taken),
            member: client.name.to_string(),
            etcd_version: view.version.to_string(),
            size: snapshot.size,
            sha256: snapshot.sha256,
            hash,
            file,
            stored_size: packed.size,
            stored_sha256: packed.sha256,
            recipients: self.recipients.clone(),
            etcdrun: env!("CARGO_PKG_VERSION").to_owned(),
            mac: None,
        };
        let manifest = keys.sign(manifest);
        store.put(&manifest.name(), &manifest.text()).await?;
        Ok((manifest, said))
    }

    async fn send(
        &self,
        context: &ActionContext,
        client: &MemberClient,
        sink: Sink,
        begun: oneshot::Sender<()>,
    ) -> Result<(Snapshot, Sink, backup::Packed), BackupError> {
        let recipients = Recipients::parse(self.recipients.iter().map(String::as_str));
        let recipients = recipients.map_err(BackupError::Recipient)?;
        let recipients = (!self.recipients.is_empty()).then_some(recipients);
        let (mut writer, reader) = pipe();
        let begun = Mutex::new(Some(begun));
        let progress = |done, all| {
            if let Some(begun) = begun.lock().unwrap_or_else(PoisonError::into_inner).take() {
                // Nobody may want to know any more.
                let _ = begun.send(());
            }
            (context.progress)(done, all);
        };
        let send = async move { snapshot::stream(client, &mut writer, Pace::default(), &progress).await };
        match tokio::join!(send, keep_stream(reader, sink, recipients)) {
            (Ok(snapshot), Ok((sink, packed))) => Ok((snapshot, sink, packed)),
            // When storing fails, the sender only hears that nobody listens any more.
            (Err(SnapshotError::Io(_)) | Ok(_), Err(error)) => Err(error),
            (Err(error), kept) => {
                if let Ok((sink, _)) = kept {
                    sink.abandon().await;
                }
                Err(error.into())
            }
        }
    }

    /// Old ones go only now that the new one counts.
    async fn finish(
        &self,
        store: &Store,
        manifest: &Manifest,
        keys: &Keys,
        warning: &str,
    ) -> Result<Outcome, ActionError> {
        let now = Timestamp::now();
        let kept = backups(store, &self.cluster.name).await.map_err(failed)?;
        let mut removed = Vec::new();
        // Whatever clocks say, the one that was just taken stays. What cannot be read stays as well.
        let (ours, others): (Vec<Manifest>, Vec<Manifest>) =
            kept.backups.iter().cloned().partition(|it| keys.verdict(it) == Verdict::Authentic);
        // Each for themselves: manifests that anybody can write must not push ours out.
        let old = [&ours, &others].into_iter().flat_map(|of| superfluous(of, self.keep, now));
        for old in old.filter(|old| old.name() != manifest.name()) {
            // In this order nobody finds a manifest without its file.
            store.remove(&old.name()).await.map_err(failed)?;
            store.remove(&old.file).await.map_err(failed)?;
            removed.push(old.name());
        }
        let mut left = Vec::new();
        for name in kept.old_leftovers(now) {
            // The backup is none the worse for what somebody else has left.
            if store.remove(name).await.is_ok() {
                left.push(name.to_owned());
            }
        }
        let told = told(&removed, &left, &kept.damaged);
        let msg = format!(
            "revision {} through {}, {} stored as {}{told}{warning}",
            manifest.revision,
            manifest.member,
            ByteSize(manifest.size),
            ByteSize(manifest.stored_size)
        );
        Ok(Outcome { msg, ..Outcome::changed() }
            .with("dest", store.call(&manifest.name()))
            .with("revision", manifest.revision)
            .with("at", manifest.taken.to_string())
            .with("by", PROCESS.clone())
            .with("cluster_id", manifest.cluster_id.clone())
            .with("size", manifest.size)
            .with("stored_size", manifest.stored_size)
            .with("through", manifest.member.clone())
            .with("removed", removed)
            .with("leftovers", left))
    }
}

/// What there is to say of other backups.
fn told(removed: &[String], left: &[String], damaged: &[Damaged]) -> String {
    let mut told = String::new();
    if !removed.is_empty() {
        told += &format!(", {} old removed", removed.len());
    }
    if !left.is_empty() {
        told += &format!(", {} files removed that backups left which never ended", left.len());
    }
    for Damaged { name, why, .. } in damaged {
        told += &format!("; {name} cannot be read, and stays: {why}");
    }
    told
}

/// Root's credential as it was left here, and the end of its certificate.
struct KeptCredential {
    credential: Credential,
    ends: Option<Timestamp>,
}

impl KeptCredential {
    fn ends_soon(&self) -> bool {
        self.ends.is_some_and(|ends| ends.duration_since(Timestamp::now()) < SOON)
    }

    fn warning(&self) -> String {
        let told = |ends| format!("; root's certificate expires at {ends}, and then backups fail: copy a new one here");
        self.ends.map(told).unwrap_or_default()
    }
}

/// A host that only takes backups has no key of the authority to make another credential.
fn kept(context: &ActionContext, cluster: &Cluster) -> Option<KeptCredential> {
    let store = cluster.store(context);
    let keeping = pki::Keeping { store: &store, opener: context.opener.as_ref() };
    let authority = store.authority_certificate().ok()??;
    if cluster.auth.method() == AuthMethod::Password {
        let password = keeping.password("root").ok()??;
        context.masker.add(&password);
        let credential = Credential { authority, login: Some(("root".into(), password)), identity: None };
        return Some(KeptCredential { credential, ends: None });
    }
    let (certificate, key) = keeping.client("root").ok()??;
    let ends = pki::Certificate::parse(&certificate).ok()?.not_after;
    context.masker.add(&key);
    let credential = Credential { authority, identity: Some((certificate, key)), login: None };
    (ends > Timestamp::now()).then_some(KeptCredential { credential, ends: Some(ends) })
}

/// What the member calculates of what it has.
pub(super) async fn hash(client: &MemberClient, revision: i64) -> Result<Hash, EtcdError> {
    let KeysHash { hash, compact_revision } = keys_hash(client, revision).await?;
    Ok(Hash { hash, revision, compact_revision })
}

/// What members calculate of the same revision: the one that sends, and another that does not lead, if there is one. To calculate it a
/// member takes in nothing for a moment, so the rest are asked, one after the other, only if these two do not say the same.
async fn compare(client: &MemberClient, members: &[&MemberClient], revision: i64) -> Agreement {
    let ask = |member: &MemberClient| {
        let member = member.clone();
        async move {
            let hash = keys_hash(&member, revision).await.map_err(|error| error.to_string());
            (member.name.to_string(), hash)
        }
    };
    let mut others = members.iter().filter(|other| other.name != client.name);
    let Some(second) = others.next() else { return Agreement { revision, members: vec![ask(client).await] } };
    let (first, second) = tokio::join!(ask(client), ask(second));
    let is_settled = first.1.is_ok() && first.1 == second.1;
    let mut found = Agreement { revision, members: vec![first, second] };
    for other in others.filter(|_| !is_settled) {
        found.members.push(ask(other).await);
    }
    found
}

/// What the hashes say of the member that a backup comes from.
#[derive(Debug, PartialEq, Eq)]
enum Compared {
    /// Most of the others have the same, or nobody could be compared; what else there is to say.
    Same(String),
    Differs(String),
}

impl Compared {
    fn of(name: &str, found: &Agreement) -> Self {
        let own = match found.members.first() {
            Some((_, Ok(own))) => own,
            Some((_, Err(why))) => return Self::Same(format!("; without a hash of its data: {why}")),
            None => return Self::Same("; without a hash of its data: the member sent nothing".into()),
        };
        let differing = match found.dissenters() {
            Some(names) if names.contains(&name) => return Self::Differs(found.told()),
            Some(names) => names,
            None => return Self::Differs(found.told()),
        };
        if !differing.is_empty() {
            let (those, told) = (differing.join(" "), found.told());
            return Self::Same(format!("; {told}: `etcdrun member replace {those}` gives it the data of the others"));
        }
        let is_silent = |hash: &Result<KeysHash, String>| match hash {
            Ok(other) => other.compact_revision != own.compact_revision,
            Err(_) => true,
        };
        let silent = found.members.iter().filter(|(_, hash)| is_silent(hash)).map(|(name, _)| name.as_str());
        match silent.collect::<Vec<_>>().as_slice() {
            [] => Self::Same(String::new()),
            names => Self::Same(format!("; its data could not be compared with that of {}", names.join(", "))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(hashes: &[Result<(u32, i64), &str>]) -> Compared {
        let names = ["a", "b", "c"].iter().map(|name| (*name).to_owned());
        let hash = |hash: &Result<(u32, i64), &str>| {
            hash.map(|(hash, compact_revision)| KeysHash { hash, compact_revision }).map_err(str::to_owned)
        };
        Compared::of("a", &Agreement { revision: 5, members: names.zip(hashes.iter().map(hash)).collect() })
    }

    #[test]
    fn a_backup_comes_from_a_member_that_has_what_most_have() {
        let same = |text: &str| Compared::Same(text.to_owned());
        assert_eq!(told(&[Ok((1, 0)), Ok((1, 0)), Ok((1, 0))]), same(""));
        assert_eq!(told(&[Ok((1, 0))]), same(""), "there is nobody to compare it with");
        assert!(
            matches!(told(&[Ok((2, 0)), Ok((1, 0)), Ok((1, 0))]), Compared::Differs(why) if why.contains("b and c"))
        );
        assert!(matches!(told(&[Ok((2, 0)), Ok((1, 0))]), Compared::Differs(_)), "nobody knows which is right");
        let other = told(&[Ok((1, 0)), Ok((2, 0)), Ok((1, 0))]);
        assert!(matches!(other, Compared::Same(why) if why.contains("etcdrun member replace b")));
    }

    #[test]
    fn what_could_not_be_compared_is_told() {
        let same = |text: &str| Compared::Same(text.to_owned());
        let compacted = Err("required revision has been compacted");
        assert_eq!(
            told(&[compacted, Ok((1, 0))]),
            same("; without a hash of its data: required revision has been compacted")
        );
        assert_eq!(told(&[Ok((1, 0)), compacted, Ok((1, 0))]), same("; its data could not be compared with that of b"));
        assert_eq!(
            told(&[Ok((1, 5)), Ok((3, 9)), Ok((1, 5))]),
            same("; its data could not be compared with that of b")
        );
    }
}
