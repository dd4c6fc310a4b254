//! Jobs that run on by themselves.
use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::support::{Sshd, TempUser, options, signal};
use etcdrun::{
    remote::{JobState, Link, LinkOptions, Payload, RemoteError, Session, Surroundings},
    ssh::Connector,
};
use rustix::process::Signal;

const SHELLS: [&[&str]; 3] = [&["dash"], &["bash"], &["busybox", "sh"]];

/// A local session whose jobs live in a folder of the test.
fn session(shell: &[&str], home: &Path) -> Session {
    let mut command = vec!["env"];
    let home = format!("HOME={}", home.display());
    command.push(&home);
    command.extend(shell);
    Link::local(&command, LinkOptions::default()).session(Surroundings::default())
}

async fn outcome_of(session: &Session, id: &str) -> JobState {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match session.poll(id).await.unwrap() {
            JobState::Running => assert!(Instant::now() < deadline, "{id} never ends"),
            state => return state,
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
}

#[tokio::test]
async fn a_job_reports_as_a_step_does() {
    for shell in SHELLS {
        let home = tempfile::tempdir().unwrap();
        let session = session(shell, home.path());
        let body =
            "echo \"$arg_word\"; echo err >&2; changed; result color blue; ls \"$HOME/.etcdrun/jobs/j1\" >&2; exit 3";
        let payload = Payload::new(body).value("word", "it's\nme").capture();
        session.detach(payload, "j1", Some(Duration::from_secs(30))).await.unwrap();
        let JobState::Finished(outcome) = outcome_of(&session, "j1").await else { panic!("{shell:?}") };
        assert_eq!((outcome.stdout.as_str(), outcome.rc), ("it's\nme", Some(3)), "{shell:?} {outcome:?}");
        assert!(outcome.changed && outcome.failed && outcome.data["color"] == "blue");
        // The script, which may hold secrets, is gone as soon as it is read.
        assert!(outcome.stderr.starts_with("err\n") && !outcome.stderr.contains("script"), "{outcome:?}");
        // It stays until it is forgotten.
        assert!(matches!(session.poll("j1").await.unwrap(), JobState::Finished(_)));
        session.forget("j1").await.unwrap();
        assert_eq!(session.poll("j1").await.unwrap(), JobState::Absent);
        assert_eq!(std::fs::read_dir(home.path().join(".etcdrun/jobs")).unwrap().count(), 0);
    }
}

#[tokio::test]
async fn a_job_starts_once_and_is_not_forgotten_while_it_runs() {
    for shell in SHELLS {
        let home = tempfile::tempdir().unwrap();
        let session = session(shell, home.path());
        let body = "echo x >>\"$HOME/count\"; until [ -e \"$HOME/go\" ]; do sleep 0.05; done";
        session.detach(Payload::new(body), "once", None).await.unwrap();
        let error = session.detach(Payload::new(body), "once", None).await.unwrap_err();
        assert_eq!(error.to_string(), "job once: there is a job once already");
        assert_eq!(session.poll("once").await.unwrap(), JobState::Running);
        let error = session.forget("once").await.unwrap_err();
        assert!(matches!(error, RemoteError::Job(_)) && error.to_string().contains("still runs"), "{error:?}");
        std::fs::write(home.path().join("go"), "").unwrap();
        assert!(matches!(outcome_of(&session, "once").await, JobState::Finished(outcome) if !outcome.failed));
        assert_eq!(std::fs::read_to_string(home.path().join("count")).unwrap(), "x\n");
    }
}

#[tokio::test]
async fn a_job_over_its_limit_is_ended_with_all_it_started() {
    for shell in SHELLS {
        let home = tempfile::tempdir().unwrap();
        let session = session(shell, home.path());
        let body = "sh -c 'trap \"\" TERM; echo $$ >>\"$HOME/pids\"; while :; do sleep 0.1; done' & sh -c 'echo $$ >>\"$HOME/pids\"; echo said; sleep 60'";
        session.detach(Payload::new(body).capture(), "long", Some(Duration::from_millis(600))).await.unwrap();
        let JobState::Finished(outcome) = outcome_of(&session, "long").await else { panic!("{shell:?}") };
        assert_eq!((outcome.failed, outcome.msg.as_str()), (true, "exceeded its timeout, and was ended"));
        assert_eq!(outcome.stdout, "said");
        let pids = std::fs::read_to_string(home.path().join("pids")).unwrap();
        assert_eq!(pids.lines().count(), 2);
        assert!(pids.lines().all(|pid| !is_alive(pid)), "{shell:?}");
    }
}

#[tokio::test]
async fn a_job_without_result_or_process_is_lost() {
    let home = tempfile::tempdir().unwrap();
    let session = session(&["sh"], home.path());
    session.detach(Payload::new("sleep 60"), "gone", None).await.unwrap();
    let folder = home.path().join(".etcdrun/jobs/gone");
    let keeper = std::fs::read_to_string(folder.join("keeper")).unwrap();
    let keeper: i32 = keeper.split(' ').next().unwrap().parse().unwrap();
    let family = crate::support::descendants(keeper);
    signal(keeper, Signal::KILL);
    family.into_iter().for_each(|pid| signal(pid, Signal::KILL));
    assert!(matches!(outcome_of(&session, "gone").await, JobState::Lost(_)));

    // A process with the same number that started at another time, or before a reboot, is not it.
    let me = std::process::id();
    let line = std::fs::read_to_string(folder.join("keeper")).unwrap();
    let rest = line.trim().splitn(3, ' ').nth(2).unwrap().to_owned();
    std::fs::write(folder.join("keeper"), format!("{me} 1 {rest}\n")).unwrap();
    assert!(matches!(session.poll("gone").await.unwrap(), JobState::Lost(_)));
    let stat = std::fs::read_to_string(format!("/proc/{me}/stat")).unwrap();
    let began = stat.rsplit_once(") ").unwrap().1.split(' ').nth(19).unwrap().to_owned();
    std::fs::write(folder.join("keeper"), format!("{me} {began} {rest}\n")).unwrap();
    assert_eq!(session.poll("gone").await.unwrap(), JobState::Running);
    assert_eq!(session.has_booted_since("gone").await.unwrap(), Some(false));
    let nonce = rest.split(' ').next().unwrap();
    std::fs::write(folder.join("keeper"), format!("{me} {began} {nonce} another-boot\n")).unwrap();
    assert!(matches!(session.poll("gone").await.unwrap(), JobState::Lost(_)));
    assert_eq!(session.has_booted_since("gone").await.unwrap(), Some(true));
    session.forget("gone").await.unwrap();
}

#[tokio::test]
async fn a_runner_that_is_killed_is_a_failure_and_not_lost() {
    let home = tempfile::tempdir().unwrap();
    let session = session(&["sh"], home.path());
    session.detach(Payload::new("echo partly; kill -9 $$; sleep 1").capture(), "killed", None).await.unwrap();
    let JobState::Finished(outcome) = outcome_of(&session, "killed").await else { panic!() };
    assert_eq!((outcome.msg.as_str(), outcome.stdout.as_str()), ("was ended from outside (exit code 137)", "partly"));
}

#[tokio::test]
async fn odd_names_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let session = session(&["sh"], home.path());
    for id in ["", "..", "a/b", "a b", "-\n", ".hidden"] {
        assert!(matches!(session.poll(id).await, Err(RemoteError::Job(_))), "{id}");
    }
}

