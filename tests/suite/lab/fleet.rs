//! Clusters in guests on several hypervisors, and what becomes of them in the course of their lives. Emulated guests take
//! minutes for each step, so these are run by `make test-long`.

use std::time::Duration;

use etcdrun_lab::{Guest, Kind, etcd, wait};

use super::{Place, Said, etcd::release, lab};

/// Guests on hypervisors of the lab, one cluster of them, and addresses for those that come later.
struct Fleet {
    place: Place,
}

impl Fleet {
    /// `homes` are the hypervisors of its members, by their number; there are `hypervisors` in all.
    fn new(hypervisors: usize, homes: &[usize], settings: &str) -> Self {
        let place = Place::new(Kind::Hypervisor, hypervisors);
        let written = place.folder.read("inventory.yaml");
        let key = std::fs::read_to_string(lab().operator_key().with_extension("pub")).unwrap();
        let address = |last: u8| lab().subnet().address(last);
        let releases: String = ["3.5", "3.6"].iter().map(|minor| release(&etcd(minor).unwrap())).collect();
        let members: String = (1..)
            .zip(homes)
            .map(|(n, home)| {
                let (hypervisor, ip) = (place.hosts[*home].name(), address(209 + n));
                format!("      # Member {n}\n      etcd-{n}: {{ hypervisor: {hypervisor}, interfaces: [{{ bridge: br0, ip: {ip}/24 }}] }}\n")
            })
            .collect();
        let text = format!(
            "{written}
etcd_releases:
{releases}
clusters:
  prod:
    etcd: {{ version: {version}, quota: 1GiB }}
    address_pool: {{ bridge: br0, first: {first}/24, last: {last} }}
{settings}    guest:
      vcpus: 1
      memory: 512MiB
      disk: {{ base: /srv/guest.qcow2, size: 4GiB, cache: unsafe }}
      data_disk: {{ size: 1GiB, cache: unsafe }}
      admin: {{ user: ops, ssh_keys: [\"{key}\"] }}
    ssh: {{ user: ops }}
    members:
{members}",
            version = etcd("3.5").unwrap().version,
            first = address(220),
            last = address(229),
            key = key.trim(),
        );
        place.folder.write("inventory.yaml", &text);
        let fleet = Self { place };
        fleet.run(&["playbook", "site.yaml"]).ends(0);
        fleet.etcdctl(&["put", "kept", "from the beginning"]);
        fleet
    }

    fn run(&self, words: &[&str]) -> Said {
        let inventory: &[&str] =
            if words == ["resume"] { &[] } else { &["-i", "inventory.yaml", "--connect-timeout", "60"] };
        let words = [words, inventory].concat();
        let start = std::time::Instant::now();
        let said = self.place.folder.run(&words);
        println!("{words:?} took {:.0?} and ended with {}", start.elapsed(), said.code);
        said
    }

    /// A rollout that halts because emulated guests were too slow for a moment goes on when they are not.
    fn rolls(&self, words: &[&str]) -> Said {
        let mut said = self.run(words);
        for _ in 0..3 {
            if said.code != 3 {
                break;
            }
            println!("{}", said.stdout);
            said = self.run(&["resume"]);
        }
        said.ends(0)
    }

    fn etcdctl(&self, words: &[&str]) -> String {
        let limits = ["--command-timeout", "30s", "--dial-timeout", "30s"];
        self.place.etcdctl("prod", &[&limits[..], words].concat()).ends(0).stdout
    }

    fn changes(&self, old: &str, new: &str) {
        let text = self.place.folder.read("inventory.yaml");
        assert!(text.contains(old), "no `{old}` in\n{text}");
        self.place.folder.write("inventory.yaml", &text.replace(old, new));
    }

    /// What a command says on each member.
    fn on_members(&self, command: &str) -> Vec<String> {
        let said = self.run(&["exec", "prod", "--read-only", "--json", "--", "sh", "-c", command]).ends(0);
        let mut all: Vec<String> = said.stdout.lines().filter(|line| line.contains("\"stdout\"")).map(stdout).collect();
        all.sort();
        all
    }

    /// All of them serve, and have what was written in the beginning.
    fn is_well(&self, version: &str) {
        let status = self.run(&["status", "prod"]).ends(0).stdout;
        assert!(status.contains("prod: healthy, 3 of 3 members"), "{status}");
        let listed = self.etcdctl(&["endpoint", "status", "--cluster"]);
        assert_eq!(listed.matches(&format!(", {version}, ")).count(), 3, "{listed}");
        assert_eq!(self.etcdctl(&["get", "kept", "--print-value-only"]).trim(), "from the beginning");
    }

    fn nothing_is_left_to_do(&self) {
        let again = self.run(&["playbook", "site.yaml"]).ends(0);
        assert!(!again.stdout.lines().any(|line| line.starts_with("changed ")), "{}", again.stdout);
    }

    /// How many guests run on a hypervisor.
    fn guests(&self, hypervisor: usize) -> usize {
        self.place.hosts[hypervisor].run(&["virsh", "list", "--name"]).unwrap().split_whitespace().count()
    }
}

fn stdout(line: &str) -> String {
    fn find(value: &serde_json::Value) -> Option<&str> {
        let object = value.as_object()?;
        object.get("stdout").and_then(serde_json::Value::as_str).or_else(|| object.values().find_map(find))
    }
    find(&serde_json::from_str(line).unwrap()).unwrap().trim().to_owned()
}

#[test]
#[ignore = "takes ten minutes: make test-long"]
fn guests_are_upgraded_and_a_wrong_clock_stops_what_would_restart_them() {
    let (old, new) = (etcd("3.5").unwrap().version, etcd("3.6").unwrap().version);
    let fleet = Fleet::new(4, &[0, 1, 2], "");
    fleet.is_well(&old);
    fleet.nothing_is_left_to_do();

    fleet.changes(&format!("version: {old},"), &format!("version: {new},"));
    let said = fleet.rolls(&["playbook", "upgrade.yaml"]);
    assert!(said.stdout.contains("longest gap"), "{}", said.stdout);
    fleet.is_well(&new);

    // A clock that is off stops whatever restarts members.
    let guest = Guest::new(&fleet.place.hosts[2], "etcd-3");
    guest.move_clock(10).unwrap();
    fleet.changes("quota: 1GiB", "quota: 2GiB");
    let refused = fleet.run(&["playbook", "settings.yaml"]).ends(3);
    assert!(refused.stdout.contains("the clock of etcd-3 is"), "{}", refused.stdout);
    guest.move_clock(-10).unwrap();
    fleet.rolls(&["resume"]);
    fleet.is_well(&new);
}

#[test]
#[ignore = "takes ten minutes: make test-long"]
fn guests_are_resized_rebooted_with_their_hypervisor_and_lost_with_it() {
    let version = etcd("3.5").unwrap().version;
    let fleet = Fleet::new(4, &[0, 1, 2], "");
    let (boots, memory) = ("cat /proc/sys/kernel/random/boot_id", "sed -n 's/MemTotal: *//p' /proc/meminfo");
    let before = (fleet.on_members(boots), fleet.on_members(memory));
    assert_eq!(before.0.len(), 3, "{before:?}");
    fleet.changes("memory: 512MiB", "memory: 640MiB");
    fleet.rolls(&["playbook", "guest.yaml"]);
    let after = (fleet.on_members(boots), fleet.on_members(memory));
    assert!(after.0.iter().all(|boot| !before.0.contains(boot)), "{before:?} {after:?}");
    assert!(after.1.iter().all(|size| size > before.1.last().unwrap()), "{before:?} {after:?}");
    fleet.is_well(&version);

    let hypervisor = &fleet.place.hosts[0];
    fleet.rolls(&["drain", hypervisor.name(), "--reboot", "--yes"]);
    fleet.is_well(&version);
    assert_eq!(fleet.guests(0), 1);

    fleet.place.hosts[1].kill().unwrap();
    let to = fleet.place.hosts[3].name();
    let refused = fleet.run(&["member", "replace", "etcd-2", "--to", to, "--yes"]);
    assert_ne!(refused.code, 0, "{}", refused.stdout);
    fleet.run(&["member", "replace", "etcd-2", "--to", to, "--fence-unreachable", "--yes"]).ends(0);
    fleet.is_well(&version);
    assert_eq!(fleet.guests(3), 1);
}

#[test]
#[ignore = "takes a quarter of an hour: make test-long"]
fn three_members_leave_their_hypervisor_in_one_drain_and_come_back() {
    let version = etcd("3.5").unwrap().version;
    let fleet = Fleet::new(4, &[0, 0, 0], "    allow_colocation: true\n");
    let name = fleet.place.hosts[0].name().to_owned();
    fleet.run(&["drain", &name, "--yes"]).ends(0);
    fleet.is_well(&version);
    assert_eq!((0..4).map(|host| fleet.guests(host)).collect::<Vec<_>>(), [0, 1, 1, 1]);
    assert!(fleet.place.folder.read("inventory.yaml").contains("# Member 1"));
    fleet.nothing_is_left_to_do();

    fleet.run(&["undrain", &name, "--yes"]).ends(0);
    fleet.is_well(&version);
    wait::until("all are back", Duration::from_secs(30), || Ok((fleet.guests(0) == 3).then_some(()))).unwrap();
}
