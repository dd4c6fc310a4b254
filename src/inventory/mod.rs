//! Inventory: hypervisors, hosts, groups, clusters and members, with their variables.
