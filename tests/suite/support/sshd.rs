//! A private OpenSSH server on loopback: its own keys, port, configuration and folder.

use std::fmt::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use etcdrun::ssh::{Endpoint, Options};
use tempfile::TempDir;

use super::process::{Group, run};

const SSHD: &str = "/usr/sbin/sshd";

/// A running server. It ends, with all its sessions, when this goes out of scope.
pub struct Sshd {
    pub port: u16,
    pub user: String,
    folder: TempDir,
    server: Group,
}

/// What a server should be like. [`Sshd::start`] has the usual one.
pub struct SshdBuilder {
    host_key_types: Vec<&'static str>,
    lines: Vec<String>,
    environment: Vec<String>,
    user: String,
    is_other_user: bool,
    folder: TempDir,
}

impl SshdBuilder {
    /// Which host keys to make: `ed25519` (the default), `ecdsa`, `rsa`.
    pub fn host_keys(mut self, types: &[&'static str]) -> Self {
        self.host_key_types = types.to_vec();
        self
    }

    /// A line of `sshd_config`. It comes before the usual ones, and the first one counts.
    pub fn config(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }

    /// A variable in the environment of every session.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push(format!("{name}={value}"));
        self
    }

    /// Whom [`Sshd::endpoint`] and [`Sshd::inventory`] log in as.
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = user.into();
        self.is_other_user = true;
        self
    }

    /// The server's folder, to put files there before it starts.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Makes the host keys now, so that they can be signed before the server starts.
    pub fn make_host_keys(&self) {
        for kind in &self.host_key_types {
            make_key(&self.folder.path().join(format!("host_{kind}")), kind, "");
        }
    }

    pub fn start(self) -> Sshd {
        assert!(
            Path::new(SSHD).exists(),
            "these tests need a real OpenSSH server, but there is no {SSHD}: apt-get install openssh-server"
        );
        // sshd wants its privilege separation folder even where it is not used.
        let _ = std::fs::create_dir_all("/run/sshd");
        let folder = self.folder.path();
        // Other users' sessions must be able to read the authorized keys in here.
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
        self.make_host_keys();
        make_key(&folder.join("client"), "ed25519", "");
        std::fs::copy(folder.join("client.pub"), folder.join("authorized_keys")).unwrap();
        for _ in 0..5 {
            let port = free_port();
            std::fs::write(folder.join("known_hosts"), self.known_hosts(port)).unwrap();
            std::fs::write(folder.join("sshd_config"), self.sshd_config(port)).unwrap();
            if let Some(server) = launch(folder, port) {
                return Sshd { port, user: self.user, folder: self.folder, server };
            }
        }
        let log = std::fs::read_to_string(folder.join("sshd.log")).unwrap_or_default();
        panic!("sshd does not start:\n{log}");
    }

    fn known_hosts(&self, port: u16) -> String {
        let line = |kind: &&str| {
            let key = std::fs::read_to_string(self.folder.path().join(format!("host_{kind}.pub"))).unwrap();
            format!("[127.*]:{port} {key}")
        };
        self.host_key_types.iter().map(line).collect()
    }

    fn sshd_config(&self, port: u16) -> String {
        let folder = self.folder.path().display();
        let mut text = self.lines.join("\n");
        let _ = write!(
            text,
            "\nPort {port}\nListenAddress 0.0.0.0\nAllowUsers *@127.0.0.0/8\n\
             PidFile none\nUsePAM no\nUseDNS no\nStrictModes no\nLogLevel VERBOSE\n\
             PermitRootLogin prohibit-password\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
             AuthorizedKeysFile {folder}/authorized_keys\n\
             MaxStartups 1000:30:1000\nMaxAuthTries 20\nAllowTcpForwarding yes\n"
        );
        // A bash that is not the outermost one reads no .bashrc: whatever the developer keeps in
        // there is slow, and must not be killed half-way.
        // Hosts keep ledgers and jobs in the home, and those of tests must not meet.
        let own_home = !self.is_other_user && !self.environment.iter().any(|variable| variable.starts_with("HOME="));
        let home = if own_home { format!("HOME={folder}") } else { String::new() };
        let _ = writeln!(text, "SetEnv SHLVL=1 {home} {}", self.environment.join(" "));
        for kind in &self.host_key_types {
            let _ = writeln!(text, "HostKey {folder}/host_{kind}");
        }
        text
    }
}

impl Sshd {
    /// A server that lets the current user in with [`Sshd::key`], on every 127.x.y.z address.
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// The same, with a folder of its own for temporary files.
    pub fn with_own_tmp() -> Self {
        let builder = Self::builder();
        let tmp = builder.folder().join("tmp");
        std::fs::create_dir(&tmp).unwrap();
        builder.env("TMPDIR", tmp.to_str().unwrap()).start()
    }

