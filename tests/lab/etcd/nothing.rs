//! Nothing: the package is only there to have a dependency.
