//! Whether a guest will have a user that one can log in as.

use crate::{
    inventory::Host,
    source::{Diagnostic, Node},
};

/// Reports a guest that gets no key, and nothing of the user's own that could bring one: it would boot, and no one could log in.
pub(super) fn without_login(host: &Host) -> Option<Diagnostic> {
    let guest = host.var("guest")?;
    let admin = field(guest, "admin");
    let own = [
        Some(guest),
        admin,
        field(guest, "ignition"),
        field(guest, "cloud_init").and_then(|it| field(it, "user_data")),
    ];
    let is_own = |(place, node): (usize, Option<&Node>)| node.is_some_and(|node| node.is_template() || place > 1);
    let keys = admin.and_then(|admin| field(admin, "ssh_keys"));
    let has_keys = keys.is_some_and(|keys| !keys.is_null() && keys.as_seq().is_none_or(|keys| !keys.is_empty()));
    if has_keys || own.into_iter().enumerate().any(is_own) {
        return None;
    }
    let message = match host.cluster() {
        Some(cluster) => format!("guests of `{cluster}` get no SSH key, so no one could log into them"),
        None => format!("the guest `{}` gets no SSH key, so no one could log into it", host.name),
    };
    let help = "add your public key: `guest: { admin: { ssh_keys: [\"ssh-ed25519 ...\"] } }`; if the image already has one, set `cloud_init: { user_data: {} }`";
    Some(Diagnostic::error(guest.span, message).help(help))
}

fn field<'n>(node: &'n Node, name: &str) -> Option<&'n Node> {
    node.as_map()?.get(name).filter(|node| !node.is_null())
}
