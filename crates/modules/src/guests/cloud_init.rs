//! `cloud_init`: what a guest is told when it boots for the first time, on an ISO image.

use std::{io, net::IpAddr, process::Stdio};

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::login::without_login;
use super::{
    Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, ResultField, Running,
    guest_interface::GuestInterface, libvirt, local::Fingerprint,
};
use crate::{
    inventory::{Host, Inventory},
    model::{Disruption, Effects, Value, ValueMap},
    remote::Payload,
    source::{Diagnostic, Vars},
};

const BODY: &str = concat!(include_str!("libvirt.sh"), include_str!("guest_seed.sh"), include_str!("cloud_init.sh"));

/// Writes the cloud-init ISO of a guest: a volume with user-data, meta-data and network-config (NoCloud).
///
/// Attach it as a read-only virtio disk: the cloud kernel of Debian has no driver for a SATA CD drive. The instance belongs to
/// the domain's UUID; once the domain exists, the ISO is what the guest was created from, and is not changed. Other contents are
/// then reported as `needs_rebuild`, because cloud-init would silently ignore them.
///
/// The ISO is built by genisoimage, mkisofs or xorriso on the hypervisor, or by one of them on the operator's workstation if
/// the hypervisor has none. Private keys, passwords in plain text and encrypted values of the inventory are refused on it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CloudInit {
    /// The guest: the name of its domain.
    name: String,
    /// The pool for the ISO.
    pool: String,
    /// The volume; default: `NAME-cloud-init.iso`.
    #[serde(default)]
    volume: Option<String>,
    /// The guest's host name; default: its name.
    #[serde(default)]
    hostname: Option<String>,
    /// The administrator: may log in by SSH with one of the keys, and become root without a password.
    #[serde(default)]
    user: Option<String>,
    /// Public keys of the administrator, as in authorized_keys.
    #[serde(default)]
    ssh_keys: Vec<String>,
    /// The administrator's password for the console, hashed as in /etc/shadow. SSH never accepts it.
    #[serde(default)]
    password_hash: Option<String>,
    /// The guest's interfaces, as the domain has them.
    #[serde(default)]
    interfaces: Vec<GuestInterface>,
    /// Packages to install.
    #[serde(default)]
    packages: Vec<String>,
    /// Whether packages are installed at all; not for an image that has what it needs.
    #[serde(default = "yes")]
    install_dependencies: bool,
    /// Further user-data. Mappings are merged and lists joined; other values replace those of this module.
    #[serde(default)]
    user_data: Option<Value>,
    #[serde(default)]
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum State {
    #[default]
    Present,
    /// Not in the pool, unless a domain has it.
    Absent,
}

fn yes() -> bool {
    true
}

impl Module for CloudInit {
    const NAME: &'static str = "cloud_init";
    const EXAMPLE: &'static str = "\
- name: Write cloud-init data
  cloud_init:
    name: etcd-1
    pool: etcd
    user: ubuntu
    ssh_keys: \"{{ admin_key }}\"
    interfaces: [{ network: mynetwork, ip: 192.168.121.4/24, gateway: 192.168.121.1, dns: [192.168.121.1] }]
  register: seed
";
    const RESULT: &'static [ResultField] = &[
        ResultField { name: "uuid", doc: "The UUID that the domain has, or is to have." },
        ResultField { name: "path", doc: "The file of the ISO." },
        ResultField { name: "volume", doc: "The volume of the ISO." },
        ResultField { name: "needs_rebuild", doc: "Whether the guest was created from other contents." },
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
        let volume = self.volume.clone().unwrap_or_else(|| format!("{}-cloud-init.iso", self.name));
        libvirt::check_name("volume", &volume)?;
        let seed = Seed::new(&self)?;
        seed.refuse_secrets(&self, context)?;
        let payload = Payload::new(BODY)
            .value("state", if self.state == State::Present { "present" } else { "absent" })
            .value("name", &self.name)
            .value("pool", &self.pool)
            .value("volume", volume)
            .value("hostname", &seed.hostname)
            .value("sha256", seed.sha256())
            .hidden("user_data", &seed.user_data)
            .hidden("network_config", &seed.network_config);
        Ok(Action::Engine(Box::new(Keep { payload, seed })))
    }
}

