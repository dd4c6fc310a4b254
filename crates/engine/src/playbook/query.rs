//! What a task can be asked.

use std::{path::PathBuf, time::Duration};

use super::{Become, Place, Task};
use crate::{
    model::Effects,
    source::Node,
    task::{ModuleSpec, Sets},
};

impl Task {
    /// A task with no keywords, for nodes that the engine adds by itself.
    pub fn bare(name: &str, module: &'static ModuleSpec, args: Node) -> Self {
        Self {
            name: name.to_owned(),
            path: name.into(),
            span: args.span,
            module,
            args,
            effects: Effects::read_only(),
            when: Vec::new(),
            loops: None,
            register: None,
            notify: Vec::new(),
            listen: Vec::new(),
            tags: Vec::new(),
            r#become: Become::default(),
            environment: Vec::new(),
            delegate_to: None,
            on: None,
            once_per: None,
            run_once: false,
            needs: Vec::new(),
            changed_when: Vec::new(),
            failed_when: Vec::new(),
            until: Vec::new(),
            retries: 0,
            delay: Duration::ZERO,
            ignore_errors: false,
            ignore_unreachable: false,
            any_errors_fatal: false,
            no_log: false,
            check_mode: None,
            diff: None,
            timeout: None,
            detach: None,
            poll: Duration::ZERO,
            throttle: None,
            vars: Vec::new(),
            role: None,
            folder: Place::disk(""),
            playbook_folder: Place::disk(""),
        }
    }

    /// Whether later tasks find this name after it: a registered result, or a fact it sets.
    pub fn leaves(&self, name: &str) -> bool {
        self.produced_names().any(|left| left == name)
    }

    /// All such names.
    pub fn produced_names(&self) -> impl Iterator<Item = &str> {
        let sets = self.module.traits.sets;
        let arguments = self.args.as_map().filter(|_| matches!(sets, Sets::Arguments));
        let set = arguments.into_iter().flat_map(|arguments| arguments.iter().map(|(name, _)| &*name.name));
        let gathered = matches!(sets, Sets::Facts(_)).then_some("facts");
        self.register.iter().map(|register| &*register.value).chain(set).chain(gathered)
    }

    /// Where a relative `src` of a file is looked for, first match wins: the role, next to the file of the task, then the playbook.
    pub fn file_places(&self) -> Vec<Place> {
        self.places("files")
    }

    /// The same for templates.
    pub fn template_places(&self) -> Vec<Place> {
        self.places("templates")
    }

    fn places(&self, kind: &str) -> Vec<Place> {
        let role = self.role.iter().flat_map(|role| [role.folder.join(kind), role.folder.clone()]);
        let others = [&self.folder, &self.playbook_folder].into_iter().flat_map(|it| [it.join(kind), it.clone()]);
        let mut places: Vec<Place> = role.chain(others).collect();
        if self.folder == self.playbook_folder {
            places.truncate(places.len() - 2);
        }
        places
    }

    /// A template file of this task, with the path it was found at.
    pub fn template_text(&self, name: &str) -> Option<(PathBuf, String)> {
        self.places("templates").iter().map(|place| place.join(name)).find_map(|file| {
            let text = String::from_utf8(file.contents()?.into_owned()).ok()?;
            Some((file.label(), text))
        })
    }
}
