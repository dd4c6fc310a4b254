//! Puts one file into its place on the target: shared by `copy`, `template` and whatever else writes files.

use std::path::Path;

use super::{
    Action, ActionContext, ActionError, EngineAction, ResultField, Running,
    local::{Body, Fingerprint, Source},
};
use crate::{
    model::{FileMode, Value},
    remote::Payload,
};
use etcdrun_base::mutant::{is_off, repair};

const BODY: &str = concat!(include_str!("attributes.sh"), include_str!("staged.sh"), include_str!("place.sh"));

pub(crate) const RESULT: &[ResultField] = &[
    ResultField { name: "dest", doc: "The path of the file on the target." },
    ResultField { name: "sha256", doc: "The checksum of the file." },
    ResultField { name: "backup_file", doc: "The copy of the previous file, with `backup`." },
];

/// Where a file goes, and what it should be like there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    pub dest: String,
    /// The file's name, should `dest` be a directory. Empty if it must not be one.
    pub name: String,
    pub owner: Option<String>,
    pub group: Option<String>,
    pub mode: Option<FileMode>,
    /// For the directory that `dest` names by a trailing slash.
    pub directory_mode: Option<FileMode>,
    pub backup: bool,
    /// Leave a file that exists as it is.
    pub keep: bool,
    /// Write to what a link at `dest` points to, rather than replacing the link.
    pub follow: bool,
    /// A command that must accept the new file; `%s` is its path.
    pub validate: Vec<String>,
    /// The body is secret: what changes in it is not shown.
    pub secret: bool,
    /// The state the file must still be in, or nothing is written and the result says `stale`.
    pub expect: Option<Expect>,
    /// The unit that reads the file when it starts: while it runs, a new body waits beside the file, as FILE.next.
    pub stage_for: Option<String>,
    /// The variable that has an address which others know: another value waits also while that unit is stopped.
    pub address_line: Option<&'static str>,
}

/// What was at the destination when it was last looked at.
#[derive(Clone, Debug)]
pub(crate) enum Expect {
    Absent,
    Sha256(String),
}

impl Place {
    /// A payload that carries the body with it. The body must not contain NUL bytes.
    pub fn inline(&self, body: &[u8]) -> Payload {
        let fingerprint = Fingerprint::of(body);
        self.payload("inline", &fingerprint).hidden("content", body).glance(&self.dest, fingerprint.size)
    }

    /// A payload that settles everything but the body, and says `wanted` if that must travel.
    pub fn ask(&self, fingerprint: &Fingerprint) -> Payload {
        self.payload("ask", fingerprint)
    }

    /// A payload for a body that was uploaded before.
    pub fn staged(&self, path: &str, fingerprint: &Fingerprint) -> Payload {
        self.payload("staged", fingerprint).value("staged", path)
    }

    /// A payload that copies a file which is already on the target.
    pub fn remote(&self, src: &str) -> Payload {
        let unknown = Fingerprint { sha256: String::new(), size: 0 };
        self.payload("remote", &unknown).value("staged", src)
    }

    /// A payload that downloads the file; `body` is this module's with the functions of `download.sh` in it.
    pub fn url(&self, body: &'static str, sha256: &str) -> Payload {
        let known = Fingerprint { sha256: sha256.to_owned(), size: 0 };
        Payload { body, ..self.payload("url", &known) }
    }

    fn payload(&self, source: &str, fingerprint: &Fingerprint) -> Payload {
        let expect = self.expect.as_ref().map(|expect| match expect {
            Expect::Absent => "-".to_owned(),
            Expect::Sha256(sum) => format!("-{sum}"),
        });
        let size = if source == "url" { String::new() } else { fingerprint.size.to_string() };
        let payload = Payload::new(BODY)
            .value("source", source)
            .value("sha256", &fingerprint.sha256)
            .value("size", size)
            .value("dest", &self.dest)
            .value("name", &self.name)
            .maybe("directory_mode", self.directory_mode.as_ref().map(FileMode::as_str))
            .flag("backup", self.backup)
            .flag("keep", self.keep)
            .flag("follow", self.follow)
            .maybe("expect", expect)
            .maybe("stage_for", self.stage_for.as_deref().filter(|_| !is_off(repair::STAGED)))
            .maybe("address_line", self.address_line);
        let payload = attributes(payload, self.owner.as_deref(), self.group.as_deref(), self.mode.as_ref());
        let payload = Payload { no_diff: self.secret, ..payload };
        self.validate.iter().fold(payload, Payload::arg)
    }

    /// Places a local file: inside the payload if it is a small text, by an upload otherwise.
    pub fn local(self, body: Body) -> Action {
        let place = Self { secret: body.is_secret(), ..self };
        match body {
            Body::Inline { bytes, .. } => Action::Remote(place.inline(&bytes)),
            Body::Upload(source) => Action::Engine(Box::new(Upload { place, source })),
        }
    }
}

/// The values that `attributes.sh` reads.
pub(crate) fn attributes(
    payload: Payload,
    owner: Option<&str>,
    group: Option<&str>,
    mode: Option<&FileMode>,
) -> Payload {
    payload.maybe("owner", owner).maybe("group", group).maybe("mode", mode.map(canonical_mode))
}

/// Octal modes as `stat` prints them, so that a shell can compare them as text.
fn canonical_mode(mode: &FileMode) -> &str {
    let text = mode.as_str();
    match text.trim_start_matches('0') {
        "" => "0",
        digits if digits.starts_with(|c: char| c.is_ascii_digit()) => digits,
        _ => text,
    }
}

