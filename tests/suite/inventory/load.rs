//! What a good inventory becomes.

use etcdrun::inventory::HostKind;
use serde_json::json;

use crate::inventory::support::{folder, load, load_fine, load_paths};

const FLEET: &str = r#"
ssh: { user: ops, identity_file: keys/id }
vars: { region: north, tier: all }
hypervisors:
  hv1: { address: 10.0.0.11, zone: rack-a, ssh: { user: root } }
  hv[2-3]: { address: "10.0.0.1{n}", zone: "rack-{n}" }
hosts:
  web[01-02]: { address: "10.1.0.{n+0}", groups: [web], vars: { tier: host } }
  bastion: { port: 2222 }
groups:
  web: { vars: { tier: web, port: 80 } }
  front: { children: [web], vars: { tier: front, color: red } }
clusters:
  prod:
    etcd: { version: 3.5.34, quota: 8GiB }
    guest: { vcpus: 2, memory: 8GiB, disk: { base: ubuntu.qcow2, size: 30GiB } }
    ssh_via: hypervisor
    vars: { tier: prod }
    members:
      etcd-[1-2]:
        hypervisor: hv{n}
        interfaces: [{ network: mynetwork, ip: "192.168.121.{n+3}/24", gateway: 192.168.121.1 }]
      etcd-3:
        hypervisor: hv3
        address: etcd-3.example
        zone: own
        ssh_via: direct
        guest: { vcpus: 4, disk: { size: 60GiB } }
"#;

#[test]
fn hosts_come_in_the_order_they_were_written() {
    let fleet = load_fine(FLEET);
    let names: Vec<_> = fleet.inventory.hosts().map(|host| host.name.as_str()).collect();
    assert_eq!(names, ["hv1", "hv2", "hv3", "web01", "web02", "bastion", "etcd-1", "etcd-2", "etcd-3"]);
}

#[test]
fn endpoints_merge_field_by_field() {
    let fleet = load_fine(FLEET);
    let endpoint = |name: &str| fleet.inventory.host(name).unwrap().endpoint.clone();
    assert_eq!(endpoint("hv1").user.as_deref(), Some("root"));
    assert_eq!(endpoint("hv2").user.as_deref(), Some("ops"));
    assert_eq!(endpoint("hv2").address.as_deref(), Some("10.0.0.12"));
    assert_eq!(endpoint("hv2").identity_files, [fleet.folder.path().join("keys/id")]);
    assert_eq!(endpoint("web02").address.as_deref(), Some("10.1.0.2"));
    assert_eq!(endpoint("bastion").port, Some(2222));
    assert_eq!(endpoint("bastion").address, None);
    assert_eq!(endpoint("etcd-1").address.as_deref(), Some("192.168.121.4"));
    assert_eq!(endpoint("etcd-1").jump, ["hv1"]);
    assert_eq!(endpoint("etcd-3").address.as_deref(), Some("etcd-3.example"));
    assert!(endpoint("etcd-3").jump.is_empty());
}

#[test]
fn members_know_their_hypervisor_and_zone() {
    let fleet = load_fine(FLEET);
    let member = fleet.inventory.host("etcd-1").unwrap();
    assert_eq!(member.cluster().unwrap().as_str(), "prod");
    assert_eq!(member.hypervisor.as_ref().unwrap().as_str(), "hv1");
    assert_eq!(member.zone.as_deref(), Some("rack-a"));
    assert_eq!(fleet.inventory.host("etcd-3").unwrap().zone.as_deref(), Some("own"));
    assert_eq!(fleet.inventory.hypervisor_of(member.id).unwrap().name.as_str(), "hv1");
}

#[test]
fn the_most_specific_level_sets_a_variable() {
    let fleet = load_fine(FLEET);
    assert_eq!(fleet.var("hv1", "tier"), json!("all"));
    assert_eq!(fleet.var("web01", "tier"), json!("host"));
    assert_eq!(fleet.var("web01", "color"), json!("red"));
    assert_eq!(fleet.var("etcd-1", "tier"), json!("prod"));
    assert_eq!(fleet.var("etcd-1", "region"), json!("north"));
}

#[test]
fn templates_know_hosts_groups_and_clusters() {
    let fleet = load_fine(FLEET);
    assert_eq!(fleet.var("hv1", "inventory_hostname"), json!("hv1"));
    assert_eq!(fleet.var("web01", "group_names"), json!(["front", "web"]));
    assert_eq!(fleet.var("hv1", "groups")["web"], json!(["web01", "web02"]));
    assert_eq!(fleet.var("hv1", "groups")["ungrouped"], json!(["bastion"]));
    assert_eq!(fleet.var("hv2", "host"), json!({"name": "hv2", "address": "10.0.0.12", "zone": "rack-2"}));
    assert_eq!(fleet.var("etcd-2", "hypervisor")["members"], json!(["etcd-2"]));
    assert_eq!(fleet.var("etcd-2", "cluster")["etcd"]["quota"], json!("8GiB"));
    assert_eq!(fleet.var("etcd-2", "cluster")["members"][2]["address"], json!("etcd-3.example"));
    let disk = json!({"base": "ubuntu.qcow2", "size": "60GiB"});
    assert_eq!(fleet.var("etcd-3", "member")["guest"], json!({"vcpus": 4, "memory": "8GiB", "disk": disk}));
    assert_eq!(fleet.var("hv1", "cluster"), json!(null));
}

