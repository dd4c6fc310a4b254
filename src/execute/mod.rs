//! Execute: walks the graph. Every ready node runs, within limits.
