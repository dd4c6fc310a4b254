//! Backup: snapshots of clusters, kept in a folder or in a bucket.
//!
//! In: the bytes of a snapshot, and a place to keep them. Out: one file, compressed and, on request, encrypted, and a
//! manifest beside it; the other way round, the bytes again, checked. However large it is, only a few megabytes of it are in
//! memory. A backup counts from the moment its manifest is there, which is written last. It is believed only if the manifest was
//! signed with the cluster's backup key. Never talks to hosts.

mod error;
mod keep;
mod manifest;
mod pack;
mod place;
mod store;
mod trust;

pub use error::BackupError;
pub use keep::{Keep, superfluous};
pub use manifest::{Damaged, Hash, Kept, Manifest, backups, newest, stem};
pub use pack::{Packed, keep_stream, reseal, unpack};
pub use place::{Access, Place};
pub use store::{Sink, Store};
pub use trust::{Keys, Trust, Trusted, Verdict};
