//! Hypervisors that are emptied: members of several clusters of real etcd move at the same time.
//!
//! Guests take minutes to boot here, so the machines that clusters live on are fast hosts that stand in for guests. The domains on
//! the hypervisors are real and have nothing to boot; their consoles are told the keys of the hosts that stand in for them.
//! What cloud-init makes of a guest is not seen here; `guests` and `site` see that.

use std::{process::Command, time::Duration};

use etcdrun_lab::{Host, Kind, etcd, etcd_tools, wait};
use serde_json::Value;

use super::{Folder, Place, Said, etcd::release, etcdctl_words};

/// Name, version of etcd, and who its clients are.
type Kinds = [(&'static str, &'static str, &'static str); 2];
const CLUSTERS: Kinds = [("a", "3.5", "{ method: certificate }"), ("b", "3.6", "{ method: certificate }")];
const PASSWORD: &str = "{ method: password }";
/// Three members, and a machine for the one that comes.
const MACHINES: usize = 4;
/// And one that counts as a hypervisor.
const COUNT: usize = MACHINES * CLUSTERS.len() + 1;

/// Appends what cloud-init would have printed to the consoles of guests, as soon as they have one.
const VOICE: &str = r#"
while :; do
    for log in /var/log/libvirt/qemu/*.console; do
        name=${log##*/} name=${name%.console} name=${name%-*-*-*-*-*}
        [ -f "/root/keys/$name" ] && [ -f "$log" ] && ! grep -q 'END SSH' "$log" || continue
        { echo '-----BEGIN SSH HOST KEY KEYS-----'; cat "/root/keys/$name"; echo '-----END SSH HOST KEY KEYS-----'; } >>"$log"
    done
    sleep 0.1
done"#;

/// Two clusters, each with its third member on the first of two hypervisors; the others are on a machine that only counts as one.
struct Estate {
    hypervisors: Place,
    machines: Place,
    clusters: Kinds,
}

impl Estate {
    fn new() -> Self {
        Self::of(CLUSTERS)
    }

    /// Each of these tests forms its own clusters: they all begin at the same time, so none would find a copy.
    fn of(clusters: Kinds) -> Self {
        let hypervisors = Place::new(Kind::Hypervisor, 2);
        let machines = Place::new(Kind::Fast, COUNT);
        form(&machines, &clusters);
        let known = machines.folder.read("known_hosts") + &hypervisors.folder.read("known_hosts");
        machines.folder.write("known_hosts", &known);
        let estate = Self { hypervisors, machines, clusters };
        estate.become_guests();
        estate
    }

    fn folder(&self) -> &Folder {
        &self.machines.folder
    }

    fn machine(&self, cluster: usize, number: usize) -> &Host {
        &self.machines.hosts[cluster * MACHINES + number]
    }

    /// The hypervisor that is emptied.
    fn full(&self) -> &Host {
        &self.hypervisors.hosts[0]
    }

    fn other(&self) -> &Host {
        &self.hypervisors.hosts[1]
    }

    /// From now on they count as guests, each with a domain where it is said to be.
    fn become_guests(&self) {
        let (full, rest) = (self.full().name(), &self.machines.hosts[MACHINES * CLUSTERS.len()]);
        let mut text = head(&self.machines, &self.clusters);
        let mut pins = String::new();
        for (index, (cluster, minor, auth)) in self.clusters.iter().enumerate() {
            let (version, spare) = (etcd(minor).unwrap().version, self.machine(index, 3));
            text += &format!(
                "  # all of {cluster}\n  {cluster}:\n    etcd: {{ version: {version} }}\n    auth: {auth}\n    allow_colocation: true\n    placement: {{ hypervisors: [{full}, {}] }}\n",
                self.other().name()
            );
            text += "    guest: { vcpus: 1, memory: 16MiB, agent: false, watchdog: false, admin: { user: root }, cloud_init: { user_data: {} }, disk: { base: /srv/blank.qcow2, size: 8MiB } }\n";
            text += &format!("    address_pool: {{ bridge: br0, first: {0}/24, last: {0} }}\n", spare.address());
            text += "    members:   # one after the other\n";
            for number in 0..3 {
                let (machine, name) = (self.machine(index, number), format!("{cluster}-{}", number + 1));
                let at = if number == 2 { full } else { rest.name() };
                text += &format!(
                    "      {name}: {{ hypervisor: {at}, ssh_via: direct, interfaces: [{{ bridge: br0, ip: {}/24 }}] }}\n",
                    machine.address()
                );
                pins +=
                    &format!("{cluster}/{name} {} 00000000-0000-4000-8000-00000000000{number}\n", self.key(machine));
            }
            text += &format!("      # no more of {cluster}\n");
            self.stands_in(index, 3, self.other(), &format!("{cluster}-4"));
            define(self.full(), &format!("{cluster}-3"), cluster);
        }
        text += "hypervisors:\n";
        for host in [self.full(), self.other(), rest] {
            text += &format!("  {}: {{ address: {} }}\n", host.name(), host.address());
        }
        self.folder().write("inventory.yaml", &text).write(".etcdrun/known_hosts", &pins);
        for host in [self.full(), self.other()] {
            host.run(&["sh", "-c", "qemu-img create -q -f qcow2 /srv/blank.qcow2 1M"]).unwrap();
            host.run(&["sh", "-c", "printf %s \"$1\" >/root/voice.sh", "sh", VOICE]).unwrap();
            host.run(&["systemd-run", "-q", "--unit=voice", "sh", "/root/voice.sh"]).unwrap();
        }
    }

    fn key(&self, host: &Host) -> String {
        let known = self.folder().read("known_hosts");
        let line = known.lines().find(|line| line.starts_with(&format!("{},", host.name()))).unwrap();
        line.split_once(' ').unwrap().1.to_owned()
    }

    /// This machine is what a guest of that name will turn out to be. Nobody has its address as far as a ping can tell.
    fn stands_in(&self, cluster: usize, number: usize, hypervisor: &Host, name: &str) {
        let machine = self.machine(cluster, number);
        machine.run(&["sysctl", "-q", "-w", "net.ipv4.icmp_echo_ignore_all=1"]).unwrap();
        let tell = format!("mkdir -p /root/keys && echo '{}' >/root/keys/{name}", self.key(machine));
        hypervisor.run(&["sh", "-c", &tell]).unwrap();
    }

    fn run(&self, words: &[&str]) -> Said {
        self.folder().run(&[words, &["-i", "inventory.yaml"]].concat())
    }

    fn drain(&self, more: &[&str]) -> Said {
        self.run(&[&["drain", self.full().name(), "--yes"], more].concat())
    }

    fn undrain(&self, more: &[&str]) -> Said {
        self.run(&[&["undrain", self.full().name(), "--yes"], more].concat())
    }

    /// The machines that the members left are there for the next guests on the hypervisor that was emptied.
    fn is_free_again(&self) -> String {
        let mut text = self.inventory();
        for (index, (cluster, ..)) in self.clusters.iter().enumerate() {
            let (now, then) = (self.machine(index, 3).address(), self.machine(index, 2).address());
            text = text.replace(&format!("first: {now}/24, last: {now} "), &format!("first: {then}/24, last: {then} "));
            let entry = format!("{cluster}-4: {{ hypervisor: {}, ", self.other().name());
            text = text.replace(&entry, &format!("{entry}interfaces: [{{ bridge: br0, ip: {now}/24 }}], "));
            self.stands_in(index, 2, self.full(), &format!("{cluster}-5"));
        }
        self.folder().write("inventory.yaml", &text);
        text
    }

    /// Somebody else is at work on the second cluster.
    fn stranger_comes(&self) {
        let add = ["member", "add", "stranger", "--learner", "--peer-urls", "https://192.0.2.9:2380"];
        // etcd wants its members to have been connected for a while.
        wait::until("etcd takes a learner", Duration::from_secs(60), || {
            Ok(self.etcdctl(1, &add).contains("added to cluster").then_some(()))
        })
        .unwrap();
    }

    fn stranger_goes(&self) {
        let list = self.etcdctl(1, &["member", "list"]);
        let id = list.lines().find(|line| line.ends_with("true")).unwrap().split(',').next().unwrap().to_owned();
        self.etcdctl(1, &["member", "remove", &id]);
    }

    fn inventory(&self) -> String {
        self.folder().read("inventory.yaml")
    }

    /// As root of a cluster, by the two members that stay.
    fn etcdctl(&self, cluster: usize, words: &[&str]) -> String {
        let pki = self.folder().path(".etcdrun/pki").join(self.clusters[cluster].0);
        let file = |name: &str| pki.join(name).display().to_string();
        let ends: Vec<String> =
            (0..2).map(|at| format!("https://{}:2379", self.machine(cluster, at).address())).collect();
        let output = Command::new(etcd_tools().unwrap().join("etcdctl"))
            .args(["--endpoints", &ends.join(","), "--cacert", &file("ca.crt"), "--dial-timeout", "10s"])
            .args(["--command-timeout", "30s"])
            .args(self.login(cluster))
            .args(words)
            .output()
            .unwrap();
        etcdctl_words(&output)
    }

    fn login(&self, cluster: usize) -> Vec<String> {
        let (name, _, auth) = self.clusters[cluster];
        let pki = format!(".etcdrun/pki/{name}");
        if auth == PASSWORD {
            let password = self.folder().opened(&format!("{pki}/clients/root.password"));
            return vec!["--user".to_owned(), format!("root:{}", password.trim())];
        }
        if auth.contains("password") {
            return Vec::new();
        }
        let certificate = self.folder().path(&format!("{pki}/clients/root.crt"));
        let key = self.folder().opened_file(&format!("{pki}/clients/root.key"));
        ["--cert".into(), certificate.display().to_string(), "--key".into(), key.display().to_string()].into()
    }

    /// Members that vote, and those that learn; neither may be one that never started and votes.
    fn members(&self, cluster: usize) -> (Vec<String>, usize) {
        let list = self.etcdctl(cluster, &["member", "list"]);
        let rows = list.lines().map(|line| line.split(", ").collect::<Vec<_>>()).filter(|row| row.len() == 6);
        let (learners, voters): (Vec<_>, Vec<_>) = rows.partition(|row| row[5] == "true");
        assert!(!voters.is_empty() && voters.iter().all(|row| row[1] == "started"), "{list}");
        let mut names: Vec<String> = voters.iter().map(|row| row[2].to_owned()).collect();
        names.sort();
        (names, learners.len())
    }

    /// The cluster has this in the place of its third member, and so says the inventory.
    #[track_caller]
    fn has_moved(&self, cluster: usize, new: &str, to: &Host) {
        let name = self.clusters[cluster].0;
        let (old, text) = (format!("{name}-3"), self.inventory());
        assert_eq!(self.members(cluster), (vec![format!("{name}-1"), format!("{name}-2"), new.to_owned()], 0));
        assert!(text.contains(&format!("      {new}: {{ hypervisor: {}, ", to.name())), "{text}");
        assert!(!text.contains(&format!("      {old}:")), "{text}");
        self.keeps_comments();
        assert!(!domains(self.full()).contains(&old) && domains(to).contains(&new.to_owned()));
        // What runs is what the others run, not what another cluster does.
        let version = etcd(self.clusters[cluster].1).unwrap().version;
        let said = match self.clusters[cluster].2 {
            // Its login goes to the first endpoint only, so it can ask no others. Not all that counts as a hypervisor here has a libvirt
            // to ask, so status is not content.
            PASSWORD => self.run(&["status", name]).stdout.replace(&format!(" {version} "), &format!(", {version}, ")),
            _ => self.etcdctl(cluster, &["endpoint", "status", "--cluster"]),
        };
        assert_eq!(said.matches(&format!(", {version}, ")).count(), 3, "{said}");
    }

    /// What is left of a round is done, and nothing else had to be.
    fn ends_well(&self) {
        let said = self.folder().run(&["resume"]);
        let is_over = said.code == 0 || said.stderr.contains("no run that could be resumed");
        assert!(is_over, "{}\n{}", said.stdout, said.stderr);
        for (cluster, new) in ["a-4", "b-4"].into_iter().enumerate() {
            self.has_moved(cluster, new, self.other());
        }
    }

    fn keeps_comments(&self) {
        let text = self.inventory();
        for (name, ..) in self.clusters {
            for comment in [format!("# all of {name}"), "# one after the other".into(), format!("# no more of {name}")]
            {
                assert!(text.contains(&comment), "{comment}: {text}");
            }
        }
    }
}

fn releases(clusters: &Kinds) -> String {
    clusters.iter().map(|(_, minor, _)| release(&etcd(minor).unwrap())).collect()
}

/// The beginning of the inventory, up to its clusters: how hosts are reached, and the releases.
fn head(machines: &Place, clusters: &Kinds) -> String {
    let text = machines.folder.read("inventory.yaml");
    let ssh: String = text.lines().take_while(|line| !is_section(line)).map(|line| format!("{line}\n")).collect();
    format!("{ssh}etcd_releases:\n{}clusters:\n", releases(clusters))
}

/// Whether something else begins here than how hosts are reached.
fn is_section(line: &str) -> bool {
    line.starts_with("hosts:") || line.starts_with("etcd_releases:")
}

/// Clusters of machines that nothing has made, each with three members and a machine to spare.
fn form(machines: &Place, clusters: &Kinds) {
    let mut text = head(machines, clusters);
    for (index, (cluster, minor, auth)) in clusters.iter().enumerate() {
        let version = etcd(minor).unwrap().version;
        text += &format!("  {cluster}:\n    etcd: {{ version: {version} }}\n    auth: {auth}\n    members:\n");
        for number in 0..3 {
            let ip = machines.hosts[index * MACHINES + number].address();
            text += &format!("      {cluster}-{}: {{ address: {ip} }}\n", number + 1);
        }
    }
    machines.folder.write("inventory.yaml", &text);
    machines.folder.run(&["playbook", "site.yaml", "-i", "inventory.yaml"]).ends(0);
}

/// A guest with the mark of its cluster, and nothing to boot.
fn define(host: &Host, name: &str, cluster: &str) {
    let xml = format!(
        "<domain type='qemu'><name>{name}</name><metadata><etcdrun:guest xmlns:etcdrun='https://etcdrun.dev/xmlns/guest/1' cluster='{cluster}' member='{name}'/></metadata><memory unit='MiB'>16</memory><os><type machine='q35'>hvm</type></os></domain>"
    );
    host.run(&["sh", "-c", &format!("echo \"{xml}\" | virsh define /dev/stdin && virsh start {name}")]).unwrap();
}

fn domains(host: &Host) -> Vec<String> {
    host.run(&["virsh", "list", "--name"]).unwrap().split_whitespace().map(str::to_owned).collect()
}

/// When tasks ended on a host, first and last, in milliseconds.
fn times(said: &Said, host: &str) -> (u64, u64) {
    let events = said.stdout.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let of_host = events.filter(|event| event["event"] == "node_finished" && event["node"]["host"] == host);
    let ended: Vec<u64> = of_host.map(|event| event["at"].as_u64().unwrap()).collect();
    (ended[0], ended[ended.len() - 1])
}

/// Members that leave their address to the pool have it by their order, which changes when one of them goes.
#[test]
fn who_has_an_address_by_its_order_keeps_it() {
    let estate = Estate::new();
    let ip = |number: usize| estate.machine(0, number).address().to_string();
    let mut text = estate.inventory().replacen(
        &format!("first: {0}/24, last: {0} ", ip(3)),
        &format!("first: {}/24, last: {} ", ip(0), ip(3)),
        1,
    );
    for number in 0..3 {
        let written = format!(", interfaces: [{{ bridge: br0, ip: {}/24 }}]", ip(number));
        text = text.replacen(&written, "", 1);
    }
    estate.folder().write("inventory.yaml", &text);
    // The first goes: the new one stands before those that stay, and must not get what is theirs.
    let to = estate.other().name();
    let said = estate.run(&["member", "move", "a-1", "--to", to, "--check"]);
    let all = said.stdout + &said.stderr;
    assert!(all.contains(&format!("{} on {to}", ip(3))), "{all}");

    estate.drain(&[]).ends(0);
    let text = estate.inventory();
    let line = text.lines().find(|line| line.trim_start().starts_with("a-4:")).unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains(&format!("ip: {}/24", ip(3))), "{text}");
}

