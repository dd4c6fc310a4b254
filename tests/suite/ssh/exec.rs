//! Commands over a real sshd: input, output, and how they end.
use crate::support::{Sshd, TempUser, options};
use bytes::Bytes;
use etcdrun::ssh::{Connector, Exec, ExecEvent, ExitStatus, Output, SshError};
use std::time::{Duration, Instant};

async fn connect(sshd: &Sshd) -> etcdrun::ssh::Connection {
    let connector = Connector::new(options(sshd.path("").as_path())).unwrap();
    connector.connect(&sshd.endpoint("h1", "127.0.1.1")).await.unwrap()
}

async fn run(connection: &etcdrun::ssh::Connection, command: &str) -> Output {
    let exec: Exec = connection.exec(command).await.unwrap();
    exec.output(Bytes::new()).await.unwrap()
}

#[tokio::test]
async fn a_command_has_input_two_outputs_and_an_exit_code() {
    let sshd = Sshd::start();
    let connection = connect(&sshd).await;
    let exec = connection.exec("cat; echo oops >&2; exit 7").await.unwrap();
    let output = exec.output("hello").await.unwrap();
    assert_eq!(output.stdout, b"hello");
    assert_eq!(output.stderr, b"oops\n");
    assert_eq!(output.outcome, Ok(ExitStatus { code: 7 }));
    connection.disconnect().await;
    assert!(connection.is_closed());
}

#[tokio::test]
async fn a_signal_is_told_apart_from_an_exit_code() {
    let sshd = Sshd::start();
    let connection = connect(&sshd).await;
    let mut exec = connection.exec("kill -TERM $$; sleep 5").await.unwrap();
    assert_eq!(exec.next().await.unwrap(), Some(ExecEvent::Signal("TERM".to_owned())));
    assert_eq!(exec.next().await.unwrap(), None);
}

#[tokio::test]
async fn a_running_command_can_be_signalled() {
    // sshd passes no signals on to the commands of root.
    let user = TempUser::create();
    let sshd = Sshd::builder().user(&user.name).start();
    let connection = connect(&sshd).await;
    let mut exec = connection.exec("echo up; exec sleep 30").await.unwrap();
    assert_eq!(exec.next().await.unwrap(), Some(ExecEvent::Stdout("up\n".into())));
    exec.signal(etcdrun::ssh::Signal::Kill).await.unwrap();
    assert_eq!(exec.next().await.unwrap(), Some(ExecEvent::Signal("KILL".to_owned())));
}

#[tokio::test]
async fn a_daemon_that_keeps_the_output_open_does_not_hold_us_up() {
    let sshd = Sshd::start();
    let connection = connect(&sshd).await;
    let started = Instant::now();
    let output = run(&connection, "sleep 20 & echo $!; exit 3").await;
    let daemon: i32 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    crate::support::signal(daemon, rustix::process::Signal::KILL);
    assert_eq!(output.outcome, Ok(ExitStatus { code: 3 }));
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    // The connection is as good as before.
    assert!(run(&connection, "true").await.success());
}

#[tokio::test]
async fn input_that_nobody_reads_ends_in_an_error_instead_of_a_hang() {
    let sshd = Sshd::start();
    let connection = connect(&sshd).await;
    let (mut writer, mut reader) = connection.exec("exec 0<&-; sleep 1; exit 4").await.unwrap().split();
    let feed = tokio::spawn(async move {
        loop {
            if let Err(error) = writer.write(vec![0u8; 1 << 20]).await {
                return error;
            }
        }
    });
    assert_eq!(reader.next().await.unwrap(), Some(ExecEvent::Exit(ExitStatus { code: 4 })));
    assert!(matches!(feed.await.unwrap(), SshError::StdinClosed { .. }));
}

#[tokio::test]
async fn writing_and_reading_at_once_needs_no_split() {
    let sshd = Sshd::start();
    let connection = connect(&sshd).await;
    let mut exec = connection.exec("cat").await.unwrap();
    let body = vec![b'x'; 6 << 20];
    exec.write(body.clone()).await.unwrap();
    exec.eof().await.unwrap();
    let mut echoed = 0;
    let mut code = None;
    while let Some(event) = exec.next().await.unwrap() {
        match event {
            ExecEvent::Stdout(bytes) => echoed += bytes.len(),
            ExecEvent::Exit(status) => code = Some(status.code),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((echoed, code), (body.len(), Some(0)));
}

#[tokio::test]
async fn dropping_a_command_frees_its_session() {
    let sshd = Sshd::builder().config("MaxSessions 2").start();
    let connection = connect(&sshd).await;
    for _ in 0..12 {
        let exec = connection.exec("exec cat").await.unwrap();
        drop(exec);
    }
    assert!(run(&connection, "true").await.success());
}

#[tokio::test]
async fn output_that_came_during_a_write_survives_a_split() {
    let sshd = Sshd::start();
    let connection = connect(&sshd).await;
    let mut exec = connection.exec("cat").await.unwrap();
    // More than sshd takes without giving any of it back.
    let body = vec![b'x'; 8 << 20];
    exec.write(body.clone()).await.unwrap();
    let (mut writer, mut reader) = exec.split();
    writer.eof().await.unwrap();
    let mut echoed = 0;
    while let Some(event) = reader.next().await.unwrap() {
        if let ExecEvent::Stdout(bytes) = event {
            echoed += bytes.len();
        }
    }
    assert_eq!(echoed, body.len());
}
