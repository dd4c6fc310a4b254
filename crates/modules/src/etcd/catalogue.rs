//! Whether the inventory lists the release that a member is to run.

use crate::{
    inventory::{Host, Inventory},
    source::{Diagnostic, Node},
};

/// What is missing, if something is.
pub(super) fn without_release(inventory: &Inventory, host: &Host) -> Option<Diagnostic> {
    let cluster = host.cluster()?;
    let etcd = field(host.var("member")?, "etcd");
    if etcd.is_some_and(Node::is_template) {
        return None;
    }
    match etcd.and_then(|etcd| field(etcd, "version")) {
        Some(version) if version.is_template() => None,
        Some(version) => {
            let text = version.as_str()?;
            (!inventory.etcd_releases.contains_key(text)).then(|| {
                let help = format!(
                    "run `etcdrun releases add {text}`, or list it there with its `sha256`, and a `url` or a `file`"
                );
                Diagnostic::error(version.span, format!("etcd {text} is not in `etcd_releases`")).help(help)
            })
        }
        None => {
            let span = inventory.cluster(cluster.as_str()).and_then(|cluster| cluster.span);
            let message = format!("the cluster `{cluster}` has no `etcd.version`");
            let help =
                "write `etcd: { version: 3.6.15 }`, and list that version with its `sha256` under `etcd_releases`";
            Some(Diagnostic::error(span.unwrap_or(host.span), message).help(help))
        }
    }
}

fn field<'n>(node: &'n Node, name: &str) -> Option<&'n Node> {
    node.as_map()?.get(name).filter(|node| !node.is_null())
}
