//! How much of everything a search covers.

/// What is searched. A cluster of `voters`, what operators may begin, and how often what may happen.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    pub voters: usize,
    pub tasks: Tasks,
    pub limits: Limits,
    /// Whether etcd itself refuses changes of its list (`strict-reconfig-check`). Without, the rules are all there is.
    pub etcd_checks: bool,
    /// What the hosts say about that.
    pub hosts_say_strict: bool,
    /// An operator who reaches less than half of the members gets the lock from hypervisors, beside another who has it.
    pub has_two_locks: bool,
    /// A data folder that was not read is taken for an empty one, which etcdrun never does.
    pub trusts_unread: bool,
    pub fixed: Fixed,
}

/// Gaps that the program has, as if they were closed: `tests::weaknesses` shows what each of them lets through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fixed {
    /// The removal of a failed member is behind a gate of its own, so that a resumed run passes it again.
    pub removal_has_gate: bool,
    /// `unreachable-is-not-dead` is asked right before the stop, too. Also of a member that was no voter when this was decided: it is
    /// stopped and removed all the same, and may be a voter by then.
    pub stop_asks_neighbours: bool,
    /// Data of an unfinished join is not moved aside while its member is a voter.
    pub join_spares_voters: bool,
    /// A join does not start who is listed as a voter already.
    pub join_starts_learners: bool,
    /// The learner of an earlier attempt is removed only while it is a learner.
    pub leftover_is_learner: bool,
    /// A member goes as replaced only if as many voters are left as there will be members.
    pub replaced_is_counted: bool,
}

impl Fixed {
    pub const ALL: Self = Self {
        removal_has_gate: true,
        stop_asks_neighbours: true,
        join_spares_voters: true,
        join_starts_learners: true,
        leftover_is_learner: true,
        replaced_is_counted: true,
    };
}

/// What operators may begin.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tasks {
    /// `upgrade.yaml`
    pub upgrade: bool,
    /// `member restart`: also any other turn that stops its member by a task, such as a reboot.
    pub restart: bool,
    /// `site.yaml`, in which a member restarts without a turn; and begins a cluster where there seems to be none.
    pub site: bool,
    /// `member replace` and `member move`
    pub replace: bool,
    /// `member remove`
    pub remove: bool,
    /// A voter is added at once, which no task of etcdrun asks for.
    pub add_voter: bool,
}

/// How often it may happen. In a state: how often it still may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Limits {
    /// A machine goes off. It may come back at any time.
    pub crashes: u8,
    /// A disk is lost.
    pub losses: u8,
    /// A member falls behind.
    pub lags: u8,
    /// An operator does not reach a member by SSH, which serves the others.
    pub cuts: u8,
    /// A run dies or fails, or its lock is broken; its locks are free then, and it can be resumed.
    pub deaths: u8,
    /// An operator hangs between the look at its lock and a call to etcd, and its lock is broken.
    pub hangs: u8,
    /// Runs that are begun.
    pub runs: u8,
}
