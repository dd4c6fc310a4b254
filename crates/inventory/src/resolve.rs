//! A draft to an inventory: names resolve, levels merge, every host gets its layers.

use std::{collections::HashMap, sync::Arc};

use indexmap::IndexMap;

use super::{
    ansible, builtin,
    collect::{BUILTIN_GROUPS, canonical},
    draft::{ClusterDraft, Draft, DraftKind, GroupDraft, HostDraft, to_map},
    entry::{HostEntry, HypervisorEntry, Interface, MemberEntry, SshEntry, SshVia},
    hierarchy::{self, Level, Levels},
    interfaces, pattern, sections,
    settings::{self, Settings, folder},
    types::{Cluster, Group, GroupKind, Host, HostId, HostKind, Inventory},
};
use crate::{
    model::{ClusterName, GroupName, HostName, Span, Spanned},
    source::{Diagnostic, Diagnostics, Kind, Map, Node, Sources, Vars, did_you_mean, from_node},
};

pub(super) fn resolve(mut draft: Draft, sources: &Sources, diagnostics: &mut Diagnostics) -> Inventory {
    let ids = draft.hosts.keys().enumerate().map(|(i, name)| (HostName::new(name.clone()), HostId::from_index(i)));
    let mut resolver = Resolver { by_name: ids.collect(), guesses: pattern::MAX_GUESSES, sources, diagnostics };
    resolver.check_names(&mut draft);
    let mut levels = resolver.levels(&draft);
    hierarchy::settle(&mut levels, draft.hosts.len(), resolver.diagnostics);
    sections::allot(&mut draft, &levels, resolver.diagnostics);
    gather_guests(&draft, &mut levels);
    let tiers = resolver.tiers(&mut draft, &levels);
    let mut hosts = resolver.hosts(draft.hosts, &levels, &tiers);
    resolver.reach_guests(&mut hosts);
    settle_guests(&mut hosts, &draft.clusters);
    interfaces::check(hosts.iter().map(|pending| (&pending.host, &*pending.interfaces)), resolver.diagnostics);
    let groups = groups(&levels, &tiers, &hosts, &draft.clusters);
    let clusters = clusters(draft.clusters, &groups, sources);
    let by_name = resolver.by_name;
    let etcd_releases = Arc::new(with_paths(draft.etcd_releases, sources));
    let hosts = hosts.into_iter().map(|h| h.host).collect();
    let mut inventory = Inventory { hosts, by_name, groups, clusters, etcd_releases };
    sections::check_placement(&inventory, diagnostics);
    builtin::fill(&mut inventory);
    inventory
}

/// Files of the catalogue are relative to the file that names them.
fn with_paths(mut releases: Vars, sources: &Sources) -> Vars {
    for release in releases.values_mut() {
        with_path(release, sources);
    }
    releases
}

fn image_paths(images: &mut Node, sources: &Sources) {
    let Kind::Map(map) = &mut images.kind else { return };
    let with_path = |(key, mut image)| {
        with_path(&mut image, sources);
        (key, image)
    };
    *map = Map::new(std::mem::take(map).into_iter().map(with_path).collect());
}

/// So are files with the values of keys. A task reads them, whose own files are elsewhere.
fn value_paths(keys: &mut Node, sources: &Sources) {
    let Kind::Map(map) = &mut keys.kind else { return };
    let with_path = |(key, mut entry)| {
        let src = entry_mut(&mut entry, "src").filter(|src| src.as_str() != Some(""));
        if src.is_some() {
            make_absolute(&mut entry, "src", sources);
        }
        if let Some(src) = entry_mut(&mut entry, "src").filter(|src| !src.is_template())
            && let Some(path) = src.as_str().and_then(|path| std::path::absolute(path).ok())
        {
            *src = Node::string(src.span, &*path.to_string_lossy());
        }
        (key, entry)
    };
    *map = Map::new(std::mem::take(map).into_iter().map(with_path).collect());
}

