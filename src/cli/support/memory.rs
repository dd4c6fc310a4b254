//! Keeps what is in memory there: keys and passwords of a run end up in no core dump, and no other process of the user reads them.

use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};

/// Called once, at the start. Programs that are started later may have core dumps again, if they ask for them.
pub fn keep_private() {
    let limit = Rlimit { current: Some(0), ..getrlimit(Resource::Core) };
    // Where a system does not let us, it is no worse than before.
    let _ = setrlimit(Resource::Core, limit);
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}
