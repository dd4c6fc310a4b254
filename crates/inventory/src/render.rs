//! The inventory as text and JSON, for whoever prints it.

use std::{collections::HashSet, fmt::Write};

use indexmap::IndexMap;
use serde_json::json;

use super::types::{Group, Host, HostId, HostKind, Inventory};
use crate::{
    model::{Value, ValueMap},
    source::{Node, Sources},
};

/// How deep a tree is drawn; nobody reads further, and a chain of groups has no other end.
const MAX_DEPTH: usize = 50;

/// Whether a host is among these; all are, where none are named.
fn is_in(only: Option<&[HostId]>, host: HostId) -> bool {
    only.is_none_or(|only| only.contains(&host))
}

/// One line a host: name, address, what it is, zone and groups.
pub fn list_text(inventory: &Inventory, only: Option<&[HostId]>) -> String {
    let mut rows = vec![["HOST", "ADDRESS", "KIND", "ZONE", "GROUPS"].map(str::to_owned)];
    rows.extend(inventory.hosts().filter(|host| is_in(only, host.id)).map(|host| {
        let groups: Vec<&str> = own_groups(inventory, host);
        let dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
        [
            host.name.to_string(),
            host.address().to_owned(),
            kind_text(host),
            dash(host.zone.clone().unwrap_or_default()),
            dash(groups.join(",")),
        ]
    }));
    table(&rows)
}

/// The groups as a tree, hosts as leaves. A group inside several others is opened where it comes first.
pub fn graph_text(inventory: &Inventory) -> String {
    let mut text = String::new();
    if let Some(all) = inventory.group("all") {
        text.push_str("@all:\n");
        branch(inventory, all, 1, &mut HashSet::new(), &mut text);
    }
    text
}

/// Everything known of one host, with the place each variable comes from.
pub fn host_text(inventory: &Inventory, id: HostId, sources: &Sources) -> String {
    let host = inventory.host_by_id(id);
    let mut rows: Vec<[String; 2]> =
        vec![["kind".into(), kind_text(host)], ["address".into(), host.address().to_owned()]];
    let mut row = |name: &str, value: Option<String>| rows.extend(value.map(|value| [name.to_owned(), value]));
    row("zone", host.zone.clone());
    row(
        "groups",
        Some(host.group_names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", "))
            .filter(|text| !text.is_empty()),
    );
    for (name, value) in connection(host).iter().filter(|(name, _)| *name != "address") {
        row(name, Some(plain(value)));
    }
    row("defined at", Some(sources.describe(host.span)));
    let mut text = format!("{}\n{}", host.name, indent(&table(&rows)));
    let vars: Vec<[String; 3]> = effective(host)
        .into_iter()
        .map(|(name, node)| [name.to_owned(), shorten(&node.to_shown().to_string()), sources.describe(node.span)])
        .collect();
    if !vars.is_empty() {
        text.push_str("  variables\n");
        text.push_str(&indent(&indent(&table(&vars))));
    }
    text
}

/// Everything known of one host; each variable with its value and its place.
pub fn host_json(inventory: &Inventory, id: HostId, sources: &Sources) -> Value {
    let host = inventory.host_by_id(id);
    let vars: ValueMap = effective(host)
        .into_iter()
        .map(|(name, node)| (name.to_owned(), json!({"value": node.to_shown(), "from": sources.describe(node.span)})))
        .collect();
    json!({
        "name": host.name,
        "kind": kind_word(host),
        "zone": host.zone,
        "cluster": host.cluster(),
        "hypervisor": host.hypervisor,
        "groups": host.group_names,
        "ssh": connection(host),
        "defined_at": sources.describe(host.span),
        "vars": vars,
    })
}

/// Every group with its hosts and children, by name.
pub fn graph_json(inventory: &Inventory) -> Value {
    let group = |group: &Group| {
        let entry = json!({"hosts": names(inventory, &group.hosts), "children": group.children});
        (group.name.to_string(), entry)
    };
    Value::Object(inventory.groups().map(group).collect())
}

/// The JSON that Ansible expects of an inventory program's `--list`. Groups stay, also without hosts.
pub fn list_json(inventory: &Inventory, only: Option<&[HostId]>) -> Value {
    let hosts = inventory.hosts().filter(|host| is_in(only, host.id));
    let hostvars: ValueMap = hosts.map(|host| (host.name.to_string(), Value::Object(host_vars(host)))).collect();
    let mut list = ValueMap::new();
    list.insert("_meta".into(), json!({ "hostvars": hostvars }));
    for group in inventory.groups() {
        let mut entry = ValueMap::new();
        let hosts: Vec<HostId> = group.hosts.iter().copied().filter(|host| is_in(only, *host)).collect();
        if !hosts.is_empty() {
            entry.insert("hosts".into(), names(inventory, &hosts));
        }
        if !group.children.is_empty() {
            entry.insert("children".into(), json!(group.children));
        }
        list.insert(group.name.to_string(), Value::Object(entry));
    }
    Value::Object(list)
}