/// So are the certificates, keys and executables of the section `fluentbit`.
fn log_paths(logs: &mut Node, sources: &Sources) {
    if let Some(binary) = entry_mut(logs, "binary") {
        with_path(binary, sources);
    }
    if let Some(forward) = entry_mut(logs, "forward") {
        make_absolute(forward, "ca_cert", sources);
    }
    let Some(settings) = entry_mut(logs, "etcd") else { return };
    make_absolute(settings, "ca_certificate", sources);
    if let Some(etcdctl) = entry_mut(settings, "etcdctl") {
        with_path(etcdctl, sources);
    }
    if let Some(client) = entry_mut(settings, "client") {
        ["certificate", "key"].into_iter().for_each(|name| make_absolute(client, name, sources));
    }
}

/// A `file` is relative to the file that names it.
fn with_path(entry: &mut Node, sources: &Sources) {
    let Kind::Map(map) = &mut entry.kind else { return };
    if let Some((key, node)) = map.remove("file") {
        let path = node.as_str().map(|path| settings::resolve(&folder(sources, node.span), path));
        let node = path.map_or(node.clone(), |path| Node::string(node.span, &*path.to_string_lossy()));
        map.push(key, node);
    }
}

/// What is kept of a member's or a hypervisor's entry, as written.
const SECTIONS_OF_HOSTS: [&str; 7] = ["interfaces", "guest", "etcd", "tls", "pools", "networks", "images"];

/// A path is relative to the file that it stands in.
fn make_absolute(node: &mut Node, name: &str, sources: &Sources) {
    let Some(node) = entry_mut(node, name).filter(|node| !node.is_template()) else { return };
    let Some(path) = node.as_str() else { return };
    let path = settings::resolve(&folder(sources, node.span), path);
    *node = Node::string(node.span, &*path.to_string_lossy());
}

fn entry_mut<'n>(node: &'n mut Node, name: &str) -> Option<&'n mut Node> {
    match &mut node.kind {
        Kind::Map(map) => map.get_mut(name),
        _ => None,
    }
}

struct Resolver<'a> {
    by_name: HashMap<HostName, HostId>,
    /// How many more near names to look for; each look goes through all names.
    guesses: usize,
    sources: &'a Sources,
    diagnostics: &'a mut Diagnostics,
}

/// What one group, cluster or host adds.
#[derive(Default)]
struct Tier {
    span: Option<Span>,
    vars: Arc<Vars>,
    settings: Settings,
    priority: i64,
    ssh_via: Option<SshVia>,
    /// What guests of its hosts have in common.
    guest: Option<Node>,
}

/// Tiers by group name; `all` is among them, though no level.
type Tiers = IndexMap<Arc<str>, Tier>;

/// A host on its way, with what is settled once all hosts are there.
struct Pending {
    host: Host,
    hypervisor: Option<Spanned<String>>,
    ssh_via: Option<SshVia>,
    interfaces: Vec<Interface>,
}

