//! Guests that were made for a cluster, and are none of its members any more.

use etcdrun_lab::Kind;

use super::Place;

/// Defines a domain, with the mark of a cluster if there is one. It has nothing to boot.
fn define(place: &Place, host: usize, name: &str, cluster: Option<&str>) {
    let mark = cluster.map(|cluster| {
        format!("<metadata><etcdrun:guest xmlns:etcdrun='https://etcdrun.dev/xmlns/guest/1' cluster='{cluster}' member='{name}'/></metadata>")
    });
    let xml = format!(
        "<domain type='qemu'><name>{name}</name>{}<memory unit='MiB'>16</memory><os><type machine='q35'>hvm</type></os></domain>",
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
        "{second} has a guest etcd-0 (shut off) that nobody needs, since etcd-0 is on {first} now; `etcdrun ssh {second} -- virsh undefine"
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