/// What stands on the ISO, apart from the instance's id.
struct Seed {
    hostname: String,
    user_data: String,
    network_config: String,
}

impl Seed {
    fn new(module: &CloudInit) -> Result<Self, ModuleError> {
        let hostname = module.hostname.clone().unwrap_or_else(|| module.name.clone());
        let user_data = format!("#cloud-config\n{}", pretty(&user_data(module, &hostname)?));
        let network_config = pretty(&network_config(module)?);
        Ok(Self { hostname, user_data, network_config })
    }

    /// Tells contents apart.
    fn sha256(&self) -> String {
        let all = [&self.hostname, &self.user_data, &self.network_config].map(String::as_str).join("\0");
        Fingerprint::of(all.as_bytes()).sha256
    }

    /// Whoever can read the ISO, in the guest or on the hypervisor, could read them.
    fn refuse_secrets(&self, module: &CloudInit, context: &BuildContext<'_>) -> Result<(), ModuleError> {
        let refused = |what: &str| {
            Err(ModuleError::new(format!("{what} does not belong on a cloud-init ISO, where it could be read"))
                .help("write it to the guest over SSH, once it runs"))
        };
        if is_private_key(self.user_data.as_bytes()) || module.user_data.as_ref().is_some_and(holds_private_key) {
            return refused("a private key");
        }
        if let Some(found) = module.user_data.as_ref().and_then(plain_password) {
            return refused(&format!("a password in plain text (`{found}`)"));
        }
        let hash = module.password_hash.as_deref().unwrap_or("\0");
        let without_hash = self.user_data.replace(hash, "");
        match context.sources.masker().is_in(without_hash.as_bytes()) {
            true => refused("an encrypted value of the inventory"),
            false => Ok(()),
        }
    }
}

/// JSON is YAML too, and leaves no doubt about what is a string: a MAC address is a number to some readers.
fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

fn user_data(module: &CloudInit, hostname: &str) -> Result<Value, ModuleError> {
    let mut data = json!({
        "hostname": hostname,
        "preserve_hostname": false,
        "ssh_pwauth": false,
        "disable_root": true,
        // This is how the guest's key gets to the operator without anyone having to believe the network.
        "ssh": { "emit_keys_to_console": true },
    });
    if let Some(user) = user(module)? {
        data["users"] = json!([user]);
    }
    if module.install_dependencies && !module.packages.is_empty() {
        data["package_update"] = true.into();
        data["packages"] = json!(module.packages);
    }
    match &module.user_data {
        None | Some(Value::Null) => {}
        Some(Value::Object(more)) => merge(&mut data, more),
        Some(_) => return Err(ModuleError::new("`user_data` is a mapping, as in a #cloud-config file")),
    }
    Ok(data)
}

fn user(module: &CloudInit) -> Result<Option<Value>, ModuleError> {
    let Some(name) = &module.user else {
        return match module.password_hash.is_some() || !module.ssh_keys.is_empty() {
            true => Err(ModuleError::new("`ssh_keys` and `password_hash` need a `user`")),
            false => Ok(None),
        };
    };
    let keys = checked_keys(&module.ssh_keys)?;
    let mut user = json!({
        "name": name,
        "shell": "/bin/bash",
        "sudo": "ALL=(ALL) NOPASSWD:ALL",
        "lock_passwd": module.password_hash.is_none(),
        "ssh_authorized_keys": keys,
    });
    if let Some(hash) = &module.password_hash {
        if !is_hash(hash) {
            return Err(ModuleError::new("`password_hash` is not a hash as in /etc/shadow").help(
                "create one with `openssl passwd -6` or `mkpasswd -m sha-512`; the password itself is never put on the ISO",
            ));
        }
        user["passwd"] = hash.as_str().into();
    }
    Ok(Some(user))
}

