//! Clusters of real etcd on fast hosts: from nothing to serving, again, and with parts missing.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use etcdrun::etcd::Credential;
use etcdrun_lab::{Borrowed, Etcd, Host, Kind, etcd, etcd_tools};

use super::{Folder, Place, Said, etcdctl_words, lab, rollout_faults::until, web::Web};

/// Hosts that are to be one cluster, and the inventory that says so.
pub(super) struct Site {
    pub(super) place: Place,
    pub(super) names: Vec<String>,
    addresses: Vec<String>,
}

/// A member that starts compares its data with the others, and waits 7 s for each that is not up yet: for members that are all
/// switched on at once that is 14 s and more. They have the same data, so once they boot without it.
pub(super) const BOOT_AT_ONCE: &str = "check=$(sed -n 's/InitialCorruptCheck=true/InitialCorruptCheck=false/p; \
    s/^ETCD_EXPERIMENTAL_INITIAL_CORRUPT_CHECK=true/ETCD_EXPERIMENTAL_INITIAL_CORRUPT_CHECK=false/p' /etc/etcd/etcd.env) && \
    printf 'd /run/etcdrun-etcd 0755\\nf /run/etcdrun-etcd/first-start.env 0644 - - - %s\\n' \"$check\" > /etc/tmpfiles.d/boot.conf";
pub(super) const BOOTED: &str = "rm -rf /run/etcdrun-etcd /etc/tmpfiles.d/boot.conf";

impl Site {
    /// `sections` is what the cluster says beside its members; `VERSION` in it is the server of this minor version.
    pub(super) fn new(members: usize, minor: &str, sections: &str) -> Self {
        let place = Place::new(Kind::Fast, members);
        describe(&place, members, minor, sections);
        Self::of(place, members)
    }

    /// The same, and `site.yaml` was played.
    pub(super) fn played(members: usize, minor: &str, sections: &str) -> Self {
        let site = Self::new(members, minor, sections);
        site.play(&[]).ends(0);
        site
    }

    /// The same, by this test or by an earlier one, whose hosts this one has copies of. For clusters that several tests begin with;
    /// tests about how a cluster is formed do it by themselves.
    pub(super) fn formed(members: usize, minor: &str, sections: &str) -> Self {
        Self::formed_on(Kind::Fast, members, minor, sections)
    }

    /// The same, on hosts of this kind.
    pub(super) fn formed_on(kind: Kind, members: usize, minor: &str, sections: &str) -> Self {
        let server = etcd(minor).unwrap();
        let recipe =
            format!("{members} members of {} at {}\n{sections}\n{kind:?}", server.version, server.path.display());
        let place = Place::prepared(kind, members, &recipe, |place| {
            describe(place, members, minor, sections);
            place.folder.run(&["playbook", "site.yaml", "-i", "inventory.yaml"]).ends(0);
            place.hosts.iter().for_each(|host| drop(host.run(&["sh", "-c", BOOT_AT_ONCE]).unwrap()));
        });
        let site = Self::of(place, members);
        // Its machines were switched on a moment ago, so it may still have no leader.
        site.all_become_healthy();
        site.place.hosts.iter().for_each(|host| drop(host.run(&["sh", "-c", BOOTED]).unwrap()));
        site
    }

    /// The same, with spare machines behind the members, which are in no inventory.
    pub(super) fn formed_beside(members: usize, spare: usize, minor: &str, sections: &str) -> Self {
        Self::formed(members, minor, sections).beside(spare)
    }

    pub(super) fn beside(self, spare: usize) -> Self {
        self.beside_of(Kind::Fast, spare)
    }

    pub(super) fn beside_of(mut self, kind: Kind, spare: usize) -> Self {
        let Place { folder, hosts } = Place::new(kind, spare);
        let known = self.place.folder.read("known_hosts") + &folder.read("known_hosts");
        self.place.folder.write("known_hosts", &known);
        self.place.hosts.extend(hosts);
        self
    }

    /// The first hosts of a place are the members.
    pub(super) fn of(place: Place, members: usize) -> Self {
        let hosts = || place.hosts.iter().take(members);
        let names = hosts().map(|host| host.name().to_owned()).collect();
        let addresses = hosts().map(|host| host.address().to_string()).collect();
        Self { place, names, addresses }
    }