/// A host's variables as Ansible would see them, with the connection in Ansible's words.
fn host_vars(host: &Host) -> ValueMap {
    let endpoint = &host.endpoint;
    let key = endpoint.identity_files.first().map(|file| file.display().to_string());
    let connection = [
        ("ansible_host", endpoint.address.clone().map(Value::from)),
        ("ansible_port", endpoint.port.map(Value::from)),
        ("ansible_user", endpoint.user.clone().map(Value::from)),
        ("ansible_ssh_private_key_file", key.map(Value::from)),
        ("ansible_become", host.r#become.map(Value::from)),
        ("ansible_become_user", host.become_user.clone().map(Value::from)),
    ];
    let connection = connection.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    let vars = effective(host).into_iter().map(|(name, node)| (name.to_owned(), node.to_shown()));
    connection.chain(vars).collect()
}

/// The variables that win, by name.
fn effective(host: &Host) -> Vec<(&str, &Node)> {
    let mut vars: IndexMap<&str, &Node> = IndexMap::new();
    for layer in &host.layers {
        vars.extend(layer.iter().map(|(name, node)| (&**name, node)));
    }
    vars.sort_unstable_keys();
    vars.into_iter().collect()
}

/// The connection settings that the inventory makes.
fn connection(host: &Host) -> ValueMap {
    let fields = serde_json::to_value(&host.endpoint).ok();
    let mut settings = match fields {
        Some(Value::Object(fields)) => fields,
        _ => ValueMap::new(),
    };
    settings.shift_remove("name");
    if let Some(timeout) = host.endpoint.connect_timeout {
        settings.insert("connect_timeout".into(), timeout.as_secs_f64().into());
    }
    settings.insert("become".into(), host.r#become.into());
    settings.insert("become_user".into(), host.become_user.clone().into());
    let set = |value: &Value| !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty());
    settings.into_iter().filter(|(_, value)| set(value)).collect()
}

fn names(inventory: &Inventory, ids: &[HostId]) -> Value {
    ids.iter().map(|id| Value::from(inventory.host_by_id(*id).name.as_str())).collect()
}

/// The groups a person made, which say more than the built-in ones.
fn own_groups<'i>(inventory: &Inventory, host: &'i Host) -> Vec<&'i str> {
    let own = |name: &&str| inventory.group(name).is_some_and(|group| group.kind == super::GroupKind::Group);
    host.group_names.iter().map(|name| name.as_str()).filter(own).collect()
}

fn kind_word(host: &Host) -> &'static str {
    match host.kind {
        HostKind::Plain => "host",
        HostKind::Hypervisor => "hypervisor",
        HostKind::Member { .. } => "member",
    }
}

fn kind_text(host: &Host) -> String {
    let what = match host.cluster() {
        Some(cluster) => format!("member of {cluster}"),
        None => kind_word(host).to_owned(),
    };
    match &host.hypervisor {
        Some(hypervisor) => format!("{what} on {hypervisor}"),
        None => what,
    }
}

fn branch<'i>(
    inventory: &'i Inventory,
    group: &'i Group,
    depth: usize,
    seen: &mut HashSet<&'i str>,
    text: &mut String,
) {
    let stem = format!("{}|--", "  ".repeat(depth));
    for name in &group.children {
        let Some(child) = inventory.group(name.as_str()) else { continue };
        let again = !seen.insert(name.as_str()) && !child.members.is_empty();
        if again || depth > MAX_DEPTH {
            let _ = writeln!(text, "{stem}@{name}: ...");
            continue;
        }
        let _ = writeln!(text, "{stem}@{name}:");
        branch(inventory, child, depth + 1, seen, text);
    }
    for id in &group.hosts {
        let _ = writeln!(text, "{stem}{}", inventory.host_by_id(*id).name);
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

fn shorten(text: &str) -> String {
    const WIDTH: usize = 60;
    match text.char_indices().nth(WIDTH) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// Columns padded to their widest cell, two spaces apart.
fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let widths: [usize; N] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        let _ = writeln!(text, "{}", cells.join("  ").trim_end());
    }
    text
}

fn indent(text: &str) -> String {
    text.lines().fold(String::new(), |out, line| out + "  " + line + "\n")
}
