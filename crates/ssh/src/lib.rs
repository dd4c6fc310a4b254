//! How a host is reached: `ssh` moves bytes, `remote` runs scripts there and reads what came of them. It knows no task and prints
//! nothing.

pub mod remote;
pub mod ssh;

pub(crate) use etcdrun_base::{digest, model, shell};
