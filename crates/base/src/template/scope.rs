//! Layered variables. The last layer that has a name wins; nothing is copied.

use std::{cmp::Ordering, fmt, sync::Arc};

use minijinja::value::{DynObject, Enumerator, Object};

use super::{Engine, convert, session, view};
use crate::{
    model::{Value, ValueMap},
    source::{Diagnostic, Vars},
};

/// One source of variables.
#[derive(Clone)]
pub enum Layer {
    /// As written in a file: strings may be templates, rendered when they are looked up.
    Nodes(Arc<Vars>),
    /// Known values, such as registered results: never rendered.
    Values(Arc<ValueMap>),
    /// Computed when asked for, such as `hostvars`.
    Dynamic(Arc<dyn DynamicLayer>),
}

/// Variables that are computed when they are looked up.
pub trait DynamicLayer: Send + Sync {
    fn get(&self, name: &str) -> Option<minijinja::Value>;
    fn contains(&self, name: &str) -> bool;
    fn names(&self) -> Vec<String>;
}

impl Layer {
    fn contains(&self, name: &str) -> bool {
        match self {
            Self::Nodes(vars) => vars.contains_key(name),
            Self::Values(values) => values.contains_key(name),
            Self::Dynamic(layer) => layer.contains(name),
        }
    }

    fn names(&self) -> Vec<String> {
        match self {
            Self::Nodes(vars) => vars.keys().map(ToString::to_string).collect(),
            Self::Values(values) => values.keys().cloned().collect(),
            Self::Dynamic(layer) => layer.names(),
        }
    }
}

impl fmt::Debug for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Values may be secret; their names are not.
        f.debug_list().entries(self.names()).finish()
    }
}

#[derive(Debug)]
struct Link {
    layer: Layer,
    below: Option<Arc<Link>>,
}

/// The variables one task on one target sees. Cheap to make, to clone and to extend.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    top: Option<Arc<Link>>,
}

impl Scope {
    /// Layers in rising precedence.
    pub fn new(layers: Vec<Layer>) -> Self {
        layers.into_iter().fold(Self::default(), |scope, layer| scope.with(layer))
    }

    /// The same variables with one more layer on top. What lies below is shared.
    pub fn with(&self, layer: Layer) -> Self {
        Self { top: Some(Arc::new(Link { layer, below: self.top.clone() })) }
    }

    fn layers(&self) -> impl Iterator<Item = &Layer> {
        std::iter::successors(self.top.as_deref(), |link| link.below.as_deref()).map(|link| &link.layer)
    }

    pub fn contains(&self, name: &str) -> bool {
        self.layers().any(|layer| layer.contains(name))
    }

    /// Every name, sorted, each once.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.layers().flat_map(Layer::names).collect();
        names.sort();
        names.dedup();
        names
    }

    /// A variable, fully rendered; `None` if there is none of that name.
    pub fn get(&self, engine: &Engine, name: &str) -> Result<Option<Value>, Diagnostic> {
        session::enter(|| {
            let Some(value) = self.lookup(engine, name) else { return Ok(None) };
            convert::to_value(&value).map(Some).map_err(|error| engine.explain_plain(error, self))
        })
    }

    /// All variables as one lazy object, such as an entry of `hostvars`.
    pub fn to_object(&self, engine: &Engine) -> minijinja::Value {
        minijinja::Value::from_object(Context { engine: engine.clone(), scope: self.clone(), depth: 0 })
    }

    pub(super) fn lookup(&self, engine: &Engine, name: &str) -> Option<minijinja::Value> {
        self.lookup_at(engine, name, 0)
    }

    fn lookup_at(&self, engine: &Engine, name: &str, depth: u8) -> Option<minijinja::Value> {
        self.layers().find_map(|layer| match layer {
            Layer::Nodes(vars) => view::of_variable(engine, self, vars, name, depth),
            Layer::Values(values) => view::of_value(values, name),
            Layer::Dynamic(layer) => layer.get(name),
        })
    }

    /// Tells scopes apart while they are alive.
    pub(super) fn address(&self) -> usize {
        self.top.as_ref().map_or(0, |link| Arc::as_ptr(link).addr())
    }
}

/// A scope as minijinja sees it.
pub(super) struct Context {
    engine: Engine,
    scope: Scope,
    /// How much leads to it, when it is a value inside others.
    depth: u8,
}

impl Context {
    pub fn at_depth(value: &minijinja::Value, depth: u8) -> Option<minijinja::Value> {
        let Self { engine, scope, .. } = value.downcast_object_ref()?;
        Some(minijinja::Value::from_object(Self { engine: engine.clone(), scope: scope.clone(), depth }))
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.scope.fmt(f)
    }
}

impl Object for Context {
    fn get_value(self: &Arc<Self>, key: &minijinja::Value) -> Option<minijinja::Value> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<minijinja::Value> {
        self.scope.lookup_at(&self.engine, key, self.depth)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.scope.names().into_iter().map(minijinja::Value::from).collect())
    }

    fn custom_cmp(self: &Arc<Self>, other: &DynObject) -> Option<Ordering> {
        view::compare(self, other)
    }
}
