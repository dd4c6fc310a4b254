//! Ways to a host that is not reached directly: jump chains, relays, ProxyCommand, tunnels.
use crate::support::{Sshd, options, run as run_local};
use etcdrun::ssh::{Connection, Connector, Endpoint, Options, SshError};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Runs a command and returns what it printed.
async fn output(connection: &Connection, command: &str) -> String {
    let output = connection.exec(command).await.unwrap().output("").await.unwrap();
    assert!(output.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Marks the sessions of a server, so that a test can tell where it is.
fn marked(mark: &str) -> crate::support::SshdBuilder {
    Sshd::builder().env("MARK", mark)
}

#[tokio::test]
async fn a_chain_of_two_jump_hosts_leads_to_the_target() {
    let (outer, inner, target) = (marked("outer").start(), marked("inner").start(), marked("target").start());
    let connector = Connector::new(options(&target.path(""))).unwrap();
    let connector = connector.with_hosts([
        outer.endpoint("outer", "127.0.2.1"),
        Endpoint { jump: vec!["outer".to_owned()], ..inner.endpoint("inner", "127.0.2.2") },
    ]);
    let endpoint = Endpoint { jump: vec!["inner".to_owned()], ..target.endpoint("h1", "127.0.2.3") };
    let connection = connector.connect(&endpoint).await.unwrap();
    // Each server sees the one before it, and nobody else.
    assert_eq!(output(&connection, "echo $MARK").await, "target");
    assert_eq!(target.sessions().len(), 1, "one process: root has no second one");
    let spelled_out = Endpoint { jump: ["outer", "inner"].map(str::to_owned).into(), ..endpoint };
    let again = connector.connect(&spelled_out).await.unwrap();
    assert_eq!(output(&again, "echo $MARK").await, "target");
    // Both ways are the same chain, so the jump hosts were connected to once.
    assert_eq!(outer.sessions().len(), 1);
    assert_eq!(inner.sessions().len(), 1);
}

#[tokio::test]
async fn every_hop_has_its_own_host_key_checked() {
    let (jump, target) = (Sshd::start(), Sshd::start());
    let connector = Connector::new(options(&target.path(""))).unwrap();
    let connector = connector.with_hosts([jump.endpoint("jump", "127.0.2.1")]);
    let endpoint = Endpoint { jump: vec!["jump".to_owned()], ..target.endpoint("h1", "127.0.2.2") };
    connector.connect(&endpoint).await.unwrap();

    let stranger = Endpoint { known_hosts: Vec::new(), ..jump.endpoint("jump", "127.0.2.1") };
    let connector = Connector::new(options(&target.path(""))).unwrap().with_hosts([stranger]);
    let error = connector.connect(&endpoint).await.unwrap_err();
    assert!(error.to_string().starts_with("via jump (127.0.2.1:"), "{error}");
    assert!(error.to_string().contains("is unknown") && !error.is_unreachable(), "{error}");

    let endpoint = Endpoint { known_hosts: Vec::new(), ..endpoint };
    let connector = Connector::new(options(&target.path(""))).unwrap();
    let error = connector.with_hosts([jump.endpoint("jump", "127.0.2.1")]).connect(&endpoint).await.unwrap_err();
    assert!(error.to_string().contains("the host key of h1 (127.0.2.2:"), "{error}");
}

#[tokio::test]
async fn a_jump_host_that_forbids_forwarding_relays_with_a_command() {
    let jump = Sshd::builder().config("AllowTcpForwarding no").config("MaxSessions 3").start();
    let target = marked("target").start();
    let connector = Connector::new(options(&target.path(""))).unwrap();
    let connector = connector.with_hosts([jump.endpoint("jump", "127.0.2.1")]);
    // More hosts than one connection to the jump host has sessions for.
    let endpoints: Vec<_> = (1..=8)
        .map(|n| {
            let (name, address) = Sshd::host(n);
            Endpoint { jump: vec!["jump".to_owned()], ..target.endpoint(&name, &address) }
        })
        .collect();
    let attempts = endpoints.iter().map(|endpoint| connector.connect(endpoint));
    let connections = futures_util::future::join_all(attempts).await;
    for connection in &connections {
        assert_eq!(output(connection.as_ref().unwrap(), "echo $MARK").await, "target");
    }
}

#[tokio::test]
async fn a_jump_host_that_cannot_reach_the_target_says_so() {
    let jump = Sshd::start();
    let connector = Connector::new(options(&jump.path(""))).unwrap();
    let connector = connector.with_hosts([jump.endpoint("jump", "127.0.2.1")]);
    let endpoint = Endpoint { jump: vec!["jump".to_owned()], port: Some(1), ..jump.endpoint("h1", "127.0.2.2") };
    let error = connector.connect(&endpoint).await.unwrap_err();
    let expected =
        format!("jump (127.0.2.1:{}) could not reach h1 (127.0.2.2:1): the connection failed there", jump.port);
    assert_eq!(error.to_string(), expected);
    assert!(error.is_unreachable());

    let forbidding = Sshd::builder().config("AllowTcpForwarding no").start();
    let connector = connector.with_hosts([forbidding.endpoint("jump", "127.0.2.1")]);
    let error = connector.connect(&endpoint).await.unwrap_err();
    assert!(error.to_string().contains("cannot connect to h1"), "{error}");
    assert!(error.is_unreachable());
}

/// A port that nobody answers at: its queue is full, and the kernel drops what comes.
async fn silent(address: &str) -> (TcpListener, Vec<TcpStream>) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(format!("{address}:0").parse().unwrap()).unwrap();
    let (listener, mut waiting) = (socket.listen(1).unwrap(), Vec::new());
    let at = listener.local_addr().unwrap();
    while let Ok(stream) = tokio::time::timeout(Duration::from_millis(300), TcpStream::connect(at)).await {
        waiting.push(stream.unwrap());
        assert!(waiting.len() < 20, "its queue never ends");
    }
    (listener, waiting)
}

#[tokio::test]
async fn who_is_silent_is_named_also_behind_a_jump_host() {
    let jump = Sshd::start();
    let (listener, _waiting) = silent("127.0.2.2").await;
    let port = listener.local_addr().unwrap().port();
    let quick = Options { connect_timeout: Duration::from_secs(2), ..options(&jump.path("")) };
    let connector = Connector::new(quick).unwrap().with_hosts([jump.endpoint("jump", "127.0.2.1")]);
    let direct = Endpoint { port: Some(port), ..jump.endpoint("h1", "127.0.2.2") };
    let error = connector.connect(&direct).await.unwrap_err();
    let silent = format!("h1 (127.0.2.2:{port}) did not answer within 2s (connecting)");
    assert_eq!((error.to_string(), error.is_unreachable()), (silent.clone(), true));
    let behind = Endpoint { jump: vec!["jump".to_owned()], ..direct };
    let error = connector.connect(&behind).await.unwrap_err();
    assert_eq!(
        (error.to_string(), error.is_unreachable()),
        (format!("via jump (127.0.2.1:{}): {silent}", jump.port), true)
    );
}

#[tokio::test]
async fn a_jump_host_that_went_away_is_connected_to_again() {
    let (mut jump, target) = (Sshd::start(), Sshd::start());
    let connector = Connector::new(options(&target.path(""))).unwrap();
    let endpoint = Endpoint { jump: vec!["jump".to_owned()], ..target.endpoint("h1", "127.0.2.2") };
    let with = connector.with_hosts([jump.endpoint("jump", "127.0.2.1")]);
    let connection = with.connect(&endpoint).await.unwrap();
    for session in jump.sessions() {
        crate::support::signal(session, rustix::process::Signal::KILL);
    }
    tokio::time::timeout(Duration::from_secs(10), connection.closed()).await.unwrap();
    with.connect(&endpoint).await.unwrap();
    jump.kill();
}

#[tokio::test]
async fn a_proxy_command_carries_the_connection_and_ends_with_it() {
    let sshd = marked("target").start();
    let endpoint = Endpoint { proxy_command: Some("busybox nc %h %p".to_owned()), ..sshd.endpoint("h1", "127.0.2.1") };
    let connector = Connector::new(options(&sshd.path(""))).unwrap();
    let connection = connector.connect(&endpoint).await.unwrap();
    assert_eq!(output(&connection, "echo $MARK").await, "target");
    let me = i32::try_from(std::process::id()).unwrap();
    let helpers = || {
        let is_helper = |pid: &i32| {
            let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.contains(&sshd.port.to_string()) && line.starts_with("busybox")
        };
        crate::support::descendants(me).into_iter().filter(is_helper).count()
    };
    assert_eq!(helpers(), 1);
    connection.disconnect().await;
    drop(connection);
    for _ in 0..200 {
        if helpers() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the helper lives on");
}

#[tokio::test]
async fn a_proxy_command_that_fails_explains_itself() {
    let sshd = Sshd::start();
    let endpoint = Endpoint {
        proxy_command: Some("sh -c 'echo no route today >&2; exit 1'".to_owned()),
        ..sshd.endpoint("h1", "127.0.2.1")
    };
    let error = Connector::new(options(&sshd.path(""))).unwrap().connect(&endpoint).await.unwrap_err();
    assert!(matches!(error, SshError::Connect { .. }), "{error}");
    assert!(error.to_string().contains("(no route today)"), "{error}");
}

#[tokio::test]
async fn a_tunnel_reaches_what_the_host_reaches() {
    let sshd = Sshd::start();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let echo = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).await.unwrap();
        stream.write_all(&received).await.unwrap();
    });
    let connector = Connector::new(options(&sshd.path(""))).unwrap();
    let connection = connector.connect(&sshd.endpoint("h1", "127.0.1.1")).await.unwrap();
    let mut tunnel = connection.open_tcp("127.0.0.1", port).await.unwrap();
    tunnel.write_all(b"through the tunnel").await.unwrap();
    tunnel.shutdown().await.unwrap();
    let mut answer = String::new();
    tunnel.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "through the tunnel");
    echo.await.unwrap();
    let refused = connection.open_tcp("127.0.0.1", 1).await.unwrap_err();
    assert!(matches!(refused, SshError::Tunnel { .. }), "{refused}");
}