/// Public keys one by one, whether they came as lines or as a list.
pub(super) fn checked_keys(given: &[String]) -> Result<Vec<&str>, ModuleError> {
    let lines = given.iter().flat_map(|keys| keys.lines()).map(str::trim);
    let keys: Vec<&str> = lines.filter(|key| !key.is_empty()).collect();
    match keys.iter().find(|key| russh::keys::PublicKey::from_openssh(key).is_err()) {
        None => Ok(keys),
        Some(bad) => {
            let start: String = bad.chars().take(30).collect();
            Err(ModuleError::new(format!("`{start}...` is not a public SSH key"))
                .help("use the content of the .pub file, in one line"))
        }
    }
}

fn is_hash(text: &str) -> bool {
    text.starts_with('$') && text.matches('$').count() >= 3 && text.len() >= 20 && !text.contains(char::is_whitespace)
}

/// Mappings are merged and lists joined; anything else is replaced.
pub(super) fn merge(into: &mut Value, more: &ValueMap) {
    let Value::Object(map) = into else { return };
    for (key, value) in more {
        match (map.get_mut(key), value) {
            (Some(below @ Value::Object(_)), Value::Object(above)) => merge(below, above),
            (Some(Value::Array(below)), Value::Array(above)) => below.extend(above.iter().cloned()),
            _ => {
                map.insert(key.clone(), value.clone());
            }
        }
    }
}

/// Whether a text somewhere in there is a private key in PEM: as it is, as base64 (`encoding: b64`), or as a data URL.
pub(super) fn holds_private_key(data: &Value) -> bool {
    match data {
        Value::String(text) => {
            is_private_key(text.as_bytes()) || decoded(text).is_some_and(|body| is_private_key(&body))
        }
        Value::Array(items) => items.iter().any(holds_private_key),
        Value::Object(map) => map.values().any(holds_private_key),
        _ => false,
    }
}

fn is_private_key(bytes: &[u8]) -> bool {
    const MARK: &[u8] = b"PRIVATE KEY-----";
    bytes.windows(MARK.len()).any(|window| window == MARK)
}

fn decoded(text: &str) -> Option<Vec<u8>> {
    match text.strip_prefix("data:").and_then(|rest| rest.split_once(',')) {
        Some((kind, body)) if kind.ends_with(";base64") => from_base64(&percent_decoded(body)),
        Some((_, body)) => Some(percent_decoded(body)),
        None => from_base64(text.as_bytes()),
    }
}

/// As readers take it: in lines, of either alphabet, padded or not.
fn from_base64(text: &[u8]) -> Option<Vec<u8>> {
    const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true);
    let standard = |byte: u8| match byte {
        b'-' => b'+',
        b'_' => b'/',
        other => other,
    };
    let compact: Vec<u8> = text.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).map(standard).collect();
    GeneralPurpose::new(&alphabet::STANDARD, LENIENT).decode(compact).ok()
}

fn percent_decoded(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let escaped = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    out
}

/// The key of a password that is not hashed.
pub(super) fn plain_password(data: &Value) -> Option<String> {
    match data {
        Value::Object(map) => map.iter().find_map(|(key, value)| match (key.as_str(), value) {
            ("plain_text_passwd", _) => Some(key.clone()),
            ("password" | "passwd" | "hashed_passwd" | "passwordHash", Value::String(text)) if !is_hash(text) => {
                Some(key.clone())
            }
            ("chpasswd", Value::Object(chpasswd)) if has_plain_list(chpasswd) => Some("chpasswd".into()),
            (_, value) => plain_password(value),
        }),
        Value::Array(list) => list.iter().find_map(plain_password),
        _ => None,
    }
}

/// `user:password` lines, whose passwords may be hashes.
fn has_plain_list(chpasswd: &ValueMap) -> bool {
    let lines: Vec<&str> = match chpasswd.get("list") {
        Some(Value::String(text)) => text.lines().collect(),
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
        _ => return false,
    };
    lines.iter().filter_map(|line| line.split_once(':')).any(|(_, password)| !is_hash(password.trim()))
}

