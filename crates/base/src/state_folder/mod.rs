//! Where the operator keeps what must outlive a command, and how files are written there. What they say belongs to other layers.

mod error;
mod files;
mod run_id;

pub use error::StateError;
pub use files::{make_folder, open_private, sync_folder, write_private};
pub use run_id::RunId;