/// A body that is too large, or not text, to be part of a payload.
pub(crate) struct Upload {
    pub place: Place,
    pub source: Source,
}

impl EngineAction for Upload {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            let fingerprint = self.source.fingerprint().await?;
            let mut asked = context.run(self.place.ask(&fingerprint)).await?;
            let wanted = asked.data.shift_remove("wanted") == Some(Value::Bool(true));
            if asked.failed || context.check_mode() || !wanted {
                return Ok(asked);
            }
            let staged = self.source.upload(context).await?;
            context.run(self.place.staged(&staged, &fingerprint)).await
        })
    }
}

/// Reads a file on a thread that may block.
pub(crate) async fn fingerprint(path: &Path) -> Result<Fingerprint, ActionError> {
    let failed = |error: String| ActionError::Failed(format!("cannot read `{}`: {error}", path.display()));
    let owned = path.to_owned();
    tokio::task::spawn_blocking(move || Fingerprint::of_file(&owned))
        .await
        .map_err(|error| failed(error.to_string()))?
        .map_err(|error| failed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;
    use crate::remote::{Link, LinkOptions, Segment, Step, StepSink, Surroundings};

    struct Deaf;

    impl StepSink for Deaf {
        fn started(&self, _step: usize) {}
        fn output(&self, _step: usize, _error: bool, _text: &[u8]) {}
        fn finished(&self, _step: usize, _outcome: &crate::model::Outcome) {}
    }

    #[tokio::test]
    async fn files_that_are_looked_at_together_are_judged_each_by_itself() {
        for shell in [&["dash"][..], &["bash"], &["busybox", "sh"]] {
            let folder = tempfile::tempdir().unwrap();
            let path = |name: &str| folder.path().join(name);
            let place = |name: &str| Place {
                dest: path(name).display().to_string(),
                mode: Some("0644".parse().unwrap()),
                ..Place::default()
            };
            let link = Link::local(shell, LinkOptions::default());
            let run = async |files: &[(&str, &str)]| {
                let step = |(name, body): &(&str, &str)| Step::plain(place(name).inline(body.as_bytes()));
                let segment = Segment { steps: files.iter().map(step).collect() };
                let session = link.session(Surroundings::default());
                let outcomes = session.run(segment, &Deaf).await.unwrap();
                let changed: String = outcomes.iter().map(|outcome| if outcome.changed { '+' } else { '.' }).collect();
                for (name, body) in files {
                    assert_eq!(fs::read_to_string(path(name)).unwrap(), *body, "{name} {shell:?}");
                }
                changed
            };
            for (name, body) in [("same", "text"), ("other", "TEXT"), ("longer", "a text"), ("mode", "text")] {
                fs::write(path(name), body).unwrap();
            }
            fs::write(path("none"), "").unwrap();
            fs::set_permissions(path("mode"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
            symlink(path("same"), path("link")).unwrap();
            let all = ["same", "other", "longer", "mode", "absent", "link"].map(|name| (name, "text"));
            let all = [&all[..], &[("none", ""), ("same-", "text")]].concat();
            assert_eq!(run(&all).await, ".+++++.+", "{shell:?}");
            assert_eq!(run(&all).await, "........", "{shell:?}");
            assert!(!path("link").is_symlink());

            // The second one must not be taken for what it was before the first.
            fs::create_dir(path("folder")).unwrap();
            symlink(path("folder"), path("way")).unwrap();
            fs::write(path("folder/f"), "second").unwrap();
            let segment = [("folder/f", "first"), ("way/f", "second")]
                .map(|(name, body)| Step::plain(place(name).inline(body.as_bytes())));
            let session = link.session(Surroundings::default());
            session.run(Segment { steps: segment.into() }, &Deaf).await.unwrap();
            assert_eq!(fs::read_to_string(path("folder/f")).unwrap(), "second", "{shell:?}");
        }
    }

    #[tokio::test]
    async fn a_file_that_is_not_the_expected_one_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let session = Link::local(&["sh"], LinkOptions::default()).session(Surroundings::default());
        let place = |expect| Place { dest: path.display().to_string(), expect: Some(expect), ..Place::default() };
        let write = async |expect| session.run_one(place(expect).inline(b"new"), false).await.unwrap();

        std::fs::write(&path, "somebody else's").unwrap();
        for expect in [Expect::Absent, Expect::Sha256(Fingerprint::of(b"mine").sha256)] {
            let outcome = write(expect).await;
            assert_eq!((outcome.changed, outcome.data.get("stale")), (false, Some(&Value::Bool(true))));
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "somebody else's");
        }
        assert!(write(Expect::Sha256(Fingerprint::of(b"somebody else's").sha256)).await.changed);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        std::fs::remove_file(&path).unwrap();
        assert!(write(Expect::Absent).await.changed);
    }

    #[test]
    fn octal_modes_are_written_as_stat_prints_them() {
        for (given, canonical) in
            [("0644", "644"), ("00755", "755"), ("4755", "4755"), ("0000", "0"), ("u=rw,g=", "u=rw,g=")]
        {
            assert_eq!(canonical_mode(&given.parse().unwrap()), canonical);
        }
    }

    #[test]
    fn the_host_knows_which_unit_a_file_waits_for() {
        let place = Place { stage_for: Some("etcd.service".to_owned()), ..Place::default() };
        let sent = place.inline(b"x").values.into_iter().find(|(name, _)| *name == "stage_for");
        assert_eq!(sent.unwrap().1, b"etcd.service");
    }
}
