//! Where, as whom and in which surroundings a node runs.

use std::sync::Arc;

use crate::execute::node::{NodeError, NodeRun};
use crate::{
    compile::OPERATOR_NAMES,
    inventory::{HostId, HostKind},
    model::Value,
    playbook::On,
    remote::{Session, Surroundings},
    template::Scope,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::execute) enum Target {
    Host(HostId),
    Operator,
}

impl NodeRun {
    pub(in crate::execute) fn session(&self, scope: &Scope) -> Result<Session, NodeError> {
        let target = self.target(scope)?;
        let link = match target {
            Target::Host(host) => self.context.fleet.link(host),
            Target::Operator => self.context.fleet.operator(),
        };
        let surroundings = Surroundings {
            become_user: self.become_user(scope, target)?,
            environment: Arc::new(self.environment(scope)?),
            diff: self.task.diff.unwrap_or(self.context.options.diff),
            check_mode: self.check_mode(),
            timeout: self.task.timeout.or(self.context.options.command_timeout),
        };
        Ok(link.session(surroundings))
    }

    pub(in crate::execute) fn target(&self, scope: &Scope) -> Result<Target, NodeError> {
        if let Some(target) = self.context.graph.node(self.index).target {
            return Ok(Target::Host(target));
        }
        match self.task.on.as_ref().map(|on| on.value) {
            Some(On::Operator) => return Ok(Target::Operator),
            Some(On::Hypervisor) if self.context.inventory.host_by_id(self.host).kind != HostKind::Hypervisor => {
                let name = &self.context.inventory.host_by_id(self.host).name;
                return Err(NodeError::failed(format!("this runs on the hypervisor of {name}, which has none")));
            }
            _ => {}
        }
        let Some(delegate) = &self.task.delegate_to else { return Ok(Target::Host(self.host)) };
        let name = self.render(delegate, scope)?;
        let name = name.as_str().unwrap_or_default();
        match self.context.inventory.host(name) {
            Some(host) => Ok(Target::Host(host.id)),
            None if OPERATOR_NAMES.contains(&name) => Ok(Target::Operator),
            None => Err(NodeError::failed(format!("`delegate_to` names `{name}`, which is not in the inventory"))),
        }
    }

    /// The nearest word on `become` wins: the task and what it is in, the command line, the inventory.
    fn become_user(&self, scope: &Scope, target: Target) -> Result<Option<Arc<str>>, NodeError> {
        let options = &self.context.options;
        let host = match target {
            Target::Host(host) => Some(self.context.inventory.host_by_id(host)),
            Target::Operator => None,
        };
        let by_inventory = host.and_then(|host| host.r#become);
        let wanted = self.task.r#become.wanted.or(options.r#become.then_some(true)).or(by_inventory);
        if wanted != Some(true) {
            return Ok(None);
        }
        let by_inventory = || host.and_then(|host| host.become_user.as_deref().map(Arc::from));
        let user = self.task.r#become.user.clone().or_else(|| options.become_user.clone()).or_else(by_inventory);
        let user = user.unwrap_or_else(|| "root".into());
        let rendered = self.context.engine.render_str(&user, self.task.span, scope);
        let user = rendered.map_err(|problem| NodeError::diagnostic(&self.context, &problem))?;
        Ok(Some(user.into()))
    }

    fn environment(&self, scope: &Scope) -> Result<Vec<(String, String)>, NodeError> {
        let mut merged = indexmap::IndexMap::new();
        for node in &self.task.environment {
            let rendered = self.render(node, scope)?;
            let Some(map) = rendered.as_map() else {
                return Err(NodeError::failed(format!("`environment` takes a mapping, found {}", rendered.describe())));
            };
            for (key, value) in map.iter() {
                let text = match value.to_value() {
                    Value::String(text) => text,
                    Value::Null => String::new(),
                    other => other.to_string(),
                };
                merged.insert(key.name.to_string(), text);
            }
        }
        Ok(merged.into_iter().collect())
    }
}
