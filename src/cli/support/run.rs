//! Runs compiled graphs: asks for secrets, starts the reporter, minds signals, and waits.

use std::{
    io::{self, Write as _},
    path::Path,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use tokio::signal::unix::{Signal, SignalKind, signal};
use zeroize::Zeroizing;

use super::{
    CliError, Exit, Invocation,
    args::{ConnectionArgs, RunArgs},
    input::Compiled,
    record::{RunRecord, state_folder},
    runtime::runtime,
    terminal::{QuietKeys, ask_secret},
};
use crate::{
    LIBRARY,
    execute::{self, Interrupt, Locking, Run, RunOptions},
    graph::{self, Graph},
    inventory::Inventory,
    model::{Emitter, Forecast, Masker, Prediction, Predictions, RunResult},
    playbook::LoadOptions,
    report::{
        self, AdhocReporter, JsonReporter, Kept, MultiProgress, Output, PlainReporter, PlanReporter, ProgressReporter,
        Reporter,
    },
    source::{Diagnostic, Diagnostics, Sources, exposed},
    ssh::{Connector, Options, Prompt},
    state::{Recorder, RunId, StateFolder},
    task::RunScope,
};

/// How a run is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Playbook,
    Adhoc,
    Plan,
}

/// How a run ended, and in check mode what it foresaw, by graph.
pub struct Ended {
    pub result: RunResult,
    pub predictions: Vec<Vec<Prediction>>,
}

impl Ended {
    /// As Terraform's: 0 if nothing would change, 2 if something would or might, 1 if that cannot be said.
    /// What has a code of its own keeps it.
    pub fn exit(&self, detailed: bool) -> Exit {
        let moves = |prediction: &Prediction| matches!(prediction.forecast, Forecast::Change | Forecast::Unknown);
        match self.result {
            RunResult::Success if detailed && self.predictions.iter().flatten().any(moves) => Exit::WouldChange,
            RunResult::Failed if detailed => Exit::Unexpected,
            result => result.into(),
        }
    }
}

pub fn load_options(invocation: &Invocation) -> LoadOptions {
    LoadOptions { roles_path: invocation.settings.roles_path.clone(), ..LoadOptions::new(LIBRARY) }
}

/// Runs one graph after the other, and stops at the first that does not succeed.
pub fn execute(
    compiled: Compiled,
    connection: &ConnectionArgs,
    args: &RunArgs,
    style: Style,
    invocation: &Invocation,
) -> Result<Ended, CliError> {
    let Compiled { mut input, inputs, mut inventory, graphs } = compiled;
    let hosts = graphs.iter().flat_map(|graph| &graph.plays).flat_map(|play| play.hosts.iter().copied());
    inventory.check_keys(hosts, &mut input.diagnostics);
    input.check(invocation)?;
    let screen = MultiProgress::new();
    let mut options = run_options(connection, args, input.extra_vars.clone(), invocation)?;
    let record = match args.mode.check {
        true => None,
        false => Some(RunRecord::open(args.state_dir.as_deref(), &input.inventories, &inputs, invocation)?),
    };
    let state = match &invocation.resumed {
        Some(resumed) => resumed.state.clone(),
        None => state_folder(args.state_dir.as_deref(), &input.inventories, invocation),
    };
    options.state = state.path().to_owned();
    options.run_id = record.as_ref().map_or_else(RunId::new, |record| record.id.clone()).shared();
    apply_defaults(&mut inventory, connection, invocation);
    let connector = connector(connection, &inventory, &state, screen.clone(), invocation)?;
    let runner = Runner {
        inventory: Arc::new(inventory),
        sources: Arc::new(input.sources),
        connector,
        options,
        interrupt: Interrupt::default(),
        screen,
        style,
        record,
        scope: Arc::default(),
        invocation,
    };
    let runtime = runtime()?;
    let result = runtime.block_on(runner.run_all(graphs));
    // Whatever still runs there, such as a lookup of a name, is not worth waiting for.
    runtime.shutdown_background();
    result
}

