//! The typed shape of what an inventory file may say. The JSON Schema comes from the same types.

use std::{collections::BTreeMap, fmt, marker::PhantomData, net::IpAddr, str::FromStr};

use ipnet::IpNet;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer,
    de::{self, IgnoredAny, Visitor},
};

use super::sections::{
    AddressPool, AuthSection, BackupSection, BalancerSection, ChronySection, EtcdClient, EtcdSection, FluentbitSection,
    GuestSection, Image, KeysSection, MemberTls, Network, Placement, Pool, TlsSection,
};
use crate::model::Seconds;

/// How to reach hosts over SSH. Set at any level; the most specific level wins, field by field.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct SshEntry {
    /// The user to log in as.
    pub(super) user: Option<String>,
    /// The port of sshd.
    pub(super) port: Option<Port>,
    /// Private keys to offer; relative to this file, `~/` is the home directory.
    pub(super) identity_file: Option<OneOrMany>,
    /// Offer only the keys named here, none of the agent's others.
    pub(super) identities_only: Option<bool>,
    /// An OpenSSH user certificate.
    pub(super) certificate_file: Option<String>,
    /// Jump hosts, nearest first: inventory names or `[user@]host[:port]`.
    pub(super) jump: Option<OneOrMany>,
    /// A local command whose input and output are the connection.
    pub(super) proxy_command: Option<String>,
    /// Known-hosts files to search first.
    pub(super) known_hosts: Option<OneOrMany>,
    /// The name to look up the host key by.
    pub(super) host_key_alias: Option<String>,
    /// How long a connection attempt may take.
    pub(super) connect_timeout: Option<Seconds>,
    /// Whether tasks run as another user by default.
    pub(super) r#become: Option<bool>,
    /// The user for `become`; default: root.
    pub(super) become_user: Option<String>,
}

/// A host that is not a hypervisor: an existing one, or with a `hypervisor` a guest there.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct HostEntry {
    /// Where to connect; default: the host's name.
    pub(super) address: Option<Address>,
    /// The failure domain: a rack, a room, a power feed.
    pub(super) zone: Option<String>,
    pub(super) ssh: SshEntry,
    /// Short for `ssh: {port: ...}`.
    pub(super) port: Option<Port>,
    /// Short for `ssh: {user: ...}`.
    pub(super) user: Option<String>,
    pub(super) vars: FreeMap,
    /// Groups this host belongs to.
    pub(super) groups: OneOrMany,
    /// The hypervisor that its guest runs on.
    pub(super) hypervisor: Option<String>,
    /// The guest's network interfaces.
    pub(super) interfaces: Vec<Interface>,
    /// How to connect to the guest.
    pub(super) ssh_via: Option<SshVia>,
    /// Its guest, which etcdrun creates; merged over `guest` of its groups.
    #[schemars(with = "GuestSection")]
    pub(super) guest: FreeMap,
}

/// A KVM host.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct HypervisorEntry {
    /// Where to connect; default: the host's name.
    pub(super) address: Option<Address>,
    /// The failure domain: a rack, a room, a power feed.
    pub(super) zone: Option<String>,
    pub(super) ssh: SshEntry,
    /// Short for `ssh: {port: ...}`.
    pub(super) port: Option<Port>,
    /// Short for `ssh: {user: ...}`.
    pub(super) user: Option<String>,
    pub(super) vars: FreeMap,
    /// Groups this host belongs to.
    pub(super) groups: OneOrMany,
    /// Storage pools that etcdrun defines there, by name.
    pub(super) pools: BTreeMap<String, Option<Pool>>,
    /// Libvirt networks that etcdrun defines there, by name.
    pub(super) networks: BTreeMap<String, Option<Network>>,
    /// Base images that etcdrun copies there, by the name of their volume.
    pub(super) images: BTreeMap<String, Option<Image>>,
}

/// A member of an etcd cluster, which runs in a guest on a hypervisor.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct MemberEntry {
    /// The hypervisor that the guest runs on.
    pub(super) hypervisor: Option<String>,
    /// Where to connect; default: the address of the first interface.
    pub(super) address: Option<Address>,
    /// The guest's network interfaces; etcd listens on the first.
    pub(super) interfaces: Vec<Interface>,
    /// The failure domain; default: the hypervisor's.
    pub(super) zone: Option<String>,
    pub(super) ssh: SshEntry,
    /// Short for `ssh: {port: ...}`.
    pub(super) port: Option<Port>,
    /// Short for `ssh: {user: ...}`.
    pub(super) user: Option<String>,
    /// How to connect.
    pub(super) ssh_via: Option<SshVia>,
    pub(super) vars: FreeMap,
    /// Groups this host belongs to.
    pub(super) groups: OneOrMany,
    /// Differences from the cluster's `guest`.
    #[schemars(with = "GuestSection")]
    pub(super) guest: FreeMap,
    /// Your own certificate, instead of one that etcdrun issues and renews.
    #[schemars(with = "MemberTls")]
    pub(super) tls: FreeMap,
    /// Differences from the cluster's `etcd`.
    #[schemars(with = "EtcdSection")]
    pub(super) etcd: FreeMap,
}

