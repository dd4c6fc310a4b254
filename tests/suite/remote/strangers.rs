//! Another user of a host who forges ledgers, locks and folders, to lead root astray. Needs root.
use std::{
    fs,
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _, symlink},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Child, Command},
    sync::Arc,
    time::{Duration, Instant},
};

use etcdrun::{
    model::{Ending, Outcome},
    remote::{
        Entry, JobState, Link, LinkOptions, LockAnswer, LockName, LockOwner, Payload, Release, RemoteError, Segment,
        Session, Step, StepSink, Surroundings,
    },
};
use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;
use tokio::time::timeout;

use crate::support::module::{local_session, run_module};

const SHELLS: [&[&str]; 3] = [&["dash"], &["bash"], &["busybox", "sh"]];
const STRANGER: u32 = 65534;
/// What must never be waited for takes longer than this.
const PATIENCE: Duration = Duration::from_secs(60);

/// A folder that all users can reach, with a home in it, and a file that is not the stranger's.
struct Bench {
    folder: TempDir,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bench = Self { folder };
        set_mode(bench.folder.path(), 0o1777);
        fs::create_dir(bench.at("home")).unwrap();
        fs::write(bench.at("victim"), "secret").unwrap();
        set_mode(&bench.at("victim"), 0o600);
        bench
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.at(name).display().to_string()
    }

    /// A session in this shell, in the folder, with its home.
    fn session(&self, shell: &[&str]) -> Session {
        self.session_with(&[&format!("HOME={}", self.text("home"))], shell)
    }

    fn session_with(&self, before: &[&str], shell: &[&str]) -> Session {
        let folder = self.folder.path().display().to_string();
        let command = [&["env", "-C", &folder], before, shell].concat();
        Link::local(&command, LinkOptions::default()).session(Surroundings::default())
    }

    /// The stranger does this in the folder.
    fn stranger(&self, script: &str) {
        let status = self.as_stranger(script).status().unwrap();
        assert!(status.success(), "{script}");
    }

    fn as_stranger(&self, script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).current_dir(self.folder.path()).uid(STRANGER).gid(STRANGER);
        command
    }

    /// The victim is as it was.
    fn assert_unharmed(&self, what: &str) {
        let seen = fs::metadata(self.at("victim")).unwrap();
        assert_eq!((seen.uid(), seen.mode() & 0o7777), (0, 0o600), "{what}");
        assert_eq!(fs::read_to_string(self.at("victim")).unwrap(), "secret", "{what}");
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A name that no other test has.
fn new_name(what: &str) -> String {
    format!("{what}{:08x}", rand::random::<u32>())
}

/// Goes away with all that is in it.
struct Gone(PathBuf);

impl Drop for Gone {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0).or_else(|_| fs::remove_file(&self.0));
    }
}

/// The kernel's guard against links in sticky folders. It is the machine's, so it is put back, and one test at a time has it.
struct ProtectedSymlinks {
    before: String,
    _turn: fs::File,
}

impl ProtectedSymlinks {
    const PATH: &str = "/proc/sys/fs/protected_symlinks";

    fn set(on: bool) -> Self {
        let turn = fs::File::create(std::env::temp_dir().join("etcdrun-test-symlinks")).unwrap();
        flock(&turn, FlockOperation::LockExclusive).unwrap();
        let before = fs::read_to_string(Self::PATH).unwrap();
        fs::write(Self::PATH, if on { "1" } else { "0" }).unwrap();
        Self { before, _turn: turn }
    }
}

impl Drop for ProtectedSymlinks {
    fn drop(&mut self) {
        fs::write(Self::PATH, &self.before).unwrap();
    }
}

struct Deaf;

impl StepSink for Deaf {
    fn started(&self, _: usize) {}
    fn output(&self, _: usize, _: bool, _: &[u8]) {}
    fn finished(&self, _: usize, _: &Outcome) {}
}

/// Runs a command that must not run twice, as the first of the run.
async fn run_once(session: &Session, run: &str) -> Outcome {
    let entry = Entry { run: run.into(), name: "0-5-0-0".into(), since: None, live: false };
    let step = Step { entry: Some(entry), ..Step::plain(Payload::new("echo real").capture()) };
    let ran = timeout(PATIENCE, session.run(Segment { steps: vec![step] }, &Deaf)).await.expect("hangs");
    ran.unwrap().remove(0)
}

