//! What has to be so before and after a step: the journal, locks, the quorum, and what check mode can say. Each is a value with narrow
//! inputs, and knows no node.

pub(super) mod foresight;
pub(super) mod guard;
pub(super) mod locks;
pub(super) mod once;
pub(super) mod pending;
pub(super) mod wanted;
