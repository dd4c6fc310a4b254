//! The runner over a real sshd: sudo, login shells, lost connections, time-outs.
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use crate::support::{Sshd, TempUser, options, run, signal};
use etcdrun::{
    model::Outcome,
    remote::{Link, LinkOptions, Payload, RemoteError, Segment, Session, Step, StepSink, Surroundings},
    ssh::Connector,
};
use futures_util::FutureExt as _;
use zeroize::Zeroizing;

struct Deaf;

impl StepSink for Deaf {
    fn started(&self, _step: usize) {}
    fn output(&self, _step: usize, _error: bool, _text: &[u8]) {}
    fn finished(&self, _step: usize, _outcome: &Outcome) {}
}

/// Calls when a step has said something.
struct OnOutput<F: Fn() + Send + Sync>(F);

impl<F: Fn() + Send + Sync> StepSink for OnOutput<F> {
    fn started(&self, _step: usize) {}
    fn output(&self, _step: usize, _error: bool, _text: &[u8]) {
        (self.0)();
    }
    fn finished(&self, _step: usize, _outcome: &Outcome) {}
}

fn link_as(sshd: &Sshd, user: &str, password: Option<&str>) -> Arc<Link> {
    let connector = Connector::new(options(sshd.path("").as_path())).unwrap();
    let mut endpoint = sshd.endpoint("h1", "127.0.1.1");
    endpoint.user = Some(user.to_owned());
    let become_password = password.map(|password| Zeroizing::new(password.to_owned()));
    Link::new(connector, endpoint, LinkOptions { become_password, ..LinkOptions::default() })
}

fn link(sshd: &Sshd) -> Arc<Link> {
    link_as(sshd, &sshd.user, None)
}

fn plain(link: &Arc<Link>) -> Session {
    link.session(Surroundings::default())
}

fn becoming(link: &Arc<Link>, user: &str) -> Session {
    link.session(Surroundings { become_user: Some(user.into()), ..Surroundings::default() })
}

fn command(body: &'static str) -> Payload {
    Payload::new(body).capture()
}

/// A rule for sudo that goes away with the test.
struct Sudoers(PathBuf);

impl Sudoers {
    fn new(user: &TempUser, rule: &str) -> Self {
        let path = Path::new("/etc/sudoers.d").join(&user.name);
        std::fs::write(&path, format!("{} {rule}\n", user.name)).unwrap();
        run("chmod", &["440", path.to_str().unwrap()]);
        run("visudo", &["-cqf", path.to_str().unwrap()]);
        Self(path)
    }
}

impl Sudoers {
    /// As sudo does by default since 1.9.14: the command gets a session of its own.
    fn use_pty(&self, user: &TempUser) {
        let rule = std::fs::read_to_string(&self.0).unwrap();
        run("chmod", &["640", self.0.to_str().unwrap()]);
        std::fs::write(&self.0, format!("Defaults:{} use_pty\n{rule}", user.name)).unwrap();
        run("chmod", &["440", self.0.to_str().unwrap()]);
        run("visudo", &["-cqf", self.0.to_str().unwrap()]);
    }
}

impl Drop for Sudoers {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
}

fn name_of(pid: i32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default()
}