#[tokio::test]
async fn the_operators_configuration_can_say_it_all() {
    let (jump, target) = (Sshd::start(), marked("target").start());
    let options = options(&target.path(""));
    let config = format!(
        "Host web\n HostName 127.0.2.2\n ProxyJump gate\n Port {}\n IdentityFile {}\n UserKnownHostsFile {}\n\
         Host gate\n HostName 127.0.2.1\n Port {}\n IdentityFile {}\n UserKnownHostsFile {}\n\
         Host *\n User {}\n IdentitiesOnly yes\n IdentityAgent none\n",
        target.port,
        target.key().display(),
        target.known_hosts().display(),
        jump.port,
        jump.key().display(),
        jump.known_hosts().display(),
        target.user
    );
    std::fs::write(options.config_file.as_ref().unwrap(), config).unwrap();
    // ssh itself understands the same file in the same way.
    let file = options.config_file.as_ref().unwrap().to_str().unwrap();
    let dumped = String::from_utf8(run_local("ssh", &["-F", file, "-G", "web"]).stdout).unwrap();
    assert!(dumped.contains("hostname 127.0.2.2\n") && dumped.contains("proxyjump gate\n"), "{dumped}");
    let connection = Connector::new(options).unwrap().connect(&Endpoint::new("web")).await.unwrap();
    assert_eq!(output(&connection, "echo $MARK").await, "target");
}
