//! How a node runs: its parts are worked out, pass the policies, are sent, and are judged.

pub(super) mod detached;
pub(super) mod items;
pub(super) mod node;
pub(super) mod prepare;
pub(super) mod question;
pub(super) mod segment;
pub(super) mod surroundings;
pub(super) mod verdict;