#[tokio::test]
async fn ten_steps_cost_one_exec() {
    let sshd = Sshd::start();
    let link = link(&sshd);
    assert!(!link.is_connected());
    let steps = (0..10).map(|n| Step::plain(command("echo \"$1\"").arg(n.to_string()))).collect();
    let outcomes = plain(&link).run(Segment { steps }, &Deaf).await.unwrap();
    let said: Vec<_> = outcomes.iter().map(|outcome| outcome.stdout.as_str()).collect();
    assert_eq!(said, ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
    assert_eq!(link.execs(), 1);
    assert!(link.is_connected());
}

/// etcd's clients keep the future of a connection that took too long, and do not ask it on.
#[tokio::test]
async fn who_stops_asking_for_a_connection_keeps_nobody_from_it() {
    let sshd = Sshd::start();
    let link = link(&sshd);
    let mut begun = [Box::pin(link.connection()), Box::pin(link.connection())];
    for one in &mut begun {
        assert!(one.now_or_never().is_none());
    }
    let connected = tokio::time::timeout(Duration::from_secs(20), link.connection()).await;
    connected.expect("it waits for those who do not ask").unwrap();
}

async fn shell_of(session: &Session) -> String {
    session.run_one(command("echo $$"), false).await.unwrap().stdout
}

#[tokio::test]
async fn the_next_script_finds_the_shell_that_stayed() {
    let sshd = Sshd::start();
    let link = link(&sshd);
    let (session, as_root) = (plain(&link), becoming(&link, "root"));
    let first = shell_of(&session).await;
    assert_eq!(shell_of(&session).await, first);
    let root = shell_of(&as_root).await;
    assert_ne!(root, first, "one for each user");
    assert_eq!((shell_of(&session).await, shell_of(&as_root).await), (first.clone(), root));
    // Groups of other users may change; sudo looks at them when it starts a shell.
    let nobody = becoming(&link, "nobody");
    assert_ne!(shell_of(&nobody).await, shell_of(&nobody).await);

    let both = tokio::join!(
        session.run_one(command("echo $$; sleep 1"), false),
        session.run_one(command("echo $$; sleep 1"), false)
    );
    assert_ne!(both.0.unwrap().stdout, both.1.unwrap().stdout, "one script at a time in each");

    link.reconnect().await.unwrap();
    assert_ne!(shell_of(&session).await, first);
}

#[tokio::test]
async fn a_shell_that_stays_gives_its_session_to_whoever_needs_one() {
    let sshd = Sshd::builder().config("MaxSessions 1").start();
    let link = link(&sshd);
    for _ in 0..3 {
        for session in [plain(&link), becoming(&link, "root"), becoming(&link, "nobody")] {
            let work = session.run_one(command("id -un"), false);
            let outcome = tokio::time::timeout(Duration::from_secs(4), work).await.expect("in time").unwrap();
            assert_eq!(outcome.rc, Some(0), "{outcome:?}");
        }
    }
}

#[tokio::test]
async fn whatever_goes_on_talking_is_not_heard_by_the_next_script() {
    let sshd = Sshd::start();
    let link = link(&sshd);
    let session = plain(&link);
    let noise = command("(while echo noise; do sleep 0.01; done) & result noise $!");
    let outcome = session.run_one(noise, false).await.unwrap();
    let pid = outcome.data["noise"].as_str().unwrap().to_owned();
    eventually("nobody listens to it", || !is_alive(&pid)).await;
    let outcome = session.run_one(command("echo clean"), false).await.unwrap();
    assert_eq!(outcome.stdout, "clean");
}

#[tokio::test]
async fn a_shell_that_stayed_may_die() {
    let sshd = Sshd::start();
    let link = link(&sshd);
    let session = plain(&link);
    let first = shell_of(&session).await;
    signal(first.parse().unwrap(), rustix::process::Signal::KILL);
    eventually("it is gone", || !is_alive(&first)).await;
    // At worst it had not been noticed yet; then it is known that it may have run.
    match session.run_one(command("echo $$"), false).await {
        Ok(outcome) => assert_ne!(outcome.stdout, first),
        Err(error) => assert!(matches!(error, RemoteError::Lost(_)), "{error:?}"),
    }
    assert_ne!(shell_of(&session).await, first);
}

#[tokio::test]
async fn callers_share_one_connection_and_its_failure() {
    let sshd = Sshd::start();
    let link = link(&sshd);
    let session = plain(&link);
    let work = (0..20).map(|_| session.run_one(command("echo $SSH_CONNECTION"), false));
    let outcomes = futures_util::future::try_join_all(work).await.unwrap();
    assert!(outcomes.iter().all(|outcome| outcome.stdout == outcomes[0].stdout), "{outcomes:?}");

    let connector = Connector::new(options(sshd.path("").as_path())).unwrap();
    let mut nowhere = sshd.endpoint("h2", "127.0.1.2");
    nowhere.port = Some(1);
    let session = plain(&Link::new(connector, nowhere, LinkOptions::default()));
    let started = Instant::now();
    let failures = futures_util::future::join_all((0..20).map(|_| session.run_one(command("true"), false))).await;
    for failure in failures {
        let error = failure.unwrap_err();
        assert!(matches!(error, RemoteError::Unreachable(_)) && error.hint().is_some(), "{error:?}");
    }
    assert!(started.elapsed() < Duration::from_secs(15));
}

#[tokio::test]
async fn sudo_without_a_password_is_asked_once_and_given_none() {
    let sshd = Sshd::start();
    let user = TempUser::create();
    let _rule = Sudoers::new(&user, "ALL=(ALL) NOPASSWD: ALL");
    for password in [None, Some("not-wanted")] {
        let link = link_as(&sshd, &user.name, password);
        let session = becoming(&link, "root");
        let outcome = session.run_one(command("id -un; echo $HOME; cat"), false).await.unwrap();
        assert_eq!(outcome.stdout, "root\n/root");
        session.run_one(command("true"), false).await.unwrap();
        assert_eq!(link.execs(), if password.is_some() { 3 } else { 2 });
    }
}

#[tokio::test]
async fn sudo_with_a_password_gets_it_on_stdin() {
    let sshd = Sshd::start();
    let user = TempUser::create();
    user.set_password("pass 'word\\ $x");
    let rule = Sudoers::new(&user, "ALL=(ALL) ALL");
    let link = link_as(&sshd, &user.name, Some("pass 'word\\ $x"));
    let session = becoming(&link, "root");
    let body = "id -un; cat; cat /proc/*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c \"$arg_secret\"; true";
    let outcome = session.run_one(command(body).value("secret", "pass 'wo[r]d"), false).await.unwrap();
    assert_eq!(outcome.stdout, "root\n0");
    let other = becoming(&link, "nobody").run_one(command("id -un"), false).await.unwrap();
    assert_eq!(other.stdout, "nobody");
    session.run_one(command("true"), false).await.unwrap();
    assert_eq!(link.execs(), 7);
    rule.use_pty(&user);
    // A shell that has stayed would not ask again.
    link.reconnect().await.unwrap();
    let outcome = session.run_one(command("id -un; cat; echo err >&2; exit 3"), false).await.unwrap();
    assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str(), outcome.rc), ("root", "err", Some(3)));
}

