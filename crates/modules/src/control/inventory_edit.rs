//! `inventory_edit`: a file of the inventory says what has become of a member.

use std::{
    fs,
    io::Write as _,
    ops::Range,
    path::Path,
    sync::{Mutex, PoisonError},
};

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, ResultField, Running,
    scratch::Scratch,
};
use crate::{
    inventory::edit::{self, Edit},
    model::{Diff, Effects, Outcome},
    source::disk,
    task::Permit,
};

/// Files are read, changed and written by one task at a time.
#[derive(Default)]
struct EditTurn(Mutex<()>);

/// Edits a file of the inventory, if the entry has not changed since the edit was decided.
///
/// With `cluster`, only the entry of that cluster is compared: changes to the others are kept. The new file
/// replaces the old one in one step, with its mode. Comments are kept. If the entry has changed in the meantime, the file is not
/// edited, and the task fails and prints the intended text.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InventoryEdit {
    path: String,
    /// The name of the cluster whose entry to edit; default: the complete file.
    #[serde(default)]
    cluster: String,
    /// The SHA-256 of the entry before the edit.
    before: String,
    /// The SHA-256 of the entry after the edit.
    after: String,
    /// The edits, by byte positions in the old entry.
    #[serde(default)]
    edits: Vec<EditEntry>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EditEntry {
    /// The first byte to remove.
    start: usize,
    /// The first byte to keep.
    end: usize,
    /// The text to insert.
    #[serde(default)]
    text: String,
}

impl Module for InventoryEdit {
    const NAME: &'static str = "inventory_edit";
    const EXAMPLE: &'static str = "\
- name: Update the inventory file
  inventory_edit:
    path: /srv/etcd/inventory.yaml
    cluster: prod
    before: 2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae
    after: fcde2b2edba56bf408601fb721fe9b5c338d10ee429ea04fae5511b68fbf8fb9
    edits: [{ start: 0, end: 3, text: bar }]
  on: operator
";
    const RESULT: &'static [ResultField] = &[];

    fn effects(&self) -> Effects {
        Effects { here: true, ..Effects::converging() }
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        Ok(Action::Engine(Box::new(self)))
    }
}

impl EngineAction for InventoryEdit {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            let failed = |error: std::io::Error| ActionError::Failed(format!("{}: {error}", self.path));
            // A link stays one.
            let path = fs::canonicalize(&self.path).map_err(failed)?;
            let permit = if context.check_mode() { None } else { Some(context.permit()?) };
            // What another cluster's task of this run has written in between must not be lost.
            let turn = context.scope.kept::<EditTurn>("");
            let _turn = turn.0.lock().unwrap_or_else(PoisonError::into_inner);
            let text = fs::read_to_string(&path).map_err(failed)?;
            let entry = self.entry(&text).ok_or_else(|| ActionError::Failed(self.moved()))?;
            let sum = disk::sum(text[entry.clone()].as_bytes());
            if sum == self.after {
                return Ok(Outcome::ok());
            }
            let edits: Vec<Edit> = self.edits.iter().map(EditEntry::edit).collect();
            let new = edit::apply(&text[entry.clone()], &edits)
                .filter(|new| sum == self.before && disk::sum(new.as_bytes()) == self.after);
            let Some(new) = new else { return Err(ActionError::Failed(self.moved())) };
            let new = [&text[..entry.start], &new, &text[entry.end..]].concat();
            if let Some(permit) = permit {
                write(&path, &new, &permit).map_err(failed)?;
            }
            let diff = vec![Diff { label: self.path.clone(), before: text, after: new }];
            Ok(Outcome { diff, ..Outcome::changed() })
        })
    }
}

impl InventoryEdit {
    /// What is looked at, and changed.
    fn entry(&self, text: &str) -> Option<Range<usize>> {
        match self.cluster.as_str() {
            "" => Some(0..text.len()),
            cluster => edit::cluster_entry(text, cluster),
        }
    }

    fn moved(&self) -> String {
        let words: Vec<&str> = self.edits.iter().map(|edit| edit.text.trim()).filter(|text| !text.is_empty()).collect();
        let words = if words.is_empty() { "the entry goes".to_owned() } else { words.join("; ") };
        format!("{} was changed in the meantime, and is not edited. The intended change: {words}", self.path)
    }
}

impl EditEntry {
    fn edit(&self) -> Edit {
        Edit { start: self.start, end: self.end, text: self.text.clone() }
    }
}

fn write(path: &Path, text: &str, permit: &Permit) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let (scratch, mut file) = Scratch::create(folder, permit)?;
    file.write_all(text.as_bytes())?;
    file.set_permissions(fs::metadata(path)?.permissions())?;
    file.sync_all()?;
    scratch.keep_as(path)?;
    fs::File::open(folder)?.sync_all()
}
