//! Which module a task calls, and with what.

use super::{
    ansible,
    keywords::{self, Holder},
    loader::{Loader, head},
    task::short_name,
};
use crate::{
    model::Effects,
    source::{Diagnostic, Key, Kind, Map, Node, did_you_mean},
    task::{Library, ModuleSpec},
};

pub(super) struct ModuleCall {
    pub(super) module: &'static ModuleSpec,
    pub(super) args: Node,
    pub(super) effects: Effects,
}

impl Loader<'_> {
    pub(super) fn module_call(&mut self, node: &Node, map: &Map, holder: Holder) -> Option<ModuleCall> {
        let (module, args) = match map.entry("action") {
            Some((key, action)) => self.action(key, action)?,
            None => self.called(node, map, holder)?,
        };
        self.reject_words_in_text(module, &args);
        let args = match module.normalize(args.clone()) {
            Ok(args) => args,
            Err(problem) => {
                let help = args
                    .as_str()
                    .filter(|text| text.contains('='))
                    .map(|_| "write one argument a line, as `name: value`");
                self.diagnostics.push(problem.maybe_help(help.map(str::to_owned)));
                return None;
            }
        };
        let args = self.with_args(args, map);
        let args = module.with_own_cluster(args, self.diagnostics);
        self.check_argument_templates(module, &args);
        let effects = module.check(&args, self.diagnostics)?;
        Some(ModuleCall { module, args, effects })
    }

    /// Some arguments are bare expressions, as `when` is.
    fn check_argument_templates(&mut self, module: &ModuleSpec, args: &Node) {
        for (key, value) in args.as_map().into_iter().flat_map(Map::iter) {
            if !module.expressions.contains(&&*key.name) {
                self.check_templates(value);
                continue;
            }
            let expressions = value.as_seq().unwrap_or(std::slice::from_ref(value));
            for (text, span) in expressions.iter().filter_map(|node| Some((node.as_str()?, node.span))) {
                self.check_expression(text, span);
            }
        }
    }

    /// The one key of the task that is a module.
    fn called(&mut self, node: &Node, map: &Map, holder: Holder) -> Option<(&'static ModuleSpec, Node)> {
        let others: Vec<&(Key, Node)> =
            map.iter().filter(|(key, _)| !keywords::is_keyword(&key.name, holder)).collect();
        let find = |key: &Key| self.options.library.find(short_name(&key.name));
        let calls: Vec<_> = others.iter().filter_map(|(key, args)| Some((key, find(key)?, args))).collect();
        let unknown: Vec<&Key> = others.iter().map(|(key, _)| key).filter(|key| find(key).is_none()).collect();
        match calls.as_slice() {
            [(_, module, args)] => {
                unknown.iter().for_each(|key| self.diagnostics.push(keywords::unknown_key(key, holder)));
                Some((module, (*args).clone()))
            }
            [] => {
                self.report_no_module(node, &unknown, holder);
                None
            }
            [(first, ..), .., (last, ..)] => {
                let message = format!("this task calls two modules, `{}` and `{}`", first.name, last.name);
                let two = Diagnostic::error(last.span, message).related(first.span, "the first one");
                self.diagnostics.push(two.help("split it into two tasks"));
                None
            }
        }
    }

    fn report_no_module(&mut self, node: &Node, unknown: &[&Key], holder: Holder) {
        for key in unknown {
            self.diagnostics.push(unknown_module(&self.options.library, key, holder));
        }
        if unknown.is_empty() {
            let message =
                format!("this {} calls no module", if holder == Holder::Handler { "handler" } else { "task" });
            let help = "add one, such as `command: ...`; `etcdrun doc` lists them";
            self.diagnostics.push(Diagnostic::error(head(node), message).help(help));
        }
    }

    /// `action: {module: copy, ...}` or `action: command ls`.
    fn action(&mut self, key: &Key, action: &Node) -> Option<(&'static ModuleSpec, Node)> {
        let (name, span, args) = match &action.kind {
            Kind::String(text) => {
                let (name, rest) = text.trim().split_once(char::is_whitespace).unwrap_or((text.trim(), ""));
                let args = if rest.trim().is_empty() { Kind::Null } else { Kind::String(rest.trim().into()) };
                (name.to_owned(), action.span, Node::new(action.span, args))
            }
            Kind::Map(map) => {
                let mut rest = map.clone();
                let Some((_, module)) = rest.remove("module") else {
                    self.diagnostics.push(Diagnostic::error(key.span, "`action` names no `module`"));
                    return None;
                };
                let name = self.text_of(&module, "module")?;
                (name.value.to_string(), module.span, Node { kind: Kind::Map(rest), ..action.clone() })
            }
            _ => {
                let message = format!("`action` takes a module and its arguments, found {}", action.describe());
                self.diagnostics.error(action.span, message);
                return None;
            }
        };
        let module = self.options.library.find(short_name(&name));
        if module.is_none() {
            let key = Key { name: name.into(), span };
            self.diagnostics.push(unknown_module(&self.options.library, &key, Holder::Task));
        }
        Some((module?, args))
    }

    /// The arguments together with those under `args:`.
    fn with_args(&mut self, mut args: Node, task: &Map) -> Node {
        let Some(more) = task.get("args").filter(|node| !node.is_null()) else {
            return args;
        };
        let (Kind::Map(map), Some(more)) = (&mut args.kind, self.mapping(more, "`args`")) else {
            return args;
        };
        for (key, value) in more.iter() {
            match map.entry(&key.name) {
                Some((first, _)) => {
                    let twice = Diagnostic::error(key.span, format!("the argument `{}` is set twice", key.name));
                    self.diagnostics.push(twice.related(first.span, "first set here"));
                }
                None => map.push(key.clone(), value.clone()),
            }
        }
        args
    }

    /// `command: make creates=/x` means something else in Ansible: refuse rather than run it.
    fn reject_words_in_text(&mut self, module: &ModuleSpec, args: &Node) {
        const ARGUMENTS: &[&str] = &["creates", "removes", "chdir", "executable", "stdin"];
        let (Some(text), true) = (args.as_str(), module.traits.is_command_line) else {
            return;
        };
        let argument = text.split_whitespace().find_map(|word| word.split_once('=').map(|(name, _)| name));
        if let Some(name) = argument.filter(|name| ARGUMENTS.contains(name)) {
            let message = format!("`{name}=` inside the command is not read as an argument");
            let help = format!("write it under `args:`, as `{name}: ...`");
            self.diagnostics.push(Diagnostic::error(args.span, message).help(help));
        }
    }
}

fn unknown_module(library: &Library, key: &Key, holder: Holder) -> Diagnostic {
    let name = short_name(&key.name);
    let as_key = keywords::unknown_key(key, holder);
    if let Some(help) = ansible::instead_of(name) {
        return Diagnostic::error(key.span, format!("unknown module `{name}`")).help(help);
    }
    let near = did_you_mean(name, library.names());
    // A mistyped keyword is likelier than a module nobody knows.
    if near.is_none() && as_key.help.is_some() {
        return as_key;
    }
    let help = near.unwrap_or_else(|| "`etcdrun doc` lists the modules".to_owned());
    Diagnostic::error(key.span, format!("unknown module `{name}`")).help(help)
}
