//! What the lab needs of the machine: root, a few packages, and a kernel that gives it namespaces.

use anyhow::{Context, Result, bail};

use crate::command::{command, run};

/// Programs, and the Debian packages they come in.
const TOOLS: [(&str, &str); 10] = [
    ("ip", "iproute2"),
    ("nft", "nftables"),
    ("unshare", "util-linux"),
    ("setsid", "util-linux"),
    ("nsenter", "util-linux"),
    ("mkfs.ext4", "e2fsprogs"),
    ("mmdebstrap", "mmdebstrap"),
    ("systemd-nspawn", "systemd-container"),
    ("ssh-keygen", "openssh-client"),
    ("truncate", "coreutils"),
];

/// Installs what is missing and says why there can be no lab, if there can be none.
pub fn provide(say: &(dyn Fn(&str) + Sync)) -> Result<()> {
    check_root()?;
    install_missing(say)?;
    check_kernel()
}

pub(crate) fn check_root() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("the lab makes namespaces, mounts and containers, so it needs root; run it by sudo");
    }
    Ok(())
}

fn install_missing(say: &(dyn Fn(&str) + Sync)) -> Result<()> {
    let mut packages: Vec<&str> =
        TOOLS.iter().filter(|(tool, _)| !is_installed(tool)).map(|(_, package)| *package).collect();
    if is_installed("apt-get") && !std::fs::exists("/usr/share/keyrings/debian-archive-keyring.gpg")? {
        packages.push("debian-archive-keyring");
    }
    packages.dedup();
    if packages.is_empty() {
        return Ok(());
    }
    if !is_installed("apt-get") {
        bail!("these packages are missing, and there is no apt-get to install them: {}", packages.join(" "));
    }
    say(&format!("installing {}", packages.join(" ")));
    let apt = |words: &[&str]| {
        let mut apt = command("apt-get", ["-qq"].iter().chain(words));
        run(apt.env("DEBIAN_FRONTEND", "noninteractive"))
    };
    apt(&["update"])?;
    let install: Vec<&str> = ["install", "--no-install-recommends"].into_iter().chain(packages).collect();
    apt(&install).map(drop)
}

fn is_installed(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian keeps administrators' tools out of some users' paths.
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.into_iter().any(|folder: std::path::PathBuf| folder.join(tool).exists())
}

fn check_kernel() -> Result<()> {
    run(&mut command("unshare", ["--net", "--mount", "--pid", "--fork", "true"]))
        .context("this machine gives no namespaces (a container without privileges?), and the lab is made of them")?;
    let probe = "mount -t tmpfs lab /mnt && mkdir /mnt/l /mnt/u /mnt/w /mnt/m \
        && mount -t overlay -o lowerdir=/mnt/l,upperdir=/mnt/u,workdir=/mnt/w lab /mnt/m";
    run(&mut command("unshare", ["--mount", "sh", "-c", probe]))
        .context("this machine cannot mount overlay filesystems, and the lab's hosts stand on them")?;
    if !std::fs::exists("/dev/loop-control")? {
        bail!("this machine has no loop devices (/dev/loop-control), and the lab's data disks are such");
    }
    if !std::fs::exists("/dev/net/tun")? {
        bail!("this machine has no /dev/net/tun, and guests have their interfaces through it");
    }
    Ok(())
}
