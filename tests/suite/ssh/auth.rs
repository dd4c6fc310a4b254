//! Every way to prove who we are, against a real sshd and a real ssh-agent.
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::sshd::make_key;
use crate::support::{Group, Sshd, options, run};
use async_trait::async_trait;
use etcdrun::ssh::{Connection, Connector, Endpoint, Options, Prompt, SshError};
use zeroize::Zeroizing;

/// Answers every question with the same words, and counts them.
struct Answer {
    words: &'static str,
    asked: AtomicUsize,
}

impl Answer {
    fn new(words: &'static str) -> Arc<Self> {
        Arc::new(Answer { words, asked: AtomicUsize::new(0) })
    }
}

#[async_trait]
impl Prompt for Answer {
    async fn secret(&self, question: &str) -> Option<Zeroizing<String>> {
        assert!(question.contains("Passphrase for key"), "{question}");
        self.asked.fetch_add(1, Ordering::SeqCst);
        Some(Zeroizing::new(self.words.to_owned()))
    }
}

/// A key that the server knows.
fn authorized_key(sshd: &Sshd, kind: &str, passphrase: &str) -> std::path::PathBuf {
    let path = sshd.path(&format!("id_{kind}"));
    make_key(&path, kind, passphrase);
    sshd.authorize(&std::fs::read_to_string(path.with_extension("pub")).unwrap());
    path
}

fn endpoint_with(sshd: &Sshd, key: &Path) -> Endpoint {
    Endpoint { identity_files: vec![key.to_owned()], ..sshd.endpoint("h1", "127.0.1.1") }
}

fn endpoint_without_key(sshd: &Sshd) -> Endpoint {
    Endpoint { identity_files: Vec::new(), identities_only: None, ..sshd.endpoint("h1", "127.0.1.1") }
}

async fn connect(options: Options, endpoint: &Endpoint) -> Result<Connection, SshError> {
    Connector::new(options).unwrap().connect(endpoint).await
}

/// Starts an ssh-agent that holds the given keys, and points the options at it.
fn agent(sshd: &Sshd, keys: &[&Path]) -> (Group, Options) {
    let socket = sshd.path("agent");
    let child = Command::new("ssh-agent").arg("-D").arg("-a").arg(&socket).output_to_null().spawn().unwrap();
    let agent = Group(child);
    let deadline = Instant::now() + Duration::from_secs(10);
    // It is there before anybody listens at it.
    while UnixStream::connect(&socket).is_err() {
        assert!(Instant::now() < deadline, "ssh-agent does not start");
        std::thread::sleep(Duration::from_millis(5));
    }
    for key in keys {
        let added = Command::new("ssh-add").arg(key).env("SSH_AUTH_SOCK", &socket).output().unwrap();
        assert!(added.status.success(), "{added:?}");
    }
    let options = options(&sshd.path(""));
    let config = options.config_file.clone().unwrap();
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(config, format!("IdentityAgent {}\n{text}", socket.display())).unwrap();
    (agent, options)
}

trait Quiet {
    fn output_to_null(&mut self) -> &mut Self;
}

impl Quiet for Command {
    fn output_to_null(&mut self) -> &mut Self {
        self.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null())
    }
}

#[tokio::test]
async fn keys_of_every_kind_open_the_door() {
    let sshd = Sshd::start();
    for kind in ["ed25519", "ecdsa", "rsa"] {
        let key = authorized_key(&sshd, kind, "");
        let connected = connect(options(&sshd.path("")), &endpoint_with(&sshd, &key)).await;
        assert!(connected.is_ok(), "{kind}: {connected:?}");
    }
}

#[tokio::test]
async fn older_key_formats_work_too() {
    let sshd = Sshd::start();
    for (kind, format) in [("rsa", "PEM"), ("ecdsa", "PKCS8")] {
        let key = sshd.path(&format!("old_{kind}"));
        let path = key.to_str().unwrap();
        run("ssh-keygen", &["-q", "-t", kind, "-m", format, "-N", "", "-f", path]);
        sshd.authorize(&std::fs::read_to_string(format!("{path}.pub")).unwrap());
        let connected = connect(options(&sshd.path("")), &endpoint_with(&sshd, &key)).await;
        assert!(connected.is_ok(), "{kind} {format}: {connected:?}");
    }
}

