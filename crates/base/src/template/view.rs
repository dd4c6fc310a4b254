//! Variables as minijinja values, without copying: a map or a list is a view into its tree.

use std::{cmp::Ordering, fmt, sync::Arc};

use minijinja::{
    Value,
    value::{DynObject, Enumerator, Object, ObjectExt, ObjectRepr, ValueKind},
};

use super::{Engine, Scope, error::Failure, scope::Context, session};
use crate::{
    model::{self, ValueMap},
    source::{Diagnostic, Kind, Node, Vars},
};

/// How deep a value can be followed. Files are not nested that deep; a list that contains itself is.
const MAX_DEPTH: u8 = 200;

/// The value of a variable from a file, at a depth in whatever leads to it.
pub(super) fn of_variable(engine: &Engine, scope: &Scope, vars: &Arc<Vars>, name: &str, depth: u8) -> Option<Value> {
    let (index, _, node) = vars.get_full(name)?;
    Some(match scalar(engine, scope, node, || name.to_owned()) {
        Some(value) => deeper(value, depth),
        None => Value::from_object(NodeView {
            engine: engine.clone(),
            scope: scope.clone(),
            vars: vars.clone(),
            index,
            path: Box::default(),
            depth,
        }),
    })
}

/// The same value, further down. Only views can lead back to where they came from.
fn deeper(value: Value, depth: u8) -> Value {
    if let Some(view) = value.downcast_object_ref::<NodeView>() {
        return Value::from_object(NodeView { depth, ..view.clone() });
    }
    Context::at_depth(&value, depth).unwrap_or(value)
}

/// Whether a value is lazy and cannot be used up, so that it may be kept as it is.
pub(super) fn is_view(value: &Value) -> bool {
    value.downcast_object_ref::<NodeView>().is_some()
        || value.downcast_object_ref::<ValueView>().is_some()
        || Context::at_depth(value, 0).is_some()
}

/// The value of a node that is not a collection.
fn scalar(engine: &Engine, scope: &Scope, node: &Node, describe: impl FnOnce() -> String) -> Option<Value> {
    Some(match &node.kind {
        _ if node.is_sealed() => failed(sealed(node)),
        Kind::Null => Value::from(()),
        Kind::Bool(b) => Value::from(*b),
        Kind::Int(n) => Value::from(*n),
        Kind::Float(n) => Value::from(*n),
        Kind::String(_) if super::engine::is_rendered(node) => {
            session::render(engine, scope, node, describe).unwrap_or_else(failed)
        }
        Kind::String(text) => Value::from(text.clone()),
        Kind::Seq(_) | Kind::Map(_) => return None,
    })
}

/// Nothing may be concluded from a text that is not the value.
fn sealed(node: &Node) -> Diagnostic {
    Diagnostic::error(node.span, "this value is encrypted, and this command does not decrypt it")
}

fn failed(problem: Diagnostic) -> Value {
    session::note_failure(&problem);
    Failure::into_value(problem)
}

/// The items of a collection for a comparison, with keys in order. minijinja panics when it orders
/// two failed values; they compare as undefined instead, and the run fails all the same.
fn comparable(view: &Arc<impl Object + 'static>) -> Vec<(Value, Value)> {
    let settle = |value: Value| if value.kind() == ValueKind::Invalid { Value::UNDEFINED } else { value };
    let pairs = view.try_iter_pairs().into_iter().flatten();
    let mut pairs: Vec<_> = pairs.map(|(key, value)| (key, settle(value))).collect();
    if view.repr() == ObjectRepr::Map {
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
    }
    pairs
}

/// Orders two objects of one type.
pub(super) fn compare<T: Object + 'static>(view: &Arc<T>, other: &DynObject) -> Option<Ordering> {
    let other = other.downcast::<T>()?;
    Some(comparable(view).cmp(&comparable(&other)))
}

/// A list or a map in a variable. Templates inside are rendered one by one, when they are asked for.
#[derive(Clone)]
struct NodeView {
    engine: Engine,
    scope: Scope,
    vars: Arc<Vars>,
    /// Which variable.
    index: usize,
    /// The way from the variable to the collection: positions in lists and maps.
    path: Box<[u32]>,
    depth: u8,
}

impl NodeView {
    fn node(&self) -> Option<&Node> {
        let (_, root) = self.vars.get_index(self.index)?;
        self.path.iter().try_fold(root, |node, &step| child(node, step as usize))
    }

    fn child(&self, position: usize) -> Option<Value> {
        let node = child(self.node()?, position)?;
        if !session::take_step(self.depth < MAX_DEPTH) {
            let message = format!("`{}` contains itself, or is far too large", self.describe(position));
            return Some(failed(Diagnostic::error(node.span, message)));
        }
        if let Some(value) = scalar(&self.engine, &self.scope, node, || self.describe(position)) {
            return Some(deeper(value, self.depth + 1));
        }
        let step = u32::try_from(position).ok()?;
        let path = self.path.iter().copied().chain([step]).collect();
        Some(Value::from_object(Self { path, depth: self.depth + 1, ..self.clone() }))
    }