/// What the stranger writes: a command that has ended, with words in it that would run another one as root.
fn forge(folder: &str) -> String {
    let nonce = format!("x/y/;1e touch {folder}/pwned;s/x");
    format!(
        "printf '%s 1 1 %s\\n' \"$(cat /proc/sys/kernel/random/boot_id)\" '{nonce}' >{folder}/0-5-0-0.intent
        echo 0 >{folder}/0-5-0-0.code; echo forged >{folder}/0-5-0-0.out; echo x >{folder}/0-5-0-0.marks; : >{folder}/0-5-0-0.err"
    )
}

#[tokio::test]
async fn a_ledger_that_another_user_made_is_not_believed() {
    for protected in [true, false] {
        let _guard = ProtectedSymlinks::set(protected);
        for shell in SHELLS {
            let bench = Bench::new();
            let run = new_name("run");
            // It leads to a folder of root that all can write, so that what is behind the link seems to be root's.
            let evil = Gone(new_name("/var/tmp/etcdrun-runs-evil").into());
            fs::create_dir(bench.at("shm")).unwrap();
            set_mode(&bench.at("shm"), 0o1777);
            bench.stranger(&format!(
                "{}; mkdir {evil}; ln -s {} {evil}/{run}",
                forge(&bench.text("shm")),
                bench.text("shm"),
                evil = evil.0.display()
            ));
            let outcome = run_once(&bench.session(shell), &run).await;
            assert_eq!(outcome.stdout, "real", "{shell:?} {outcome:?}");
            assert!(!bench.at("shm/pwned").exists(), "{shell:?}");
        }
    }
}

/// A user without a home keeps what it needs in /var/tmp, where others can be first.
#[tokio::test]
async fn a_folder_in_our_name_that_another_user_made_is_not_used() {
    let plots = [
        "mkdir -p PLACE/RUN; chmod 777 PLACE PLACE/RUN; FORGE",
        "mkdir -p mine/RUN; chmod 777 mine mine/RUN; ln -s $PWD/mine PLACE; FORGE",
        "mkdir PLACE; chmod 777 PLACE",
        "touch PLACE",
    ];
    for shell in SHELLS {
        for plot in plots {
            let bench = Bench::new();
            let (run, uid) = (new_name("run"), rand::random_range(100_000_000..2_000_000_000u32));
            let places =
                [Gone(format!("/var/tmp/etcdrun-runs-{uid}").into()), Gone(format!("/var/tmp/etcdrun-{uid}").into())];
            let place = places[0].0.display().to_string();
            let forged = forge(&format!("{place}/{run}"));
            bench.stranger(&plot.replace("FORGE", &forged).replace("PLACE", &place).replace("RUN", &run));
            let user = [&*format!("--reuid={uid}"), "--regid=65533", "--clear-groups"];
            let session = bench.session_with(&[&["HOME=/nonexistent", "setpriv"], &user[..]].concat(), shell);
            let outcome = run_once(&session, &run).await;
            assert!(outcome.failed && outcome.msg.contains("so nothing was run"), "{shell:?} {plot}: {outcome:?}");

            bench.stranger(&format!("mkdir -m 777 /var/tmp/etcdrun-{uid}; mkdir -m 777 /var/tmp/etcdrun-{uid}/jobs"));
            let error = session.detach(Payload::new("true"), "j1", None).await.unwrap_err();
            assert!(error.to_string().contains("so nothing was run"), "{shell:?} {plot}: {error}");
        }
    }
}

/// An account whose home is a folder that all can write, such as /tmp.
#[tokio::test]
async fn a_home_that_others_can_write_is_not_used_once_they_were_first() {
    for shell in SHELLS {
        let bench = Bench::new();
        let (run, uid) = (new_name("run"), rand::random_range(100_000_000..2_000_000_000u32));
        let spare = Gone(format!("/var/tmp/etcdrun-runs-{uid}").into());
        set_mode(&bench.at("home"), 0o1777);
        let forged = forge(&format!("mine/runs/{run}"));
        bench.stranger(&format!("mkdir -p mine/runs/{run}; {forged}; ln -s $PWD/mine home/.etcdrun"));
        let home = format!("HOME={}", bench.text("home"));
        let user = format!("--reuid={uid}");
        let session = bench.session_with(&[&home, "setpriv", &user, "--regid=65533", "--clear-groups"], shell);
        let outcome = run_once(&session, &run).await;
        assert_eq!(outcome.stdout, "real", "{shell:?} {outcome:?}");
        assert!(spare.0.join(&run).exists(), "{shell:?}");
        // What is already ours is found there again, and is still there for us alone.
        let outcome = run_once(&session, &run).await;
        assert_eq!(outcome.stdout, "real", "{shell:?} {outcome:?}");
        // Somebody has opened it up: then nobody knows who wrote what is in it. Only this user and root can do that, so a shell that
        // has seen it closed need not look again; the next one does.
        set_mode(&spare.0.join(&run), 0o777);
        let session = bench.session_with(&[&home, "setpriv", &user, "--regid=65533", "--clear-groups"], shell);
        let outcome = run_once(&session, &run).await;
        assert!(outcome.failed && outcome.msg.contains("other users could have put something"), "{outcome:?}");
        // Root has removed it behind our look, and the stranger was the next to make it.
        fs::remove_dir_all(&spare.0).unwrap();
        assert_eq!(run_once(&session, &run).await.stdout, "real", "{shell:?}");
        fs::remove_dir_all(&spare.0).unwrap();
        let theirs = format!("{}/{run}", spare.0.display());
        bench.stranger(&format!("umask 0; mkdir -p {theirs}; {}", forge(&theirs)));
        let outcome = run_once(&session, &run).await;
        assert!(outcome.failed && outcome.msg.contains("cannot create a private directory"), "{shell:?} {outcome:?}");
    }
}

