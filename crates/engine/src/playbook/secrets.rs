//! Secrets must not travel in environments, where any process of the same user can read them.

use std::collections::HashSet;

use super::types::{Play, Task};
use crate::{
    model::Span,
    source::{Diagnostic, Kind, Node},
    template::names_in_template,
};

/// Looks up a variable as one task sees it.
pub type Lookup<'l, 'v> = &'l dyn Fn(&str) -> Option<&'v Node>;

/// Reports values in a task's `environment` that are encrypted, or come from a variable that is.
/// The loader calls this with the variables of playbook and roles; whoever knows the inventory
/// calls it again with those as well.
pub fn secrets_in_environment(task: &Task, lookup: Lookup<'_, '_>) -> Vec<Diagnostic> {
    let entries = task.environment.iter().flat_map(|node| match &node.kind {
        Kind::Map(map) => map.iter().map(|(key, value)| (&*key.name, value)).collect(),
        _ => vec![("environment", node)],
    });
    entries.filter_map(|(name, value)| Some(refusal(name, value, Search::new(lookup).secret_in(value)?))).collect()
}

fn refusal(name: &str, value: &Node, secret: Span) -> Diagnostic {
    let problem = Diagnostic::error(value.span, format!("`{name}` would put a secret into the environment"));
    let problem = if secret == value.span { problem } else { problem.related(secret, "the secret") };
    problem.help("pass it on `stdin` of the command, or write it to a file with mode 0600 by `copy` or `template`")
}

/// The variables of a play and its roles, as a task sees them.
pub(super) fn visible<'p>(play: &'p Play, task: &'p Task, name: &str) -> Option<&'p Node> {
    let roles: Vec<_> = task.role.iter().flat_map(|role| role.chain()).collect();
    let params = roles.iter().rev().filter_map(|role| role.params.get(name));
    let own = task.vars.iter().rev().filter_map(|vars| vars.get(name));
    let role_vars = roles.iter().rev().filter_map(|role| role.vars.get(name));
    let of_play = play.vars_files.get(name).into_iter().chain(play.vars.get(name));
    let defaults = roles.iter().rev().filter_map(|role| role.defaults.get(name));
    own.chain(params).chain(role_vars).chain(of_play).chain(defaults).next()
}

/// Follows variables to the value they are made of.
struct Search<'l, 'v> {
    lookup: Lookup<'l, 'v>,
    seen: HashSet<String>,
}

impl<'l, 'v> Search<'l, 'v> {
    fn new(lookup: Lookup<'l, 'v>) -> Self {
        Self { lookup, seen: HashSet::new() }
    }

    /// Where the first secret in a value, or in what its templates refer to, was written.
    fn secret_in(&mut self, node: &Node) -> Option<Span> {
        if node.is_secret() {
            return Some(node.span);
        }
        match &node.kind {
            Kind::Seq(items) => items.iter().find_map(|item| self.secret_in(item)),
            Kind::Map(map) => map.iter().find_map(|(_, value)| self.secret_in(value)),
            Kind::String(text) if node.is_template() => self.secret_used_by(text),
            _ => None,
        }
    }

    fn secret_used_by(&mut self, text: &str) -> Option<Span> {
        // A template that is not valid has been reported.
        let names = names_in_template(text).unwrap_or_default();
        names.iter().find_map(|name| {
            if !self.seen.insert(name.path.join(".")) {
                return None;
            }
            let node = (self.lookup)(name.root())?;
            self.secret_in(inner(node, name.path.get(1..).unwrap_or_default()))
        })
    }
}

/// The value a path leads to, or the last one on the way that is known.
fn inner<'n>(node: &'n Node, path: &[String]) -> &'n Node {
    let mut node = node;
    for step in path {
        let below = match &node.kind {
            _ if node.tag.is_some() => None,
            Kind::Map(map) => map.get(step),
            Kind::Seq(items) => step.parse::<usize>().ok().and_then(|index| items.get(index)),
            _ => None,
        };
        let Some(below) = below else { break };
        node = below;
    }
    node
}
