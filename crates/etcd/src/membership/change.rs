//! What the playbooks of `etcdrun member` are told: their variable `changes` has one for each host that plays.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Texts, texts::difference};
use crate::{
    inventory::edit::{Edit, cluster_entry, members},
    model::Value,
    source::disk,
};

/// A member, and where etcd listens there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listing {
    pub name: String,
    pub ip: String,
}

/// The facts are from the look that was taken; the playbook looks again before it changes anything.
#[derive(Clone, Debug, Serialize)]
pub struct Change {
    pub cluster: String,
    /// The member that goes; empty if none does.
    pub old: String,
    /// The member that comes; empty if none does.
    pub new: String,
    pub alive: bool,
    /// Whether it runs, on damaged data: it counts as dead, and its alarm is left to be disarmed.
    pub corrupt: bool,
    /// What happens first to the list of members: `add`, `remove` or `shrink`.
    pub first: &'static str,
    /// The member through which the cluster is spoken to.
    pub via: String,
    /// What the new member runs; empty if none comes.
    pub version: String,
    /// The machine on which the old member's etcd is stopped; empty if there is none.
    pub old_host: String,
    pub old_hypervisor: String,
    /// Whether the new member gets a machine that is there already.
    pub new_machine: bool,
    /// Whether its guest is made on a hypervisor that the old one is not on.
    pub new_hypervisor: bool,
    /// Whether the old guest is powered off.
    pub fence: bool,
    /// Whether the person has said that it is off, and nobody could see it.
    pub waived: bool,
    /// Whether a learner of an earlier attempt is in the way.
    pub leftover: bool,
    /// How many voters there are when this is decided.
    pub voters: usize,
    /// Whether all members that stay are well.
    pub whole: bool,
    pub snapshot: bool,
    pub allow_outage: bool,
    pub before: Vec<Listing>,
    pub well: Vec<Listing>,
    pub during: Vec<Listing>,
    pub after: Vec<Listing>,
    pub inventory: Edited,
}

impl Change {
    /// The host that plays it: the new member, or where none comes, the one through which the cluster is spoken to.
    pub fn player(&self) -> &str {
        if self.new.is_empty() { &self.via } else { &self.new }
    }
}

/// What becomes of a file of the inventory: of the entry of one cluster, so that others may change meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Edited {
    pub path: String,
    /// Empty if the file is meant as a whole.
    pub cluster: String,
    pub before: String,
    pub after: String,
    /// In bytes of the entry as it is.
    pub edits: Vec<Edit>,
    /// The lines that change and the one before them, for an entry that somebody has edited elsewhere.
    pub lines_before: String,
    pub lines_after: String,
    /// What it says of each member that changes once it is edited, also by hand: nothing of one that goes.
    pub members: BTreeMap<String, Option<Value>>,
}

impl Edited {
    pub fn of(texts: &Texts, cluster: &str) -> Self {
        let (original, after) = (texts.original.as_str(), texts.after.as_str());
        if original == after {
            return Self::default();
        }
        let entries = cluster_entry(original, cluster).zip(cluster_entry(after, cluster));
        // All that is not the entry must be the same.
        let entries = entries.filter(|(one, other)| {
            original[..one.start] == after[..other.start] && original[one.end..] == after[other.end..]
        });
        let changed = changed(original, after, cluster).unwrap_or_default();
        let (cluster, before, after) = match entries {
            Some((one, other)) => (cluster, &original[one], &after[other]),
            None => ("", original, after),
        };
        let edit = difference(before, after);
        let (lines_before, lines_after) = edit.as_ref().map(|edit| lines(before, edit)).unwrap_or_default();
        let path = std::path::absolute(&texts.path).unwrap_or_else(|_| texts.path.clone());
        Self {
            path: path.display().to_string(),
            cluster: cluster.to_owned(),
            before: disk::sum(before.as_bytes()),
            after: disk::sum(after.as_bytes()),
            edits: edit.into_iter().collect(),
            lines_before,
            lines_after,
            members: changed,
        }
    }
}

/// The members of which another text says something else, and what.
fn changed(before: &str, after: &str, cluster: &str) -> Option<BTreeMap<String, Option<Value>>> {
    let (before, after) = (members(before, cluster)?, members(after, cluster)?);
    let names = before.keys().chain(after.keys()).filter(|name| before.get(*name) != after.get(*name));
    Some(names.map(|name| (name.clone(), after.get(name).cloned())).collect())
}

/// The whole lines that an edit is in and the one before them, as they are and as they will be.
fn lines(text: &str, Edit { start, end, text: new }: &Edit) -> (String, String) {
    let line = text[..*start].rfind('\n').unwrap_or(0);
    let first = text[..line].rfind('\n').map_or(0, |at| at + 1);
    let last = text[*end..].find('\n').map_or(text.len(), |at| end + at);
    (text[first..last].to_owned(), [&text[first..*start], new, &text[*end..last]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::edit::apply;

    const TWO: &str = "\
clusters:
  # the first
  a: &a
    members:
      a-1: { address: 10.0.0.1 }
      a-2:   # one that says nothing
  # the second
  b: { members: { b-1: {}, b-2: { address: 10.0.0.4 } } } # short
  c:
    members:
      c-1: {}
";

    /// What the task does with a file.
    fn replay(text: &str, edited: &Edited) -> Option<String> {
        let entry = match edited.cluster.as_str() {
            "" => 0..text.len(),
            cluster => cluster_entry(text, cluster)?,
        };
        let new = apply(&text[entry.clone()], &edited.edits)?;
        let (before, after) = (disk::sum(text[entry.clone()].as_bytes()), disk::sum(new.as_bytes()));
        assert_eq!((before, after), (edited.before.clone(), edited.after.clone()));
        Some([&text[..entry.start], &new, &text[entry.end..]].concat())
    }

    #[test]
    fn entries_change_in_any_order_and_keep_what_the_others_became() {
        for text in [TWO.to_owned(), TWO.trim_end().to_owned()] {
            let gone = |cluster: &str, member: &str| {
                let texts = Texts::unchanged("inventory.yaml".into(), text.clone());
                Edited::of(&texts.removed(cluster, member).unwrap(), cluster)
            };
            let edits = [gone("a", "a-2"), gone("b", "b-1"), gone("c", "c-1")];
            assert_eq!(edits.each_ref().map(|edited| edited.cluster.as_str()), ["a", "b", "c"]);
            let in_order =
                |order: [usize; 3]| order.iter().fold(text.clone(), |text, at| replay(&text, &edits[*at]).unwrap());
            let all = in_order([0, 1, 2]);
            for order in [[0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
                assert_eq!(in_order(order), all);
            }
            assert!(!all.contains("a-2") && !all.contains("b-1") && !all.contains("c-1"), "{all}");
            assert!(all.contains("# the first") && all.contains("# the second") && all.contains("# short"), "{all}");
        }
    }

    #[test]
    fn where_an_entry_stands_elsewhere_the_file_is_meant() {
        let text = "x: &x { members: { a-1: {}, a-2: {} } }\nclusters: { a: *x }\n";
        let texts = Texts::unchanged("inventory.yaml".into(), text.into()).removed("a", "a-1").unwrap();
        let edited = Edited::of(&texts, "a");
        assert_eq!((edited.cluster.as_str(), replay(text, &edited).unwrap()), ("", texts.after.clone()));
        assert_eq!(Edited::of(&Texts::unchanged("x".into(), text.into()), "a"), Edited::default());
    }
}
