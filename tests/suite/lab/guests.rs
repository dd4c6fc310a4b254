//! Guests: virtual machines that the role `guest` makes, each reached by the path of its network.

use std::{fmt::Write, time::Duration};

use etcdrun_lab::{Guest, Kind, wait};

use super::{Place, Said, lab};

/// A guest on each hypervisor, by the kind of its network.
const KINDS: [&str; 3] = ["nat", "bridge", "macvtap"];
const PLAYBOOK: &str = "- hosts: guests\n  roles: [guest]\n";

struct Guests {
    place: Place,
    addresses: [String; 3],
}

impl Guests {
    /// Makes all three, and each can be logged into when that is done.
    fn start() -> Self {
        let place = Place::new(Kind::Hypervisor, 3);
        let subnet = lab().subnet();
        let addresses = ["192.168.122.50".to_owned(), subnet.address(200).to_string(), subnet.address(201).to_string()];
        let guests = Self { place, addresses };
        guests.write_inventory();
        guests.place.folder.write("guests.yaml", PLAYBOOK);
        guests.place.folder.run(&["playbook", "guests.yaml"]).ends(0);
        guests
    }

    /// Adds a cluster whose members are guests. The one behind NAT is reached by way of its hypervisor, and is no member: those
    /// elsewhere could not reach it.
    fn write_inventory(&self) {
        let folder = &self.place.folder;
        let interfaces = ["network: default", "bridge: br0", "macvtap: eth0"];
        let key = std::fs::read_to_string(lab().operator_key().with_extension("pub")).unwrap();
        let mut text = folder.read("inventory.yaml");
        let guest = format!(
            "vcpus: 1, memory: 512MiB, disk: {{ base: /srv/guest.qcow2, size: 4GiB, cache: unsafe }}, admin: {{ user: ops, ssh_keys: '{}' }}",
            key.trim()
        );
        let nat = (self.place.hosts[0].name(), &self.addresses[0], interfaces[0]);
        let (hypervisor, address, interface) = nat;
        writeln!(
            text,
            "hosts:\n  nat: {{ groups: [others], hypervisor: {hypervisor}, interfaces: [{{ {interface}, ip: {address}/24 }}] }}\ngroups:\n  others: {{ ssh_via: hypervisor, guest: {{ {guest} }} }}\nclusters:\n  lab:\n    guest: {{ {guest} }}\n    members:"
        )
        .unwrap();
        for (index, kind) in KINDS.iter().enumerate().skip(1) {
            let (hypervisor, address, interface) =
                (self.place.hosts[index].name(), &self.addresses[index], interfaces[index]);
            writeln!(
                text,
                "      {kind}: {{ hypervisor: {hypervisor}, interfaces: [{{ {interface}, ip: {address}/24 }}] }}"
            )
            .unwrap();
        }
        folder.write("inventory.yaml", &text);
    }

    fn guest(&self, index: usize) -> Guest {
        Guest::new(&self.place.hosts[index], KINDS[index])
    }

    fn exec(&self, guest: &str, command: &str) -> Said {
        self.place.folder.run(&["exec", guest, "--", "sh", "-c", command])
    }

    fn answers(&self, guest: &str) -> bool {
        self.place.folder.run(&["exec", guest, "--connect-timeout", "5", "--", "true"]).code == 0
    }
}

/// One test, because guests take their time to boot.
#[test]
fn guests_are_reached_by_the_path_of_their_network_and_suffer_their_faults() {
    let guests = Guests::start();
    all_answer_with_cloud_init_done(&guests);
    a_second_run_changes_nothing(&guests);
    only_the_pinned_key_is_believed(&guests);
    nat_is_reached_only_through_its_hypervisor(&guests);
    macvtap_is_not_reached_from_its_own_hypervisor(&guests);
    one_that_is_no_member_is_looked_after(&guests);
    a_clock_moves(&guests);
    a_frozen_guest_answers_nothing(&guests);
    a_killed_guest_is_gone(&guests);
}

fn all_answer_with_cloud_init_done(guests: &Guests) {
    let said = guests.place.folder.run(&[
        "exec",
        "guests",
        "--",
        "sh",
        "-c",
        "cloud-init status --wait && hostname && sudo id -u",
    ]);
    let said = said.ends(0);
    for kind in KINDS {
        assert!(said.stdout.lines().any(|line| line == kind), "{kind} is missing in\n{}", said.stdout);
    }
}

