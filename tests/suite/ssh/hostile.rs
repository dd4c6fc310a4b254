//! Servers that mean harm: what they send costs the operator neither memory nor the run on other hosts.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use russh::{
    Channel, ChannelId, ChannelMsg,
    server::{Auth, ChannelOpenHandle, Config, Handle, Handler, Msg, Server, Session, VerifiedPublicKey},
};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use crate::support::{process::measured, program::Folder, sshd::make_key};

/// Far more than anything here may keep, and little enough for a test that finds it kept.
const FLOOD: usize = 512 << 20;
const MOST_MEMORY: u64 = 400;
const CHANNELS: usize = 2000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attack {
    /// Standard error has ended, and goes on for good, while standard output says nothing.
    Backlog,
    /// Output without end.
    Output,
    /// Channels that nobody has asked for.
    Channels,
}

/// A server that lets everybody in, and attacks whoever sends it a script.
#[derive(Clone)]
struct Hostile {
    attack: Attack,
    accepted: Arc<AtomicUsize>,
    refused: Arc<AtomicUsize>,
}

impl Server for Hostile {
    type Handler = Self;

    fn new_client(&mut self, _: Option<SocketAddr>) -> Self {
        self.clone()
    }
}

impl Handler for Hostile {
    type Error = russh::Error;

    async fn auth_publickey(&mut self, _: &str, _: VerifiedPublicKey<'_>) -> Result<Auth, russh::Error> {
        Ok(Auth::Accept)
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        reply.accept().await;
        tokio::spawn(self.clone().serve(channel, session.handle()));
        Ok(())
    }

    async fn exec_request(&mut self, id: ChannelId, _: &[u8], session: &mut Session) -> Result<(), russh::Error> {
        session.channel_success(id)
    }
}

impl Hostile {
    /// Reads until it knows what markers look like.
    async fn serve(self, channel: Channel<Msg>, handle: Handle) {
        let (mut read, write) = channel.split();
        let (mut script, mut begun) = (Vec::new(), false);
        while let Some(message) = read.wait().await {
            let ChannelMsg::Data { data } = message else { continue };
            script.extend_from_slice(&data);
            let Some(nonce) = nonce(&script).filter(|_| !begun) else { continue };
            begun = true;
            let (out, err) = (Box::pin(write.make_writer()), Box::pin(write.make_writer_ext(Some(1))));
            let (server, handle) = (self.clone(), handle.clone());
            // Who has had enough hangs up, which is what all this is for.
            tokio::spawn(async move { drop(server.strike(&nonce, out, err, &handle).await) });
        }
    }

    async fn strike(
        &self,
        nonce: &str,
        mut out: impl AsyncWrite + Unpin,
        mut err: impl AsyncWrite + Unpin,
        handle: &Handle,
    ) -> std::io::Result<()> {
        let piece = vec![b'x'; 1 << 20];
        out.write_all(format!("{nonce} begin 0 42\n").as_bytes()).await?;
        match self.attack {
            Attack::Backlog => {
                err.write_all(format!("{nonce} begin 0\n{nonce} end 0\n").as_bytes()).await?;
                for _ in 0..FLOOD / piece.len() {
                    err.write_all(&piece).await?;
                }
            }
            Attack::Output => {
                for _ in 0..FLOOD / piece.len() {
                    out.write_all(&piece).await?;
                }
            }
            Attack::Channels => self.open_channels(handle).await,
        }
        out.write_all(format!("{nonce} end 0 0 quiet\n{nonce} done\n").as_bytes()).await
    }

    async fn open_channels(&self, handle: &Handle) {
        for number in 0..CHANNELS {
            let opened = match number % 4 {
                0 => handle.channel_open_agent().await,
                1 => handle.channel_open_x11("127.0.0.1", 6000).await,
                2 => handle.channel_open_forwarded_tcpip("127.0.0.1", 22, "127.0.0.1", 22).await,
                _ => handle.channel_open_session().await,
            };
            let count = if opened.is_ok() { &self.accepted } else { &self.refused };
            count.fetch_add(1, Ordering::SeqCst);
            // One that is open stays so.
            std::mem::forget(opened);
        }
    }
}

fn nonce(script: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(script);
    let at = text.find("ETCDRUN-")?;
    let nonce = text.get(at..at + 8 + 32)?;
    nonce[8..].bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| nonce.to_owned())
}

/// What `etcdrun exec` says of such a host, with its exit code, and the most memory that it had, in MiB.
fn attacked(attack: Attack) -> (Hostile, i32, String) {
    let folder = Folder::new();
    make_key(&folder.path("host"), "ed25519", "");
    make_key(&folder.path("client"), "ed25519", "");
    let key = russh::keys::load_secret_key(folder.path("host"), None).unwrap();
    let config = Config { keys: vec![key], auth_rejection_time: Duration::ZERO, ..Config::default() };
    let server = Hostile { attack, accepted: Arc::default(), refused: Arc::default() };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let socket = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let port = socket.local_addr().unwrap().port();
    let mut running = server.clone();
    runtime.spawn(async move { running.run_on_socket(Arc::new(config), &socket).await });
    folder.write("known_hosts", &format!("[127.0.0.1]:{port} {}", folder.read("host.pub")));
    let [client, known_hosts] = ["client", "known_hosts"].map(|name| folder.path(name).display().to_string());
    let ssh = format!("ssh: {{ user: root, port: {port}, identity_file: {client}, known_hosts: {known_hosts} }}\n");
    folder.write("inventory.yaml", &(ssh + "hosts:\n  h1: { address: 127.0.0.1 }\n"));
    let (output, memory) = measured(folder.command(&["exec", "h1", "--", "true"]));
    runtime.shutdown_background();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(memory < MOST_MEMORY, "{attack:?} cost {memory} MiB: {said}");
    (server, output.status.code().unwrap_or(-1), said)
}

#[test]
fn a_stream_that_runs_ahead_is_cut_off() {
    let (_, code, said) = attacked(Attack::Backlog);
    assert!(code != 0 && said.contains("more than 64 MiB on one stream"), "{code}: {said}");
}

#[test]
fn output_without_end_is_not_kept() {
    let (_, _, said) = attacked(Attack::Output);
    assert!(said.len() < 32 << 20, "{}", said.len());
}

#[test]
fn channels_that_a_server_opens_are_refused() {
    let (server, ..) = attacked(Attack::Channels);
    let (accepted, refused) = (server.accepted.load(Ordering::SeqCst), server.refused.load(Ordering::SeqCst));
    assert!(accepted == 0 && refused >= CHANNELS, "{accepted} were accepted, {refused} refused");
}
