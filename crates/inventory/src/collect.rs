//! Documents to a draft: which hosts, groups and clusters the files speak of.

use std::sync::Arc;

use indexmap::map::Entry;

use super::{
    draft::{Draft, DraftKind, GroupDraft, HostDraft, check_vars, merge},
    entry::{ClusterEntry, GroupEntry, HostEntry, HypervisorEntry, MemberEntry, SshEntry},
    range::{MAX_HOSTS, NodeSet, fill},
    sections,
};
use crate::{
    model::{Span, Spanned},
    source::{self, Diagnostic, Diagnostics, Key, Kind, Map, Node, did_you_mean, from_node},
};

/// The top-level keys of an inventory file.
pub(super) const SECTIONS: [&str; 7] = ["ssh", "vars", "hypervisors", "hosts", "groups", "clusters", "etcd_releases"];

/// Groups that exist without being written.
pub(super) const BUILTIN_GROUPS: [&str; 5] = ["all", "ungrouped", "hypervisors", "members", "guests"];

pub(super) struct Collector<'d> {
    pub(super) draft: Draft,
    /// More hosts were named than there can be; what follows from that would only be noise.
    pub(super) overfull: bool,
    pub(super) diagnostics: &'d mut Diagnostics,
}

/// How a host came up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// In a section that describes hosts.
    Defined,
    /// In the mapping of a group.
    Mentioned,
}