impl Resolver<'_> {
    /// One name means one thing, so that a pattern does.
    fn check_names(&mut self, draft: &mut Draft) {
        let Draft { hosts, groups, clusters, .. } = draft;
        clusters.retain(|name, cluster| {
            let Some(span) = cluster.span else { return false };
            if BUILTIN_GROUPS.contains(&canonical(name)) {
                self.diagnostics
                    .error(span, format!("`{name}` cannot be the name of a cluster: it is a built-in group"));
                return false;
            }
            self.check_clash("cluster", name, span, "host", hosts.get(name).map(|host| host.span))
                && self.check_clash("cluster", name, span, "group", groups.get(name).and_then(|group| group.span))
        });
        groups.retain(|name, group| {
            let builtin = BUILTIN_GROUPS.contains(&&**name);
            let host = hosts.get(name).map(|host| host.span);
            builtin || group.span.is_some_and(|span| self.check_clash("group", name, span, "host", host))
        });
        for (name, host) in hosts.iter().filter(|(name, _)| BUILTIN_GROUPS.contains(&canonical(name))) {
            self.diagnostics.error(host.span, format!("`{name}` cannot be the name of a host: it is a built-in group"));
        }
    }

    fn near<'n>(&mut self, word: &str, known: impl Iterator<Item = &'n str>) -> Option<String> {
        self.guesses = self.guesses.checked_sub(1)?;
        did_you_mean(word, known)
    }

    fn check_clash(&mut self, what: &str, name: &str, span: Span, other: &str, first: Option<Span>) -> bool {
        let Some(first) = first else { return true };
        self.diagnostics.push(
            Diagnostic::error(span, format!("the {what} `{name}` has the name of a {other}"))
                .related(first, format!("the {other} is here"))
                .help("rename one of them, so that a pattern is not ambiguous"),
        );
        false
    }

    fn levels(&mut self, draft: &Draft) -> Levels {
        let mut levels: Levels =
            ["hypervisors", "members", "guests"].map(|name| (name.into(), Level::default())).into();
        for name in draft.groups.keys().filter(|name| !BUILTIN_GROUPS.contains(&&***name)).chain(draft.clusters.keys())
        {
            levels.insert(name.clone(), Level::default());
        }
        self.place_hosts(draft, &mut levels);
        for (name, group) in &draft.groups {
            let hosts = self.group_hosts(group, &levels);
            let children = self.group_children(name, group, &levels);
            if let Some(level) = levels.get_mut(name) {
                level.hosts.extend(hosts);
                level.children.extend(children);
            }
        }
        let clusters: Vec<_> = draft
            .clusters
            .iter()
            .filter_map(|(name, cluster)| Some(Spanned::new(levels.get_index_of(name)?, cluster.span?)))
            .collect();
        levels[1].children = clusters;
        levels
    }

    /// Hosts belong to the groups of their kind and to the ones they name.
    fn place_hosts(&mut self, draft: &Draft, levels: &mut Levels) {
        for (index, (name, host)) in draft.hosts.iter().enumerate() {
            let id = HostId::from_index(index);
            let home = match &host.kind {
                DraftKind::Plain => None,
                DraftKind::Hypervisor => Some("hypervisors"),
                DraftKind::Member(cluster) => Some(&**cluster),
            };
            if let Some(level) = home.and_then(|home| levels.get_mut(home)) {
                level.hosts.push(id);
            }
            for group in &host.groups {
                if self.can_join(name, group, draft)
                    && let Some(level) = levels.get_mut(&group.value)
                {
                    level.hosts.push(id);
                }
            }
        }
    }

    fn can_join(&mut self, host: &str, group: &Spanned<Arc<str>>, draft: &Draft) -> bool {
        let name = &*group.value;
        if BUILTIN_GROUPS.contains(&canonical(name)) || draft.clusters.contains_key(name) {
            let message = format!("`{host}` cannot be put into `{name}`: only a group can be joined like this");
            self.diagnostics.push(Diagnostic::error(group.span, message));
            return false;
        }
        if draft.groups.contains_key(name) {
            return true;
        }
        let near = self.near(name, draft.groups.keys().map(|name| &**name));
        let help = near.unwrap_or_else(|| format!("add `{name}: {{}}` under `groups`"));
        self.diagnostics.push(Diagnostic::error(group.span, format!("there is no group `{name}`")).help(help));
        false
    }

    fn group_hosts(&mut self, group: &GroupDraft, levels: &Levels) -> Vec<HostId> {
        let mut hosts: Vec<HostId> = group.hosts.iter().filter_map(|name| self.by_name.get(&**name).copied()).collect();
        for term in &group.terms {
            match pattern::match_hosts(&term.value, term.span, &self.by_name, self.guesses > 0) {
                Ok(found) => hosts.extend(found),
                Err(problem) => {
                    self.guesses = self.guesses.saturating_sub(1);
                    let is_group = levels.contains_key(canonical(&term.value));
                    let help = is_group.then(|| format!("`{}` is a group: name it under `children`", term.value));
                    self.diagnostics.push(problem.maybe_help(help));
                }
            }
        }
        hosts
    }

    fn group_children(&mut self, parent: &str, group: &GroupDraft, levels: &Levels) -> Vec<Spanned<usize>> {
        let mut children = Vec::new();
        for child in &group.children {
            match levels.get_index_of(canonical(&child.value)) {
                Some(index) => children.push(Spanned::new(index, child.span)),
                None if parent == "all" && &*child.value == "ungrouped" => {}
                None => {
                    let problem = self.no_such_child(child, levels);
                    self.diagnostics.push(problem);
                }
            }
        }
        children
    }

    fn no_such_child(&mut self, child: &Spanned<Arc<str>>, levels: &Levels) -> Diagnostic {
        let name = &*child.value;
        if BUILTIN_GROUPS.contains(&name) {
            return Diagnostic::error(child.span, format!("`{name}` cannot be a child of a group"));
        }
        let help = if self.by_name.contains_key(name) {
            Some(format!("`{name}` is a host: name it under `hosts`"))
        } else {
            self.near(name, levels.keys().map(|name| &**name))
        };
        Diagnostic::error(child.span, format!("there is no group `{name}`")).maybe_help(help)
    }

    /// What each group and cluster adds, lowest precedence first.
    fn tiers(&mut self, draft: &mut Draft, levels: &Levels) -> Tiers {
        let mut tiers: Tiers = IndexMap::new();
        for (name, group) in &mut draft.groups {
            let GroupDraft { span, ssh, vars, file_vars, mut sections, .. } = std::mem::take(group);
            let ssh_via = sections.get("ssh_via").and_then(|node| from_node(node).ok());
            let guest = sections.shift_remove("guest");
            let tier = self.tier(span, ssh, vars, file_vars);
            tiers.insert(name.clone(), Tier { ssh_via, guest, ..tier });
        }
        for (name, cluster) in &mut draft.clusters {
            let via = cluster.sections.get("ssh_via").and_then(|node| from_node(node).ok());
            let ClusterDraft { ssh, vars, file_vars, .. } = cluster;
            let (ssh, vars, file_vars) = (std::mem::take(ssh), std::mem::take(vars), std::mem::take(file_vars));
            let tier = self.tier(cluster.span, ssh, vars, file_vars);
            tiers.insert(name.clone(), Tier { ssh_via: via, ..tier });
        }
        for name in BUILTIN_GROUPS {
            tiers.entry(name.into()).or_default();
        }
        // As in Ansible, a deeper group wins, then the priority, then the name; a cluster wins over groups.
        tiers.sort_by_cached_key(|name, tier| {
            let depth = levels.get(name).map_or(0, |level| level.depth + 1);
            let builtin = BUILTIN_GROUPS.contains(&&**name);
            let depth = if builtin { depth.min(1) } else { depth };
            (draft.clusters.contains_key(name), depth, !builtin, tier.priority, name.clone())
        });
        tiers
    }

    fn tier(&mut self, span: Option<Span>, ssh: Vars, mut vars: Vars, file_vars: Vars) -> Tier {
        vars.extend(file_vars);
        let mut settings = ansible::connection(&vars, self.sources, self.diagnostics);
        settings.overlay(&self.settings(ssh, span));
        let priority = match vars.get("ansible_group_priority").map(|node| &node.kind) {
            Some(Kind::Int(priority)) => *priority,
            _ => 1,
        };
        Tier { span, vars: Arc::new(vars), settings, priority, ssh_via: None, guest: None }
    }

    fn settings(&mut self, ssh: Vars, span: Option<Span>) -> Settings {
        let Some(span) = ssh.values().next().map(|node| node.span).or(span) else { return Settings::default() };
        let node = Node::new(span, Kind::Map(to_map(ssh)));
        let entry = match from_node::<SshEntry>(&node) {
            Ok(entry) => entry,
            Err(problems) => {
                problems.into_iter().for_each(|problem| self.diagnostics.push(problem));
                return Settings::default();
            }
        };
        let place = |field: &str| node.as_map().and_then(|map| map.get(field)).map(|node| node.span);
        let settings = Settings::from_entry(entry, |field| folder(self.sources, place(field).unwrap_or(span)));
        Settings { identity_place: place("identity_file"), ..settings }
    }

    fn hosts(&mut self, drafts: IndexMap<Arc<str>, HostDraft>, levels: &Levels, tiers: &Tiers) -> Vec<Pending> {
        // Tiers are in order of precedence, so every host collects its own in that order too.
        let mut tiers_of: Vec<Vec<usize>> = vec![Vec::new(); drafts.len()];
        for (index, name) in tiers.keys().enumerate() {
            let members = levels.get(name).map_or(&[][..], |level| &level.members);
            members.iter().for_each(|host| tiers_of[host.index()].push(index));
        }
        let hosts = drafts.into_iter().zip(tiers_of).enumerate();
        hosts
            .map(|(index, ((name, draft), own))| self.host(HostId::from_index(index), name, draft, tiers, &own))
            .collect()
    }

    fn host(&mut self, id: HostId, name: Arc<str>, draft: HostDraft, tiers: &Tiers, own: &[usize]) -> Pending {
        let HostDraft { span, kind, fields, mut vars, file_vars, .. } = draft;
        vars.extend(file_vars);
        let outer = outer_tiers(tiers, own);
        let sections = SECTIONS_OF_HOSTS.into_iter().filter_map(|name| fields.get_key_value(name));
        let mut sections: Vars = sections.map(|(name, node)| (name.clone(), node.clone())).collect();
        if let Some(images) = sections.get_mut("images") {
            image_paths(images, self.sources);
        }
        if let Some(tls) = sections.get_mut("tls") {
            ["certificate", "key"].into_iter().for_each(|name| make_absolute(tls, name, self.sources));
        }
        if kind == DraftKind::Plain && fields.contains_key("hypervisor") {
            let of_groups = outer.iter().filter_map(|(_, tier)| tier.guest.as_ref());
            let guest = of_groups.chain(sections.get("guest")).cloned();
            let guest = guest.reduce(|general, specific| builtin::overlay(&general, &specific));
            sections.extend(guest.map(|guest| ("guest".into(), guest)));
        }
        let hypervisor = fields.get("hypervisor");
        let hypervisor = hypervisor.and_then(|node| Some(Spanned::new(node.as_str()?.to_owned(), node.span)));

        let mut settings = inherited_settings(&name, &outer);
        settings.overlay(&ansible::connection(&vars, self.sources, self.diagnostics));
        settings.overlay(&self.settings(ssh_fields(&fields), Some(span)));
        let entry = self.member_entry(&kind, fields, span);
        settings.overlay(&shortcuts(&entry));

        let layers = outer.iter().map(|(_, tier)| tier.vars.clone()).chain([Arc::new(vars)]);
        let host = Host {
            id,
            span,
            kind: kind.into(),
            // Found later, once all hosts are there.
            hypervisor: None,
            zone: entry.zone,
            r#become: settings.r#become,
            become_user: settings.become_user.clone(),
            identity_place: settings.identity_place,
            endpoint: settings.endpoint(&name),
            name: HostName::new(name),
            layers: layers.filter(|layer| !layer.is_empty()).collect(),
            sections: Arc::new(sections),
            builtin: Vec::new(),
            group_names: group_names(&outer),
        };
        let inherited = || outer.iter().rev().find_map(|(_, tier)| tier.ssh_via);
        let of_cluster = |name: &str| tiers.get(name).and_then(|tier| tier.ssh_via);
        let ssh_via = entry.ssh_via.or_else(|| match &host.kind {
            HostKind::Member { cluster } => of_cluster(cluster.as_str()),
            // A group may have existing hosts next to its guests.
            HostKind::Plain if hypervisor.is_some() => inherited(),
            HostKind::Plain | HostKind::Hypervisor => None,
        });
        Pending { host, hypervisor, ssh_via, interfaces: entry.interfaces }
    }

    /// The entry in the wider of the two shapes.
    fn member_entry(&mut self, kind: &DraftKind, fields: Vars, span: Span) -> MemberEntry {
        let node = Node::new(span, Kind::Map(to_map(fields)));
        let entry = match kind {
            DraftKind::Member(_) => from_node(&node),
            DraftKind::Hypervisor => from_node::<HypervisorEntry>(&node).map(|entry| {
                let HypervisorEntry { address, zone, ssh, port, user, vars, groups, .. } = entry;
                MemberEntry { address, zone, ssh, port, user, vars, groups, ..MemberEntry::default() }
            }),
            DraftKind::Plain => from_node::<HostEntry>(&node).map(|entry| {
                let HostEntry { address, zone, ssh, port, user, vars, groups, .. } = entry;
                let HostEntry { hypervisor, interfaces, ssh_via, guest, .. } = entry;
                let general = MemberEntry { address, zone, ssh, port, user, vars, groups, ..MemberEntry::default() };
                MemberEntry { hypervisor, interfaces, ssh_via, guest, ..general }
            }),
        };
        entry.unwrap_or_else(|problems| {
            problems.into_iter().for_each(|problem| self.diagnostics.push(problem));
            MemberEntry::default()
        })
    }

    /// Ties guests to their hypervisors.
    fn reach_guests(&mut self, hosts: &mut [Pending]) {
        for index in 0..hosts.len() {
            let Some(wanted) = hosts[index].hypervisor.take() else {
                self.check_way(&hosts[index]);
                continue;
            };
            let Some((name, zone)) = self.hypervisor(&wanted, hosts) else { continue };
            let Pending { host, ssh_via, .. } = &mut hosts[index];
            host.zone = host.zone.take().or(zone);
            if *ssh_via == Some(SshVia::Hypervisor) {
                host.endpoint.jump = vec![name.as_str().to_owned()];
                host.endpoint.proxy_command = None;
            }
            host.hypervisor = Some(name);
        }
    }

    fn check_way(&mut self, pending: &Pending) {
        let Host { name, span, kind, sections, .. } = &pending.host;
        if pending.ssh_via == Some(SshVia::Hypervisor) {
            let problem =
                Diagnostic::error(*span, format!("`{name}` is to be reached through its hypervisor, but has none"));
            self.diagnostics.push(problem.help("add `hypervisor: NAME`, or `ssh_via: direct`"));
        }
        let of_guests = ["guest", "interfaces"].into_iter().find(|section| sections.contains_key(*section));
        if let Some(section) = of_guests.filter(|_| *kind == HostKind::Plain) {
            let message = format!("`{section}` describes a guest, and `{name}` has no hypervisor");
            let help = "add `hypervisor: NAME`, or `placement` to its group; an existing host has an `address`";
            self.diagnostics.push(Diagnostic::error(sections[section].span, message).help(help));
        }
    }

    fn hypervisor(&mut self, wanted: &Spanned<String>, hosts: &[Pending]) -> Option<(HostName, Option<String>)> {
        let found = self.by_name.get(wanted.as_str()).map(|id| &hosts[id.index()].host);
        if let Some(host) = found.filter(|host| host.kind == HostKind::Hypervisor) {
            return Some((host.name.clone(), host.zone.clone()));
        }
        let problem = match found {
            Some(host) => Diagnostic::error(wanted.span, format!("`{}` is a host, but not a hypervisor", wanted.value))
                .related(host.span, "defined here")
                .help("list it under the top-level key `hypervisors`"),
            None => {
                let known = hosts.iter().map(|pending| &pending.host).filter(|host| host.kind == HostKind::Hypervisor);
                let near = self.near(&wanted.value, known.map(|host| host.name.as_str()));
                Diagnostic::error(wanted.span, format!("there is no hypervisor `{}`", wanted.value)).maybe_help(near)
            }
        };
        self.diagnostics.push(problem);
        None
    }
}

