//! `etcdrun etcdctl CLUSTER -- ...`: the operator's etcdctl, through SSH and with root's credential.

use std::{fs::File, io::Write, os::fd::AsRawFd, path::PathBuf, process::Stdio};

use clap::Args;
use rustix::{
    fs::{MemfdFlags, memfd_create},
    io::{FdFlags, fcntl_setfd},
};
use tokio::process::Command;

use crate::cli::support::{
    CliError, Exit, Invocation,
    args::{ConnectionArgs, KnownArgs},
    site::Site,
    tunnel::{listen, members, query},
};
use crate::etcd::Credential;

#[derive(Args, Debug)]
#[command(
    after_help = "This runs your own etcdctl, from the PATH or from ETCDCTL_PROGRAM, with each member as an endpoint and with root's certificate or password.\n\nExamples:\n  etcdrun etcdctl prod -- endpoint status -w table\n  etcdrun etcdctl prod -- get /app/ --prefix"
)]
pub struct EtcdctlArgs {
    /// The cluster
    cluster: String,

    /// The arguments for etcdctl
    #[arg(last = true, value_name = "ARGUMENT", required = true)]
    words: Vec<String>,

    /// The state directory with the certificates [default: .etcdrun next to the inventory]
    #[arg(long, value_name = "FOLDER")]
    state_dir: Option<PathBuf>,

    #[command(flatten)]
    known: KnownArgs,

    #[command(flatten)]
    connection: ConnectionArgs,
}

pub fn run(args: &EtcdctlArgs, invocation: &Invocation) -> Result<Exit, CliError> {
    let site = Site::load(&args.known, args.state_dir.as_deref(), invocation)?;
    let query = query(&site, &args.cluster)?;
    let hosts = site.connect(&args.connection, invocation)?;
    let code = hosts.runtime.block_on(async {
        let credential = query.credential(site.sources.opener()).await;
        let credential =
            credential.map_err(|error| CliError::usage_with_help(error.message.clone(), error.help.clone()))?;
        let mut endpoints = Vec::new();
        for member in members(&hosts, &query) {
            let address = listen([member].into(), query.client_port, 0).await?;
            endpoints.push(format!("https://{address}"));
        }
        call(&credential, &endpoints, &args.words).await
    });
    hosts.leave();
    match code? {
        0 => Ok(Exit::Success),
        code => std::process::exit(code),
    }
}

/// Files that are in memory alone, and that etcdctl inherits: however either of the two ends, nothing of them is left.
struct Files(Vec<(&'static str, File)>);

impl Files {
    fn new(credential: &Credential) -> Result<Self, CliError> {
        let mut files = Self(Vec::new());
        files.add("ca.crt", credential.authority.as_bytes())?;
        if let Some((certificate, key)) = &credential.identity {
            files.add("root.crt", certificate.as_bytes())?;
            files.add("root.key", key.as_bytes())?;
        }
        Ok(files)
    }

    fn add(&mut self, name: &'static str, bytes: &[u8]) -> Result<(), CliError> {
        // No other program gets it that starts meanwhile, such as a ProxyCommand.
        let mut file = File::from(memfd_create(name, MemfdFlags::CLOEXEC).map_err(std::io::Error::from)?);
        file.write_all(bytes)?;
        self.0.push((name, file));
        Ok(())
    }

    /// Whether programs that start now inherit them.
    fn inherited(&self, inherited: bool) -> Result<(), CliError> {
        let flags = if inherited { FdFlags::empty() } else { FdFlags::CLOEXEC };
        Ok(self.0.iter().try_for_each(|(_, file)| fcntl_setfd(file, flags)).map_err(std::io::Error::from)?)
    }

    /// As the program that inherits it calls it.
    fn path(&self, name: &str) -> Option<String> {
        let found = self.0.iter().find(|(other, _)| *other == name);
        found.map(|(_, file)| format!("/proc/self/fd/{}", file.as_raw_fd()))
    }
}

async fn call(credential: &Credential, endpoints: &[String], words: &[String]) -> Result<i32, CliError> {
    let files = Files::new(credential)?;
    let program = std::env::var_os("ETCDCTL_PROGRAM").unwrap_or_else(|| "etcdctl".into());
    let mut command = Command::new(&program);
    // It would take this for a setting of its own, and wonder.
    command.env_remove("ETCDCTL_PROGRAM");
    // By the environment, where other users do not see it, and where flags of the person's own win.
    command.env("ETCDCTL_API", "3").env("ETCDCTL_ENDPOINTS", endpoints.join(","));
    let names = [("ETCDCTL_CACERT", "ca.crt"), ("ETCDCTL_CERT", "root.crt"), ("ETCDCTL_KEY", "root.key")];
    command.envs(names.into_iter().filter_map(|(variable, name)| Some((variable, files.path(name)?))));
    if let Some((user, password)) = &credential.login {
        // etcdctl takes a password by a flag, by the environment or from its terminal, and by nothing else. Of these the environment
        // is the one that other accounts cannot see.
        command.env("ETCDCTL_USER", format!("{user}:{}", password.as_str()));
    }
    // Nothing else is started in between: connections, and with them a ProxyCommand, begin when etcdctl asks for them.
    files.inherited(true)?;
    let started = command.args(words).stdin(Stdio::inherit()).spawn();
    files.inherited(false)?;
    let mut child = started.map_err(|error| {
        let help = "put etcdctl into the PATH, or name it in ETCDCTL_PROGRAM";
        CliError::usage_with_help(format!("cannot start {}: {error}", program.display()), Some(help.into()))
    })?;
    Ok(child.wait().await?.code().unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use rustix::io::fcntl_getfd;

    use super::*;

    #[test]
    fn keys_in_memory_are_inherited_by_one_program_alone() {
        let identity = Some(("certificate".to_owned(), "key".to_owned().into()));
        let files = Files::new(&Credential { authority: "ca".to_owned(), identity, login: None }).unwrap();
        let are_closed = || files.0.iter().all(|(_, file)| fcntl_getfd(file).unwrap().contains(FdFlags::CLOEXEC));
        assert!(files.0.len() == 3 && are_closed());
        files.inherited(true).unwrap();
        assert!(!are_closed());
        files.inherited(false).unwrap();
        assert!(are_closed());
    }
}
