//! Graph: nodes are tasks on targets, edges are reasons.
