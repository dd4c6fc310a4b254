//! Hypervisors: a real libvirt on real bridges, each in its own world.

use etcdrun_lab::Kind;

use super::Place;

#[test]
fn libvirt_answers_with_its_pool_and_its_network() {
    let place = Place::new(Kind::Hypervisor, 2);
    let said = place.folder.run(&["exec", "hypervisors", "--", "virsh", "version"]).ends(0);
    assert_eq!(said.stdout.matches("Running hypervisor: QEMU").count(), 2, "{}", said.stdout);
    place.exec(0, "virsh net-info default | grep -q 'Active: *yes'").ends(0);
    place.exec(0, "virsh pool-info default | grep -q 'State: *running'").ends(0);
    place.exec(0, "qemu-img --version && genisoimage --version && qemu-img info /srv/guest.qcow2").ends(0);
    place.exec(0, "systemctl is-active libvirtd && systemctl restart libvirtd && virsh list").ends(0);
}

#[test]
fn hypervisors_reach_each_other_and_share_no_domains() {
    let place = Place::new(Kind::Hypervisor, 2);
    let address = place.hosts[1].address();
    place.exec(0, &format!("ping -q -c 1 -W 2 {address}")).ends(0);
    place.exec(0, "virsh net-define /dev/stdin <<'END'\n<network><name>only-here</name></network>\nEND").ends(0);
    place.exec(0, "virsh net-info only-here").ends(0);
    place.exec(1, "virsh net-info only-here").ends(2);
}

#[test]
fn a_rebooted_hypervisor_has_its_networks_again() {
    let place = Place::new(Kind::Hypervisor, 1);
    let networks = "systemctl is-system-running --wait && ip -br link show dev br0 && virsh net-info default | grep 'Active: *yes'";
    place.exec(0, networks).ends(0);
    place.folder.run(&["exec", "all", "-m", "reboot", "-a", "reboot_timeout=120s"]).ends(0);
    place.exec(0, networks).ends(0);
}