/// Each look is a process on every host, and commands that need each other would have one each.
#[tokio::test]
async fn one_look_serves_a_run_but_not_what_came_after_it() {
    for shell in SHELLS {
        let bench = Bench::new();
        let (run, uid) = (new_name("run"), rand::random_range(100_000_000..2_000_000_000u32));
        std::os::unix::fs::chown(bench.at("home"), Some(uid), None).unwrap();
        fs::create_dir(bench.at("bin")).unwrap();
        fs::write(
            bench.at("bin/stat"),
            format!("#!/bin/sh\necho >>{}\nexec /usr/bin/stat \"$@\"\n", bench.text("looks")),
        )
        .unwrap();
        set_mode(&bench.at("bin/stat"), 0o755);
        fs::write(bench.at("looks"), "").unwrap();
        set_mode(&bench.at("looks"), 0o666);
        let (home, path) =
            (format!("HOME={}", bench.text("home")), format!("PATH={}:/usr/bin:/bin", bench.text("bin")));
        let user = format!("--reuid={uid}");
        let as_user = [&*home, &path, "setpriv", &user, "--regid=65533", "--clear-groups"];
        let looks = || fs::read_to_string(bench.at("looks")).unwrap().len();

        // The folder of locks and the generations are new.
        let session = bench.session_with(&as_user, shell);
        assert_eq!(take(&session, &bench, "before", "host").await.unwrap().granted, ["host"]);
        assert_eq!(release(&session, &bench, "before", Release::AndForget).await.unwrap(), 1);

        let (session, before) = (bench.session_with(&as_user, shell), looks());
        assert_eq!(take(&session, &bench, &run, "host").await.unwrap().granted, ["host"]);
        assert_eq!(run_once(&session, &run).await.stdout, "real");
        assert_eq!(run_once(&session, &run).await.stdout, "real");
        let ledger = bench.at("home/.etcdrun/runs").join(&run);
        assert!(ledger.exists());
        assert_eq!(release(&session, &bench, &run, Release::AndForget).await.unwrap(), 1);
        assert!(!ledger.exists() && !bench.at("locks/host.lock").exists());
        assert_eq!(looks() - before, 1, "{shell:?}");

        // A folder that did not exist when the locks were taken.
        assert_eq!(take(&session, &bench, &run, "host").await.unwrap().granted, ["host"]);
        assert_eq!(run_once(&session, &run).await.stdout, "real");
        let spare = Gone(format!("/var/tmp/etcdrun-{uid}").into());
        let theirs = format!("theirs/jobs/{run}-1");
        let link = format!("ln -s $PWD/theirs {}", spare.0.display());
        bench.stranger(&format!("umask 0; mkdir -p {theirs}; echo 0 >{theirs}/code; {link}"));
        assert_eq!(release(&session, &bench, &run, Release::AndForget).await.unwrap(), 1);
        assert!(bench.at(&theirs).join("code").exists() && !ledger.exists(), "{shell:?}");

        // Locks were taken a second time, and then the folder was removed.
        for _ in 0..2 {
            assert_eq!(take(&session, &bench, &run, "host").await.unwrap().granted, ["host"]);
            assert_eq!(run_once(&session, &run).await.stdout, "real");
        }
        fs::remove_dir_all(bench.at("home/.etcdrun")).unwrap();
        let outcome = run_once(&session, &run).await;
        assert_eq!(outcome.stdout, "real", "{shell:?} {outcome:?}");
        assert_eq!(release(&session, &bench, &run, Release::AndForget).await.unwrap(), 1);
    }
}