#[tokio::test]
async fn sudo_that_refuses_is_an_error_with_a_hint() {
    let sshd = Sshd::start();
    let user = TempUser::create();
    user.set_password("right");
    let rule = Sudoers::new(&user, "ALL=(ALL) ALL");

    let error = becoming(&link_as(&sshd, &user.name, None), "root").run_one(command("true"), false).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot become `root`: sudo: a password is required");
    assert!(error.hint().unwrap().contains("-K"), "{error:?}");

    let started = Instant::now();
    let session = becoming(&link_as(&sshd, &user.name, Some("wrong")), "root");
    let error = session.run_one(command("true"), false).await.unwrap_err();
    assert!(matches!(error, RemoteError::Become(_)), "{error:?}");
    assert!(error.to_string().contains("1 incorrect password attempt"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(20));

    drop(rule);
    let session = becoming(&link_as(&sshd, &user.name, Some("right")), "root");
    let error = session.run_one(command("true"), false).await.unwrap_err();
    assert!(error.to_string().contains("not in the sudoers file"), "{error}");
}

#[tokio::test]
async fn a_password_that_stops_working_never_lets_sudo_read_the_script() {
    let sshd = Sshd::start();
    let user = TempUser::create();
    user.set_password("first");
    let _rule = Sudoers::new(&user, "ALL=(ALL) ALL");
    let link = link_as(&sshd, &user.name, Some("first"));
    let session = becoming(&link, "root");
    session.run_one(command("true"), false).await.unwrap();
    user.set_password("second");
    link.reconnect().await.unwrap();
    let error = session.run_one(command("true"), false).await.unwrap_err();
    assert!(error.to_string().contains("3 incorrect password attempts"), "{error}");
}

#[tokio::test]
async fn any_login_shell_will_do_and_may_be_noisy() {
    let sshd = Sshd::start();
    let user = TempUser::create();
    let folder = tempfile::tempdir().unwrap();
    run("chmod", &["755", folder.path().to_str().unwrap()]);
    let busybox = folder.path().join("sh");
    std::os::unix::fs::symlink("/usr/bin/busybox", &busybox).unwrap();
    let noisy = folder.path().join("noisy");
    std::fs::write(&noisy, "#!/bin/bash\necho welcome; echo beware >&2; printf 'no newline'; exec /bin/bash \"$@\"\n")
        .unwrap();
    run("chmod", &["755", noisy.to_str().unwrap()]);
    for shell in ["/bin/dash", "/bin/bash", busybox.to_str().unwrap(), noisy.to_str().unwrap()] {
        run("usermod", &["-s", shell, &user.name]);
        let payload = command("echo out; echo err >&2; exit 3");
        let outcome = plain(&link_as(&sshd, &user.name, None)).run_one(payload, false).await.unwrap();
        assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("out", "err"), "{shell}");
        assert_eq!((outcome.rc, outcome.msg.as_str()), (Some(3), "exit code 3"));
    }
    run("usermod", &["-s", "/usr/sbin/nologin", &user.name]);
    let error = plain(&link_as(&sshd, &user.name, None)).run_one(command("true"), false).await.unwrap_err();
    assert!(error.to_string().contains("not available"), "{error}");
}

