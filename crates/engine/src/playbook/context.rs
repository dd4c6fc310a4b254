//! What a task inherits from its play, role, blocks and imports.

use std::{sync::Arc, time::Duration};

use super::{
    loader::Loader,
    place::Place,
    types::{Become, Expression, On, OncePer, RoleContext},
};
use crate::{
    model::{Seconds, Spanned},
    source::{Diagnostic, Map, Node, Vars},
};

/// Everything that flows downwards. Lists grow, the rest is overridden.
#[derive(Clone, Debug)]
pub(super) struct Context {
    pub(super) folder: Place,
    /// The playbook's own folder, the last place relative files are looked for.
    pub(super) playbook_folder: Place,
    pub(super) role: Option<Arc<RoleContext>>,
    pub(super) when: Vec<Expression>,
    pub(super) tags: Vec<Arc<str>>,
    pub(super) notify: Vec<Spanned<Arc<str>>>,
    pub(super) environment: Vec<Node>,
    /// Variables of blocks, outermost first.
    pub(super) block_vars: Vec<Arc<Vars>>,
    /// Variables given to imports; they win over those of blocks and tasks.
    pub(super) import_vars: Vec<Arc<Vars>>,
    pub(super) r#become: Option<bool>,
    pub(super) become_user: Option<Arc<str>>,
    pub(super) delegate_to: Option<Node>,
    pub(super) on: Option<Spanned<On>>,
    pub(super) once_per: Option<Spanned<OncePer>>,
    pub(super) run_once: Option<bool>,
    pub(super) ignore_errors: Option<bool>,
    pub(super) ignore_unreachable: Option<bool>,
    pub(super) any_errors_fatal: Option<bool>,
    pub(super) no_log: Option<bool>,
    pub(super) check_mode: Option<bool>,
    pub(super) diff: Option<bool>,
    pub(super) timeout: Option<Duration>,
    pub(super) throttle: Option<usize>,
}

impl Context {
    pub(super) fn new(playbook_folder: Place) -> Self {
        Self {
            folder: playbook_folder.clone(),
            playbook_folder,
            role: None,
            when: Vec::new(),
            tags: Vec::new(),
            notify: Vec::new(),
            environment: Vec::new(),
            block_vars: Vec::new(),
            import_vars: Vec::new(),
            r#become: None,
            become_user: None,
            delegate_to: None,
            on: None,
            once_per: None,
            run_once: None,
            ignore_errors: None,
            ignore_unreachable: None,
            any_errors_fatal: None,
            no_log: None,
            check_mode: None,
            diff: None,
            timeout: None,
            throttle: None,
        }
    }

    /// This context with the keywords of one mapping (a play, role entry, block, import or task) added.
    /// `vars` is left out: what it means depends on what it stands on.
    pub(super) fn enter(&self, loader: &mut Loader<'_>, map: &Map) -> Self {
        let mut inner = self.clone();
        inner.when.extend(loader.conditions(map, "when"));
        for tag in loader.tags(map) {
            if !inner.tags.contains(&tag) {
                inner.tags.push(tag);
            }
        }
        inner.notify.extend(loader.words(map, "notify"));
        inner.environment.extend(loader.environment(map));
        inner.enter_become(loader, map);
        inner.enter_target(loader, map);
        override_with(&mut inner.run_once, loader.typed(map, "run_once"));
        override_with(&mut inner.ignore_errors, loader.typed(map, "ignore_errors"));
        override_with(&mut inner.ignore_unreachable, loader.typed(map, "ignore_unreachable"));
        override_with(&mut inner.any_errors_fatal, loader.typed(map, "any_errors_fatal"));
        override_with(&mut inner.no_log, loader.typed(map, "no_log"));
        override_with(&mut inner.check_mode, loader.typed(map, "check_mode"));
        override_with(&mut inner.diff, loader.typed(map, "diff"));
        override_with(&mut inner.timeout, loader.typed::<Seconds>(map, "timeout").map(|seconds| seconds.0));
        override_with(&mut inner.throttle, loader.typed(map, "throttle"));
        inner
    }

    fn enter_become(&mut self, loader: &mut Loader<'_>, map: &Map) {
        override_with(&mut self.r#become, loader.typed(map, "become"));
        // A user name may be a template, so it is not resolved here.
        let user = loader.text_or_template(map, "become_user").map(|user| user.value);
        override_with(&mut self.become_user, user);
        if let Some(method) = loader.text(map, "become_method").filter(|method| &*method.value != "sudo") {
            let message = format!("cannot become another user by `{}`", method.value);
            loader.diagnostics.push(Diagnostic::error(method.span, message).help("only `sudo` is supported"));
        }
    }

    fn enter_target(&mut self, loader: &mut Loader<'_>, map: &Map) {
        let delegate_to = loader.text_or_template(map, "delegate_to").and_then(|_| map.get("delegate_to").cloned());
        let places = [("hypervisor", On::Hypervisor), ("operator", On::Operator)];
        let on = loader.one_of(map, "on", &places);
        if let (Some(_), Some(on)) = (&delegate_to, &on) {
            loader.diagnostics.push(
                Diagnostic::error(on.span, "`on` and `delegate_to` both set where this runs").help("keep one of them"),
            );
        }
        // The nearest statement wins, whichever of the two it is.
        if on.is_some() || delegate_to.is_some() {
            (self.on, self.delegate_to) = (on, delegate_to);
        }
        let scopes = [("hypervisor", OncePer::Hypervisor), ("cluster", OncePer::Cluster), ("zone", OncePer::Zone)];
        override_with(&mut self.once_per, loader.one_of(map, "once_per", &scopes));
    }

    pub(super) fn becomes(&self) -> Become {
        Become { wanted: self.r#become, user: self.become_user.clone() }
    }

    /// Variables of a task, lowest first.
    pub(super) fn vars(&self) -> Vec<Arc<Vars>> {
        self.block_vars.iter().chain(&self.import_vars).cloned().collect()
    }
}

fn override_with<T>(slot: &mut Option<T>, value: Option<T>) {
    if value.is_some() {
        *slot = value;
    }
}
