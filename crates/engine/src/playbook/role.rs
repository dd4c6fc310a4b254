//! Roles: finding them, their files, their dependencies, and their tasks in place.

use std::{collections::HashSet, path::Path, sync::Arc};

use super::{
    arguments,
    context::Context,
    keywords::{self, Holder},
    loader::{Loader, head},
    meta::Meta,
    place::Place,
    types::{Item, RoleContext},
};
use crate::{
    model::{Span, Spanned},
    source::{Diagnostic, Key, Kind, Map, Node, Vars, did_you_mean, nearest},
};

/// One use of a role: an entry of `roles`, a dependency, or an import.
pub(super) struct RoleUse {
    pub(super) name: Spanned<Arc<str>>,
    pub(super) span: Span,
    /// Arguments, with their keys so that a wrong one can be pointed at.
    pub(super) params: Vec<(Key, Node)>,
    pub(super) tasks_from: Option<Spanned<Arc<str>>>,
    pub(super) vars_from: Option<Spanned<Arc<str>>>,
    pub(super) defaults_from: Option<Spanned<Arc<str>>>,
    pub(super) handlers_from: Option<Spanned<Arc<str>>>,
    /// Whether a second use with the same arguments is left out.
    pub(super) once: bool,
}

impl RoleUse {
    pub(super) fn new(span: Span) -> Self {
        Self {
            name: Spanned::new("".into(), span),
            span,
            params: Vec::new(),
            tasks_from: None,
            vars_from: None,
            defaults_from: None,
            handlers_from: None,
            once: false,
        }
    }
}

