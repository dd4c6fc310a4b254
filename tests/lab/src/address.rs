//! Addresses on this machine for servers that cannot be asked which port they took.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::atomic::{AtomicU16, Ordering},
};

/// An address that no other process uses: one of loopback that is this process's own, and a port below those that the kernel gives
/// to programs that ask for any. A server that restarts finds it free, too.
pub fn own_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(20_000);
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let ip = Ipv4Addr::new(127, 64 | (high & 63), middle, low);
    (ip, NEXT.fetch_add(1, Ordering::Relaxed)).into()
}