impl Collector<'_> {
    /// Takes one parsed file.
    pub(super) fn document(&mut self, node: Node) {
        let span = node.span;
        let map = match node.kind {
            Kind::Map(map) => map,
            Kind::Null => return,
            _ => {
                let help = format!("its keys are {}", SECTIONS.join(", "));
                let message = format!("an inventory is a mapping, this is {}", node.describe());
                self.diagnostics.push(Diagnostic::error(span, message).help(help));
                return;
            }
        };
        let ansible = is_ansible(&map);
        for (key, node) in map {
            self.section(&key, node, ansible);
        }
    }

    fn section(&mut self, key: &Key, node: Node, ansible: bool) {
        match &*key.name {
            "ssh" => self.group_ssh("all", node),
            "vars" => self.group_vars("all", node),
            "hypervisors" if !(ansible && looks_like_group(&node)) => self.hosts(node, &DraftKind::Hypervisor),
            "hosts" => self.hosts(node, &DraftKind::Plain),
            "groups" => self.groups(node),
            "clusters" => self.clusters(node),
            "etcd_releases" => self.etcd_releases(node),
            _ if ansible => self.ansible_group(key, node),
            name => {
                let known = SECTIONS.into_iter().chain(["all"]);
                let help = did_you_mean(name, known).unwrap_or_else(|| format!("known keys: {}", SECTIONS.join(", ")));
                self.diagnostics.push(Diagnostic::error(key.span, format!("unknown key `{name}`")).help(help));
            }
        }
    }

    /// The entries of a mapping; a problem if it is something else.
    pub(super) fn entries(&mut self, node: Node, of: &str) -> Map {
        match node.kind {
            Kind::Map(map) => map,
            Kind::Null => Map::default(),
            _ => {
                let found = node.describe();
                self.diagnostics.error(node.span, format!("expected a mapping of {of}, found {found}"));
                Map::default()
            }
        }
    }

    fn hosts(&mut self, node: Node, kind: &DraftKind) {
        for (key, entry) in self.entries(node, "host names") {
            self.host_entries(&key, entry, kind, Source::Defined);
        }
    }

    /// One key with its entry, which may stand for many hosts. Returns their names.
    fn host_entries(&mut self, key: &Key, entry: Node, kind: &DraftKind, source: Source) -> Vec<Arc<str>> {
        let check = |entry: &Node| match kind {
            DraftKind::Member(_) => from_node::<MemberEntry>(entry).err(),
            DraftKind::Hypervisor => from_node::<HypervisorEntry>(entry).err(),
            DraftKind::Plain => from_node::<HostEntry>(entry).err(),
        };
        let Some(set) = self.node_set(key) else { return Vec::new() };
        let mut names = Vec::with_capacity(set.len());
        let mut broken = false;
        for expanded in set.expand() {
            if !self.has_room(key.span) {
                break;
            }
            let name: Arc<str> = expanded.name.into();
            names.push(name.clone());
            // What is wrong with one host of a range is wrong with all; say it once.
            let filled = if broken { Ok(nothing(entry.span)) } else { self.filled(&entry, &expanded.values, check) };
            broken |= filled.is_err();
            self.add_host(name, key.span, kind, source, filled.unwrap_or_else(|()| nothing(entry.span)));
        }
        names
    }

    fn filled(
        &mut self,
        entry: &Node,
        values: &[String],
        check: impl Fn(&Node) -> Option<Vec<Diagnostic>>,
    ) -> Result<Node, ()> {
        let filled = if values.is_empty() { Ok(entry.clone()) } else { fill(entry, values) };
        let filled = filled.map_err(|(at, message)| self.diagnostics.error(at.span, message))?;
        for (key, node) in filled.as_map().into_iter().flat_map(Map::iter) {
            sections::check_member(&key.name, node, self.diagnostics);
        }
        match check(&filled) {
            None => Ok(filled),
            Some(problems) => {
                problems.into_iter().map(with_ansible_hint).for_each(|problem| self.diagnostics.push(problem));
                Err(())
            }
        }
    }

    /// Reads the ranges in a key, and checks that the names can be names.
    pub(super) fn node_set(&mut self, key: &Key) -> Option<NodeSet> {
        let set = match NodeSet::parse(&key.name) {
            Ok(set) => set,
            Err(problem) => {
                let span = inside(key.span, &key.name, problem.offset, problem.length);
                let message = format!("`{}`: {problem}", key.name);
                self.diagnostics.push(Diagnostic::error(span, message).maybe_help(problem.help));
                return None;
            }
        };
        let first = set.expand().next().map(|expanded| expanded.name).unwrap_or_default();
        self.check_name(&first, key.span, "host").then_some(set)
    }

    fn check_name(&mut self, name: &str, span: Span, of: &str) -> bool {
        if is_name(name) || name.parse::<std::net::Ipv6Addr>().is_ok() {
            return true;
        }
        let message = format!("{name:?} cannot be the name of a {of}");
        let help = "names consist of letters, digits, `.`, `_` and `-`, and do not start with `-`";
        self.diagnostics.push(Diagnostic::error(span, message).help(help));
        false
    }

    pub(super) fn has_room(&mut self, span: Span) -> bool {
        if self.draft.hosts.len() < MAX_HOSTS {
            return true;
        }
        self.overfull = true;
        self.diagnostics.error(span, format!("the inventory has more than {MAX_HOSTS} hosts"));
        false
    }

    fn add_host(&mut self, name: Arc<str>, span: Span, kind: &DraftKind, source: Source, entry: Node) {
        let (vars, groups, fields) = self.take_apart(entry);
        let Some(host) = host_draft(&mut self.draft, &name, span, kind, source, self.diagnostics) else { return };
        host.groups.extend(groups);
        merge(&name, &mut host.fields, fields, true, self.diagnostics);
        merge(&name, &mut host.vars, vars, false, self.diagnostics);
    }

    /// Adds variables to a host that a group names, and the host if need be.
    pub(super) fn mention_host(&mut self, name: &Arc<str>, span: Span, kind: &DraftKind, vars: Node) {
        let vars = check_vars(vars, self.diagnostics);
        let source = Source::Mentioned;
        let Some(host) = host_draft(&mut self.draft, name, span, kind, source, self.diagnostics) else { return };
        merge(name, &mut host.vars, vars, false, self.diagnostics);
    }

    /// Splits an entry into its variables, its groups, and all the rest.
    fn take_apart(&mut self, entry: Node) -> (Map, Vec<Spanned<Arc<str>>>, Map) {
        let Kind::Map(mut map) = entry.kind else { return Default::default() };
        let vars = map.remove("vars").map(|(_, node)| check_vars(node, self.diagnostics)).unwrap_or_default();
        let groups = map.remove("groups").map(|(_, node)| self.names(node, "group names")).unwrap_or_default();
        (vars, groups, map)
    }

    /// One string or a list of strings.
    pub(super) fn names(&mut self, node: Node, of: &str) -> Vec<Spanned<Arc<str>>> {
        let items = match node.kind {
            Kind::Seq(items) => items,
            Kind::Null => return Vec::new(),
            _ => vec![node],
        };
        let mut names = Vec::with_capacity(items.len());
        for item in items {
            match &item.kind {
                Kind::String(text) => names.push(Spanned::new(text.clone(), item.span)),
                Kind::Int(number) => names.push(Spanned::new(number.to_string().into(), item.span)),
                _ => self.diagnostics.error(item.span, format!("expected {of}, found {}", item.describe())),
            }
        }
        names
    }

    fn groups(&mut self, node: Node) {
        for (key, entry) in self.entries(node, "group names") {
            self.group(&key, entry);
        }
    }

    fn group(&mut self, key: &Key, entry: Node) {
        if let Err(problems) = from_node::<GroupEntry>(&entry) {
            problems.into_iter().map(with_ansible_hint).for_each(|problem| self.diagnostics.push(problem));
            self.declare_group(key);
            return;
        }
        let mut map = self.entries(entry, "hosts, children, vars and ssh");
        let hosts = map.remove("hosts");
        let children = map.remove("children");
        let name = canonical(&key.name);
        let has_sections = map.iter().any(|(key, _)| !["vars", "ssh"].contains(&&*key.name));
        if self.refuses_members(key, hosts.is_some() || children.is_some() || has_sections) {
            return;
        }
        let of_hosts = ["placement", "address_pool"].into_iter().find(|section| map.get(section).is_some());
        if let Some(section) = of_hosts.filter(|_| name == "all") {
            let message = format!("`all` cannot have `{section}`: it would make guests of all hosts");
            self.diagnostics.push(Diagnostic::error(key.span, message).help("move it to a group of guests"));
            return;
        }
        self.declare_group(key);
        map.remove("vars").into_iter().for_each(|(_, node)| self.group_vars(name, node));
        map.remove("ssh").into_iter().for_each(|(_, node)| self.group_ssh(name, node));
        hosts.into_iter().for_each(|(_, node)| self.group_hosts(name, node));
        children.into_iter().for_each(|(_, node)| self.group_children(name, node));
        map.iter().for_each(|(section, node)| sections::check(&section.name, node, self.diagnostics));
        let group = self.draft.groups.entry(name.into()).or_default();
        merge(&key.name, &mut group.sections, map, true, self.diagnostics);
    }

    /// The built-in groups can get variables, but not other members.
    pub(super) fn refuses_members(&mut self, key: &Key, has_members: bool) -> bool {
        let name = canonical(&key.name);
        let builtin = BUILTIN_GROUPS.contains(&name) && name != "all";
        if !(builtin && has_members) {
            return false;
        }
        let help = match name {
            "hypervisors" => "list hypervisors under the top-level key `hypervisors`",
            "members" => "list members under their cluster, in the top-level key `clusters`",
            "guests" => "every host with a `hypervisor` and a `guest` is in it",
            _ => "every host without a group is in it",
        };
        let message = format!("the group `{}` is built in: it can have `vars` and `ssh`, nothing else", key.name);
        self.diagnostics.push(Diagnostic::error(key.span, message).help(help));
        true
    }

    pub(super) fn declare_group(&mut self, key: &Key) {
        if !self.check_name(&key.name, key.span, "group") {
            return;
        }
        let group = self.group_draft(canonical(&key.name));
        group.span = group.span.or(Some(key.span));
    }

    pub(super) fn group_draft(&mut self, name: &str) -> &mut GroupDraft {
        self.draft.groups.entry(name.into()).or_default()
    }

    pub(super) fn group_vars(&mut self, name: &str, node: Node) {
        let vars = check_vars(node, self.diagnostics);
        let group = self.draft.groups.entry(name.into()).or_default();
        merge(name, &mut group.vars, vars, false, self.diagnostics);
    }

    fn group_ssh(&mut self, name: &str, node: Node) {
        let Some(map) = self.ssh(node) else { return };
        let group = self.draft.groups.entry(name.into()).or_default();
        merge(&format!("{name}: ssh"), &mut group.ssh, map, true, self.diagnostics);
    }

    fn ssh(&mut self, node: Node) -> Option<Map> {
        if let Err(problems) = from_node::<SshEntry>(&node) {
            problems.into_iter().for_each(|problem| self.diagnostics.push(problem));
            return None;
        }
        Some(self.entries(node, "SSH settings"))
    }

    fn group_hosts(&mut self, group: &str, node: Node) {
        let Kind::Map(map) = node.kind else {
            let terms = self.names(node, "host names");
            self.group_draft(group).terms.extend(terms);
            return;
        };
        for (key, entry) in map {
            let names = self.host_entries(&key, entry, &DraftKind::Plain, Source::Mentioned);
            self.group_draft(group).hosts.extend(names);
        }
    }

    fn group_children(&mut self, group: &str, node: Node) {
        let Kind::Map(map) = node.kind else {
            let names = self.names(node, "group names");
            self.group_draft(group).children.extend(names);
            return;
        };
        for (key, entry) in map {
            self.group_draft(group).children.push(Spanned::new(key.name.clone(), key.span));
            // Without a body it only refers to a group or a cluster that is described elsewhere.
            if !entry.is_null() {
                self.group(&key, entry);
            }
        }
    }

    fn clusters(&mut self, node: Node) {
        for (key, entry) in self.entries(node, "cluster names") {
            self.cluster(&key, entry);
        }
    }

    fn etcd_releases(&mut self, node: Node) {
        let map = self.entries(node, "versions of etcd");
        for (_, release) in map.iter() {
            source::check::<sections::Release>(release, self.diagnostics);
        }
        merge("etcd_releases", &mut self.draft.etcd_releases, map, true, self.diagnostics);
    }

    fn cluster(&mut self, key: &Key, entry: Node) {
        if !self.check_name(&key.name, key.span, "cluster") {
            return;
        }
        let cluster = self.draft.clusters.entry(key.name.clone()).or_default();
        cluster.span = cluster.span.or(Some(key.span));
        let typed = from_node::<ClusterEntry>(&entry);
        let mut map = self.entries(entry, "cluster settings");
        let members = map.remove("members");
        match typed {
            Ok(_) => self.cluster_settings(key, map),
            Err(problems) => problems.into_iter().for_each(|problem| self.diagnostics.push(problem)),
        }
        let kind = DraftKind::Member(key.name.clone());
        members.into_iter().for_each(|(_, node)| self.hosts(node, &kind));
    }

    fn cluster_settings(&mut self, key: &Key, mut map: Map) {
        let ssh = map.remove("ssh").and_then(|(_, node)| self.ssh(node)).unwrap_or_default();
        let vars = map.remove("vars").map(|(_, node)| check_vars(node, self.diagnostics)).unwrap_or_default();
        map.iter().for_each(|(section, node)| sections::check(&section.name, node, self.diagnostics));
        let cluster = self.draft.clusters.entry(key.name.clone()).or_default();
        merge(&format!("{}: ssh", key.name), &mut cluster.ssh, ssh, true, self.diagnostics);
        merge(&key.name, &mut cluster.vars, vars, false, self.diagnostics);
        merge(&key.name, &mut cluster.sections, map, true, self.diagnostics);
    }
}

