//! Bad inventories: every problem at once, each with its place and a way out.

use std::os::unix::fs::PermissionsExt;

use crate::inventory::support::{folder, load, load_paths};

/// What is wrong, and a file in which it is.
const CASES: &[(&str, &str)] = &[
    ("unknown top-level key", "hypervisor:\n  hv1: {}\nhosts: {a: {}}\n"),
    ("unknown keys, all of them", "hosts:\n  a: {adress: x, zome: y}\n  b: {ssh: {usr: x}}\n"),
    ("duplicate key", "hosts:\n  a: {}\n  a: {}\n"),
    ("wrong types", "hosts:\n  a: {port: ssh}\n  b: {vars: [1]}\n  c: {groups: {x: y}}\n  d: 7\nclusters: [x]\n"),
    ("port zero", "hosts: {a: {port: 0}, b: {port: 70000}}\n"),
    ("backward range", "hypervisors:\n  hv[9-1]: {}\n"),
    ("empty range", "hypervisors:\n  hv[]: {}\n  hv[1,]: {}\n"),
    ("open range", "hypervisors:\n  \"hv[1-3\": {}\n"),
    ("large range", "hypervisors:\n  hv[1-100001]: {}\n"),
    ("large product", "hypervisors:\n  r[1-1000]n[1-1000]: {}\n"),
    ("too many hosts", "hosts:\n  a[1-60000]: {}\n  b[1-60000]: {}\n"),
    ("range said once", "hosts:\n  a[1-40]: {adress: x}\n"),
    ("placeholder of two ranges", "hosts:\n  r[1-2]n[1-2]: {address: \"10.0.0.{n}\"}\n"),
    ("host twice", "hypervisors:\n  hv[1-3]: {}\n  hv2: {}\nhosts:\n  hv3: {}\n  h[1,1]: {}\n"),
    ("bad names", "hosts:\n  'a b': {}\n  -x: {}\n  'a/b': {}\n  ü: {}\ngroups:\n  'g g': {}\n"),
    ("built-in names", "hosts: {all: {}}\nclusters: {members: {}}\ngroups: {hypervisors: {hosts: [a]}}\n"),
    ("group named like a host", "hosts: {web: {}}\ngroups: {web: {}}\n"),
    ("cluster named like a group", "groups: {prod: {}}\nclusters: {prod: {}}\n"),
    (
        "groups in a circle",
        "groups:\n  a: {children: [b]}\n  b: {children: [c]}\n  c: {children: [a]}\n  d: {children: [d]}\n  e: {children: [a]}\n",
    ),
    (
        "unknown child and host",
        "hosts: {web1: {}}\ngroups:\n  all: {children: [xyz]}\n  a: {children: [bb, web1], hosts: [web2, a, 'web[1-4]']}\n  b: {}\n",
    ),
    (
        "unknown group of a host",
        "groups: {web: {}}\nhosts: {a: {groups: [wbe]}, b: {groups: [prod]}, c: {groups: all}}\n",
    ),
    (
        "hypervisor that is none",
        "hypervisors: {hv1: {}}\nhosts: {a: {}}\nclusters:\n  p:\n    members:\n      m1: {hypervisor: hv11}\n      m2: {hypervisor: a}\n",
    ),
    (
        "bad interfaces",
        "clusters:\n  p:\n    members:\n      m1: {interfaces: [{network: n, ip: 10.0.0.300/24}]}\n      m2: {interfaces: [{network: n, ip: 10.0.0.3}]}\n      m3: {interfaces: [{network: n, bridge: b}]}\n      m4: {interfaces: [{ip: 10.0.0.4/24}]}\n      m5: {interfaces: [{network: n, mac: 'aa:bb'}]}\n      m6: {interfaces: [{network: n, ip: 10.0.0.6/24, gateway: 10.0.9.1}]}\n      m7: {interfaces: [{network: n, gateway: x}]}\n",
    ),
    (
        "the same address twice",
        "clusters:\n  p:\n    members:\n      m1: {interfaces: [{network: n, ip: 10.0.0.3/24}]}\n      m2: {interfaces: [{network: n, ip: 10.0.0.3/24}]}\n",
    ),
    (
        "bad addresses",
        "hosts:\n  a: {address: 10.0.0.1/24}\n  b: {address: 10.0.0.300}\n  c: {address: 'x y'}\n  d: {address: -oProxyCommand=x}\n",
    ),
    ("unknown cluster and member keys", "clusters:\n  p: {etdc: {}, members: {m1: {hypervsor: hv1}}}\n"),
    ("ssh_via", "clusters:\n  p: {members: {m1: {ssh_via: hyperviser}, m2: {ssh_via: hypervisor}}}\n"),
    ("reserved variables", "vars: {groups: 1}\nhosts: {a: {vars: {inventory_hostname: x, host-name: y}}}\n"),
    ("unknown tags", "vars: {a: !vault x, b: [!unsafe y, !age z]}\n"),
    ("template in an address", "hosts: {a: {address: '{{ x }}'}}\nvars: {ansible_user: '{{ me }}'}\n"),
    (
        "Ansible's variables without effect",
        "all:\n  vars: {ansible_connection: local, ansible_ssh_common_args: -J x, ansible_password: x, ansible_become_pass: y}\n  hosts: {a: {ansible_port: ssh, ansible_become: maybe}}\n",
    ),
    ("Ansible's keys in a host", "hosts: {a: {ansible_host: 10.0.0.1, ansible_python_interpreter: x}}\n"),
    ("unknown key in Ansible's shape", "all:\n  host: {a: {}}\n"),
    ("an INI inventory", "[web]\nweb1 ansible_host=10.0.0.1\n"),
    ("not a mapping", "just text\n"),
    ("a list", "- a\n- b\n"),
    ("not YAML", "hosts: {a: [}\n"),
    ("binary junk", "hosts: \u{1}\u{0}\n"),
];

