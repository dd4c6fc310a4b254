//! Pki: certificate authorities, and the certificates of members and users.
//!
//! ```text
//! .etcdrun/pki/CLUSTER/
//!   ca.crt          the authority's certificate; while it is replaced, those of both
//!   ca.key.age      its key, encrypted; nowhere is it plain on a disk, and it is on no host
//!   rotation.json   while it is replaced: how far that is, and the certificates of both
//!   next.key.age    the key of the one that takes its place, encrypted
//!   issued/NAME     what was issued to a member: sums and serials, nothing secret
//!   requests/NAME   the request of a member, for a `sign_command` to sign, now or later
//!   clients/USER.crt
//!   clients/USER.key, clients/USER.password   encrypted, for the same people as the authority's key
//! ```
//!
//! In: the `tls` section of a cluster, and what is to be certified. Out: certificates. Runs nothing but a
//! `sign_command`, connects nowhere and prints nothing.

mod authority;
mod brought;
mod certificate;
mod credentials;
mod error;
mod leaf;
mod rotation;
mod store;
#[cfg(test)]
mod tests;

/// A certificate of this name belongs to no user of etcd: with it one sees what others see.
pub const STRANGER: &str = "etcdrun-stranger";

pub use authority::{Authority, Client, Keeping, Renewal, check_authority, check_next_authority};
pub use brought::{Brought, check_brought, check_client, check_trusted};
pub use certificate::Certificate;
pub use error::PkiError;
pub use leaf::{Leaf, LeafKey, Request, Usage, Wish};
pub use rotation::{Rotation, RotationPhase};
pub use store::{Issued, Store};