impl Loader<'_> {
    /// The `roles` of a play.
    pub(super) fn roles(&mut self, node: &Node, context: &Context) -> Vec<Item> {
        let entries = self.list(node, "a list of roles");
        entries.iter().flat_map(|entry| self.role_entry(entry, context)).collect()
    }

    /// A role by name, or with arguments and keywords.
    fn role_entry(&mut self, node: &Node, context: &Context) -> Vec<Item> {
        let (role, inner) = match &node.kind {
            Kind::Map(map) => (self.role_with_arguments(node, map), context.enter(self, map)),
            _ => (self.role_by_name(node), context.clone()),
        };
        role.map_or_else(Vec::new, |role| self.role_items(&role, &inner))
    }

    fn role_by_name(&mut self, node: &Node) -> Option<RoleUse> {
        let settled = self.settle(node, "roles")?;
        let name = self.text_of(&settled, "roles")?;
        Some(RoleUse { name, once: true, ..RoleUse::new(node.span) })
    }

    fn role_with_arguments(&mut self, node: &Node, map: &Map) -> Option<RoleUse> {
        let key = if map.get("role").is_some() { "role" } else { "name" };
        if map.get(key).is_none() {
            self.diagnostics.push(Diagnostic::error(head(node), "this entry names no `role`"));
        }
        let name = self.text(map, key);
        let mut params = self.params(map, "vars");
        for (key, value) in map.iter().filter(|(key, _)| !keywords::is_keyword(&key.name, Holder::Role)) {
            self.warn_of_near_keyword(key);
            self.check_templates(value);
            params.push((key.clone(), value.clone()));
        }
        let name = name?;
        Some(RoleUse { span: name.span, name, params, once: true, ..RoleUse::new(node.span) })
    }

    /// What is no keyword is an argument of the role, so a slip of the finger would go unnoticed.
    fn warn_of_near_keyword(&mut self, key: &Key) {
        if let Some(near) = nearest(&key.name, keywords::names_on(Holder::Role)).filter(|near| *near != "role") {
            let message = format!("`{}` is passed to the role as an argument", key.name);
            let help = format!("did you mean `{near}`? if not, put it under `vars`");
            self.diagnostics.push(Diagnostic::warning(key.span, message).help(help));
        }
    }

    /// Arguments with the places of their names.
    pub(super) fn params(&mut self, map: &Map, key: &str) -> Vec<(Key, Node)> {
        let Some(node) = map.get(key).filter(|node| !node.is_null()) else {
            return Vec::new();
        };
        let entries: Vec<_> =
            self.mapping(node, &format!("`{key}`")).into_iter().flat_map(Map::iter).cloned().collect();
        entries.iter().for_each(|(_, value)| self.check_templates(value));
        entries.into_iter().filter(|(key, _)| self.variable_name(&key.name, key.span)).collect()
    }

    /// The tasks a role stands for: those of its dependencies, then its own.
    pub(super) fn role_items(&mut self, role: &RoleUse, context: &Context) -> Vec<Item> {
        let Some(folder) = self.find_role(&role.name, context) else {
            return Vec::new();
        };
        let tasks = self.role_tasks_file(role, &folder);
        let frame = tasks.clone().unwrap_or_else(|| folder.join("tasks/main.yaml"));
        let name = format!("role {}", role.name.value);
        self.inside(&frame, &name, Some(role.name.span), |loader| loader.expand_role(role, &folder, tasks, context))
            .unwrap_or_default()
    }

    fn expand_role(&mut self, role: &RoleUse, folder: &Place, tasks: Option<Place>, context: &Context) -> Vec<Item> {
        let meta = self.role_meta(folder, role.name.span);
        if role.once && !meta.allow_duplicates && !self.play.roles_used.insert(fingerprint(role, folder, context)) {
            return Vec::new();
        }
        let brought = Arc::new(self.role_context(role, folder, &meta, context));
        self.play.roles.push(brought.clone());
        let inner = Context { role: Some(brought), folder: folder.join("tasks"), ..context.clone() };
        let mut items: Vec<Item> = meta.dependencies.iter().flat_map(|entry| self.role_entry(entry, &inner)).collect();
        self.role_handlers(role, folder, &inner);
        if let Some(node) = tasks.and_then(|place| self.file(&place, Some(role.name.span))) {
            items.extend(self.items(&node, &inner, Holder::Task));
        }
        items
    }

    /// Whether the role has the file of tasks that is asked for.
    pub(super) fn role_has(&mut self, role: &RoleUse, context: &Context) -> bool {
        let Some(folder) = self.find_role(&role.name, context) else { return false };
        let name = role.tasks_from.as_ref().map_or("main", |from| &from.value);
        task_files(&folder, "tasks", name).any(|place| place.is_file())
    }

    fn role_tasks_file(&mut self, role: &RoleUse, folder: &Place) -> Option<Place> {
        self.role_file(folder, "tasks", role.tasks_from.as_ref())
    }

    fn role_handlers(&mut self, role: &RoleUse, folder: &Place, context: &Context) {
        let Some(place) = self.role_file(folder, "handlers", role.handlers_from.as_ref()) else {
            return;
        };
        if let Some(node) = self.file(&place, Some(role.name.span)) {
            let context = Context { folder: folder.join("handlers"), ..context.clone() };
            self.handlers(&node, &context);
        }
    }

    fn role_context(&mut self, role: &RoleUse, folder: &Place, meta: &Meta, context: &Context) -> RoleContext {
        let mut defaults = self.role_vars(role, folder, "defaults", role.defaults_from.as_ref());
        let vars = self.role_vars(role, folder, "vars", role.vars_from.as_ref());
        if let Some(arguments) = &meta.arguments {
            let given: HashSet<Arc<str>> = self.names_given(context, &vars);
            arguments::check(role, arguments, |name| given.contains(name), self.diagnostics);
            defaults.extend(arguments::defaults(arguments));
        }
        let params = role.params.iter().map(|(key, node)| (key.name.clone(), node.clone())).collect();
        RoleContext {
            name: role_name(&role.name),
            folder: folder.clone(),
            defaults: Arc::new(defaults),
            vars: Arc::new(vars),
            params: Arc::new(params),
            parent: context.role.clone(),
        }
    }

    /// Variables that have a value wherever this role is used, whatever the inventory says.
    fn names_given(&self, context: &Context, role_vars: &Vars) -> HashSet<Arc<str>> {
        let around = context.block_vars.iter().chain(&context.import_vars).flat_map(|vars| vars.keys());
        let roles = context.role.iter().flat_map(|role| role.chain());
        let from_roles = roles.flat_map(|role| role.params.keys().chain(role.vars.keys()));
        let of_play = self.play.known_vars.iter().chain(self.options.extra_vars.keys());
        around.chain(from_roles).chain(of_play).chain(role_vars.keys()).cloned().collect()
    }

    fn role_vars(&mut self, role: &RoleUse, folder: &Place, part: &str, from: Option<&Spanned<Arc<str>>>) -> Vars {
        let Some(place) = self.role_file(folder, part, from) else {
            return Vars::new();
        };
        let node = self.file(&place, Some(role.name.span));
        node.map_or_else(Vars::new, |node| self.vars_of(&node, &format!("`{part}` of a role")))
    }

    fn role_meta(&mut self, folder: &Place, span: Span) -> Meta {
        let Some(place) = self.role_file(folder, "meta", None) else {
            return Meta::default();
        };
        let node = self.file(&place, Some(span));
        node.map_or_else(Meta::default, |node| Meta::read(&node, self.diagnostics))
    }

    /// `PART/main.yaml` of a role, or the file asked for, which must then exist.
    fn role_file(&mut self, folder: &Place, part: &str, from: Option<&Spanned<Arc<str>>>) -> Option<Place> {
        let name = from.map_or("main", |from| &from.value);
        let found = task_files(folder, part, name).find(|place| place.is_file());
        if let (None, Some(from)) = (&found, from) {
            let message = format!("the role has no `{part}/{name}.yaml`");
            let files = folder.join(part).entries();
            let near =
                did_you_mean(name, files.iter().map(|file| file.rsplit_once('.').map_or(&**file, |(stem, _)| stem)));
            self.diagnostics.push(Diagnostic::error(from.span, message).maybe_help(near));
        }
        found
    }

    /// Beside the playbook, beside the role that asks, in `./roles`, in the configured folders, in the binary.
    fn find_role(&mut self, name: &Spanned<Arc<str>>, context: &Context) -> Option<Place> {
        let text = &*name.value;
        if let Some(found) = self.role_place(text, context) {
            self.warn_of_hidden_role(name, &found);
            return Some(found);
        }
        let folders = self.role_folders(context);
        let looked = folders.iter().map(Place::to_string).collect::<Vec<_>>().join(", ");
        let known = self.known_roles(context);
        let near = did_you_mean(text, known.iter().map(String::as_str));
        let help = near.map_or_else(String::new, |near| near + " ") + &format!("looked in {looked}");
        self.diagnostics.push(Diagnostic::error(name.span, format!("no role `{text}`")).help(help));
        None
    }

    fn role_place(&self, text: &str, context: &Context) -> Option<Place> {
        let candidates: Vec<Place> = if text.contains('/') {
            vec![context.playbook_folder.join(text), Place::disk(self.options.start.join(text))]
        } else {
            self.role_folders(context).iter().map(|folder| folder.join(text)).collect()
        };
        let plain = !text.is_empty() && !matches!(text, "." | "..");
        candidates.into_iter().find(|place| plain && place.is_dir())
    }

    pub(super) fn has_role(&self, name: &str, context: &Context) -> bool {
        self.role_place(name, context).is_some()
    }

    /// The names of all roles that could be meant.
    pub(super) fn known_roles(&self, context: &Context) -> Vec<String> {
        let folders = self.role_folders(context);
        let names = |folder: &Place| folder.entries().into_iter().filter(|name| folder.join(name).is_dir()).collect();
        folders.iter().flat_map(|folder| -> Vec<String> { names(folder) }).collect()
    }

    /// A role of the user may take the place of one of the binary, but not without a word. A copy of it hides nothing.
    fn warn_of_hidden_role(&mut self, name: &Spanned<Arc<str>>, found: &Place) {
        let shipped = self.options.library.embedded.roles.place(&*name.value);
        let hides = found.disk_path().is_some() && !name.value.contains('/') && shipped.is_dir();
        if !hides || !self.compared.insert(found.clone()) || found.is_copy_of(&shipped) {
            return;
        }
        let message = format!("{found} is used instead of the shipped role `{}`", name.value);
        let help = "playbooks named `embedded:NAME` use the shipped roles; a path, like ./roles/NAME, means your role without this warning";
        self.diagnostics.push(Diagnostic::warning(name.span, message).help(help));
    }

    fn role_folders(&self, context: &Context) -> Vec<Place> {
        if self.embedded_roles_only {
            return vec![self.options.library.embedded.roles.place("")];
        }
        let mut folders = vec![context.playbook_folder.join("roles")];
        folders.extend(context.role.iter().map(|role| role.folder.parent()));
        folders.push(Place::disk(self.options.start.join("roles")));
        folders.extend(self.options.roles_path.iter().map(Place::disk));
        folders.push(self.options.library.embedded.roles.place(""));
        let mut seen = HashSet::new();
        folders.retain(|folder| seen.insert(folder.clone()));
        folders
    }
}

