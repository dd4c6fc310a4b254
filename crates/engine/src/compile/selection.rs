//! Tags and `--start-at-task`: which tasks are in.

use crate::playbook::Task;

/// What `--tags`, `--skip-tags` and `--start-at-task` ask for.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    pub tags: Vec<String>,
    pub skip_tags: Vec<String>,
    pub start_at: Option<String>,
}

impl Selection {
    /// Whether the tags let the task in. `always` and `never` mean what they mean in Ansible.
    pub(super) fn wants(&self, task: &Task) -> bool {
        let has = |tag: &str| task.tags.iter().any(|t| &**t == tag);
        if self.skip_tags.iter().any(|tag| names(tag, task)) {
            return false;
        }
        let asked = self.tags.iter().any(|tag| names(tag, task));
        if has("never") {
            return self.tags.iter().any(|tag| has(tag));
        }
        asked || self.tags.is_empty() || self.tags.iter().any(|tag| tag == "all") || has("always")
    }

    /// Whether the task's name is the one to start at; `*` stands for anything.
    pub(super) fn starts_at(&self, task: &Task) -> bool {
        let Some(wanted) = &self.start_at else { return true };
        match globset::Glob::new(wanted) {
            Ok(glob) => glob.compile_matcher().is_match(&task.name),
            Err(_) => *wanted == task.name,
        }
    }
}

fn names(tag: &str, task: &Task) -> bool {
    match tag {
        "tagged" => !task.tags.is_empty(),
        "untagged" => task.tags.is_empty(),
        _ => task.tags.iter().any(|t| &**t == tag),
    }
}
