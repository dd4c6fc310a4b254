//! Copies a folder: the directories and small files in a few execs, large files one by one.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{
    ActionContext, ActionError, EngineAction, ModuleError, Running, copy, file,
    local::{Body, Files},
    place::{Place, Upload},
};
use crate::{
    model::Outcome,
    remote::{Payload, Segment, Step, StepSink},
};

/// A folder this deep is a loop of links.
const MAX_DEPTH: usize = 64;
/// How much goes out in one exec.
const BATCH_BYTES: usize = 4 << 20;

/// A local folder and the directory it becomes on the target.
pub(super) struct Tree {
    place: Place,
    source: PathBuf,
    root: String,
    files: Files,
}

impl Tree {
    /// With `contents_only` the files go straight into `dest`, otherwise into a directory of the folder's name.
    pub fn new(place: Place, source: PathBuf, contents_only: bool, files: Files) -> Result<Self, ModuleError> {
        let dest = place.dest.trim_end_matches('/').to_owned();
        let root = match contents_only {
            true if dest.is_empty() => "/".to_owned(),
            true => dest,
            false => format!("{dest}/{}", copy::name_of(&source.to_string_lossy())?),
        };
        Ok(Self { place, source, root, files })
    }

    /// Every directory and file below the source, parents first, by name.
    fn entries(&self) -> Result<Vec<Entry>, ActionError> {
        let mut entries = vec![Entry::Directory(self.root.clone())];
        self.walk(&self.source, &self.root, 0, &mut entries)?;
        Ok(entries)
    }

    fn walk(&self, folder: &Path, dest: &str, depth: usize, entries: &mut Vec<Entry>) -> Result<(), ActionError> {
        if depth > MAX_DEPTH {
            return Err(ActionError::Failed(format!("`{}` is nested too deeply", self.source.display())));
        }
        let unreadable =
            |error: std::io::Error| ActionError::Failed(format!("cannot read `{}`: {error}", folder.display()));
        let mut children =
            fs::read_dir(folder).map_err(unreadable)?.collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
        children.sort_by_key(fs::DirEntry::file_name);
        for child in children {
            let name = child.file_name().into_string().map_err(|name| {
                ActionError::Failed(format!("the name of `{}` is not UTF-8", folder.join(name).display()))
            })?;
            let dest = format!("{}/{name}", dest.trim_end_matches('/'));
            let path = child.path();
            if path.is_dir() {
                entries.push(Entry::Directory(dest.clone()));
                self.walk(&path, &dest, depth + 1, entries)?;
            } else {
                entries.push(Entry::File { path, dest });
            }
        }
        Ok(())
    }

    fn step(&self, entry: &Entry) -> Result<Part, ActionError> {
        let (path, dest) = match entry {
            Entry::Directory(dest) => return Ok(Part::Small(self.directory(dest))),
            Entry::File { path, dest } => (path, dest),
        };
        let place = Place { dest: dest.clone(), name: String::new(), ..self.place.clone() };
        let body = self.files.read(path).map_err(|error| ActionError::Failed(error.message))?;
        let place = Place { secret: body.is_secret(), ..place };
        Ok(match body {
            Body::Inline { bytes, .. } => Part::Small(place.inline(&bytes)),
            Body::Upload(source) => Part::Large(Upload { place, source }),
        })
    }

    fn directory(&self, dest: &str) -> Payload {
        let Place { owner, group, directory_mode, .. } = &self.place;
        file::directory(dest, owner.as_deref(), group.as_deref(), directory_mode.as_ref())
    }
}

enum Entry {
    Directory(String),
    File { path: PathBuf, dest: String },
}

enum Part {
    Small(Payload),
    Large(Upload),
}

impl EngineAction for Tree {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            let mut whole = Outcome::ok().with("dest", self.root.clone());
            let mut batch = Batch::default();
            for entry in self.entries()? {
                match self.step(&entry)? {
                    Part::Small(payload) => batch.push(payload),
                    Part::Large(upload) => {
                        batch.send(context, &mut whole).await?;
                        if !whole.failed {
                            merge(&mut whole, upload.run(context).await?);
                        }
                    }
                }
                if batch.bytes > BATCH_BYTES {
                    batch.send(context, &mut whole).await?;
                }
                if whole.failed {
                    return Ok(whole);
                }
            }
            batch.send(context, &mut whole).await?;
            Ok(whole)
        })
    }
}

/// Payloads that wait to go out together.
#[derive(Default)]
struct Batch {
    payloads: Vec<Payload>,
    bytes: usize,
}

impl Batch {
    fn push(&mut self, payload: Payload) {
        self.bytes += payload.body.len() + payload.values.iter().map(|(_, value)| value.len()).sum::<usize>();
        self.payloads.push(payload);
    }

    async fn send(&mut self, context: &ActionContext, whole: &mut Outcome) -> Result<(), ActionError> {
        let Self { payloads, .. } = std::mem::take(self);
        if payloads.is_empty() {
            return Ok(());
        }
        let step = |payload| Step { timeout: context.timeout, ..context.session.step(payload, false) };
        let segment = Segment { steps: payloads.into_iter().map(step).collect() };
        for outcome in context.session.run(segment, &Unheard).await? {
            merge(whole, outcome);
        }
        Ok(())
    }
}

/// Adds what came of one part to what came of the folder.
fn merge(whole: &mut Outcome, part: Outcome) {
    whole.changed |= part.changed;
    whole.unknown |= part.unknown;
    whole.diff.extend(part.diff);
    if part.failed && !whole.failed {
        whole.failed = true;
        whole.msg = part.msg;
        whole.stderr = part.stderr;
    }
}

/// The parts of a folder are no steps that anybody follows.
struct Unheard;

impl StepSink for Unheard {
    fn started(&self, _: usize) {}
    fn output(&self, _: usize, _: bool, _: &[u8]) {}
    fn finished(&self, _: usize, _: &Outcome) {}
}
