//! What playbooks that create clusters need of the inventory: told when they are loaded, and not by a task that fails half-way.

use std::collections::HashSet;

use crate::{
    inventory::{Host, HostId, HostKind, Inventory},
    playbook::{Play, Task},
    source::{Diagnostic, Diagnostics, Node, Vars},
};

/// Decides that a cluster begins, so etcd gets installed.
const FORMS_CLUSTERS: &str = "etcd_bootstrap";
/// What makes guests, and lets somebody log into them.
const MAKES_GUESTS: &[&str] = &["cloud_init", "ignition"];

/// What is missing for what the play does to these hosts.
pub(super) fn check(
    inventory: &Inventory,
    play: &Play,
    hosts: &[HostId],
    included: &dyn Fn(&Task) -> bool,
    extra_vars: &Vars,
    diagnostics: &mut Diagnostics,
) {
    let uses = |names: &[&str]| play.tasks().any(|task| included(task) && names.contains(&task.module.name));
    let hosts = || hosts.iter().map(|host| inventory.host_by_id(*host));
    let mut missing = Vec::new();
    if uses(&[FORMS_CLUSTERS]) && !extra_vars.contains_key("etcd_version") {
        missing.extend(hosts().filter_map(|host| without_release(inventory, host)));
    }
    if uses(MAKES_GUESTS) {
        missing.extend(hosts().filter_map(without_login));
    }
    once_each(missing).for_each(|problem| diagnostics.push(problem));
}

/// What `site.yaml` would find missing, as warnings: an inventory may be for other things.
pub fn missing(inventory: &Inventory) -> Vec<Diagnostic> {
    let releases = inventory.hosts().filter_map(|host| without_release(inventory, host));
    let missing = releases.chain(inventory.hosts().filter_map(without_login)).collect();
    let warning = |problem: Diagnostic| Diagnostic {
        message: format!("`etcdrun playbook site.yaml` would be refused: {}", problem.message),
        ..Diagnostic::warning(problem.span, "").maybe_help(problem.help)
    };
    once_each(missing).map(warning).collect()
}

/// One mistake of a cluster is told once, and not for each member.
fn once_each(problems: Vec<Diagnostic>) -> impl Iterator<Item = Diagnostic> {
    let mut told = HashSet::new();
    problems.into_iter().filter(move |problem| told.insert((problem.span, problem.message.clone())))
}

fn without_release(inventory: &Inventory, host: &Host) -> Option<Diagnostic> {
    let HostKind::Member { cluster, .. } = &host.kind else { return None };
    let etcd = field(host.var("member")?, "etcd");
    if etcd.is_some_and(Node::is_template) {
        return None;
    }
    match etcd.and_then(|etcd| field(etcd, "version")) {
        Some(version) if version.is_template() => None,
        Some(version) => {
            let text = version.as_str()?;
            (!inventory.etcd_releases.contains_key(text)).then(|| {
                let help = "list it there with its `sha256`, and a `url` or a `file`; releases of etcd come with a file SHA256SUMS";
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

/// A guest gets no key, and nothing of the user's own that could bring one: it would boot, and nobody could log in.
fn without_login(host: &Host) -> Option<Diagnostic> {
    let HostKind::Member { cluster, hypervisor: Some(_) } = &host.kind else { return None };
    let guest = field(host.var("member")?, "guest")?;
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
    let message = format!("guests of `{cluster}` get no SSH key, so no one could log into them");
    let help = "add your public key: `guest: { admin: { ssh_keys: [\"ssh-ed25519 ...\"] } }`; where the image has one, `cloud_init: { user_data: {} }` says so";
    Some(Diagnostic::error(guest.span, message).help(help))
}

fn field<'n>(node: &'n Node, name: &str) -> Option<&'n Node> {
    node.as_map()?.get(name).filter(|node| !node.is_null())
}
