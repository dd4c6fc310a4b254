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
    /// Only the leader is asked for a change of members.
    pub const ASK_OTHERS: &str = "ask-others";
    /// A member starts at a new address that etcd does not know.
    pub const TELL_ADDRESS: &str = "tell-address";
    /// `unlock` asks only hosts of today's inventory.
    pub const UNLOCK_ALL: &str = "unlock-all";
}

pub fn is_off(name: &str) -> bool {
    switched_off().is_some_and(|off| off == name)
}