#[test]
fn every_problem_has_a_place_and_a_way_out() {
    let report: String = CASES.iter().map(|(name, text)| format!("## {name}\n{}\n", load(text).problems())).collect();
    insta::assert_snapshot!(report);
}

#[test]
fn hostile_files_are_refused() {
    let deep = format!("vars: {}", "{a: ".repeat(300));
    assert!(load(&deep).problems().contains("nested"));
    let bomb: String = (1..12).map(|n| format!("v{n}: &v{n} [*v{0}, *v{0}, *v{0}, *v{0}, *v{0}]\n", n - 1)).collect();
    let bomb = format!("v0: &v0 [x, x, x, x, x, x]\n{bomb}");
    assert!(load(&bomb).problems().contains("aliases"));
    let large = load_paths(folder(&[("big.yaml", &" ".repeat(33 << 20))]), &["big.yaml"]);
    assert!(large.problems().contains("larger than"), "{}", large.problems());
}

#[test]
fn files_that_disagree_name_both_places() {
    let folder = folder(&[
        (
            "a.yaml",
            "ssh: {user: x}\nvars: {v: 1}\nhypervisors: {hv1: {address: 10.0.0.1, vars: {w: 1}}}\nhosts: {h: {}}\n",
        ),
        ("b.yaml", "ssh: {user: y}\nvars: {v: 2}\nhypervisors: {hv1: {address: 10.0.0.2, vars: {w: 2}}, h: {}}\n"),
        ("c.yaml", "clusters: {p: {etcd: {version: 3.5.33}, members: {m: {zone: a}}}}\n"),
        (
            "d.yaml",
            "clusters: {p: {etcd: {version: 3.5.34, quota: 3}, members: {m: {zone: a}}}, q: {members: {m: {}}}}\n",
        ),
    ]);
    let loaded = load_paths(folder, &["a.yaml", "b.yaml", "c.yaml", "d.yaml"]);
    insta::assert_snapshot!(loaded.problems());
}

#[test]
fn paths_that_cannot_be_read_are_named() {
    let folder =
        folder(&[("empty/readme.txt", ""), ("group_vars/wbe.yaml", "a: 1\n"), ("ok.yaml", "groups: {web: {}}\n")]);
    std::fs::write(folder.path().join("junk.yaml"), [0xff, 0xfe, 0x00]).unwrap();
    std::fs::write(folder.path().join("script"), "#!/bin/sh\n").unwrap();
    let loaded = load_paths(folder, &["missing.yaml", "empty", "junk.yaml", "script", "ok.yaml"]);
    insta::assert_snapshot!(loaded.problems());
}

#[test]
fn an_unreadable_file_is_named() {
    let folder = folder(&[("a.yaml", "hosts: {a: {}}\n")]);
    let path = folder.path().join("a.yaml");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).unwrap();
    // Root may read everything, so there is nothing to see.
    let readable = std::fs::read(&path).is_ok();
    let loaded = load_paths(folder, &["a.yaml"]);
    assert!(readable || loaded.problems().contains("permission denied"), "{}", loaded.problems());
}