#[tokio::test]
async fn the_passphrase_of_a_key_is_asked_for_once_in_a_run() {
    let sshd = Sshd::start();
    let key = authorized_key(&sshd, "ed25519", "sesame");
    let prompt = Answer::new("sesame");
    let connector = Connector::new(Options { prompt: prompt.clone(), ..options(&sshd.path("")) }).unwrap();
    let endpoint = endpoint_with(&sshd, &key);
    let attempts = (0..6).map(|_| connector.connect(&endpoint));
    for connected in futures_util::future::join_all(attempts).await {
        connected.unwrap();
    }
    assert_eq!(prompt.asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_key_that_the_server_would_refuse_is_not_asked_for() {
    let sshd = Sshd::start();
    let stranger = sshd.path("stranger");
    make_key(&stranger, "ed25519", "sesame");
    let prompt = Answer::new("sesame");
    let mut endpoint = endpoint_with(&sshd, &stranger);
    endpoint.identity_files.push(sshd.key());
    connect(Options { prompt: prompt.clone(), ..options(&sshd.path("")) }, &endpoint).await.unwrap();
    assert_eq!(prompt.asked.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_wrong_passphrase_or_none_names_the_key() {
    let sshd = Sshd::start();
    let key = authorized_key(&sshd, "ed25519", "sesame");
    let endpoint = endpoint_with(&sshd, &key);
    let prompt = Answer::new("wrong");
    let error = connect(Options { prompt: prompt.clone(), ..options(&sshd.path("")) }, &endpoint).await.unwrap_err();
    assert_eq!(error.to_string(), format!("key {}: is encrypted, and the passphrase was wrong", key.display()));
    assert_eq!(prompt.asked.load(Ordering::SeqCst), 3);
    let error = connect(options(&sshd.path("")), &endpoint).await.unwrap_err();
    assert_eq!(error.to_string(), format!("key {}: is encrypted, and no passphrase was given", key.display()));
    assert!(!error.is_unreachable());
}

#[tokio::test]
async fn the_agent_signs_even_for_a_key_that_is_encrypted_on_disk() {
    let sshd = Sshd::start();
    let key = authorized_key(&sshd, "rsa", "");
    let (_agent, options) = agent(&sshd, &[&key]);
    run("ssh-keygen", &["-q", "-p", "-N", "sesame", "-P", "", "-f", key.to_str().unwrap()]);
    connect(options.clone(), &endpoint_without_key(&sshd)).await.unwrap();
    connect(options, &endpoint_with(&sshd, &key)).await.unwrap();
}

#[tokio::test]
async fn identities_only_keeps_other_agent_keys_away() {
    let sshd = Sshd::start();
    let (_agent, options) = agent(&sshd, &[&sshd.key()]);
    let stranger = sshd.path("stranger");
    make_key(&stranger, "ed25519", "");
    let endpoint = endpoint_with(&sshd, &stranger);
    let error = connect(options.clone(), &endpoint).await.unwrap_err().to_string();
    assert!(error.contains("stranger") && !error.contains("agent key"), "{error}");
    // Without it, the agent's key is tried as well.
    let endpoint = Endpoint { identities_only: Some(false), ..endpoint };
    connect(options, &endpoint).await.unwrap();
}

#[tokio::test]
async fn a_public_key_file_picks_a_key_of_the_agent() {
    let sshd = Sshd::start();
    let (_agent, options) = agent(&sshd, &[&sshd.key()]);
    connect(options, &endpoint_with(&sshd, &sshd.path("client.pub"))).await.unwrap();
}

#[tokio::test]
async fn a_server_that_has_had_enough_keys_says_so() {
    let sshd = Sshd::builder().config("MaxAuthTries 1").start();
    let stranger = sshd.path("stranger");
    make_key(&stranger, "ed25519", "");
    let mut endpoint = endpoint_with(&sshd, &stranger);
    endpoint.identity_files.push(sshd.key());
    let error = connect(options(&sshd.path("")), &endpoint).await.unwrap_err();
    assert!(error.to_string().contains("no more attempts: Too many authentication failures"), "{error}");
    assert!(error.hint().unwrap().contains("identities_only") && !error.is_unreachable());
}

#[tokio::test]
async fn a_user_certificate_beside_the_key_or_named_by_itself() {
    for named in [false, true] {
        let builder = Sshd::builder();
        let authority = builder.folder().join("user_ca");
        make_key(&authority, "ed25519", "");
        let sshd = builder.config(format!("TrustedUserCAKeys {}.pub", authority.display())).start();
        let key = sshd.path("certified");
        make_key(&key, "ecdsa", "");
        let (authority, public) = (authority.to_str().unwrap(), format!("{}.pub", key.display()));
        run("ssh-keygen", &["-q", "-s", authority, "-I", "ops", "-n", &sshd.user, "-V", "-5m:+5m", &public]);
        let mut endpoint = endpoint_with(&sshd, &key);
        if named {
            let elsewhere = sshd.path("elsewhere.pub");
            std::fs::rename(sshd.path("certified-cert.pub"), &elsewhere).unwrap();
            let refused = connect(options(&sshd.path("")), &endpoint).await;
            assert!(refused.is_err(), "the key alone must not do");
            endpoint.certificate_file = Some(elsewhere);
        }
        connect(options(&sshd.path("")), &endpoint).await.unwrap();
    }
}

#[tokio::test]
async fn a_refusal_lists_what_was_tried_and_what_is_allowed() {
    let sshd = Sshd::start();
    let stranger = sshd.path("stranger");
    make_key(&stranger, "ed25519", "");
    let error = connect(options(&sshd.path("")), &endpoint_with(&sshd, &stranger)).await.unwrap_err();
    let expected = format!(
        "{}@h1 (127.0.1.1:{}) refused every key; tried {}; the server allows publickey",
        sshd.user,
        sshd.port,
        stranger.display()
    );
    assert_eq!(error.to_string(), expected);
    assert!(!error.is_unreachable() && error.hint().unwrap().contains("authorized_keys"));

    let error = connect(options(&sshd.path("")), &endpoint_without_key(&sshd)).await.unwrap_err();
    assert!(error.to_string().contains("tried nothing, there was no key to try"), "{error}");
    assert!(error.hint().unwrap().contains("ssh-agent"));
}

#[tokio::test]
async fn a_key_that_the_inventory_names_must_be_usable() {
    use std::os::unix::fs::PermissionsExt as _;
    let sshd = Sshd::start();
    let problem = async |key: &Path| {
        // No server is needed to find this out.
        let endpoint = Endpoint { port: Some(1), ..endpoint_with(&sshd, key) };
        let error = connect(options(&sshd.path("")), &endpoint).await.unwrap_err();
        assert!(!error.is_unreachable());
        error.to_string().replace(&key.display().to_string(), "KEY")
    };
    assert_eq!(problem(&sshd.path("missing")).await, "key KEY: does not exist");

    let junk = sshd.path("junk");
    std::fs::write(&junk, "hello").unwrap();
    std::fs::set_permissions(&junk, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(problem(&junk).await, "key KEY: is not a usable private key: Could not read key");

    let open = sshd.path("open");
    make_key(&open, "ed25519", "");
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o644)).unwrap();
    let expected = "key KEY: is readable by others (mode 0644); protect it with `chmod 600`";
    assert_eq!(problem(&open).await, expected);

    let folder = sshd.path("folder");
    std::fs::create_dir(&folder).unwrap();
    assert_eq!(problem(&folder).await, "key KEY: cannot be read: Is a directory (os error 21)");
}