#[tokio::test]
async fn words_of_an_entry_that_we_did_not_write_are_in_doubt() {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim().to_owned();
    let nonce = format!("ETCDRUN-{}", "0".repeat(32));
    let entries = [
        (format!("{boot} 1 1 x/y/;1e touch pwned;s/x"), "0"),
        (format!("{boot} 1 1 ETCDRUN-{}", "0".repeat(31)), "0"),
        (format!("{boot} ../1 1 {nonce}"), "0"),
        (format!("{boot} 1 1 {nonce}"), "0; true"),
        (format!("{boot} 1 1 {nonce}"), "1000"),
    ];
    for shell in SHELLS {
        for (words, code) in &entries {
            let bench = Bench::new();
            let ledger = bench.at("home/.etcdrun/runs/run");
            fs::create_dir_all(&ledger).unwrap();
            set_mode(&ledger, 0o700);
            for (name, text) in [("intent", &**words), ("code", code), ("out", "forged"), ("marks", "x"), ("err", "")] {
                fs::write(ledger.join(format!("0-5-0-0.{name}")), format!("{text}\n")).unwrap();
            }
            let outcome = run_once(&bench.session(shell), "run").await;
            assert!(outcome.failed && outcome.ending == Ending::InDoubt, "{shell:?} {words} {code}: {outcome:?}");
            assert!(!bench.at("pwned").exists());
        }
    }
}

fn owner(bench: &Bench, run: &str) -> LockOwner {
    LockOwner { run: run.into(), about: format!("about {run}"), place: Arc::from(bench.text("locks")) }
}

async fn take(session: &Session, bench: &Bench, run: &str, name: &str) -> Result<LockAnswer, RemoteError> {
    let names = [LockName { name: name.into(), shared: false }];
    timeout(PATIENCE, session.take_locks(&names, &owner(bench, run), false)).await.expect("hangs")
}

async fn release(session: &Session, bench: &Bench, run: &str, how: Release) -> Result<u64, RemoteError> {
    let place = bench.text("locks");
    let released = timeout(PATIENCE, session.release_locks(&place, run, &[], how)).await.expect("hangs");
    released.map(|released| released.count)
}

#[tokio::test]
async fn a_name_with_newlines_in_it_is_one_name() {
    for shell in SHELLS {
        let bench = Bench::new();
        let run = new_name("run");
        for name in [".ssh", "home/.ssh"] {
            fs::create_dir(bench.at(name)).unwrap();
        }
        let session = bench.session(shell);
        take(&session, &bench, &run, "host-a").await.unwrap();
        let evil = Gone(format!("/var/tmp/etcdrun-runs-{}\n.ssh\nb", new_name("a")).into());
        bench.stranger(&format!(
            "mkdir '{evil}'; ln -s / '{evil}/{run}'
            printf '1 {run}\\nx\\n' >'locks/a\n.ssh\nb.lock'; printf '1 {run}\\nx\\n' >'locks/a\n.ssh\nb+shared+{run}'",
            evil = evil.0.display()
        ));
        let count = release(&session, &bench, &run, Release::AndForget).await.unwrap();
        assert_eq!(count, 1, "{shell:?}");
        assert!(bench.at(".ssh").exists() && bench.at("home/.ssh").exists(), "{shell:?}");
        assert!(!bench.at("locks/host-a.lock").exists(), "{shell:?}");
    }
}

#[tokio::test]
async fn a_temporary_folder_that_another_user_made_is_not_used() {
    for shell in SHELLS {
        let bench = Bench::new();
        for plot in ["mkdir -m 755", "ln -s .", "touch"] {
            let body =
                format!("setpriv --reuid {STRANGER} --regid {STRANGER} --clear-groups {plot} \"$_tmp\"; tmp_dir");
            let outcome = bench.session(shell).run_one(Payload::new(body.leak()), false).await.unwrap();
            assert!(
                outcome.failed && outcome.msg.contains("cannot create a private temporary directory"),
                "{shell:?} {plot}: {outcome:?}"
            );
        }
    }
}

/// A host that has booted has an empty /tmp, and others have seen what was in it.
#[tokio::test]
async fn a_staging_folder_that_another_user_made_again_is_not_used() {
    for shell in SHELLS {
        let bench = Bench::new();
        fs::write(bench.at("file"), "mine").unwrap();
        let session = bench.session(shell);
        let first = session.upload(&bench.at("file")).await.unwrap();
        let folder = Gone(Path::new(&first).parent().unwrap().to_owned());
        fs::remove_dir_all(&folder.0).unwrap();
        let name = folder.0.display();
        bench.stranger(&format!("mkdir -m 777 {name}; ln -s {} {name}/1-file", bench.text("victim")));
        let error = session.upload(&bench.at("file")).await.unwrap_err();
        assert!(error.to_string().contains("cannot create a private staging directory"), "{shell:?} {error}");
        bench.assert_unharmed("upload");
        session.link.close().await;
        assert!(folder.0.exists(), "{shell:?}: it is not ours to remove");
    }
}