/// How hosts are reached by a command that runs no graph.
pub fn reach(
    inventory: &mut Inventory,
    connection: &ConnectionArgs,
    state: &StateFolder,
    screen: MultiProgress,
    invocation: &Invocation,
) -> Result<(Connector, RunOptions), CliError> {
    let options = run_options(connection, &RunArgs::default(), Arc::default(), invocation)?;
    apply_defaults(inventory, connection, invocation);
    Ok((connector(connection, inventory, state, screen, invocation)?, options))
}

/// The graphs as text, with what is known of their nodes. Connects only if it may ask the hosts.
pub fn foresee(
    compiled: Compiled,
    connection: &ConnectionArgs,
    ask: bool,
    format: graph::Format,
    invocation: &Invocation,
) -> Result<Vec<String>, CliError> {
    let Compiled { input, mut inventory, graphs, .. } = compiled;
    apply_defaults(&mut inventory, connection, invocation);
    let connector = match ask {
        true => {
            let state = state_folder(None, &input.inventories, invocation);
            connector(connection, &inventory, &state, MultiProgress::new(), invocation)?
        }
        // Never used to connect; the operator's own settings must not matter here.
        false => Connector::new(Options { config_file: Some("/dev/null".into()), ..Options::default() })
            .map_err(|error| CliError::Unexpected(error.to_string()))?,
    };
    let (inventory, sources) = (Arc::new(inventory), Arc::new(input.sources));
    let runtime = runtime()?;
    let mut texts = Vec::new();
    for graph in graphs.into_iter().map(Arc::new) {
        let run = Run {
            graph: graph.clone(),
            inventory: inventory.clone(),
            sources: sources.clone(),
            connector: connector.clone(),
            options: RunOptions { extra_vars: input.extra_vars.clone(), ..RunOptions::default() },
            emitter: Emitter::silent(),
            interrupt: Interrupt::default(),
            recorder: Recorder::none(),
            scope: Arc::default(),
        };
        let foreseen = runtime.block_on(execute::observe(run, ask));
        texts.push(graph.export(format, &sources, &foreseen));
    }
    runtime.shutdown_background();
    Ok(texts)
}

struct Runner<'a> {
    inventory: Arc<Inventory>,
    sources: Arc<Sources>,
    connector: Connector,
    options: RunOptions,
    interrupt: Interrupt,
    screen: MultiProgress,
    style: Style,
    /// Where it is kept; nowhere in check mode.
    record: Option<RunRecord>,
    /// What its graphs have in common.
    scope: Arc<RunScope>,
    invocation: &'a Invocation,
}

