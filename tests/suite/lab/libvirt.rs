//! The modules that speak to libvirt, on a real one. No guest here has anything to boot.

use etcdrun_lab::Kind;
use serde_json::Value;

use super::{Place, Said, web::Web};

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ";

/// A guest in all its parts, defined and not started.
const GUEST: &str = r#"
- hosts: hypervisors
  vars: { memory: 512MiB, vcpus: 1, size: 2GiB, hostname: g, network: default }
  tasks:
    - libvirt_pool: { name: etcd, path: /var/lib/libvirt/etcd }
    - libvirt_network: { name: inner, bridge: inner0, address: 192.168.150.1/24 }
    - libvirt_volume: { pool: etcd, name: g.qcow2, size: "{{ size }}", base: { path: /srv/guest.qcow2 } }
    - libvirt_volume: { pool: etcd, name: "{{ item }}", size: 64MiB, format: raw }
      loop: [g-data.raw, g-wal.raw]
    - cloud_init:
        name: g
        pool: etcd
        hostname: "{{ hostname }}"
        user: ops
        ssh_keys: KEY
        interfaces: [{ network: inner, ip: 192.168.150.5/24 }]
      register: seed
    - libvirt_domain:
        name: g
        uuid: "{{ seed.uuid }}"
        state: present
        vcpus: "{{ vcpus }}"
        memory: "{{ memory }}"
        cluster: prod
        member: g
        console_log: /var/log/libvirt/qemu/g.console
        cpuset: "1,0"
        disks:
          - { pool: etcd, volume: g.qcow2, limits: { iops: 500, bandwidth: 100MiB } }
          - { pool: etcd, volume: g-data.raw, serial: data }
          - { pool: etcd, volume: g-cloud-init.iso, readonly: true }
        further_disks: [{ name: wal, size: 64MiB, format: raw }]
        interfaces: [{ network: "{{ network }}" }, { bridge: br0 }, { macvtap: eth0 }]
      register: domain
"#;

/// One hypervisor, and the playbook above.
fn place() -> Place {
    let place = Place::new(Kind::Hypervisor, 1);
    place.folder.write("guest.yaml", &GUEST.replace("KEY", &format!("'{KEY}'")));
    place
}

fn play(place: &Place, more: &[&str]) -> Said {
    place.folder.run(&[&["playbook", "guest.yaml", "--json", "--diff"], more].concat())
}

/// The results of all tasks that ended, with their modules.
fn results(said: &Said) -> Vec<(String, Value)> {
    let events = said.stdout.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    events
        .filter(|event| event["event"] == "node_finished")
        .map(|event| (event["node"]["module"].as_str().unwrap().to_owned(), event))
        .collect()
}

fn changed(said: &Said) -> Vec<String> {
    results(said).into_iter().filter(|(_, event)| event["status"] == "changed").map(|(module, _)| module).collect()
}

fn data(said: &Said, module: &str) -> Value {
    let ran = |event: &Value| event["status"] != "not_run";
    let found = results(said).into_iter().rev().find(|(name, event)| name == module && ran(event));
    found.unwrap_or_else(|| panic!("no {module} in\n{}", said.stdout)).1["result"].clone()
}

fn virsh(place: &Place, args: &[&str]) -> String {
    place.hosts[0].run(&[&["virsh", "-q"], args].concat()).unwrap().trim().to_owned()
}

#[test]
fn a_guest_is_defined_once_and_stays_as_it_is() {
    let place = place();
    let check = play(&place, &["--check"]).ends(0);
    // Nobody has tried yet whether KVM works there, so nothing is known of the domain.
    assert_eq!(changed(&check).len(), 5);
    assert!(!virsh(&place, &["pool-list", "--all", "--name"]).contains("etcd"), "check mode changes nothing");

    assert_eq!(changed(&play(&place, &[]).ends(0)).len(), 6);
    assert_eq!(changed(&play(&place, &[]).ends(0)), [""; 0]);
    assert_eq!(changed(&play(&place, &["--check"]).ends(0)), [""; 0]);

    let xml = virsh(&place, &["dumpxml", "g"]);
    for part in [
        "cpuset='0-1'",
        "<total_bytes_sec>104857600<",
        "<total_iops_sec>500<",
        "<serial>wal<",
        "mode='bridge'",
        "bridge='br0'",
        "network='default'",
        "<readonly/>",
        "cluster=\"prod\"",
        "guest_agent",
    ] {
        assert!(xml.contains(part), "{part} is missing in\n{xml}");
    }
    let uuid = virsh(&place, &["domuuid", "g"]);
    let iso = "/var/lib/libvirt/etcd/g-cloud-init.iso";
    let meta = place.hosts[0].run(&["isoinfo", "-R", "-i", iso, "-x", "/meta-data"]).unwrap();
    assert!(meta.contains(&uuid), "the instance belongs to the domain: {meta}");
    assert_eq!(place.hosts[0].run(&["stat", "-c", "%a", iso]).unwrap().trim(), "600");
    assert_eq!(virsh(&place, &["domstate", "g"]), "shut off");
}