#[tokio::test]
async fn no_nonce_is_on_a_command_line() {
    for shell in SHELLS {
        let bench = Bench::new();
        let session = bench.session(shell);
        // The words of a process that has the folder's name as an argument.
        let waits = "tmp_dir; sh -c 'until [ -e \"$HOME/go\" ]; do sleep 0.05; done' \"$TMP\" \"$TMP\"";
        session.detach(Payload::new(waits), "j1", None).await.unwrap();
        let keeper = fs::read_to_string(bench.at("home/.etcdrun/jobs/j1/keeper")).unwrap();
        let nonce = keeper.split_whitespace().nth(2).unwrap().strip_prefix("ETCDRUN-").unwrap().to_owned();
        assert_eq!(nonce.len(), 32);
        let tmp = || command_lines().into_iter().any(|line| line.contains("etcdrun-tmp-"));
        let deadline = Instant::now() + PATIENCE;
        while !tmp() {
            assert!(Instant::now() < deadline, "{shell:?}: the job makes no folder");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let seen: Vec<_> = command_lines().into_iter().filter(|line| line.contains(&nonce)).collect();
        assert_eq!(seen, [""; 0], "{shell:?}");
        fs::write(bench.at("home/go"), "").unwrap();
        let done = timeout(PATIENCE, session.run_job(Payload::new("true"), "j1")).await.expect("hangs").unwrap();
        assert!(matches!(done, JobState::Finished(outcome) if !outcome.failed), "{shell:?}");

        // The same for a step, which looks by itself.
        let looks = r#"
            tmp_dir
            sleep 30 & other=$!
            sh -c 'sleep 30' "$TMP" "$_stop" & another=$!
            for file in /proc/[0-9]*/cmdline; do
                case $(tr '\0' ' ' <"$file" 2>/dev/null) in *"${_nonce#*-}"*) result seen "$file" ;; esac
            done
            kill "$other" "$another""#;
        let outcome = session.run_one(Payload::new(looks), false).await.unwrap();
        assert!(!outcome.failed && !outcome.data.contains_key("seen"), "{shell:?} {outcome:?}");
    }
}

fn command_lines() -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path().join("cmdline"));
    processes.filter_map(|path| fs::read(path).ok()).map(|line| String::from_utf8_lossy(&line).into_owned()).collect()
}

/// What the result of an earlier runner is read by has both nonces in it.
#[tokio::test]
async fn what_was_done_before_is_told_without_a_nonce_on_a_command_line() {
    for shell in SHELLS {
        let bench = Bench::new();
        let tools = bench.at("tools");
        fs::create_dir(&tools).unwrap();
        let sed = "#!/bin/sh\ntr '\\0' ' ' </proc/$$/cmdline >>LOG\nexec /usr/bin/env PATH=/usr/bin:/bin sed \"$@\"\n";
        fs::write(tools.join("sed"), sed.replace("LOG", &bench.text("log"))).unwrap();
        set_mode(&tools.join("sed"), 0o755);
        let home = format!("HOME={}", bench.text("home"));
        let path = format!("PATH={}:/usr/bin:/bin", tools.display());
        let session = bench.session_with(&[&home, &path], shell);
        for _ in 0..2 {
            let outcome = run_once(&session, "run").await;
            assert_eq!(outcome.stdout, "real", "{shell:?} {outcome:?}");
        }
        let log = fs::read_to_string(bench.at("log")).unwrap();
        assert!(log.contains("sed") && !log.contains("ETCDRUN-"), "{shell:?} {log}");
    }
}

#[tokio::test]
async fn root_keeps_no_lock_in_a_folder_of_another_user() {
    for protected in [true, false] {
        let _guard = ProtectedSymlinks::set(protected);
        for shell in SHELLS {
            for plot in ["mkdir -m 1777 locks", "mkdir -m 700 locks", "ln -s home locks", "touch locks"] {
                let bench = Bench::new();
                bench.stranger(plot);
                let session = bench.session(shell);
                let granted = take(&session, &bench, "r1", "host-a").await.unwrap().granted;
                assert_eq!(granted, ["host-a"], "{shell:?} {plot}");
                let seen = fs::symlink_metadata(bench.at("locks")).unwrap();
                assert_eq!((seen.uid(), seen.mode()), (0, 0o041_777), "{shell:?} {plot}");
                assert_eq!(fs::metadata(bench.at("home")).unwrap().mode() & 0o7777, 0o755, "{shell:?} {plot}");
            }
        }
    }
}

