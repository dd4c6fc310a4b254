//! One play with secrets everywhere, and a search for them everywhere.

use std::{collections::BTreeSet, path::Path, time::Duration};

use base64::{
    Engine,
    engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD},
};

use super::Keys;
use crate::support::{
    Group, Sshd, descendants,
    program::{Folder, Said},
};

const TOKEN: &str = "tok-Zq7/w+9 \"x\" ü";
const API_KEY: &str = "ak_9f8e7d6c5b4a39281706";
const PEM: &str = "-----BEGIN TEST KEY-----\nTUlJRXBBSUJBQUtDQVFFQXhLc2FrZGphc2xk\nYXNkbGtqYXNkbGtqYXNkbGFzZGFzZGFzZGFz\n-----END TEST KEY-----\n";
const DB_PASSWORD: &str = "dbpw-Xk33mmQ0";
const PIN: &str = "77665544";
const FILE_LINE: &str = "file-secret-0123456789-only-in-a-file";
const TEMPLATE_LINE: &str = "template-secret-abcdefgh-only-there";
const OLD: &str = "old-secret-that-was-there-before";

/// What must be found nowhere.
fn needles() -> BTreeSet<Vec<u8>> {
    let lines = PEM.lines().filter(|line| !line.starts_with('-'));
    let secrets = [TOKEN, API_KEY, DB_PASSWORD, PIN, FILE_LINE, TEMPLATE_LINE, OLD].into_iter().chain(lines);
    let mut needles = BTreeSet::new();
    for secret in secrets {
        needles.insert(secret.as_bytes().to_vec());
        needles.insert(serde_json::to_string(secret).unwrap().trim_matches('"').as_bytes().to_vec());
        for before in 0..3 {
            let shifted = [&b"\0\0"[..before], secret.as_bytes()].concat();
            let (first, end) = ((before * 8).div_ceil(6), shifted.len() * 8 / 6);
            for encoded in [STANDARD_NO_PAD.encode(&shifted), URL_SAFE_NO_PAD.encode(&shifted)] {
                needles.insert(encoded.as_bytes()[first..end].to_vec());
            }
        }
    }
    needles
}

#[track_caller]
fn assert_clean(place: &str, bytes: &[u8]) {
    for needle in needles() {
        if let Some(at) = bytes.windows(needle.len()).position(|window| window == needle) {
            let around = &bytes[at.saturating_sub(200)..(at + needle.len() + 100).min(bytes.len())];
            panic!("{place}: found {:?} in {}", String::from_utf8_lossy(&needle), String::from_utf8_lossy(around));
        }
    }
}

fn assert_clean_folder(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => assert_clean_folder(&path),
            false => assert_clean(&path.display().to_string(), &std::fs::read(&path).unwrap_or_default()),
        }
    }
}

