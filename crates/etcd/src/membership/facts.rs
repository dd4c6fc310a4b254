//! What the inventory knows of a member, as far as it matters here.

use crate::{
    inventory::{Host, Inventory},
    membership::{Listing, Refusal},
    model::Value,
    source::{Node, did_you_mean},
};

/// A member of the inventory.
#[derive(Clone, Debug)]
pub struct Facts {
    pub name: String,
    pub ip: String,
    pub hypervisor: Option<String>,
    pub is_guest: bool,
    pub interfaces: Vec<Value>,
}

impl Facts {
    pub fn of(host: &Host) -> Self {
        let member = host.var("member").and_then(Node::as_map);
        let field = |name: &str| member.and_then(|member| member.get(name));
        let hypervisor = host.hypervisor.as_ref().map(ToString::to_string);
        let interfaces = field("interfaces").map(Node::to_value);
        Self {
            name: host.name.to_string(),
            ip: field("ip").and_then(Node::as_str).unwrap_or_else(|| host.address()).to_owned(),
            is_guest: hypervisor.is_some() && field("guest").is_some(),
            hypervisor,
            interfaces: interfaces.and_then(|list| list.as_array().cloned()).unwrap_or_default(),
        }
    }

    pub fn listing(&self) -> Listing {
        Listing { name: self.name.clone(), ip: self.ip.clone() }
    }
}

/// The member of a name, and its cluster.
pub fn member<'i>(inventory: &'i Inventory, name: &str) -> Result<(&'i Host, &'i str), Refusal> {
    if let Some((host, cluster)) = inventory.host(name).and_then(|host| Some((host, host.cluster()?))) {
        return Ok((host, cluster.as_str()));
    }
    let members = inventory.hosts().filter(|host| host.cluster().is_some());
    let names: Vec<&str> = members.map(|host| host.name.as_str()).collect();
    let help = did_you_mean(name, names.iter().copied()).unwrap_or_else(|| format!("there are {}", names.join(", ")));
    Err(Refusal::input(format!("there is no member `{name}` in the inventory"), help))
}

/// The members of a cluster, in their order.
pub fn members(inventory: &Inventory, cluster: &str) -> Vec<Facts> {
    let ids = inventory.cluster(cluster).into_iter().flat_map(|cluster| &cluster.members);
    ids.map(|id| Facts::of(inventory.host_by_id(*id))).collect()
}

/// The hypervisor of a name.
pub fn hypervisor<'i>(inventory: &'i Inventory, name: &str) -> Result<&'i Host, Refusal> {
    let found = inventory.hypervisors().find(|host| host.name.as_str() == name);
    found.ok_or_else(|| {
        let names: Vec<&str> = inventory.hypervisors().map(|host| host.name.as_str()).collect();
        let help = match did_you_mean(name, names.iter().copied()) {
            Some(near) => near,
            None if names.is_empty() => "the inventory has none".to_owned(),
            None => format!("there are {}", names.join(", ")),
        };
        Refusal::input(format!("there is no hypervisor `{name}` in the inventory"), help)
    })
}