#[test]
fn files_of_a_directory_merge() {
    let folder = folder(&[
        ("inv/10-hosts.yaml", "hypervisors: {hv1: {address: 10.0.0.1}}\nvars: {a: 1}\n"),
        ("inv/20-more.yml", "hypervisors: {hv1: {zone: r1, vars: {b: 2}}}\nvars: {a: 1}\n"),
        ("inv/.hidden.yaml", "nonsense: true\n"),
        ("inv/notes.txt", "not an inventory"),
        ("inv/sub/x.yaml", "nonsense: true\n"),
        ("inv/group_vars/hypervisors.yaml", "c: 3\n"),
        ("inv/group_vars/all/one.yml", "a: 7\n"),
        ("inv/host_vars/hv1.yaml", "b: 4\n"),
    ]);
    let loaded = load_paths(folder, &["inv"]);
    assert_eq!(loaded.problems(), "");
    let host = loaded.inventory.host("hv1").unwrap();
    assert_eq!((host.address(), host.zone.as_deref()), ("10.0.0.1", Some("r1")));
    assert_eq!(loaded.var("hv1", "b"), json!(4));
    assert_eq!(loaded.var("hv1", "c"), json!(3));
    assert_eq!(loaded.var("hv1", "a"), json!(7));
}

#[test]
fn ansible_inventories_load() {
    let loaded = load(
        r#"
all:
  vars: { ansible_user: deploy, ansible_python_interpreter: /usr/bin/python3 }
  hosts:
    mail.example: { ansible_host: 10.0.0.9, ansible_port: 2200 }
  children:
    web:
      hosts:
        web[01:03].example: { ansible_ssh_private_key_file: keys/web }
      vars: { ansible_become: yes }
    db: { hosts: { "db-[a:b]": , mail.example: { role: both } } }
    prod: { children: { web: , db: } }
    hypervisors: { hosts: { kvm1: } }
"#,
    );
    assert_eq!(loaded.problems(), "");
    let host = |name: &str| loaded.inventory.host(name).unwrap();
    assert_eq!(host("mail.example").address(), "10.0.0.9");
    assert_eq!(host("mail.example").endpoint.port, Some(2200));
    assert_eq!(host("web02.example").endpoint.user.as_deref(), Some("deploy"));
    assert_eq!(host("web02.example").r#become, Some(true));
    assert_eq!(host("web02.example").endpoint.identity_files, [loaded.folder.path().join("keys/web")]);
    assert_eq!(host("kvm1").kind, HostKind::Hypervisor);
    let names: Vec<_> = host("mail.example").group_names.iter().map(|name| name.as_str()).collect();
    assert_eq!(names, ["db", "prod"]);
    assert_eq!(loaded.select("prod").unwrap().len(), 6);
}

#[test]
fn default_jump_hosts_are_reached_by_the_hops_before_them() {
    let loaded = load_fine(
        "ssh: {jump: [outer, inner]}\nhosts: {outer: {}, inner: {}, a: {}, b: {ssh: {proxy_command: nc}}, c: {ssh: {jump: none}}}\n",
    );
    let endpoint = |name: &str| loaded.inventory.host(name).unwrap().endpoint.clone();
    assert_eq!(endpoint("a").jump, ["outer", "inner"]);
    assert_eq!(endpoint("outer").jump, ["none"]);
    assert_eq!(endpoint("inner").jump, ["outer"]);
    assert!(endpoint("b").jump.is_empty());
    assert_eq!(endpoint("c").jump, ["none"]);
}

#[test]
fn a_deeper_group_wins_then_priority_then_name() {
    let loaded = load_fine(
        r#"
hosts: { h: {} }
groups:
  deep: { hosts: [h], vars: { a: deep } }
  above: { children: [deep], vars: { a: above, b: above } }
  zebra: { hosts: [h], vars: { a: zebra, b: zebra, c: zebra, d: zebra } }
  early: { hosts: [h], vars: { c: early, d: early, ansible_group_priority: 10 } }
  all: { vars: { e: all, d: all } }
"#,
    );
    let values = ["a", "b", "c", "d", "e"].map(|name| loaded.var("h", name));
    assert_eq!(values, ["deep", "zebra", "early", "early", "all"]);
}
