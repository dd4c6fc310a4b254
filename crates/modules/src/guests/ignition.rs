//! `ignition`: what a guest of Flatcar or Fedora CoreOS is told when it boots for the first time.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::login::without_login;
use super::{
    Action, BuildContext, Module, ModuleError, ResultField,
    cloud_init::{checked_keys, holds_private_key, merge, plain_password},
    guest_interface::GuestInterface,
    libvirt,
    local::Fingerprint,
};
use crate::{
    inventory::{Host, Inventory},
    model::{Disruption, Effects, Value},
    remote::Payload,
    source::{Diagnostic, Vars},
};

const BODY: &str = concat!(include_str!("libvirt.sh"), include_str!("guest_seed.sh"), include_str!("ignition.sh"));
/// Prints the guest's keys to its console as cloud-init does, so that they can be learnt there.
const KEYS_UNIT: &str = "[Unit]
Description=Show the SSH host keys on the console
After=sshd-keygen.target sshd.service ssh.service
[Service]
Type=oneshot
RemainAfterExit=true
ExecStart=/bin/sh -c 'n=0; until ls /etc/ssh/ssh_host_*_key.pub >/dev/null 2>&1 || [ $n -ge 60 ]; do n=$((n + 1)); sleep 1; done; { echo -----BEGIN SSH HOST KEY KEYS-----; cat /etc/ssh/ssh_host_*_key.pub; echo -----END SSH HOST KEY KEYS-----; } >/dev/console'
[Install]
WantedBy=multi-user.target
";

/// Writes the Ignition configuration of a guest (specification 3.3), for the `ignition` of `libvirt_domain`.
///
/// It is a file in a pool with mode 0600. As with `cloud_init`, it belongs to the domain's UUID and is not changed once the
/// domain exists; other contents are reported as `needs_rebuild`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ignition {
    /// The guest: the name of its domain.
    name: String,
    /// The pool for the file.
    pool: String,
    /// The volume; default: `NAME.ign`.
    #[serde(default)]
    volume: Option<String>,
    /// The guest's host name; default: its name.
    #[serde(default)]
    hostname: Option<String>,
    /// The administrator: may log in by SSH with one of the keys, and become root without a password.
    #[serde(default = "core")]
    user: String,
    /// Public keys of the administrator, as in authorized_keys.
    #[serde(default)]
    ssh_keys: Vec<String>,
    /// The administrator's password for the console, hashed as in /etc/shadow.
    #[serde(default)]
    password_hash: Option<String>,
    /// The guest's interfaces, as the domain has them.
    #[serde(default)]
    interfaces: Vec<GuestInterface>,
    /// A further configuration. Mappings are merged and lists joined.
    #[serde(default)]
    config: Option<Value>,
    #[serde(default)]
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum State {
    #[default]
    Present,
    /// Not in the pool, unless the domain exists.
    Absent,
}

fn core() -> String {
    "core".into()
}

impl Module for Ignition {
    const NAME: &'static str = "ignition";
    const EXAMPLE: &'static str = "\
- name: Write cloud-init data
  ignition:
    name: etcd-1
    pool: etcd
    ssh_keys: \"{{ admin_key }}\"
    interfaces: [{ bridge: br0, ip: 10.0.0.21/24, gateway: 10.0.0.1 }]
  register: seed
";
    const RESULT: &'static [ResultField] = &[
        ResultField { name: "uuid", doc: "The UUID that the domain has, or is to have." },
        ResultField { name: "path", doc: "The file with the configuration." },
        ResultField { name: "volume", doc: "The volume of the file." },
        ResultField { name: "needs_rebuild", doc: "Whether the guest was created from another configuration." },
        ResultField { name: "reason", doc: "Why it needs a rebuild." },
    ];

    fn effects(&self) -> Effects {
        let disrupts = if self.state == State::Absent { Disruption::Maybe } else { Disruption::No };
        Effects::converging().disrupting(disrupts)
    }

    fn missing(_: &Inventory, host: &Host, _: &Vars) -> Option<Diagnostic> {
        without_login(host)
    }

    fn action(self, context: &BuildContext<'_>) -> Result<Action, ModuleError> {
        libvirt::check_name("domain", &self.name)?;
        libvirt::check_name("pool", &self.pool)?;
        let volume = self.volume.clone().unwrap_or_else(|| format!("{}.ign", self.name));
        libvirt::check_name("volume", &volume)?;
        let configuration = self.configuration()?;
        let config = format!("{configuration:#}\n");
        let hash = self.password_hash.as_deref().unwrap_or("\0");
        let in_plain =
            holds_private_key(&configuration) || context.sources.masker().is_in(config.replace(hash, "").as_bytes());
        if in_plain {
            return Err(ModuleError::new("a secret does not belong into a configuration that the guest can read")
                .help("write it to the guest over SSH, once it runs"));
        }
        let payload = Payload::new(BODY)
            .value("state", if self.state == State::Present { "present" } else { "absent" })
            .value("name", &self.name)
            .value("pool", &self.pool)
            .value("volume", volume)
            .value("sha256", Fingerprint::of(config.as_bytes()).sha256)
            .hidden("config", config);
        Ok(Action::Remote(payload))
    }
}

