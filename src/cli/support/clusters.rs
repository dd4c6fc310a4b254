//! Clusters of the inventory, by name.

use super::CliError;
use crate::{
    inventory::{Cluster, Inventory},
    source::{did_you_mean, from_node},
};

/// The cluster that is named, or the only one.
pub fn the_cluster(inventory: &Inventory, wanted: Option<&str>) -> Result<String, CliError> {
    let names: Vec<&str> = inventory.clusters().map(|cluster| cluster.name.as_str()).collect();
    match (wanted, names.as_slice()) {
        (Some(name), _) => find_cluster(inventory, name),
        (None, [only]) => Ok((*only).to_owned()),
        (None, []) => Err(CliError::usage("the inventory has no cluster")),
        (None, several) => {
            let help = format!("name one with --cluster: {}", several.join(", "));
            Err(CliError::usage_with_help("the inventory has several clusters", Some(help)))
        }
    }
}

/// The cluster of this name.
pub fn find_cluster(inventory: &Inventory, name: &str) -> Result<String, CliError> {
    if inventory.cluster(name).is_some() {
        return Ok(name.to_owned());
    }
    let names = inventory.clusters().map(|cluster| cluster.name.as_str());
    let help = did_you_mean(name, names);
    Err(CliError::usage_with_help(format!("there is no cluster `{name}` in the inventory"), help))
}

/// The names of its members, in their order.
pub fn member_names(inventory: &Inventory, cluster: &str) -> Vec<String> {
    let members = inventory.cluster(cluster).into_iter().flat_map(|cluster| &cluster.members);
    members.map(|id| inventory.host_by_id(*id).name.to_string()).collect()
}

/// A section of a cluster whose values are all known.
pub fn section<T: serde::de::DeserializeOwned + Default>(cluster: &Cluster, name: &str) -> Result<T, CliError> {
    let section = cluster.sections.get(name);
    section.map_or_else(|| Ok(T::default()), from_node).map_err(|_| {
        let cluster = &cluster.name;
        CliError::usage(format!("the section `{name}` of `{cluster}` contains templates, which only a run can render"))
    })
}