const PLAY: &str = r#"
- hosts: all
  vars_files: [secrets.yaml]
  vars:
    url: "https://app:{{ token | urlencode }}@db/?k={{ api_key }}"
  tasks:
    - name: A file with secrets
      copy: { dest: "DEST/conf", content: "user=app\ntoken={{ token }}\npassword={{ db.password }}\nkey={{ url }}\n", mode: "0600" }
    - name: A template with secrets
      template: { src: app.j2, dest: "DEST/app", mode: "0600" }
    - name: An encrypted file
      copy: { src: key.pem, dest: "DEST/key.pem", mode: "0600" }
    - name: An encrypted binary
      copy: { src: blob, dest: "DEST/blob", mode: "0600" }
    - name: An encrypted template
      template: { src: sealed.j2, dest: "DEST/sealed", mode: "0600" }
    - name: Says it all
      shell:
        stdin: "{{ token }}"
        cmd: |
          IFS= read -r t
          while [ ! -e DEST/go ]; do sleep 0.05; done
          printf 'it is %.4s' "$t"; sleep 0.2; printf '%s\n' "${t#????}"
          echo "again: $t" >&2
          { printf a; printf %s "$t"; } | base64
          { printf ab; printf %s "$t"; } | base64
          printf %s "$t"
      register: said
    - name: Keep what was registered
      copy: { dest: "DEST/registered", content: "{{ said.stdout_lines[-1] }}", mode: "0600" }
    - name: Says it all detached
      shell: { stdin: "{{ api_key }}", cmd: 'read -r k; echo "it is $k"' }
      async: 30
      poll: 1
    - name: Fails with it
      shell: { stdin: "{{ pem }}", cmd: "cat; cat >&2; exit 3" }
      ignore_errors: true
    - name: Shows it
      debug: { msg: ["{{ token }}", "{{ token | b64encode }}", "{{ url }}", "{{ db.pin }}", { k: "{{ pem }}" }, "{{ (token ~ '!') | to_json }}"] }
    - name: Shows a variable
      debug: { var: db }
    - name: Loops over it
      debug: { msg: "{{ item }}" }
      loop: ["{{ token }}", "{{ api_key }}"]
      loop_control: { label: "label {{ item }}" }
    - name: Loops without a label
      command: "true"
      loop: ["{{ db.password }}"]
    - name: Remembers it
      set_fact: { derived: "x{{ api_key }}y" }
    - name: Asserts on it
      assert: { that: "derived == 'other'", fail_msg: "expected {{ derived }}" }
      ignore_errors: true
    - name: Gives up on it
      fail: { msg: "no {{ api_key }}" }
      ignore_errors: true
    - name: Never holds
      shell: { stdin: "{{ token }}", cmd: "cat; false" }
      retries: 1
      delay: 0
      register: never
      until: never.rc == 0
      ignore_errors: true
    - name: Divides by it
      debug: { msg: "{{ token / 2 }}" }
      ignore_errors: true
    - name: Not a mode
      file: { path: DEST/conf, mode: "{{ api_key }}" }
      ignore_errors: true
    - name: On a command line
      command: "echo {{ api_key }}"
      ignore_errors: true
    - name: In a shell's text
      shell: "echo {{ api_key }} | cat"
      ignore_errors: true
    - name: As a path
      file: { path: "DEST/{{ api_key }}", state: touch }
      ignore_errors: true
    - name: In the environment of a template
      command: "true"
      environment: "{{ {'K': derived} }}"
      ignore_errors: true
"#;

struct Stage {
    sshd: Sshd,
    folder: Folder,
    dest: tempfile::TempDir,
}

fn stage() -> Stage {
    let folder = Folder::new();
    let keys = Keys::new(&folder);
    let dest = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path("tmp")).unwrap();
    let tmp = folder.path("tmp");
    let sshd = Sshd::builder().env("TMPDIR", tmp.to_str().unwrap()).start();
    folder.write("inventory/hosts.yaml", &sshd.inventory(2));
    let vars = format!("token: {}pem: {}", keys.value(TOKEN, 2), keys.value(PEM, 2));
    folder.write("inventory/group_vars/all.yaml", &vars);
    folder.write("inventory/host_vars/h1.yaml", &format!("api_key: {}", keys.value(API_KEY, 2)));
    folder.write("inventory/host_vars/h2.yaml", &format!("api_key: {}", keys.value(API_KEY, 2)));
    folder.write("secrets.yaml", &keys.armored(&format!("db:\n  password: {DB_PASSWORD}\n  pin: {PIN}\n  ok: true\n")));
    folder.write("app.j2", "{{ db.password }} and {{ token }}\n{{ pem }}");
    folder.write("key.pem", &keys.armored(&format!("{PEM}{FILE_LINE}\n")));
    std::fs::write(folder.path("blob"), keys.binary(&[b"\0\x01\xff", FILE_LINE.as_bytes()].concat())).unwrap();
    folder.write("sealed.j2", &keys.armored(&format!("{TEMPLATE_LINE} {{{{ inventory_hostname }}}}\n")));
    folder.write("site.yaml", &PLAY.replace("DEST", &dest.path().display().to_string()));
    Stage { sshd, folder, dest }
}

