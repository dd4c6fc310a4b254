//! A cluster that something else has made becomes one of an inventory.

use std::process::Command;

use etcdrun_lab::{Kind, etcd, etcd_tools};

use super::{Place, Said, etcdctl_words};

/// Three machines with a cluster of their own, made by hand: certificates by openssl, a unit that nobody but its author knows.
struct Stranger {
    place: Place,
    version: String,
}

/// How its servers are told what to do.
#[derive(Clone, Copy, PartialEq)]
enum Told {
    /// Half of it by flags, half of it by the environment.
    ByWords,
    ByFile,
}

impl Stranger {
    fn new(minor: &str, told: Told) -> Self {
        let place = Place::new(Kind::Fast, 3);
        let server = etcd(minor).unwrap();
        let stranger = Self { place, version: server.version.clone() };
        stranger
            .openssl("req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -days 30 -subj /O=Elders/CN=elders");
        let members: Vec<String> =
            (0..3).map(|number| format!("old-{number}=https://{}:2380", stranger.ip(number))).collect();
        for number in 0..3 {
            stranger.certificate(number);
            stranger.start(number, &server.path, &members.join(","), told);
        }
        // Each of them answers its notification only once there is a cluster.
        for host in &stranger.place.hosts {
            host.run(&["systemctl", "start", "etcd"]).unwrap();
        }
        stranger
    }

    fn ip(&self, number: usize) -> String {
        self.place.hosts[number].address().to_string()
    }

    fn file(&self, name: &str) -> String {
        self.place.folder.path(name).display().to_string()
    }

    fn openssl(&self, line: &str) {
        let done =
            Command::new("openssl").args(line.split(' ')).current_dir(self.place.folder.path("")).output().unwrap();
        assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
    }

    fn certificate(&self, number: usize) {
        let names = format!("subjectAltName=IP:{},IP:127.0.0.1,DNS:etcd.example.org\n", self.ip(number));
        self.signed(&number.to_string(), &format!("old-{number}"), &names);
    }

    /// A key and a certificate, `FILE.key` and `FILE.crt`.
    fn signed(&self, file: &str, name: &str, more: &str) {
        self.place.folder.write("names", &format!("{more}extendedKeyUsage=serverAuth,clientAuth\n"));
        self.openssl(&format!(
            "req -newkey rsa:2048 -nodes -keyout {file}.key -out {file}.csr -subj /O=Elders/CN={name}"
        ));
        self.openssl(&format!(
            "x509 -req -in {file}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -extfile names -out {file}.crt"
        ));
    }

