//! Host keys: what is refused, in which words, and what may be trusted.
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::support::sshd::make_key;
use crate::support::{Sshd, SshdBuilder, options, run};
use etcdrun::ssh::{Connection, Connector, Endpoint, HostKeyError, Options, SshError};

async fn connect(options: Options, endpoint: &Endpoint) -> Result<Connection, SshError> {
    Connector::new(options).unwrap().connect(endpoint).await
}

async fn refusal(sshd: &Sshd, options: Options) -> SshError {
    let error = connect(options, &sshd.endpoint("h1", "127.0.1.1")).await.unwrap_err();
    assert!(!error.is_unreachable(), "{error}");
    error
}

/// A known-hosts file with the given lines, in which HOST stands for the server.
fn known_hosts(sshd: &Sshd, lines: &str) {
    let host = format!("[127.0.1.1]:{}", sshd.port);
    std::fs::write(sshd.known_hosts(), lines.replace("HOST", &host)).unwrap();
}

fn public_key(path: &Path, kind: &str) -> String {
    make_key(path, kind, "");
    let text = std::fs::read_to_string(format!("{}.pub", path.display())).unwrap();
    text.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
}

/// The message and the hint, without what differs from run to run.
fn words(sshd: &Sshd, error: &SshError) -> String {
    let text = format!("{error}\n{}", error.hint().unwrap());
    text.replace(&sshd.path("").display().to_string(), "FOLDER/").replace(&sshd.port.to_string(), "PORT")
}

fn snapshot_settings() -> insta::Settings {
    let mut settings = insta::Settings::clone_current();
    settings.add_filter(r"SHA256:[A-Za-z0-9+/]{43}", "SHA256:…");
    settings.add_filter(r"AAAA[A-Za-z0-9+/=]+", "AAAA…");
    settings
}

macro_rules! assert_words {
    ($sshd:expr, $error:expr, @$expected:literal) => {
        snapshot_settings().bind(|| insta::assert_snapshot!(words(&$sshd, &$error), @$expected));
    };
}

