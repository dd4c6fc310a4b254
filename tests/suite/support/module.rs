//! Runs one module with arguments as a playbook has them, on a real target.

use std::{path::Path, sync::Arc};

use etcdrun::{
    model::{Outcome, ValueMap},
    remote::{Link, LinkOptions, Session, Surroundings},
    source::{Diagnostic, Diagnostics, Node, Sources, parse},
    ssh::Connector,
    task::{Action, ActionContext, ActionError, BuildContext},
    template::{Engine, Layer, Scope},
};

use super::{Sshd, options};

/// A session with this server, with diffs.
pub fn session(sshd: &Sshd) -> Arc<Session> {
    let connector = Connector::new(options(sshd.path("").as_path())).unwrap();
    let link = Link::new(connector, sshd.endpoint("h1", "127.0.1.1"), LinkOptions::default());
    with_diff(&link)
}

/// A session with this machine through one of its shells, such as `["busybox", "sh"]`.
pub fn local_session(shell: &[&str]) -> Arc<Session> {
    with_diff(&Link::local(shell, LinkOptions::default()))
}

fn with_diff(link: &Arc<Link>) -> Arc<Session> {
    Arc::new(link.session(Surroundings { diff: true, ..Surroundings::default() }))
}

/// The operator: a session, a folder for `src`, and variables.
pub struct Operator<'a> {
    pub session: Arc<Session>,
    pub files: &'a Path,
    pub vars: ValueMap,
}

impl Operator<'_> {
    pub async fn run(&self, module: &str, args: &str) -> Outcome {
        self.act(module, args, false).await
    }

    pub async fn check(&self, module: &str, args: &str) -> Outcome {
        self.act(module, args, true).await
    }

    async fn act(&self, module: &str, args: &str, check_mode: bool) -> Outcome {
        let action = self.build(module, args, check_mode).unwrap_or_else(|problems| panic!("{module}: {problems:?}"));
        let surroundings = Surroundings { check_mode, ..self.session.surroundings.clone() };
        let session = Arc::new(self.session.link.session(surroundings));
        let context = ActionContext::alone(session);
        let result = match action {
            Action::Remote(payload) => context.run(payload).await,
            Action::Engine(action) => action.run(&context).await,
            Action::Done(outcome) => Ok(*outcome),
        };
        match result {
            Ok(outcome) => outcome,
            Err(ActionError::Failed(msg)) => Outcome::failed(msg),
            Err(error) => panic!("{module}: {error}"),
        }
    }

    /// The action that the arguments make, or what is wrong with them.
    pub fn build(&self, module: &str, args: &str, check_mode: bool) -> Result<Action, Vec<Diagnostic>> {
        let spec = etcdrun::LIBRARY.find(module).unwrap_or_else(|| panic!("there is no module {module}"));
        let node = spec.normalize(yaml(args)).map_err(|problem| vec![problem])?;
        let paths = [self.files.to_owned()];
        let mut vars = self.vars.clone();
        vars.insert("inventory_hostname".into(), "h1".into());
        let context = BuildContext {
            engine: &Engine::new(),
            scope: &Scope::new(vec![Layer::Values(Arc::new(vars))]),
            file_paths: &paths,
            template_paths: &paths,
            check_mode,
            sources: &Sources::default(),
            span: node.span,
        };
        spec.build(&node, &context).map(|(_, action)| action)
    }
}

/// Runs a module that needs nothing of the operator but its arguments.
pub async fn run_module(session: &Arc<Session>, module: &str, args: &str, check_mode: bool) -> Outcome {
    let operator = Operator { session: session.clone(), files: Path::new("."), vars: ValueMap::new() };
    operator.act(module, args, check_mode).await
}

/// What is wrong with arguments when a playbook is loaded: the messages, and nothing if they are right.
pub fn problems(module: &str, args: &str) -> Vec<String> {
    let spec = etcdrun::LIBRARY.find(module).unwrap_or_else(|| panic!("there is no module {module}"));
    let mut diagnostics = Diagnostics::default();
    match spec.normalize(yaml(args)) {
        Ok(node) => drop(spec.check(&node, &mut diagnostics)),
        Err(problem) => diagnostics.push(problem),
    }
    diagnostics.iter().map(|problem| problem.message.clone()).collect()
}

fn yaml(text: &str) -> Node {
    let mut sources = Sources::default();
    let file = sources.add("task.yaml", text);
    let mut diagnostics = Diagnostics::default();
    parse(&sources, file, &mut diagnostics).unwrap_or_else(|| panic!("not YAML: {text}"))
}
