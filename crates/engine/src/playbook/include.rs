//! `import_tasks` and `import_role`, and their `include_` twins: both are expanded while loading.

use super::{
    context::Context,
    keywords::Holder,
    loader::{Loader, head},
    place::Place,
    role::RoleUse,
    task::{push_vars, short_name, unknown_key},
    types::Item,
};
use crate::{
    model::Span,
    source::{Diagnostic, Key, Kind, Map, Node},
};

impl Loader<'_> {
    pub(super) fn import_tasks(&mut self, map: &Map, context: &Context, holder: Holder) -> Vec<Item> {
        let Some((key, node)) = self.import_entry(map) else {
            return Vec::new();
        };
        let mut inner = context.enter(self, map);
        push_vars(&mut inner.import_vars, self.vars(map, "vars"));
        let Some((name, span)) = self.file_name(&key, &node) else {
            return Vec::new();
        };
        let Some(place) = self.task_file(&name, span, context) else {
            return Vec::new();
        };
        inner.folder = place.parent();
        self.inside(&place, &place.to_string(), Some(span), |loader| {
            let node = loader.file(&place, Some(span));
            node.map_or_else(Vec::new, |node| loader.items(&node, &inner, holder))
        })
        .unwrap_or_default()
    }

    /// The import itself; complains about keys that have no meaning beside it.
    fn import_entry(&mut self, map: &Map) -> Option<(Key, Node)> {
        const IMPORTS: &[&str] = &["import_tasks", "include_tasks", "import_role", "include_role"];
        let short =
            |(key, node): &(Key, Node)| (Key { name: short_name(&key.name).into(), ..key.clone() }, node.clone());
        let entries: Vec<(Key, Node)> = map.iter().map(short).collect();
        for (key, _) in
            entries.iter().filter(|(key, _)| matches!(&*key.name, "loop" | "with_items" | "register" | "until"))
        {
            let message = format!("`{}` cannot stand on an import", key.name);
            let help = "the shape of a run is static: write it on the tasks of the file";
            self.diagnostics.push(Diagnostic::error(key.span, message).help(help));
        }
        let known = |key: &Key| matches!(&*key.name, "loop" | "with_items" | "register" | "until");
        let rest = entries.iter().filter(|(key, _)| !known(key)).cloned().collect();
        self.known_keys(&Map::new(rest), Holder::Include);
        entries.into_iter().find(|(key, _)| IMPORTS.contains(&&*key.name))
    }

    /// The file name, also in the long form `{file: x}`.
    fn file_name(&mut self, key: &Key, node: &Node) -> Option<(String, Span)> {
        let node = match &node.kind {
            Kind::Map(map) => {
                for (other, _) in map.iter().filter(|(other, _)| &*other.name != "file") {
                    self.diagnostics.push(unknown_key(other, &format!("`{}`", key.name), &["file"]));
                }
                map.get("file").or_else(|| {
                    self.diagnostics.error(head(node), format!("`{}` names no `file`", key.name));
                    None
                })?
            }
            _ => node,
        };
        let settled = self.settle(node, &key.name)?;
        let text = self.text_of(&settled, &key.name)?;
        Some((text.value.to_string(), node.span))
    }

    /// Beside the file that imports, then in the role's tasks, then beside the playbook.
    fn task_file(&mut self, name: &str, span: Span, context: &Context) -> Option<Place> {
        let role = context.role.as_ref().map(|role| role.folder.join("tasks"));
        let folders = [Some(context.folder.clone()), role, Some(context.playbook_folder.clone())];
        let mut candidates: Vec<Place> = folders.into_iter().flatten().map(|folder| folder.join(name)).collect();
        candidates.dedup();
        if let Some(found) = candidates.iter().find(|place| place.is_file()) {
            return Some(found.clone());
        }
        let looked = candidates.iter().map(Place::to_string).collect::<Vec<_>>().join(", ");
        let problem = match candidates.iter().find(|place| place.is_dir()) {
            Some(folder) => format!("{folder} is a directory; expected a file of tasks"),
            None => format!("no task file `{name}`"),
        };
        self.diagnostics.push(Diagnostic::error(span, problem).help(format!("looked for {looked}")));
        None
    }

    pub(super) fn import_role(&mut self, map: &Map, context: &Context, holder: Holder) -> Vec<Item> {
        let Some((key, node)) = self.import_entry(map) else {
            return Vec::new();
        };
        if holder == Holder::Handler {
            self.diagnostics.push(Diagnostic::error(key.span, "a role cannot be a handler"));
            return Vec::new();
        }
        let inner = context.enter(self, map);
        let Some(role) = self.imported_role(&key, &node, map) else {
            return Vec::new();
        };
        self.role_items(&role, &inner)
    }

    fn imported_role(&mut self, key: &Key, node: &Node, task: &Map) -> Option<RoleUse> {
        const KNOWN: &[&str] = &[
            "name",
            "tasks_from",
            "vars_from",
            "defaults_from",
            "handlers_from",
            "vars",
            "public",
            "allow_duplicates",
        ];
        let what = format!("`{}`", key.name);
        let mut role = RoleUse::new(node.span);
        if let Kind::String(_) = node.kind {
            let settled = self.settle(node, &key.name)?;
            role.name = self.text_of(&settled, &key.name)?;
            role.params = self.params(task, "vars");
            return Some(role);
        }
        let args = self.mapping(node, &what)?;
        for (other, _) in args.iter().filter(|(other, _)| !KNOWN.contains(&&*other.name)) {
            self.diagnostics.push(unknown_key(other, &what, KNOWN));
        }
        if args.get("name").is_none() {
            self.diagnostics.error(head(node), format!("{what} names no role"));
        }
        role.name = self.text(args, "name")?;
        role.params = self.params(task, "vars");
        role.params.extend(self.params(args, "vars"));
        role.tasks_from = self.text(args, "tasks_from");
        role.vars_from = self.text(args, "vars_from");
        role.defaults_from = self.text(args, "defaults_from");
        role.handlers_from = self.text(args, "handlers_from");
        Some(role)
    }
}
