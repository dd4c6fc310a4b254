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
