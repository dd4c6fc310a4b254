//! Names that the engine itself provides to templates.

use std::{path::Path, sync::Arc};

use minijinja::value::{Enumerator, Object, ObjectRepr, Value};

use super::context::{Context, Watch};
use crate::{compile::SPECIAL_NAMES, graph::PlayIndex, playbook::Task, template::DynamicLayer};

pub(super) struct Specials {
    context: Arc<Context>,
    play: PlayIndex,
    role: Option<Arc<str>>,
    watch: Watch,
}

impl Specials {
    pub(super) fn new(context: Arc<Context>, play: PlayIndex, task: &Task, watch: Watch) -> Self {
        let role = task.role.as_ref().map(|role| role.name.clone());
        Self { context, play, role, watch }
    }

    fn play_hosts(&self) -> Value {
        let play = self.context.graph.play(self.play);
        play.hosts.iter().map(|host| self.context.graph.host(*host).as_str()).collect()
    }

    /// Absolute, because a task on the operator's machine does not run in the folder that etcdrun was called in.
    fn playbook_dir(&self) -> Value {
        let playbook = std::path::absolute(&self.context.graph.playbook).ok();
        let folder = playbook.as_deref().and_then(Path::parent);
        folder.map_or_else(|| ".".into(), |folder| folder.display().to_string()).into()
    }

    /// Where runs, keys and snapshots are kept.
    fn state_dir(&self) -> Value {
        let state = &self.context.options.state;
        std::path::absolute(state).unwrap_or_else(|_| state.clone()).display().to_string().into()
    }
}

impl DynamicLayer for Specials {
    fn get(&self, name: &str) -> Option<Value> {
        match name {
            "hostvars" => {
                Some(Value::from_object(HostVars { context: self.context.clone(), watch: self.watch.clone() }))
            }
            "play_hosts" | "ansible_play_hosts" => Some(self.play_hosts()),
            "ansible_check_mode" => Some(self.context.options.check_mode.into()),
            "role_name" => self.role.as_deref().map(Value::from),
            "playbook_dir" => Some(self.playbook_dir()),
            "state_dir" => Some(self.state_dir()),
            _ => None,
        }
    }

    fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    fn names(&self) -> Vec<String> {
        SPECIAL_NAMES.iter().filter(|name| self.contains(name)).map(|name| (*name).to_owned()).collect()
    }
}

/// `hostvars['name']`: the variables of any host.
struct HostVars {
    context: Arc<Context>,
    watch: Watch,
}

impl std::fmt::Debug for HostVars {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("hostvars")
    }
}

impl Object for HostVars {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Map
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let host = self.context.inventory.host(key.as_str()?)?.id;
        Some(self.context.host_scope(host, &self.watch).to_object(&self.context.engine))
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.context.graph.hosts.iter().map(|name| Value::from(name.as_str())).collect())
    }
}
