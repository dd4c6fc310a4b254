//! The runtime of a command.

use tokio::runtime::{Builder, Runtime};

/// The one way to get a runtime. A command that may leave connections or lookups behind ends it with `shutdown_background`, which does not
/// wait for them.
pub fn runtime() -> std::io::Result<Runtime> {
    Builder::new_multi_thread().enable_all().build()
}