/// The group that a name means: the clusters' members are reached by either word.
pub(super) fn canonical(name: &str) -> &str {
    if name == "clusters" { "members" } else { name }
}

pub fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 253
        && !name.starts_with('-')
        // They become parts of paths.
        && name != "."
        && name != ".."
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

fn nothing(span: Span) -> Node {
    Node::new(span, Kind::Null)
}

/// A part of a key as it stands in the file, where quotes may surround it.
pub(super) fn inside(span: Span, text: &str, offset: usize, length: usize) -> Span {
    match (span.end - span.start) as usize {
        written if written == text.len() => span.part(offset, length),
        written if written == text.len() + 2 => span.part(offset + 1, length),
        _ => span,
    }
}

/// The host's draft, made if it is new; `None` if this cannot be the same host.
fn host_draft<'d>(
    draft: &'d mut Draft,
    name: &Arc<str>,
    span: Span,
    kind: &DraftKind,
    source: Source,
    diagnostics: &mut Diagnostics,
) -> Option<&'d mut HostDraft> {
    let defined = (source == Source::Defined).then_some(span);
    let host = match draft.hosts.entry(name.clone()) {
        Entry::Occupied(found) => found.into_mut(),
        Entry::Vacant(free) => return Some(free.insert(HostDraft::new(span, kind.clone(), defined))),
    };
    if let Some(problem) = clash(name, host, span, kind, defined) {
        diagnostics.push(problem);
        return None;
    }
    if defined.is_some() && host.definition.is_none() {
        (host.span, host.definition) = (span, defined);
    }
    if host.kind == DraftKind::Plain {
        host.kind = kind.clone();
    }
    Some(host)
}

