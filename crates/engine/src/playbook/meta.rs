//! A role's `meta/main.yaml`: what it depends on, and the arguments it takes.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    model::Value,
    source::{Diagnostics, Map, Node, from_node},
};

/// `meta/main.yaml` of a role.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Role meta")]
struct MetaFile {
    /// Roles that run before this one: names, or entries as under a play's `roles`.
    #[serde(default)]
    #[expect(dead_code, reason = "read from the node, where entries keep their places")]
    dependencies: Option<Vec<Value>>,
    /// The arguments the role takes. Once there is a list, anything else is an error.
    #[serde(default)]
    arguments: Option<IndexMap<String, ArgumentSpec>>,
    /// Whether a second use with the same arguments runs again.
    #[serde(default)]
    allow_duplicates: bool,
    /// Accepted and ignored.
    #[serde(default)]
    #[expect(dead_code, reason = "accepted for Ansible's sake")]
    galaxy_info: Option<Value>,
    /// Accepted and ignored.
    #[serde(default)]
    #[expect(dead_code, reason = "accepted for Ansible's sake")]
    collections: Option<Value>,
    /// Accepted and ignored.
    #[serde(default)]
    #[expect(dead_code, reason = "accepted for Ansible's sake")]
    argument_specs: Option<Value>,
    /// Accepted and ignored.
    #[serde(default)]
    #[expect(dead_code, reason = "accepted for Ansible's sake")]
    standalone: Option<bool>,
}

/// One argument of a role.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ArgumentSpec {
    /// What kind of value it takes.
    #[serde(default, rename = "type")]
    pub(super) kind: ArgumentType,
    /// The value when none is passed.
    #[serde(default)]
    pub(super) default: Option<Value>,
    /// Whether a use without it is an error.
    #[serde(default)]
    pub(super) required: bool,
    /// The only values it may have.
    #[serde(default)]
    pub(super) choices: Option<Vec<Value>>,
    /// What it is for.
    #[serde(default)]
    #[expect(dead_code, reason = "for people and editors")]
    description: Option<Value>,
    /// For lists: the kind of each element.
    #[serde(default)]
    pub(super) elements: Option<ArgumentType>,
    /// For mappings, and lists of them: the keys they take.
    #[serde(default)]
    pub(super) options: Option<IndexMap<String, ArgumentSpec>>,
}

/// The kinds of values an argument can have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum ArgumentType {
    #[default]
    #[serde(alias = "str")]
    String,
    Int,
    Float,
    Bool,
    List,
    Dict,
    Path,
    Size,
    Duration,
}

/// One declared argument, with its default where it was written.
pub(super) struct Argument {
    pub(super) name: String,
    pub(super) spec: ArgumentSpec,
    pub(super) default: Option<Node>,
}

#[derive(Default)]
pub(super) struct Meta {
    pub(super) dependencies: Vec<Node>,
    pub(super) arguments: Option<Vec<Argument>>,
    pub(super) allow_duplicates: bool,
}

impl Meta {
    pub(super) fn read(node: &Node, diagnostics: &mut Diagnostics) -> Self {
        let file = match from_node::<Option<MetaFile>>(node) {
            Ok(file) => file.unwrap_or_default(),
            Err(problems) => {
                problems.into_iter().for_each(|problem| diagnostics.push(problem));
                return Self::default();
            }
        };
        let part = |key| node.as_map().and_then(|map| map.get(key));
        let dependencies = part("dependencies").and_then(Node::as_seq).unwrap_or_default().to_vec();
        let written = part("arguments").and_then(Node::as_map);
        let arguments = file.arguments.map(|specs| specs.into_iter().map(|spec| declared(spec, written)).collect());
        Self { dependencies, arguments, allow_duplicates: file.allow_duplicates }
    }
}

fn declared((name, spec): (String, ArgumentSpec), written: Option<&Map>) -> Argument {
    let node = written.and_then(|map| map.get(&name)).and_then(Node::as_map);
    let default = node.and_then(|map| map.get("default")).cloned();
    Argument { name, spec, default }
}

/// The JSON Schema of a role's `meta/main.yaml`.
pub fn meta_schema() -> Value {
    schemars::schema_for!(MetaFile).to_value()
}
