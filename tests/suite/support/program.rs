//! The program itself, run as a person would run it, in a folder of its own.

use std::{
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use etcdrun::{
    model::Masker,
    secret::{KeyOptions, Keyring},
    source::{Opener as _, is_sealed},
};

use super::Sshd;

/// More than anything needs that gets a record or two further each time.
const LIVES: usize = 600;

/// How many parts the places have at which a command is killed; one of them is tried each time.
const PARTS: usize = 4;

/// The part whose turn it is, from 0; none if all of them are wanted.
fn part() -> Option<usize> {
    let day = || std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() as usize / 86_400;
    match std::env::var("ETCDRUN_TEST_KILLS") {
        Ok(all) if all == "all" => None,
        Ok(number) => Some(number.parse::<usize>().expect("ETCDRUN_TEST_KILLS is `all` or a number") % PARTS),
        Err(_) => Some(day() % PARTS),
    }
}

/// A folder with inputs, in which the program runs untouched by the developer's own settings.
pub struct Folder {
    folder: tempfile::TempDir,
    /// Hosts of several tests are one machine, and must not wait for each other's locks.
    shares_machine: bool,
}

/// What the program said, and how it ended.
pub struct Said {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Folder {
    pub fn new() -> Self {
        let folder = Self { folder: tempfile::tempdir().unwrap(), shares_machine: true };
        let alone = "UserKnownHostsFile none\nGlobalKnownHostsFile none\nIdentityAgent none\nIdentityFile none\n";
        folder.write("ssh_config", alone);
        folder
    }

    /// For hosts that are machines of their own.
    pub fn for_machines() -> Self {
        Self { shares_machine: false, ..Self::new() }
    }

    /// For machines of their own, with what is in another folder, at a place where nothing else is.
    pub fn copy_of(other: &Path, place: &Path) -> Self {
        if place.exists() {
            std::fs::remove_dir_all(place).unwrap();
        }
        let name = place.file_name().unwrap();
        let folder = tempfile::Builder::new().prefix(name).rand_bytes(0).tempdir_in(place.parent().unwrap()).unwrap();
        let contents = other.join(".");
        super::run("cp", &["--archive", "--", contents.to_str().unwrap(), place.to_str().unwrap()]);
        Self { folder, shares_machine: false }
    }

    /// With an inventory of the hosts h1 to hN on this server.
    pub fn with_hosts(sshd: &Sshd, count: usize) -> Self {
        let folder = Self::new();
        folder.write("inventory.yaml", &sshd.inventory(count));
        folder
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The folder of the newest run.
    pub fn last_run(&self) -> PathBuf {
        let runs = std::fs::read_dir(self.path(".etcdrun/runs")).unwrap();
        runs.map(|entry| entry.unwrap().path()).max().expect("there is a run")
    }

    /// How many whole records its journal has.
    pub fn records(&self) -> usize {
        let text = std::fs::read(self.last_run().join("journal")).unwrap_or_default();
        text.iter().filter(|byte| **byte == b'\n').count()
    }

    /// How many steps its journal says the end of.
    pub fn settled_steps(&self) -> usize {
        let text = std::fs::read_to_string(self.last_run().join("journal")).unwrap_or_default();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let settled = lines.filter(|line| line["type"] == "settled");
        settled.map(|line| line["node"].to_string()).collect::<std::collections::HashSet<_>>().len()
    }

    /// Kills a command a little behind what it finds written, again and again, and goes on with it each time. `place` is where in the
    /// writing of a record it dies, `further` how many records it gets: one that goes on writes some before anything new. `look` sees what
    /// each life leaves behind. Returns how often it was killed.
    pub fn killed_everywhere(&self, words: &[&str], place: &str, further: usize, look: impl FnMut()) -> usize {
        self.killed_from(2, words, place, further, look)
    }

    /// The same behind every record, at some of the places only, others each day; `ETCDRUN_TEST_KILLS` says which, or `all`, as for
    /// `make test-long`. It has to be killed this often if it is killed everywhere, and as much less often as there are fewer places.
    pub fn killed_here_and_there(&self, words: &[&str], often: usize, look: impl FnMut()) {
        let (deaths, often) = match part() {
            None => (self.killed_everywhere(words, "after", 2, look), often),
            Some(part) => {
                println!("part {} of {PARTS} of the places; all of them: ETCDRUN_TEST_KILLS=all", part + 1);
                (self.killed_from(2 + 2 * part, words, "after", 2 * PARTS, look), often / PARTS)
            }
        };
        println!("{deaths} deaths");
        assert!(deaths >= often, "it was killed {deaths} times");
    }

    fn killed_from(&self, first: usize, words: &[&str], place: &str, further: usize, mut look: impl FnMut()) -> usize {
        let (mut deaths, mut record) = (0, first);
        let (mut settled, mut patience) = (0, 0);
        for life in 0..LIVES {
            let words: &[&str] = if life == 0 { words } else { &["resume"] };
            let mut command = self.command(words);
            let command = command.env("ETCDRUN_TEST_DIE", format!("{place}:{record}"));
            let ended = command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
            // What is perishable is done again in each life: it needs more records where nothing new came of the last one.
            let now = self.settled_steps();
            patience = if now > settled { 0 } else { patience + 1 };
            settled = now;
            record = self.records() + further + life % 2 + patience;
            look();
            match ended.code() {
                None => deaths += 1,
                Some(0) => return deaths,
                // The last death came when all was written, so there is nothing to go on with.
                Some(5) => {
                    let runs: serde_json::Value =
                        serde_json::from_str(&self.run(&["runs", "--json"]).ends(0).stdout).unwrap();
                    assert_eq!(runs[0]["state"], "done", "{place}:{record}");
                    return deaths;
                }
                // A gate that was shut because a death has left a member down for a moment.
                Some(code) => assert!(matches!(code, 2 | 3), "{place}:{record} ended with {code}"),
            }
        }
        panic!("it was killed {deaths} times, and never came to its end");
    }

    pub fn write(&self, name: &str, text: &str) -> &Self {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        self
    }

    /// For the eyes of the operator alone, as keys and passwords have to be.
    pub fn write_private(&self, name: &str, text: &str) -> &Self {
        self.write(name, text);
        std::fs::set_permissions(self.path(name), std::fs::Permissions::from_mode(0o600)).unwrap();
        self
    }

    /// The text of a file that may be encrypted to the operator.
    pub fn opened(&self, name: &str) -> String {
        let bytes = std::fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        if !is_sealed(&bytes) {
            return String::from_utf8(bytes).unwrap();
        }
        let identities = vec![self.path(".config/etcdrun/identity")];
        let keyring = Keyring::new(KeyOptions { identities, ..KeyOptions::default() }, Masker::default());
        String::from_utf8(keyring.open(&bytes).unwrap_or_else(|error| panic!("{name}: {}", error.message)).to_vec())
            .unwrap()
    }

    /// The same, as a file for other programs.
    pub fn opened_file(&self, name: &str) -> PathBuf {
        let copy = format!("opened/{name}");
        self.write_private(&copy, &self.opened(name));
        self.path(&copy)
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_etcdrun"));
        for (name, _) in std::env::vars_os() {
            // What is switched off to see whether a test notices is switched off for all of it.
            if name.to_string_lossy().starts_with("ETCDRUN_") && name != "ETCDRUN_TEST_OFF" {
                command.env_remove(name);
            }
        }
        command
            .args(args)
            .current_dir(self.folder.path())
            .env("HOME", self.folder.path())
            .env_remove("XDG_CONFIG_HOME");
        command.env("ETCDRUN_SSH_CONFIG", self.path("ssh_config")).env_remove("SSH_AUTH_SOCK").env_remove("NO_COLOR");
        if self.shares_machine {
            command.env("ETCDRUN_LOCK_DIR", self.path("locks"));
        }
        command.stdin(Stdio::null());
        command
    }

    pub fn run(&self, args: &[&str]) -> Said {
        Said::of(self.command(args).output().unwrap())
    }
}

impl Said {
    pub fn of(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Fails with everything that was said, unless the program ended like this.
    #[track_caller]
    pub fn ends(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }
}