impl Ignition {
    fn configuration(&self) -> Result<Value, ModuleError> {
        let mut files = vec![
            file("/etc/hostname", 0o644, self.hostname.as_deref().unwrap_or(&self.name)),
            file("/etc/etcdrun-instance", 0o644, "@ETCDRUN-INSTANCE@"),
        ];
        if self.user != "core" {
            let line = format!("{} ALL=(ALL) NOPASSWD:ALL\n", self.user);
            files.push(file(&format!("/etc/sudoers.d/{}", self.user), 0o440, &line));
        }
        for (position, interface) in self.interfaces.iter().enumerate() {
            files.extend(self.network_files(position, interface)?);
        }
        let mut user = json!({ "name": self.user, "sshAuthorizedKeys": checked_keys(&self.ssh_keys)? });
        if let Some(hash) = &self.password_hash {
            user["passwordHash"] = hash.as_str().into();
        }
        let unit = json!({ "name": "etcdrun-host-keys.service", "enabled": true, "contents": KEYS_UNIT });
        let mut config = json!({
            "ignition": { "version": "3.3.0" },
            "passwd": { "users": [user] },
            "storage": { "files": files },
            "systemd": { "units": [unit] },
        });
        match &self.config {
            None | Some(Value::Null) => {}
            Some(Value::Object(more)) => merge(&mut config, more),
            Some(_) => return Err(ModuleError::new("`config` is a mapping, as an Ignition configuration is")),
        }
        match plain_password(&config) {
            None => Ok(config),
            Some(_) => Err(ModuleError::new("the password of a user is not a hash as in /etc/shadow")
                .help("create one with `openssl passwd -6` or `mkpasswd -m sha-512`")),
        }
    }

    /// Flatcar reads systemd-networkd's files, Fedora CoreOS those of NetworkManager; each leaves the other's alone.
    fn network_files(&self, position: usize, interface: &GuestInterface) -> Result<[Value; 2], ModuleError> {
        interface.attachment()?;
        let mac = interface.mac(&self.name, position);
        let mut networkd = format!("[Match]\nMACAddress={mac}\n\n[Network]\n");
        let mut manager = format!("[connection]\nid=net{position}\ntype=ethernet\n\n[ethernet]\nmac-address={mac}\n");
        let Some(address) = interface.address()? else {
            networkd.push_str("DHCP=yes\n");
            return Ok(network_pair(position, &networkd, &manager));
        };
        let family = if address.addr().is_ipv4() { "ipv4" } else { "ipv6" };
        networkd.push_str(&format!("Address={address}\n"));
        manager.push_str(&format!("\n[{family}]\nmethod=manual\naddress1={address}"));
        if let Some(gateway) = interface.gateway()? {
            networkd.push_str(&format!("Gateway={gateway}\n"));
            manager.push_str(&format!(",{gateway}"));
        }
        manager.push('\n');
        let dns: Vec<String> = interface.dns()?.iter().map(ToString::to_string).collect();
        dns.iter().for_each(|dns| networkd.push_str(&format!("DNS={dns}\n")));
        if !dns.is_empty() {
            manager.push_str(&format!("dns={};\n", dns.join(";")));
        }
        Ok(network_pair(position, &networkd, &manager))
    }
}

fn network_pair(position: usize, networkd: &str, manager: &str) -> [Value; 2] {
    [
        file(&format!("/etc/systemd/network/10-net{position}.network"), 0o644, networkd),
        file(&format!("/etc/NetworkManager/system-connections/net{position}.nmconnection"), 0o600, manager),
    ]
}

/// A short word stands for itself, so that it can be found in the configuration; anything else is encoded.
fn file(path: &str, mode: u32, contents: &str) -> Value {
    let source = match contents.starts_with('@') {
        true => format!("data:,{contents}"),
        false => format!("data:;base64,{}", STANDARD.encode(contents)),
    };
    json!({ "path": path, "mode": mode, "overwrite": true, "contents": { "source": source } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_has_the_user_the_network_and_what_was_added() {
        let module: Ignition = crate::source::from_node(&crate::support::testing::node(
            "{ name: g, pool: p, interfaces: [{ bridge: br0, ip: 10.0.0.5/24, gateway: 10.0.0.1 }], config: { storage: { files: [{ path: /x }] } } }",
        ))
        .unwrap();
        let config = module.configuration().unwrap();
        let paths: Vec<&str> =
            config["storage"]["files"].as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap()).collect();
        assert_eq!(
            paths,
            [
                "/etc/hostname",
                "/etc/etcdrun-instance",
                "/etc/systemd/network/10-net0.network",
                "/etc/NetworkManager/system-connections/net0.nmconnection",
                "/x"
            ]
        );
        assert_eq!(config["passwd"]["users"][0]["name"], "core");
    }

    #[test]
    fn passwords_are_hashed_wherever_they_stand() {
        let hash = "$6$abcdefgh$abcdefghijklmnop";
        let of = |more: &str| {
            let text = format!("{{ name: g, pool: p, {more} }}");
            let module: Ignition = crate::source::from_node(&crate::support::testing::node(&text)).unwrap();
            module.configuration().map(drop)
        };
        let user = |word: &str| format!("config: {{ passwd: {{ users: [{{ name: ops, passwordHash: '{word}' }}] }} }}");
        assert!(of(&format!("password_hash: '{hash}'")).is_ok() && of(&user(hash)).is_ok());
        assert!(of("password_hash: secret").is_err());
        assert!(of(&user("secret")).is_err());
    }
}
