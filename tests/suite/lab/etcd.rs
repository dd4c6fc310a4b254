//! Clusters of real etcd on fast hosts: from nothing to serving, again, and with parts missing.

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use etcdrun_lab::{Kind, etcd, etcd_tools};

use super::{Place, Said};

/// Hosts that are to be one cluster, and the inventory that says so.
struct Site {
    place: Place,
    names: Vec<String>,
    addresses: Vec<String>,
}

impl Site {
    /// `sections` is what the cluster says beside its members; `VERSION` in it is the server of this minor version.
    fn new(members: usize, minor: &str, sections: &str) -> Self {
        let place = Place::new(Kind::Fast, members);
        let server = etcd(minor).unwrap();
        let sum = Command::new("sha256sum").arg(&server.path).output().unwrap().stdout;
        let sum = String::from_utf8(sum).unwrap()[..64].to_owned();
        let lab = place.folder.read("inventory.yaml");
        let (ssh, _) = lab.split_once("\nhosts:").unwrap();
        let names: Vec<String> = place.hosts.iter().map(|host| host.name().to_owned()).collect();
        let addresses: Vec<String> = place.hosts.iter().map(|host| host.address().to_string()).collect();
        let listed: String =
            names.iter().zip(&addresses).map(|(name, ip)| format!("      {name}: {{ address: {ip} }}\n")).collect();
        let (version, file) = (&server.version, server.path.display());
        let sections = sections.replace("VERSION", version);
        let text = format!(
            "{ssh}\netcd_releases:\n  {version}: {{ file: {file}, sha256: {sum} }}\nclusters:\n  prod:\n{sections}    members:\n{listed}"
        );
        place.folder.write("inventory.yaml", &text);
        Self { place, names, addresses }
    }

    fn play(&self, more: &[&str]) -> Said {
        self.place.folder.run(&[&["playbook", "site.yaml", "-i", "inventory.yaml"], more].concat())
    }

    /// etcdctl on this machine, as root of the cluster, with each member as an endpoint.
    fn etcdctl(&self, words: &[&str]) -> String {
        let (certificate, key) = (self.pki("clients/root.crt"), self.pki("clients/root.key"));
        self.etcdctl_as(&["--cert", &certificate, "--key", &key], words)
    }

    fn etcdctl_as(&self, who: &[&str], words: &[&str]) -> String {
        let endpoints: Vec<String> = self.addresses.iter().map(|ip| format!("https://{ip}:2379")).collect();
        let output = Command::new(etcd_tools().unwrap().join("etcdctl"))
            .args(["--endpoints", &endpoints.join(","), "--cacert", &self.pki("ca.crt"), "--dial-timeout", "3s"])
            .args(who)
            .args(words)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
    }

    fn pki(&self, name: &str) -> String {
        self.place.folder.path(".etcdrun/pki/prod").join(name).display().to_string()
    }

    fn is_served_by_all(&self) {
        let health = self.etcdctl(&["endpoint", "health"]);
        assert_eq!(health.matches("is healthy").count(), self.names.len(), "{health}");
        let list = self.etcdctl(&["member", "list"]);
        assert!(self.names.iter().all(|name| list.contains(name)), "{list}");
        assert_eq!(list.matches("started").count(), self.names.len(), "{list}");
    }

    fn changes_nothing(&self) {
        let again = self.play(&[]).ends(0);
        assert!(!again.stdout.lines().any(|line| line.starts_with("changed ")), "{}", again.stdout);
    }
}

const PLAIN: &str = "    etcd: { version: VERSION }\n";

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

    // One that lost its data, and was even started since, is not taken for a new one.
    let lost = &site.place.hosts[1];
    lost.run(&[
        "sh",
        "-c",
        "systemctl stop etcd; rm -rf /var/lib/etcd/data/*; ! timeout 5 systemctl start etcd; systemctl stop etcd",
    ])
    .unwrap();
    let refused = site.play(&[]).ends(2);
    let why = format!("{} has no data, but the cluster `prod` was formed", site.names[1]);
    assert!(refused.stdout.contains(&why), "{}", refused.stdout);
    let active = lost.run(&["sh", "-c", "systemctl is-active etcd || :"]).unwrap();
    assert_ne!(active.trim(), "active");
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
    let sections = "    etcd: { version: VERSION, gateway: true }\n    auth: { method: password, root_password: not-so-secret }\n    tls: { organization: Lab, algorithm: rsa, validity: 48h, early_renewal: 12h }\n";
    let site = Site::new(1, "3.5", sections);
    site.play(&[]).ends(0);
    let login: &[&str] = &["--user", "root:not-so-secret"];
    assert!(site.etcdctl_as(login, &["auth", "status"]).contains("Authentication Status: true"));
    assert!(site.etcdctl_as(&[], &["get", "key"]).contains("user name is empty"));
    let subject =
        site.place.hosts[0].run(&["openssl", "x509", "-in", "/etc/etcd/pki/server.crt", "-noout", "-subject", "-text"]);
    if let Ok(subject) = subject {
        assert!(subject.contains("O = Lab") && subject.contains("rsaEncryption"), "{subject}");
    }
    site.changes_nothing();
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

    // Another setting: each member restarts, and the cluster never stops.
    let quota = named.replace("version: 3.5.34", "version: 3.5.34, quota: 4GiB");
    assert_ne!(quota, named);
    site.place.folder.write("inventory.yaml", &quota);
    let plan = site.place.folder.run(&["plan", "site.yaml", "-i", "inventory.yaml"]).ends(0);
    let service = plan.stdout.lines().find(|line| line.contains("etcd : Service")).unwrap_or_default();
    assert!(service.starts_with("unknown"), "a plan does not say that nothing is restarted:\n{}", plan.stdout);
    site.play(&[]).ends(0);
    assert!(starts().iter().zip(&before).all(|(now, before)| now != before));
    site.is_served_by_all();
    site.changes_nothing();
}
