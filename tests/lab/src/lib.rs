//! The lab that etcdrun is tested in: real hypervisors, guests and hosts on one machine.
//!
//! ```text
//!   operator (this machine) ──── switch ──┬── hv1 (eth0, br0 on eth1, virbr0) ── guests
//!     one veth, 10.86.N.1       (a bridge │── hv2, hv3
//!                              in its own └── node1 ... nodeM
//!                              namespace)
//! ```
//!
//! Every host is a systemd-nspawn container with its own network namespace, on an overlay over a shared image.
//! Everything that runs is in one cgroup and nothing is mounted in the machine's own mount namespace, so that ending the
//! cgroup takes all of it away. Nothing here may change the machine's libvirt, sshd, bridges or firewall.

mod address;
mod certificate;
mod cgroup;
mod command;
mod etcd;
mod faults;
mod files;
mod host;
mod images;
mod inventory;
mod keeper;
mod kept;
mod lab;
mod limits;
mod link;
mod network;
mod power;
mod requirements;
mod s3;
mod signals;
pub mod wait;
pub mod wire;

pub use address::own_address;
pub use etcd::{ETCD_VERSIONS, Etcd, OLD_ETCD_RELEASES, etcd, etcd_tools, fluent_bit, fluent_receiver, patroni_wheels};
pub use faults::{Guest, Session};
pub use host::{Host, Kind};
pub use inventory::write_for as write_inventory;
pub use kept::Copies;
pub use lab::{Borrowed, DEFAULT_NAME, Lab, Size};
pub use link::LinkFault;
pub use network::Subnet;
pub use requirements::provide as provide_requirements;
pub use s3::{S3, program as s3_program};
pub use signals::outlive_interrupts;
