//! kubeadm's external etcd: certificates by its names, its configuration, and the endpoints of API servers. The kubelet and the API server
//! are stand-ins, `kubelet.py`; etcd and every certificate are real.

use std::{collections::BTreeMap, process::Command};

use etcdrun_lab::{Kind, etcd_tools};

use super::{again, changes, changes_nothing, shell};
use crate::{
    lab::{Said, etcd::Site, etcdctl_words, rollout_faults::until},
    support::program::Folder,
};

const SECTIONS: &str = "    etcd: { version: VERSION, compaction: { mode: periodic, retention: 10m } }
    auth:
      roles: { kubernetes: { permissions: [{ prefix: /registry/ }, { key: compact_rev_key }] } }
      users: { kube-apiserver-etcd-client: { roles: [kubernetes] } }
";

/// The control-plane hosts.
const PLANES: [usize; 2] = [3, 4];
const PKI: &str = "/etc/kubernetes/pki";
const PLAYBOOK: &str = "kubeadm-etcd.yaml";
const MANIFEST: &str = "/etc/kubernetes/manifests/kube-apiserver.yaml";

/// A cluster, two hosts for the control plane, and one that may become a member.
fn site() -> Site {
    let site = Site::formed(3, "3.6", SECTIONS).beside_of(Kind::Services, 2).beside(1);
    let planes = PLANES.map(|host| &site.place.hosts[host]);
    let entries =
        planes.map(|host| format!("  {}: {{ address: {}, groups: [control_plane] }}\n", host.name(), host.address()));
    let vars = "groups:
  control_plane:
    vars:
      kubeadm_etcd_cluster: prod
      kubeadm_etcd_configuration: { kubernetesVersion: v1.34.1, controlPlaneEndpoint: \"k8s.example.org:6443\" }
      kubeadm_etcd_documents: [{ apiVersion: kubeadm.k8s.io/v1beta4, kind: InitConfiguration, skipPhases: [addon/kube-proxy] }]
";
    let text = site.place.folder.read("inventory.yaml");
    site.place.folder.write("inventory.yaml", &format!("{text}hosts:\n{}{vars}", entries.concat()));
    site
}

fn openssl(folder: &Folder, line: &str) -> String {
    let done = Command::new("openssl").args(line.split(' ')).current_dir(folder.path("")).output().unwrap();
    assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

/// What `kubeadm init` and `join` leave behind, with the endpoints of the configuration: a CA, a certificate, a manifest.
fn bring_up(site: &Site) {
    let (folder, servers) = (&site.place.folder, endpoints(site));
    openssl(folder, "req -x509 -newkey rsa:2048 -nodes -keyout k8s.key -out k8s.crt -days 30 -subj /CN=kubernetes");
    for number in PLANES {
        let host = &site.place.hosts[number];
        let ip = host.address().to_string();
        folder.write("names", &format!("subjectAltName=IP:{ip}\n"));
        openssl(folder, "req -newkey rsa:2048 -nodes -keyout api.key -out api.csr -subj /CN=kube-apiserver");
        openssl(
            folder,
            "x509 -req -in api.csr -CA k8s.crt -CAkey k8s.key -CAcreateserial -days 30 -extfile names -out api.crt",
        );
        folder.write("kubelet.py", include_str!("kubelet.py"));
        folder.write("manifest", &manifest(&ip, &servers));
        shell(site, number, "mkdir -p /etc/kubernetes/manifests && touch /etc/kubernetes/manifests/other.yaml");
        for (file, path) in [
            ("k8s.crt", format!("{PKI}/ca.crt")),
            ("api.crt", format!("{PKI}/apiserver.crt")),
            ("api.key", format!("{PKI}/apiserver.key")),
            ("kubelet.py", "/usr/local/bin/kubelet".to_owned()),
            ("kubelet.py", "/usr/local/bin/kube-apiserver".to_owned()),
            ("manifest", MANIFEST.to_owned()),
        ] {
            std::fs::copy(folder.path(file), host.path(&path).unwrap()).unwrap();
        }
        shell(site, number, "chmod 755 /usr/local/bin/kube*; chmod 600 /etc/kubernetes/manifests/*");
        shell(site, number, "systemd-run --quiet --unit=kubelet /usr/local/bin/kubelet");
    }
    until("the API servers are ready", || PLANES.iter().all(|host| is_ready(site, *host)));
}

fn manifest(ip: &str, servers: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata:
  annotations:
    kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint: {ip}:6443
  labels:
    component: kube-apiserver
  name: kube-apiserver
  namespace: kube-system
spec:
  containers:
  - command:
    - kube-apiserver
    - --advertise-address={ip}
    - --etcd-cafile={PKI}/etcd/ca.crt
    - --etcd-certfile={PKI}/apiserver-etcd-client.crt
    - --etcd-keyfile={PKI}/apiserver-etcd-client.key
    - --etcd-servers={servers}
    - --etcd-servers-overrides=/events#https://192.0.2.1:2379
    - --secure-port=6443
    - --tls-cert-file={PKI}/apiserver.crt
    - --tls-private-key-file={PKI}/apiserver.key
    image: registry.k8s.io/kube-apiserver:v1.34.1
    name: kube-apiserver
  hostNetwork: true
"
    )
}

fn is_ready(site: &Site, host: usize) -> bool {
    let ip = site.place.hosts[host].address();
    let ask = format!("curl -sf -m 5 --cacert {PKI}/ca.crt https://{ip}:6443/readyz");
    site.place.hosts[host].run(&["sh", "-c", &ask]).is_ok_and(|said| said == "ok")
}

fn endpoints(site: &Site) -> String {
    site.members().iter().map(|(_, ip)| format!("https://{ip}:2379")).collect::<Vec<_>>().join(",")
}

/// From when to when no API server answered on this host, each time, and that nothing else was there that a kubelet would run.
fn outages(site: &Site, host: usize) -> Vec<(f64, f64)> {
    let text = shell(site, host, "cat /var/log/kubernetes.log");
    let mut outages = Vec::new();
    for line in text.lines() {
        let (time, what) = line.split_once(' ').unwrap();
        let time: f64 = time.parse().unwrap();
        match what {
            "stop" => outages.push((time, f64::INFINITY)),
            "ready" => outages.iter_mut().filter(|(_, to)| to.is_infinite()).for_each(|(_, to)| *to = time),
            "start" => {}
            other => panic!("{other}"),
        }
    }
    outages
}

/// Each has restarted so often, and never both at once.
#[track_caller]
fn have_restarted(site: &Site, times: usize) {
    let [first, second] = PLANES.map(|host| outages(site, host));
    assert_eq!((first.len(), second.len()), (times, times), "{first:?} {second:?}");
    for (from, to) in &first {
        assert!(second.iter().all(|(start, end)| end < from || to < start), "{first:?} {second:?}");
    }
}

/// A file of a host, at a place where openssl finds it.
fn file(site: &Site, host: usize, path: &str) -> String {
    site.place.hosts[host].path(path).unwrap().display().to_string()
}

fn text_of(site: &Site, host: usize, path: &str) -> String {
    std::fs::read_to_string(file(site, host, path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// What kubeadm's documentation wants of each certificate.
fn certificates_are_right(site: &Site) {
    let folder = &site.place.folder;
    let about = |path: &str, host: usize| {
        let what = format!("x509 -in {} -noout -subject -ext extendedKeyUsage,subjectAltName", file(site, host, path));
        openssl(folder, &what)
    };
    let fits = |host: usize, name: &str, ca: &str, purpose: &str| {
        openssl(
            folder,
            &format!(
                "verify -purpose {purpose} -CAfile {} {}",
                file(site, host, ca),
                file(site, host, &format!("{name}.crt"))
            ),
        );
        let public = openssl(folder, &format!("x509 -in {} -noout -pubkey", file(site, host, &format!("{name}.crt"))));
        assert_eq!(public, openssl(folder, &format!("pkey -in {} -pubout", file(site, host, &format!("{name}.key")))));
        let mode = shell(site, host, &format!("stat -L -c %a {name}.key"));
        assert_eq!(mode, "600\n");
    };
    let ca = format!("{PKI}/etcd/ca.crt");
    for host in PLANES {
        fits(host, &format!("{PKI}/apiserver-etcd-client"), &ca, "sslclient");
        let said = about(&format!("{PKI}/apiserver-etcd-client.crt"), host);
        assert!(said.contains("CN = kube-apiserver-etcd-client"), "{said}");
        assert!(said.contains("Client Authentication") && !said.contains("Server Authentication"), "{said}");
        assert!(!said.contains("Alternative"), "{said}");
        let keys = shell(site, host, "find /etc/kubernetes -name ca.key");
        assert_eq!(keys, "", "the CA key stays with the operator");
    }
    for (host, (name, ip)) in site.members().iter().enumerate() {
        fits(host, &format!("{PKI}/etcd/healthcheck-client"), &ca, "sslclient");
        let said = about(&format!("{PKI}/etcd/healthcheck-client.crt"), host);
        assert!(said.contains("CN = kube-etcd-healthcheck-client") && !said.contains("Server"), "{said}");
        for (pair, source) in [("server", "server"), ("peer", "server")] {
            let link = shell(site, host, &format!("readlink {PKI}/etcd/{pair}.crt {PKI}/etcd/{pair}.key"));
            assert_eq!(link, format!("/etc/etcd/pki/{source}.crt\n/etc/etcd/pki/{source}.key\n"));
        }
        let said = about("/etc/etcd/pki/server.crt", host);
        let names = [
            format!("CN = {name}"),
            format!("DNS:{name}"),
            format!("IP Address:{ip}"),
            "DNS:localhost".to_owned(),
            "IP Address:127.0.0.1".to_owned(),
        ];
        assert!(names.iter().all(|name| said.contains(name)), "{said}");
        assert!(said.contains("Server Authentication") && said.contains("Client Authentication"), "{said}");
    }
}

/// etcdctl with a certificate of a host, and its key.
fn etcdctl(site: &Site, host: usize, pair: &str, words: &[&str]) -> String {
    let path = |name: &str| file(site, host, &format!("{PKI}/{name}"));
    let output = Command::new(etcd_tools().unwrap().join("etcdctl"))
        .args(["--endpoints", &endpoints(site), "--cacert", &path("etcd/ca.crt"), "--dial-timeout", "3s"])
        .args(["--cert", &path(&format!("{pair}.crt")), "--key", &path(&format!("{pair}.key"))])
        .args(words)
        .output()
        .unwrap();
    etcdctl_words(&output)
}

fn as_api_server(site: &Site, words: &[&str]) -> String {
    etcdctl(site, PLANES[0], "apiserver-etcd-client", words)
}

/// What API servers do with etcd: objects, leases for events, and who compacts.
fn etcd_serves_api_servers(site: &Site) {
    assert_eq!(as_api_server(site, &["put", "/registry/pods/a", "1"]), "OK\n");
    assert_eq!(as_api_server(site, &["get", "/registry/", "--prefix", "--print-value-only"]), "1\n");
    let lease = as_api_server(site, &["lease", "grant", "60"]);
    let lease = lease.split(' ').nth(1).unwrap_or_else(|| panic!("{lease}")).to_owned();
    assert_eq!(as_api_server(site, &["put", "/registry/events/a", "1", "--lease", &lease]), "OK\n");
    assert_eq!(as_api_server(site, &["put", "compact_rev_key", "1"]), "OK\n");
    // So the documentation wants etcd's own compaction.
    assert!(as_api_server(site, &["compact", "2"]).contains("permission denied"));
    assert!(as_api_server(site, &["endpoint", "status"]).contains("https://"));
    let health = etcdctl(site, 0, "etcd/healthcheck-client", &["endpoint", "health"]);
    assert_eq!(health.matches("is healthy").count(), site.names.len(), "{health}");
    assert!(as_api_server(site, &["put", "/other", "1"]).contains("permission denied"));
    assert!(as_api_server(site, &["member", "remove", "1"]).contains("permission denied"));
}

fn configuration(site: &Site) -> BTreeMap<String, String> {
    let text = text_of(site, PLANES[0], "/etc/kubernetes/kubeadm-config.yaml");
    assert_eq!(shell(site, PLANES[0], "stat -c %a /etc/kubernetes/kubeadm-config.yaml"), "600\n");
    let mut parts = text
        .split("---\n")
        .skip(1)
        .map(|part| (part.lines().find(|line| line.starts_with("kind:")).unwrap().to_owned(), part.to_owned()));
    [parts.next().unwrap(), parts.next().unwrap()].into()
}

#[test]
fn api_servers_follow_the_members_one_at_a_time() {
    let mut site = site();
    let plan = site.place.folder.run(&["plan", PLAYBOOK, "-i", "inventory.yaml"]).ends(0);
    assert!(plan.stdout.contains("apiserver-etcd-client.crt"), "{}", plan.stdout);
    assert!(site.place.hosts[PLANES[0]].run(&["test", "!", "-e", "/etc/kubernetes"]).is_ok(), "a plan changes nothing");
    again(&site, PLAYBOOK).ends(0);
    changes_nothing(again(&site, PLAYBOOK));
    certificates_are_right(&site);
    etcd_serves_api_servers(&site);
    let documents = configuration(&site);
    let cluster = &documents["kind: ClusterConfiguration"];
    let wanted = [
        "apiVersion: kubeadm.k8s.io/v1beta4",
        "kubernetesVersion: v1.34.1",
        "caFile: /etc/kubernetes/pki/etcd/ca.crt",
        "keyFile: /etc/kubernetes/pki/apiserver-etcd-client.key",
    ];
    assert!(wanted.iter().all(|line| cluster.contains(line)) && cluster.matches(":2379").count() == 3, "{cluster}");
    assert!(documents["kind: InitConfiguration"].contains("addon/kube-proxy"));

    // kubeadm has made a control plane. From now on its manifests say which CA the API servers have read.
    bring_up(&site);
    again(&site, PLAYBOOK).ends(0);
    have_restarted(&site, 1);
    changes_nothing(again(&site, PLAYBOOK));

    let new = site.place.hosts[5].name().to_owned();
    let ip = site.place.hosts[5].address().to_string();
    site.place.folder.run(&["member", "add", &new, "--ip", &ip, "--yes", "-i", "inventory.yaml"]).ends(0);
    site.now_members(&[0, 1, 2, 5]);
    let plan = site.place.folder.run(&["plan", PLAYBOOK, "-i", "inventory.yaml"]).ends(0);
    assert!(plan.stdout.contains(&format!("--etcd-servers={}", endpoints(&site))), "{}", plan.stdout);
    have_restarted(&site, 1);
    let said = again(&site, PLAYBOOK).ends(0);
    assert!(said.stdout.contains("edit configmap kubeadm-config"), "{}", said.stdout);
    have_restarted(&site, 2);
    for host in PLANES {
        let text = text_of(&site, host, MANIFEST);
        assert!(
            text.contains(&format!("--etcd-servers={}\n", endpoints(&site)))
                && text.contains("/events#https://192.0.2.1:2379"),
            "{text}"
        );
        assert_eq!(shell(&site, host, &format!("stat -c %a {MANIFEST}")), "600\n");
        assert!(is_ready(&site, host));
    }
    assert!(configuration(&site)["kind: ClusterConfiguration"].contains(&ip));
    changes_nothing(again(&site, PLAYBOOK));

    strange_manifests_are_refused(&site);
    stuck_api_server_stops_the_run(&site);
}

/// An API server never gets a cluster with other data, unless the operator says that it has the same, and nothing is guessed.
fn strange_manifests_are_refused(site: &Site) {
    let good = text_of(site, PLANES[0], MANIFEST);
    let refused = |from: &str, to: &str, why: &str| {
        let text = good.replace(from, to);
        assert_ne!(text, good);
        std::fs::write(file(site, PLANES[0], MANIFEST), &text).unwrap();
        let said = again(site, PLAYBOOK).ends(2);
        assert!(said.stdout.contains(why), "{}", said.stdout);
        assert_eq!(text_of(site, PLANES[0], MANIFEST), text);
    };
    refused(
        "--etcd-cafile=/etc/kubernetes/pki/etcd/ca.crt",
        "--etcd-cafile=/srv/ca.crt",
        "does not have --etcd-cafile=",
    );
    refused("    etcdrun/etcd-ca: \"", "    'etcdrun/etcd-ca': \"0", "has another form than kubeadm writes");
    refused(&endpoints(site), "https://192.0.2.7:2379", "it may have other data");
    let accepted = ["playbook", PLAYBOOK, "-i", "inventory.yaml", "-e", "kubeadm_etcd_replace_endpoints=true"];
    site.place.folder.run(&accepted).ends(0);
    assert_eq!(text_of(site, PLANES[0], MANIFEST), good);
    assert!(is_ready(site, PLANES[0]));
}

/// The kubelet of the first host hangs while endpoints change.
fn stuck_api_server_stops_the_run(site: &Site) {
    let short = endpoints(site).rsplit_once(',').unwrap().0.to_owned();
    for host in PLANES {
        let text = text_of(site, host, MANIFEST);
        let used = text.split("--etcd-servers=").nth(1).unwrap().lines().next().unwrap().to_owned();
        std::fs::write(file(site, host, MANIFEST), text.replace(&used, &short)).unwrap();
        until("the kubelet has seen that", || {
            shell(site, host, "tr '\\0' '\\n' < /proc/$(pgrep -x kube-apiserver | head -n 1)/cmdline 2>/dev/null || :")
                .contains(&format!("={short}\n"))
                && is_ready(site, host)
        });
    }
    shell(site, PLANES[0], "systemctl kill --kill-whom=main --signal=STOP kubelet");
    let stuck =
        site.place.folder.run(&["playbook", PLAYBOOK, "-i", "inventory.yaml", "-e", "kubeadm_etcd_timeout=6"]).ends(2);
    assert!(stuck.stdout.contains("has not restarted the API server"), "{}", stuck.stdout);
    assert!(
        text_of(site, PLANES[1], MANIFEST).contains(&format!("--etcd-servers={short}\n")),
        "the other one is left alone"
    );
    shell(site, PLANES[0], "systemctl kill --kill-whom=main --signal=CONT kubelet");
    let resumed: Said = site.place.folder.run(&["resume"]).ends(0);
    assert!(changes(&resumed) > 0, "{}", resumed.stdout);
    assert!(
        PLANES
            .iter()
            .all(|host| text_of(site, *host, MANIFEST).contains(&format!("--etcd-servers={}\n", endpoints(site))))
    );
    changes_nothing(again(site, PLAYBOOK));
}

#[test]
fn api_servers_get_new_certificates_and_trust_another_ca() {
    let site = site();
    let older = ["playbook", PLAYBOOK, "-i", "inventory.yaml", "-e", "kubeadm_etcd_api_version=v1beta3"];
    site.place.folder.run(&older).ends(0);
    assert!(configuration(&site)["kind: ClusterConfiguration"].contains("apiVersion: kubeadm.k8s.io/v1beta3"));
    bring_up(&site);
    again(&site, PLAYBOOK).ends(0);
    have_restarted(&site, 1);

    let serial = |host: usize| {
        openssl(
            &site.place.folder,
            &format!(
                "x509 -in {} -noout -serial -issuer",
                file(&site, host, &format!("{PKI}/apiserver-etcd-client.crt"))
            ),
        )
    };
    let before = PLANES.map(serial);
    let renew =
        ["playbook", PLAYBOOK, "-i", "inventory.yaml", "--tags", "kubeadm", "-e", "kubeadm_etcd_early_renewal=366d"];
    let said = site.place.folder.run(&[&renew[..], &["--check"]].concat()).ends(0);
    // Of each host the client certificate, of each member the one for health checks; no manifest, and nothing that is unknown.
    assert!(changes(&said) == 5 && !said.stdout.contains("unknown"), "{}", said.stdout);
    assert_eq!(PLANES.map(serial), before);
    site.place.folder.run(&renew).ends(0);
    assert!(PLANES.map(serial).iter().zip(&before).all(|(now, before)| now != before));
    have_restarted(&site, 1);
    assert!(PLANES.iter().all(|host| is_ready(&site, *host)));
    changes_nothing(again(&site, PLAYBOOK));

    let rotate = |more: &[&str]| {
        let words = ["certs", "rotate-ca", "prod", "--yes", "-i", "inventory.yaml"];
        site.place.folder.run(&[&words[..], more].concat()).ends(0)
    };
    let before = PLANES.map(serial);
    let trusted =
        |host: usize| text_of(&site, host, &format!("{PKI}/etcd/ca.crt")).matches("BEGIN CERTIFICATE").count();
    rotate(&[]);
    let plan = site.place.folder.run(&["plan", PLAYBOOK, "-i", "inventory.yaml"]).ends(0);
    assert_eq!(plan.stdout.matches("+    etcdrun/etcd-ca: ").count(), 2, "{}", plan.stdout);
    again(&site, PLAYBOOK).ends(0);
    assert_eq!(PLANES.map(trusted), [2, 2]);
    have_restarted(&site, 2);
    assert_eq!(PLANES.map(serial), before);
    rotate(&["--issue"]);
    assert!(PLANES.iter().all(|host| is_ready(&site, *host)), "members have new certificates");
    again(&site, PLAYBOOK).ends(0);
    have_restarted(&site, 2);
    assert!(PLANES.map(serial).iter().zip(&before).all(|(now, before)| now != before));
    rotate(&["--finish"]);
    assert!(PLANES.iter().all(|host| is_ready(&site, *host)), "members trust only the new CA");
    again(&site, PLAYBOOK).ends(0);
    assert_eq!(PLANES.map(trusted), [1, 1]);
    have_restarted(&site, 3);
    certificates_are_right(&site);
    etcd_serves_api_servers(&site);
    changes_nothing(again(&site, PLAYBOOK));
}

/// Nothing answers at these addresses: what is refused is refused before.
fn inventory(auth: &str, vars: &str) -> String {
    format!(
        "etcd_releases: {{ 3.6.15: {{ url: \"https://example.org/etcd\", sha256: \"{}\" }} }}
clusters:
  prod:
    etcd: {{ version: 3.6.15, compaction: {{ mode: periodic }} }}
    auth: {auth}
    members: {{ etcd-1: {{ address: 192.0.2.1 }} }}
hosts:
  cp-1: {{ address: 192.0.2.2, groups: [control_plane] }}
groups:
  control_plane: {{ vars: {{ kubeadm_etcd_cluster: prod{vars} }} }}
",
        "0".repeat(64)
    )
}

#[test]
fn wrong_settings_for_kubernetes_are_refused_before_anything_is_changed() {
    const USER: &str = "{ roles: { k8s: { permissions: [{ prefix: /reg }, { key: compact_rev_key }] } }, users: { kube-apiserver-etcd-client: { roles: [k8s] } } }";
    let run = |auth: &str, vars: &str| {
        let folder = Folder::new();
        folder.write("inventory.yaml", &inventory(auth, vars));
        folder.run(&["plan", PLAYBOOK, "--connect-timeout", "1"])
    };
    let refused = |auth: &str, vars: &str, why: &str| {
        let said = run(auth, vars).ends(2);
        assert!(said.stdout.contains(why), "{why}: {}{}", said.stdout, said.stderr);
    };
    // With these settings it gets as far as to the hosts.
    run(USER, "").ends(4);
    run("{ enabled: false }", "").ends(4);
    refused("{}", "", "gives the user `kube-apiserver-etcd-client` no access to /registry/ and compact_rev_key");
    refused(&USER.replace("/reg ", "/registry/pods/ "), "", "no access to /registry/:");
    refused(&USER.replace("/reg ", "/reg, access: read "), "", "no access to /registry/:");
    refused("{ method: password }", "", "API servers cannot send a password");
    refused(USER, ", kubeadm_etcd_runtime: static_pod", "etcdrun runs members by systemd only");
    refused(USER, ", kubeadm_etcd_api_version: v1beta2", "must be v1beta3 or v1beta4");
    refused(USER, ", kubeadm_etcd_configuration: { etcd: {} }", "which the role sets");
    refused(USER, ", kubeadm_etcd_documents: [a]", "must be a list of mappings");
    refused(USER, ", kubeadm_etcd_pki_dir: etc/pki", "must be absolute paths");
    refused(USER, ", kubeadm_etcd_config_file: /etc/kubernetes/manifests/config.yaml", "is no static pod");
    let folder = Folder::new();
    folder.write(
        "inventory.yaml",
        &inventory(USER, "").replace("kubeadm_etcd_cluster: prod", "kubeadm_etcd_cluster: prd"),
    );
    let said = folder.run(&["plan", PLAYBOOK]).ends(2);
    assert!(said.stdout.contains("no etcd cluster of that name"), "{}", said.stdout);
    folder.write("inventory.yaml", &inventory(USER, "").replace("mode: periodic", "mode: revision"));
    let said = folder.run(&["plan", PLAYBOOK]).ends(2);
    assert!(said.stdout.contains("API servers would still read older ones"), "{}", said.stdout);
    // As an argument of the role, a wrong value is an error of its line.
    folder.write(
        "own.yaml",
        "- hosts: control_plane\n  roles:\n    - { role: kubeadm_etcd, kubeadm_etcd_runtime: static_pod }\n",
    );
    let said = folder.run(&["lint", "own.yaml"]);
    assert!(said.code != 0 && (said.stdout + &said.stderr).contains("own.yaml:3"), "static pods are refused at load");
}
