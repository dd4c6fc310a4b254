//! Compile: a pure function from inventory and playbook to a graph. Same input, same bytes.