#[test]
fn members_of_different_clusters_move_at_the_same_time_and_come_back() {
    let estate = Estate::new();
    let before = estate.inventory();
    let plan = estate.drain(&["--check"]).ends(0);
    let row = |member: &str, round: u32| {
        let cluster = &member[..1];
        format!("  {round}      {member}     {cluster}        {}\n", estate.other().name())
    };
    assert!(plan.stdout.contains("  ROUND  MEMBER  CLUSTER  TO\n"), "{}", plan.stdout);
    assert!(plan.stdout.contains(&(row("a-3", 1) + &row("b-3", 1))), "{}", plan.stdout);
    assert_eq!((estate.inventory(), domains(estate.other())), (before, Vec::new()));
    let rounds = estate.drain(&["--check", "--max-clusters", "1"]).ends(0);
    assert!(rounds.stdout.contains(&(row("a-3", 1) + &row("b-3", 2))), "{}", rounds.stdout);

    let said = estate.drain(&["--json"]).ends(0);
    assert_eq!(said.stdout.matches("\"event\":\"run_started\"").count(), 1, "{}", said.stdout);
    let (a, b) = (times(&said, "a-4"), times(&said, "b-4"));
    println!("a from {} to {}, b from {} to {}", a.0, a.1, b.0, b.1);
    let both = a.1.min(b.1).saturating_sub(a.0.max(b.0));
    assert!(both > (a.1.max(b.1) - a.0.min(b.0)) / 2, "most of the time both were under way: {a:?} {b:?}");
    for (cluster, new) in ["a-4", "b-4"].into_iter().enumerate() {
        estate.has_moved(cluster, new, estate.other());
    }
    assert!(estate.drain(&[]).ends(0).stdout.contains("no member runs on"));

    // Back to the machines that they were on, one cluster after the other.
    let text = estate.is_free_again();
    estate.undrain(&["--check"]).ends(0);
    assert_eq!(estate.inventory(), text);
    let said = estate.undrain(&["--max-clusters", "1"]).ends(0);
    assert!(said.stdout.contains("2 to move back, in 2 rounds"), "{}", said.stdout);
    for (cluster, new) in ["a-5", "b-5"].into_iter().enumerate() {
        estate.has_moved(cluster, new, estate.full());
    }
    assert!(estate.undrain(&[]).ends(0).stdout.contains("is not drained"));
}

