//! An S3-compatible server on loopback, for backups. It is compiled on demand, because few need it.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};

use crate::{command::command, images, wait};

const VERSION: &str = "0.14.1";

/// A server that lives as long as this does.
pub struct S3 {
    process: Child,
    pub address: SocketAddr,
}

impl S3 {
    pub const ACCESS_KEY: &str = "lab";
    pub const SECRET_KEY: &str = "lab-secret-key";

    /// Serves the folders in a folder as buckets.
    pub fn start(folder: &Path) -> Result<Self> {
        let address = free_address()?;
        let mut server = server(folder, address)?;
        let process =
            server.stdin(Stdio::null()).stdout(Stdio::null()).spawn().context("could not start the S3 server")?;
        let s3 = Self { process, address };
        wait::until("the S3 server answers", Duration::from_secs(20), || {
            Ok(TcpStream::connect(address).is_ok().then_some(()))
        })?;
        Ok(s3)
    }

    /// A client's address of it, for path-style requests.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn wait(mut self) -> Result<()> {
        let status = self.process.wait()?;
        bail!("the S3 server ended with {status}")
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn server(folder: &Path, address: SocketAddr) -> Result<Command> {
    let mut server = Command::new(program()?);
    server.args(["--host", &address.ip().to_string(), "--port", &address.port().to_string()]);
    server.args(["--access-key", S3::ACCESS_KEY, "--secret-key", S3::SECRET_KEY]).arg(folder);
    Ok(server)
}

/// The server's program, built into the cache if it is not there.
pub fn program() -> Result<PathBuf> {
    let place = images::cache()?.join(format!("s3s-fs-{VERSION}"));
    let program = place.join("bin/s3s-fs");
    if program.exists() {
        return Ok(program);
    }
    // Beside its place first: whoever sees the program sees the whole of it.
    let building = folder_beside(&place)?;
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let words =
        ["install", "--quiet", "--locked", "--debug", "--features", "binary", "--version", VERSION, "s3s-fs", "--root"];
    let status = command(&cargo, words)
        .arg(&building)
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .status()
        .context("could not start cargo")?;
    if !status.success() {
        fs::remove_dir_all(&building)?;
        bail!("cargo could not build s3s-fs {VERSION}: {status}");
    }
    if fs::rename(&building, &place).is_err() {
        // Somebody else was quicker.
        fs::remove_dir_all(&building)?;
    }
    Ok(program)
}

fn folder_beside(place: &Path) -> Result<PathBuf> {
    let building = place.with_file_name(format!(".s3s-fs-building-{}", std::process::id()));
    fs::create_dir_all(&building)?;
    Ok(building)
}

/// The server cannot be asked which port it took, so it gets one that was free a moment ago.
fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}