#[tokio::test]
async fn a_lock_in_a_folder_of_its_owner_counts_for_root_and_nobody_else_uses_the_folder() {
    for shell in SHELLS {
        let bench = Bench::new();
        let user = |uid: u32| {
            let uid = format!("--reuid={uid}");
            bench.session_with(&["HOME=/nonexistent", "setpriv", &uid, "--regid=65533", "--clear-groups"], shell)
        };
        let (root, first, second) = (bench.session(shell), user(STRANGER), user(65533));
        assert_eq!(take(&first, &bench, "r1", "host-a").await.unwrap().granted, ["host-a"]);
        let error = take(&second, &bench, "r2", "host-b").await.unwrap_err();
        assert!(error.to_string().contains("another user owns it"), "{shell:?} {error}");
        let answer = take(&root, &bench, "r3", "host-a").await.unwrap();
        assert_eq!(answer.holders.iter().map(|holder| &*holder.run).collect::<Vec<_>>(), ["r1"], "{shell:?}");
        let error = take(&root, &bench, "r3", "host-b").await.unwrap_err();
        assert!(error.to_string().contains("there are locks in it"), "{shell:?} {error}");
        assert!(release(&root, &bench, "r1", Release::Break(Duration::ZERO)).await.is_err(), "{shell:?}");
        assert_eq!(release(&first, &bench, "r1", Release::Only).await.unwrap(), 1);
        assert_eq!(take(&root, &bench, "r3", "host-b").await.unwrap().granted, ["host-b"], "{shell:?}");
        // From now on it is root's, and all share it.
        assert_eq!(take(&second, &bench, "r2", "host-a").await.unwrap().granted, ["host-a"], "{shell:?}");
        assert_eq!(take(&first, &bench, "r1", "host-a").await.unwrap().holders.len(), 1, "{shell:?}");
        assert_eq!(release(&root, &bench, "r2", Release::Break(Duration::ZERO)).await.unwrap(), 1, "{shell:?}");
    }
}

#[tokio::test]
async fn what_is_no_lock_neither_hangs_nor_misleads() {
    let odd = ["mkfifo locks/host-a.lock", "ln -s ../victim locks/host-a.lock", "mkdir locks/host-a.lock"];
    for shell in SHELLS {
        for plot in odd {
            let bench = Bench::new();
            let session = bench.session(shell);
            take(&session, &bench, "r0", "host-b").await.unwrap();
            bench.stranger(plot);
            let error = take(&session, &bench, "r1", "host-a").await.unwrap_err();
            assert!(error.to_string().contains("is not a regular file"), "{shell:?} {plot}: {error}");
            assert_eq!(release(&session, &bench, "r0", Release::Only).await.unwrap(), 1, "{shell:?} {plot}");
            bench.assert_unharmed(plot);
        }
        // In the name of our own run, in the words of our own lock.
        let bench = Bench::new();
        let session = bench.session(shell);
        take(&session, &bench, "r1", "host-b").await.unwrap();
        bench.stranger("cp locks/host-b.lock locks/host-a.lock");
        let error = take(&session, &bench, "r1", "host-a").await.unwrap_err();
        assert!(error.to_string().contains("another user has made it"), "{shell:?} {error}");
        // Neither a run nor a generation.
        bench.stranger("printf '1 $(x); rm -rf\\nx\\n' >locks/host-c.lock");
        let error = take(&session, &bench, "r1", "host-c").await.unwrap_err();
        assert!(error.to_string().contains("says not whose it is"), "{shell:?} {error}");
    }
}