    pub(super) fn play(&self, more: &[&str]) -> Said {
        self.place.folder.run(&[&["playbook", "site.yaml", "-i", "inventory.yaml"], more].concat())
    }

    /// etcdctl on this machine, as root of the cluster, with each member as an endpoint.
    pub(super) fn etcdctl(&self, words: &[&str]) -> String {
        let key = self.place.folder.opened_file(".etcdrun/pki/prod/clients/root.key").display().to_string();
        self.etcdctl_as(&["--cert", &self.pki("clients/root.crt"), "--key", &key], words)
    }

    fn etcdctl_as(&self, who: &[&str], words: &[&str]) -> String {
        let endpoints: Vec<String> = self.addresses.iter().map(|ip| format!("https://{ip}:2379")).collect();
        let output = Command::new(etcd_tools().unwrap().join("etcdctl"))
            .args(["--endpoints", &endpoints.join(","), "--cacert", &self.pki("ca.crt"), "--dial-timeout", "3s"])
            .args(who)
            .args(words)
            .output()
            .unwrap();
        etcdctl_words(&output)
    }

    fn pki(&self, name: &str) -> String {
        self.place.folder.path(".etcdrun/pki/prod").join(name).display().to_string()
    }

    /// Members that come back by themselves, or were cut off from each other, need a moment to find each other.
    pub(super) fn all_become_healthy(&self) {
        until("all are healthy", || {
            self.etcdctl(&["endpoint", "health"]).matches("is healthy").count() == self.names.len()
        });
    }

    pub(super) fn is_served_by_all(&self) {
        let health = self.etcdctl(&["endpoint", "health"]);
        assert_eq!(health.matches("is healthy").count(), self.names.len(), "{health}");
        let list = self.etcdctl(&["member", "list"]);
        assert!(self.names.iter().all(|name| list.contains(name)), "{list}");
        assert_eq!(list.matches("started").count(), self.names.len(), "{list}");
    }

    /// The last machines are none of the cluster's.
    pub(super) fn forget(&mut self, from: usize) {
        self.names.truncate(from);
        self.addresses.truncate(from);
    }

    /// These machines are the cluster now.
    pub(super) fn now_members(&mut self, places: &[usize]) {
        let hosts: Vec<_> = places.iter().map(|place| &self.place.hosts[*place]).collect();
        self.names = hosts.iter().map(|host| host.name().to_owned()).collect();
        self.addresses = hosts.iter().map(|host| host.address().to_string()).collect();
    }

    /// What lets root in by certificate, for a test that talks to a member itself.
    pub(super) fn root_credential(&self) -> Credential {
        let pem = |name: &str| self.place.folder.opened(&format!(".etcdrun/pki/prod/{name}"));
        let identity = Some((pem("clients/root.crt"), pem("clients/root.key").into()));
        Credential { authority: pem("ca.crt"), identity, login: None }
    }

    /// Names and addresses.
    pub(super) fn members(&self) -> Vec<(String, String)> {
        self.names.iter().cloned().zip(self.addresses.iter().cloned()).collect()
    }

    pub(super) fn changes_nothing(&self) {
        let again = self.play(&[]).ends(0);
        assert!(!again.stdout.lines().any(|line| line.starts_with("changed ")), "{}", again.stdout);
    }
}

/// Writes the inventory of a cluster of the first hosts.
pub(super) fn describe(place: &Place, members: usize, minor: &str, sections: &str) {
    let server = etcd(minor).unwrap();
    let release = release(&server);
    let lab = place.folder.read("inventory.yaml");
    let (ssh, _) = lab.split_once("\nhosts:").unwrap();
    let entry = |host: &Borrowed| format!("      {}: {{ address: {} }}\n", host.name(), host.address());
    let listed: String = place.hosts.iter().take(members).map(entry).collect();
    let sections = sections.replace("VERSION", &server.version);
    let text = format!("{ssh}\netcd_releases:\n{release}clusters:\n  prod:\n{sections}    members:\n{listed}");
    place.folder.write("inventory.yaml", &text);
}

