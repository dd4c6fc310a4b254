//! Verbs, as a user types them: which playbooks and roles they run, and which flags they take. No host is reached.

use std::fs;

use serde_json::json;

use crate::support::program::Folder;

/// Nothing listens there, so whatever connects ends with 4, and what does not load with 5.
const INVENTORY: &str = r#"
hypervisors: { hv1: { address: 127.0.0.1, port: 1 } }
etcd_releases:
  3.6.15: { file: /srv/etcd, sha256: "0000000000000000000000000000000000000000000000000000000000000000" }
clusters:
  prod:
    etcd: { version: 3.6.15 }
    members: { etcd-1: { address: 127.0.0.1, port: 1, hypervisor: hv1 } }
"#;

/// Does not load.
const STRANGER: &str = "- hosts: all\n  tasks:\n    - stranger:\n";

fn names(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(format!("{}/{folder}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// A folder whose every playbook and role has the name of a shipped one.
fn strangers(playbooks: &str) -> Folder {
    let folder = Folder::new();
    folder.write("inventory.yaml", INVENTORY);
    hide_shipped(&folder, playbooks);
    folder
}

/// Every playbook and role that is shipped gets one of its name that does not load.
pub fn hide_shipped(folder: &Folder, playbooks: &str) {
    for name in names("playbooks") {
        folder.write(&format!("{playbooks}{name}"), STRANGER);
    }
    for name in names("roles").iter().filter(|name| !name.contains('.')) {
        folder.write(&format!("roles/{name}/tasks/main.yaml"), "- stranger:\n");
    }
}

#[test]
fn no_verb_runs_what_lies_in_the_current_folder() {
    let manifest = json!({
        "format": 1, "cluster": "prod", "cluster_id": "1", "revision": 5, "taken": "2026-01-01T00:00:00Z",
        "member": "etcd-1", "etcd_version": "3.6.15", "size": 64, "sha256": "", "hash": null,
        "file": "prod-r5-20260101T000000Z.db.zst", "stored_size": 4, "stored_sha256": "", "recipients": [],
        "etcdrun": "0.1.0"
    });
    for playbooks in ["", "playbooks/"] {
        let folder = strangers(playbooks);
        folder
            .write("backups/prod-r5-20260101T000000Z.json", &manifest.to_string())
            .write("backups/prod-r5-20260101T000000Z.db.zst", "data");
        for line in [
            "backup prod --to file:backups --check",
            "restore prod --from file:backups --unauthenticated --check",
            "restore prod --from file:backups --unauthenticated --drill --check",
            "recover prod --check",
            "destroy prod --no-backup --check",
            "drain hv1 --reboot --check",
            "certs renew --check",
            "certs rotate-ca prod --check",
        ] {
            let said = folder.run(&line.split(' ').collect::<Vec<_>>());
            let all = format!("{}{}", said.stdout, said.stderr);
            assert!(
                said.code != 5 && !all.contains("stranger") && !all.contains("is used instead of"),
                "{line}: {all}"
            );
        }
        // What the user names is the user's.
        let named = folder.run(&["playbook", "backup.yaml", "--list-tasks"]).ends(5);
        assert!(named.stderr.contains("stranger"), "{}", named.stderr);
    }
}

#[test]
fn a_file_that_hides_a_shipped_playbook_or_role_is_told() {
    let folder = Folder::new();
    folder.write("inventory.yaml", INVENTORY);
    let list = |name: &str| folder.run(&["playbook", name, "--list-tasks"]).ends(0);
    let shipped = list("settings.yaml");
    assert_eq!(shipped.stderr, "");
    folder.write("roles/etcd/tasks/main.yaml", "- name: Mine\n  ping:\n");
    let role = list("settings.yaml");
    assert!(role.stdout.contains("Mine"), "{}", role.stdout);
    assert!(role.stderr.contains("roles/etcd is used instead of the shipped role `etcd`"), "{}", role.stderr);
    folder.write("settings.yaml", "- name: Own\n  hosts: all\n  tasks:\n    - ping:\n");
    let playbook = list("settings.yaml");
    assert!(playbook.stdout.contains("Own"), "{}", playbook.stdout);
    let warning = "settings.yaml is used instead of the shipped playbook `settings.yaml`";
    assert!(playbook.stderr.contains(warning), "{}", playbook.stderr);
    assert!(playbook.stderr.contains("`embedded:settings.yaml`"), "{}", playbook.stderr);
    assert_eq!(list("./settings.yaml").stderr, "");
    let embedded = list("embedded:settings.yaml");
    assert_eq!((embedded.stdout, embedded.stderr), (shipped.stdout, String::new()));
}

#[test]
fn a_flag_that_means_nothing_is_an_error() {
    let folder = Folder::new();
    folder.write("inventory.yaml", INVENTORY);
    for line in [
        "member restart etcd-1 -l etcd-1",
        "member restart etcd-1 --no-snapshot",
        "drain hv1 -l etcd-1",
        "drain hv1 --reboot --max-clusters 2",
        "drain hv1 --reboot --no-snapshot",
        "undrain hv1 --stay --allow-outage",
        "certs renew prod -c prod",
        "certs rotate-ca prod -c prod",
    ] {
        let said = folder.run(&line.split(' ').collect::<Vec<_>>()).ends(5);
        assert!(
            said.stderr.contains("unexpected argument") || said.stderr.contains("cannot be used with"),
            "{line}: {}",
            said.stderr
        );
    }
    let unknown = folder.run(&["certs", "list", "-c", "prd"]).ends(5);
    assert!(unknown.stderr.contains("did you mean `prod`?"), "{}", unknown.stderr);
    // It asks, unless it is told not to.
    let asks = folder.run(&["certs", "rotate-ca", "prod", "--finish"]).ends(5);
    assert!(asks.stderr.contains("--yes skips the prompt"), "{}", asks.stderr);
    folder.run(&["certs", "rotate-ca", "prod", "--finish", "--yes"]).ends(4);
}

#[test]
fn an_outage_is_accepted_by_a_word_of_the_operator() {
    let folder = Folder::new();
    folder.write("inventory.yaml", INVENTORY);
    let graph =
        |name: &str, more: &[&str]| folder.run(&[&["graph", name, "--format", "json"], more].concat()).ends(0).stdout;
    for name in names("playbooks") {
        let text = fs::read_to_string(format!("{}/playbooks/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        if text.contains("strategy: etcd") && !name.starts_with("member-") {
            assert!(
                !text.contains("allow_outage:")
                    || text.contains("allow_outage: \"{{ rollout.allow_outage }}\"")
                    || name == "replace-ca.yaml",
                "{name} leaves it to -e rollout_allow_outage"
            );
            graph(
                &name,
                &["-e", "rollout_allow_outage=true", "-e", "rollout_timeout=7s", "-e", "rollout_max_stall=7s"],
            );
        }
    }
    for name in ["rollout_allow_outage", "rollout_timeout", "rollout_max_stall"] {
        let wrong = folder.run(&["graph", "reboot.yaml", "-e", &format!("{name}=perhaps")]);
        assert_eq!(wrong.code, 5, "{name}: {}{}", wrong.stdout, wrong.stderr);
    }
}

/// `status` and `certs renew` take hosts, and mean the clusters that these belong to.
#[test]
fn a_limit_selects_clusters_by_their_members() {
    let folder = Folder::new();
    let other = "  test:\n    etcd: { version: 3.6.15 }\n    members: { t-1: { address: 127.0.0.1, port: 1 } }\n";
    folder.write("inventory.yaml", &format!("{INVENTORY}{other}"));
    for (limit, shown, hidden) in [("t-1", "test:", "prod:"), ("hv1", "prod:", "test:"), ("etcd-1", "prod:", "test:")] {
        let said = folder.run(&["status", "--limit", limit]).ends(4);
        assert!(said.stdout.contains(shown) && !said.stdout.contains(hidden), "{limit}: {}", said.stdout);
    }
    let said = folder.run(&["status", "--limit", "nobody"]).ends(5);
    assert!(said.stderr.contains("nobody"), "{}", said.stderr);
    let both = folder.run(&["certs", "renew", "prod", "--limit", "t-1"]).ends(5);
    assert!(both.stderr.contains("cannot be used with"), "{}", both.stderr);
}
