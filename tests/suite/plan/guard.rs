//! The one guard: what a payload writes goes through `mutate`, and check mode refuses what does not.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use etcdrun::remote::{Link, LinkOptions, Payload, RemoteError, Session, Surroundings};
use regex::Regex;

/// The functions of a payload, and under an empty name what is in none.
type Functions = BTreeMap<String, Vec<String>>;

fn functions(text: &str) -> Functions {
    let head = Regex::new(r"^([a-z_0-9]+)\(\) \{$").unwrap();
    let mut found = Functions::new();
    let mut current = String::new();
    for line in text.lines().filter(|line| !line.trim_start().starts_with('#')) {
        if let Some(name) = head.captures(line) {
            current = name[1].to_owned();
        } else if line == "}" {
            current.clear();
        } else {
            found.entry(current.clone()).or_default().push(line.to_owned());
        }
    }
    found
}

fn payloads() -> BTreeMap<String, Functions> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/modules/src");
    let files =
        |folder: &Path| -> Vec<PathBuf> { fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect() };
    let (folders, scripts): (Vec<_>, Vec<_>) = files(&folder).into_iter().partition(|path| path.is_dir());
    let scripts = scripts.into_iter().chain(folders.iter().flat_map(|folder| files(folder)));
    let scripts = scripts.filter(|path| path.extension().is_some_and(|extension| extension == "sh"));
    let name = |path: &Path| path.strip_prefix(&folder).unwrap().display().to_string();
    scripts.map(|path| (name(&path), functions(&fs::read_to_string(&path).unwrap()))).collect()
}

/// The functions that `mutate` calls, and those that only they call.
fn guarded(payloads: &BTreeMap<String, Functions>) -> BTreeSet<String> {
    let word = Regex::new(r"[a-z_0-9]+").unwrap();
    let called = Regex::new(r"mutate ([a-z_0-9]+)").unwrap();
    let lines = || payloads.values().flat_map(|functions| functions.values().flatten());
    let mut guarded: BTreeSet<String> =
        lines().flat_map(|line| called.captures_iter(line).map(|name| name[1].to_owned())).collect();
    loop {
        let inside = |name: &String| payloads.values().filter_map(|functions| functions.get(name)).flatten().collect();
        let callees: BTreeSet<String> = guarded
            .iter()
            .flat_map(|name| -> Vec<&String> { inside(name) })
            .flat_map(|line| word.find_iter(line).map(|word| word.as_str().to_owned()))
            .filter(|name| payloads.values().any(|functions| functions.contains_key(name)))
            .collect();
        if callees.is_subset(&guarded) {
            return guarded;
        }
        guarded.extend(callees);
    }
}

/// What is only reached where check mode has left before.
fn leaves_in_check_mode(lines: &[String]) -> bool {
    let text = lines.join("\n");
    let leaves = Regex::new(r#"if \[ "\$CHECK" \](?: \|\|[^;]*)?; then(?s:.{0,80}?)(return|exit)\b"#).unwrap();
    leaves.is_match(&text)
}

#[test]
fn what_a_payload_writes_with_a_redirection_is_behind_mutate() {
    let payloads = payloads();
    let guarded = guarded(&payloads);
    assert!(guarded.contains("write_text") && guarded.contains("write_body") && payloads.len() > 50, "{guarded:?}");
    let writes = Regex::new(r#">>?\s*("?\$|"?/|[A-Za-z.])"#).unwrap();
    // No function can have these names, so check mode cannot shut them off.
    let changes = Regex::new(r#"\b(qemu-img ("\$@"|create|resize|convert|rebase|commit|amend)|systemd-run)"#).unwrap();
    // XML in a pattern of sed is no redirection.
    let tags = Regex::new("</?[a-z]+>").unwrap();
    let mut wrong = Vec::new();
    for (file, functions) in &payloads {
        for (function, lines) in functions {
            let is_safe = guarded.contains(function) || leaves_in_check_mode(lines);
            for line in lines.iter().filter(|_| !is_safe) {
                let rest = tags.replace_all(line, "").replace("/dev/null", "").replace(">&", "");
                if writes.is_match(&rest) || changes.is_match(line) {
                    wrong.push(format!("{file}: {function}: {line}"));
                }
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

fn checking(shell: &[&str]) -> Session {
    let link: Arc<Link> = Link::local(shell, LinkOptions::default());
    link.session(Surroundings { check_mode: true, ..Surroundings::default() })
}

#[tokio::test]
async fn a_payload_that_goes_around_the_guard_fails_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let bodies = [
        "touch \"$arg_path\"",
        "mkdir -p \"$arg_path\"",
        "x=$(mktemp \"$arg_path.XXXXXX\") || fail \"no\"",
        "tmp_dir; true",
        "cp /etc/passwd \"$arg_path\" || fail \"cannot\"",
        "systemctl daemon-reload",
        "timeout 10 dd if=/dev/zero of=\"$arg_path\" count=1",
        "virsh -q -c test:///default destroy test",
        "virsh --connect=test:///default pool-refresh default-pool",
    ];
    for shell in [&["dash"][..], &["bash"], &["busybox", "sh"]] {
        for body in bodies {
            let payload = Payload::new(body).value("path", path.to_str().unwrap());
            // Whoever says that it may change something is not believed in such a session.
            let outcome = checking(shell).run_one(payload, false).await.unwrap();
            assert!(outcome.failed, "{body}: {outcome:?}");
            // A body may have its own word for it.
            assert!(outcome.msg.contains("check mode was about to run") || body.contains("||"), "{body}: {outcome:?}");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{body}");
        }
        let looks = "timeout 10 true && mutate touch \"$arg_path\" && have touch && ! have no-such-tool";
        let payload = Payload::new(looks);
        let outcome = checking(shell).run_one(payload.value("path", path.to_str().unwrap()), false).await.unwrap();
        assert!(!outcome.failed && !path.exists(), "{outcome:?}");
    }
}

#[tokio::test]
async fn a_session_in_check_mode_sends_no_file_and_starts_no_job() {
    let session = checking(&["sh"]);
    let uploaded = session.upload(Path::new("/etc/hostname")).await;
    assert!(matches!(uploaded, Err(RemoteError::CheckMode)), "{uploaded:?}");
    let detached = session.detach(Payload::new("true"), "plan-1", None).await;
    assert!(matches!(detached, Err(RemoteError::CheckMode)), "{detached:?}");
}