#[tokio::test]
async fn an_unknown_key_is_refused_with_the_line_that_would_trust_it() {
    let sshd = Sshd::start();
    known_hosts(&sshd, "elsewhere ssh-ed25519 AAAA\n");
    let error = refusal(&sshd, options(&sshd.path(""))).await;
    assert_words!(sshd, error, @r#"
    the host key of h1 (127.0.1.1:PORT) is unknown: it sent ssh-ed25519 SHA256:…, and there is no key for [127.0.1.1]:PORT in FOLDER/known_hosts
    compare the fingerprint with the host's console, then trust it with `echo '[127.0.1.1]:PORT ssh-ed25519 AAAA…' >> FOLDER/known_hosts`, or let the first connection record keys with --accept-new
    "#);

    // Doing what the hint says is enough.
    let SshError::HostKey(error) = error else { panic!("{error}") };
    let HostKeyError::Unknown { known_hosts_line, .. } = *error else { panic!("{error}") };
    known_hosts(&sshd, &known_hosts_line);
    connect(options(&sshd.path("")), &sshd.endpoint("h1", "127.0.1.1")).await.unwrap();
}

#[tokio::test]
async fn a_changed_key_is_refused_and_accept_new_does_not_help() {
    let sshd = Sshd::start();
    let other = public_key(&sshd.path("other"), "ed25519");
    known_hosts(&sshd, &format!("# a comment\nHOST {other}\n"));
    let error = refusal(&sshd, options(&sshd.path(""))).await;
    assert_words!(sshd, error, @r#"
    THE HOST KEY OF h1 (127.0.1.1:PORT) HAS CHANGED: expected ssh-ed25519 SHA256:… (FOLDER/known_hosts:2), but it sent ssh-ed25519 SHA256:…
    the connection may be intercepted. If the host was reinstalled, compare the fingerprint with its console, then replace the key with `ssh-keygen -R '[127.0.1.1]:PORT' -f FOLDER/known_hosts && echo '[127.0.1.1]:PORT ssh-ed25519 AAAA…' >> FOLDER/known_hosts`
    "#);
    let again = refusal(&sshd, Options { accept_new: true, ..options(&sshd.path("")) }).await;
    assert_eq!(words(&sshd, &again), words(&sshd, &error));
    assert_eq!(std::fs::read_to_string(sshd.known_hosts()).unwrap().lines().count(), 2);
}

#[tokio::test]
async fn a_key_of_another_type_than_the_known_one_has_changed() {
    let sshd = Sshd::start();
    let other = public_key(&sshd.path("other"), "ecdsa");
    known_hosts(&sshd, &format!("127.0.9.9,HOST {other}\n"));
    let error = refusal(&sshd, Options { accept_new: true, ..options(&sshd.path("")) }).await;
    assert_words!(sshd, error, @r#"
    THE HOST KEY OF h1 (127.0.1.1:PORT) HAS CHANGED: expected ecdsa-sha2-nistp256 SHA256:… (FOLDER/known_hosts:1), but it sent ssh-ed25519 SHA256:…
    the connection may be intercepted. If the host was reinstalled, compare the fingerprint with its console, then replace the key with `sed -i 1d FOLDER/known_hosts && echo '[127.0.1.1]:PORT ssh-ed25519 AAAA…' >> FOLDER/known_hosts` (that line covers other names too)
    "#);
}

#[tokio::test]
async fn a_known_key_is_asked_for_even_if_it_is_not_the_best() {
    let sshd = Sshd::builder().host_keys(&["ed25519", "ecdsa", "rsa"]).start();
    for kind in ["ecdsa", "rsa"] {
        known_hosts(&sshd, &format!("HOST {}\n", sshd.host_key(kind)));
        connect(options(&sshd.path("")), &sshd.endpoint("h1", "127.0.1.1")).await.unwrap();
    }
}

#[tokio::test]
async fn a_revoked_key_is_refused_even_if_it_is_also_known() {
    let sshd = Sshd::start();
    let key = sshd.host_key("ed25519");
    known_hosts(&sshd, &format!("HOST {key}\n@revoked * {key}\n"));
    let error = refusal(&sshd, Options { accept_new: true, ..options(&sshd.path("")) }).await;
    assert_words!(sshd, error, @r#"
    THE HOST KEY OF h1 (127.0.1.1:PORT) IS REVOKED: ssh-ed25519 SHA256:… is banned by FOLDER/known_hosts:2, and the host sent ssh-ed25519 SHA256:…
    do not connect. Give the host a new key, or remove line 2 of FOLDER/known_hosts if the ban is wrong
    "#);
    // A ban of the bare name holds on every port, also for a key that would be new.
    known_hosts(&sshd, &format!("@revoked 127.0.1.1 {key}\n"));
    let error = refusal(&sshd, Options { accept_new: true, ..options(&sshd.path("")) }).await;
    assert!(error.to_string().contains("IS REVOKED"), "{error}");
}

#[tokio::test]
async fn hashed_and_portless_names_are_found() {
    let sshd = Sshd::start();
    known_hosts(&sshd, &format!("HOST {}\n", sshd.host_key("ed25519")));
    run("ssh-keygen", &["-q", "-H", "-f", sshd.known_hosts().to_str().unwrap()]);
    let text = std::fs::read_to_string(sshd.known_hosts()).unwrap();
    assert!(text.starts_with("|1|"), "{text}");
    connect(options(&sshd.path("")), &sshd.endpoint("h1", "127.0.1.1")).await.unwrap();

    known_hosts(&sshd, &format!("127.0.1.1 {}\n", sshd.host_key("ed25519")));
    connect(options(&sshd.path("")), &sshd.endpoint("h1", "127.0.1.1")).await.unwrap();
}

#[tokio::test]
async fn a_host_key_alias_stands_in_for_address_and_port() {
    let sshd = Sshd::start();
    known_hosts(&sshd, &format!("etcd-1 {}\n", sshd.host_key("ed25519")));
    let endpoint = Endpoint { host_key_alias: Some("etcd-1".to_owned()), ..sshd.endpoint("h1", "127.0.1.1") };
    connect(options(&sshd.path("")), &endpoint).await.unwrap();
}

#[tokio::test]
async fn a_guest_whose_key_was_not_learnt_is_not_even_asked() {
    let sshd = Sshd::start();
    let anybody = std::net::TcpListener::bind("127.0.1.1:0").unwrap();
    anybody.set_nonblocking(true).unwrap();
    let port = anybody.local_addr().unwrap().port();
    let guest = Endpoint { pin: Some("prod/a".into()), port: Some(port), ..sshd.endpoint("a", "127.0.1.1") };
    let options = Options { pins: Some(sshd.path("pins")), accept_new: true, ..options(&sshd.path("")) };
    let error = connect(options.clone(), &guest).await.unwrap_err();
    let said = words(&sshd, &error).replace(&port.to_string(), "PORT");
    insta::assert_snapshot!(said, @r"
    there is no pinned SSH host key for a (127.0.1.1:PORT) (looked for prod/a in FOLDER/pins)
    `etcdrun playbook site.yaml` pins it when the guest boots; if the guest was created from another workstation, the state directory there has its key
    ");
    assert_eq!(anybody.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "somebody knocked");
    // The same one, once it is known.
    let guest = Endpoint { pin: Some("prod/a".into()), ..sshd.endpoint("a", "127.0.1.1") };
    let connector = Connector::new(options).unwrap();
    assert!(matches!(connector.connect(&guest).await, Err(SshError::Unlearnt { .. })));
    std::fs::write(sshd.path("pins"), format!("prod/a {} uuid\n", sshd.host_key("ed25519"))).unwrap();
    connector.connect(&guest).await.unwrap();
}

#[tokio::test]
async fn accept_new_records_keys_once_however_many_connect() {
    let sshd = Sshd::start();
    let file = sshd.path("new/known_hosts");
    let connector = Connector::new(Options { accept_new: true, ..options(&sshd.path("")) }).unwrap();
    let endpoints: Vec<_> = (1..=12)
        .map(|n| {
            let (name, address) = Sshd::host(n % 6 + 1);
            Endpoint { known_hosts: vec![file.clone()], ..sshd.endpoint(&name, &address) }
        })
        .collect();
    let attempts = endpoints.iter().map(|endpoint| connector.connect(endpoint));
    for connected in futures_util::future::join_all(attempts).await {
        connected.unwrap();
    }
    let text = std::fs::read_to_string(&file).unwrap();
    let key = sshd.host_key("ed25519");
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    let expected: Vec<_> = (1..=6).map(|n| format!("[127.0.1.{n}]:{} {key}", sshd.port)).collect();
    assert_eq!(lines, expected);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    // From now on they are known without it.
    connect(options(&sshd.path("")), &endpoints[0]).await.unwrap();
}

/// A server with a host certificate for the given names, and the public key of its authority.
fn certified(builder: SshdBuilder, names: &str, validity: &str) -> (Sshd, String) {
    let folder = builder.folder().to_owned();
    let authority = folder.join("host_ca");
    let authority_key = public_key(&authority, "ed25519");
    builder.make_host_keys();
    let public = folder.join("host_ed25519.pub");
    let (authority, public) = (authority.to_str().unwrap(), public.to_str().unwrap());
    run("ssh-keygen", &["-q", "-s", authority, "-I", "h1", "-h", "-n", names, "-V", validity, public]);
    let line = format!("HostCertificate {}/host_ed25519-cert.pub", folder.display());
    (builder.config(line).start(), authority_key)
}

#[tokio::test]
async fn a_certificate_of_a_known_authority_is_trusted() {
    let (sshd, authority) = certified(Sshd::builder(), "127.0.1.1", "-5m:+5m");
    known_hosts(&sshd, &format!("@cert-authority [127.0.*]:* {authority}\n"));
    connect(options(&sshd.path("")), &sshd.endpoint("h1", "127.0.1.1")).await.unwrap();

    // The same certificate does not speak for another address.
    let error = connect(options(&sshd.path("")), &sshd.endpoint("h2", "127.0.1.2")).await.unwrap_err();
    assert!(error.to_string().contains("it is for [127.0.1.1], not for 127.0.1.2"), "{error}");

    // Nor does an authority that is banned.
    known_hosts(&sshd, &format!("@cert-authority [127.0.*]:* {authority}\n@revoked * {authority}\n"));
    let error = refusal(&sshd, options(&sshd.path(""))).await;
    assert!(error.to_string().contains("IS REVOKED"), "{error}");
}

#[tokio::test]
async fn an_expired_certificate_or_a_strange_authority_is_refused() {
    let (sshd, authority) = certified(Sshd::builder(), "127.0.1.1", "-10m:-5m");
    known_hosts(&sshd, &format!("@cert-authority [127.0.*]:* {authority}\n"));
    let error = refusal(&sshd, options(&sshd.path(""))).await;
    assert_words!(sshd, error, @r#"
    the host certificate of h1 (127.0.1.1:PORT) is not valid: it has expired (certificate "h1" for SHA256:…, CA SHA256:… at FOLDER/known_hosts:1)
    issue a new host certificate with the CA SHA256:… (`ssh-keygen -s CA -h -n NAMES -I ID HOST_KEY.pub`)
    "#);

    let strange = public_key(&sshd.path("strange"), "ed25519");
    known_hosts(&sshd, &format!("@cert-authority [127.0.*]:* {strange}\n"));
    let error = refusal(&sshd, Options { accept_new: true, ..options(&sshd.path("")) }).await;
    assert_words!(sshd, error, @r#"
    the host key of h1 (127.0.1.1:PORT) is unknown: it sent ssh-ed25519 SHA256:…, and there is no key for [127.0.1.1]:PORT in FOLDER/known_hosts
    FOLDER/known_hosts:1 names a CA for this host, but the host has no certificate of it; sign its key, or trust it with `echo '[127.0.1.1]:PORT ssh-ed25519 AAAA…' >> FOLDER/known_hosts`
    "#);
}
