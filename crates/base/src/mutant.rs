//! For tests only, and only in debug builds: `ETCDRUN_TEST_OFF=NAME` switches a gate rule or a policy off, so that it can be shown what
//! it is good for. A test that passes without it does not test it.

/// What is switched off, if anything is.
pub fn switched_off() -> Option<String> {
    if cfg!(debug_assertions) { std::env::var("ETCDRUN_TEST_OFF").ok() } else { None }
}

/// Policies that can be switched off; gate rules have their ids.
pub mod policy {
    /// Nothing is on record before it starts.
    pub const JOURNAL: &str = "journal";
    /// No host is asked for its lock.
    pub const LOCK: &str = "lock";
    /// No step looks whether the lock is still held.
    pub const FENCE: &str = "fence";
    /// No target remembers which commands it has run.
    pub const LEDGER: &str = "ledger";
    /// Members may be stopped outside of turns.
    pub const QUORUM_GUARD: &str = "quorum-guard";
    /// Nothing is asked right before a member stops in its turn.
    pub const BEFORE_STOP: &str = "before-stop";
    /// A run that goes on believes what was seen before it died.
    pub const OBSERVE_AGAIN: &str = "observe-again";

    pub const ALL: [&str; 7] = [JOURNAL, LOCK, FENCE, LEDGER, QUORUM_GUARD, BEFORE_STOP, OBSERVE_AGAIN];
}

/// Checks that are neither a gate rule nor a policy; each was added because something had gone wrong without it.
pub mod repair {
    /// A voter is removed as if it were the learner of an earlier attempt.
    pub const LEARNER_ONLY: &str = "learner-only";
    /// A voter that has lost its data starts with an empty data directory.
    pub const EMPTY_VOTER: &str = "empty-voter";
    /// A healthy member is replaced while another one is missing.
    pub const MISSING_FIRST: &str = "missing-first";
    /// A voter that is not in the inventory counts as lost.
    pub const STRANGERS: &str = "strangers";
    /// A member whose host cannot be reached counts as failed.
    pub const IN_SIGHT: &str = "in-sight";
    /// Certificates are installed that are not valid yet by the clock of the host.
    pub const NOT_YET_VALID: &str = "not-yet-valid";
    /// A session that was cut before it said anything counts as one that ran nothing.
    pub const CUT_SESSION: &str = "cut-session";
    /// Only the leader is asked for a change of members.
    pub const ASK_OTHERS: &str = "ask-others";
    /// A member starts at a new address that etcd does not know.
    pub const TELL_ADDRESS: &str = "tell-address";
    /// No snapshots are forced before etcd 3.6 reads a log from which it would count wrong voters.
    pub const RIGHT_VOTERS: &str = "right-voters";
    /// Where no client writes, a member that starts with a snapshot waits for an entry.
    pub const ENTRY_AT_START: &str = "entry-at-start";
    /// `unlock` asks only hosts of today's inventory.
    pub const UNLOCK_ALL: &str = "unlock-all";
    /// A restore that is resumed does not ask again whether the cluster serves.
    pub const SERVES_AGAIN: &str = "serves-again";
    /// No server tries the data of a backup before the members are stopped.
    pub const RESTORE_PROOF: &str = "restore-proof";
    /// A run that is resumed passes only gates of open turns again.
    pub const GATES_AGAIN: &str = "gates-again";
    /// A `destroy` that is resumed does not ask whether the cluster was written to since its last backup.
    pub const UNWRITTEN: &str = "unwritten";
    /// The others restart with what one member did not start with.
    pub const FIRST_TO_FAIL: &str = "first-to-fail";
    /// `etcd_service` restarts a member without asking whether the others are a majority.
    pub const SPARED: &str = "spared";
    /// A stopped member starts at a new address although no other can be told.
    pub const CAN_BE_TOLD: &str = "can-be-told";
    /// New settings are written over those that a running member has started with.
    pub const STAGED: &str = "staged";
    /// A new key replaces the old one before its certificate is there.
    pub const PAIR: &str = "pair";
    /// A restored cluster keeps the alarms of the old one.
    pub const OLD_ALARMS: &str = "old-alarms";
    /// A restored cluster continues the downgrade of the old one.
    pub const OLD_DOWNGRADE: &str = "old-downgrade";
    /// After a restore root has the password that the backup has.
    pub const ROOT_PASSWORD: &str = "root-password";
    /// Pages of a database are not checked.
    pub const ALL_PAGES: &str = "all-pages";
    /// The checksum of a snapshot is not checked.
    pub const SNAPSHOT_SUM: &str = "snapshot-sum";
    /// A backup without a code, or with a wrong one, is restored.
    pub const BACKUP_CODE: &str = "backup-code";
    /// A backup that is not encrypted is restored although backups have recipients.
    pub const BACKUP_PLAIN: &str = "backup-plain";
    /// A backup that was not signed may have any size.
    pub const BACKUP_SIZE: &str = "backup-size";
    /// A host may have another key than the known one.
    pub const HOST_KEY_CHANGED: &str = "host-key-changed";
    /// A host may have a revoked key.
    pub const HOST_KEY_REVOKED: &str = "host-key-revoked";
    /// A host may have a key that is not known.
    pub const HOST_KEY_UNKNOWN: &str = "host-key-unknown";
    /// An address with shell syntax reaches the shell of a jump host.
    pub const RELAY_ADDRESS: &str = "relay-address";
    /// Secrets are not masked.
    pub const MASK: &str = "mask";
    /// Secrets with escape sequences or line ends in them are not masked.
    pub const MASK_CODES: &str = "mask-codes";
    /// Texts from hosts keep their control characters and line ends.
    pub const ONE_LINE: &str = "one-line";
    /// Files that others could have written are used.
    pub const DISTRUST: &str = "distrust";
    /// Keys that others can read are used.
    pub const EXPOSED: &str = "exposed";
    /// A torn last record of a journal counts as damage.
    pub const TORN_RECORD: &str = "torn-record";
    /// A record that is missing in a journal is not noticed.
    pub const MISSING_RECORD: &str = "missing-record";
    /// Checksums of records in a journal are not checked.
    pub const RECORD_SUM: &str = "record-sum";
    /// A command that an earlier process sent runs again if the ledger has nothing of it.
    pub const IN_DOUBT: &str = "in-doubt";
    /// Any member, or none, is enough for the lock of a cluster.
    pub const LOCK_MAJORITY: &str = "lock-majority";
    /// After a member was lost, steps on its cluster continue.
    pub const MEMBER_LOST: &str = "member-lost";
    /// A learner is promoted before it has caught up.
    pub const CAUGHT_UP: &str = "caught-up-learner";
    /// Members are added as voters.
    pub const AS_LEARNER: &str = "as-learner";
    /// A data directory that could not be read counts as empty.
    pub const UNREAD: &str = "unread";
    /// A member that a restore has not reached starts with no data.
    pub const HALF_RESTORED: &str = "half-restored";
    /// A majority that has left the inventory does not keep a restore from starting.
    pub const ELSEWHERE: &str = "elsewhere";
    /// A cluster that is slow counts as one that does not serve.
    pub const ONLY_SLOW: &str = "only-slow";
    /// A member of which nothing is known counts as one that does not serve.
    pub const UNKNOWN_SERVES: &str = "unknown-serves";
    /// A download may have any checksum.
    pub const DOWNLOAD_SUM: &str = "download-sum";
    /// A file of a release may have any checksum.
    pub const RELEASE_SUM: &str = "release-sum";

