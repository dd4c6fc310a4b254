//! etcd of every version that etcdrun knows: the server comes in crates, which cargo fetches and checks, and the tools
//! come in a wheel, as Patroni does.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;

use crate::{
    command::{command, run},
    images,
};

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// The minor versions at hand, oldest first.
pub const ETCD_VERSIONS: [&str; 4] = ["3.4", "3.5", "3.6", "3.7"];

/// Old releases at hand, for what only such ones do.
pub const OLD_ETCD_RELEASES: [&str; 8] = ["3.4.38", "3.4.42", "3.5.16", "3.5.28", "3.6.0", "3.6.4", "3.6.9", "3.7.0"];

/// A server binary and which one it is.
pub struct Etcd {
    pub version: String,
    pub path: PathBuf,
}

/// The server of a minor version like `3.5`, or an old release.
pub fn etcd(minor: &str) -> Result<Etcd> {
    let known = || ETCD_VERSIONS.iter().chain(&OLD_ETCD_RELEASES);
    if !known().any(|version| *version == minor) {
        bail!("the lab has no etcd {minor}; it has {}", known().copied().collect::<Vec<_>>().join(", "));
    }
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let manifest = format!("{HERE}/etcd/{minor}/Cargo.toml");
    let metadata =
        run(&mut command(&cargo, ["metadata", "--locked", "--format-version=1", "--manifest-path", &manifest]))?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let package = packages.iter().find(|package| package["name"] == "etcd-bin-vendored-linux-amd64");
    let found = package.and_then(|package| Some((package["version"].as_str()?, package["manifest_path"].as_str()?)));
    let (version, manifest) = found.ok_or_else(|| anyhow!("{manifest} depends on no etcd"))?;
    // Packages before 3.5.23 have numbers of their own.
    let is_old = OLD_ETCD_RELEASES.contains(&minor);
    Ok(Etcd {
        version: if is_old { minor } else { version }.to_owned(),
        path: Path::new(manifest).with_file_name("bin").join("etcd"),
    })
}

/// A folder with etcdctl and etcdutl, fetched once into the cache.
pub fn etcd_tools() -> Result<PathBuf> {
    fetched("etcd/tools")
}

/// A folder with wheels of Patroni, fetched once into the cache.
pub fn patroni_wheels() -> Result<PathBuf> {
    fetched("patroni/wheels")
}

/// A folder with Fluent Bit, and what `receiver.js` here needs to receive its logs, fetched once into the cache.
pub fn fluent_bit() -> Result<PathBuf> {
    fetched("fluent-bit/fetch")
}

/// What receives the logs of Fluent Bit.
pub fn fluent_receiver() -> PathBuf {
    Path::new(HERE).join("fluent-bit/receiver.js")
}

/// The folder that a script puts what it fetches into.
fn fetched(script: &str) -> Result<PathBuf> {
    let script = format!("{HERE}/{script}");
    let output = command(&script, [images::cache()?]).stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("could not start {script}"))?;
    if !output.status.success() {
        bail!("{script} ended with {}", output.status);
    }
    Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
}
