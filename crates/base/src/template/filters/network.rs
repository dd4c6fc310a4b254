//! IP addresses and networks.
//!
//! A value is an address (`10.0.0.5`), an address with its network (`10.0.0.5/24`) or a network
//! (`10.0.0.0/24`). A list is treated item by item; items that do not fit are left out.

use std::net::IpAddr;

use ipnet::IpNet;
use minijinja::{Environment, Error, Value, value::ValueKind};

use super::{super::convert::invalid, describe, items};

pub(super) fn add_to(environment: &mut Environment<'static>) {
    environment.add_filter("ipaddr", |value: &Value, query: Option<Value>| each(value, |v| ipaddr(v, query.as_ref())));
    environment
        .add_filter("ipv4", |value: &Value, query: Option<Value>| each(value, |v| of_version(v, 4, query.as_ref())));
    environment
        .add_filter("ipv6", |value: &Value, query: Option<Value>| each(value, |v| of_version(v, 6, query.as_ref())));
    environment.add_filter("ipwrap", |value: &Value| each(value, |v| Ok(ipwrap(v))));
    environment.add_filter("ipmath", ipmath);
    environment.add_filter("ipsubnet", ipsubnet);
    environment.add_filter("nthhost", nthhost);
    environment.add_filter("network_in_network", |a: &Value, b: &Value| contains(a, b));
    environment.add_filter("network_in_usable", network_in_usable);
}

/// An address and the network it is in; alone it is a network of one.
#[derive(Clone, Copy)]
struct Interface {
    net: IpNet,
    has_prefix: bool,
}

impl Interface {
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if let Ok(address) = text.parse::<IpAddr>() {
            return Some(Self { net: address.into(), has_prefix: false });
        }
        if let Ok(net) = text.parse() {
            return Some(Self { net, has_prefix: true });
        }
        let (address, mask) = text.split_once('/')?;
        let net = IpNet::with_netmask(address.parse().ok()?, mask.parse().ok()?).ok()?;
        Some(Self { net, has_prefix: true })
    }

    fn of(value: &Value) -> Result<Self, Error> {
        let parsed = value.as_str().and_then(Self::parse);
        parsed.ok_or_else(|| invalid(format!("{} is not an IP address or network", describe(value))))
    }

    fn is_single(self) -> bool {
        self.net.prefix_len() == self.net.max_prefix_len()
    }

    /// A network as such, not a host in one.
    fn is_network(self) -> bool {
        !self.is_single() && self.net.addr() == self.net.network()
    }

    fn size(self) -> u128 {
        let bits = u32::from(self.net.max_prefix_len() - self.net.prefix_len());
        1u128.checked_shl(bits).unwrap_or(u128::MAX)
    }

    /// The nth address, from the end if negative.
    fn nth(self, n: i64) -> Option<IpAddr> {
        let offset = match u128::try_from(n) {
            Ok(n) => n,
            Err(_) => self.size().checked_sub(u128::from(n.unsigned_abs()))?,
        };
        if offset < self.size() { plus(self.net.network(), i128::try_from(offset).ok()?) } else { None }
    }

    fn with_prefix(self, address: IpAddr) -> String {
        format!("{address}/{}", self.net.prefix_len())
    }

    /// First and last address a host can have.
    fn usable(self) -> (Option<IpAddr>, Option<IpAddr>) {
        let spare = i64::from(self.net.max_prefix_len() - self.net.prefix_len() > 1);
        (self.nth(spare), self.nth(-1 - spare))
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

fn plus(address: IpAddr, n: i128) -> Option<IpAddr> {
    let sum = number(address).checked_add_signed(n)?;
    match address {
        IpAddr::V4(_) => u32::try_from(sum).ok().map(|bits| IpAddr::V4(bits.into())),
        IpAddr::V6(_) => Some(IpAddr::V6(sum.into())),
    }
}

/// Applies to a value, or to each item of a list, leaving out what comes to false.
fn each(value: &Value, apply: impl Fn(&Value) -> Result<Value, Error>) -> Result<Value, Error> {
    if !matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable) {
        return apply(value);
    }
    let addresses = items(value)?.into_iter().filter(|item| Interface::of(item).is_ok());
    let results = addresses.map(|item| apply(&item)).collect::<Result<Vec<_>, _>>()?;
    Ok(results.into_iter().filter(|result| result.kind() != ValueKind::Bool).collect::<Vec<_>>().into())
}