    fn start(&self, number: usize, server: &std::path::Path, members: &str, told: Told) {
        let (host, ip) = (&self.place.hosts[number], self.ip(number));
        host.run(&["sh", "-c", "useradd --system etcd; mkdir -p /srv/etcd /etc/elders; chown etcd /srv/etcd"]).unwrap();
        std::fs::copy(server, host.path("/usr/local/bin/etcd").unwrap()).unwrap();
        let settings = [
            ("name", format!("old-{number}")),
            ("data-dir", "/srv/etcd/data".to_owned()),
            ("listen-client-urls", "https://0.0.0.0:2379".to_owned()),
            ("advertise-client-urls", format!("https://{ip}:2379")),
            ("listen-peer-urls", format!("https://{ip}:2380")),
            ("initial-advertise-peer-urls", format!("https://{ip}:2380")),
            ("initial-cluster-token", "elders".to_owned()),
            ("initial-cluster", members.to_owned()),
            ("quota-backend-bytes", "4294967296".to_owned()),
            ("heartbeat-interval", "150".to_owned()),
        ];
        let (start, path, text) = match told {
            Told::ByWords => {
                let flags: String = settings.iter().map(|(name, value)| format!(" --{name} {value}")).collect();
                let tls = "ETCD_CERT_FILE=/etc/elders/server.crt\nETCD_KEY_FILE=/etc/elders/server.key\nETCD_TRUSTED_CA_FILE=/etc/elders/ca.crt\nETCD_CLIENT_CERT_AUTH=true\nETCD_PEER_CERT_FILE=/etc/elders/server.crt\nETCD_PEER_KEY_FILE=/etc/elders/server.key\nETCD_PEER_TRUSTED_CA_FILE=/etc/elders/ca.crt\nETCD_PEER_CLIENT_CERT_AUTH=true\n";
                (flags, "/etc/elders/env", tls.to_owned())
            }
            Told::ByFile => {
                let mut text: String = settings.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
                for whose in ["client", "peer"] {
                    text += &format!(
                        "{whose}-transport-security:\n  cert-file: /etc/elders/server.crt\n  key-file: /etc/elders/server.key\n  trusted-ca-file: /etc/elders/ca.crt\n  client-cert-auth: true\n"
                    );
                }
                (" --config-file /etc/elders/etcd.yaml".to_owned(), "/etc/elders/etcd.yaml", text)
            }
        };
        let unit = format!(
            "[Service]\nType=notify\nUser=etcd\nEnvironmentFile=-/etc/elders/env\nExecStart=/usr/local/bin/etcd{start}\n"
        );
        for (text, path) in [(&text, path), (&unit, "/etc/systemd/system/etcd.service")] {
            self.place.folder.write("sent", text);
            std::fs::copy(self.place.folder.path("sent"), host.path(path).unwrap()).unwrap();
        }
        for (file, path) in [
            ("ca.crt".to_owned(), "ca.crt"),
            (format!("{number}.crt"), "server.crt"),
            (format!("{number}.key"), "server.key"),
        ] {
            std::fs::copy(self.place.folder.path(&file), host.path(&format!("/etc/elders/{path}")).unwrap()).unwrap();
        }
        host.run(&["sh", "-c", "chown -R etcd /etc/elders; chmod 755 /usr/local/bin/etcd; systemctl daemon-reload; systemctl --no-block start etcd"]).unwrap();
    }

    fn adopt(&self, more: &[&str]) -> Said {
        let words = ["member", "adopt", "prod", "--via", &self.ip(0), "-i", "inventory.yaml", "--out", "prod.yaml"];
        self.place.folder.run(&[&words, more].concat())
    }

    /// As if it had never been adopted.
    fn forgets(&self) {
        std::fs::remove_file(self.place.folder.path("prod.yaml")).unwrap();
        std::fs::remove_dir_all(self.place.folder.path(".etcdrun")).unwrap();
    }

    fn etcdctl(&self, words: &[&str]) -> String {
        self.etcdctl_as("0", words)
    }

    /// With the certificate of that file.
    fn etcdctl_as(&self, file: &str, words: &[&str]) -> String {
        let output = Command::new(etcd_tools().unwrap().join("etcdctl"))
            .args(["--endpoints", &format!("https://{}:2379", self.ip(1)), "--cacert", &self.file("ca.crt")])
            .args(["--cert", &self.file(&format!("{file}.crt")), "--key", &self.file(&format!("{file}.key"))])
            .args(words)
            .output()
            .unwrap();
        etcdctl_words(&output)
    }

    /// Everything that must not have changed on the hosts.
    fn traces(&self) -> Vec<String> {
        let look = "systemctl show -p InvocationID etcd; find /etc /srv /opt /usr/local /root -newer /etc/elders/server.key -type f ! -path '/srv/etcd/data/*' | sort";
        self.place.hosts.iter().map(|host| host.run(&["sh", "-c", look]).unwrap()).collect()
    }
}

