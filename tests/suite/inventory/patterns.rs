//! Host patterns.

use etcdrun::{inventory::Pattern, model::Span};

use crate::inventory::support::{Loaded, load_fine};

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

#[test]
fn terms_that_match_nothing_say_what_is_near() {
    let fleet = fleet();
    let patterns = [
        "hv9",
        "wbe",
        "all:!hv7x",
        "hv[3-12]",
        "x*",
        "~^x",
        "prod[7]",
        "nothing[0:2]",
        "prdo,web3",
        "hypervisor",
        "a:",
        "hv[9-1]",
    ];
    let report: String =
        patterns.map(|pattern| format!("## {pattern}\n{}\n", fleet.select(pattern).err().unwrap_or_default())).concat();
    insta::assert_snapshot!(report);
}

#[test]
fn problems_point_at_the_term() {
    let mut fleet = fleet();
    for text in ["web1:hvx", "'web1:hvx'"] {
        let file = fleet.sources.add("--limit", text);
        let span = Span::new(file, 0, text.len());
        let pattern = Pattern::parse(text.trim_matches('\''), span).unwrap();
        let problems = fleet.inventory.select(&pattern).unwrap_err();
        let place = problems[0].span.unwrap();
        assert_eq!(&text[place.start as usize..place.end as usize], "hvx");
    }
}

#[test]
fn a_limit_reads_files() {
    let mut fleet = fleet();
    let list = fleet.folder.path().join("limit.txt");
    std::fs::write(&list, "# hosts that failed\nweb1\n\n  hv[1-2] # and these\n!hv2\n").unwrap();
    let limit = Pattern::parse_limit(&format!("@{},alone", list.display()), None, &mut fleet.sources).unwrap();
    assert_eq!(fleet.names(&fleet.inventory.select(&limit).unwrap()), ["hv1", "web1", "alone"]);

    std::fs::write(&list, "web1\nnobody\n").unwrap();
    let limit = Pattern::parse_limit(&format!("@{}", list.display()), None, &mut fleet.sources).unwrap();
    let problems = fleet.inventory.select(&limit).unwrap_err();
    assert!(fleet.describe(&problems[0]).contains("limit.txt:2:1"), "{}", fleet.describe(&problems[0]));
    assert!(Pattern::parse_limit("@/nonexistent", None, &mut fleet.sources).is_err());
}
