//! Everything the files said, before names are resolved. Files merge here.

use std::sync::Arc;

use indexmap::IndexMap;

use crate::{
    model::{Span, Spanned},
    source::{Diagnostic, Diagnostics, Key, Kind, Map, Node, Vars},
};

/// Names that templates already know; a variable of that name would hide what they mean.
pub const RESERVED_VARS: [&str; 10] = [
    "inventory_hostname",
    "group_names",
    "groups",
    "hostvars",
    "host",
    "cluster",
    "member",
    "guest",
    "hypervisor",
    "etcd_releases",
];

#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) hosts: IndexMap<Arc<str>, HostDraft>,
    pub(super) groups: IndexMap<Arc<str>, GroupDraft>,
    pub(super) clusters: IndexMap<Arc<str>, ClusterDraft>,
    /// The catalogue of etcd, by version.
    pub(super) etcd_releases: Vars,
}

#[derive(Debug)]
pub(super) struct HostDraft {
    pub(super) span: Span,
    pub(super) kind: DraftKind,
    /// The entry that describes the host; without it the host was only named, in a group.
    pub(super) definition: Option<Span>,
    pub(super) fields: Vars,
    pub(super) vars: Vars,
    /// From `host_vars/`, which win over the inventory.
    pub(super) file_vars: Vars,
    pub(super) groups: Vec<Spanned<Arc<str>>>,
}

impl HostDraft {
    pub(super) fn new(span: Span, kind: DraftKind, definition: Option<Span>) -> Self {
        Self {
            span,
            kind,
            definition,
            fields: Vars::new(),
            vars: Vars::new(),
            file_vars: Vars::new(),
            groups: Vec::new(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DraftKind {
    Plain,
    Hypervisor,
    Member(Arc<str>),
}

impl DraftKind {
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Plain => "a plain host".into(),
            Self::Hypervisor => "a hypervisor".into(),
            Self::Member(cluster) => format!("a member of `{cluster}`"),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct GroupDraft {
    /// Where it was defined, and not merely vars added.
    pub(super) span: Option<Span>,
    pub(super) ssh: Vars,
    pub(super) vars: Vars,
    /// From `group_vars/`, which win over the inventory.
    pub(super) file_vars: Vars,
    /// Names, ranges and globs that hosts must match.
    pub(super) terms: Vec<Spanned<Arc<str>>>,
    /// Hosts that were named one by one.
    pub(super) hosts: Vec<Arc<str>>,
    pub(super) children: Vec<Spanned<Arc<str>>>,
    /// `guest`, `ssh_via`, `address_pool` and `placement`.
    pub(super) sections: Vars,
}

#[derive(Debug, Default)]
pub(super) struct ClusterDraft {
    pub(super) span: Option<Span>,
    pub(super) ssh: Vars,
    pub(super) vars: Vars,
    /// From `group_vars/`, which win over the inventory.
    pub(super) file_vars: Vars,
    pub(super) sections: Vars,
}

/// Adds what another place says. The same thing said twice is fine, two different things are not.
pub(super) fn merge(owner: &str, into: &mut Vars, from: Map, deep: bool, diagnostics: &mut Diagnostics) {
    for (key, node) in from {
        let Some(first) = into.get_mut(&key.name) else {
            into.insert(key.name, node);
            continue;
        };
        match (&mut first.kind, node.kind) {
            (Kind::Map(first), Kind::Map(second)) if deep => {
                let mut merged: Vars = std::mem::take(first).into_iter().map(|(key, node)| (key.name, node)).collect();
                merge(&format!("{owner}: {}", key.name), &mut merged, second, deep, diagnostics);
                *first = to_map(merged);
            }
            (_, kind) => {
                let second = Node { kind, ..node };
                if !same(first, &second) {
                    let message = format!("{owner}: `{}` is set twice, with different values", key.name);
                    diagnostics.push(
                        Diagnostic::error(second.span, message)
                            .related(first.span, "first set here")
                            .help("remove one of them; neither silently wins"),
                    );
                }
            }
        }
    }
}

pub(super) fn to_map(vars: Vars) -> Map {
    Map::new(vars.into_iter().map(|(name, node)| (Key { name, span: node.span }, node)).collect())
}

/// Whether two values are equal, wherever they were written.
pub(super) fn same(a: &Node, b: &Node) -> bool {
    let kinds = match (&a.kind, &b.kind) {
        (Kind::Seq(a), Kind::Seq(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Kind::Map(a), Kind::Map(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(&key.name).is_some_and(|b| same(a, b)))
        }
        (a, b) => a == b,
    };
    kinds && a.tag == b.tag
}

/// The variables of a `vars` mapping, with names that cannot be variables reported.
pub(super) fn check_vars(node: Node, diagnostics: &mut Diagnostics) -> Map {
    let map = match node.kind {
        Kind::Map(map) => map,
        Kind::Null => return Map::default(),
        _ => {
            let found = node.describe();
            diagnostics.error(node.span, format!("expected a mapping of variables, found {found}"));
            return Map::default();
        }
    };
    map.iter().for_each(|(key, _)| check_var_name(key, diagnostics));
    map
}

/// Reports tags that mean nothing here; an unread `!vault` would pass off ciphertext as the value.
pub(super) fn check_tags(node: &Node, diagnostics: &mut Diagnostics) {
    if let Some(tag) = node.tag.as_deref().filter(|_| !node.is_secret()) {
        let help = match tag {
            "!vault" => "Ansible Vault is not supported; encrypt the value with age and tag it `!age`",
            "!unsafe" => "keep it from being rendered with {% raw %} and {% endraw %}",
            _ => "the only tag is `!age`, for an encrypted value",
        };
        diagnostics.push(Diagnostic::error(node.span, format!("unknown tag `{tag}`")).help(help));
    }
    match &node.kind {
        Kind::Seq(items) => items.iter().for_each(|item| check_tags(item, diagnostics)),
        Kind::Map(map) => map.iter().for_each(|(_, item)| check_tags(item, diagnostics)),
        _ => {}
    }
}

fn check_var_name(key: &Key, diagnostics: &mut Diagnostics) {
    if RESERVED_VARS.contains(&&*key.name) {
        diagnostics.push(
            Diagnostic::error(key.span, format!("`{}` cannot be a variable: it is built in", key.name))
                .help(format!("choose another name; reserved are {}", RESERVED_VARS.join(", "))),
        );
    }
    let identifier = !key.name.starts_with(|c: char| c.is_ascii_digit())
        && key.name.chars().all(|c| c.is_alphanumeric() || c == '_')
        && !key.name.is_empty();
    if !identifier {
        let message = format!("no template can use the variable `{}`", key.name);
        let fixed: String = key.name.chars().map(|c| if c.is_alphanumeric() { c } else { '_' }).collect();
        diagnostics.push(
            Diagnostic::warning(key.span, message)
                .help(format!("call it `{}`", fixed.trim_start_matches(|c: char| c.is_ascii_digit()))),
        );
    }
}