    /// How many runners were told to stop and have not yet; for [`Sshd::with_own_tmp`].
    pub fn stop_requests(&self) -> usize {
        let names = std::fs::read_dir(self.path("tmp")).unwrap().flatten().map(|entry| entry.file_name());
        names.filter(|name| name.to_string_lossy().starts_with("etcdrun-stop-")).count()
    }

    pub fn builder() -> SshdBuilder {
        let user = run("id", &["-un"]).stdout;
        SshdBuilder {
            host_key_types: vec!["ed25519"],
            lines: Vec::new(),
            environment: Vec::new(),
            is_other_user: false,
            user: String::from_utf8(user).unwrap().trim().to_owned(),
            folder: tempfile::Builder::new().prefix("etcdrun-sshd-").tempdir().unwrap(),
        }
    }

    /// A file in the server's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The client's private key.
    pub fn key(&self) -> PathBuf {
        self.path("client")
    }

    pub fn known_hosts(&self) -> PathBuf {
        self.path("known_hosts")
    }

    pub fn pid(&self) -> i32 {
        self.server.pid()
    }

    /// The processes that serve connections, and what runs in them.
    pub fn sessions(&self) -> Vec<i32> {
        super::descendants(self.pid())
    }

    /// Ends the server and every connection to it, as a power cut would.
    pub fn kill(&mut self) {
        self.server.kill();
    }

    /// Starts a killed server again, on the same port and with the same keys.
    pub fn restart(&mut self) {
        self.server = launch(self.folder.path(), self.port).expect("sshd starts again");
    }

    /// Lets another key in.
    pub fn authorize(&self, public_key: &str) {
        let path = self.path("authorized_keys");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(path, format!("{text}{}\n", public_key.trim())).unwrap();
    }

    /// A public host key as it stands in a known-hosts line.
    pub fn host_key(&self, kind: &str) -> String {
        let text = std::fs::read_to_string(self.path(&format!("host_{kind}.pub"))).unwrap();
        text.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
    }

    /// Everything needed to log in to this server under a name and an address of loopback.
    pub fn endpoint(&self, name: &str, address: &str) -> Endpoint {
        Endpoint {
            address: Some(address.to_owned()),
            port: Some(self.port),
            user: Some(self.user.clone()),
            identity_files: vec![self.key()],
            identities_only: Some(true),
            known_hosts: vec![self.known_hosts()],
            ..Endpoint::new(name)
        }
    }

    /// The inventory's name and address of the n-th host, from 1.
    pub fn host(n: usize) -> (String, String) {
        let (high, low) = ((n - 1) / 250 + 1, (n - 1) % 250 + 1);
        (format!("h{n}"), format!("127.0.{high}.{low}"))
    }

    /// The `ssh:` section of an inventory for this server.
    pub fn inventory_ssh(&self) -> String {
        format!(
            "ssh:\n  user: {}\n  port: {}\n  identity_file: {}\n  known_hosts: {}\n",
            self.user,
            self.port,
            self.key().display(),
            self.known_hosts().display()
        )
    }

    /// An inventory of the hosts h1 to hN, which are all this server.
    pub fn inventory(&self, count: usize) -> String {
        let mut text = self.inventory_ssh() + "hosts:\n";
        for n in 1..=count {
            let (name, address) = Self::host(n);
            let _ = writeln!(text, "  {name}: {{ address: {address} }}");
        }
        text
    }
}

/// Options that leave the operator's own configuration, agent and known hosts alone.
pub fn options(folder: &Path) -> Options {
    let config_file = folder.join("ssh_config");
    let isolated = "UserKnownHostsFile none\nGlobalKnownHostsFile none\nIdentityAgent none\nIdentityFile none\n";
    std::fs::write(&config_file, isolated).unwrap();
    Options { config_file: Some(config_file), connect_timeout: Duration::from_secs(20), ..Options::default() }
}

/// Makes a key pair with ssh-keygen, unless it is there already.
pub fn make_key(path: &Path, kind: &str, passphrase: &str) {
    if !path.exists() {
        let path = path.to_str().unwrap();
        run("ssh-keygen", &["-q", "-t", kind, "-N", passphrase, "-C", "etcdrun-test", "-f", path]);
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// `None` if it ended at once, most likely because someone else took the port first.
fn launch(folder: &Path, port: u16) -> Option<Group> {
    let child = Command::new(SSHD)
        .arg("-D")
        .arg("-f")
        .arg(folder.join("sshd_config"))
        .arg("-E")
        .arg(folder.join("sshd.log"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("cannot run {SSHD}: {error}"));
    let mut server = Group(child);
    let deadline = Instant::now() + Duration::from_secs(20);
    while Instant::now() < deadline {
        if server.0.try_wait().unwrap().is_some() {
            return None;
        }
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return Some(server);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    None
}