#[test]
fn a_cluster_made_by_hand_is_taken_over() {
    let stranger = Stranger::new("3.5", Told::ByWords);
    assert!(stranger.etcdctl(&["put", "kept", "well"]).contains("OK"));
    let before = stranger.traces();
    let said = stranger.adopt(&["--ca-key", "ca.key"]).ends(0);
    let written = stranger.place.folder.read("prod.yaml");
    println!("{}\n{written}", said.stdout);
    assert_eq!(stranger.traces(), before, "nothing is changed on the hosts");
    for words in [
        "data_dir: /srv/etcd/data",
        "quota: \"4GiB\"",
        "heartbeat-interval: \"150\"",
        "organization: Elders",
        "names: [etcd.example.org]",
        "auth: { enabled: false }",
        "etcd_user_home: ",
    ] {
        assert!(written.contains(words), "{words}: {written}");
    }
    assert!(said.stdout.starts_with(&format!("prod: etcd {}, 3 members", stranger.version)), "{}", said.stdout);

    // From here on it is a cluster like any other.
    let folder = &stranger.place.folder;
    folder.run(&["lint", "-i", "prod.yaml", "site.yaml"]).ends(0);
    let status = folder.run(&["status", "-i", "prod.yaml"]).ends(0);
    assert!(status.stdout.starts_with("prod: healthy, 3 of 3 members, old-"), "{}", status.stdout);
    let plan = folder.run(&["plan", "site.yaml", "-i", "prod.yaml"]).ends(0);
    assert!(!plan.stdout.contains("a new cluster") && plan.stdout.contains("Start or restart etcd"), "{}", plan.stdout);
    // It is there, and is not written over.
    let again = stranger.adopt(&[]).ends(5);
    assert!(again.stderr.contains("prod.yaml already exists") && again.stderr.contains("--force"), "{}", again.stderr);

    // And etcdrun runs it, with all that was in it.
    folder.run(&["playbook", "site.yaml", "-i", "prod.yaml"]).ends(0);
    let status = folder.run(&["status", "-i", "prod.yaml"]).ends(0);
    assert!(status.stdout.starts_with("prod: healthy, 3 of 3 members, old-"), "{}", status.stdout);
    assert!(stranger.etcdctl(&["get", "kept"]).contains("well"));
    for host in &stranger.place.hosts {
        host.run(&["sh", "-c", "readlink /proc/$(systemctl show -p MainPID --value etcd)/exe | grep ^/opt/etcd/"])
            .unwrap();
    }
    let again = folder.run(&["playbook", "site.yaml", "-i", "prod.yaml"]).ends(0);
    assert!(!again.stdout.lines().any(|line| line.starts_with("changed ")), "{}", again.stdout);
}

/// Settings in a file, and clients that must say who they are.
#[test]
fn a_cluster_with_a_configuration_file_and_authentication_is_taken_over() {
    let stranger = Stranger::new("3.6", Told::ByFile);
    let folder = &stranger.place.folder;
    stranger.signed("root", "root", "");
    let as_root = |words: &[&str]| stranger.etcdctl_as("root", words);
    assert!(as_root(&["put", "kept", "well"]).contains("OK"));
    as_root(&["user", "add", "root", "--no-password"]);
    as_root(&["user", "grant-role", "root", "root"]);
    assert!(as_root(&["auth", "enable"]).contains("Authentication Enabled"));
    assert!(stranger.etcdctl(&["get", "kept"]).contains("permission denied"));

    // A server's own certificate is no user's.
    let said = stranger.adopt(&[]).ends(0);
    assert!(said.stdout.contains("is not a user there"), "{}", said.stdout);
    stranger.forgets();
    let before = stranger.traces();
    stranger.adopt(&["--ca-key", "ca.key"]).ends(0);
    assert_eq!(stranger.traces(), before, "nothing is changed on the hosts");
    let written = folder.read("prod.yaml");
    for words in ["data_dir: /srv/etcd/data", "quota: \"4GiB\"", "heartbeat-interval: \"150\"", "organization: Elders"]
    {
        assert!(written.contains(words), "{words}: {written}");
    }
    assert!(!written.contains("auth: { enabled: false }"), "{written}");
    let status = folder.run(&["status", "-i", "prod.yaml"]).ends(0);
    assert!(status.stdout.starts_with("prod: healthy, 3 of 3 members, old-"), "{}", status.stdout);

    folder.run(&["playbook", "site.yaml", "-i", "prod.yaml"]).ends(0);
    assert!(as_root(&["get", "kept"]).contains("well"));
    assert!(stranger.etcdctl(&["get", "kept"]).contains("permission denied"), "it still asks who one is");
    let again = folder.run(&["playbook", "site.yaml", "-i", "prod.yaml"]).ends(0);
    assert!(!again.stdout.lines().any(|line| line.starts_with("changed ")), "{}", again.stdout);
}