impl Stage {
    /// Puts files there that hold older secrets, so that diffs have something to take away.
    fn reset(&self) {
        let _ = std::fs::remove_file(self.dest.path().join("go"));
        let old = |name: &str| std::fs::write(self.dest.path().join(name), format!("user=app\ntoken={OLD}\n")).unwrap();
        ["conf", "app", "key.pem", "sealed"].iter().for_each(|name| old(name));
    }

    fn run(&self, args: &[&str]) -> Said {
        self.reset();
        let mut command = self.folder.command(&[&["playbook", "site.yaml", "-D"], args].concat());
        command.env("TMPDIR", self.folder.path("tmp")).env("ETCDRUN_LOG", "trace");
        // Files, because nobody empties a pipe while the processes are watched.
        let [out, err] = ["out", "err"].map(|name| std::fs::File::create(self.folder.path(name)).unwrap());
        let mut child = Group(command.stdout(out).stderr(err).spawn().unwrap());
        self.watch(&mut child);
        let code = child.0.wait().unwrap().code().unwrap_or(-1);
        Said { code, stdout: self.folder.read("out"), stderr: self.folder.read("err") }
    }

    /// Looks at all processes of both sides, and lets the waiting command go on after a few rounds that saw it.
    fn watch(&self, child: &mut Group) {
        let operator = child.pid();
        let mut rounds = 0;
        while child.0.try_wait().unwrap().is_none() {
            let mut waiting = false;
            for pid in [operator].into_iter().chain(descendants(operator)).chain(self.sshd.sessions()) {
                for file in ["cmdline", "environ"] {
                    let bytes = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
                    waiting |= bytes == b"sleep\x000.05\0";
                    assert_clean(&format!("/proc/{pid}/{file}"), &bytes);
                }
            }
            rounds += usize::from(waiting);
            if rounds == 5 {
                std::fs::write(self.dest.path().join("go"), "").unwrap();
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(rounds >= 5, "the command that waits was never seen");
    }
}

fn delivered(stage: &Stage) {
    let read = |name: &str| std::fs::read_to_string(stage.dest.path().join(name)).unwrap();
    assert!(read("conf").contains(&format!("token={TOKEN}\npassword={DB_PASSWORD}\n")), "{}", read("conf"));
    assert_eq!(read("app"), format!("{DB_PASSWORD} and {TOKEN}\n{PEM}"));
    assert_eq!(read("key.pem"), format!("{PEM}{FILE_LINE}\n"));
    assert!(read("sealed").starts_with(TEMPLATE_LINE));
    assert_eq!(read("registered"), TOKEN, "what was registered is whole");
    assert!(std::fs::read(stage.dest.path().join("blob")).unwrap().ends_with(FILE_LINE.as_bytes()));
    assert!(!stage.dest.path().join(API_KEY).exists());
}

fn shows_nothing(args: &[&str], masks: &str) {
    let stage = stage();
    let said = stage.run(args).ends(0);
    delivered(&stage);
    assert_clean("stdout", said.stdout.as_bytes());
    assert_clean("stderr", said.stderr.as_bytes());
    assert!(said.stdout.contains(masks), "{}", said.stdout);
    for refused in ["`cmd` would put a secret", "`path` would put a secret", "`K` would put"] {
        assert!(said.stdout.contains(refused), "{refused}: {}", said.stdout);
    }
    std::fs::remove_dir_all(stage.folder.path(".config")).unwrap();
    assert_clean_folder(&stage.folder.path(""));
    assert_clean_folder(&std::env::home_dir().unwrap().join(".etcdrun"));
}

#[test]
fn plain_lines_show_no_secret() {
    shows_nothing(&["-vvv", "--plain"], "token=<secret>");
}

#[test]
fn json_events_show_no_secret() {
    shows_nothing(&["--json"], "it is <secret>");
}
