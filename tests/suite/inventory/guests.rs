//! Hosts that are guests and no members: what they get from their groups, and what is refused.

use serde_json::json;

use crate::inventory::support::{load, load_fine};

const HYPERVISORS: &str =
    "hypervisors:\n  hv[1-3]: { zone: \"z{n}\", networks: { inner: { address: 192.168.7.1/24 } } }\n";

fn text(rest: &str) -> String {
    format!("{HYPERVISORS}{rest}")
}

#[test]
fn a_host_with_a_hypervisor_is_a_guest() {
    let loaded = load_fine(&text(
        "hosts:\n  db:\n    hypervisor: hv2\n    ssh_via: hypervisor\n    guest: { vcpus: 4, admin: { user: dba } }\n    interfaces: [{ network: inner, ip: 192.168.7.9/24 }]\n",
    ));
    let host = loaded.inventory.host("db").unwrap();
    assert_eq!(loaded.inventory.hypervisor_of(host.id).unwrap().name.as_str(), "hv2");
    assert_eq!((host.zone.as_deref(), host.address()), (Some("z2"), "192.168.7.9"));
    assert_eq!((host.endpoint.pin.as_deref(), host.endpoint.user.as_deref()), (Some("guest/db"), Some("dba")));
    assert_eq!(host.endpoint.jump, ["hv2"]);
    let guest = loaded.var("db", "guest");
    let own =
        json!([guest["name"], guest["vcpus"], guest["hypervisor"], guest["cluster"], guest["user"], guest["pin"]]);
    assert_eq!(own, json!(["db", 4, "hv2", "", "dba", "guest/db"]));
    assert!(guest["interfaces"][0]["mac"].as_str().unwrap().starts_with("52:54:00:"), "{guest}");
    let hypervisor = loaded.var("hv2", "hypervisor");
    assert_eq!((&hypervisor["guests"], &hypervisor["members"]), (&json!(["db"]), &json!([])));
    assert_eq!(loaded.var("db", "groups")["guests"], json!(["db"]));
}

#[test]
fn members_in_guests_are_guests_too() {
    let loaded = load_fine(&text(
        "clusters:\n  c:\n    guest: { vcpus: 4 }\n    members:\n      m1: { hypervisor: hv1, guest: { memory: 4GiB } }\n      m2: { address: 10.0.0.2 }\n      m3: { address: 10.0.0.3 }\n",
    ));
    let guest = loaded.var("m1", "guest");
    assert_eq!(json!([guest["vcpus"], guest["memory"], guest["cluster"]]), json!([4, "4GiB", "c"]));
    assert!(loaded.inventory.host("m2").unwrap().var("guest").is_none());
    assert_eq!(loaded.var("hv1", "groups")["guests"], json!(["m1"]));
}

#[test]
fn groups_have_what_their_guests_share() {
    let groups = "groups:\n  all: { guest: { vcpus: 1, memory: 1GiB } }\n  db:\n    guest: { memory: 2GiB }\n    placement: { hypervisors: [hv1, hv2] }\n    address_pool: { bridge: br0, first: 10.0.0.10/24, last: 10.0.0.20 }\n";
    let hosts = "hosts:\n  db[1-3]: { groups: [db] }\n  db4: { groups: [db], hypervisor: hv3, guest: { memory: 3GiB } }\n  old: { groups: [db], address: 10.0.0.10 }\n  plain: { address: 10.0.0.99 }\n";
    let loaded = load_fine(&text(&format!("{hosts}{groups}")));
    let field = |name: &str, field: &str| loaded.var(name, "guest")[field].clone();
    assert_eq!(["db1", "db2", "db3", "db4"].map(|name| field(name, "hypervisor")), ["hv1", "hv2", "hv1", "hv3"]);
    assert_eq!(["db1", "db4"].map(|name| field(name, "memory")), ["2GiB", "3GiB"]);
    assert_eq!(field("db4", "vcpus"), 1);
    let addresses = ["db1", "db2", "db3", "db4"].map(|name| loaded.inventory.host(name).unwrap().address());
    assert_eq!(addresses, ["10.0.0.10", "10.0.0.11", "10.0.0.12", "10.0.0.13"]);
    for existing in ["old", "plain"] {
        let host = loaded.inventory.host(existing).unwrap();
        assert!(!host.is_guest() && host.hypervisor.is_none(), "{existing} has an address of its own");
    }
}