#[tokio::test]
async fn a_job_outlives_the_connection_also_where_there_is_no_home() {
    let sshd = Sshd::start();
    let user = TempUser::create();
    let connector = Connector::new(options(sshd.path("").as_path())).unwrap();
    let mut endpoint = sshd.endpoint("h1", "127.0.1.1");
    endpoint.user = Some(user.name.clone());
    let link: Arc<Link> = Link::new(connector, endpoint, LinkOptions::default());
    let session = link.session(Surroundings::default());
    for (round, home) in ["there", "gone"].into_iter().enumerate() {
        if home == "gone" {
            std::fs::remove_dir_all(format!("/home/{}", user.name)).unwrap();
        }
        let id = format!("{}-{round}", user.name);
        let go = std::env::temp_dir().join(&id);
        let payload = Payload::new("until [ -e \"$1\" ]; do sleep 0.05; done; echo survived").capture();
        session.detach(payload.arg(go.to_str().unwrap()), &id, None).await.unwrap();
        for pid in sshd.sessions() {
            signal(pid, Signal::KILL);
        }
        std::fs::write(&go, "").unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        let state = loop {
            match session.poll(&id).await {
                Ok(JobState::Running) | Err(RemoteError::Lost(_) | RemoteError::Unreachable(_)) => {
                    assert!(Instant::now() < deadline);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                other => break other.unwrap(),
            }
        };
        assert!(matches!(&state, JobState::Finished(outcome) if outcome.stdout == "survived"), "{state:?}");
        session.forget(&id).await.unwrap();
        std::fs::remove_file(go).unwrap();
    }
    let uid = String::from_utf8(crate::support::run("id", &["-u", &user.name]).stdout).unwrap();
    let left = format!("/var/tmp/etcdrun-{}", uid.trim());
    assert_eq!(std::fs::read_dir(format!("{left}/jobs")).unwrap().count(), 0);
    std::fs::remove_dir_all(left).unwrap();
}

#[tokio::test]
async fn a_job_that_is_awaited_runs_once_however_often_it_is_asked_for() {
    for shell in SHELLS {
        let home = tempfile::tempdir().unwrap();
        let session = session(shell, home.path());
        assert_eq!(session.has_booted_since("twice").await.unwrap(), None);
        let body = "echo x >>\"$HOME/count\"; sleep 0.3; umask; changed";
        let payload = || Payload::new(body).capture();
        let (one, other) = tokio::join!(session.run_job(payload(), "twice"), session.run_job(payload(), "twice"));
        let (one, other) = (one.unwrap(), other.unwrap());
        assert!(matches!(&one, JobState::Finished(outcome) if outcome.changed && outcome.stdout == "0022"), "{one:?}");
        assert_eq!(one, other, "{shell:?}");
        assert_eq!(session.run_job(payload(), "twice").await.unwrap(), one);
        assert_eq!(std::fs::read_to_string(home.path().join("count")).unwrap(), "x\n", "{shell:?}");
        session.forget("twice").await.unwrap();
    }
}