impl Runner<'_> {
    async fn run_all(&self, graphs: Vec<Graph>) -> Result<Ended, CliError> {
        let quiet = Arc::new(QuietKeys::begin());
        let left_behind = self.record.as_ref().map(|record| left_behind(&record.id));
        mind_signals(self.interrupt.clone(), self.screen.clone(), quiet.clone(), left_behind)?;
        let mut result = Ok(RunResult::Success);
        let mut predictions = Vec::new();
        for (number, graph) in graphs.into_iter().enumerate() {
            let foreseen = Predictions::default();
            result = self.run_one(number, graph, &foreseen).await;
            predictions.push(foreseen.sorted());
            if !matches!(result, Ok(RunResult::Success)) {
                break;
            }
        }
        quiet.end();
        if let (Some(record), Ok(result)) = (&self.record, &result) {
            record.end(*result).await?;
            self.tell_how_to_go_on(&record.id, *result);
        }
        Ok(Ended { result: result?, predictions })
    }

    /// A run that did not come to its end is not lost.
    fn tell_how_to_go_on(&self, id: &RunId, result: RunResult) {
        let stopped = matches!(
            result,
            RunResult::Failed | RunResult::Unreachable | RunResult::GateRefused | RunResult::Interrupted
        );
        if stopped && self.style == Style::Playbook && !self.invocation.json {
            // Whoever has closed it does not want to know.
            let _ = writeln!(io::stderr(), "etcdrun: to continue with the remaining tasks, run `etcdrun resume {id}`");
        }
    }

    async fn run_one(&self, number: usize, graph: Graph, foreseen: &Predictions) -> Result<RunResult, CliError> {
        let planned = self.invocation.planned.as_ref().map(|planned| planned.graph(number, &graph)).transpose()?;
        let recorder = match &self.record {
            Some(record) => record.recorder(number, &graph)?,
            None => Recorder::none(),
        };
        let (emitter, events) = Emitter::channel();
        let emitter = emitter.with_masker(self.invocation.masker.clone());
        let reporter = report::spawn(events, self.reporter());
        let result = execute::run(Run {
            graph: Arc::new(graph),
            inventory: self.inventory.clone(),
            sources: self.sources.clone(),
            connector: self.connector.clone(),
            options: RunOptions { predictions: foreseen.clone(), planned, ..self.options.clone() },
            emitter,
            interrupt: self.interrupt.clone(),
            recorder,
            scope: self.scope.clone(),
        })
        .await;
        // The reporter ends after the run's last event; what it prints must come before we leave.
        let ended = tokio::task::spawn_blocking(move || reporter.join()).await;
        match ended {
            Ok(Ok(())) => Ok(result),
            _ => Err(CliError::Unexpected("the reporter failed; the run itself finished".to_owned())),
        }
    }

    fn reporter(&self) -> Box<dyn Reporter> {
        match self.record.as_ref().and_then(RunRecord::events) {
            Some(file) => Box::new(Kept::new(file, self.shown())),
            None => self.shown(),
        }
    }

    fn shown(&self) -> Box<dyn Reporter> {
        let (look, out) = (self.invocation.stdout, Output::stdout());
        let detail = self.invocation.detail(self.options.diff);
        match self.style {
            _ if self.invocation.json => Box::new(JsonReporter::new(out)),
            Style::Adhoc => Box::new(AdhocReporter::new(look, detail, out)),
            Style::Plan => {
                let screen = (look.live && self.invocation.stderr.live).then(|| self.screen.clone());
                Box::new(PlanReporter::new(look, detail, out, screen))
            }
            Style::Playbook if look.live && self.invocation.stderr.live => {
                Box::new(ProgressReporter::new(look, detail, out, self.screen.clone()))
            }
            Style::Playbook => Box::new(PlainReporter::new(look, detail, out)),
        }
    }
}

fn run_options(
    connection: &ConnectionArgs,
    args: &RunArgs,
    extra_vars: Arc<crate::source::Vars>,
    invocation: &Invocation,
) -> Result<RunOptions, CliError> {
    let settings = &invocation.settings;
    let defaults = RunOptions::default();
    let forks = args.forks.map(|forks| forks as usize).or(settings.forks).unwrap_or(defaults.forks);
    let become_user = connection.become_user.clone().or_else(|| settings.become_user.clone());
    Ok(RunOptions {
        forks,
        check_mode: args.mode.check,
        diff: args.diff,
        r#become: connection.r#become || settings.r#become,
        become_user: become_user.map(Into::into),
        become_password: become_password(connection, invocation)?.inspect(|password| {
            invocation.masker.add(password);
        }),
        live_output: invocation.verbosity > 0 || invocation.json,
        command: invocation.as_typed().into(),
        extra_vars,
        locking: match args.mode.check {
            true => Locking::Look,
            false => Locking::Take(args.lock_timeout.unwrap_or_default()),
        },
        lock_dir: settings.lock_dir.as_deref().map_or(defaults.lock_dir, Arc::from),
        ..defaults
    })
}

fn become_password(args: &ConnectionArgs, invocation: &Invocation) -> Result<Option<Zeroizing<String>>, CliError> {
    let settings = &invocation.settings;
    if args.ask_become_pass || (settings.become_ask_pass && args.become_password_file.is_none()) {
        return match ask_secret("sudo password: ") {
            Ok(Some(password)) => Ok(Some(password)),
            Ok(None) => Err(CliError::Interrupted),
            Err(_) => {
                let help = "without a terminal, use --become-password-file".to_owned();
                Err(CliError::usage_with_help("there is no terminal to prompt for the sudo password", Some(help)))
            }
        };
    }
    match args.become_password_file.as_ref().or(settings.become_password_file.as_ref()) {
        Some(path) => read_password(path).map(Some),
        None => Ok(None),
    }
}

