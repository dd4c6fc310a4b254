//! The inventory, loaded from real files.

mod bad_input;
mod dynamic;
mod guests;
mod laws;
mod load;
mod patterns;
mod placement;
mod render;
mod scale;
mod sections;
mod support;
