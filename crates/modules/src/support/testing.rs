//! Helps unit tests to build the action of one module from YAML and variables.

use std::sync::Arc;

use super::{Action, BuildContext, Module, ModuleSpec};
use crate::{
    model::{Outcome, Value},
    source::{Diagnostics, Node, Sources, parse},
    template::{Engine, Layer, Scope},
};

pub(crate) fn node(yaml: &str) -> Node {
    let mut sources = Sources::default();
    let file = sources.add("test.yaml", yaml);
    parse(&sources, file, &mut Diagnostics::default()).expect("YAML")
}

fn build<M: Module>(yaml: &str, vars: &Value) -> Result<Action, String> {
    let args = node(yaml);
    let scope = Scope::new(vec![Layer::Values(Arc::new(vars.as_object().cloned().unwrap_or_default()))]);
    let context = BuildContext {
        engine: &Engine::new(),
        scope: &scope,
        file_paths: &[],
        template_paths: &[],
        check_mode: false,
        sources: &Sources::default(),
        span: args.span,
    };
    let built = ModuleSpec::of::<M>().build(&args, &context);
    built.map(|(_, action)| action).map_err(|found| found[0].message.clone())
}

/// The outcome of a module that needs no target.
pub(crate) fn done<M: Module>(yaml: &str, vars: &Value) -> Outcome {
    match build::<M>(yaml, vars) {
        Ok(Action::Done(outcome)) => *outcome,
        Ok(_) => panic!("{} wants a target", M::NAME),
        Err(message) => panic!("{message}"),
    }
}

pub(crate) fn module_error<M: Module>(yaml: &str, vars: &Value) -> String {
    build::<M>(yaml, vars).err().expect("an error")
}
