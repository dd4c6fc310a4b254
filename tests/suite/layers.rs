//! Each crate uses those below it, and no other.

use std::{fs, path::Path};

/// From the lowest up, with what each may use.
const LAYERS: [(&str, &[&str]); 8] = [
    ("crates/base", &[]),
    ("crates/ssh", &["base"]),
    ("crates/inventory", &["base", "ssh"]),
    ("crates/etcd", &["base", "inventory", "ssh"]),
    // It knows no etcd.
    ("crates/engine", &["base", "inventory", "ssh"]),
    ("crates/modules", &["base", "engine", "etcd", "inventory", "ssh"]),
    (".", &["base", "engine", "etcd", "inventory", "modules", "ssh"]),
    // A judge must not use what it judges.
    ("tests/judge", &[]),
];

#[test]
fn a_crate_uses_those_below_it_and_no_other() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (folder, allowed) in LAYERS {
        let text = fs::read_to_string(root.join(folder).join("Cargo.toml")).unwrap();
        let (_, rest) = text.split_once("[dependencies]\n").unwrap();
        let (dependencies, _) = rest.split_once("\n[").unwrap();
        let used: Vec<&str> = dependencies
            .lines()
            .filter_map(|line| line.strip_prefix("etcdrun-")?.split_once(['.', ' ']).map(|(name, _)| name))
            .collect();
        assert_eq!(used, allowed, "{folder}");
    }
    let crates = fs::read_dir(root.join("crates")).unwrap();
    let mut names: Vec<String> =
        crates.map(|entry| format!("crates/{}", entry.unwrap().file_name().display())).collect();
    names.sort();
    let mut known: Vec<&str> =
        LAYERS.iter().map(|(folder, _)| *folder).filter(|folder| folder.starts_with("crates/")).collect();
    known.sort_unstable();
    assert_eq!(names, known, "a crate that is in no layer");
}
