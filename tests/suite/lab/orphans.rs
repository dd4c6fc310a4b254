//! Guests that were made for a cluster, and are none of its members any more.

use etcdrun_lab::Kind;

use super::Place;

/// Defines a domain, with the mark of a cluster if there is one. It has nothing to boot.
fn define(place: &Place, host: usize, name: &str, cluster: Option<&str>) {
    define_with(place, host, name, cluster, "");
}

fn define_with(place: &Place, host: usize, name: &str, cluster: Option<&str>, devices: &str) {
    let mark = cluster.map(|cluster| {
        format!("<metadata><etcdrun:guest xmlns:etcdrun='https://etcdrun.dev/xmlns/guest/1' cluster='{cluster}' member='{name}'/></metadata>")
    });
    let xml = format!(
        "<domain type='qemu'><name>{name}</name>{}<memory unit='MiB'>16</memory><os><type machine='q35'>hvm</type></os><devices>{devices}</devices></domain>",
        mark.unwrap_or_default()
    );
    place.hosts[host].run(&["sh", "-c", &format!("echo \"{xml}\" | virsh define /dev/stdin")]).unwrap();
}

#[test]
fn a_guest_that_is_left_over_is_told_wherever_it_is() {
    let place = Place::new(Kind::Hypervisor, 2);
    let (first, second) = (place.hosts[0].name(), place.hosts[1].name());
    let guest = "vcpus: 1, memory: 16MiB, disk: { base: /srv/guest.qcow2, size: 1GiB }";
    let cluster = format!(
        "clusters:\n  prod:\n    guest: {{ {guest} }}\n    members:\n      etcd-0: {{ hypervisor: {first}, address: 192.0.2.1 }}\n"
    );
    place.folder.write("inventory.yaml", &(place.folder.read("inventory.yaml") + &cluster));
    define(&place, 0, "etcd-0", Some("prod"));
    define(&place, 1, "etcd-0", Some("prod"));
    define(&place, 1, "etcd-7", Some("prod"));
    define(&place, 1, "etcd-8", Some("other"));
    define(&place, 1, "somebody", None);
    place.hosts[1].run(&["virsh", "start", "etcd-7"]).unwrap();

    // Its machine does not answer, which is another matter.
    let said = place.folder.run(&["status", "-i", "inventory.yaml", "--connect-timeout", "2"]).ends(4);
    let told: Vec<&str> = said.stdout.lines().filter(|line| line.contains("has a guest")).collect();
    assert_eq!(told.len(), 2, "{}", said.stdout);
    let elsewhere = format!(
        "{second} has a guest etcd-0 (shut off) that is no longer used, because etcd-0 is on {first} now; `etcdrun ssh {second} -- virsh undefine"
    );
    assert!(told.iter().any(|line| line.contains(&elsewhere)), "{}", said.stdout);
    let running = format!("`etcdrun ssh {second} -- virsh destroy etcd-7` powers it off");
    assert!(told.iter().any(|line| line.contains("etcd-7 (running)") && line.contains(&running)), "{}", said.stdout);

    // What it says to do helps.
    for words in ["destroy etcd-7", "undefine --nvram etcd-7", "undefine --nvram etcd-0"] {
        let words: Vec<&str> =
            ["ssh", second, "-i", "inventory.yaml", "--", "virsh"].into_iter().chain(words.split(' ')).collect();
        place.folder.run(&words).ends(0);
    }
    let said = place.folder.run(&["status", "-i", "inventory.yaml", "--connect-timeout", "2"]).ends(4);
    assert!(!said.stdout.contains("has a guest"), "{}", said.stdout);
}

#[test]
fn a_destroyed_cluster_takes_its_guests_along_and_nobody_elses() {
    let place = Place::new(Kind::Hypervisor, 1);
    let (host, name) = (&place.hosts[0], place.hosts[0].name());
    let guest = "vcpus: 1, memory: 16MiB, disk: { base: /srv/guest.qcow2, size: 1GiB }";
    let cluster = format!(
        "clusters:\n  prod:\n    guest: {{ {guest} }}\n    members:\n      etcd-0: {{ hypervisor: {name}, address: 192.0.2.1 }}\n"
    );
    place.folder.write("inventory.yaml", &(place.folder.read("inventory.yaml") + &cluster));
    host.run(&["sh", "-c", "mkdir -p /srv && qemu-img create -q -f qcow2 /srv/base.qcow2 1M && qemu-img create -q -f qcow2 -b /srv/base.qcow2 -F qcow2 /srv/etcd-0.qcow2"]).unwrap();
    let disk = "<disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='/srv/etcd-0.qcow2'/><target dev='vda' bus='virtio'/></disk>";
    let destroy = |more: &[&str]| {
        let words = ["destroy", "prod", "-i", "inventory.yaml", "--connect-timeout", "2", "--yes"];
        place.folder.run(&[&words[..], more].concat())
    };
    // One of that name that belongs to another cluster.
    define_with(&place, 0, "etcd-0", Some("other"), disk);
    let said = destroy(&["--no-backup"]).ends(2);
    assert!(said.stdout.contains("belongs to another cluster"), "{}", said.stdout);
    host.run(&["virsh", "undefine", "etcd-0"]).unwrap();
    define_with(&place, 0, "etcd-0", Some("prod"), disk);
    define(&place, 0, "somebody", None);
    host.run(&["virsh", "start", "etcd-0"]).unwrap();
    // Nothing is known of it here, so nobody could take a backup.
    destroy(&[]).ends(5);
    destroy(&["--no-backup", "--check"]).ends(0);
    host.run(&["test", "-e", "/srv/etcd-0.qcow2"]).unwrap();
    destroy(&["--no-backup"]).ends(0);
    assert_eq!(host.run(&["virsh", "list", "--all", "--name"]).unwrap().trim(), "somebody");
    host.run(&["sh", "-c", "test -e /srv/base.qcow2 && ! ls /srv/etcd-0*"]).unwrap();
    destroy(&[]).ends(0);
}
