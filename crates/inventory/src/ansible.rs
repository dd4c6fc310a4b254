//! Ansible's own shapes: the YAML inventory (`all:` with hosts, children and vars), the JSON that a
//! dynamic inventory prints, and the connection variables.

use std::{path::Path, sync::Arc};

use super::{
    collect::{BUILTIN_GROUPS, Collector, canonical},
    draft::DraftKind,
    entry::{Port, WrongScalar},
    settings::{Settings, folder, resolve},
};
use crate::{
    model::Spanned,
    source::{Diagnostic, Diagnostics, Key, Kind, Node, Sources, Vars, did_you_mean},
};

const GROUP_KEYS: [&str; 3] = ["hosts", "children", "vars"];

impl Collector<'_> {
    /// A group of Ansible's YAML inventory; nested children are described in place.
    pub(super) fn ansible_group(&mut self, key: &Key, node: Node) {
        let is_list = matches!(node.kind, Kind::Seq(_));
        let has_members =
            is_list || node.as_map().is_some_and(|map| map.get("hosts").or(map.get("children")).is_some());
        if ["members", "guests"].contains(&canonical(&key.name)) && self.refuses_members(key, has_members) {
            return;
        }
        self.declare_group(key);
        if is_list {
            return self.ansible_hosts(&key.name, node);
        }
        for (field, node) in self.entries(node, "hosts, children and vars") {
            match &*field.name {
                "hosts" => self.ansible_hosts(&key.name, node),
                "children" => self.ansible_children(&key.name, node),
                "vars" => self.group_vars(canonical(&key.name), node),
                name => {
                    let help = did_you_mean(name, GROUP_KEYS)
                        .unwrap_or_else(|| format!("known keys: {}", GROUP_KEYS.join(", ")));
                    self.diagnostics.push(Diagnostic::error(field.span, format!("unknown key `{name}`")).help(help));
                }
            }
        }
    }

    fn ansible_hosts(&mut self, group: &str, node: Node) {
        let kind = if group == "hypervisors" { DraftKind::Hypervisor } else { DraftKind::Plain };
        let hosts: Vec<(Key, Node)> = match node.kind {
            Kind::Map(map) => map.into_iter().collect(),
            _ => {
                let span = node.span;
                let key = |name: Spanned<Arc<str>>| Key { span: name.span, name: name.value };
                self.names(node, "host names")
                    .into_iter()
                    .map(|name| (key(name), Node::new(span, Kind::Null)))
                    .collect()
            }
        };
        for (key, vars) in hosts {
            let Some(set) = self.node_set(&key) else { continue };
            for expanded in set.expand() {
                if !self.has_room(key.span) {
                    return;
                }
                let name: Arc<str> = expanded.name.into();
                self.mention_host(&name, key.span, &kind, vars.clone());
                if !BUILTIN_GROUPS.contains(&group) {
                    self.group_draft(group).hosts.push(name);
                }
            }
        }
    }

    fn ansible_children(&mut self, group: &str, node: Node) {
        let children: Vec<(Key, Node)> = match node.kind {
            Kind::Map(map) => map.into_iter().collect(),
            _ => {
                let span = node.span;
                let key = |name: Spanned<Arc<str>>| Key { span: name.span, name: name.value };
                self.names(node, "group names")
                    .into_iter()
                    .map(|name| (key(name), Node::new(span, Kind::Null)))
                    .collect()
            }
        };
        for (key, entry) in children {
            if group != "all" {
                self.group_draft(group).children.push(Spanned::new(key.name.clone(), key.span));
            }
            self.ansible_group(&key, entry);
        }
    }

    /// What an executable inventory prints for `--list`.
    pub(super) fn dynamic(&mut self, node: Node) {
        for (key, node) in self.entries(node, "groups") {
            if &*key.name == "_meta" {
                self.host_variables(node);
            } else {
                self.ansible_group(&key, node);
            }
        }
    }

    fn host_variables(&mut self, meta: Node) {
        let hostvars = self.entries(meta, "`hostvars`").remove("hostvars");
        let Some((_, node)) = hostvars else { return };
        for (key, vars) in self.entries(node, "host names") {
            self.mention_host(&key.name, key.span, &DraftKind::Plain, vars);
        }
    }
}