/// Without a query: the value if it is an address or a network, else false.
fn ipaddr(value: &Value, query: Option<&Value>) -> Result<Value, Error> {
    let Some(query) = query else {
        let valid = value.as_str().is_some_and(|text| Interface::parse(text).is_some());
        return Ok(if valid { value.clone() } else { false.into() });
    };
    let interface = Interface::of(value)?;
    if let Some(n) = query.as_i64() {
        let nth = interface.nth(n).ok_or_else(|| invalid(format!("{} has no address {n}", interface.net)))?;
        return Ok(interface.with_prefix(nth).into());
    }
    let query = query.as_str().ok_or_else(|| invalid("a query is a word, a number or a network"))?;
    Ok(answer(interface, query)?.unwrap_or_else(|| if holds(value, query) { value.clone() } else { false.into() }))
}

/// A property by its name. `None` stands for a question: yes gives the value back, no gives false.
fn answer(interface: Interface, query: &str) -> Result<Option<Value>, Error> {
    let net = interface.net;
    let text = |text: String| Some(Value::from(text));
    let address = |address: Option<IpAddr>| Some(address.map_or_else(|| false.into(), |a| Value::from(a.to_string())));
    Ok(match query {
        "address" | "ip" => address((!interface.is_network()).then_some(net.addr())),
        "network" | "network_id" => address(Some(net.network())),
        "netmask" => address(Some(net.netmask())),
        "hostmask" | "wildcard" => address(Some(net.hostmask())),
        "broadcast" => address((!interface.is_single() && net.addr().is_ipv4()).then(|| net.broadcast())),
        "prefix" => Some(net.prefix_len().into()),
        "subnet" | "network/prefix" => text(net.trunc().to_string()),
        "cidr" | "address/prefix" | "ip/prefix" | "host/prefix" => text(interface.with_prefix(net.addr())),
        "size" => Some(Value::from(interface.size())),
        "first_usable" => address(interface.usable().0),
        "last_usable" => address(interface.usable().1),
        "version" => Some(version_of(net).into()),
        "int" => Some(Value::from(number(net.addr()))),
        "type" => text(if interface.is_network() { "network".into() } else { "address".into() }),
        "revdns" => text(reverse_name(net.addr())),
        "wrap" => Some(ipwrap(&Value::from(net.addr().to_string()))),
        "host" | "net" | "private" | "public" | "multicast" | "loopback" | "link-local" | "ipv4" | "ipv6" => None,
        other if Interface::parse(other).is_some() => None,
        other => return Err(invalid(format!("`ipaddr` does not know the query `{other}`"))),
    })
}

fn holds(value: &Value, query: &str) -> bool {
    let Ok(interface) = Interface::of(value) else { return false };
    let address = interface.net.addr();
    match query {
        "host" => !interface.is_network(),
        "net" => interface.is_network(),
        "private" => is_private(address),
        "public" => !is_private(address) && !address.is_multicast() && !address.is_loopback(),
        "multicast" => address.is_multicast(),
        "loopback" => address.is_loopback(),
        "link-local" => is_link_local(address),
        "ipv4" => address.is_ipv4(),
        "ipv6" => address.is_ipv6(),
        network => Interface::parse(network).is_some_and(|outer| encloses(outer, interface)),
    }
}

fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_private(),
        IpAddr::V6(v6) => v6.is_unique_local(),
    }
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

fn reverse_name(address: IpAddr) -> String {
    match address {
        IpAddr::V4(v4) => {
            let octets: Vec<_> = v4.octets().iter().rev().map(u8::to_string).collect();
            format!("{}.in-addr.arpa.", octets.join("."))
        }
        IpAddr::V6(v6) => {
            let digits: Vec<_> = format!("{:032x}", v6.to_bits()).chars().rev().map(String::from).collect();
            format!("{}.ip6.arpa.", digits.join("."))
        }
    }
}