/// An etcd cluster. Its name is also the group of its members.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ClusterEntry {
    /// Settings of etcd, the same on every member.
    #[schemars(with = "EtcdSection")]
    pub(super) etcd: FreeMap,
    /// The shape of the members' guests.
    #[schemars(with = "GuestSection")]
    pub(super) guest: FreeMap,
    #[schemars(with = "TlsSection")]
    pub(super) tls: FreeMap,
    #[schemars(with = "AuthSection")]
    pub(super) auth: FreeMap,
    #[schemars(with = "std::collections::BTreeMap<String, Option<MemberEntry>>")]
    pub(super) members: FreeMap,
    pub(super) vars: FreeMap,
    pub(super) ssh: SshEntry,
    /// How to connect to members that do not set it.
    pub(super) ssh_via: Option<SshVia>,
    #[schemars(with = "AddressPool")]
    pub(super) address_pool: Free,
    /// Whether members may share a hypervisor whose loss would cost the quorum. Without it they may share one only if a
    /// majority survives the loss of any hypervisor.
    pub(super) allow_colocation: Option<bool>,
    #[schemars(with = "Placement")]
    pub(super) placement: Free,
    #[schemars(with = "BackupSection")]
    pub(super) backup: FreeMap,
    /// Programs that use the cluster, with their versions.
    #[schemars(with = "Vec<EtcdClient>")]
    pub(super) clients: Free,
    #[schemars(with = "BalancerSection")]
    pub(super) balancer: Free,
    /// Keys of the cluster and their values. Keys that are not declared stay as they are.
    #[schemars(with = "KeysSection")]
    pub(super) keys: Free,
    #[schemars(with = "ChronySection")]
    pub(super) chrony: FreeMap,
    #[schemars(with = "FluentbitSection")]
    pub(super) fluentbit: FreeMap,
}

/// A group of hosts.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct GroupEntry {
    /// Names, ranges and globs of hosts; or a mapping that also describes them.
    #[schemars(with = "ListOrMap<HostEntry>")]
    pub(super) hosts: Free,
    /// Names of groups or clusters; or a mapping that also describes them.
    #[schemars(with = "ListOrMap<GroupEntry>")]
    pub(super) children: Free,
    pub(super) vars: FreeMap,
    pub(super) ssh: SshEntry,
    /// The guests of its hosts, where they have a hypervisor. Not for members: theirs is `guest` of their cluster.
    #[schemars(with = "GuestSection")]
    pub(super) guest: FreeMap,
    /// How to connect to its guests.
    pub(super) ssh_via: Option<SshVia>,
    /// Addresses for guests that name no interfaces, in the order of the hosts.
    #[schemars(with = "AddressPool")]
    pub(super) address_pool: Free,
    /// Hypervisors for its hosts that have none.
    #[schemars(with = "Placement")]
    pub(super) placement: Free,
}

/// A network interface of a guest: one of `network`, `bridge` and `macvtap`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Interface {
    /// A libvirt network.
    pub(super) network: Option<String>,
    /// A bridge of the hypervisor.
    pub(super) bridge: Option<String>,
    /// An interface of the hypervisor to attach to directly.
    pub(super) macvtap: Option<String>,
    /// Address with prefix length, like 192.168.121.4/24.
    pub(super) ip: Option<Parsed<Cidr>>,
    pub(super) gateway: Option<Parsed<Ip>>,
    pub(super) dns: Vec<Parsed<Ip>>,
    pub(super) mac: Option<Parsed<Mac>>,
}

/// How to connect to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum SshVia {
    /// With the member's hypervisor as a jump host.
    Hypervisor,
    /// Directly to the member's address.
    Direct,
}

/// Anything at all, kept as a node beside the typed entry.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Free;

impl<'de> Deserialize<'de> for Free {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

impl JsonSchema for Free {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Anything".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!(true)
    }
}

/// A mapping of anything, kept as a node beside the typed entry.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FreeMap;