/// The table, the JSON and the exit code, of a cluster that is well, has a server less, and a host less.
fn status_tells_how_it_is(site: &Site) {
    let status = |more: &[&str]| site.place.folder.run(&[&["status", "-i", "inventory.yaml"], more].concat());
    let well = status(&["prod"]).ends(0);
    assert!(well.stdout.starts_with("prod: healthy, 3 of 3 members, "), "{}", well.stdout);
    assert_eq!(well.stdout.matches("  follower  ").count(), 2, "{}", well.stdout);
    assert!(well.stdout.contains(" of 8 GiB") && well.stdout.contains("364 days"), "{}", well.stdout);

    site.place.hosts[0].run(&["systemctl", "stop", "etcd"]).unwrap();
    let down = status(&["--json"]).ends(2);
    let report: serde_json::Value = serde_json::from_str(&down.stdout).unwrap();
    let cluster = &report["clusters"][0];
    assert_eq!((&cluster["name"], &cluster["healthy"]), (&"prod".into(), &false.into()), "{cluster:#}");
    let health: Vec<&str> =
        cluster["members"].as_array().unwrap().iter().map(|row| row["health"].as_str().unwrap()).collect();
    assert_eq!(health, ["unhealthy", "healthy", "healthy"], "{cluster:#}");
    site.place.hosts[0].run(&["systemctl", "start", "etcd"]).unwrap();

    site.place.hosts[2].freeze().unwrap();
    let begun = std::time::Instant::now();
    let mut gone = status(&["--connect-timeout", "3"]).ends(4);
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    // If it led, the others have to find a leader first.
    while !gone.stdout.contains("2 of 3 members") {
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", gone.stdout);
        gone = status(&["--connect-timeout", "3"]).ends(4);
    }
    let row = gone.stdout.lines().find(|line| line.trim_start().starts_with(&site.names[2])).unwrap();
    assert!(row.contains("unreachable"), "{}", gone.stdout);
    site.place.hosts[2].thaw().unwrap();
    let other = status(&["prd"]).ends(5);
    assert!(other.stderr.contains("did you mean `prod`?"), "{}", other.stderr);
}

/// An entry of the catalogue.
pub(super) fn release(server: &Etcd) -> String {
    format!("  {}: {{ file: {}, sha256: {} }}\n", server.version, server.path.display(), sha256(&server.path))
}

pub(super) fn sha256(file: &Path) -> String {
    let sum = Command::new("sha256sum").arg(file).output().unwrap().stdout;
    String::from_utf8(sum).unwrap()[..64].to_owned()
}

pub(super) const PLAIN: &str = "    etcd: { version: VERSION }\n";

#[test]
fn three_members_serve_with_tls_and_authentication() {
    let users = "    auth:\n      roles: { app: { permissions: [{ prefix: /app/ }] } }\n      users: { writer: { roles: [app] } }\n";
    let site = Site::new(3, "3.5", &format!("{PLAIN}{users}"));
    let plan = site.play(&["--check"]).ends(0);
    assert!(plan.stdout.contains("changed") && !site.place.folder.path(".etcdrun/pki").exists(), "{}", plan.stdout);

    site.play(&[]).ends(0);
    site.is_served_by_all();
    assert!(site.etcdctl(&["auth", "status"]).contains("Authentication Status: true"));
    assert!(site.etcdctl(&["user", "get", "writer"]).contains("Roles: app"));
    assert!(
        site.etcdctl_as(&[], &["get", "key", "--command-timeout", "2s"]).contains("Error"),
        "no certificate, no answer"
    );
    let unit = site.place.hosts[0].run(&["systemctl", "show", "--value", "-p", "User", "etcd"]).unwrap();
    assert_eq!(unit.trim(), "etcd");
    let key = site.place.hosts[0].run(&["stat", "-c", "%U %a", "/etc/etcd/pki/server.key"]).unwrap();
    assert_eq!(key.trim(), "etcd 600");
    let authority = site.place.folder.read(".etcdrun/pki/prod/ca.key.age");
    assert!(authority.starts_with("-----BEGIN AGE ENCRYPTED FILE-----"));
    for host in &site.place.hosts {
        host.run(&["sh", "-c", "! grep -rl 'new$' /etc/etcd && test ! -e /run/etcdrun-etcd"]).unwrap();
        let log = host.run(&["journalctl", "-u", "etcd", "--no-pager"]).unwrap();
        assert!(!log.contains("unrecognized environment variable"), "{log}");
    }
    site.changes_nothing();
    status_tells_how_it_is(&site);

    // One that lost its data, and was even started since, is not taken for a new one.
    let lost = &site.place.hosts[1];
    lost.run(&[
        "sh",
        "-c",
        "systemctl stop etcd; rm -rf /var/lib/etcd/data/*; ! timeout 5 systemctl start etcd; systemctl stop etcd",
    ])
    .unwrap();
    let refused = site.play(&[]).ends(2);
    let why = format!("{} has no data, but the cluster `prod` was bootstrapped", site.names[1]);
    assert!(refused.stdout.contains(&why), "{}", refused.stdout);
    let active = lost.run(&["sh", "-c", "systemctl is-active etcd || :"]).unwrap();
    assert_ne!(active.trim(), "active");
}

