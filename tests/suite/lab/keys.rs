//! Declared keys, and users and roles that come and go, on clusters of real etcd: with passwords, with certificates, and without
//! authentication.

use std::sync::Arc;

use etcdrun::{
    etcd::{DeclaredValue, KeysError, MemberClient, RequestLimits, Wish, differing_keys, transactions, write_keys},
    http::Direct,
};

use super::{
    Said,
    etcd::{PLAIN, Site},
};

fn etcdctl(site: &Site, words: &[&str]) -> String {
    // A password takes a while to be checked on a busy machine.
    let patient = ["--dial-timeout", "30s", "--command-timeout", "30s"];
    site.place.etcdctl("prod", &[&patient, words].concat()).ends(0).stdout
}

/// Every key with its value, each on a line of its own.
fn all(site: &Site) -> String {
    etcdctl(site, &["get", "", "--prefix"])
}

#[track_caller]
fn has(all: &str, key: &str, value: &str) {
    assert!(all.contains(&format!("{key}\n{value}\n")), "{key}: {value}:\n{all}");
}

/// Diffs stand further in than what is said of their task.
#[track_caller]
fn says(said: &Said, words: &[&str]) {
    let text: String = said.stdout.lines().flat_map(|line| [line.trim_start(), "\n"]).collect();
    for words in words {
        assert!(text.contains(words), "{words}: {}{}", said.stdout, said.stderr);
    }
}