    /// `etcd.members[0].address`, for messages.
    fn describe(&self, position: usize) -> String {
        let Some((name, root)) = self.vars.get_index(self.index) else { return String::new() };
        let (mut text, mut node) = (name.to_string(), root);
        let last = u32::try_from(position).unwrap_or(u32::MAX);
        for step in self.path.iter().copied().chain([last]) {
            match &node.kind {
                Kind::Map(map) => {
                    let key = map.iter().nth(step as usize).map_or("", |(key, _)| &*key.name);
                    text += &format!(".{key}");
                }
                _ => text += &format!("[{step}]"),
            }
            let Some(next) = child(node, step as usize) else { break };
            node = next;
        }
        text
    }
}

fn child(node: &Node, position: usize) -> Option<&Node> {
    match &node.kind {
        Kind::Seq(items) => items.get(position),
        Kind::Map(map) => map.iter().nth(position).map(|(_, node)| node),
        _ => None,
    }
}

impl fmt::Debug for NodeView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NodeView").field(&self.vars.get_index(self.index).map(|(name, _)| name)).finish()
    }
}

impl Object for NodeView {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        match self.node().map(|node| &node.kind) {
            Some(Kind::Seq(_)) => ObjectRepr::Seq,
            _ => ObjectRepr::Map,
        }
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        match &self.node()?.kind {
            Kind::Seq(_) => self.child(key.as_usize()?),
            // YAML keys are strings here, also those written as numbers.
            _ => match key.as_str() {
                Some(name) => self.get_value_by_str(name),
                None => self.get_value_by_str(&key.as_i64()?.to_string()),
            },
        }
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        let position = self.node()?.as_map()?.iter().position(|(name, _)| &*name.name == key)?;
        self.child(position)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        match self.node().map(|node| &node.kind) {
            Some(Kind::Seq(items)) => Enumerator::Seq(items.len()),
            Some(Kind::Map(map)) => {
                Enumerator::Values(map.iter().map(|(key, _)| Value::from(key.name.clone())).collect())
            }
            _ => Enumerator::Empty,
        }
    }

    fn custom_cmp(self: &Arc<Self>, other: &DynObject) -> Option<Ordering> {
        compare(self, other)
    }
}

/// A variable whose value is known. Nothing in it is rendered.
pub(super) fn of_value(values: &Arc<ValueMap>, name: &str) -> Option<Value> {
    let value = values.get(name)?;
    Some(match json_scalar(value) {
        Some(scalar) => scalar,
        None => Value::from_object(ValueView { values: values.clone(), name: name.into(), path: Box::default() }),
    })
}

fn json_scalar(value: &model::Value) -> Option<Value> {
    Some(match value {
        model::Value::Null => Value::from(()),
        model::Value::Bool(b) => Value::from(*b),
        model::Value::Number(n) => number(n),
        model::Value::String(text) => Value::from(text.as_str()),
        model::Value::Array(_) | model::Value::Object(_) => return None,
    })
}

fn number(n: &serde_json::Number) -> Value {
    match (n.as_i64(), n.as_u64()) {
        (Some(n), _) => Value::from(n),
        (_, Some(n)) => Value::from(n),
        _ => Value::from(n.as_f64().unwrap_or(f64::NAN)),
    }
}

#[derive(Clone)]
enum Step {
    Position(usize),
    Key(Arc<str>),
}

/// A list or a map in a known value.
struct ValueView {
    values: Arc<ValueMap>,
    name: Arc<str>,
    path: Box<[Step]>,
}

impl ValueView {
    fn value(&self) -> Option<&model::Value> {
        self.path.iter().try_fold(self.values.get(&*self.name)?, |value, step| json_child(value, step))
    }

    fn child(&self, step: Step) -> Option<Value> {
        let value = json_child(self.value()?, &step)?;
        if let Some(scalar) = json_scalar(value) {
            return Some(scalar);
        }
        let path = self.path.iter().cloned().chain([step]).collect();
        Some(Value::from_object(Self { values: self.values.clone(), name: self.name.clone(), path }))
    }
}

fn json_child<'v>(value: &'v model::Value, step: &Step) -> Option<&'v model::Value> {
    match step {
        Step::Position(position) => value.get(position),
        Step::Key(key) => value.get(&**key),
    }
}

impl fmt::Debug for ValueView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ValueView").field(&self.name).finish()
    }
}

impl Object for ValueView {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        if self.value().is_some_and(model::Value::is_array) { ObjectRepr::Seq } else { ObjectRepr::Map }
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        match (self.value()?, key.as_str()) {
            (model::Value::Array(_), _) => self.child(Step::Position(key.as_usize()?)),
            (_, Some(name)) => self.get_value_by_str(name),
            (_, None) => self.get_value_by_str(&key.as_i64()?.to_string()),
        }
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        self.child(Step::Key(key.into()))
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        match self.value() {
            Some(model::Value::Array(items)) => Enumerator::Seq(items.len()),
            Some(model::Value::Object(map)) => {
                Enumerator::Values(map.keys().map(|key| Value::from(key.as_str())).collect())
            }
            _ => Enumerator::Empty,
        }
    }
}
