//! Bad input, seen from outside: one exit code, every problem with its place, and no connection.
use std::{net::TcpListener, time::Instant};

use crate::support::program::Folder;

const PLAYBOOK: &str = "- name: Greet\n  hosts: all\n  tasks:\n    - name: Say\n      command: echo hi\n";

fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("inventory.yaml", "hosts: { h1: { address: 127.0.0.1 } }\n").write("site.yaml", PLAYBOOK);
    folder
}

#[test]
fn version_and_help_are_quick_and_no_errors() {
    let folder = Folder::new();
    let start = Instant::now();
    let said = folder.run(&["--version"]).ends(0);
    assert!(said.stdout.starts_with("etcdrun 0."), "{}", said.stdout);
    // Far more than it takes, and far less than a start of everything would.
    assert!(start.elapsed().as_millis() < 500);
    assert!(folder.run(&["playbook", "--help"]).ends(0).stdout.contains("--start-at-task"));
}

#[test]
fn a_wrong_command_line_is_bad_input() {
    for args in [&[][..], &["nonsense"], &["playbook"], &["playbook", "x", "--forks", "0"], &["exec", "all"]] {
        assert!(!folder().run(args).ends(5).stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn all_problems_come_at_once_and_nothing_is_connected_to() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let folder = Folder::new();
    folder.write("inventory.yaml", &format!("hosts:\n  h1:\n    port: {port}\n    address: 127.0.0.1\n    zonee: a\n"));
    folder.write("site.yaml", "- hosts: all\n  taskz: []\n  tasks:\n    - comand: ls\n");
    let said = folder.run(&["playbook", "site.yaml"]).ends(5);
    assert_eq!(said.stdout, "");
    insta::assert_snapshot!(said.stderr);
    assert!(listener.accept().is_err(), "somebody was called");
}

#[test]
fn problems_are_json_for_programs() {
    let folder = folder();
    folder.write("site.yaml", "- hosts: all\n  taskz: []\n");
    let said = folder.run(&["lint", "./site.yaml", "--json"]).ends(5);
    let first: serde_json::Value = serde_json::from_str(said.stdout.lines().next().unwrap()).unwrap();
    assert_eq!(first["event"], "diagnostic");
    assert_eq!((&first["place"]["line"], &first["place"]["column"]), (&2.into(), &3.into()));
}

#[test]
fn a_wrong_limit_shows_where() {
    let said = folder().run(&["playbook", "site.yaml", "-l", "h1,hx"]).ends(5);
    insta::assert_snapshot!(said.stderr);
}

#[test]
fn a_missing_inventory_or_playbook_says_what_to_do() {
    let folder = Folder::new();
    folder.write("site.yaml", PLAYBOOK);
    insta::assert_snapshot!(folder.run(&["playbook", "sit.yaml"]).ends(5).stderr);
}

#[test]
fn settings_are_found_upwards_and_checked() {
    let folder = folder();
    folder.write("etcdrun.toml", "forkz = 1\n").write("a/b/site.yaml", PLAYBOOK);
    let said = folder.command(&["inventory", "list"]).current_dir(folder.path("a/b")).output().unwrap();
    let stderr = String::from_utf8(said.stderr).unwrap();
    assert_eq!(said.status.code(), Some(5));
    assert!(stderr.contains("etcdrun.toml:1:1: error: unknown key `forkz`"), "{stderr}");
    folder.write("etcdrun.toml", "inventory = \"inventory.yaml\"\n");
    let said = folder.command(&["inventory", "list"]).current_dir(folder.path("a/b")).output().unwrap();
    assert!(String::from_utf8(said.stdout).unwrap().contains("h1"));
}

#[test]
fn a_limit_shows_the_hosts_that_it_means() {
    let folder = Folder::new();
    folder.write("inventory.yaml", "hosts: { h1: {}, h2: {}, h3: {} }\ngroups: { odd: { hosts: [h1, h3] } }\n");
    let listed = |args: &[&str]| folder.run(&[&["inventory", "list", "--limit"], args].concat()).ends(0).stdout;
    let text = listed(&["odd:!h3"]);
    assert!(text.contains("h1") && !text.contains("h2") && !text.contains("h3"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&listed(&["h2", "--json"])).unwrap();
    assert_eq!(json["_meta"]["hostvars"].as_object().unwrap().keys().collect::<Vec<_>>(), ["h2"]);
    assert_eq!(json["odd"].get("hosts"), None);
    assert!(folder.run(&["inventory", "list", "--limit", "h4"]).ends(5).stderr.contains("h4"));
}

#[test]
fn a_document_is_all_that_stdout_has() {
    let folder = Folder::new();
    let members = "a: { address: 192.0.2.1 }, b: { address: 192.0.2.2 }";
    folder.write("inventory.yaml", &format!("clusters: {{ even: {{ members: {{ {members} }} }} }}\n"));
    for args in
        [&["inventory", "list", "--json"][..], &["inventory", "graph", "--json"], &["inventory", "host", "a", "--json"]]
    {
        let said = folder.run(args).ends(0);
        let document: Result<serde_json::Value, _> = serde_json::from_str(&said.stdout);
        assert!(document.is_ok(), "{}", said.stdout);
        assert!(said.stderr.contains("\"severity\":\"warning\""), "{}", said.stderr);
    }
}

#[test]
fn lint_and_syntax_check_pass_what_is_right() {
    let folder = folder();
    assert_eq!(folder.run(&["lint", "./site.yaml"]).ends(0).stdout, "no problems found in 1 playbook\n");
    folder.run(&["playbook", "site.yaml", "--syntax-check"]).ends(0);
}

const CLUSTER: &str = r#"
hypervisors:
  hv[1-3]: { address: "192.0.2.{n}" }
etcd_releases:
  3.6.15: { file: /srv/etcd, sha256: "0000000000000000000000000000000000000000000000000000000000000000" }
clusters:
  prod:
    etcd: { version: 3.6.15 }
    guest:
      vcpus: 2
      memory: 4GiB
      disk: { base: ubuntu.qcow2, size: 20GiB }
      data_disk: { size: 10GiB }
      admin: { ssh_keys: ["ssh-ed25519 AAAA ops"] }
    members:
      etcd-[1-3]: { hypervisor: "hv{n}", interfaces: [{ network: default, ip: "192.168.122.1{n}/24" }] }
"#;

#[test]
fn no_playbook_that_ships_has_a_name_that_leads_nowhere() {
    let folder = Folder::new();
    // PostgreSQL and Kubernetes are on hosts of their own, and one guest is no member.
    const HOSTS: &str = r#"hosts:
  pg-[1-3]: { address: "192.0.2.2{n}", groups: [pg] }
  api-[1-3]: { address: "192.0.2.3{n}", groups: [control_plane] }
  proxy: { hypervisor: hv1, guest: { admin: { ssh_keys: ["ssh-ed25519 AAAA ops"] }, disk: { base: ubuntu.qcow2 } } }
groups:
  pg: {}
  control_plane: { vars: { kubeadm_etcd_cluster: prod } }
"#;
    folder.write("inventory.yaml", &format!("{CLUSTER}{HOSTS}"));
    let playbooks = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/playbooks")).unwrap();
    let names: Vec<String> =
        playbooks.map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    // What the verbs give that play them.
    let given = ["-e", "destroy_confirm=prod", "-e", r#"{"changes": {"etcd-1": {}}}"#];
    let words: Vec<&str> = ["lint"].into_iter().chain(names.iter().map(String::as_str)).chain(given).collect();
    let said = folder.run(&words).ends(0);
    assert_eq!(said.stdout, format!("no problems found in {} playbooks\n", names.len()));
}

/// What `site.yaml` could not do with such an inventory.
#[track_caller]
fn refused(from: &str, to: &str, message: &str, help: &str) {
    let folder = Folder::new();
    assert!(CLUSTER.contains(from), "{from}");
    folder.write("inventory.yaml", &CLUSTER.replace(from, to));
    for words in [&["lint", "site.yaml"][..], &["playbook", "site.yaml"], &["plan", "site.yaml"]] {
        let said = folder.run(words).ends(5);
        assert!(said.stderr.contains(&format!("error: {message}")) && said.stderr.contains(help), "{}", said.stderr);
        assert!(said.stderr.contains("inventory.yaml:"), "{}", said.stderr);
        assert_eq!(said.stderr.matches(message).count(), 1, "once for the cluster: {}", said.stderr);
    }
    // An inventory may be for other things, so without a playbook it is a warning.
    let alone = folder.run(&["lint"]).ends(0);
    assert!(
        alone.stderr.contains(&format!("warning: `etcdrun playbook site.yaml` would be refused: {message}")),
        "{}",
        alone.stderr
    );
    folder.run(&["lint", "reboot.yaml"]).ends(0);
}

#[test]
fn lint_refuses_what_the_playbook_would_refuse() {
    let version = "    etcd: { version: 3.6.15 }\n";
    refused(version, "", "the cluster `prod` has no `etcd.version`", "write `etcd: { version: 3.6.15 }`");
    let releases = "etcd_releases:\n  3.6.15: { file: /srv/etcd, sha256: \"0000000000000000000000000000000000000000000000000000000000000000\" }\n";
    refused(releases, "", "etcd 3.6.15 is not in `etcd_releases`", "list it there with its `sha256`");
}

#[test]
fn a_guest_that_could_not_be_logged_into_is_found() {
    let admin = "      admin: { ssh_keys: [\"ssh-ed25519 AAAA ops\"] }\n";
    let message = "guests of `prod` get no SSH key";
    refused(admin, "", message, "add your public key");
    refused(admin, "      admin: { user: ops, password_hash: x }\n", message, "add your public key");
    for own in ["cloud_init: { user_data: {} }", "ignition: { passwd: {} }", "admin: { ssh_keys: \"{{ keys }}\" }"] {
        let folder = Folder::new();
        folder.write("inventory.yaml", &(CLUSTER.replace(admin, &format!("      {own}\n")) + "vars: { keys: [x] }\n"));
        folder.run(&["lint", "site.yaml"]).ends(0);
    }
}

#[test]
fn the_url_of_a_cluster_is_that_of_its_balancer_or_of_its_members() {
    let folder = Folder::new();
    let with = |more: &str| folder.write("inventory.yaml", &format!("{CLUSTER}{more}"));
    with("");
    let none = folder.run(&["url"]).ends(5);
    assert!(
        none.stderr.contains("`prod` has no load balancer") && none.stderr.contains("--members"),
        "{}",
        none.stderr
    );
    let members = folder.run(&["url", "prod", "--members"]).ends(0).stdout;
    assert!(members.starts_with("https://") && members.matches(":2379").count() == 3, "{members}");
    with("    balancer: { name: etcd.example.org }\n    tls: { names: ['*.example.org'] }\n");
    assert_eq!(folder.run(&["url", "prod"]).ends(0).stdout, "https://etcd.example.org:2379\n");
    with("    balancer: { name: 'fd00::5', port: 443 }\n    tls: { names: ['fd00::5'] }\n");
    assert_eq!(folder.run(&["url"]).ends(0).stdout, "https://[fd00::5]:443\n");
    with("    balancer: { name: etcd.example.org }\n");
    let unnamed = folder.run(&["url"]).ends(5);
    assert!(unnamed.stderr.contains("`tls.names` does not have `etcd.example.org`"), "{}", unnamed.stderr);
    with("    balancer: { name: 'https://etcd' }\n");
    assert!(folder.run(&["lint", "site.yaml"]).ends(5).stderr.contains("is no name and no address"));
}

#[test]
fn the_section_of_logs_is_checked() {
    let forward = "forward: { domain: logs.example.org, shared_key: abc }";
    for (section, code, words) in [
        (format!("enabled: true, etcd_tag: prod.etcd, {forward}, metrics: {{ enabled: true }}"), 0, ""),
        (
            format!("etcd_tag: prod.etcd, {forward}"),
            0,
            "warning: `fluentbit` of `prod` has no effect: it is not enabled",
        ),
        ("enabled: true, etcd_tag: a".to_owned(), 5, "error: `fluentbit` of `prod` has no `forward`"),
        (format!("enabled: true, {forward}"), 5, "error: `fluentbit` of `prod` has no inputs"),
        (format!("enabled: true, etcdtag: a, {forward}"), 5, "help: did you mean `etcd_tag`?"),
        (format!("enabled: true, etcd_tag: 'a *', {forward}"), 5, "`a *` in `fluentbit.etcd_tag` of `prod` is no tag"),
        (format!("enabled: true, journal: [{{ unit: ssh, tag: a }}], {forward}"), 5, "`ssh` in `fluentbit.journal`"),
        (format!("enabled: true, files: [{{ path: a, tag: a }}], {forward}"), 5, "`a` in `fluentbit.files` of `prod`"),
        ("enabled: true, etcd_tag: a, forward: { domain: 'tcp://a' }".to_owned(), 5, "is no name and no address"),
        ("enabled: true, etcd_tag: a, forward: { domain: a, shared_key: 'a b' }".to_owned(), 5, "has blanks"),
        (
            "enabled: true, etcd_tag: a, forward: { domain: a, options: { Port: 1 } }".to_owned(),
            5,
            "no further property",
        ),
        (
            "enabled: true, etcd_tag: a, forward: { domain: a, ca_cert: /etc/hostname }".to_owned(),
            5,
            "/etc/hostname: it contains no certificate",
        ),
        (
            "enabled: true, etcd_tag: a, forward: { domain: a, ca_cert: logs.crt }".to_owned(),
            0,
            "logs.crt: there is no such file",
        ),
        (format!("enabled: true, etcd_tag: a, {forward}, buffer: {{ limit: 10K }}"), 5, "`fluentbit.buffer.limit`"),
        (format!("enabled: true, etcd_tag: a, {forward}, binary: {{ url: 'http://a' }}"), 5, "no SHA-256 checksum"),
        (
            "enabled: true, etcd: { enabled: true, cluster: prod }".to_owned(),
            5,
            "`fluentbit.etcd.key_prefix` of `prod`",
        ),
        (
            "enabled: true, etcd: { enabled: true, key_prefix: /logs/, cluster: prod, client: { username: logs } }"
                .to_owned(),
            5,
            "`auth.users` of `prod` has no user `logs`",
        ),
        (
            "enabled: true, etcd: { enabled: true, key_prefix: /logs/, endpoints: [10.0.0.1] }".to_owned(),
            5,
            "`10.0.0.1` in `fluentbit.etcd.endpoints` of `prod` is no address with a port",
        ),
    ] {
        let folder = Folder::new();
        folder.write("inventory.yaml", &format!("{CLUSTER}    fluentbit: {{ {section} }}\n"));
        let said = folder.run(&["lint", "site.yaml"]).ends(code);
        assert!(said.stderr.contains(words), "{section}: {}", said.stderr);
    }
}

#[test]
fn the_section_of_time_is_checked() {
    let servers = "servers: [{ url: ntp1.example.org, options: [iburst] }]";
    for (section, code, words) in [
        (format!("enabled: true, {servers}, makestep: {{ threshold: 0.5, limit: -1 }}"), 0, ""),
        (servers.to_owned(), 0, "warning: `chrony` of `prod` has no effect: it is not enabled"),
        ("enabled: true".to_owned(), 5, "error: `chrony` of `prod` has no `servers` and no `pools`"),
        (format!("enabled: true, server: [], {servers}"), 5, "unknown key `server`"),
        ("enabled: true, servers: [10.0.0.1]".to_owned(), 5, "inventory.yaml:"),
        ("enabled: true, pools: [{ url: 'a b' }]".to_owned(), 5, "`a b` in `chrony.pools` of `prod` is no name"),
        (
            "enabled: true, pools: [{ url: a, options: ['b#'] }]".to_owned(),
            5,
            "`b#` in `chrony.pools` of `prod` is no option",
        ),
        (format!("enabled: true, {servers}, makestep: {{ threshold: 0, limit: 3 }}"), 5, "must be more than 0 seconds"),
    ] {
        let folder = Folder::new();
        folder.write("inventory.yaml", &format!("{CLUSTER}    chrony: {{ {section} }}\n"));
        let said = folder.run(&["lint", "site.yaml"]).ends(code);
        assert!(said.stderr.contains(words), "{section}: {}", said.stderr);
    }
}

#[test]
fn keys_are_checked() {
    for (section, code, words) in [
        ("/a: text, /b: { content: \"{{ b }}\" }, /c: { src: value }, /d/: { src: values/ }", 0, ""),
        ("/a: x, /a: y", 5, "`/a`"),
        ("'': x", 5, "a key is empty, which etcd does not accept"),
        ("/a: { contnet: x }", 5, "did you mean `content`?"),
        ("/a: { content: x, base64: eA== }", 5, "`content` and `base64` of `/a` exclude each other"),
        ("/a: { base64: '?' }", 5, "the text is not base64"),
        ("/a: { state: absent, src: value }", 5, "`/a` is to be absent, but it has `src`"),
        ("/a/: { state: absent, prefix: true }, /a/b: x", 5, "`/a/b` would be removed"),
        ("/a: { src: nothing }", 5, "nothing` was not found"),
        ("/a: { src: values }", 5, "values` is a directory"),
        ("/a/: { src: values/ }, /a/one: x", 5, "`/a/one` is declared twice"),
        ("/a: { src: large }", 5, "the value of `/a` is too large: etcd accepts 1572864 bytes"),
    ] {
        let folder = Folder::new();
        folder.write("inventory.yaml", &format!("vars: {{ b: x }}{CLUSTER}    keys: {{ {section} }}\n"));
        folder.write("value", "x").write("values/one", "1").write("large", &"x".repeat(1_600_000));
        let said = folder.run(&["lint", "site.yaml"]).ends(code);
        assert!(said.stderr.contains(words), "{section}: {}", said.stderr);
        assert!(code == 0 || said.stderr.contains("inventory.yaml:17"), "{section}: {}", said.stderr);
    }
}

#[test]
fn users_and_roles_are_checked() {
    for (section, words) in [
        ("roles: { a: { permissions: [{ prefix: /a, range_end: /b }] } }", "has `prefix` and `range_end`"),
        ("roles: { a: { permissions: [{ key: /b, range_end: /a }] } }", "is not behind its `key`"),
        ("roles: { a: { permissions: [{ key: /b }, { key: /b, access: read }] } }", "are about the same keys"),
        ("roles: { a: { permissions: [{ access: read }] } }", "needs one of `key` and `prefix`"),
        ("roles: { a: { state: absent, permissions: [{ key: /a }] } }", "its entry has more than `state`"),
        ("roles: { a: { state: absent } }, users: { u: { roles: [a] } }", "role `a`, which is to be absent"),
        ("users: { u: { state: absent, roles: [a] } }, roles: { a: {} }", "its entry has more than `state`"),
        ("users: { root: { state: absent } }", "the user `root` cannot be absent"),
    ] {
        let folder = Folder::new();
        folder.write("inventory.yaml", &format!("{CLUSTER}    auth: {{ {section} }}\n"));
        let said = folder.run(&["lint", "site.yaml"]).ends(5);
        assert!(said.stderr.contains(words) && said.stderr.contains("inventory.yaml:17"), "{section}: {}", said.stderr);
    }
    let folder = Folder::new();
    let section = "method: password, users: { u: { state: absent } }, roles: { a: { state: absent } }";
    folder.write("inventory.yaml", &format!("{CLUSTER}    auth: {{ {section} }}\n"));
    folder.run(&["lint", "site.yaml"]).ends(0);
}

#[test]
fn lists() {
    let folder = folder();
    folder.write(
        "site.yaml",
        "- name: Greet\n  hosts: all\n  tasks:\n    - { name: One, command: ls, tags: [a, b] }\n    - { name: Two, command: ls }\n",
    );
    insta::assert_snapshot!(
        folder.run(&["playbook", "site.yaml", "--list-hosts", "--list-tasks", "--list-tags"]).ends(0).stdout
    );
    let tagged = folder.run(&["playbook", "site.yaml", "--list-tasks", "-t", "a"]).ends(0).stdout;
    assert!(tagged.contains("One") && !tagged.contains("Two"), "{tagged}");
}

#[test]
fn every_schema_is_a_document() {
    let folder = Folder::new();
    for name in ["inventory", "playbook", "meta", "all"] {
        let text = folder.run(&["schema", name]).ends(0).stdout;
        assert!(serde_json::from_str::<serde_json::Value>(&text).unwrap().is_object(), "{name}");
    }
    folder.run(&["schema", "module", "copy"]).ends(0);
    assert!(folder.run(&["schema", "module", "cpoy"]).ends(5).stderr.contains("did you mean `copy`?"));
}

#[test]
fn every_module_has_a_page() {
    let folder = Folder::new();
    let list = folder.run(&["doc"]).ends(0).stdout;
    for line in list.lines() {
        let (name, about) = line.split_once(' ').unwrap();
        assert!(!about.trim().is_empty(), "{name} says nothing of itself");
        let page = folder.run(&["doc", name]).ends(0).stdout;
        assert!(page.contains("EXAMPLE") && page.contains("RESULT"), "{page}");
    }
    insta::assert_snapshot!(folder.run(&["doc", "copy"]).ends(0).stdout);
    insta::assert_snapshot!(folder.run(&["doc", "etcd_order"]).ends(0).stdout);
}

#[test]
fn shells_get_completions() {
    let folder = Folder::new();
    for shell in ["bash", "zsh", "fish"] {
        assert!(folder.run(&["completions", shell]).ends(0).stdout.contains("playbook"), "{shell}");
    }
}

#[test]
fn a_key_that_cannot_be_read_is_bad_input() {
    let folder = Folder::new();
    folder.write("play.yaml", "- hosts: all\n  tasks:\n    - ping:\n");
    folder.write("keys/directory/file", "");
    for (key, problem) in [("nowhere", "does not exist"), ("keys", "is a directory")] {
        let inventory = format!("ssh:\n  identity_file: {key}\nhosts:\n  h1: {{ address: 127.0.1.1, port: 1 }}\n");
        folder.write("inventory.yaml", &inventory);
        let said = folder.run(&["playbook", "play.yaml"]);
        assert_eq!(said.code, 5, "{}", said.stderr);
        assert!(said.stderr.contains("inventory.yaml:2:18") && said.stderr.contains(problem), "{}", said.stderr);
    }
}

#[test]
fn guests_that_are_no_members_are_named_before_they_go_down() {
    let folder = Folder::new();
    let guest = r#"disk: { base: /srv/x.qcow2 }, admin: { ssh_keys: ["ssh-ed25519 AAAA ops"] }"#;
    folder.write(
        "inventory.yaml",
        &format!(
            "hypervisors: {{ hv1: {{ address: 127.0.0.1, port: 1 }} }}\ngroups: {{ db: {{ guest: {{ {guest} }} }} }}\nhosts:\n  \
             db-[1-2]: {{ groups: [db], hypervisor: hv1, interfaces: [{{ bridge: br0, ip: \"10.0.0.{{n}}/24\" }}] }}\n"
        ),
    );
    // Neither reaches the hypervisor, which is not there.
    for (more, expected) in [
        (&["guest-rebuild.yaml"][..], "a rebuild takes one guest at a time"),
        (&["guest-rebuild.yaml", "-e", "guests=db-1,db-2"], "a rebuild takes one guest at a time"),
        (&["guest-restart.yaml"], "no guest is named"),
    ] {
        let said = folder.run(&[&["playbook"], more].concat()).ends(2);
        assert!(said.stdout.contains(expected), "{more:?}: {}", said.stdout);
    }
    let other = folder.run(&["playbook", "guest-rebuild.yaml", "-e", "guests=db-9"]).ends(5);
    assert!(other.stderr.contains("no host or group matches `db-9`"), "{}", other.stderr);
}