#[tokio::test]
async fn generations_of_others_and_those_that_do_not_fit_do_not_count() {
    let many = "9".repeat(25);
    for shell in SHELLS {
        let bench = Bench::new();
        let session = bench.session(shell);
        take(&session, &bench, "r0", "host-b").await.unwrap();
        let generation = |bench: &Bench| fs::read_to_string(bench.at("locks/host-a.lock")).unwrap();
        for (round, plot) in [
            format!("echo {many} >locks/host-a+generation+0; echo {many} >locks/host-a+generation+{STRANGER}"),
            format!("rm -f locks/host-a+generation+{STRANGER}; mkfifo locks/host-a+generation+{STRANGER}"),
            format!("rm -f locks/host-a+generation+{STRANGER}; ln -s ../victim locks/host-a+generation+{STRANGER}"),
        ]
        .iter()
        .enumerate()
        {
            bench.stranger(plot);
            assert_eq!(take(&session, &bench, "r1", "host-a").await.unwrap().granted, ["host-a"], "{shell:?} {plot}");
            assert!(generation(&bench).starts_with(&format!("{} r1\n", round + 1)), "{shell:?} {}", generation(&bench));
            assert_eq!(release(&session, &bench, "r1", Release::Only).await.unwrap(), 1, "{shell:?} {plot}");
        }
        // In a file of our own.
        fs::write(bench.at("locks/host-a+generation+0"), format!("3\n{many}\n0x10\n4\n")).unwrap();
        take(&session, &bench, "r1", "host-a").await.unwrap();
        assert!(generation(&bench).starts_with("5 r1\n"), "{shell:?} {}", generation(&bench));
        bench.assert_unharmed("generation");
    }
}

/// Ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The name of the folder is now a folder, now a link to a file of root, as fast as the stranger can.
#[tokio::test]
async fn a_lock_folder_that_is_exchanged_all_the_time_harms_no_file() {
    let _guard = ProtectedSymlinks::set(false);
    for shell in SHELLS {
        let bench = Bench::new();
        let swap = "while :; do mkdir locks; rmdir locks; ln -s victim locks; rm -f locks; done 2>/dev/null";
        let _swapping = Ended(bench.as_stranger(swap).spawn().unwrap());
        let session = bench.session(shell);
        for round in 0..20 {
            let run = format!("r{round}");
            let granted = take(&session, &bench, &run, "host-a").await.is_ok_and(|answer| !answer.granted.is_empty());
            bench.assert_unharmed("lock folder");
            if granted {
                let seen = fs::symlink_metadata(bench.at("locks")).unwrap();
                assert_eq!((seen.uid(), seen.mode()), (0, 0o041_777), "{shell:?}");
                // The stranger puts links into it all the while.
                let emptied = (0..1000).any(|_| fs::remove_dir_all(bench.at("locks")).is_ok());
                assert!(emptied, "{shell:?}");
            }
        }
    }
}

/// A program of this name that lets the stranger exchange a file for a link to another just before it runs.
fn swapping(bench: &Bench, program: &str, name: &str) {
    let tools = bench.at("tools");
    fs::create_dir_all(&tools).unwrap();
    let text = format!(
        "#!/bin/sh\nfor file in {}; do rm -rf \"$file\"; ln -s {} \"$file\"; chown -h {STRANGER} \"$file\"; done\nPATH=/usr/bin:/bin\nexec {program} \"$@\"\n",
        bench.text(&format!("drop/{name}")),
        bench.text("victim"),
    );
    fs::write(tools.join(program), text.replace("chown -h", "/bin/chown -h")).unwrap();
    set_mode(&tools.join(program), 0o755);
}

fn module_session(bench: &Bench, shell: &[&str]) -> Arc<Session> {
    let path = format!("PATH={}:/usr/bin:/bin:/usr/sbin:/sbin", bench.text("tools"));
    local_session(&[&["env", &path], shell].concat())
}

/// A folder of the stranger's.
fn drop_folder(bench: &Bench) -> String {
    bench.stranger("mkdir drop");
    bench.text("drop")
}

#[tokio::test]
async fn attributes_are_given_to_the_file_that_was_written_and_to_no_other() {
    for shell in SHELLS {
        for (program, name) in [("chown", ".etcdrun.*"), ("chmod", ".etcdrun.*")] {
            let bench = Bench::new();
            let dest = format!("{}/x", drop_folder(&bench));
            swapping(&bench, program, name);
            let args = format!("{{content: text, dest: {dest}, owner: '{STRANGER}', mode: '0644'}}");
            run_module(&module_session(&bench, shell), "copy", &args, false).await;
            bench.assert_unharmed(&format!("copy {program} {shell:?}"));
        }
        for (program, args) in [
            ("chown", "{path: DROP/x, owner: '65534', mode: '0644'}"),
            ("chmod", "{path: DROP/x, owner: '65534', mode: '0644'}"),
            ("chown", "{path: DROP/x, owner: '65534', mode: '0644', state: touch}"),
            ("chmod", "{path: DROP/x, state: directory, owner: '65534', mode: '0755'}"),
        ] {
            let bench = Bench::new();
            let folder = drop_folder(&bench);
            if !args.contains("directory") {
                fs::write(bench.at("drop/x"), "old").unwrap();
            }
            swapping(&bench, program, "x");
            let args = args.replace("DROP", &folder);
            run_module(&module_session(&bench, shell), "file", &args, false).await;
            bench.assert_unharmed(&format!("file {program} {shell:?} {args}"));
        }
    }
}

