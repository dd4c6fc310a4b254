//! Clusters in guests: the inventories that ship as examples, made real on hypervisors of the lab.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use etcdrun_lab::{Kind, etcd, etcd_tools, wait};

use super::{Place, Said, etcdctl_words, lab};

/// An example with its hypervisors, and what had to be said differently here.
struct Example {
    place: Place,
    endpoints: Vec<String>,
}

impl Example {
    /// `changes` are texts of the example and what stands for them in this lab; each must be there.
    fn new(name: &str, hypervisors: usize, changes: &[(&str, &str)], endpoints: Vec<String>) -> Self {
        let place = Place::new(Kind::Hypervisor, hypervisors);
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("inventory").join(name).join("inventory.yaml");
        let mut text = fs::read_to_string(example).unwrap();
        let server = etcd("3.5").unwrap().path;
        let key = fs::read_to_string(lab().operator_key().with_extension("pub")).unwrap();
        let written = place.folder.read("inventory.yaml");
        let (ssh, _) = written.split_once("hypervisors:").unwrap();
        let general = [
            ("ssh: { user: root }\n", ssh),
            ("vcpus: 2", "vcpus: 1"),
            ("memory: 8GiB", "memory: 512MiB"),
            ("size: 30GiB }", "size: 4GiB, cache: unsafe }"),
            (
                "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ put-your-own-here",
                key.trim(),
            ),
            ("etcd-v3.5.34-linux-amd64/etcd", server.to_str().unwrap()),
        ];
        for (old, new) in general.iter().chain(changes) {
            assert!(text.contains(old), "the example {name} has no `{old}`");
            text = text.replace(old, new);
        }
        place.folder.write("inventory.yaml", &text);
        for host in &place.hosts {
            // The base image that the example expects in the pool.
            host.run(&["ln", "-s", "/srv/guest.qcow2", "/var/lib/libvirt/images/ubuntu-24.04.qcow2"]).unwrap();
            host.run(&["virsh", "pool-refresh", "default"]).unwrap();
        }
        Self { place, endpoints }
    }

    fn run(&self, words: &[&str]) -> Said {
        self.place.folder.run(&[words, &["-i", "inventory.yaml"]].concat())
    }

    /// A plan before the first run says what would be made, and leaves the hypervisors as they are.
    fn plan_makes_nothing(&self) {
        let plan = self.run(&["plan", "site.yaml"]).ends(0);
        for word in ["change      guest : Create the system disk", "change      guest : Define and start the guest"] {
            assert!(plan.stdout.contains(word), "{word}:\n{}", plan.stdout);
        }
        assert!(
            plan.stdout.contains("unknown     etcd : Install etcd") && !plan.stdout.contains("failed"),
            "{}",
            plan.stdout
        );
        for host in &self.place.hosts {
            let there = host.run(&[
                "sh",
                "-c",
                "virsh list --all --name; virsh pool-list --all --name; virsh net-list --all --name",
            ]);
            assert_eq!(there.unwrap().split_whitespace().collect::<Vec<_>>(), ["default", "default"]);
        }
        assert!(!self.place.folder.path(".etcdrun/pki").exists());
    }