#[test]
fn what_cannot_be_taken_over_is_told_with_the_way_out() {
    let stranger = Stranger::new("3.6", Told::ByWords);
    let folder = &stranger.place.folder;
    let refused = |words: &[&str], code: i32, why: &str| {
        let said = stranger.adopt(words).ends(code);
        assert!(said.stderr.contains(why), "{words:?}: {}", said.stderr);
        assert!(!folder.path("prod.yaml").exists() && !folder.path(".etcdrun/clusters").exists(), "{words:?}");
    };
    let ip = stranger.ip(0);
    let bad = |words: &[&str], why: &str| {
        let said = folder.run(&[&["member", "adopt"], words].concat()).ends(5);
        assert!(said.stderr.contains(why), "{words:?}: {}", said.stderr);
    };
    bad(&["a b", "--via", &ip], "cannot be the name of a cluster");
    bad(&["prod", "--via", "no address"], "is not an address");
    bad(&["prod", "--via", &ip, "--out", "no/such/prod.yaml"], "there is no directory no/such");
    bad(&["prod", "--via", &ip, "--out", "prod.yaml", "--ca-key", "no.key"], "no.key: No such file");

    // Without the authority's key: the server's own certificate does, and nobody can sign.
    let said = stranger.adopt(&[]).ends(0);
    assert!(
        said.stdout.contains("cannot sign certificates")
            && said.stdout.contains("the member's own certificate and key"),
        "{}",
        said.stdout
    );
    folder.run(&["lint", "-i", "prod.yaml", "site.yaml"]).ends(0);
    folder.run(&["status", "-i", "prod.yaml"]).ends(0);
    stranger.forgets();

    // Another authority's key, and a certificate of a stranger.
    stranger.openssl("req -x509 -newkey rsa:2048 -nodes -keyout other.key -out other.crt -days 30 -subj /CN=other");
    refused(&["--ca-key", "other.key"], 3, "this key does not match");
    refused(&["--cert", "other.crt", "--key", "other.key"], 3, "rejects the login");

    // A learner, and one that never started.
    let add = ["member", "add", "late", "--learner", "--peer-urls", "https://192.0.2.9:2380"];
    let mut added = stranger.etcdctl(&add);
    // A cluster that has just begun does not take anybody in for a few seconds.
    for _ in 0..100 {
        if added.contains("added to cluster") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(200));
        added = stranger.etcdctl(&add);
    }
    let id = added.split_whitespace().nth(1).unwrap().to_owned();
    refused(&[], 3, "was added and never started");
    assert!(stranger.etcdctl(&["member", "remove", &id]).contains("removed"));

    // A member that cannot be visited is written down all the same.
    stranger.place.hosts[2].run(&["sh", "-c", "systemctl stop ssh.socket ssh sshd 2>/dev/null; true"]).unwrap();
    let said = stranger.adopt(&["--connect-timeout", "3"]).ends(4);
    assert!(said.stdout.contains("cannot reach old-2"), "{}", said.stdout);
    assert!(folder.read("prod.yaml").contains(&format!("old-2: {{ address: {}", stranger.ip(2))));
    stranger.place.hosts[2].run(&["sh", "-c", "systemctl start ssh.socket ssh sshd 2>/dev/null; true"]).unwrap();
    stranger.forgets();

    // TLS is off, and nothing runs at all.
    let plain = "sed -i 's/https:/http:/g; /^EnvironmentFile/d' /etc/systemd/system/etcd.service; systemctl stop etcd; systemctl daemon-reload; systemctl --no-block start etcd; timeout 20 sh -c 'until pidof etcd; do sleep 0.1; done'";
    stranger.place.hosts[0].run(&["sh", "-c", plain]).unwrap();
    refused(&[], 3, "does not use TLS");
    stranger.place.hosts[0].run(&["systemctl", "stop", "etcd"]).unwrap();
    refused(&[], 3, "no etcd runs on this host");
}