#[tokio::test]
async fn a_connection_that_dies_in_a_step_is_lost_and_made_again() {
    let sshd = Sshd::start();
    let link = link(&sshd);
    let folder = tempfile::tempdir().unwrap();
    let counter = folder.path().join("counter");
    let body = "echo x >>\"$arg_counter\"; echo started; sleep 20";
    let payload = command(body).value("counter", counter.to_str().unwrap());
    let sessions = || sshd.sessions().into_iter().for_each(|pid| signal(pid, rustix::process::Signal::KILL));
    let steps = vec![Step::plain(payload)];
    let error = plain(&link).run(Segment { steps }, &OnOutput(sessions)).await.unwrap_err();
    assert!(matches!(error, RemoteError::Lost(_)), "{error:?}");
    let outcome = plain(&link).run_one(command("echo back"), false).await.unwrap();
    assert_eq!(outcome.stdout, "back");
    assert_eq!(std::fs::read_to_string(counter).unwrap(), "x\n");
}

#[tokio::test]
async fn a_server_that_is_gone_is_unreachable() {
    let mut sshd = Sshd::start();
    let link = link(&sshd);
    plain(&link).run_one(command("true"), false).await.unwrap();
    sshd.kill();
    let error = plain(&link).run_one(command("true"), false).await.unwrap_err();
    assert!(error.is_unreachable(), "{error:?}");
    let error = plain(&link).run_one(command("true"), false).await.unwrap_err();
    assert!(matches!(error, RemoteError::Unreachable(_)), "{error:?}");
}

#[tokio::test]
async fn a_step_that_takes_too_long_leaves_nothing_running() {
    let sshd = Sshd::start();
    let user = TempUser::create();
    let rule = Sudoers::new(&user, "ALL=(ALL) NOPASSWD: ALL");
    for (become_user, pty) in [(None, false), (Some("root"), false), (Some("nobody"), false), (Some("root"), true)] {
        if pty {
            rule.use_pty(&user);
        }
        let folder = tempfile::tempdir().unwrap();
        run("chmod", &["777", folder.path().to_str().unwrap()]);
        let pids = folder.path().join("pids");
        let body = "umask 0; tmp_dir; echo \"$TMP\" >\"$arg_pids.tmp\"; sleep 61 & echo $! >>\"$arg_pids\"; sh -c 'echo $$; sleep 60' >>\"$arg_pids\"; true";
        let link = link_as(&sshd, &user.name, None);
        let session = link.session(Surroundings {
            become_user: become_user.map(Arc::from),
            timeout: Some(Duration::from_secs(1)),
            ..Surroundings::default()
        });
        let started = Instant::now();
        let error = session.run_one(command(body).value("pids", pids.to_str().unwrap()), false).await.unwrap_err();
        assert!(matches!(error, RemoteError::TimedOut(_)), "{error:?}");
        assert!(started.elapsed() < Duration::from_secs(10));
        let pids_text = std::fs::read_to_string(&pids).unwrap();
        assert_eq!(pids_text.lines().count(), 2);
        assert!(pids_text.lines().all(|pid| !is_alive(pid)), "{become_user:?}");
        let tmp = std::fs::read_to_string(folder.path().join("pids.tmp")).unwrap();
        assert!(!Path::new(tmp.trim()).exists(), "{become_user:?}");
        session.run_one(command("true"), false).await.unwrap();
    }
}

#[tokio::test]
async fn a_step_that_takes_too_long_takes_nothing_along_that_an_earlier_one_left() {
    let sshd = Sshd::start();
    let link = link(&sshd);
    let session = link.session(Surroundings { timeout: Some(Duration::from_secs(1)), ..Surroundings::default() });
    let left = command("sleep 60 >/dev/null 2>&1 3>&- & result left $!; result shell $$");
    let first = session.run_one(left, false).await.unwrap();
    let left = first.data["left"].as_str().unwrap().to_owned();
    assert_eq!(first.data["shell"], *shell_of(&session).await, "both are in one session");
    // What starts within one tick of the clock, 10 ms, cannot be told apart.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let error = session.run_one(command("sleep 61"), false).await.unwrap_err();
    assert!(matches!(error, RemoteError::TimedOut(_)), "{error:?}");
    assert!(is_alive(&left));
    signal(left.parse().unwrap(), rustix::process::Signal::KILL);
}

