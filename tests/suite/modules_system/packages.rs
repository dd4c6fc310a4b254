//! package, by apt, with a repository of our own on disk. dpkg and its database are the real ones.

use std::{fs, path::Path, process::Command, sync::Arc};

use etcdrun::digest::{hex, sha256};
use etcdrun::{
    model::Outcome,
    remote::{Link, LinkOptions, Session, Surroundings},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::support::{run, run_module};

/// A repository with a package of two versions, and the settings that make apt see nothing else.
struct Repository {
    folder: TempDir,
    package: String,
    session: Arc<Session>,
}

impl Repository {
    fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("etcdrun-apt-").tempdir().unwrap();
        run("chmod", &["0755", folder.path().to_str().unwrap()]);
        let config = folder.path().join("apt.conf");
        let environment = vec![("APT_CONFIG".to_owned(), config.display().to_string())];
        let surroundings = Surroundings { environment: Arc::new(environment), diff: true, ..Surroundings::default() };
        let session = Arc::new(Link::local(&["sh"], LinkOptions::default()).session(surroundings));
        let package = format!("etcdrun-test-{:06x}", rand::random_range(0..0x0100_0000));
        let repository = Self { folder, package, session };
        repository.configure(&config);
        repository.publish(&["1.0"]);
        repository
    }

    fn configure(&self, config: &Path) {
        let folder = self.folder.path().display();
        fs::create_dir_all(self.folder.path().join("lists/partial")).unwrap();
        fs::create_dir_all(self.folder.path().join("cache/archives/partial")).unwrap();
        fs::write(self.folder.path().join("sources.list"), format!("deb [trusted=yes] file:{folder} ./\n")).unwrap();
        let text = format!(
            "Dir::Etc::sourcelist \"{folder}/sources.list\";\nDir::Etc::sourceparts \"/dev/null\";\n\
             Dir::State::lists \"{folder}/lists\";\nDir::Cache \"{folder}/cache\";\nAPT::Sandbox::User \"root\";\n"
        );
        fs::write(config, text).unwrap();
    }

    /// Builds these versions and the index of them.
    fn publish(&self, versions: &[&str]) {
        let index: String = versions.iter().map(|version| self.build(version)).collect();
        fs::write(self.folder.path().join("Packages"), index).unwrap();
    }

    fn build(&self, version: &str) -> String {
        let tree = self.folder.path().join(format!("tree-{version}"));
        fs::create_dir_all(tree.join("DEBIAN")).unwrap();
        let control = format!(
            "Package: {}\nVersion: {version}\nArchitecture: all\nMaintainer: nobody <nobody@example.org>\n\
             Provides: {}-virtual\nDescription: made for a test\n",
            self.package, self.package
        );
        fs::write(tree.join("DEBIAN/control"), &control).unwrap();
        let file = format!("{}_{version}_all.deb", self.package);
        let path = self.folder.path().join(&file);
        run("dpkg-deb", &["--build", "--root-owner-group", tree.to_str().unwrap(), path.to_str().unwrap()]);
        let body = fs::read(&path).unwrap();
        let sum: String = hex(sha256(&body));
        format!("{control}Filename: ./{file}\nSize: {}\nSHA256: {sum}\n\n", body.len())
    }

    fn installed(&self) -> Option<String> {
        let query =
            Command::new("dpkg-query").args(["-W", "-f", "${db:Status-Status} ${Version}", &self.package]).output();
        let text = String::from_utf8(query.unwrap().stdout).unwrap();
        text.strip_prefix("installed ").map(str::to_owned)
    }

    async fn act(&self, args: &Value, check_mode: bool) -> Outcome {
        run_module(&self.session, "package", &args.to_string(), check_mode).await
    }

    /// The plan foretells the change and makes none, the run makes it, once.
    async fn converges(&self, args: Value) -> Outcome {
        let before = self.installed();
        let plan = self.act(&args, true).await;
        assert!(plan.changed && !plan.failed, "{args}: {plan:?}");
        assert_eq!(self.installed(), before);
        let done = self.act(&args, false).await;
        assert!(done.changed && !done.failed, "{args}: {done:?}");
        assert_eq!((&plan.diff, &plan.data["changes"]), (&done.diff, &done.data["changes"]));
        self.stays(args).await;
        done
    }

    async fn stays(&self, args: Value) {
        for check_mode in [true, false] {
            let outcome = self.act(&args, check_mode).await;
            assert!(!outcome.changed && !outcome.failed, "{args}: {outcome:?}");
        }
    }
}

impl Drop for Repository {
    fn drop(&mut self) {
        let _ = Command::new("dpkg").args(["--purge", &self.package]).output();
    }
}

#[tokio::test]
async fn packages_are_installed_upgraded_pinned_and_removed() {
    let repository = Repository::new();
    let name = repository.package.as_str();
    let update = repository.act(&json!({ "update_cache": true }), false).await;
    assert_eq!((update.failed, update.changed, update.data["cache_updated"].clone()), (false, true, json!(true)));

    let done = repository.converges(json!({ "name": name })).await;
    assert_eq!(done.data["changes"], json!([format!("install {name} 1.0")]));
    assert_eq!((done.data["manager"].clone(), repository.installed().as_deref()), (json!("apt"), Some("1.0")));
    repository.stays(json!({ "name": format!("{name}-virtual") })).await;

    repository.publish(&["1.0", "2.0"]);
    repository.act(&json!({ "update_cache": true }), false).await;
    repository.stays(json!({ "name": [name] })).await;
    let plan = repository.act(&json!({ "upgrade": true }), true).await;
    assert_eq!(plan.data["changes"], json!([format!("upgrade {name} 2.0")]), "{plan:?}");
    let done = repository.converges(json!({ "name": [name], "state": "latest" })).await;
    assert_eq!(done.data["changes"], json!([format!("upgrade {name} 2.0")]));
    repository.stays(json!({ "name": format!("{name}=2.*") })).await;

    // All that is installed, which is nothing else in this repository.
    repository.publish(&["1.0", "2.0", "3.0"]);
    repository.act(&json!({ "update_cache": true }), false).await;
    let done = repository.converges(json!({ "upgrade": true })).await;
    assert_eq!(done.data["changes"], json!([format!("upgrade {name} 3.0")]));

    let older = json!({ "name": format!("{name}=1.0") });
    assert!(repository.act(&older, false).await.failed, "a downgrade must be asked for");
    let mut allowed = older.clone();
    allowed["allow_downgrade"] = json!(true);
    repository.converges(allowed).await;
    assert_eq!(repository.installed().as_deref(), Some("1.0"));

    let done = repository.converges(json!({ "name": [name, "etcdrun-no-such-package"], "state": "absent" })).await;
    assert_eq!((done.data["changes"].clone(), repository.installed()), (json!([format!("remove {name}")]), None));
}

#[tokio::test]
async fn a_package_that_nobody_has_fails_with_a_hint() {
    let repository = Repository::new();
    let args = json!({ "name": repository.package });
    let outcome = repository.act(&args, false).await;
    assert!(outcome.failed && outcome.msg.contains("update_cache"), "{outcome:?}");
    assert!(outcome.stderr.contains("Unable to locate package"), "{outcome:?}");
    // With an update first, a plan cannot know.
    let plan = repository.act(&json!({ "name": repository.package, "update_cache": true }), true).await;
    assert!(plan.unknown && !plan.failed, "{plan:?}");
}