const KEYS: &str = "    keys:
      /app/limit: \"100\"
      /app/number: 5
      /app/colors: { content: [red, blue] }
      /app/bytes: { base64: AAF/ }
      /app/text: { src: values/text }
      /app/files/: { src: values/all/ }
      /app/counter: { content: \"0\", only_if_missing: true }
      /app/token: { content: first-token, secret: true }
      /app/old: { state: absent }
      /legacy/: { state: absent, prefix: true }
";

#[test]
fn declared_keys_are_written_and_others_stay() {
    let auth = "    auth: { method: password, root_password: not-so-secret }\n";
    let site = Site::new(1, "3.5", &format!("{PLAIN}{auth}{KEYS}"));
    let folder = &site.place.folder;
    folder.write("values/text", "of a file").write("values/all/one", "1").write("values/all/more/two", "2");
    let plan = site.play(&["--check", "--diff"]).ends(0);
    says(&plan, &["+++ after: prod: /app/limit", "+100"]);
    site.play(&[]).ends(0);
    let now = all(&site);
    for (key, value) in [
        ("/app/limit", "100"),
        ("/app/number", "5"),
        ("/app/colors", "[\"red\",\"blue\"]"),
        ("/app/text", "of a file"),
        ("/app/files/one", "1"),
        ("/app/files/more/two", "2"),
        ("/app/counter", "0"),
        ("/app/token", "first-token"),
    ] {
        has(&now, key, value);
    }
    assert!(etcdctl(&site, &["get", "/app/bytes", "-w", "json"]).contains("\"value\":\"AAF/\""));
    site.changes_nothing();

    // Others write too.
    for (key, value) in [
        ("/app/limit", "1"),
        ("/app/counter", "7"),
        ("/app/old", "x"),
        ("/other", "stays"),
        ("/legacy/a", "secret-of-others"),
        ("/legacy/b/c", "y"),
        ("/legacy", "stays too"),
    ] {
        etcdctl(&site, &["put", key, value]);
    }
    let text = folder.read("inventory.yaml");
    folder.write("inventory.yaml", &text.replace("first-token", "second-token"));
    let before = all(&site);
    let plan = site.play(&["--check", "--diff"]).ends(0);
    says(&plan, &["-1\n+100\n", "-x\n", "-/legacy/a\n-/legacy/b/c\n", "-(secret)\n+(another secret)\n"]);
    for words in ["second-token", "first-token", "secret-of-others", "/app/counter", "/other"] {
        assert!(!plan.stdout.contains(words), "{words}: {}", plan.stdout);
    }
    assert_eq!(all(&site), before, "a plan only reads");
    let said = site.play(&["--diff"]).ends(0);
    assert!(!said.stdout.contains("-token"), "{}", said.stdout);
    let now = all(&site);
    let values =
        [("/app/limit", "100"), ("/app/counter", "7"), ("/app/token", "second-token"), ("/legacy", "stays too")];
    values.iter().for_each(|(key, value)| has(&now, key, value));
    has(&now, "/other", "stays");
    assert!(!now.contains("/app/old") && !now.contains("/legacy/"), "{now}");
    site.changes_nothing();
    a_lease_is_kept(&site);
}

/// A key that would expire is neither taken over nor made one that stays.
fn a_lease_is_kept(site: &Site) {
    let granted = etcdctl(site, &["lease", "grant", "600"]);
    let lease = granted.split(' ').nth(1).unwrap();
    etcdctl(site, &["put", "/app/limit", "3", "--lease", lease]);
    let refused = site.play(&[]).ends(2);
    says(&refused, &["cannot write `/app/limit`: it has the lease"]);
    has(&all(site), "/app/limit", "3");
    etcdctl(site, &["del", "/app/limit"]);
    site.play(&[]).ends(0);
    has(&all(site), "/app/limit", "100");
}

const MANY: &str = "- name: Write many keys
  hosts: prod
  become: true
  tasks:
    - name: Write the settings
      etcd_keys:
        keys: \"{{ many }}\"
      once_per: cluster
      register: written
    - name: Show how many there were
      debug: { msg: \"{{ written.created | length }} created, {{ written.updated | length }} updated\" }
      once_per: cluster
";

fn write_many(site: &Site, keys: &str) -> Said {
    let folder = &site.place.folder;
    folder.write("many.yaml", MANY).write("vars.yaml", &format!("many:\n{keys}"));
    folder.run(&["playbook", "many.yaml", "-i", "inventory.yaml", "-e", "@vars.yaml"])
}

#[test]
fn hundreds_of_keys_need_few_transactions_and_no_authentication() {
    let site = Site::played(1, "3.7", &format!("{PLAIN}    auth: {{ enabled: false }}\n"));
    let many = |value: &str| (0..300).map(|number| format!("  /many/{number:03}: {value}\n")).collect::<String>();
    let write = |keys: &str| write_many(&site, keys);
    says(&write(&many("one")).ends(0), &["300 created, 0 updated"]);
    let revision = || {
        let status: serde_json::Value =
            serde_json::from_str(&site.etcdctl(&["endpoint", "status", "-w", "json"])).unwrap();
        status[0]["Status"]["header"]["revision"].as_u64().unwrap()
    };
    let before = revision();
    says(&write(&many("one")).ends(0), &["0 created, 0 updated"]);
    assert_eq!(revision(), before, "nothing was written");
    says(&write(&many("two")).ends(0), &["0 created, 300 updated"]);
    assert_eq!(revision(), before + 3, "128 keys in each transaction");
    assert_eq!(site.etcdctl(&["get", "/many/", "--prefix", "--print-value-only"]).matches("two").count(), 300);

    // Larger than one request: in pieces. One that is larger by itself is not written at all.
    let large = |number: usize, length: usize| format!("  /large/{number}: {}\n", "x".repeat(length));
    says(&write(&(large(1, 900_000) + &large(2, 900_000))).ends(0), &["2 created"]);
    let refused = write(&(large(3, 10) + &large(4, 1_600_000))).ends(2);
    says(&refused, &["cannot write `/large/4`: it takes", "max-request-bytes"]);
    assert_eq!(site.etcdctl(&["get", "/large/3"]), "");
}

#[test]
fn a_key_that_another_client_writes_is_not_overwritten() {
    let site = Site::formed(3, "3.5", PLAIN);
    let credential = site.root_credential();
    let (name, ip) = site.members().remove(0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let member = MemberClient::new(&name, &ip, 2379, &credential, Arc::new(Direct)).unwrap();
        let limits = RequestLimits { operations: 128, bytes: 1_000_000 };
        let declared = |wishes: &[(&str, Wish)]| {
            wishes
                .iter()
                .map(|(key, wish)| DeclaredValue { key: (*key).to_owned(), wish: wish.clone() })
                .collect::<Vec<_>>()
        };
        let value = |text: &str| Wish::Value(text.into());
        let get = |key: &str| site.etcdctl(&["get", key, "--print-value-only"]);
        for key in ["/a", "/b", "/gone/x"] {
            site.etcdctl(&["put", key, "old"]);
        }
        let wishes = declared(&[
            ("/a", value("new")),
            ("/b", value("new")),
            ("/c", Wish::Initial("new".into())),
            ("/gone/", Wish::NoneWithPrefix),
        ]);
        let changes = differing_keys(&member, &wishes, limits).await.unwrap();
        assert_eq!(changes.len(), 4, "{changes:?}");
        site.etcdctl(&["put", "/b", "of another"]);
        let overtaken = write_keys(&member, transactions(&changes, limits)[0]).await.unwrap_err();
        assert!(matches!(&overtaken, KeysError::Overtaken { key, .. } if key == "/b"), "{overtaken}");
        assert_eq!((get("/a").trim(), get("/b").trim(), get("/c").trim()), ("old", "of another", ""), "all or none");

        // What others have made as it was to be, or a first value of theirs, is fine; a key that came later stays.
        let changes = differing_keys(&member, &wishes, limits).await.unwrap();
        site.etcdctl(&["put", "/b", "new"]);
        site.etcdctl(&["put", "/c", "of another"]);
        site.etcdctl(&["put", "/gone/y", "later"]);
        write_keys(&member, transactions(&changes, limits)[0]).await.unwrap();
        assert_eq!((get("/a").trim(), get("/b").trim(), get("/c").trim()), ("new", "new", "of another"));
        assert_eq!((get("/gone/x").trim(), get("/gone/y").trim()), ("", "later"));
    });
    // One member that does not answer is no reason not to write.
    site.place.hosts[0].run(&["systemctl", "stop", "etcd"]).unwrap();
    says(&write_many(&site, "  /many: one\n").ends(0), &["1 created, 0 updated"]);
    assert_eq!(site.etcdctl(&["get", "/many", "--print-value-only"]).trim(), "one");
}

#[test]
fn users_and_roles_change_as_a_plan_shows_and_are_removed() {
    let auth = "    auth:
      roles:
        app: { permissions: [{ prefix: /app/ }, { key: /a, range_end: /c, access: read }] }
        old: { permissions: [{ key: /old }] }
      users: { writer: { roles: [app, old] }, gone: {} }
";
    let site = Site::played(1, "3.6", &format!("{PLAIN}{auth}"));
    site.etcdctl(&["user", "add", "by-hand", "--no-password"]);
    let changed = "    auth:
      roles:
        app: { permissions: [{ prefix: /app/, access: read }, { key: /z, range_end: \"\\0\" }] }
        old: { state: absent }
      users: { writer: { roles: [app] }, gone: { state: absent }, reader: { roles: [app] } }
";
    let text = site.place.folder.read("inventory.yaml");
    assert!(text.contains(auth));
    site.place.folder.write("inventory.yaml", &text.replace(auth, changed));
    let lines = [
        "-role app: readwrite on /app/*\n",
        "+role app: read on /app/*\n",
        "-role app: read on /a to /c\n",
        "+role app: readwrite on /z and all keys behind it\n",
        "-role old\n",
        "-role old: readwrite on /old\n",
        "-user writer: role old\n",
        "-user gone\n",
        "+user reader\n",
        "+user reader: role app\n",
    ];
    says(&site.play(&["--check", "--diff"]).ends(0), &lines);
    assert!(site.etcdctl(&["role", "list"]).contains("old"), "a plan only reads");
    says(&site.play(&["--diff"]).ends(0), &lines);
    assert_eq!(site.etcdctl(&["role", "list"]), "app\nroot\n");
    assert_eq!(site.etcdctl(&["user", "list"]), "by-hand\nreader\nroot\nwriter\n");
    let role = site.etcdctl(&["role", "get", "app"]);
    assert!(role.contains("/app/") && role.contains("/z") && !role.contains("[/a, /c)"), "{role}");
    site.changes_nothing();
}
