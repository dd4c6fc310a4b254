//! Connections that break, hang, or are refused: always an error, never a wait without end.
use std::time::{Duration, Instant};

use crate::support::{Sshd, options, signal};
use etcdrun::ssh::{Connection, Connector, ExecEvent, Options, SshError};
use rustix::process::Signal;

async fn connect(sshd: &Sshd, options: Options) -> Connection {
    Connector::new(options).unwrap().connect(&sshd.endpoint("h1", "127.0.1.1")).await.unwrap()
}

/// Keepalives that notice within a second or so.
fn impatient(sshd: &Sshd) -> Options {
    Options { keepalive_interval: Duration::from_millis(200), keepalive_max: 3, ..options(&sshd.path("")) }
}

#[tokio::test]
async fn a_server_killed_in_mid_command_is_noticed_at_once() {
    let mut sshd = Sshd::start();
    let connection = connect(&sshd, options(&sshd.path(""))).await;
    let mut exec = connection.exec("echo up; exec sleep 60").await.unwrap();
    assert_eq!(exec.next().await.unwrap(), Some(ExecEvent::Stdout("up\n".into())));
    let started = Instant::now();
    sshd.kill();
    let error = exec.next().await.unwrap_err();
    assert!(matches!(error, SshError::Dropped { .. }) && error.is_unreachable(), "{error}");
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    assert!(connection.is_closed());
    connection.closed().await;
    let error = connection.exec("true").await.unwrap_err();
    assert!(matches!(error, SshError::Dropped { .. }), "{error}");
}

#[tokio::test]
async fn a_host_that_hangs_is_given_up_by_keepalives() {
    let sshd = Sshd::start();
    let connection = connect(&sshd, impatient(&sshd)).await;
    let mut exec = connection.exec("echo up; exec sleep 60").await.unwrap();
    exec.next().await.unwrap();
    for session in sshd.sessions() {
        signal(session, Signal::STOP);
    }
    let outcome = tokio::time::timeout(Duration::from_secs(20), exec.next()).await;
    let error = outcome.unwrap().unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("the connection to h1 (127.0.1.1:{}) was lost: the host no longer answers", sshd.port)
    );
}

#[tokio::test]
async fn a_host_that_hangs_in_mid_upload_is_given_up_too() {
    let sshd = Sshd::start();
    let connection = connect(&sshd, impatient(&sshd)).await;
    let (mut writer, mut reader) = connection.exec("exec cat >/dev/null").await.unwrap().split();
    writer.write(vec![0u8; 1 << 20]).await.unwrap();
    for session in sshd.sessions() {
        signal(session, Signal::STOP);
    }
    let upload = async {
        loop {
            if let Err(error) = writer.write(vec![0u8; 1 << 20]).await {
                return error;
            }
        }
    };
    let error = tokio::time::timeout(Duration::from_secs(20), upload).await.unwrap();
    assert!(matches!(error, SshError::Dropped { .. }), "{error}");
    let error = tokio::time::timeout(Duration::from_secs(20), reader.next()).await.unwrap().unwrap_err();
    assert!(matches!(error, SshError::Dropped { .. }), "{error}");
}

#[tokio::test]
async fn a_server_that_hangs_before_the_handshake_times_out() {
    let sshd = Sshd::start();
    signal(sshd.pid(), Signal::STOP);
    let quick = Options { connect_timeout: Duration::from_millis(300), connect_attempts: 2, ..options(&sshd.path("")) };
    let connector = Connector::new(quick).unwrap();
    let error = connector.connect(&sshd.endpoint("h1", "127.0.1.1")).await.unwrap_err();
    signal(sshd.pid(), Signal::CONT);
    assert!(matches!(error, SshError::Timeout { .. }) && error.is_unreachable(), "{error}");
}

#[tokio::test]
async fn a_refused_connection_is_tried_again_until_the_host_is_up() {
    let mut sshd = Sshd::start();
    sshd.kill();
    let connector = Connector::new(Options { connect_attempts: 2, ..options(&sshd.path("")) }).unwrap();
    let endpoint = sshd.endpoint("h1", "127.0.1.1");
    let started = Instant::now();
    let error = connector.connect(&endpoint).await.unwrap_err();
    assert!(started.elapsed() >= Duration::from_millis(250), "it waits before it tries again");
    assert!(error.to_string().contains("Connection refused") && error.is_unreachable(), "{error}");

    let connector = Connector::new(Options { connect_attempts: 20, ..options(&sshd.path("")) }).unwrap();
    let attempt = tokio::spawn(async move { connector.connect(&endpoint).await });
    sshd.restart();
    attempt.await.unwrap().unwrap();
}

#[tokio::test]
async fn more_commands_than_the_server_has_sessions_wait_for_their_turn() {
    let sshd = Sshd::builder().config("MaxSessions 3").start();
    let connection = connect(&sshd, options(&sshd.path(""))).await;
    let commands = (0..12).map(|n| {
        let connection = connection.clone();
        async move {
            // Longer than the pauses between attempts, so that those alone would not do.
            let exec = connection.exec(&format!("sleep 1; echo {n}")).await?;
            exec.output("").await
        }
    });
    let outputs = futures_util::future::join_all(commands).await;
    for (n, output) in outputs.into_iter().enumerate() {
        assert_eq!(output.unwrap().stdout, format!("{n}\n").into_bytes());
    }
}

#[tokio::test]
async fn a_server_without_sessions_says_so() {
    let sshd = Sshd::builder().config("MaxSessions 0").start();
    let connection = connect(&sshd, options(&sshd.path(""))).await;
    let error = connection.exec("true").await.unwrap_err();
    assert!(error.to_string().contains("MaxSessions") && !error.is_unreachable(), "{error}");
}
