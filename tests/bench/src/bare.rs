//! The limit: a client of nothing but russh, which opens a connection to each host and runs one script on it.

use std::{path::PathBuf, sync::Arc};

use anyhow::{Context as _, Result, ensure};
use russh::{
    ChannelMsg,
    client::{self, AuthResult},
    keys::{PrivateKey, PrivateKeyWithHashAlg, PublicKey, PublicKeyOrCertificate},
};
use serde::Deserialize;
use tokio::{net::TcpStream, task::JoinSet};

#[derive(Deserialize)]
pub struct Job {
    port: u16,
    user: String,
    key: PathBuf,
    host_key: PathBuf,
    hosts: Vec<Host>,
    commands: Vec<String>,
}

#[derive(Deserialize)]
struct Host {
    name: String,
    address: String,
}

struct Client {
    host_key: PublicKey,
}

impl client::Handler for Client {
    type Error = russh::Error;

    async fn check_server_key(&mut self, key: &PublicKeyOrCertificate) -> Result<bool, russh::Error> {
        Ok(matches!(key, PublicKeyOrCertificate::PublicKey { key, .. } if key.key_data() == self.host_key.key_data()))
    }
}

/// Runs the commands of the job as one script on each of its hosts.
pub async fn run(job: Job) -> Result<()> {
    let key = Arc::new(russh::keys::load_secret_key(&job.key, None)?);
    let host_key = russh::keys::load_public_key(&job.host_key)?;
    let preferred = russh::Preferred {
        // The fastest one, as etcdrun has it.
        cipher: vec![russh::cipher::AES_256_GCM].into(),
        ..russh::Preferred::DEFAULT
    };
    let config = Arc::new(client::Config { nodelay: true, preferred, ..client::Config::default() });
    let mut hosts = JoinSet::new();
    for host in job.hosts {
        let script = job.commands.join("\n").replace("{host}", &host.name);
        let to = (host.address, job.port);
        hosts.spawn(one(to, job.user.clone(), key.clone(), host_key.clone(), config.clone(), script));
    }
    while let Some(ended) = hosts.join_next().await {
        ended??;
    }
    Ok(())
}

async fn one(
    to: (String, u16),
    user: String,
    key: Arc<PrivateKey>,
    host_key: PublicKey,
    config: Arc<client::Config>,
    script: String,
) -> Result<()> {
    let stream = TcpStream::connect((to.0.as_str(), to.1)).await?;
    stream.set_nodelay(true)?;
    let mut session = client::connect_stream(config, stream, Client { host_key }).await?;
    let answer = session.authenticate_publickey(user, PrivateKeyWithHashAlg::new(key, None)).await?;
    ensure!(matches!(answer, AuthResult::Success), "{} does not let us in", to.0);
    let mut channel = session.channel_open_session().await?;
    channel.exec(true, script).await?;
    let mut code = None;
    while let Some(message) = channel.wait().await {
        if let ChannelMsg::ExitStatus { exit_status } = message {
            code = Some(exit_status);
        }
    }
    ensure!(code.context("no exit status")? == 0, "the script failed on {}", to.0);
    session.disconnect(russh::Disconnect::ByApplication, "", "").await?;
    Ok(())
}