    /// Plays, and takes something away once the domain is there.
    fn play_until_domain(&self, hypervisor: usize, domain: &str) -> std::process::Child {
        let mut command = self.place.folder.command(&["playbook", "site.yaml", "-i", "inventory.yaml"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait::until("the domain is there", Duration::from_secs(180), || {
            let names = self.place.hosts[hypervisor].run(&["virsh", "list", "--name"])?;
            Ok(names.lines().any(|name| name == domain).then_some(()))
        })
        .unwrap();
        child
    }

    /// etcdctl from outside of the guests, in the network of this machine or in that of a hypervisor.
    fn etcdctl(&self, from: Option<usize>, words: &[&str]) -> String {
        let pki = self.place.folder.path(".etcdrun/pki/etcd-cluster");
        let program = etcd_tools().unwrap().join("etcdctl");
        let mut command = match from {
            None => Command::new(program),
            Some(host) => {
                let leader = self.place.hosts[host].leader().unwrap().as_raw_pid().to_string();
                let mut command = Command::new("nsenter");
                command.args(["--target", &leader, "--net"]).arg(program);
                command
            }
        };
        let endpoints = self.endpoints.join(",");
        command.args(["--endpoints", &endpoints, "--command-timeout", "30s", "--dial-timeout", "30s", "--cacert"]);
        let output = command
            .arg(pki.join("ca.crt"))
            .arg("--cert")
            .arg(pki.join("clients/root.crt"))
            .arg("--key")
            .arg(self.place.folder.opened_file(".etcdrun/pki/etcd-cluster/clients/root.key"))
            .args(words)
            .output()
            .unwrap();
        etcdctl_words(&output)
    }

    fn is_healthy(&self, from: Option<usize>) {
        let health = self.etcdctl(from, &["endpoint", "health"]);
        assert_eq!(health.matches("is healthy").count(), 3, "{health}");
        assert_eq!(self.etcdctl(from, &["member", "list"]).matches("started").count(), 3);
        let auth = self.etcdctl(from, &["auth", "status"]);
        assert!(auth.contains("Authentication Status: true"), "{auth}");
        // Emulated guests on a busy machine elect now and then.
        let mut last = String::new();
        let healthy = || {
            let said = self.run(&["status", "etcd-cluster", "--connect-timeout", "120"]);
            last = format!("{}\n{}{}", said.code, said.stdout, said.stderr);
            let is_healthy = said.code == 0 && said.stdout.contains("etcd-cluster: healthy, 3 of 3 members");
            Ok((is_healthy && said.stdout.matches("running").count() == 3).then_some(()))
        };
        let waited = wait::until("status finds the cluster healthy", Duration::from_secs(120), healthy);
        assert!(waited.is_ok(), "not healthy: {last}");
    }
}

#[test]
fn the_example_of_a_libvirt_network_becomes_a_cluster_although_etcdrun_is_killed() {
    let endpoints = (4..7).map(|n| format!("https://192.168.121.{n}:2379")).collect();
    let example = Example::new("kvm-network", 1, &[], endpoints);
    let address = example.place.hosts[0].address().to_string();
    let text = example.place.folder.read("inventory.yaml").replace("10.0.0.11", &address);
    example.place.folder.write("inventory.yaml", &text);
    example.plan_makes_nothing();
    let mut child = example.play_until_domain(0, "etcd-1");
    child.kill().unwrap();
    child.wait().unwrap();
    example.run(&["resume"]).ends(0);
    example.is_healthy(Some(0));
}

#[test]
fn the_example_of_macvtap_becomes_a_cluster_although_a_hypervisor_is_lost_on_the_way() {
    let subnet = lab().subnet();
    let network = subnet.address(0).to_string();
    let network = network.strip_suffix(".0").unwrap();
    let endpoints = (220..223).map(|n| format!("https://{network}.{n}:2379")).collect();
    let guests = format!("{network}.{{n+219}}/24");
    let changes = [
        ("192.168.21.{n+199}/24", guests.as_str()),
        ("gateway: 192.168.21.1", &format!("gateway: {network}.1")),
        ("dns: [192.168.21.1]", &format!("dns: [{network}.1]")),
        ("macvtap: ens3", "macvtap: eth0"),
        ("size: 20GiB }", "size: 1GiB, cache: unsafe }"),
    ];
    let example = Example::new("kvm-macvtap", 3, &changes, endpoints);
    let addresses: Vec<String> = example.place.hosts.iter().map(|host| host.address().to_string()).collect();
    let listed: String = addresses
        .iter()
        .enumerate()
        .map(|(n, ip)| format!("  kvm{}:\n    address: {ip}\n    zone: rack-{}\n    pools:\n      etcd: {{ path: /var/lib/libvirt/etcd }}\n", n + 1, n + 1))
        .collect();
    let text = example.place.folder.read("inventory.yaml");
    let pattern = "  kvm[1-3]:\n    address: 192.168.21.1{n}\n    zone: rack-{n}\n    pools:\n      etcd: { path: /var/lib/libvirt/etcd }\n";
    assert!(text.contains(pattern), "{text}");
    example.place.folder.write("inventory.yaml", &text.replace(pattern, &listed));

    let child = example.play_until_domain(1, "etcd-2");
    example.place.hosts[1].kill().unwrap();
    let said = Said::of(child.wait_with_output().unwrap()).ends(4);
    assert!(said.stdout.contains("kvm2") && said.stdout.contains("unreachable"), "{}", said.stdout);
    example.place.hosts[1].start().unwrap();
    example.run(&["resume"]).ends(0);
    example.is_healthy(None);
    let again = example.run(&["playbook", "site.yaml"]).ends(0);
    assert!(!again.stdout.lines().any(|line| line.starts_with("changed ")), "{}", again.stdout);
}
