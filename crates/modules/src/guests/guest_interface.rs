//! A network interface of a guest, as several modules take it.

use std::net::IpAddr;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{ModuleError, domain_xml as xml, libvirt};
use crate::model::derived_mac;

/// An interface of a guest: one of `network`, `bridge` and `macvtap`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct GuestInterface {
    /// A libvirt network, by its name or UUID.
    pub network: Option<String>,
    /// A bridge of the hypervisor.
    pub bridge: Option<String>,
    /// An interface of the hypervisor to attach to directly, in the mode `bridge`.
    pub macvtap: Option<String>,
    /// The MAC address; default: derived from the guest's name and the interface's position.
    pub mac: Option<String>,
    /// The address with its prefix length, like 192.168.121.4/24; default: DHCP.
    pub ip: Option<String>,
    /// The gateway.
    pub gateway: Option<String>,
    /// Name servers.
    pub dns: Vec<String>,
}

/// What an interface is attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attachment<'a> {
    Network(&'a str),
    Bridge(&'a str),
    Macvtap(&'a str),
}

impl GuestInterface {
    pub fn attachment(&self) -> Result<Attachment<'_>, ModuleError> {
        let all = [
            self.network.as_deref().map(Attachment::Network),
            self.bridge.as_deref().map(Attachment::Bridge),
            self.macvtap.as_deref().map(Attachment::Macvtap),
        ];
        let given: Vec<_> = all.into_iter().flatten().collect();
        let [one] = given.as_slice() else {
            return Err(ModuleError::new("an interface is attached to one thing: `network`, `bridge` or `macvtap`"));
        };
        let (what, name) = match *one {
            Attachment::Network(name) => ("network", name),
            Attachment::Bridge(name) => ("bridge", name),
            Attachment::Macvtap(name) => ("network interface", name),
        };
        libvirt::check_name(what, name)?;
        Ok(*one)
    }

    pub fn mac(&self, guest: &str, position: usize) -> String {
        self.mac.as_ref().map_or_else(|| derived_mac(guest, position), |mac| mac.to_ascii_lowercase())
    }

    pub fn address(&self) -> Result<Option<IpNet>, ModuleError> {
        let wrong = |ip: &String| {
            ModuleError::new(format!("`{ip}` is not an address with its prefix length, like 192.168.121.4/24"))
        };
        self.ip.as_ref().map(|ip| ip.parse().map_err(|_| wrong(ip))).transpose()
    }

    pub fn gateway(&self) -> Result<Option<IpAddr>, ModuleError> {
        self.gateway.as_deref().map(parse_ip).transpose()
    }

    pub fn dns(&self) -> Result<Vec<IpAddr>, ModuleError> {
        self.dns.iter().map(|ip| parse_ip(ip)).collect()
    }

    /// The device in a domain; `network` is the name that the hypervisor knows the network by.
    pub fn device(&self, guest: &str, position: usize, network: Option<&str>) -> Result<xml::Interface, ModuleError> {
        let (kind, source) = match self.attachment()? {
            Attachment::Network(name) => {
                let network = Some(network.unwrap_or(name).to_owned());
                ("network", xml::InterfaceSource { network, ..Default::default() })
            }
            Attachment::Bridge(name) => {
                ("bridge", xml::InterfaceSource { bridge: Some(name.to_owned()), ..Default::default() })
            }
            Attachment::Macvtap(name) => {
                // libvirt's own default is vepa, which needs a switch that sends frames back.
                let mode = Some("bridge".to_owned());
                ("direct", xml::InterfaceSource { dev: Some(name.to_owned()), mode, ..Default::default() })
            }
        };
        Ok(xml::Interface {
            kind: kind.to_owned(),
            mac: xml::Mac { address: self.mac(guest, position) },
            source,
            model: Some(xml::Model { kind: "virtio".to_owned() }),
        })
    }
}

fn parse_ip(text: &str) -> Result<IpAddr, ModuleError> {
    text.parse().map_err(|_| ModuleError::new(format!("`{text}` is not an IP address")))
}