fn clash(name: &str, host: &HostDraft, span: Span, kind: &DraftKind, defined: Option<Span>) -> Option<Diagnostic> {
    let first = host.definition.filter(|_| defined.is_some());
    if host.kind != *kind && (first.is_some() || (*kind != DraftKind::Plain && host.kind != DraftKind::Plain)) {
        let message = format!("`{name}` is both {} and {}", host.kind.describe(), kind.describe());
        return Some(Diagnostic::error(span, message).related(host.span, "first defined here"));
    }
    let first = first.filter(|first| first.file == span.file)?;
    let problem = Diagnostic::error(span, format!("the host `{name}` is defined twice"));
    Some(match first == span {
        true => problem.help("the range names it more than once"),
        false => problem.related(first, "first defined here").help("remove one of them, or narrow a range"),
    })
}

/// Ansible's connection variables have a place of their own here.
fn with_ansible_hint(problem: Diagnostic) -> Diagnostic {
    let hints = [
        ("ansible_host", "write `address`"),
        ("ansible_port", "write `port`"),
        ("ansible_user", "write `user`"),
        ("ansible_", "put it under `vars`"),
    ];
    let hint = hints.iter().find(|(name, _)| problem.message.starts_with(&format!("unknown key `{name}")));
    problem.maybe_help(hint.map(|(_, help)| (*help).to_owned()))
}

/// Whether a file has the shape of an Ansible inventory, where every top-level key is a group.
fn is_ansible(map: &Map) -> bool {
    let native = map.iter().any(|(key, _)| SECTIONS.contains(&&*key.name));
    map.get("all").is_some()
        || map.get("ungrouped").is_some()
        || (!native && !map.is_empty() && map.iter().all(|(_, node)| looks_like_group(node)))
}

fn looks_like_group(node: &Node) -> bool {
    node.as_map().is_some_and(|map| {
        !map.is_empty() && map.iter().all(|(key, _)| ["hosts", "children", "vars"].contains(&&*key.name))
    })
}