/// The first line of the file, without its end.
fn read_password(path: &Path) -> Result<Zeroizing<String>, CliError> {
    let text = std::fs::read_to_string(path).map(Zeroizing::new);
    let text = text.map_err(|error| CliError::usage(format!("the password file {}: {error}", path.display())))?;
    if let Some(why) = exposed(path) {
        return Err(CliError::usage(format!("the password file {} {why}", path.display())));
    }
    match text.lines().next().filter(|line| !line.is_empty()) {
        Some(line) => Ok(Zeroizing::new(line.to_owned())),
        None => Err(CliError::usage(format!("the password file {} has no first line", path.display()))),
    }
}

/// The user and key of the command line hold where the inventory names none, as in Ansible.
fn apply_defaults(inventory: &mut Inventory, args: &ConnectionArgs, invocation: &Invocation) {
    let settings = &invocation.settings;
    let user = args.user.as_ref().or(settings.remote_user.as_ref());
    let key = args.private_key.as_ref().or(settings.private_key_file.as_ref());
    for endpoint in inventory.endpoints_mut() {
        if endpoint.user.is_none() {
            endpoint.user = user.cloned();
        }
        if endpoint.identity_files.is_empty() {
            endpoint.identity_files.extend(key.cloned());
        }
    }
}

fn connector(
    args: &ConnectionArgs,
    inventory: &Inventory,
    state: &StateFolder,
    screen: MultiProgress,
    invocation: &Invocation,
) -> Result<Connector, CliError> {
    let settings = &invocation.settings;
    let defaults = Options::default();
    let timeout = args.connect_timeout.map(Duration::from_secs).or(settings.connect_timeout);
    let options = Options {
        config_file: args.ssh_config.clone().or_else(|| settings.ssh_config.clone()),
        accept_new: args.accept_new || settings.accept_new,
        pins: Some(state.known_hosts()),
        connect_timeout: timeout.unwrap_or(defaults.connect_timeout),
        prompt: Arc::new(TerminalPrompt { screen, masker: invocation.masker.clone() }),
        ..defaults
    };
    let connector = Connector::new(options).map_err(|error| bad_ssh_config(&error))?;
    Ok(connector.with_hosts(inventory.hosts().map(|host| host.endpoint.clone())))
}

fn bad_ssh_config(error: &crate::ssh::SshError) -> CliError {
    let mut diagnostics = Diagnostics::default();
    diagnostics.push(Diagnostic::error(None, error.to_string()).maybe_help(error.hint()));
    CliError::Input(Box::new((diagnostics, Sources::default())))
}

/// Asks for passphrases in the midst of a run; the bars make room for the question.
struct TerminalPrompt {
    screen: MultiProgress,
    masker: Masker,
}

#[async_trait]
impl Prompt for TerminalPrompt {
    async fn secret(&self, question: &str) -> Option<Zeroizing<String>> {
        let (screen, question) = (self.screen.clone(), question.to_owned());
        let ask = move || screen.suspend(|| ask_secret(&question));
        let answer = tokio::task::spawn_blocking(ask).await.ok()?.ok()?;
        answer.inspect(|answer| {
            self.masker.add(answer);
        })
    }
}

/// What somebody has to know who leaves a run in the midst of it.
fn left_behind(id: &RunId) -> String {
    format!(
        "exited at once: running tasks continue on their hosts, and the locks of this run remain; \
         to continue, run `etcdrun resume {id}`; to break the locks, run `etcdrun unlock {id}`"
    )
}

/// The first signal asks the run to stop at the next safe point, the second leaves at once.
fn mind_signals(
    interrupt: Interrupt,
    screen: MultiProgress,
    quiet: Arc<QuietKeys>,
    left_behind: Option<String>,
) -> io::Result<()> {
    let mut keyboard = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::spawn(async move {
        either(&mut keyboard, &mut terminate).await;
        interrupt.stop();
        either(&mut keyboard, &mut terminate).await;
        // Nothing more to be done if the terminal is gone too.
        let _ = screen.clear();
        quiet.end();
        if let Some(text) = left_behind {
            let _ = writeln!(io::stderr(), "etcdrun: {text}");
        }
        std::process::exit(i32::from(Exit::Interrupted.code()));
    });
    Ok(())
}

async fn either(first: &mut Signal, second: &mut Signal) {
    tokio::select! {
        _ = first.recv() => {}
        _ = second.recv() => {}
    }
}
