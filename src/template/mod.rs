//! Templates: minijinja, strict about undefined names, with the filters people expect.

/// Renders templates.
#[derive(Clone)]
pub struct Engine;

/// Layered variables.
#[derive(Clone)]
pub struct Scope;