fn network_config(module: &CloudInit) -> Result<Value, ModuleError> {
    let mut ethernets = ValueMap::new();
    for (position, interface) in module.interfaces.iter().enumerate() {
        interface.attachment()?;
        let mut entry = json!({ "match": { "macaddress": interface.mac(&module.name, position) } });
        match interface.address()? {
            Some(address) => {
                entry["addresses"] = json!([address.to_string()]);
                entry["dhcp4"] = false.into();
                entry["dhcp6"] = false.into();
                if let Some(gateway) = interface.gateway()? {
                    entry["routes"] = json!([route(address, gateway)]);
                }
            }
            None => entry["dhcp4"] = true.into(),
        }
        let dns: Vec<String> = interface.dns()?.iter().map(IpAddr::to_string).collect();
        if !dns.is_empty() {
            entry["nameservers"] = json!({ "addresses": dns });
        }
        ethernets.insert(format!("net{position}"), entry);
    }
    Ok(json!({ "version": 2, "ethernets": ethernets }))
}

fn route(address: IpNet, gateway: IpAddr) -> Value {
    let to = if gateway.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
    match address.contains(&gateway) {
        true => json!({ "to": to, "via": gateway.to_string() }),
        false => json!({ "to": to, "via": gateway.to_string(), "on-link": true }),
    }
}

struct Keep {
    payload: Payload,
    seed: Seed,
}

impl EngineAction for Keep {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            let mut outcome = context.run(self.payload.clone()).await?;
            let wanted = outcome.data.shift_remove("wanted") == Some(Value::Bool(true));
            if outcome.failed || context.check_mode() || !wanted {
                return Ok(outcome);
            }
            // The hypervisor cannot build it; perhaps this machine can.
            let text = |name: &str| outcome.data.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
            let (uuid, application) = (text("uuid"), text("application"));
            let folder = std::env::temp_dir().join(format!(".etcdrun-{:016x}", rand::random::<u64>()));
            let built = self.build(&folder, &uuid, &application).await;
            let staged = match &built {
                Ok(()) => context.upload(&folder.join("iso")).await,
                Err(error) => Err(ActionError::Failed(format!(
                    "the hypervisor has none of genisoimage, mkisofs and xorriso, and the workstation cannot build the ISO either: {error}"
                ))),
            };
            // It is private, and in a folder for such things, should it stay.
            let _ = std::fs::remove_dir_all(&folder);
            context.run(self.payload.clone().value("uuid", uuid).value("staged", staged?)).await
        })
    }
}

