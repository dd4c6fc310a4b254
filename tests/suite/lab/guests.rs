//! Guests: virtual machines that a playbook makes with raw virsh commands, each reached by the path of its network.

use std::{fmt::Write, time::Duration};

use etcdrun_lab::{Guest, Kind, wait};

use super::{Place, Said, lab};

/// A guest on each hypervisor, by the kind of its network.
const KINDS: [&str; 3] = ["nat", "bridge", "macvtap"];

struct Guests {
    place: Place,
    addresses: [String; 3],
}

impl Guests {
    /// Starts all three and waits until each can be logged into.
    fn start() -> Self {
        let place = Place::new(Kind::Hypervisor, 3);
        let subnet = lab().subnet();
        let addresses = ["192.168.122.50".to_owned(), subnet.address(200).to_string(), subnet.address(201).to_string()];
        let guests = Self { place, addresses };
        guests.write_inventory();
        guests.place.folder.write("guests.yaml", include_str!("guests.yaml"));
        guests.place.folder.run(&["playbook", "guests.yaml"]).ends(0);
        guests
    }

    /// Adds the variables of the hypervisors, and the guests as hosts: the one behind NAT by way of its hypervisor.
    fn write_inventory(&self) {
        let folder = &self.place.folder;
        let interfaces = [
            "<interface type='network'><source network='default'/>",
            "<interface type='bridge'><source bridge='br0'/>",
            "<interface type='direct'><source dev='eth0' mode='bridge'/>",
        ];
        let key = std::fs::read_to_string(lab().operator_key().with_extension("pub")).unwrap();
        let domain_type = if lab().has_kvm() { "kvm" } else { "qemu" };
        let mut text = folder.read("inventory.yaml").replace("zone: zone-", "zone: ");
        writeln!(text, "vars: {{ operator_key: '{}', domain_type: {domain_type} }}", key.trim()).unwrap();
        writeln!(text, "groups:\n  guests: {{}}").unwrap();
        for (index, kind) in KINDS.iter().enumerate() {
            let hypervisor = self.place.hosts[index].name();
            let mac = format!("52:54:00:86:00:0{index}");
            let address = &self.addresses[index];
            let interface = format!("{}<mac address='{mac}'/><model type='virtio'/></interface>", interfaces[index]);
            let vars = format!("guest: {kind}, mac: '{mac}', cidr: {address}/24, interface: \"{interface}\"");
            let jump = if *kind == "nat" { format!(", jump: [{hypervisor}]") } else { String::new() };
            text = text.replace(&format!("  {hypervisor}: {{ "), &format!("  {hypervisor}: {{ vars: {{ {vars} }}, "));
            let guest = format!(
                "  {kind}: {{ address: {address}, groups: [guests], ssh: {{ user: ops, host_key_alias: {kind}{jump} }} }}\n"
            );
            if !text.contains("\nhosts:\n") {
                text.push_str("hosts:\n");
            }
            text.push_str(&guest);
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
    nat_is_reached_only_through_its_hypervisor(&guests);
    macvtap_is_not_reached_from_its_own_hypervisor(&guests);
    a_clock_moves(&guests);
    a_frozen_guest_answers_nothing(&guests);
    a_killed_guest_is_gone(&guests);
}

fn all_answer_with_cloud_init_done(guests: &Guests) {
    wait::until("all guests answer", Duration::from_secs(300), || {
        Ok(KINDS.iter().all(|kind| guests.answers(kind)).then_some(()))
    })
    .unwrap();
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