#[test]
fn what_differs_is_changed_or_said() {
    let place = place();
    play(&place, &[]).ends(0);

    let said = play(&place, &["-e", "memory=768MiB", "-e", "size=3GiB"]).ends(0);
    assert_eq!(changed(&said), ["libvirt_volume", "libvirt_domain"]);
    let diff = &data(&said, "libvirt_domain")["diff"][0];
    assert!(diff["before"].as_str().unwrap().contains("524288") && diff["after"].as_str().unwrap().contains("786432"));
    assert!(virsh(&place, &["dominfo", "g"]).contains("786432 KiB"));

    // What somebody else has changed is put back.
    virsh(&place, &["setvcpus", "g", "2", "--maximum", "--config"]);
    assert_eq!(changed(&play(&place, &["-e", "memory=768MiB", "-e", "size=3GiB"]).ends(0)), ["libvirt_domain"]);

    // The ISO is what the guest was made from.
    let said = play(&place, &["-e", "memory=768MiB", "-e", "size=3GiB", "-e", "hostname=other"]).ends(0);
    assert_eq!(changed(&said), [""; 0]);
    assert_eq!(data(&said, "cloud_init")["data"]["needs_rebuild"], true);

    let said = play(&place, &["-e", "size=1GiB"]).ends(2);
    assert!(data(&said, "libvirt_volume")["msg"].as_str().unwrap().contains("never made smaller"));
    let said = play(&place, &["-e", "network=nowhere", "-e", "size=3GiB"]).ends(2);
    let msg = data(&said, "libvirt_domain")["msg"].as_str().unwrap().to_owned();
    assert!(msg.contains("there is no network nowhere") && msg.contains("default, inner"), "{msg}");
}

/// A guest that runs, with nothing to boot.
const RUNNING: &str = r#"
- hosts: hypervisors
  vars: { network: default, more_disks: [], more_interfaces: [] }
  tasks:
    - libvirt_pool: { name: etcd, path: /var/lib/libvirt/etcd }
    - libvirt_network: { name: inner, bridge: inner0, address: 192.168.150.1/24 }
    - libvirt_volume: { pool: etcd, name: "{{ item }}", size: 8MiB, format: raw }
      loop: [first.raw, second.raw, third.raw]
    - libvirt_domain:
        name: g
        state: running
        vcpus: 1
        memory: 64MiB
        disks: "{{ [{'pool': 'etcd', 'volume': 'first.raw'}] + more_disks }}"
        interfaces: "{{ [{'network': network}] + more_interfaces }}"
"#;

#[test]
fn a_guest_that_runs_gets_devices_at_once() {
    let place = Place::new(Kind::Hypervisor, 1);
    place.folder.write("guest.yaml", RUNNING);
    play(&place, &[]).ends(0);
    let id = || virsh(&place, &["domid", "g"]);
    let before = id();
    let more = r#"{"network": "inner", "more_disks": [{"pool": "etcd", "volume": "second.raw", "serial": "second"}], "more_interfaces": [{"bridge": "br0"}]}"#;
    assert_eq!(changed(&play(&place, &["--check", "-e", more]).ends(0)), ["libvirt_domain"]);
    assert!(!virsh(&place, &["domblklist", "g"]).contains("second.raw"), "check mode changes nothing");

    let said = play(&place, &["-e", more]).ends(0);
    assert_eq!(changed(&said), ["libvirt_domain"]);
    for definition in [&["domblklist", "g"][..], &["domblklist", "g", "--inactive"]] {
        assert!(virsh(&place, definition).contains("second.raw"), "{definition:?}");
    }
    for definition in [&["domiflist", "g"][..], &["domiflist", "g", "--inactive"]] {
        let interfaces = virsh(&place, definition);
        assert!(interfaces.contains("inner") && interfaces.contains("br0"), "{interfaces}");
        assert!(!interfaces.contains("default"), "{interfaces}");
    }
    assert_eq!(changed(&play(&place, &["-e", more]).ends(0)), [""; 0]);

    // What it has is not taken from it while it runs.
    let said = play(&place, &[]).ends(0);
    assert!(data(&said, "libvirt_domain")["data"]["reason"].to_string().contains("disk vdb"), "{}", said.stdout);
    assert!(virsh(&place, &["domblklist", "g"]).contains("second.raw"));

    // One that would have another name is not attached twice.
    let moved = r#"{"more_disks": [{"pool": "etcd", "volume": "third.raw"}, {"pool": "etcd", "volume": "second.raw", "serial": "second"}]}"#;
    let said = play(&place, &["-e", moved]).ends(0);
    let reason = data(&said, "libvirt_domain")["data"]["reason"].to_string();
    assert!(reason.contains("disk vdb") && reason.contains("disk vdc"), "{reason}");

    // More than it has room for waits for a restart, and is not tried as if it were a change.
    let bridges = vec![serde_json::json!({"bridge": "br0"}); 12];
    let many = serde_json::json!({ "more_interfaces": bridges }).to_string();
    let full = |said: &Said| data(said, "libvirt_domain")["data"]["reason"].to_string().contains("no free slot");
    let said = play(&place, &["-e", &many]).ends(0);
    assert!(changed(&said) == ["libvirt_domain"] && full(&said), "{}", said.stdout);
    let said = play(&place, &["-e", &many]).ends(0);
    assert!(changed(&said).is_empty() && full(&said), "{}", said.stdout);
    assert_eq!(id(), before, "it was never restarted");
}