impl<'de> Deserialize<'de> for FreeMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::<std::collections::HashMap<String, IgnoredAny>>::deserialize(deserializer).map(|_| Self)
    }
}

impl JsonSchema for FreeMap {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Mapping".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": ["object", "null"]})
    }
}

/// One string, or a list of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(super) struct OneOrMany(pub(super) Vec<String>);

impl JsonSchema for OneOrMany {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "OneOrMany".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]})
    }
}

/// In the schema: names, or a mapping from names to entries.
pub(super) struct ListOrMap<T>(PhantomData<T>);

impl<T: JsonSchema> JsonSchema for ListOrMap<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ListOrMap".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let names = generator.subschema_for::<OneOrMany>();
        let entry = generator.subschema_for::<Option<T>>();
        json_schema!({"anyOf": [names, {"type": "object", "additionalProperties": entry}]})
    }
}

/// A scalar that is checked when the file is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parsed<T>(pub(super) T);

/// Why a scalar of the inventory was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct WrongScalar(String);

struct ParsedVisitor<T>(PhantomData<T>);

impl<T: FromStr<Err = WrongScalar>> Visitor<'_> for ParsedVisitor<T> {
    type Value = Parsed<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        text.parse().map(Parsed).map_err(E::custom)
    }
}

// The visitor fails inside the deserializer, which so can add the place of the value.
impl<'de, T: FromStr<Err = WrongScalar>> Deserialize<'de> for Parsed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(ParsedVisitor(PhantomData))
    }
}

impl<T> JsonSchema for Parsed<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "String".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string"})
    }
}

/// An interface's address with its prefix length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cidr(pub(super) IpNet);

impl FromStr for Cidr {
    type Err = WrongScalar;

    fn from_str(text: &str) -> Result<Self, WrongScalar> {
        text.parse().map(Self).map_err(|_| match text.parse::<IpAddr>() {
            Ok(_) => WrongScalar(format!("`{text}` has no prefix length; write it like {text}/24")),
            Err(_) => WrongScalar(format!("`{text}` is not an address with its prefix length, like 192.168.121.4/24")),
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ip(pub(super) IpAddr);

impl FromStr for Ip {
    type Err = WrongScalar;

    fn from_str(text: &str) -> Result<Self, WrongScalar> {
        text.parse().map(Self).map_err(|_| WrongScalar(format!("`{text}` is not an IP address")))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mac(pub(super) String);

impl FromStr for Mac {
    type Err = WrongScalar;

    fn from_str(text: &str) -> Result<Self, WrongScalar> {
        let octet = |part: &str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit());
        if text.split(':').count() == 6 && text.split(':').all(octet) {
            return Ok(Self(text.to_ascii_lowercase()));
        }
        Err(WrongScalar(format!("`{text}` is not a MAC address, like 52:54:00:12:34:56")))
    }
}

/// A TCP port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Port(pub(super) u16);

impl FromStr for Port {
    type Err = WrongScalar;

    fn from_str(text: &str) -> Result<Self, WrongScalar> {
        let port = text.parse().ok().filter(|port| *port > 0);
        port.map(Self).ok_or_else(|| WrongScalar(format!("`{text}` is not a port; ports are 1 to 65535")))
    }
}

impl<'de> Deserialize<'de> for Port {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Parsed::deserialize(deserializer).map(|parsed| parsed.0)
    }
}

impl JsonSchema for Port {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Port".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "integer", "minimum": 1, "maximum": 65535})
    }
}

/// A host name or an IP address to connect to.
pub(super) type Address = Parsed<AddressText>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AddressText(pub(super) String);

impl FromStr for AddressText {
    type Err = WrongScalar;

    fn from_str(text: &str) -> Result<Self, WrongScalar> {
        if text.parse::<IpAddr>().is_ok() {
            return Ok(Self(text.to_owned()));
        }
        if text.contains("{{") {
            return Err(WrongScalar(
                "an address cannot be a template: it is needed before anything is rendered".into(),
            ));
        }
        let four_numbers = text.split('.').count() == 4 && text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let name = !text.is_empty()
            && !text.starts_with(['-', '.'])
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._%:".contains(&b));
        match (four_numbers, text.split_once('/')) {
            (false, None) if name => Ok(Self(text.to_owned())),
            (_, Some((address, _))) if address.parse::<IpAddr>().is_ok() => {
                Err(WrongScalar(format!("`{text}` is a network; write the address alone: {address}")))
            }
            _ => Err(WrongScalar(format!("`{text}` is neither an IP address nor a host name"))),
        }
    }
}
