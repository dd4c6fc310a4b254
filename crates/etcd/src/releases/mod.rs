//! Releases of etcd before they are installed: where they are published, with which checksum, and which of them are out of date.
//!
//! ```text
//! place     official, a mirror or a directory; names of files, SHA256SUMS
//! remote    asks a place over HTTP, and downloads
//! local     looks into a directory
//! known     the newest releases, and what is to be said of a version
//! ```
//!
//! In: a version, and where to look. Out: what an entry of `etcd_releases` says, or why there is none. Writes no file but downloads, knows no
//! inventory, and prints nothing.

mod error;
mod known;
mod local;
mod place;
mod remote;

pub use error::ReleaseError;
pub use known::{AS_OF, Finding, Newest, findings};
pub use local::{Local, copy, look, sum_of};
pub use place::{Arch, Place};
pub use remote::{Fetched, Progress, Remote, answers};
