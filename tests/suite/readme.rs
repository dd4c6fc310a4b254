//! The README's table of dependencies is that of Cargo.toml.

#[test]
fn every_dependency_has_its_reason() {
    let manifest = include_str!("../../Cargo.toml");
    let readme = include_str!("../../README.md");
    let (_, table) = readme.split_once("| Crate | Why |").expect("README.md has the table");
    let told: Vec<&str> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" | ").next())
        .flat_map(|cell| cell.split(", "))
        .collect();
    let mut section = "";
    let mut named = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        } else if section == "[workspace.dependencies]"
            && let Some((name, _)) = line.split_once(" =").filter(|(name, _)| !name.starts_with('#'))
            && !line.contains("path = \"crates/")
        {
            named.push(name);
        }
    }
    let untold: Vec<_> = named.iter().filter(|name| !told.contains(name)).collect();
    let gone: Vec<_> = told.iter().filter(|name| !named.contains(name)).collect();
    assert!(untold.is_empty() && gone.is_empty(), "missing in the table: {untold:?}; no longer used: {gone:?}");
}
