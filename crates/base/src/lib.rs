//! What all layers share: the values that they exchange, the files that they read with the place of every word in them, secrets, and
//! templates. It reaches no host and prints nothing.

pub mod digest;
pub mod model;
pub mod mutant;
pub mod secret;
pub mod shell;
pub mod source;
pub mod state_folder;
pub mod template;