/// Reads the connection settings out of a level's variables.
pub(super) fn connection(vars: &Vars, sources: &Sources, diagnostics: &mut Diagnostics) -> Settings {
    let mut settings = Settings::default();
    for (name, node) in vars.iter().filter(|(name, _)| name.starts_with("ansible_")) {
        if let Err(problem) = set(&mut settings, name, node, &folder(sources, node.span)) {
            diagnostics.push(problem);
        }
    }
    settings
}

fn set(settings: &mut Settings, name: &str, node: &Node, folder: &Path) -> Result<(), Diagnostic> {
    match name {
        "ansible_host" | "ansible_ssh_host" => settings.address = Some(text(name, node)?),
        "ansible_user" | "ansible_ssh_user" => settings.user = Some(text(name, node)?),
        "ansible_become_user" => settings.become_user = Some(text(name, node)?),
        "ansible_become" => settings.r#become = Some(boolean(name, node)?),
        "ansible_port" | "ansible_ssh_port" => {
            let port: Port = text(name, node)?
                .parse()
                .map_err(|wrong: WrongScalar| Diagnostic::error(node.span, wrong.to_string()))?;
            settings.port = Some(port.0);
        }
        "ansible_ssh_private_key_file" | "ansible_private_key_file" => {
            settings.identity_files = Some(vec![resolve(folder, &text(name, node)?)]);
            settings.identity_place = Some(node.span);
        }
        "ansible_connection" if !matches!(node.as_str(), Some("ssh" | "paramiko" | "smart")) => {
            return Err(ignored(name, node, "hosts are reached only over SSH"));
        }
        "ansible_become_method" if node.as_str() != Some("sudo") => {
            return Err(ignored(name, node, "sudo is the only way to become another user"));
        }
        "ansible_ssh_common_args" | "ansible_ssh_extra_args" | "ansible_ssh_args" => {
            return Err(ignored(name, node, "set it in `ssh:` (jump, identity_file, ...) or in ~/.ssh/config"));
        }
        "ansible_password" | "ansible_ssh_pass" | "ansible_ssh_password" => {
            return Err(ignored(name, node, "log in with a key or an agent"));
        }
        "ansible_become_password" | "ansible_become_pass" => {
            return Err(ignored(name, node, "pass the password with -K"));
        }
        // Interpreters, shells and the like: nothing of that is needed on a host here.
        _ => {}
    }
    Ok(())
}

fn ignored(name: &str, node: &Node, help: &str) -> Diagnostic {
    Diagnostic::warning(node.span, format!("`{name}` has no effect here")).help(help)
}

fn text(name: &str, node: &Node) -> Result<String, Diagnostic> {
    let found = match &node.kind {
        Kind::String(_) if node.is_template() => {
            let message = format!("`{name}` cannot be a template: it is needed before anything is rendered");
            return Err(Diagnostic::error(node.span, message).help("write the value itself"));
        }
        Kind::String(text) if !text.is_empty() => Some(text.to_string()),
        Kind::Int(number) => Some(number.to_string()),
        _ => None,
    };
    found.ok_or_else(|| Diagnostic::error(node.span, format!("`{name}`: expected a string, found {}", node.describe())))
}

fn boolean(name: &str, node: &Node) -> Result<bool, Diagnostic> {
    match (&node.kind, node.as_str()) {
        (Kind::Bool(value), _) => Ok(*value),
        (_, Some("yes" | "on" | "true" | "True")) => Ok(true),
        (_, Some("no" | "off" | "false" | "False")) => Ok(false),
        _ => Err(Diagnostic::error(node.span, format!("`{name}`: expected true or false, found {}", node.describe()))),
    }
}
