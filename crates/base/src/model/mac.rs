//! MAC addresses that nobody had to choose.

use crate::digest::sha256;

/// The address of a guest's interface at this place: the same each time, in the range that QEMU uses.
pub fn derived_mac(guest: &str, position: usize) -> String {
    let digest = sha256(format!("{guest}/{position}"));
    format!("52:54:00:{:02x}:{:02x}:{:02x}", digest[0], digest[1], digest[2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_depends_on_the_name_and_the_place_only() {
        assert_eq!(derived_mac("etcd-1", 0), derived_mac("etcd-1", 0));
        assert_ne!(derived_mac("etcd-1", 0), derived_mac("etcd-1", 1));
        assert_ne!(derived_mac("etcd-1", 0), derived_mac("etcd-2", 0));
        assert!(derived_mac("etcd-1", 0).starts_with("52:54:00:"));
    }
}
