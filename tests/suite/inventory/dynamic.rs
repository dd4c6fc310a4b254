//! Executable inventories: real scripts, really run.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use serde_json::json;

use crate::inventory::support::{Loaded, folder, load_paths};

fn run(script: &str) -> Loaded {
    let folder = folder(&[("inventory.sh", script)]);
    make_executable(&folder.path().join("inventory.sh"));
    load_paths(folder, &["inventory.sh"])
}

fn make_executable(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

const LIST: &str = r#"#!/bin/sh
[ "$1" = --list ] || exit 3
cat <<'END'
{
  "_meta": {"hostvars": {"web1": {"ansible_host": "10.0.0.1", "role": "front"}, "lonely": {}}},
  "all": {"children": ["ungrouped", "web", "site"]},
  "web": {"hosts": ["web1", "web2"], "vars": {"tier": "web"}},
  "short": ["web2"],
  "site": {"children": ["web"]},
  "ungrouped": {"hosts": ["lonely"]}
}
END
"#;

#[test]
fn the_list_becomes_an_inventory() {
    let loaded = run(LIST);
    assert_eq!(loaded.problems(), "");
    assert_eq!(loaded.inventory.host("web1").unwrap().address(), "10.0.0.1");
    assert_eq!(loaded.var("web2", "tier"), json!("web"));
    assert_eq!(loaded.var("web1", "role"), json!("front"));
    assert_eq!(loaded.select("site").unwrap(), ["web1", "web2"]);
    assert_eq!(loaded.select("short").unwrap(), ["web2"]);
    assert_eq!(loaded.select("ungrouped").unwrap(), ["lonely"]);
}

#[test]
fn without_meta_every_host_is_asked_for() {
    let loaded = run(r#"#!/bin/sh
case $1 in
--list) echo '{"web": {"hosts": ["a", "b"]}}' ;;
--host) echo "{\"asked\": \"$2\"}" ;;
esac
"#);
    assert_eq!(loaded.problems(), "");
    assert_eq!(loaded.var("b", "asked"), json!("b"));
}

#[test]
fn it_merges_with_files() {
    let folder = folder(&[
        ("inventory.sh", LIST),
        ("more.yaml", "groups: {web: {vars: {color: red}}}\nhosts: {web1: {zone: r1}}\n"),
        ("group_vars/web.yml", "size: 3\n"),
    ]);
    make_executable(&folder.path().join("inventory.sh"));
    let loaded = load_paths(folder, &["inventory.sh", "more.yaml"]);
    assert_eq!(loaded.problems(), "");
    assert_eq!(loaded.var("web2", "color"), json!("red"));
    assert_eq!(loaded.var("web2", "size"), json!(3));
    assert_eq!(loaded.inventory.host("web1").unwrap().zone.as_deref(), Some("r1"));
}

#[test]
fn its_failures_are_told() {
    let report: String = [
        ("fails", "#!/bin/sh\necho 'no credentials' >&2\nexit 4\n"),
        ("prints no JSON", "#!/bin/sh\necho 'hello {'\n"),
        ("prints something else", "#!/bin/sh\necho '[1, 2]'\n"),
        ("prints binary", "#!/bin/sh\nprintf '\\377\\376'\n"),
        ("wrong content", "#!/bin/sh\necho '{\"_meta\": {\"hostvars\": {\"a\": {\"host\": 1}}}, \"web\": {\"hosts\": [\"a b\"], \"vars\": []}}'\n"),
        ("bad interpreter", "#!/nonexistent/interpreter\n"),
        ("bad answer for a host", "#!/bin/sh\ncase $1 in --list) echo '{\"w\": [\"a\"]}';; *) echo nothing;; esac\n"),
    ]
    .map(|(name, script)| format!("## {name}\n{}\n", run(script).problems()))
    .concat();
    insta::assert_snapshot!(report);
}

#[test]
fn too_much_output_ends_it() {
    let loaded = run("#!/bin/sh\nwhile :; do echo '                                                   '; done\n");
    assert!(loaded.problems().contains("printed more than 32 MiB"), "{}", loaded.problems());
}

#[test]
fn data_with_an_executable_bit_stays_data() {
    let folder = folder(&[("hosts.yaml", "hosts: {a: {}}\n")]);
    make_executable(&folder.path().join("hosts.yaml"));
    assert_eq!(load_paths(folder, &["hosts.yaml"]).problems(), "");
}

#[test]
fn names_with_a_comma_are_hosts() {
    let loaded = load_paths(folder(&[]), &[]);
    assert_eq!(loaded.inventory.hosts().len(), 0);
    let mut sources = etcdrun::source::Sources::default();
    let mut diagnostics = etcdrun::source::Diagnostics::default();
    let inventory = etcdrun::etcd::load_inventory(&["web1, 10.0.0.7,".into()], &mut sources, &mut diagnostics);
    assert!(diagnostics.is_empty());
    assert_eq!(inventory.hosts().map(|host| host.name.as_str()).collect::<Vec<_>>(), ["web1", "10.0.0.7"]);
}