/// Where a file of a role may be.
fn task_files(folder: &Place, part: &str, name: &str) -> impl Iterator<Item = Place> {
    let folder = folder.join(part);
    ["", ".yaml", ".yml"].into_iter().map(move |end| folder.join(format!("{name}{end}")))
}

/// A role given by a path is called by its folder's name.
fn role_name(name: &str) -> Arc<str> {
    Path::new(name).file_name().map_or_else(|| name.into(), |last| last.to_string_lossy().into())
}

/// Two uses with one fingerprint would do the same thing under the same conditions.
fn fingerprint(role: &RoleUse, folder: &Place, context: &Context) -> String {
    let params = |params: &mut dyn Iterator<Item = (Arc<str>, String)>| {
        let mut list: Vec<_> = params.collect();
        list.sort();
        list
    };
    let own = params(&mut role.params.iter().map(|(key, node)| (key.name.clone(), node.to_value().to_string())));
    // A template among the arguments may mean another value under another parent.
    let parents = context.role.iter().flat_map(|role| role.chain()).flat_map(|role| role.params.iter());
    let inherited = if own.iter().any(|(_, value)| value.contains("{{")) {
        params(&mut parents.map(|(name, node)| (name.clone(), node.to_value().to_string())))
    } else {
        Vec::new()
    };
    let when: Vec<&str> = context.when.iter().map(|condition| &*condition.value).collect();
    format!("{folder:?} {own:?} {inherited:?} {when:?} {:?}", context.tags)
}