fn version_of(net: IpNet) -> u8 {
    if net.addr().is_ipv4() { 4 } else { 6 }
}

/// 4 or 6, if the value is an address or a network.
pub(in super::super) fn version(value: &Value) -> Option<u8> {
    value.as_str().and_then(Interface::parse).map(|interface| version_of(interface.net))
}

fn of_version(value: &Value, wanted: u8, query: Option<&Value>) -> Result<Value, Error> {
    if version(value) == Some(wanted) { ipaddr(value, query) } else { Ok(false.into()) }
}

/// Brackets around an IPv6 address, as a URL needs them.
fn ipwrap(value: &Value) -> Value {
    let Some(text) = value.as_str() else { return value.clone() };
    match Interface::parse(text) {
        Some(interface) if interface.net.addr().is_ipv6() => {
            let prefix = if interface.has_prefix { format!("/{}", interface.net.prefix_len()) } else { String::new() };
            format!("[{}]{prefix}", interface.net.addr()).into()
        }
        _ => value.clone(),
    }
}

fn ipmath(value: &Value, amount: i64) -> Result<String, Error> {
    let address = Interface::of(value)?.net.addr();
    let sum = plus(address, i128::from(amount));
    sum.map(|sum| sum.to_string()).ok_or_else(|| invalid(format!("{address} plus {amount} is not an address")))
}

/// The subnets of a prefix length: how many, or the nth.
fn ipsubnet(value: &Value, prefix: Option<u8>, index: Option<i64>) -> Result<Value, Error> {
    let interface = Interface::of(value)?;
    let Some(prefix) = prefix else { return Ok(interface.net.trunc().to_string().into()) };
    if prefix > interface.net.max_prefix_len() {
        return Err(invalid(format!("/{prefix} is not a prefix length")));
    }
    if prefix < interface.net.prefix_len() {
        let outer = IpNet::new(interface.net.addr(), prefix).map_err(|error| invalid(error.to_string()))?;
        return Ok(outer.trunc().to_string().into());
    }
    let count = 1u128.checked_shl(u32::from(prefix - interface.net.prefix_len())).unwrap_or(u128::MAX);
    let Some(index) = index else { return Ok(Value::from(count)) };
    let nth = match u128::try_from(index) {
        Ok(n) => Some(n),
        Err(_) => count.checked_sub(u128::from(index.unsigned_abs())),
    };
    let step = 1u128.checked_shl(u32::from(interface.net.max_prefix_len() - prefix)).unwrap_or(u128::MAX);
    let start = nth
        .filter(|n| *n < count)
        .and_then(|n| i128::try_from(n.checked_mul(step)?).ok())
        .and_then(|offset| plus(interface.net.network(), offset));
    let start = start.ok_or_else(|| invalid(format!("{} has no /{prefix} number {index}", interface.net.trunc())))?;
    Ok(format!("{start}/{prefix}").into())
}

fn nthhost(value: &Value, n: i64) -> Result<String, Error> {
    let interface = Interface::of(value)?;
    let host = interface.nth(n).map(|host| host.to_string());
    host.ok_or_else(|| invalid(format!("{} has no address {n}", interface.net.trunc())))
}

fn encloses(outer: Interface, inner: Interface) -> bool {
    outer.net.trunc().contains(&inner.net.trunc())
}

/// Whether the second, an address or a network, lies in the first.
pub(in super::super) fn contains(outer: &Value, inner: &Value) -> Result<bool, Error> {
    let (outer, mut inner) = (Interface::of(outer)?, Interface::of(inner)?);
    if !inner.is_network() {
        inner = Interface { net: inner.net.addr().into(), has_prefix: false };
    }
    Ok(encloses(outer, inner))
}

fn network_in_usable(outer: &Value, inner: &Value) -> Result<bool, Error> {
    let interface = Interface::of(outer)?;
    let address = Interface::of(inner)?.net.addr();
    let is_edge = !interface.is_single() && [interface.net.network(), interface.net.broadcast()].contains(&address);
    Ok(contains(outer, inner)? && !is_edge)
}