#[test]
fn members_take_nothing_of_guests_from_groups() {
    let loaded = load_fine(&text(
        "clusters: { c: { members: { m1: { hypervisor: hv1, groups: [g] } } } }\ngroups: { g: { guest: { vcpus: 9 } } }\n",
    ));
    assert!(!loaded.inventory.host("m1").unwrap().is_guest());
}

#[test]
fn existing_hosts_and_members_of_a_group_of_guests_stay_what_they_are() {
    let group = "groups: { g: { guest: {}, ssh_via: hypervisor, placement: {}, address_pool: { bridge: b, first: 10.0.0.1/24, last: 10.0.0.9 } } }\n";
    let hosts =
        "hosts:\n  old: { groups: [g], vars: { ansible_host: 192.0.2.1 } }\n  other: { groups: [g], port: 2222 }\n";
    let clusters = "clusters: { c: { members: { m1: { address: 192.0.2.2, groups: [g] } } } }\n";
    let loaded = load_fine(&text(&format!("{hosts}{clusters}{group}")));
    for name in ["old", "other", "m1"] {
        let host = loaded.inventory.host(name).unwrap();
        assert!(!host.is_guest() && host.endpoint.jump.is_empty(), "{name} is not to be created");
    }
}

#[test]
fn what_cannot_be_a_guest_is_refused() {
    let interfaces = |rest: &str| format!("interfaces: [{{ {rest} }}]");
    for (rest, expected) in [
        ("hosts: { a: { guest: { vcpus: 1 } } }\n", "`guest` describes a guest, and `a` has no hypervisor"),
        ("hosts: { a: { hypervisor: hv9, guest: {} } }\n", "there is no hypervisor `hv9`"),
        ("hosts: { a: { hypervisor: hv1, guest: { vcpu: 1 } } }\n", "did you mean `vcpus`?"),
        ("hosts: { a: { ssh_via: hypervisor } }\n", "is to be reached through its hypervisor, but has none"),
        ("groups: { g: { guest: { vcpu: 1 } } }\n", "did you mean `vcpus`?"),
        ("groups: { g: { placment: {} } }\n", "did you mean `placement`?"),
        ("groups: { all: { placement: {} } }\n", "`all` cannot have `placement`"),
        ("groups: { guests: { hosts: [hv1] } }\n", "every host with a `hypervisor` and a `guest` is in it"),
        ("hosts: { a: { groups: [guests] } }\n", "`a` cannot be put into `guests`"),
        ("vars: { guest: 1 }\n", "`guest` cannot be a variable"),
        (
            "hosts: { a: { groups: [g] } }\ngroups: { g: { placement: { hypervisors: [hv7] } } }\n",
            "there is no hypervisor `hv7`",
        ),
        (
            "hosts: { a: { groups: [g] }, b: { groups: [g] } }\ngroups: { g: { address_pool: { bridge: b, first: 10.0.0.1/24, last: 10.0.0.1 }, placement: {} } }\n",
            "the address pool of `g` has no address left for `b`",
        ),
    ] {
        let problems = load(&text(rest)).problems();
        assert!(problems.contains(expected), "{expected} is missing in\n{problems}");
    }
    let two = |first: &str, second: &str| {
        format!(
            "hosts:\n  a: {{ hypervisor: hv1, guest: {{}}, {} }}\n  b: {{ hypervisor: hv2, guest: {{}}, {} }}\n",
            interfaces(first),
            interfaces(second)
        )
    };
    let problems = load(&text(&two("bridge: br0, ip: 10.0.0.1/24", "bridge: br0, ip: 10.0.0.1/24"))).problems();
    assert!(problems.contains("two guests have the address 10.0.0.1"), "{problems}");
    // Each network ends at its hypervisor.
    load_fine(&text(&two("network: inner, ip: 192.168.7.5/24", "network: inner, ip: 192.168.7.5/24")));
    let problems =
        load(&text(&two("network: inner, ip: 10.9.9.5/24", "network: inner, ip: 192.168.7.1/24"))).problems();
    assert!(problems.contains("not in the network 192.168.7.0/24 of its hypervisor"), "{problems}");
    assert!(problems.contains("is the hypervisor's own address"), "{problems}");
}
