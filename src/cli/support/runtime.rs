//! The runtime of a command, for all that it waits for.

use tokio::runtime::{Builder, Runtime};

/// One for the whole command. It may be dropped where nothing is left to run; what still runs else, such as a lookup of a name, is not
/// waited for with `shutdown_background`.
pub fn runtime() -> std::io::Result<Runtime> {
    Builder::new_multi_thread().enable_all().build()
}