/// The hosts with a guest of their own, their group's or their cluster's.
fn gather_guests(draft: &Draft, levels: &mut Levels) {
    let has_guest = |sections: &Vars| sections.contains_key("guest");
    let mut of_groups = vec![draft.groups.get("all").is_some_and(|all| has_guest(&all.sections)); draft.hosts.len()];
    for (name, _) in draft.groups.iter().filter(|(_, group)| has_guest(&group.sections)) {
        let members = levels.get(name).map_or(&[][..], |level| &level.members);
        members.iter().for_each(|host| of_groups[host.index()] = true);
    }
    let is_guest = |(index, host): (usize, &HostDraft)| {
        let shared = match &host.kind {
            DraftKind::Plain => of_groups[index],
            DraftKind::Member(cluster) => draft.clusters.get(cluster).is_some_and(|it| has_guest(&it.sections)),
            DraftKind::Hypervisor => return None,
        };
        let is_one = host.fields.contains_key("hypervisor") && (shared || has_guest(&host.fields));
        is_one.then(|| HostId::from_index(index))
    };
    let guests: Vec<HostId> = draft.hosts.values().enumerate().filter_map(is_guest).collect();
    if let Some(level) = levels.get_mut("guests") {
        level.hosts.clone_from(&guests);
        level.members = guests;
    }
}