fn a_second_run_changes_nothing(guests: &Guests) {
    let said = guests.place.folder.run(&["playbook", "guests.yaml", "--json"]).ends(0);
    assert!(!said.stdout.contains(r#""status":"changed""#), "{}", said.stdout);
}

/// The key was learnt from the hypervisor; one that the network shows first is never taken.
fn only_the_pinned_key_is_believed(guests: &Guests) {
    let folder = &guests.place.folder;
    let pins = folder.read(".etcdrun/known_hosts");
    let other: String =
        pins.lines().filter(|line| !line.starts_with("lab/bridge ")).flat_map(|line| [line, "\n"]).collect();
    assert_eq!(other.lines().count() + 1, pins.lines().count(), "{pins}");
    folder.write(".etcdrun/known_hosts", &other);
    let said = folder.run(&["exec", "bridge", "--accept-new", "--", "true"]).ends(4);
    let words = format!("{}{}", said.stdout, said.stderr);
    assert!(words.contains("there is no pinned SSH host key for") && words.contains("lab/bridge"), "{words}");
    folder.run(&["playbook", "guests.yaml", "--limit", "bridge"]).ends(0);
    assert_eq!(folder.read(".etcdrun/known_hosts").lines().count(), pins.lines().count());
}

fn nat_is_reached_only_through_its_hypervisor(guests: &Guests) {
    let ping = "ping -q -c 1 -W 2 192.168.122.50";
    guests.place.exec(0, ping).ends(0);
    guests.place.exec(1, ping).ends(2);
}

fn macvtap_is_not_reached_from_its_own_hypervisor(guests: &Guests) {
    let ping = format!("ping -q -c 1 -W 2 {}", guests.addresses[2]);
    guests.place.exec(0, &ping).ends(0);
    guests.place.exec(2, &ping).ends(2);
    // Guests of different hypervisors are on one Ethernet.
    guests.exec("macvtap", &format!("ping -q -c 1 -W 2 {}", guests.addresses[1])).ends(0);
}

fn one_that_is_no_member_is_looked_after(guests: &Guests) {
    let folder = &guests.place.folder;
    let hypervisor = guests.place.hosts[0].name();
    let status = folder.run(&["status", "--limit", "nat"]).ends(0);
    let row = status.stdout.lines().find(|line| line.trim_start().starts_with("nat ")).unwrap();
    assert_eq!(row.split_whitespace().collect::<Vec<_>>(), ["nat", hypervisor, "running"]);
    let left = folder.run(&["drain", hypervisor, "--yes"]).ends(0);
    assert!(left.stdout.contains("nat stay there: only members move"), "{}", left.stdout);
    folder.run(&["undrain", hypervisor, "--yes"]).ends(0);

    let text = folder.read("inventory.yaml");
    folder.write("inventory.yaml", &text.replace("groups: [others],", "groups: [others], guest: { memory: 640MiB },"));
    let updated = folder.run(&["playbook", "guest.yaml", "--limit", "nat"]).ends(0);
    assert!(updated.stdout.contains("`etcdrun playbook guest-restart.yaml -e guests=nat`"), "{}", updated.stdout);
    let memory = || guests.place.exec(0, "virsh dominfo nat | sed -n 's/^Used memory: *//p'").ends(0).stdout;
    assert!(memory().contains("524288 KiB"), "it was not restarted: {}", memory());
    folder.run(&["playbook", "guest-restart.yaml", "-e", "guests=nat"]).ends(0);
    assert!(memory().contains("655360 KiB"), "{}", memory());
    let refused = folder.run(&["playbook", "guest-rebuild.yaml", "-e", "guests=nat"]).ends(2);
    assert!(refused.stdout.contains("nat has no `data_disk`"), "{}", refused.stdout);
    let text = folder
        .read("inventory.yaml")
        .replace("memory: 640MiB }", "memory: 640MiB, disks: [{ name: wal, size: 64MiB }] }");
    folder.write("inventory.yaml", &text);
    folder.run(&["playbook", "guest.yaml", "--limit", "nat"]).ends(0);
    let disk = "/dev/disk/by-id/virtio-wal";
    guests.exec("nat", &format!("echo kept | sudo dd of={disk} conv=fsync && touch /tmp/old")).ends(0);
    folder.run(&["playbook", "guest-rebuild.yaml", "-e", "guests=nat"]).ends(0);
    let rebuilt = guests.exec("nat", &format!("sudo head -c 4 {disk}; test ! -e /tmp/old")).ends(0);
    assert!(rebuilt.stdout.contains("kept"), "{}", rebuilt.stdout);
    let member = folder.run(&["playbook", "guest-restart.yaml", "-e", "guests=bridge"]).ends(0);
    assert!(member.stdout.contains("0 tasks on 0 hosts"), "members have their turns: {}", member.stdout);
}

fn a_clock_moves(guests: &Guests) {
    let clock = || -> i64 {
        let said = guests.exec("bridge", "date +%s").ends(0);
        said.stdout.lines().find_map(|line| line.trim().parse().ok()).unwrap()
    };
    let before = clock();
    guests.guest(1).move_clock(-86_400).unwrap();
    let moved = before - clock();
    assert!((80_000..=86_400).contains(&moved), "the clock moved by {moved} s");
}

fn a_frozen_guest_answers_nothing(guests: &Guests) {
    guests.guest(1).freeze().unwrap();
    assert!(!guests.answers("bridge"));
    guests.guest(1).thaw().unwrap();
    assert!(guests.answers("bridge"));
}

fn a_killed_guest_is_gone(guests: &Guests) {
    guests.guest(2).kill().unwrap();
    wait::until("libvirt sees it", Duration::from_secs(20), || {
        Ok((guests.place.hosts[2].run(&["virsh", "domstate", "macvtap"])?.trim() == "shut off").then_some(()))
    })
    .unwrap();
    assert!(!guests.guest(2).is_running() && guests.guest(0).is_running());
}
