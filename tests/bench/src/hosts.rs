//! Hosts on loopback: one sshd that answers on every 127.x.y.z, with keys and a port of its own.

use std::{
    fmt::Write as _,
    fs::{self, File},
    net::{TcpListener, TcpStream},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

const SSHD: &str = "/usr/sbin/sshd";
/// The folder for locks in the home of a host.
pub const LOCKS: &str = "locks";
/// As many as the largest work has.
pub const MOST: usize = 500;

/// A server that stands for many hosts. It ends, with all its sessions, when this goes out of scope.
pub struct Hosts {
    pub folder: PathBuf,
    pub port: u16,
    server: Child,
}

impl Hosts {
    pub fn start(folder: &Path) -> Result<Self> {
        ensure!(Path::new(SSHD).exists(), "there is no {SSHD}: apt-get install openssh-server");
        let folder = folder.join("sshd");
        for n in 1..=MOST {
            fs::create_dir_all(folder.join("homes").join(address(n)).join(LOCKS))?;
        }
        fs::write(folder.join("begin.sh"), begin(&folder))?;
        fs::create_dir_all("/run/sshd")?;
        for name in ["host", "client"] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-C", "etcdrun-bench", "-f"])
                .arg(folder.join(name))
                .status()?;
            ensure!(made.success(), "ssh-keygen: {made}");
        }
        fs::copy(folder.join("client.pub"), folder.join("authorized_keys"))?;
        for _ in 0..5 {
            let port = TcpListener::bind("0.0.0.0:0")?.local_addr()?.port();
            fs::write(folder.join("sshd_config"), config(&folder, port))?;
            let server = launch(&folder)?;
            let mut hosts = Self { folder: folder.clone(), port, server };
            if hosts.answers()? {
                fs::write(hosts.known_hosts(port), hosts.known_hosts_text(port)?)?;
                return Ok(hosts);
            }
        }
        bail!("sshd does not start: {}", fs::read_to_string(folder.join("sshd.log")).unwrap_or_default())
    }

    /// False if it ended at once, most likely because someone else took the port first.
    fn answers(&mut self) -> Result<bool> {
        let deadline = Instant::now() + Duration::from_secs(20);
        while Instant::now() < deadline && self.server.try_wait()?.is_none() {
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return Ok(true);
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(false)
    }

    pub fn key(&self) -> PathBuf {
        self.folder.join("client")
    }

    /// All hosts with their keys, reached by that port. A line each, because paramiko knows no patterns.
    pub fn known_hosts(&self, port: u16) -> PathBuf {
        self.folder.join(format!("known_hosts_{port}"))
    }

    pub fn known_hosts_text(&self, port: u16) -> Result<String> {
        let key = fs::read_to_string(self.folder.join("host.pub")).context("the host key")?;
        let lines = (1..=MOST).map(|n| format!("[{}]:{port} {}\n", address(n), key.trim()));
        Ok(lines.collect())
    }

    /// The inventory of the first hosts, for etcdrun, reached by a port.
    pub fn inventory(&self, count: usize, port: u16) -> String {
        let (key, known) = (self.key(), self.known_hosts(port));
        let mut text = format!(
            "ssh:\n  user: root\n  port: {port}\n  identity_file: {}\n  known_hosts: {}\nhosts:\n",
            key.display(),
            known.display()
        );
        for n in 1..=count {
            let _ = writeln!(text, "  {}: {{ address: {} }}", name(n), address(n));
        }
        text
    }

    /// The same for Ansible.
    pub fn ansible_inventory(&self, count: usize, python: &Path) -> String {
        let common = format!(
            "-F none -o UserKnownHostsFile={} -o GlobalKnownHostsFile=none -o IdentitiesOnly=yes",
            self.known_hosts(self.port).display()
        );
        let mut text = String::from("[all]\n");
        for n in 1..=count {
            let _ = writeln!(text, "{} ansible_host={}", name(n), address(n));
        }
        let _ = write!(
            text,
            "[all:vars]\nansible_port={}\nansible_user=root\nansible_ssh_private_key_file={}\n\
             ansible_ssh_common_args={common}\nansible_python_interpreter={}\n",
            self.port,
            self.key().display(),
            python.display()
        );
        text
    }

    /// The same for what reads JSON.
    pub fn job(&self, count: usize) -> Value {
        let host = |n| json!({ "name": name(n), "address": address(n) });
        json!({
            "port": self.port,
            "user": "root",
            "key": self.key(),
            "known_hosts": self.known_hosts(self.port),
            "host_key": self.folder.join("host.pub"),
            "hosts": (1..=count).map(host).collect::<Vec<_>>(),
        })
    }

    /// Ends all sessions, so that no peer finds a connection that an earlier run has left open.
    pub fn hang_up(&self) {
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.server.id())).unwrap_or_default();
        for pid in
            children.split_whitespace().filter_map(|pid| pid.parse().ok()).filter_map(rustix::process::Pid::from_raw)
        {
            // It may have ended by itself meanwhile.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.hang_up();
        // Nothing more can be done about a server that does not end.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// The n-th host, from 1.
pub fn name(n: usize) -> String {
    format!("h{n}")
}

pub fn address(n: usize) -> String {
    format!("127.0.{}.{}", (n - 1) / 250 + 1, (n - 1) % 250 + 1)
}

fn config(folder: &Path, port: u16) -> String {
    let folder = folder.display();
    // A bash that is not the outermost one reads no start-up file, which would dominate every figure.
    format!(
        "Port {port}\nListenAddress 0.0.0.0\nAllowUsers root@127.0.0.0/8\nHostKey {folder}/host\n\
         PidFile none\nUsePAM no\nUseDNS no\nStrictModes no\nLogLevel ERROR\n\
         PermitRootLogin prohibit-password\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
         AuthorizedKeysFile {folder}/authorized_keys\nMaxStartups 2000:30:2000\n\
         Subsystem sftp internal-sftp\nSetEnv SHLVL=1 BASH_ENV={folder}/begin.sh\n"
    )
}

/// What a session begins with: each host has a home of its own, and stands in it. One for all of them would have each host
/// look through what the others keep there.
fn begin(folder: &Path) -> String {
    let homes = folder.join("homes");
    format!("unset BASH_ENV\nset -- $SSH_CONNECTION\nexport HOME={}/$3\ncd \"$HOME\"\n", homes.display())
}

fn launch(folder: &Path) -> Result<Child> {
    let log = File::create(folder.join("sshd.log"))?;
    Command::new(SSHD)
        .args(["-D", "-e", "-f"])
        .arg(folder.join("sshd_config"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        // What ends us does not end it before all else is tidied up.
        .process_group(0)
        .spawn()
        .context("cannot run sshd")
}