/// A guest that etcdrun makes: its key is learnt from its hypervisor, and its administrator is who can log in.
fn settle_guests(hosts: &mut [Pending], clusters: &IndexMap<Arc<str>, ClusterDraft>) {
    for Pending { host, .. } in hosts {
        if host.hypervisor.is_none() {
            continue;
        }
        // Names of hosts are unique, so no pin is that of another.
        let owner = host.cluster().map_or("guest", |cluster| cluster.as_str()).to_owned();
        let cluster = host.cluster().and_then(|cluster| clusters.get(cluster.as_str()));
        let of_cluster = cluster.and_then(|draft| draft.sections.get("guest"));
        let sections = [host.sections.get("guest"), of_cluster];
        if sections.iter().all(Option::is_none) {
            continue;
        }
        let admin = sections.into_iter().flatten().find_map(admin_user);
        host.endpoint.pin = Some(format!("{owner}/{}", host.name));
        let has_ignition =
            sections.iter().flatten().any(|guest| guest.as_map().is_some_and(|map| map.get("ignition").is_some()));
        let default = if has_ignition { "core" } else { builtin::DEFAULT_ADMIN };
        host.endpoint.user = admin.or(host.endpoint.user.take()).or(Some(default.to_owned()));
    }
}

fn admin_user(guest: &Node) -> Option<String> {
    let user = guest.as_map()?.get("admin")?.as_map()?.get("user")?;
    user.as_str().filter(|_| !user.is_template()).map(str::to_owned)
}

