//! What holds for every input.

use std::{
    collections::{BTreeSet, HashSet},
    fs,
    path::Path,
    sync::LazyLock,
};

use etcdrun::{
    inventory::{self, Inventory, Pattern},
    source::{Diagnostics, Sources},
};
use proptest::prelude::*;

use crate::inventory::support::{Loaded, load, load_fine};

static FLEET: LazyLock<Loaded> = LazyLock::new(|| {
    load_fine(
        r#"
hypervisors: { "hv[1-4]": {} }
hosts: { web1: {groups: [web]}, web2: {groups: [web]}, alone: }
groups: { web: , front: { children: [web], hosts: [alone] }, odd: { hosts: ["hv[1,3]", "etcd-?"] } }
clusters: { prod: { members: { "etcd-[1-3]": {} } } }
"#,
    )
});

fn chosen(pattern: &str) -> BTreeSet<&'static str> {
    FLEET.select(pattern).unwrap().into_iter().collect()
}

fn term() -> impl Strategy<Value = String> {
    let terms = [
        "hv1",
        "hv[2-3]",
        "web",
        "front",
        "odd",
        "prod",
        "members",
        "hypervisors",
        "*",
        "e*",
        "~.*1",
        "prod[0]",
        "alone",
    ];
    proptest::sample::select(terms.to_vec()).prop_map(str::to_owned)
}

proptest! {
    #[test]
    fn patterns_are_sets(a in term(), b in term(), c in term()) {
        let (x, y, z) = (chosen(&a), chosen(&b), chosen(&c));
        prop_assert_eq!(chosen(&format!("{a}:{b}")), &x | &y);
        prop_assert_eq!(chosen(&format!("{b},{a}")), &x | &y);
        prop_assert_eq!(chosen(&format!("{a}:&{b}")), &x & &y);
        prop_assert_eq!(chosen(&format!("{a}:!{b}")), &x - &y);
        prop_assert_eq!(chosen(&format!("!{c}:&{b}:{a}")), &(&x & &y) - &z);
        prop_assert_eq!(chosen(&format!("{a}:{a}")), x);
    }

    #[test]
    fn a_selection_is_in_order_and_without_repeats(terms in proptest::collection::vec(term(), 1..5)) {
        let pattern = Pattern::parse(&terms.join(","), None).unwrap();
        let found = FLEET.inventory.select(&pattern).unwrap();
        prop_assert!(found.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn no_pattern_panics(text in "[a-z0-9~!&*?.,:@ü\\[\\](){}|-]{0,24}") {
        if let Ok(pattern) = Pattern::parse(&text, None) {
            let _ = FLEET.inventory.select(&pattern);
        }
    }

    #[test]
    fn no_inventory_panics(text in inventory_text()) {
        consistent(&load(&text).inventory);
    }
}

/// Text that is close enough to an inventory to get far.
fn inventory_text() -> impl Strategy<Value = String> {
    let word = proptest::sample::select(vec![
        "ssh",
        "vars",
        "hypervisors",
        "hosts",
        "groups",
        "clusters",
        "all",
        "children",
        "members",
        "hypervisor",
        "address",
        "interfaces",
        "ip",
        "zone",
        "a",
        "b",
        "hv[1-2]",
        "x[a:c]",
        "x[2-1]",
        "{n}",
        "10.0.0.1/24",
        "ansible_host",
        "user",
        "port",
        "22",
        "true",
        "~",
        "_meta",
        "hostvars",
        "ungrouped",
        "etcd",
        "guest",
        "jump",
        "'{{ x }}'",
        "!age z",
        "\"h[1-3]\"",
    ]);
    let leaf = word.clone().prop_map(str::to_owned);
    let tree = leaf.prop_recursive(5, 40, 5, move |inner| {
        let entry = (word.clone(), inner.clone());
        prop_oneof![
            3 => proptest::collection::vec(entry, 0..5).prop_map(|entries| {
                let entries: Vec<_> = entries.into_iter().map(|(key, value)| format!("{}: {value}", quoted(key))).collect();
                format!("{{{}}}", entries.join(", "))
            }),
            1 => proptest::collection::vec(inner, 0..3).prop_map(|items| format!("[{}]", items.join(", "))),
        ]
    });
    proptest::collection::vec((0..7_usize, tree), 0..4).prop_map(|sections| {
        let names = ["ssh", "vars", "hypervisors", "hosts", "groups", "clusters", "all"];
        sections.into_iter().map(|(section, tree)| format!("{}: {tree}\n", names[section])).collect()
    })
}

fn quoted(key: &str) -> String {
    if key.starts_with(['"', '\'']) { key.to_owned() } else { format!("\"{key}\"") }
}

/// What every inventory keeps, however bad the files were.
fn consistent(inventory: &Inventory) {
    let memberships: HashSet<_> =
        inventory.groups().flat_map(|group| group.members.iter().map(|id| (group.name.as_str(), *id))).collect();
    for host in inventory.hosts() {
        assert_eq!(inventory.host(host.name.as_str()).unwrap().id, host.id);
        for name in &host.group_names {
            assert!(memberships.contains(&(name.as_str(), host.id)));
        }
    }
    let _ = inventory::render::list_text(inventory, None) + &inventory::render::graph_text(inventory);
    let _ = inventory::render::list_json(inventory, None);
}

/// Inputs that once were trouble, or could be.
#[test]
fn the_corpus_loads_without_panic() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/inventory");
    let mut files = 0;
    for entry in fs::read_dir(corpus).unwrap() {
        let path = entry.unwrap().path();
        let (mut sources, mut diagnostics) = (Sources::default(), Diagnostics::default());
        consistent(&etcdrun::etcd::load_inventory(std::slice::from_ref(&path), &mut sources, &mut diagnostics));
        if path.extension().is_some_and(|ext| ext == "good") {
            assert!(!diagnostics.has_errors(), "{}", path.display());
        }
        files += 1;
    }
    assert!(files > 10);
}

#[test]
fn the_examples_load() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("inventory");
    for entry in fs::read_dir(examples).unwrap() {
        let path = entry.unwrap().path();
        let (mut sources, mut diagnostics) = (Sources::default(), Diagnostics::default());
        let inventory = etcdrun::etcd::load_inventory(std::slice::from_ref(&path), &mut sources, &mut diagnostics);
        assert!(diagnostics.is_empty(), "{}: {diagnostics:?}", path.display());
        assert!(inventory.hosts().len() > 0);
    }
}

/// Every YAML block of the documentation is an inventory that loads.
#[test]
fn the_documentation_loads() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/inventory.md");
    let text = fs::read_to_string(path).unwrap();
    let blocks: Vec<_> = text.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(blocks.len() >= 2);
    blocks.into_iter().for_each(|block| drop(load_fine(block)));
}