#[test]
fn nothing_goes_without_a_word() {
    let place = place();
    play(&place, &[]).ends(0);
    let exec = |module: &str, args: &str| place.folder.run(&["exec", "all", "-m", module, "-a", args]);
    let unconfirmed = exec("libvirt_volume", "pool=etcd name=g-data.raw state=absent");
    assert!(unconfirmed.stderr.contains("confirm"), "{}", unconfirmed.stderr);
    let used = exec("libvirt_volume", "pool=etcd name=g-data.raw state=absent confirm=g-data.raw").ends(2);
    assert!(used.stdout.contains("is a disk of g"), "{}", used.stdout);

    exec("libvirt_domain", "name=g state=absent confirm=g").ends(0);
    assert_eq!(virsh(&place, &["list", "--all", "--name"]), "");
    assert!(virsh(&place, &["vol-list", "etcd"]).contains("g-data.raw"), "disks stay");
    exec("libvirt_volume", "pool=etcd name=g-data.raw state=absent confirm=g-data.raw").ends(0);
    exec("libvirt_volume", "pool=etcd name=g-wal.raw state=absent confirm=g-wal.raw").ends(0);
    exec("cloud_init", "name=g pool=etcd state=absent").ends(0);
    exec("libvirt_network", "name=inner state=absent").ends(0);
    exec("libvirt_pool", "name=etcd state=absent").ends(0);
    assert_eq!(place.hosts[0].run(&["ls", "/var/lib/libvirt/etcd"]).unwrap().trim(), "g.qcow2");

    // A domain of somebody else is not touched.
    place.exec(0, "virsh define /dev/stdin <<'END'\n<domain type='qemu'><name>g</name><memory>65536</memory><os><type>hvm</type></os></domain>\nEND").ends(0);
    let said = play(&place, &[]).ends(2);
    assert!(data(&said, "libvirt_domain")["msg"].as_str().unwrap().contains("did not create"), "{}", said.stdout);
}

/// What the hypervisor lacks is found before anything is made, all of it at once.
#[test]
fn a_hypervisor_that_cannot_take_the_guests_is_left_alone() {
    let place = Place::new(Kind::Hypervisor, 1);
    let hypervisor = place.hosts[0].name().to_owned();
    place.exec(0, "virsh define /dev/stdin <<'END'\n<domain type='qemu'><name>other</name><memory>65536</memory><os><type>hvm</type></os><devices><interface type='network'><mac address='52:54:00:00:00:77'/><source network='default'/></interface></devices></domain>\nEND").ends(0);
    let guest = |more: &str, interface: &str| {
        format!(
            "clusters:\n  c:\n    guest: {{ vcpus: 1, memory: 128MiB, disk: {{ base: /srv/guest.qcow2, size: 3GiB }}, admin: {{ user: ops, ssh_keys: '{KEY}' }} }}\n    members:\n      g: {{ hypervisor: {hypervisor}, guest: {{ {more} }}, interfaces: [{{ {interface} }}] }}\n"
        )
    };
    let inventory = place.folder.read("inventory.yaml");
    place.folder.write("guests.yaml", "- hosts: members\n  roles: [guest]\n");
    let check = |more: &str, interface: &str| {
        place.folder.write("inventory.yaml", &format!("{inventory}{}", guest(more, interface)));
        let said = place.folder.run(&["playbook", "guests.yaml", "--json"]).ends(2);
        assert_eq!(changed(&said), [""; 0]);
        data(&said, "guest_preflight")["msg"].as_str().unwrap().to_owned()
    };
    let msg = check(
        "memory: 900GiB, vcpus: 999, cpuset: '0,998', disks: [{ name: a, size: 1GiB }, { name: a, size: 1GiB }], disk: { base: nowhere.qcow2, pool: none }",
        "network: nothing, mac: '52:54:00:00:00:77'",
    );
    for expected in [
        "the domain other already has the MAC address 52:54:00:00:00:77",
        "g need 900 GiB of memory",
        "g needs 999 processors",
        "g: `cpuset` is 0,998, and the last processor of the hypervisor is ",
        "the volume g-a.qcow2 in the pool none would be two disks",
        "there is no pool none; there are: default",
        "there is no base image nowhere.qcow2 in the pool default",
        "there is no network nothing; there are: default",
    ] {
        assert!(msg.contains(expected), "{expected} is missing in {msg}");
    }
    let msg = check("", &format!("bridge: br9, ip: {}/24", place.hosts[0].address()));
    assert!(msg.contains("there is no bridge br9; there are: br0"), "{msg}");
    assert!(msg.contains("something already answers at"), "{msg}");
}