#[tokio::test]
async fn a_step_that_floods_us_with_output_can_still_be_ended() {
    let sshd = Sshd::start();
    let link = link(&sshd);
    let session = link.session(Surroundings { timeout: Some(Duration::from_secs(1)), ..Surroundings::default() });
    let error = session.run_one(command("yes & yes >&2"), false).await.unwrap_err();
    assert!(matches!(error, RemoteError::TimedOut(_)), "{error:?}");
    let names = || sshd.sessions().into_iter().filter(|pid| name_of(*pid) == "yes\n").count();
    eventually("both have ended", || names() == 0).await;
    assert_eq!(session.run_one(command("echo well"), false).await.unwrap().stdout, "well");
}

#[tokio::test]
async fn a_staged_file_belongs_to_whom_the_task_becomes() {
    let sshd = Sshd::start();
    let user = TempUser::create();
    let _rule = Sudoers::new(&user, "ALL=(ALL) NOPASSWD: ALL");
    let link = link_as(&sshd, &user.name, None);
    let local = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(local.path(), vec![7u8; 3 << 20]).unwrap();
    let mut folders = Vec::new();
    for become_user in [None, Some("root"), Some("nobody")] {
        let session = link.session(Surroundings { become_user: become_user.map(Arc::from), ..Surroundings::default() });
        let staged = session.upload(local.path()).await.unwrap();
        folders.push(Path::new(&staged).parent().unwrap().to_owned());
        let body = "stat -c '%U %a' \"$1\" \"${1%/*}\"; cmp \"$1\" \"$2\" 2>&1 || head -c 3 \"$1\" >/dev/null";
        let outcome = session.run_one(command(body).arg(&staged).arg("/dev/null"), false).await.unwrap();
        let owner = become_user.unwrap_or(&user.name);
        assert!(outcome.stdout.starts_with(&format!("{owner} 600\n{owner} 700\n")), "{outcome:?}");
        let mut back = Vec::new();
        assert!(!session.download(&staged, &mut back).await.unwrap().failed);
        assert_eq!(back.len(), 3 << 20);
    }
    assert!(folders.iter().all(|folder| folder.exists()));
    link.close().await;
    assert!(!link.is_connected());
    assert!(!folders.iter().any(|folder| folder.exists()));
}

#[tokio::test]
async fn a_tunnel_opens_from_the_target() {
    use tokio::io::AsyncReadExt as _;
    let sshd = Sshd::start();
    let mut tunnel = plain(&link(&sshd)).open_tcp("127.0.0.1", sshd.port).await.unwrap();
    let mut banner = [0; 8];
    tunnel.read_exact(&mut banner).await.unwrap();
    assert_eq!(&banner, b"SSH-2.0-");
}

#[tokio::test]
async fn a_step_goes_on_to_its_end_when_the_connection_dies_but_no_other_starts() {
    let sshd = Sshd::start();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap().to_owned();
    let first = "echo x; until [ -e \"$1/go\" ]; do sleep 0.05; done; touch \"$1/first\"; tmp_dir; echo $$ >\"$1/pid\"";
    let steps = vec![Step::plain(command(first).arg(&path)), Step::plain(command("touch \"$1/second\"").arg(&path))];
    let link = link(&sshd);
    let sessions = || {
        let servers = sshd.sessions().into_iter().filter(|pid| name_of(*pid).starts_with("sshd"));
        servers.for_each(|pid| signal(pid, rustix::process::Signal::KILL));
    };
    let error = plain(&link).run(Segment { steps }, &OnOutput(sessions)).await.unwrap_err();
    assert!(matches!(error, RemoteError::Lost(_)), "{error:?}");
    std::fs::write(folder.path().join("go"), "").unwrap();
    let pid = folder.path().join("pid");
    eventually("the first step ends", || pid.exists()).await;
    let runner = std::fs::read_to_string(pid).unwrap();
    eventually("the runner ends", || !is_alive(runner.trim())).await;
    assert!(folder.path().join("first").exists() && !folder.path().join("second").exists());
}