impl From<DraftKind> for HostKind {
    fn from(kind: DraftKind) -> Self {
        match kind {
            DraftKind::Plain => Self::Plain,
            DraftKind::Hypervisor => Self::Hypervisor,
            DraftKind::Member(cluster) => Self::Member { cluster: ClusterName::new(cluster) },
        }
    }
}

type NamedTier<'t> = (&'t Arc<str>, &'t Tier);

/// The tiers around a host, lowest precedence first.
fn outer_tiers<'t>(tiers: &'t Tiers, own: &[usize]) -> Vec<NamedTier<'t>> {
    let ungrouped = if own.is_empty() { tiers.get_index_of("ungrouped") } else { None };
    let order = tiers.get_index_of("all").into_iter().chain(own.iter().copied()).chain(ungrouped);
    order.filter_map(|index| tiers.get_index(index)).collect()
}

/// What the levels around a host say about its connection.
fn inherited_settings(name: &str, outer: &[NamedTier<'_>]) -> Settings {
    let mut settings = Settings::default();
    outer.iter().for_each(|(_, tier)| settings.overlay(&tier.settings));
    // A jump host that a default names is itself reached by the hops before it.
    if let Some(jump) = &mut settings.jump
        && let Some(own) = jump.iter().position(|hop| hop == name)
    {
        jump.truncate(own);
        if jump.is_empty() {
            jump.push("none".to_owned());
        }
    }
    settings
}

fn ssh_fields(fields: &Vars) -> Vars {
    let map = fields.get("ssh").and_then(Node::as_map);
    map.into_iter().flat_map(Map::iter).map(|(key, node)| (key.name.clone(), node.clone())).collect()
}

/// What an entry says about the connection outside of `ssh`.
fn shortcuts(entry: &MemberEntry) -> Settings {
    let first_ip = || entry.interfaces.iter().find_map(|interface| interface.ip.as_ref());
    Settings {
        address: entry.address.as_ref().map(|a| a.0.0.clone()).or_else(|| Some(first_ip()?.0.0.addr().to_string())),
        port: entry.port.map(|port| port.0),
        user: entry.user.clone(),
        ..Settings::default()
    }
}

fn group_names(outer: &[NamedTier<'_>]) -> Vec<GroupName> {
    let mut names: Vec<_> = outer.iter().map(|(name, _)| *name).filter(|name| &***name != "all").collect();
    names.sort_unstable();
    names.into_iter().map(|name| GroupName::new(name.clone())).collect()
}

fn groups(
    levels: &Levels,
    tiers: &Tiers,
    hosts: &[Pending],
    clusters: &IndexMap<Arc<str>, ClusterDraft>,
) -> IndexMap<GroupName, Group> {
    let everyone: Vec<HostId> = hosts.iter().map(|pending| pending.host.id).collect();
    let grouped = |id: &HostId| hosts[id.index()].host.group_names.iter().any(|name| name.as_str() != "ungrouped");
    let ungrouped: Vec<HostId> = everyone.iter().copied().filter(|id| !grouped(id)).collect();
    let top = levels.iter().filter(|(_, level)| level.depth == 0).map(|(name, _)| name);
    let top = top.cloned().chain(["ungrouped".into()]).map(GroupName::new).collect();

    let vars = |name: &str| tiers.get(name).map(|tier| tier.vars.clone()).unwrap_or_default();
    let group = |name: &str, hosts: Vec<HostId>, members, children| Group {
        name: name.into(),
        kind: GroupKind::Builtin,
        span: None,
        children,
        hosts,
        members,
        vars: vars(name),
    };
    let mut groups = vec![group("all", Vec::new(), everyone, top)];
    for (name, level) in levels {
        let child = |child: &Spanned<usize>| Some(GroupName::new(levels.get_index(child.value)?.0.clone()));
        let children = level.children.iter().filter_map(child).collect();
        let kind = match (BUILTIN_GROUPS.contains(&&**name), clusters.contains_key(name)) {
            (true, _) => GroupKind::Builtin,
            (_, true) => GroupKind::Cluster,
            _ => GroupKind::Group,
        };
        let span = tiers.get(name).and_then(|tier| tier.span);
        groups.push(Group { kind, span, ..group(name, level.hosts.clone(), level.members.clone(), children) });
    }
    groups.push(group("ungrouped", ungrouped.clone(), ungrouped, Vec::new()));
    groups.into_iter().map(|group| (group.name.clone(), group)).collect()
}

fn clusters(
    drafts: IndexMap<Arc<str>, ClusterDraft>,
    groups: &IndexMap<GroupName, Group>,
    sources: &Sources,
) -> IndexMap<ClusterName, Cluster> {
    let cluster = |(name, draft): (Arc<str>, ClusterDraft)| {
        let group = groups.get(&*name)?;
        let mut sections = draft.sections;
        sections.shift_remove("ssh_via");
        if let Some(ca) = sections.get_mut("tls").and_then(|tls| entry_mut(tls, "ca")) {
            let files = ["certificate", "key"];
            files.into_iter().for_each(|name| make_absolute(ca, name, sources));
            if let Some(next) = entry_mut(ca, "next") {
                files.into_iter().for_each(|name| make_absolute(next, name, sources));
            }
        }
        if let Some(keys) = sections.get_mut("keys") {
            value_paths(keys, sources);
        }
        if let Some(logs) = sections.get_mut("fluentbit") {
            log_paths(logs, sources);
        }
        let name = ClusterName::new(name);
        let sections = Arc::new(sections);
        let cluster = Cluster {
            name: name.clone(),
            span: draft.span,
            members: group.hosts.clone(),
            sections,
            vars: group.vars.clone(),
        };
        Some((name, cluster))
    };
    drafts.into_iter().filter_map(cluster).collect()
}
