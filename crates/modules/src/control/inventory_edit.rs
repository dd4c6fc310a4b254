//! `inventory_edit`: a file of the inventory says what has become of a member.

use std::{
    collections::BTreeMap,
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
    model::{Diff, Effects, Outcome, Value},
    source::disk,
    task::Permit,
};

/// Files are read, changed and written by one task at a time.
#[derive(Default)]
struct EditTurn(Mutex<()>);

/// Edits a file of the inventory when a member has changed.
///
/// With `cluster`, only the entry of that cluster is compared: changes to the others are kept. The new file
/// replaces the old one in one step, with its mode. Comments are kept. If the entry has changed since the edit was decided, the lines are
/// replaced where they still are. If they are not, the task fails and prints what to write; once you have written it, the task does
/// nothing.
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
    /// The lines to replace if the entry has changed otherwise.
    #[serde(default)]
    lines_before: String,
    /// What replaces them.
    #[serde(default)]
    lines_after: String,
    /// The cluster that `members` are of.
    #[serde(default)]
    members_of: String,
    /// The members that change, and their entries after the edit; null for one that is removed.
    #[serde(default)]
    members: BTreeMap<String, Option<Value>>,
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
            let whole = |new: String| [&text[..entry.start], &new, &text[entry.end..]].concat();
            let new = match sum == self.before {
                true => self.edited(&text[entry.clone()]).map(whole),
                false if self.is_done(&text) => return Ok(Outcome::ok()),
                false => self.replaced(&text[entry.clone()]).map(whole).filter(|new| self.is_right(&text, new)),
            };
            let Some(new) = new else { return Err(ActionError::Failed(self.moved())) };
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

    /// The entry as it was when the edit was decided, edited.
    fn edited(&self, entry: &str) -> Option<String> {
        let edits: Vec<Edit> = self.edits.iter().map(EditEntry::edit).collect();
        edit::apply(entry, &edits).filter(|new| disk::sum(new.as_bytes()) == self.after)
    }

    /// An entry that has changed since, edited where the lines are the same.
    fn replaced(&self, entry: &str) -> Option<String> {
        if entry.contains('\r') {
            return None;
        }
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let (all, old) = (lines(entry), lines(&self.lines_before));
        let mut places = (0..all.len()).filter(|at| !old.is_empty() && all[*at..].starts_with(&old));
        let (place, None) = (places.next()?, places.next()) else { return None };
        let new = [&all[..place], &lines(&self.lines_after), &all[place + old.len()..]].concat();
        Some(new.join("\n") + if entry.ends_with('\n') { "\n" } else { "" })
    }

    /// Whether the file says already what was intended.
    fn is_done(&self, text: &str) -> bool {
        let Some(all) = edit::members(text, &self.members_of).filter(|_| !self.members.is_empty()) else {
            return false;
        };
        self.members.iter().all(|(name, entry)| all.get(name) == entry.as_ref())
    }

    /// Whether the new text says what was intended, and of the other members what the old one says.
    fn is_right(&self, old: &str, new: &str) -> bool {
        let others = |text: &str| {
            let mut all = edit::members(text, &self.members_of)?;
            all.retain(|name, _| !self.members.contains_key(name));
            Some(all)
        };
        self.is_done(new) && others(old).is_some_and(|before| others(new) == Some(before))
    }

    fn moved(&self) -> String {
        let words = self.members.iter().map(|(name, entry)| match entry {
            Some(entry) => format!("write `{name}: {}` below `members`", edit::flow(entry)),
            None => format!("remove the member `{name}`"),
        });
        let words: Vec<String> = words.collect();
        let words = if words.is_empty() { "make the change yourself".to_owned() } else { words.join(", and ") };
        format!(
            "cannot edit {}: the entry of the cluster was changed since this run began. To continue: {words}; then resume this run",
            self.path
        )
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

#[cfg(test)]
mod tests {
    use etcdrun_etcd::membership::{Edited, NewMember, Texts};

    use super::*;

    const TEXT: &str = "\
clusters:
  prod:
    etcd: { version: 3.6.15 }
    members:
      a-1: { address: 10.0.0.1 }
      a-2: { address: 10.0.0.2 }
";

    /// `a-3` comes for `a-1`.
    fn task() -> (InventoryEdit, String) {
        let new = NewMember {
            name: "a-3".into(),
            to: None,
            ip: Some("10.0.0.3".into()),
            is_guest: false,
            from_pool: false,
            interfaces: Vec::new(),
        };
        let texts = Texts::unchanged("inventory.yaml".into(), TEXT.into()).added("prod", "a-1", &new).unwrap();
        let texts = texts.removed("prod", "a-1").unwrap();
        let mut arguments = serde_json::to_value(Edited::of(&texts, "prod")).unwrap();
        arguments["members_of"] = "prod".into();
        (serde_json::from_value(arguments).unwrap(), texts.after)
    }

    #[test]
    fn what_others_have_edited_meanwhile_stays() {
        let (task, after) = task();
        let upgraded = |text: &str| text.replace("3.6.15", "3.7.2");
        assert!(!task.is_done(&upgraded(TEXT)));
        let new = task.replaced(&upgraded(TEXT)).unwrap();
        assert_eq!(new, upgraded(&after));
        assert!(task.is_done(&new) && task.is_right(&upgraded(TEXT), &new));
    }

    #[test]
    fn no_member_gets_what_was_of_another() {
        let text = "clusters:\n  prod:\n    members:\n      a-1:\n        address: 10.0.0.1\n      a-2:\n        address: 10.0.0.2\n";
        let texts = Texts::unchanged("inventory.yaml".into(), text.into()).removed("prod", "a-2").unwrap();
        let mut arguments = serde_json::to_value(Edited::of(&texts, "prod")).unwrap();
        arguments["members_of"] = "prod".into();
        let task: InventoryEdit = serde_json::from_value(arguments).unwrap();
        let edited = format!("{text}        zone: east\n");
        assert!(task.replaced(&edited).is_none_or(|new| !task.is_right(&edited, &new)));
        assert!(!task.is_done("clusters:\n  prod:\n    memb") && !task.is_done(text));
        assert!(task.is_done(&texts.after));
    }

    #[test]
    fn what_cannot_be_edited_is_done_by_hand() {
        let (task, _) = task();
        let other = TEXT.replace("10.0.0.1 }", "10.0.0.1, zone: east }");
        assert!(task.replaced(&other).is_none() && !task.is_done(&other));
        let asked = task.moved();
        assert!(
            asked.contains("write `a-3: { address: 10.0.0.3 }`") && asked.contains("remove the member `a-1`"),
            "{asked}"
        );

        let both = other.replace("      a-2", "      a-3: { address: \"10.0.0.3\", zone: west }\n      a-2");
        assert!(!task.is_done(&both));
        let (before, after) = both.split_once("      a-1").unwrap();
        let by_hand = [before, after.split_once('\n').unwrap().1].concat();
        // Another zone is another place.
        assert!(!task.is_done(&by_hand), "{by_hand}");
        assert!(task.is_done(&by_hand.replace(", zone: west", "")));
    }
}
