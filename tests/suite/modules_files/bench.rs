//! A target with an empty folder, and the questions every module must answer well.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use etcdrun::digest::sha256;
use etcdrun::{
    model::{Outcome, Status, ValueMap},
    remote::Session,
};
use serde_json::Value;
use tempfile::TempDir;

use super::support::{Operator, Sshd, local_session, session};

/// One target, a folder on it, and a folder of the operator.
pub struct Bench {
    pub target: &'static str,
    pub session: Arc<Session>,
    /// The folder on the target. Both are this machine, so the tests can look at it directly.
    pub remote: TempDir,
    pub files: TempDir,
    pub vars: ValueMap,
}

impl Bench {
    fn new(target: &'static str, session: Arc<Session>) -> Self {
        let folder = || tempfile::tempdir().unwrap();
        Self { target, session, remote: folder(), files: folder(), vars: ValueMap::new() }
    }

    fn operator(&self) -> Operator<'_> {
        Operator { session: self.session.clone(), files: self.files.path(), vars: self.vars.clone() }
    }

    pub async fn run(&self, module: &str, args: Value) -> Outcome {
        self.operator().run(module, &args.to_string()).await
    }

    pub async fn check(&self, module: &str, args: Value) -> Outcome {
        self.operator().check(module, &args.to_string()).await
    }

    /// What is wrong with rendered arguments.
    pub fn refuses(&self, module: &str, args: Value) -> String {
        match self.operator().build(module, &args.to_string(), false) {
            Ok(_) => panic!("{module} took {args}"),
            Err(problems) => problems.into_iter().map(|problem| problem.message).collect(),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.remote.path().join(name)
    }

    /// A path on the target as an argument.
    pub fn at(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{}: {name}: {error}", self.target))
    }

    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.path(name), text).unwrap();
    }

    pub fn mode(&self, name: &str) -> u32 {
        fs::metadata(self.path(name)).unwrap().permissions().mode() & 0o7777
    }

    pub fn set_mode(&self, name: &str, mode: u32) {
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    /// A file of the operator.
    pub fn give(&self, name: &str, body: impl AsRef<[u8]>) {
        let path = self.files.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, body).unwrap();
    }

    /// Runs a task as it is run in life: planned, applied, planned and applied again. The plan must foresee the
    /// change and change nothing; the second time there must be nothing to do.
    pub async fn converges(&self, module: &str, args: Value) -> Outcome {
        let before = self.tree();
        let plan = self.check(module, args.clone()).await;
        assert_eq!(plan.status(), Status::Changed, "{} {module} {args} planned: {plan:?}", self.target);
        assert!(!plan.unknown, "{} {module} {args}: {plan:?}", self.target);
        assert_eq!(self.tree(), before, "{} {module} {args}: the plan changed something", self.target);
        let done = self.run(module, args.clone()).await;
        assert_eq!(done.status(), Status::Changed, "{} {module} {args}: {done:?}", self.target);
        assert_eq!(plan.diff, done.diff, "{} {module} {args}", self.target);
        self.settled(module, args).await;
        done
    }

    /// There is nothing to do.
    pub async fn settled(&self, module: &str, args: Value) {
        let before = self.tree();
        for again in [self.check(module, args.clone()).await, self.run(module, args.clone()).await] {
            assert_eq!(again.status(), Status::Ok, "{} {module} {args} again: {again:?}", self.target);
            assert!(again.diff.is_empty() && !again.unknown, "{} {module} {args} again: {again:?}", self.target);
        }
        assert_eq!(self.tree(), before, "{} {module} {args}: the second run changed something", self.target);
    }

    /// Fails with a message that says this, and leaves everything as it was.
    pub async fn fails(&self, module: &str, args: Value, message: &str) {
        let before = self.tree();
        let outcome = self.run(module, args.clone()).await;
        assert_eq!(outcome.status(), Status::Failed, "{} {module} {args}: {outcome:?}", self.target);
        assert!(outcome.msg.contains(message), "{} {module} {args}: {outcome:?}", self.target);
        assert_eq!(self.tree(), before, "{} {module} {args}: a failure left something behind", self.target);
    }

    /// Everything in the folder on the target: kind, attributes, and content.
    pub fn tree(&self) -> BTreeMap<PathBuf, String> {
        let mut found = BTreeMap::new();
        look(self.remote.path(), &mut found);
        found
    }
}

fn look(path: &Path, found: &mut BTreeMap<PathBuf, String>) {
    let about = fs::symlink_metadata(path).unwrap();
    let body = match about.file_type() {
        kind if kind.is_symlink() => format!("{:?}", fs::read_link(path).unwrap()),
        kind if kind.is_file() => describe(&fs::read(path).unwrap()),
        _ => String::new(),
    };
    let times = if about.is_dir() { (0, 0) } else { (about.mtime(), about.mtime_nsec()) };
    let line = format!("{:o} {}:{} {times:?} {body}", about.mode(), about.uid(), about.gid());
    found.insert(path.to_owned(), line);
    if about.is_dir() {
        fs::read_dir(path).unwrap().for_each(|entry| look(&entry.unwrap().path(), found));
    }
}

/// Short bodies as they are, for the messages; long ones by their checksum.
fn describe(body: &[u8]) -> String {
    match body.len() {
        0..1000 => format!("{:?}", String::from_utf8_lossy(body)),
        length => format!("{length} bytes {:?}", sha256(body)),
    }
}

/// Runs a test on each kind of target.
pub async fn everywhere(test: impl AsyncFn(Bench)) {
    let sshd = Sshd::start();
    on("ssh", session(&sshd), &test).await;
    on("bash", local_session(&["bash"]), &test).await;
    let applets = Applets::install();
    let path = format!("PATH={}", applets.0.path().display());
    let program = applets.0.path().join("sh");
    let shell = ["env", "-i", "HOME=/root", &path, program.to_str().unwrap()];
    on("busybox", local_session(&shell), &test).await;
}

/// Closes the link afterwards, so that nothing stays in its staging folder.
async fn on(target: &'static str, session: Arc<Session>, test: &impl AsyncFn(Bench)) {
    test(Bench::new(target, session.clone())).await;
    session.link.close().await;
}

/// Runs a test over SSH only, where the shell makes no difference.
pub async fn over_ssh(test: impl AsyncFn(Bench)) {
    let sshd = Sshd::start();
    on("ssh", session(&sshd), &test).await;
}

/// A folder with nothing but busybox under all its names.
struct Applets(TempDir);

impl Applets {
    fn install() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let output = Command::new("busybox").args(["--install", "-s"]).arg(folder.path()).output().unwrap();
        assert!(output.status.success(), "busybox: {}", String::from_utf8_lossy(&output.stderr));
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Self(folder)
    }
}

/// Names that a shell could stumble over.
pub const ODD_NAMES: &[&str] = &[
    "with space",
    "it's \"quoted\"",
    "new\nline",
    "-rf",
    "ünïcode ✓",
    "$HOME `id` $(id) \\n * ?",
    "trailing ",
    "#comment",
    "%s %d",
];

/// The user and group that files are given to in tests.
pub const NOBODY: (u32, &str) = (65534, "nobody");

pub fn owner(path: &Path) -> (u32, u32) {
    let about = fs::symlink_metadata(path).unwrap();
    (about.uid(), about.gid())
}