/// An image is brought once, from where a broken transfer had got to, and never replaced.
#[test]
fn a_base_image_comes_from_the_operator_and_goes_on_where_it_broke_off() {
    let place = Place::new(Kind::Hypervisor, 1);
    let image: String = (0..200_000).map(|n| format!("{n:010}")).collect();
    place.folder.write("image.raw", &image);
    let bring = |more: &str| {
        let args = format!(
            "{{ pool: default, name: base.raw, source: {{ file: {}{more} }} }}",
            place.folder.path("image.raw").display()
        );
        place.folder.run(&["exec", "all", "--json", "-m", "libvirt_volume", "-a", &args])
    };
    let folder = "/var/lib/libvirt/images";
    place.exec(0, &format!("head -c 700000 /dev/zero | tr '\\0' x > {folder}/.etcdrun-part-base.raw")).ends(0);
    let said = bring("").ends(2);
    assert!(
        said.stdout.contains("what arrived has the sha256"),
        "a part of something else is found out: {}",
        said.stdout
    );
    place.hosts[0]
        .run(&["sh", "-c", &format!("printf '%s' '{}' > {folder}/.etcdrun-part-base.raw", &image[..100_000])])
        .unwrap();
    let said = bring("").ends(0);
    assert!(said.stdout.contains("node_progress") && said.stdout.contains(r#""status":"changed""#), "{}", said.stdout);
    assert_eq!(place.hosts[0].run(&["cat", &format!("{folder}/base.raw")]).unwrap(), image);
    assert!(virsh(&place, &["vol-list", "default"]).contains("base.raw"));
    assert!(!bring("").ends(0).stdout.contains(r#""status":"changed""#));

    place.folder.write("image.raw", "another image");
    let said = bring("").ends(2);
    assert!(said.stdout.contains("give the new image another name"), "{}", said.stdout);
}

#[test]
fn an_ignition_configuration_is_handed_over_by_the_firmware() {
    let place = Place::new(Kind::Hypervisor, 1);
    place.folder.write(
        "guest.yaml",
        &format!(
            "- hosts: hypervisors\n  tasks:\n    - ignition: {{ name: g, pool: default, ssh_keys: '{KEY}', interfaces: [{{ bridge: br0, ip: 10.0.0.5/24 }}], config: {{ storage: {{ files: [{{ path: /x }}] }} }} }}\n      register: seed\n    - libvirt_domain: {{ name: g, uuid: '{{{{ seed.uuid }}}}', state: present, memory: 128MiB, vcpus: 1, ignition: '{{{{ seed.path }}}}' }}\n"
        ),
    );
    assert_eq!(changed(&play(&place, &[]).ends(0)).len(), 2);
    assert_eq!(changed(&play(&place, &[]).ends(0)), [""; 0]);
    assert!(virsh(&place, &["dumpxml", "g"]).contains("opt/com.coreos/config"));
    let config = place.hosts[0].run(&["cat", "/var/lib/libvirt/images/g.ign"]).unwrap();
    let config: Value = serde_json::from_str(&config).unwrap();
    assert_eq!(config["ignition"]["version"], "3.3.0");
    assert!(config.to_string().contains(&virsh(&place, &["domuuid", "g"])));
}

/// Where the hypervisor has no program for it, the operator builds the ISO, and it is the same.
#[test]
fn an_iso_is_built_by_the_operator_where_the_hypervisor_cannot() {
    let place = place();
    let hide =
        "for p in genisoimage mkisofs xorriso; do [ ! -e /usr/bin/$p ] || mv /usr/bin/$p /usr/bin/hidden-$p; done";
    place.hosts[0].run(&["sh", "-c", hide]).unwrap();
    let nowhere = play(&place, &[]).ends(2);
    assert!(
        data(&nowhere, "cloud_init")["msg"].as_str().unwrap().contains("the workstation cannot build the ISO either")
    );

    // This machine borrows the program of the hypervisor, with the libraries that it was built for.
    let root = format!("/proc/{}/root", place.hosts[0].leader().unwrap().as_raw_pid());
    let program = format!(
        "#!/bin/sh\nexec env LD_LIBRARY_PATH={root}/usr/lib/x86_64-linux-gnu {root}/usr/bin/hidden-genisoimage \"$@\"\n"
    );
    place.folder.write("bin/genisoimage", &program);
    crate::support::run("chmod", &["755", place.folder.path("bin/genisoimage").to_str().unwrap()]);
    let path = format!("{}:{}", place.folder.path("bin").display(), std::env::var("PATH").unwrap());
    let run = || {
        let mut command = place.folder.command(&["playbook", "guest.yaml", "--json", "--diff"]);
        Said::of(command.env("PATH", &path).output().unwrap())
    };
    assert!(changed(&run().ends(0)).contains(&"cloud_init".to_owned()));
    assert_eq!(changed(&run().ends(0)), [""; 0]);
    let iso = "/var/lib/libvirt/etcd/g-cloud-init.iso";
    let meta = place.hosts[0].run(&["isoinfo", "-R", "-i", iso, "-x", "/meta-data"]).unwrap();
    assert!(meta.contains(&virsh(&place, &["domuuid", "g"])), "{meta}");
    assert_eq!(place.hosts[0].run(&["stat", "-c", "%a", iso]).unwrap().trim(), "600");
}

#[test]
fn a_base_image_comes_from_a_url() {
    let place = Place::new(Kind::Hypervisor, 1);
    let image: String = (0..100_000).map(|n| format!("{n:010}")).collect();
    place.folder.write("web/image.raw", &image);
    let web = Web::start(place.folder.path("web"));
    let said = crate::support::run("sha256sum", &[place.folder.path("web/image.raw").to_str().unwrap()]);
    let sum = String::from_utf8(said.stdout).unwrap()[..64].to_owned();
    let bring = |sum: &str| {
        let url = web.url("image.raw");
        let args = format!("{{ pool: default, name: base.raw, source: {{ url: \"{url}\", sha256: {sum} }} }}");
        place.folder.run(&["exec", "all", "--json", "-m", "libvirt_volume", "-a", &args])
    };
    let wrong = bring(&"0".repeat(64).replace('0', "a")).ends(2);
    assert!(wrong.stdout.contains("sha256") && !virsh(&place, &["vol-list", "default"]).contains("base.raw"));
    bring(&sum).ends(0);
    assert_eq!(place.hosts[0].run(&["cat", "/var/lib/libvirt/images/base.raw"]).unwrap(), image);
    assert!(!bring(&sum).ends(0).stdout.contains(r#""status":"changed""#));
}

/// A network that only the hypervisor knows cannot carry a cluster over several of them.
#[test]
fn a_network_that_ends_at_its_hypervisor_is_no_place_for_members_of_several() {
    let place = Place::new(Kind::Hypervisor, 2);
    let mut text = place.folder.read("inventory.yaml");
    text += &format!(
        "clusters:\n  c:\n    allow_colocation: true\n    guest: {{ vcpus: 1, memory: 128MiB, disk: {{ base: /srv/guest.qcow2, size: 3GiB }}, admin: {{ user: ops, ssh_keys: '{KEY}' }} }}\n    members:\n"
    );
    for (n, host) in place.hosts.iter().enumerate() {
        text += &format!(
            "      g{n}: {{ hypervisor: {}, interfaces: [{{ network: default, ip: 192.168.122.{}/24 }}] }}\n",
            host.name(),
            n + 50
        );
    }
    place.folder.write("inventory.yaml", &text).write("guests.yaml", "- hosts: members\n  roles: [guest]\n");
    let said = place.folder.run(&["playbook", "guests.yaml", "--json"]).ends(2);
    assert_eq!(changed(&said), [""; 0]);
    let msg = data(&said, "guest_preflight")["msg"].as_str().unwrap().to_owned();
    assert!(msg.contains("the network default (nat) ends at this hypervisor"), "{msg}");
}
