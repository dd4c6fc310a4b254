//! `libvirt_network`: networks of a hypervisor.

use std::net::IpAddr;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, ResultField, Running,
    domain_xml::to_xml, libvirt,
};
use crate::{
    model::{Diff, Disruption, Effects, Outcome, Value},
    remote::Payload,
};

const LOOK: &str = concat!(include_str!("libvirt.sh"), include_str!("libvirt_network_look.sh"));
const APPLY: &str = concat!(include_str!("libvirt.sh"), include_str!("libvirt_network_apply.sh"));

/// Manages a libvirt network: defined, started, started at boot.
///
/// A network that is in use is never restarted, because that would disconnect its guests: a changed definition is written, and
/// `needs_restart` reports that it has not taken effect yet.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LibvirtNetwork {
    name: String,
    /// How guests reach other networks.
    #[serde(default)]
    mode: Mode,
    /// The bridge: the one that libvirt creates, or with `mode: bridge` an existing one.
    #[serde(default)]
    bridge: Option<String>,
    /// The hypervisor's own address in the network, with its prefix length.
    #[serde(default)]
    address: Option<String>,
    /// The first address for DHCP.
    #[serde(default)]
    dhcp_start: Option<String>,
    /// The last address for DHCP.
    #[serde(default)]
    dhcp_end: Option<String>,
    /// Start the network when the hypervisor boots.
    #[serde(default = "yes")]
    autostart: bool,
    #[serde(default)]
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Mode {
    /// Through the hypervisor and with its address; guests cannot be reached from outside.
    #[default]
    Nat,
    /// Through the hypervisor, under their own addresses.
    Route,
    /// Not at all.
    Isolated,
    /// By an existing bridge of the hypervisor.
    Bridge,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum State {
    #[default]
    Present,
    Absent,
}

fn yes() -> bool {
    true
}

/// What is managed of a network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename = "network")]
struct NetworkXml {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    forward: Option<Forward>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bridge: Option<Bridge>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ip: Vec<Ip>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Forward {
    #[serde(rename = "@mode", default)]
    mode: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Bridge {
    #[serde(rename = "@name", default)]
    name: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Ip {
    #[serde(rename = "@family", default, skip_serializing_if = "Option::is_none")]
    family: Option<String>,
    #[serde(rename = "@address", default)]
    address: String,
    #[serde(rename = "@prefix", default, skip_serializing_if = "Option::is_none")]
    prefix: Option<u8>,
    #[serde(rename = "@netmask", default, skip_serializing_if = "Option::is_none")]
    netmask: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dhcp: Option<Dhcp>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Dhcp {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    range: Vec<Range>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Range {
    #[serde(rename = "@start")]
    start: String,
    #[serde(rename = "@end")]
    end: String,
}

impl NetworkXml {
    /// One spelling for what can be said in two ways; what libvirt chose by itself is left out.
    fn normalized(mut self, wanted: &Self) -> Self {
        if wanted.bridge.is_none() {
            self.bridge = None;
        }
        for ip in &mut self.ip {
            let mask = ip.netmask.take().and_then(|mask| mask.parse::<IpAddr>().ok());
            ip.prefix = ip.prefix.or_else(|| ipnet::ip_mask_to_prefix(mask?).ok());
            ip.family = ip.family.take().filter(|family| family != "ipv4");
            ip.dhcp = ip.dhcp.take().filter(|dhcp| !dhcp.range.is_empty());
        }
        self
    }
}

impl Module for LibvirtNetwork {
    const NAME: &'static str = "libvirt_network";
    const EXAMPLE: &'static str = "\
- name: Define a network for the guests
  libvirt_network:
    name: mynetwork
    bridge: cqgc0
    address: 192.168.121.1/24
";
    const RESULT: &'static [ResultField] = &[
        ResultField { name: "needs_restart", doc: "Whether the network is not yet what is defined." },
        ResultField { name: "reason", doc: "Why it needs a restart." },
    ];

    fn effects(&self) -> Effects {
        let disrupts = if self.state == State::Absent { Disruption::Maybe } else { Disruption::No };
        Effects::converging().disrupting(disrupts)
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        libvirt::check_name("network", &self.name)?;
        let wanted = self.network()?;
        Ok(Action::Engine(Box::new(Keep { wanted, module: self })))
    }
}

impl LibvirtNetwork {
    fn network(&self) -> Result<NetworkXml, ModuleError> {
        if let Some(bridge) = &self.bridge {
            libvirt::check_name("bridge", bridge)?;
        }
        let ip = self.ip()?;
        match (self.mode, &self.bridge, &ip) {
            (Mode::Bridge, None, _) => Err(ModuleError::new("`mode: bridge` needs the name of a `bridge` that exists")),
            (Mode::Bridge, _, Some(_)) => {
                Err(ModuleError::new("libvirt gives no address to an existing bridge; remove `address`"))
            }
            (Mode::Nat | Mode::Route, _, None) if self.state == State::Present => {
                Err(ModuleError::new("the network needs an `address`, which the hypervisor has in it"))
            }
            _ => Ok(NetworkXml {
                name: self.name.clone(),
                forward: self.mode.forward().map(|mode| Forward { mode: mode.into() }),
                bridge: self.bridge.clone().map(|name| Bridge { name }),
                ip: ip.into_iter().collect(),
            }),
        }
    }

    fn ip(&self) -> Result<Option<Ip>, ModuleError> {
        let Some(address) = &self.address else {
            return match self.dhcp_start.is_some() || self.dhcp_end.is_some() {
                true => Err(ModuleError::new("DHCP needs the network of `address`, which is missing")),
                false => Ok(None),
            };
        };
        let network: IpNet = address.parse().map_err(|_| {
            ModuleError::new(format!("`{address}` is not an address with its prefix length, like 192.168.121.1/24"))
        })?;
        let dhcp = match (&self.dhcp_start, &self.dhcp_end) {
            (Some(start), Some(end)) => {
                Some(Dhcp { range: vec![Range { start: inside(network, start)?, end: inside(network, end)? }] })
            }
            (None, None) => None,
            _ => return Err(ModuleError::new("`dhcp_start` and `dhcp_end` go together")),
        };
        Ok(Some(Ip {
            family: network.addr().is_ipv6().then(|| "ipv6".into()),
            address: network.addr().to_string(),
            prefix: Some(network.prefix_len()),
            netmask: None,
            dhcp,
        }))
    }
}

fn inside(network: IpNet, text: &str) -> Result<String, ModuleError> {
    match text.parse::<IpAddr>() {
        Ok(ip) if network.contains(&ip) => Ok(ip.to_string()),
        Ok(ip) => Err(ModuleError::new(format!("{ip} is not in the network {}", network.trunc()))),
        Err(_) => Err(ModuleError::new(format!("`{text}` is not an IP address"))),
    }
}

impl Mode {
    fn forward(self) -> Option<&'static str> {
        match self {
            Self::Nat => Some("nat"),
            Self::Route => Some("route"),
            Self::Bridge => Some("bridge"),
            Self::Isolated => None,
        }
    }
}

struct Keep {
    module: LibvirtNetwork,
    wanted: NetworkXml,
}

impl EngineAction for Keep {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            let name = &self.module.name;
            let looked = context.run(Payload::new(LOOK).value("name", name)).await?;
            if looked.failed {
                return Ok(looked);
            }
            let text = |field: &str| looked.data.get(field).and_then(Value::as_str);
            let is = |field: &str| text(field) == Some("yes");
            let failed = |error: String| ActionError::Failed(format!("cannot read the network {name}: {error}"));
            let read = |text: &str| {
                let read: Result<NetworkXml, _> = quick_xml::de::from_str(text);
                read.map(|network| network.normalized(&self.wanted)).map_err(|error| failed(error.to_string()))
            };
            let defined = text("xml").map(read).transpose()?;
            let live = text("live_xml").map(read).transpose()?;
            if self.module.state == State::Absent {
                let is_there = defined.is_some();
                return self.finish(context, is_there, is_there.then_some("remove"), defined, live).await;
            }
            let define = defined.as_ref() != Some(&self.wanted);
            let steps = [
                (define, "define"),
                (!is("active"), "start"),
                (self.module.autostart && !is("autostart"), "autostart"),
                (!self.module.autostart && is("autostart"), "no-autostart"),
            ];
            let steps: Vec<&str> = steps.into_iter().filter(|(wanted, _)| *wanted).map(|(_, step)| step).collect();
            self.finish(context, define, steps, defined, live).await
        })
    }
}

impl Keep {
    async fn finish(
        &self,
        context: &ActionContext,
        differs: bool,
        steps: impl IntoIterator<Item = &str> + Send,
        defined: Option<NetworkXml>,
        live: Option<NetworkXml>,
    ) -> Result<Outcome, ActionError> {
        let failed = |error: quick_xml::SeError| ActionError::Failed(error.to_string());
        let steps: Vec<&str> = steps.into_iter().collect();
        let xml = to_xml(&self.wanted).map_err(failed)?;
        if !steps.is_empty() && !context.check_mode() {
            let payload = Payload::new(APPLY).value("name", &self.module.name).value("xml", &xml);
            let applied = context.run(steps.iter().fold(payload, Payload::arg)).await?;
            if applied.failed {
                return Ok(applied);
            }
        }
        let is_kept = self.module.state == State::Present;
        let before = defined.as_ref().map(to_xml).transpose().map_err(failed)?.unwrap_or_default();
        let label = format!("network {}", self.module.name);
        let after = if is_kept { xml } else { String::new() };
        let diff = differs.then_some(Diff { label, before, after });
        let stale = is_kept && live.is_some_and(|live| live != self.wanted);
        let outcome = Outcome { changed: !steps.is_empty(), diff: diff.into_iter().collect(), ..Outcome::ok() };
        let outcome = outcome.with("needs_restart", stale);
        Ok(match stale {
            true => {
                let reason = "the new definition takes effect after the network is stopped and started";
                Outcome { msg: format!("needs a restart: {reason}"), ..outcome }.with("reason", reason)
            }
            false => outcome,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libvirts_spelling_makes_no_difference() {
        let module: LibvirtNetwork = crate::source::from_node(&crate::support::testing::node(
            "{ name: n, address: 192.168.121.1/24, dhcp_start: 192.168.121.10, dhcp_end: 192.168.121.20 }",
        ))
        .unwrap();
        let wanted = module.network().unwrap();
        let theirs = "<network connections='1'><name>n</name><uuid>x</uuid><forward mode='nat'><nat><port start='1024' end='65535'/></nat></forward><bridge name='virbr1' stp='on' delay='0'/><mac address='52:54:00:00:00:01'/><ip address='192.168.121.1' netmask='255.255.255.0'><dhcp><range start='192.168.121.10' end='192.168.121.20'/></dhcp></ip></network>";
        let read: NetworkXml = quick_xml::de::from_str(theirs).unwrap();
        assert_eq!(read.normalized(&wanted), wanted);
    }
}