impl Keep {
    async fn build(&self, folder: &std::path::Path, uuid: &str, application: &str) -> io::Result<()> {
        use std::os::unix::fs::DirBuilderExt as _;
        std::fs::DirBuilder::new().mode(0o700).create(folder)?;
        let meta = format!("{{\"instance-id\": \"{uuid}\", \"local-hostname\": \"{}\"}}\n", self.seed.hostname);
        for (name, text) in
            [("user-data", &self.seed.user_data), ("network-config", &self.seed.network_config), ("meta-data", &meta)]
        {
            std::fs::write(folder.join(name), text)?;
        }
        let mut missing = io::Error::other("no genisoimage, mkisofs or xorriso here");
        for (program, first) in [("genisoimage", &[][..]), ("mkisofs", &[]), ("xorriso", &["-as", "mkisofs"])] {
            let run = tokio::process::Command::new(program)
                .args(first)
                .args(["-quiet", "-output", "iso", "-volid", "cidata", "-joliet", "-rock", "-A", application])
                .args(["user-data", "meta-data", "network-config"])
                .current_dir(folder)
                .stdin(Stdio::null())
                .output();
            match run.await {
                Ok(output) if output.status.success() => return Ok(()),
                Ok(output) => missing = io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => missing = error,
            }
        }
        Err(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::testing::module_error;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ";
    const HASH: &str =
        "$6$saltsalt$qFmFH.bQmmtXzyBY0s9v7Oicd2z4XSIecDzlB5KiA2/jctKu9YterLp8wwnSq.qc.eoxqOmSuNp2xS0ktL3nh/";

    fn module(yaml: &str) -> CloudInit {
        crate::source::from_node(&crate::support::testing::node(yaml)).unwrap()
    }

    #[test]
    fn addresses_are_found_by_mac_and_routes_by_the_gateway() {
        let module = module(
            "{ name: g, pool: p, interfaces: [{ network: a, ip: 10.0.0.5/24, gateway: 10.0.0.1, dns: [10.0.0.1] }, { macvtap: e0, mac: '52:54:00:AA:00:01', ip: 192.0.2.7/32, gateway: 192.0.2.1 }, { bridge: br0 }] }",
        );
        let config = network_config(&module).unwrap();
        let ethernets = &config["ethernets"];
        assert_eq!(ethernets["net0"]["routes"], json!([{ "to": "0.0.0.0/0", "via": "10.0.0.1" }]));
        assert_eq!(ethernets["net1"]["match"]["macaddress"], "52:54:00:aa:00:01");
        assert_eq!(ethernets["net1"]["routes"][0]["on-link"], true);
        assert_eq!((&ethernets["net2"]["dhcp4"], &ethernets["net0"]["dhcp4"]), (&json!(true), &json!(false)));
    }

    #[test]
    fn further_user_data_is_merged() {
        let module = module(&format!(
            "{{ name: g, pool: p, user: ops, ssh_keys: '{KEY}', packages: [a], user_data: {{ packages: [b], ssh: {{ x: 1 }}, hostname: other }} }}"
        ));
        let data = user_data(&module, "g").unwrap();
        assert_eq!(data["packages"], json!(["a", "b"]));
        assert_eq!(data["ssh"], json!({ "emit_keys_to_console": true, "x": 1 }));
        assert_eq!(data["hostname"], "other");
        assert_eq!(data["users"][0]["lock_passwd"], true);
    }

    #[test]
    fn nothing_secret_gets_onto_the_iso() {
        let error = |more: &str| module_error::<CloudInit>(&format!("{{ name: g, pool: p, {more} }}"), &Value::Null);
        assert!(error("user: ops, password_hash: geheim").contains("not a hash"));
        assert!(error("user_data: { password: geheim }").contains("plain text (`password`)"));
        assert!(error("user_data: { chpasswd: { list: ['a:b'] } }").contains("chpasswd"));
        assert!(
            error("user_data: { write_files: [{ content: '-----BEGIN PRIVATE KEY-----' }] }").contains("private key")
        );
        // In base64, in lines, and as a data URL, too.
        const KEY_IN_BASE64: &str = "LS0tLS1CRUdJTiBFQyBQUklWQVRFIEtFWS0tLS0tCnNlY3JldAo=";
        let (first, rest) = KEY_IN_BASE64.split_at(20);
        for content in
            [KEY_IN_BASE64.to_owned(), format!("{first}\\n{rest}"), KEY_IN_BASE64.trim_end_matches('=').to_owned()]
        {
            let told = error(&format!("user_data: {{ write_files: [{{ encoding: b64, content: \"{content}\" }}] }}"));
            assert!(told.contains("private key"), "{content}: {told}");
        }
        for url in [format!("data:;base64,{KEY_IN_BASE64}"), "data:,-----BEGIN%20PRIVATE%20KEY-----%0A".to_owned()] {
            assert!(
                holds_private_key(&json!({ "storage": { "files": [{ "contents": { "source": url } }] } })),
                "{url}"
            );
        }
        assert!(!holds_private_key(&json!(["aGVsbG8gd29ybGQ=", "data:,hello%20world%2", "100%", KEY])));
        assert!(
            error(&format!("user: ops, ssh_keys: 'no key', password_hash: '{HASH}'")).contains("not a public SSH key")
        );
        assert!(plain_password(&json!({ "users": [{ "passwd": HASH }] })).is_none());
    }
}
