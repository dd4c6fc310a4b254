//! Examples in the documentation are what the program takes.

use std::{collections::BTreeSet, fs, path::PathBuf};

use etcdrun::LIBRARY;
use etcdrun_base::mutant::{policy, repair};
use etcdrun_etcd::etcd::rules::{CLIENT_COMPAT, NO_V2_CONTENT, RULES};

use crate::support::program::Folder;

fn pages() -> Vec<(String, String)> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let docs = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = docs.filter(|path| path.extension().is_some_and(|it| it == "md")).chain([root.join("README.md")]);
    let mut pages: Vec<_> = pages.map(|path| (path.display().to_string(), fs::read_to_string(path).unwrap())).collect();
    pages.sort();
    pages
}

/// The YAML that is not marked as a fragment, with the line that it begins in.
fn blocks(text: &str) -> Vec<(usize, String)> {
    let mut blocks = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        if line == "```yaml" {
            let body = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```");
            blocks.push((number + 1, body.map(|line| format!("{line}\n")).collect()));
        }
    }
    blocks
}

#[test]
fn every_complete_inventory_and_playbook_of_the_docs_is_right() {
    let mut seen = 0;
    for (page, text) in pages() {
        for (line, body) in blocks(&text) {
            let folder = Folder::new();
            let is_playbook = body.starts_with("- ");
            let words: &[&str] = match is_playbook {
                true => &["lint", "own.yaml"],
                false if body.contains("clusters:") => &["lint", "site.yaml", "upgrade.yaml"],
                false => &["lint"],
            };
            folder.write("own.yaml", &body);
            folder.write("inventory.yaml", if is_playbook { "hosts: { h1: {} }\n" } else { &body });
            let said = folder.run(words);
            assert!(said.code == 0 && said.stderr.is_empty(), "{page}:{line}: {}{}", said.stdout, said.stderr);
            seen += 1;
        }
    }
    assert!(seen >= 4, "{seen}");
}

#[test]
fn every_example_of_an_inventory_is_right() {
    for name in
        ["examples/fleet.yaml", "examples/hosts.yaml", "kvm-network/inventory.yaml", "kvm-macvtap/inventory.yaml"]
    {
        let path = format!("{}/inventory/{name}", env!("CARGO_MANIFEST_DIR"));
        Folder::new().run(&["lint", "site.yaml", "upgrade.yaml", "-i", &path]).ends(0);
    }
    let platform = |file: &str| format!("{}/inventory/platform/{file}", env!("CARGO_MANIFEST_DIR"));
    let words = ["lint", &platform("playbooks/platform.yaml"), "-i", &platform("inventory.yaml")];
    assert_eq!(Folder::new().run(&words).ends(0).stderr, "");
}

#[test]
fn every_page_is_linked() {
    let pages = pages();
    for (page, _) in pages.iter().filter(|(page, _)| !page.ends_with("README.md")) {
        let name = page.rsplit('/').next().unwrap();
        let is_linked = |(from, text): &(String, String)| {
            from != page && text.contains(&format!("{name})")) || text.contains(&format!("{name}#"))
        };
        assert!(pages.iter().any(is_linked), "no page links {name}");
    }
}

#[test]
fn every_fact_is_documented() {
    let page = include_str!("../../docs/playbooks.md");
    for field in LIBRARY.facts().unwrap().1 {
        assert!(page.contains(&format!("| `facts.{field}` |")), "{field}");
    }
}

#[test]
fn every_alert_has_a_test_and_is_documented_with_its_metrics() {
    let rules = include_str!("../../roles/prometheus/files/etcd-alerts.yml");
    let tests = include_str!("../monitoring/etcd-alerts.test.yml").to_owned()
        + include_str!("../monitoring/etcd-alerts-slow.test.yml");
    let page = include_str!("../../docs/monitoring.md");
    let alerts: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 30, "{}", alerts.len());
    for alert in alerts {
        assert!(tests.contains(&format!("  - name: {alert}\n")), "{alert} has no test");
        assert!(page.contains(&format!("`{alert}`")), "{alert} is not in docs/monitoring.md");
    }
    let words = rules.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    for metric in words.filter(|word| word.len() > "etcdrun_".len() && word.starts_with("etcdrun_")) {
        assert!(page.contains(&format!("| `{metric}` |")), "{metric} is not in docs/monitoring.md");
    }
    let program = include_str!("../../src/cli/commands/metrics.rs");
    let written = program.split('"').filter(|word| word.starts_with("etcdrun_")).map(str::to_owned);
    let told = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let told = told.filter(|name| name.starts_with("etcdrun_")).map(str::to_owned);
    assert_eq!(written.collect::<BTreeSet<_>>(), told.collect::<BTreeSet<_>>());
}

#[test]
fn every_alert_about_postgresql_has_a_test_and_is_documented_with_its_metrics() {
    let rules = include_str!("../../roles/prometheus/files/postgres-alerts.yml");
    let tests = include_str!("../monitoring/postgres-alerts.test.yml");
    let page = include_str!("../../docs/postgres.md");
    let alerts: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 3, "{}", alerts.len());
    for alert in alerts {
        assert!(tests.contains(&format!("  - name: {alert}\n")), "{alert} has no test");
        assert!(page.contains(&format!("`{alert}`")), "{alert} is not in docs/postgres.md");
    }
    let words = rules.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    for metric in words.filter(|word| word.starts_with("postgres_backup_")) {
        assert!(page.contains(&format!("`{metric}`")), "{metric} is not in docs/postgres.md");
    }
}

/// Which test notices that it is off, `.ci/mutants` reads there.
#[test]
fn every_switch_is_in_the_table_of_mutants() {
    let table = include_str!("../mutants.tsv").lines().filter(|line| !line.starts_with('#'));
    let mut named: Vec<&str> = table.filter_map(|line| line.split('\t').next()).collect();
    named.retain(|name| {
        !RULES.iter().any(|rule| rule.id == *name) && ![NO_V2_CONTENT.id, CLIENT_COMPAT.id].contains(name)
    });
    let mut switches = [&policy::ALL[..], repair::ALL].concat();
    named.sort_unstable();
    switches.sort_unstable();
    assert_eq!(named, switches);
}