#[tokio::test]
async fn a_link_that_another_user_made_is_not_followed() {
    for shell in SHELLS {
        let cases = [
            ("file", "{path: DROP/link, owner: '65534', mode: '0644'}"),
            ("file", "{path: DROP/link, owner: '65534', state: touch}"),
            ("copy", "{content: text, dest: DROP/link, owner: '65534', follow: true}"),
            ("copy", "{content: text, dest: DROP/folder, owner: '65534'}"),
            ("copy", "{content: text, dest: DROP/folder/victim, owner: '65534'}"),
            ("line_in_file", "{path: DROP/link, line: more}"),
        ];
        for (module, args) in cases {
            let bench = Bench::new();
            let folder = drop_folder(&bench);
            bench.stranger("ln -s ../victim drop/link; ln -s .. drop/folder");
            let args = args.replace("DROP", &folder);
            let session = local_session(shell);
            let outcome = run_module(&session, module, &args, false).await;
            let is_refused = outcome.failed && outcome.msg.contains("it is not followed");
            assert!(is_refused, "{shell:?} {module} {args}: {outcome:?}");
            bench.assert_unharmed(&args);
        }
        // To what is his own he may lead us, and so may root.
        let bench = Bench::new();
        let folder = drop_folder(&bench);
        bench.stranger("echo old >drop/own; ln -s own drop/link");
        symlink("own", bench.at("drop/by-root")).unwrap();
        for (name, mode) in [("link", 0o640), ("by-root", 0o600)] {
            let args = format!("{{path: {folder}/{name}, mode: '{mode:04o}'}}");
            let outcome = run_module(&local_session(shell), "file", &args, false).await;
            assert!(!outcome.failed, "{shell:?} {outcome:?}");
            assert_eq!(fs::metadata(bench.at("drop/own")).unwrap().mode() & 0o7777, mode, "{shell:?}");
        }
    }
}

#[tokio::test]
async fn a_backup_is_not_written_through_a_link() {
    for shell in SHELLS {
        let bench = Bench::new();
        let folder = drop_folder(&bench);
        let tools = bench.at("tools");
        fs::create_dir(&tools).unwrap();
        fs::write(tools.join("date"), "#!/bin/sh\necho now\n").unwrap();
        set_mode(&tools.join("date"), 0o755);
        bench.stranger("echo evil >drop/x; ln -s ../victim drop/x.now~");
        let args = format!("{{content: text, dest: {folder}/x, backup: true}}");
        let outcome = run_module(&module_session(&bench, shell), "copy", &args, false).await;
        assert!(!outcome.failed, "{shell:?} {outcome:?}");
        bench.assert_unharmed("backup");
        let backup = Path::new(outcome.data["backup_file"].as_str().unwrap());
        let seen = fs::symlink_metadata(backup).unwrap();
        assert!(seen.is_file() && seen.uid() == STRANGER, "{shell:?} {backup:?} {seen:?}");
        assert_eq!(fs::read_to_string(backup).unwrap(), "evil\n");
    }
}

/// The account of etcd chooses names in the folder of its data, which root sets aside or removes.
#[test]
fn data_is_set_aside_and_removed_by_its_own_names() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/crates/modules/src/support/aside.sh");
    for shell in SHELLS {
        for (work, is_kept) in
            [("aside=$PWD/kept; each_data \"$1\" move_aside", true), ("each_data \"$1\" rm -rf --", false)]
        {
            let bench = Bench::new();
            for name in [".ssh", "kept", "data"] {
                fs::create_dir(bench.at(name)).unwrap();
            }
            let names = ["member", ".hidden", "a\n.ssh", "a b"];
            names.iter().for_each(|name| fs::write(bench.at("data").join(name), "").unwrap());
            symlink("/nowhere", bench.at("data/dangling")).unwrap();
            for name in ["lost+found", "removed-1", "before-1"] {
                fs::create_dir(bench.at("data").join(name)).unwrap();
            }
            let words = format!(". {script}\n{work}");
            let mut command = Command::new(shell[0]);
            command.args(&shell[1..]).args(["-c", &words, "sh", &bench.text("data")]);
            assert!(command.current_dir(bench.folder.path()).status().unwrap().success(), "{shell:?} {work}");
            assert!(bench.at(".ssh").exists(), "{shell:?} {work}");
            let count = |name: &str| fs::read_dir(bench.at(name)).unwrap().count();
            assert_eq!((count("data"), count("kept")), (3, if is_kept { 5 } else { 0 }), "{shell:?} {work}");
        }
    }
}