    pub const ALL: &[&str] = &[
        LEARNER_ONLY,
        EMPTY_VOTER,
        MISSING_FIRST,
        STRANGERS,
        IN_SIGHT,
        NOT_YET_VALID,
        CUT_SESSION,
        ASK_OTHERS,
        TELL_ADDRESS,
        RIGHT_VOTERS,
        ENTRY_AT_START,
        UNLOCK_ALL,
        SERVES_AGAIN,
        RESTORE_PROOF,
        GATES_AGAIN,
        UNWRITTEN,
        FIRST_TO_FAIL,
        SPARED,
        CAN_BE_TOLD,
        STAGED,
        PAIR,
        OLD_ALARMS,
        OLD_DOWNGRADE,
        ROOT_PASSWORD,
        ALL_PAGES,
        SNAPSHOT_SUM,
        BACKUP_CODE,
        BACKUP_PLAIN,
        BACKUP_SIZE,
        HOST_KEY_CHANGED,
        HOST_KEY_REVOKED,
        HOST_KEY_UNKNOWN,
        RELAY_ADDRESS,
        MASK,
        MASK_CODES,
        ONE_LINE,
        DISTRUST,
        EXPOSED,
        TORN_RECORD,
        MISSING_RECORD,
        RECORD_SUM,
        IN_DOUBT,
        LOCK_MAJORITY,
        MEMBER_LOST,
        CAUGHT_UP,
        AS_LEARNER,
        UNREAD,
        HALF_RESTORED,
        ELSEWHERE,
        ONLY_SLOW,
        UNKNOWN_SERVES,
        DOWNLOAD_SUM,
        RELEASE_SUM,
    ];
}

pub fn is_off(name: &str) -> bool {
    switched_off().is_some_and(|off| off == name)
}