/// With passwords a learner takes no login, so it cannot be asked how far it is.
#[test]
fn members_move_with_passwords_and_without_authentication() {
    for clusters in [
        [("a", "3.4", PASSWORD), ("b", "3.7", "{ enabled: false, method: password }")],
        [("a", "3.5", "{ enabled: false }"), ("b", "3.6", PASSWORD)],
    ] {
        let estate = Estate::of(clusters);
        // One of them by its own verb, and what is left by a drain.
        estate.run(&["member", "move", "a-3", "--to", estate.other().name(), "--yes"]).ends(0);
        estate.has_moved(0, "a-4", estate.other());
        estate.drain(&[]).ends(0);
        estate.has_moved(1, "b-4", estate.other());
    }
}

#[test]
fn a_cluster_that_may_not_change_does_not_keep_the_others() {
    let estate = Estate::new();
    estate.stranger_comes();
    let said = estate.drain(&[]).ends(3);
    assert!(said.stdout.contains("is still a learner"), "{}", said.stdout);
    assert!(said.stdout.contains("not all members moved away"), "{}", said.stdout);
    estate.has_moved(0, "a-4", estate.other());
    let text = estate.inventory();
    assert!(text.contains("      b-3: {") && !text.contains("b-4:"), "{text}");
    assert_eq!((domains(estate.full()), domains(estate.other())), (vec!["b-3".to_owned()], vec!["a-4".to_owned()]));
    assert_eq!(estate.members(1), (["b-1", "b-2", "b-3"].map(str::to_owned).to_vec(), 1));

    // One that is found unfit before anything is played is left out as well.
    estate.machine(1, 1).run(&["systemctl", "stop", "etcd"]).unwrap();
    let said = estate.drain(&[]).ends(3);
    assert!(said.stdout.contains("b-3 of b stays") && said.stderr.contains("b-2 has failed"), "{}", said.stderr);
    estate.machine(1, 1).run(&["systemctl", "start", "etcd"]).unwrap();

    estate.stranger_goes();
    estate.drain(&[]).ends(0);
    for (cluster, new) in ["a-4", "b-4"].into_iter().enumerate() {
        estate.has_moved(cluster, new, estate.other());
    }

    // The same on the way back.
    estate.is_free_again();
    estate.stranger_comes();
    let said = estate.undrain(&[]).ends(3);
    assert!(said.stdout.contains("not all members moved back"), "{}", said.stdout);
    estate.has_moved(0, "a-5", estate.full());
    assert!(estate.inventory().contains("      b-4: {"), "{}", estate.inventory());
    estate.stranger_goes();
    estate.undrain(&[]).ends(0);
    estate.has_moved(1, "b-5", estate.full());
    assert!(estate.undrain(&[]).ends(0).stdout.contains("is not drained"));
}

#[test]
fn wherever_the_operator_is_killed_a_round_goes_on() {
    let estate = Estate::new();
    let words = ["drain", estate.full().name(), "--yes", "-i", "inventory.yaml"];
    // Clusters have all their voters at any time, one more at most, and one learner at most.
    estate.folder().killed_here_and_there(&words, 60, || {
        for cluster in 0..CLUSTERS.len() {
            let (voters, learners) = estate.members(cluster);
            assert!((3..=4).contains(&voters.len()) && voters.len() + learners <= 4, "{voters:?} {learners}");
        }
    });
    estate.ends_well();
    // Who lived there is known, although no process lived to see all of them go.
    let back = estate.run(&["undrain", estate.full().name(), "--stay", "--yes"]).ends(0);
    assert!(back.stdout.contains("accepts members again"), "{}", back.stdout);
}
