//! Host patterns.

use crate::support::{Loaded, load_fine};

fn fleet() -> Loaded {
    load_fine(
        r#"
hypervisors: { "hv[1-4]": {} }
hosts: { web1: {groups: [web]}, web2: {groups: [web]}, alone: }
groups: { web: , front: { children: [web], hosts: [alone] }, odd: { hosts: ["hv[1,3]", "etcd-?"] } }
clusters: { prod: { members: { "etcd-[1-3]": {} } } }
"#,
    )
}

#[test]
fn terms_name_hosts_groups_and_clusters() {
    let fleet = fleet();
    let cases: &[(&str, &[&str])] = &[
        ("hv2", &["hv2"]),
        ("web", &["web1", "web2"]),
        ("front", &["web1", "web2", "alone"]),
        ("prod", &["etcd-1", "etcd-2", "etcd-3"]),
        ("members", &["etcd-1", "etcd-2", "etcd-3"]),
        ("clusters", &["etcd-1", "etcd-2", "etcd-3"]),
        ("hypervisors", &["hv1", "hv2", "hv3", "hv4"]),
        ("ungrouped", &[]),
        ("hv[2-3]", &["hv2", "hv3"]),
        ("hv[1,4]", &["hv1", "hv4"]),
        ("hv[2]", &["hv2"]),
        ("web*", &["web1", "web2"]),
        ("a*", &["alone"]),
        ("~(etcd|hv)-?[23]", &["hv2", "hv3", "etcd-2", "etcd-3"]),
        ("prod[0]", &["etcd-1"]),
        ("prod[-1]", &["etcd-3"]),
        ("prod[0:1]", &["etcd-1", "etcd-2"]),
        ("prod[1:]", &["etcd-2", "etcd-3"]),
        ("web2,hv1,web2", &["hv1", "web2"]),
        ("!hypervisors:all:!prod", &["web1", "web2", "alone"]),
        ("all:&odd:!hv3", &["hv1", "etcd-1", "etcd-2", "etcd-3"]),
        ("!prod:!web*", &["hv1", "hv2", "hv3", "hv4", "alone"]),
        ("&web", &["web1", "web2"]),
        ("hv[1-2]*", &["hv1", "hv2"]),
        ("*", &["hv1", "hv2", "hv3", "hv4", "web1", "web2", "alone", "etcd-1", "etcd-2", "etcd-3"]),
    ];
    for (pattern, expected) in cases {
        assert_eq!(fleet.select(pattern).as_deref(), Ok(*expected), "{pattern}");
    }
}