/// A service for discovery, as etcd's own was: the second interface of an etcd, which has to know how many will come.
fn discovery(host: &Host, members: usize) -> String {
    let server = etcd("3.5").unwrap();
    std::fs::copy(&server.path, host.path("/usr/local/bin/discovery").unwrap()).unwrap();
    let service = format!("http://{}:2379", host.address());
    let listen = [format!("--listen-client-urls={service}"), format!("--advertise-client-urls={service}")];
    let start = ["systemd-run", "--unit=discovery", "-p", "Type=notify", "/usr/local/bin/discovery", "--enable-v2"];
    host.run(&[&start[..], &["--data-dir=/var/tmp/discovery", &listen[0], &listen[1]]].concat()).unwrap();
    let body = format!("value={members}");
    let mut connection = TcpStream::connect((host.address(), 2379)).unwrap();
    let head = "Content-Type: application/x-www-form-urlencoded\r\nConnection: close";
    write!(
        connection,
        "PUT /v2/keys/clusters/one/_config/size HTTP/1.1\r\nHost: discovery\r\n{head}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    assert!(answer.contains(" 201 "), "{answer}");
    format!("{service}/v2/keys/clusters/one")
}

#[test]
fn members_find_each_other_by_a_service() {
    let service = Place::new(Kind::Fast, 1);
    let url = discovery(&service.hosts[0], 3);
    let site = Site::new(3, "3.5", &format!("    etcd: {{ version: VERSION, discovery: {{ url: \"{url}\" }} }}\n"));
    site.play(&[]).ends(0);
    site.is_served_by_all();
    // They needed it once.
    service.hosts[0].run(&["systemctl", "stop", "discovery"]).unwrap();
    site.changes_nothing();
}

/// A name server for the domain `prod.test`, which knows the members by their names in it.
fn name_server(host: &Host, members: &[(String, String)]) {
    let address = format!("--listen-address={}", host.address());
    let start = ["systemd-run", "--unit=names", "dnsmasq", "--keep-in-foreground", "--no-hosts", "--no-resolv"];
    let records = members.iter().flat_map(|(name, ip)| {
        let record = format!("--host-record={name}.prod.test,{ip}");
        [record, format!("--srv-host=_etcd-server-ssl._tcp.prod.test,{name}.prod.test,2380")]
    });
    let records: Vec<String> = records.collect();
    let records: Vec<&str> = records.iter().map(String::as_str).collect();
    host.run(&[&start[..], &["--conf-file=/dev/null", "--bind-interfaces", &address], &records].concat()).unwrap();
    until("the name server listens", || {
        host.run(&["sh", "-c", &format!("ss -lun | grep -qF '{}:53 '", host.address())]).is_ok()
    });
}

#[test]
fn members_find_each_other_by_the_records_of_a_domain() {
    let names = Place::new(Kind::Hypervisor, 1);
    let sections =
        "    etcd: { version: VERSION, discovery: { dns_srv: prod.test } }\n    tls: { names: [\"*.prod.test\"] }\n";
    let site = Site::new(3, "3.6", sections);
    name_server(&names.hosts[0], &site.members());
    for host in &site.place.hosts {
        let ask = format!("echo nameserver {} >/etc/resolv.conf", names.hosts[0].address());
        host.run(&["sh", "-c", &ask]).unwrap();
    }
    site.play(&[]).ends(0);
    site.is_served_by_all();
    let list = site.etcdctl(&["member", "list"]);
    assert_eq!(list.matches(".prod.test:").count(), 0, "they are listed where the inventory has them: {list}");
    site.changes_nothing();
    // The gates compare addresses.
    let member = site.members()[0].0.clone();
    site.place.folder.run(&["member", "restart", &member, "--yes"]).ends(0);
}

#[test]
fn five_members_come_up_although_the_operator_is_killed_again_and_again() {
    let site = Site::new(5, "3.6", PLAIN);
    // Wherever it is: in the midst of uploads, between the first start and the last, before authentication.
    for (attempt, milliseconds) in [700, 1200, 800, 500].into_iter().enumerate() {
        let words: &[&str] =
            if attempt == 0 { &["playbook", "site.yaml", "-i", "inventory.yaml"] } else { &["resume"] };
        let mut running = site.place.folder.command(words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(milliseconds));
        running.kill().unwrap();
        running.wait().unwrap();
    }
    let said = site.place.folder.run(&["resume"]);
    assert!(said.code == 0 || said.stderr.contains("no run that could be resumed"), "{}\n{}", said.stdout, said.stderr);
    site.is_served_by_all();
    assert!(site.etcdctl(&["auth", "status"]).contains("Authentication Status: true"));
    site.changes_nothing();
}

#[test]
fn every_version_takes_the_settings_that_are_made_for_it() {
    for minor in ["3.4", "3.7"] {
        let more = "    etcd: { version: VERSION, metrics: { level: extensive, urls: [\"http://127.0.0.1:2381\"] }, settings: { snapshot-count: 5000 } }\n";
        let site = Site::new(1, minor, more);
        site.play(&[]).ends(0);
        site.is_served_by_all();
        let host = &site.place.hosts[0];
        let log = host.run(&["journalctl", "-u", "etcd", "--no-pager"]).unwrap();
        assert!(!log.contains("unrecognized environment variable"), "{log}");
        let metrics = host.run(&["ss", "-ltn"]).unwrap();
        assert!(metrics.contains("127.0.0.1:2381"), "{metrics}");
        site.changes_nothing();
    }
}

#[test]
fn passwords_and_the_gateway_go_together() {
    let sections = "    etcd: { version: VERSION, gateway: true, data_dir: /var/lib/etcd }\n    auth: { method: password, root_password: not-so-secret, users: { writer: { password: first-word } } }\n    tls: { organization: Lab, algorithm: rsa, validity: 48h, early_renewal: 12h }\n";
    let site = Site::new(1, "3.5", sections);
    let above = || site.place.hosts[0].run(&["stat", "-c", "%U %a", "/var/lib"]).unwrap();
    let before = above();
    site.play(&[]).ends(0);
    assert_eq!(above(), before, "what is above the data belongs to others");
    let login: &[&str] = &["--user", "root:not-so-secret"];
    assert!(site.etcdctl_as(login, &["auth", "status"]).contains("Authentication Status: true"));
    assert!(site.etcdctl_as(&[], &["get", "key"]).contains("user name is empty"));
    let subject =
        site.place.hosts[0].run(&["openssl", "x509", "-in", "/etc/etcd/pki/server.crt", "-noout", "-subject", "-text"]);
    if let Ok(subject) = subject {
        assert!(subject.contains("O = Lab") && subject.contains("rsaEncryption"), "{subject}");
    }
    site.changes_nothing();

    // Another password for a user is set, and the old one is good for nothing any more.
    let inventory = site.place.folder.read("inventory.yaml");
    site.place.folder.write("inventory.yaml", &inventory.replace("first-word", "second-word"));
    let changed = site.play(&["--diff"]).ends(0);
    assert!(changed.stdout.contains("user writer: another password"), "{}", changed.stdout);
    assert!(!changed.stdout.contains("second-word"), "{}", changed.stdout);
    let login = |word: &str| site.etcdctl_as(&["--user", &format!("writer:{word}")], &["get", "key"]);
    assert!(login("first-word").contains("invalid user ID or password"), "{}", login("first-word"));
    assert!(login("second-word").contains("permission denied"), "{}", login("second-word"));
    site.changes_nothing();
    another_password_for_root(&site);
}

fn another_password_for_root(site: &Site) {
    let folder = &site.place.folder;
    let status = || folder.run(&["status", "-i", "inventory.yaml"]).ends(0);
    let login = |word: &str| site.etcdctl_as(&["--user", &format!("root:{word}")], &["user", "list"]);
    let rotate = || folder.run(&["playbook", "root-password.yaml", "-i", "inventory.yaml"]);
    status();
    let refused = rotate().ends(2);
    assert!(refused.stdout.contains("is in the inventory"), "{}", refused.stdout);
    let inventory = folder.read("inventory.yaml");
    folder.write("inventory.yaml", &inventory.replace("not-so-secret", "quite-secret"));
    // Until it is played, the old one holds.
    status();
    let changed = site.play(&["--diff"]).ends(0);
    assert!(changed.stdout.contains("user root: another password"), "{}", changed.stdout);
    assert!(!changed.stdout.contains("quite-secret"), "{}", changed.stdout);
    assert!(login("not-so-secret").contains("invalid user ID or password"), "{}", login("not-so-secret"));
    assert!(login("quite-secret").contains("writer"), "{}", login("quite-secret"));
    site.changes_nothing();
    status();

    // One that was made up is changed by a playbook.
    folder.write("inventory.yaml", &inventory.replace("root_password: not-so-secret, ", ""));
    site.changes_nothing();
    rotate().ends(0);
    let (kept, next) = (".etcdrun/pki/prod/clients/root.password", ".etcdrun/pki/prod/clients/root.next.password");
    let made = folder.opened(kept);
    assert!(made.len() == 32 && !folder.path(next).exists(), "{made}");
    assert!(login("quite-secret").contains("invalid user ID or password"), "{}", login("quite-secret"));
    assert!(login(&made).contains("writer"), "{}", login(&made));
    status();

    // The operator died when etcd had it, and before it was kept. Both files are plain, as an earlier version wrote them.
    folder.write(kept, "quite-secret").write(next, &made);
    site.changes_nothing();
    assert!(folder.opened(kept) == made && !folder.path(next).exists());
    assert!(!folder.read(kept).contains(&made), "it is encrypted again");
    status();
}

#[test]
fn what_changes_reaches_the_servers_one_after_the_other() {
    let site = Site::new(3, "3.5", PLAIN);
    site.play(&[]).ends(0);
    let starts = || -> Vec<String> {
        let started = ["systemctl", "show", "--value", "-p", "InvocationID", "etcd"];
        site.place.hosts.iter().map(|host| host.run(&started).unwrap()).collect()
    };
    let serial =
        || site.place.hosts[0].run(&["sha256sum", "/etc/etcd/pki/server.crt", "/etc/etcd/pki/server.key"]).unwrap();
    let (before, certificate) = (starts(), serial());

    // Another name in the certificates: a new one for the same key, and nothing restarts.
    let inventory = site.place.folder.read("inventory.yaml");
    let named = inventory.replace("    members:\n", "    tls: { names: [etcd.example.org] }\n    members:\n");
    site.place.folder.write("inventory.yaml", &named);
    site.play(&[]).ends(0);
    assert_eq!(starts(), before);
    let renewed = serial();
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    assert_ne!(lines(&renewed)[0], lines(&certificate)[0]);
    assert_eq!(lines(&renewed)[1], lines(&certificate)[1], "the key stays");

    // Another setting: each member restarts, and the cluster never stops. One that is down starts, and the others wait for that.
    let quota = named.replace("version: 3.5.34", "version: 3.5.34, quota: 4GiB");
    assert_ne!(quota, named);
    site.place.folder.write("inventory.yaml", &quota);
    let plan = site.place.folder.run(&["plan", "site.yaml", "-i", "inventory.yaml"]).ends(0);
    let service = plan.stdout.lines().find(|line| line.contains("etcd : Start or restart etcd")).unwrap_or_default();
    assert!(service.starts_with("unknown"), "a plan does not say that nothing is restarted:\n{}", plan.stdout);
    site.place.hosts[1].run(&["systemctl", "stop", "etcd"]).unwrap();
    site.play(&[]).ends(0);
    assert!(starts().iter().zip(&before).all(|(now, before)| now != before));
    site.is_served_by_all();
    site.changes_nothing();
}

/// What only `site.yaml` needs is found before anything is changed; a plan finds it, too, and needs no host for it.
#[test]
fn a_release_or_an_address_that_is_missing_is_told_before_the_first_change() {
    let folder = Folder::new();
    let inventory = |more: &str| {
        format!(
            "clusters:\n  prod:\n    etcd: {{ version: 3.5.34 }}\n    members: {{ etcd-1: {{ address: {more} }} }}\n"
        )
    };
    folder.write("inventory.yaml", &inventory("192.0.2.1"));
    let said = folder.run(&["playbook", "site.yaml", "--check"]).ends(5);
    assert!(
        said.stderr.contains("inventory.yaml:3:22: error: etcd 3.5.34 is not in `etcd_releases`"),
        "{}",
        said.stderr
    );
    let releases = format!("etcd_releases: {{ 3.5.34: {{ file: etcd, sha256: {:064} }} }}\n", 0);
    folder.write("inventory.yaml", &(releases + &inventory("etcd-1.example.org")));
    let said = folder.run(&["playbook", "site.yaml", "--check"]).ends(2);
    assert!(said.stdout.contains("`etcd-1.example.org` of etcd-1 is not an IP address"), "{}", said.stdout);
}

/// The server as a binary and as the tarball that etcd publishes, both from a URL and with a checksum.
#[test]
fn etcd_comes_from_a_url_as_a_binary_and_as_a_tarball() {
    let site = Site::new(1, "3.5", PLAIN);
    let server = etcd("3.5").unwrap();
    let folder = site.place.folder.path("web");
    let name = format!("etcd-v{}-linux-amd64", server.version);
    std::fs::create_dir_all(folder.join(&name)).unwrap();
    std::fs::copy(&server.path, folder.join(&name).join("etcd")).unwrap();
    let tarball = folder.join(format!("{name}.tar.gz"));
    let (folder_text, tarball_text) = (folder.to_str().unwrap(), tarball.to_str().unwrap());
    crate::support::run("tar", &["-C", folder_text, "-czf", tarball_text, &name]);
    let web = Web::start(folder.clone());
    let plain = site.place.folder.read("inventory.yaml");
    let release = plain.lines().find(|line| line.contains("sha256:")).unwrap().to_owned();
    let from_url = |file: &str, sum: &str| {
        let url = web.url(file);
        let line = format!("  {}: {{ url: \"{url}\", sha256: {sum} }}", server.version);
        site.place.folder.write("inventory.yaml", &plain.replace(&release, &line));
    };
    let sum_of =
        |path: &str| String::from_utf8(crate::support::run("sha256sum", &[path]).stdout).unwrap()[..64].to_owned();

    from_url(&format!("{name}.tar.gz"), &"b".repeat(64));
    let wrong = site.play(&[]).ends(2);
    assert!(wrong.stdout.contains("sha256"), "{}", wrong.stdout);
    from_url(&format!("{name}.tar.gz"), &sum_of(tarball_text));
    site.play(&[]).ends(0);
    site.is_served_by_all();
    site.changes_nothing();
    from_url(&format!("{name}/etcd"), &sum_of(server.path.to_str().unwrap()));
    site.play(&[]).ends(0);
    site.changes_nothing();
}

/// Members that cannot connect to each other are told so, and none of them is started.
#[test]
fn members_that_cannot_reach_each_other_do_not_begin() {
    let site = Site::new(2, "3.5", PLAIN);
    let (one, other): (&Host, &Host) = (&site.place.hosts[0], &site.place.hosts[1]);
    lab().partition(&[one], &[other]).unwrap();
    let said = site.play(&[]).ends(2);
    let (from, to) = (&site.names[0], &site.names[1]);
    assert!(said.stdout.contains(&format!("{from} cannot connect to {to} at port 2380")), "{}", said.stdout);
    assert!(one.run(&["systemctl", "is-active", "etcd"]).is_err());
    lab().unpartition(&[one], &[other]).unwrap();
    site.play(&[]).ends(0);
    site.is_served_by_all();
}
