//! One node: conditions, arguments, the action, retries, the verdict, and how it starts and is settled.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use tokio_util::sync::CancellationToken;

use crate::execute::{
    context::{Context, Watch},
    foresight::{At, Reads, Who, unknown},
    fusion::needs_operator,
    guard::{Actor, Watched},
    once::{Halt, Once, Sending},
    pending::Pending,
    registered::lock,
    surroundings::Target,
    verdict::{all_hold, judge, judging_scope, texts},
};
use crate::{
    graph::{NodeIndex, PlayIndex},
    inventory::HostId,
    model::{Effects, Ending, EventKind, Forecast, NodeInfo, Outcome, Prediction, Shown, Status},
    playbook::Task,
    remote::{MemberWatch, Payload, RemoteError, Session, Step, StepSink},
    source::{Diagnostic, Kind, Node, disk::sum},
    state::Done,
    task::{Action, ActionContext, ActionError, BuildContext, ModuleSpec, Progress, Sets},
    template::Scope,
};

/// What the scheduler needs to know of a finished node.
#[derive(Debug)]
pub(in crate::execute) struct Finished {
    pub index: NodeIndex,
    pub hosts: Vec<HostId>,
    pub status: Status,
    /// Check mode cannot tell whether it changes anything.
    pub unknown: bool,
    /// It failed because a gate did not hold.
    pub refused: bool,
    /// Nothing more may start: what it did is not known, or can no longer be recorded, or the lock is gone.
    pub halts: Option<Halt>,
}

impl Finished {
    /// Nothing else is to be said of it.
    pub(in crate::execute) fn new(index: NodeIndex, hosts: Vec<HostId>, status: Status) -> Self {
        Self { index, hosts, status, unknown: false, refused: false, halts: None }
    }
}

/// Why a node could not come to an outcome.
pub(in crate::execute) enum NodeError {
    Unreachable {
        msg: String,
        hint: Option<String>,
        /// Something was sent, and may have run.
        sent: bool,
    },
    /// The task is at fault: a template, an argument, a condition.
    Failed(Box<Outcome>, Option<String>),
    /// Nothing more may start, whatever the playbook says about failures.
    Halted(Halt, Box<Outcome>, Option<String>),
    /// It waited for something when the run was interrupted; nothing was done.
    Interrupted,
}

impl NodeError {
    pub(in crate::execute) fn diagnostic(context: &Context, problem: &Diagnostic) -> Self {
        let place = problem.span.map(|span| format!(" ({})", context.sources.describe(span))).unwrap_or_default();
        Self::Failed(Box::new(Outcome::failed(format!("{}{place}", problem.message))), problem.help.clone())
    }

    fn diagnostics(context: &Context, problems: &[Diagnostic]) -> Self {
        let Some(first) = problems.first() else { return Self::failed("the arguments are not valid") };
        Self::diagnostic(context, first)
    }

    pub(in crate::execute) fn failed(msg: impl Into<String>) -> Self {
        Self::Failed(Box::new(Outcome::failed(msg)), None)
    }

    pub(in crate::execute) fn halted(halt: Halt, outcome: Outcome) -> Self {
        Self::Halted(halt, Box::new(outcome), None)
    }
}

impl From<RemoteError> for NodeError {
    fn from(error: RemoteError) -> Self {
        let hint = error.hint().map(str::to_owned);
        let msg = error.to_string();
        match error {
            RemoteError::LockLost(_) => Self::halted(Halt::Unlocked, Outcome::failed(msg)),
            _ if error.is_unreachable() => Self::Unreachable { msg, hint, sent: matches!(error, RemoteError::Lost(_)) },
            RemoteError::TimedOut(_) => Self::Failed(Box::new(Outcome::timed_out(msg)), hint),
            _ => Self::Failed(Box::new(Outcome::failed(msg)), hint),
        }
    }
}

impl From<ActionError> for NodeError {
    fn from(error: ActionError) -> Self {
        match error {
            ActionError::Remote(error) => error.into(),
            ActionError::Failed(msg) => Self::failed(msg),
            ActionError::Refused(msg) => {
                Self::Failed(Box::new(Outcome { refused: true, ..Outcome::failed(msg) }), None)
            }
            ActionError::Interrupted => Self::Interrupted,
        }
    }
}

/// One node with what stays the same through its items and retries.
pub(in crate::execute) struct NodeRun {
    pub context: Arc<Context>,
    pub index: NodeIndex,
    pub play: PlayIndex,
    pub task: Arc<Task>,
    pub host: HostId,
    /// All hosts it speaks for.
    hosts: Vec<HostId>,
    pub once: Once,
    pub reads: Arc<Reads>,
    /// What its arguments were rendered to, for a plan.
    pub arguments: Mutex<String>,
    /// How much of its output was shown as it came.
    shown: AtomicUsize,
    pub info: Arc<NodeInfo>,
}

impl NodeRun {
    /// The node for the given hosts; the first of them lends its variables.
    pub(in crate::execute) fn new(context: &Arc<Context>, index: NodeIndex, hosts: Vec<HostId>) -> Option<Self> {
        let (task, host) = (context.graph.task_of(index)?.clone(), *hosts.first()?);
        let info = context.info(index, host, &task);
        let play = context.graph.node(index).play;
        let shown = AtomicUsize::new(0);
        let (recorder, run) = (context.recorder.clone(), context.options.run_id.clone());
        let live = context.options.live_output && !task.no_log;
        let once = Once::new(recorder, run, (index, info.id.clone()), task.clone(), live);
        let (reads, arguments) = (Arc::default(), Mutex::default());
        let context = context.clone();
        Some(Self { context, index, play, task, host, hosts, once, reads, arguments, shown, info })
    }

    /// The one place where a node starts.
    pub(in crate::execute) fn begin(&self) -> Instant {
        self.context.emitter.emit(EventKind::NodeStarted { node: self.info.clone() });
        Instant::now()
    }

    /// Whether it cannot be worked out before it starts: it asks the operator meanwhile, or its hosts have to agree.
    pub(in crate::execute) fn needs_operator(&self) -> bool {
        needs_operator(&self.task) || (self.task.once_per.is_some() && self.hosts.len() > 1)
    }

    /// Runs it by itself: items, attempts and all.
    pub(in crate::execute) async fn alone(&self) -> Result<Outcome, NodeError> {
        self.start_over();
        if let Some(outcome) = self.context.foresight.handler_in_doubt(&self.who()) {
            return Ok(outcome);
        }
        let agreed = self.agreed_host();
        if let Some(why) = self.reads.take() {
            return Ok(unknown(why));
        }
        let Some(host) = agreed? else {
            return Ok(self.skipped_by_when());
        };
        let scope = self.scope(host, None);
        match &self.task.loops {
            None => self.one(&scope).await,
            Some(items) => self.each(items, &scope).await,
        }
    }

    /// However often it is prepared, its commands have the same names.
    pub(in crate::execute) fn start_over(&self) {
        self.once.start_over();
        let _ = self.reads.take();
        lock(&self.arguments).clear();
    }

    /// The variables that it sees, as those of the host; `pending` hears of what is still to come.
    pub(in crate::execute) fn scope(&self, host: HostId, pending: Option<&Arc<Pending>>) -> Scope {
        let watch = Watch { pending: pending.cloned(), reads: Some(self.reads.clone()) };
        self.context.watched_scope(self.play, host, &self.task, &watch)
    }

    /// For a shared node: the host whose variables count. All hosts for which `when` holds must ask
    /// for the same thing, or sharing would silently drop what one of them wanted.
    fn agreed_host(&self) -> Result<Option<HostId>, NodeError> {
        if self.task.once_per.is_none() || self.hosts.len() < 2 {
            return Ok(Some(self.host));
        }
        let mut agreed: Option<(HostId, Node)> = None;
        for &host in &self.hosts {
            let scope = self.scope(host, None);
            let Some(requested_args) = self.requested_args(&scope)? else { continue };
            match &agreed {
                None => agreed = Some((host, requested_args)),
                Some((first, wanted)) => self.require_equal_args(*first, wanted, host, &requested_args)?,
            }
        }
        Ok(agreed.map(|(host, _)| host))
    }

    /// What a host asks for: its arguments, or those of every item of its loop. Nothing if `when` does not hold.
    fn requested_args(&self, scope: &Scope) -> Result<Option<Node>, NodeError> {
        let Some(items) = &self.task.loops else {
            return match self.conditions_hold(scope)? {
                true => self.render(&self.task.args, scope).map(Some),
                false => Ok(None),
            };
        };
        let mut requested = Vec::new();
        for (position, item) in self.items(items, scope)?.iter().enumerate() {
            let (_, scope) = self.enter(items, position, item, scope);
            if self.conditions_hold(&scope)? {
                requested.push(self.render(&self.task.args, &scope)?);
            }
        }
        Ok(Some(Node::new(self.task.span, Kind::Seq(requested))))
    }

    fn require_equal_args(&self, first: HostId, wanted: &Node, host: HostId, args: &Node) -> Result<(), NodeError> {
        let (wanted, args) = (wanted.to_value(), args.to_value());
        if wanted == args {
            return Ok(());
        }
        let differing = args.as_object().and_then(|map| map.iter().find(|(key, value)| wanted.get(key) != Some(value)));
        let name = differing.map_or("an argument", |(key, _)| key.as_str());
        let (first, host) = (self.context.graph.host(first), self.context.graph.host(host));
        let msg = format!("`once_per` runs this once for {first} and {host}, but `{name}` differs between them");
        let hint = "make the value the same for all of them, or drop `once_per`".to_owned();
        Err(NodeError::Failed(Box::new(Outcome::failed(msg)), Some(hint)))
    }

    pub(in crate::execute) fn skipped_by_when(&self) -> Outcome {
        Outcome::skipped(format!("when: {}", texts(&self.task.when)))
    }

    pub(in crate::execute) fn conditions_hold(&self, scope: &Scope) -> Result<bool, NodeError> {
        all_hold(&self.context, &self.task.when, scope)
            .map_err(|problem| NodeError::diagnostic(&self.context, &problem))
    }

    pub(in crate::execute) fn render(&self, node: &Node, scope: &Scope) -> Result<Node, NodeError> {
        let rendered = self.context.engine.render_node(node, scope);
        rendered.map_err(|problem| NodeError::diagnostic(&self.context, &problem))
    }

    /// One item, or the whole of a task without a loop.
    pub(in crate::execute) async fn one(&self, scope: &Scope) -> Result<Outcome, NodeError> {
        if let Some(known) = self.ruled_out(scope) {
            return self.foresee(known.at.as_ref(), known.result);
        }
        let mut attempt = 1;
        loop {
            let outcome = self.attempt(scope).await?;
            let mut outcome = self.judged(scope, outcome)?;
            if outcome.unknown || (self.task.until.is_empty() && self.task.retries == 0) {
                return Ok(outcome);
            }
            outcome.data.insert("attempts".into(), attempt.into());
            if self.is_enough(scope, &outcome)? {
                return Ok(outcome);
            }
            if attempt > self.task.retries {
                return Ok(self.gave_up(outcome, &format!("after {attempt} attempts")));
            }
            self.retry_event(attempt, &outcome);
            if !self.context.interrupt.pause(self.task.delay).await {
                return Ok(self.gave_up(outcome, "when the run was interrupted"));
            }
            attempt += 1;
        }
    }

    pub(in crate::execute) fn judged(&self, scope: &Scope, mut outcome: Outcome) -> Result<Outcome, NodeError> {
        if self.context.foresight.judges_prediction(&self.who(), &outcome) {
            return Ok(unknown("would change something, and what follows depends on its result"));
        }
        if outcome.unknown {
            return Ok(outcome);
        }
        judge(&self.context, &self.task, scope, &mut outcome)
            .map_err(|problem| NodeError::diagnostic(&self.context, &problem))?;
        Ok(outcome)
    }

    /// `until` holds; or, with `retries` alone, the task has succeeded.
    fn is_enough(&self, scope: &Scope, outcome: &Outcome) -> Result<bool, NodeError> {
        if self.task.until.is_empty() {
            return Ok(!outcome.failed);
        }
        let judging = judging_scope(&self.task, scope, outcome.to_value());
        all_hold(&self.context, &self.task.until, &judging)
            .map_err(|problem| NodeError::diagnostic(&self.context, &problem))
    }

    fn gave_up(&self, mut outcome: Outcome, when: &str) -> Outcome {
        outcome.failed = true;
        outcome.msg = match self.task.until.is_empty() {
            true => format!("{}, {when}", outcome.msg),
            false => format!("`until` was not true {when}: {}", texts(&self.task.until)),
        };
        outcome
    }

    fn retry_event(&self, attempt: u32, outcome: &Outcome) {
        let msg = if self.task.no_log { String::new() } else { outcome.msg.clone() };
        let (node, of) = (self.info.clone(), self.task.retries);
        self.context.emitter.emit(EventKind::NodeRetry { node, attempt, of, msg });
    }

    /// What `when` makes of a part; nothing if it is to run.
    pub(in crate::execute) fn ruled_out(&self, scope: &Scope) -> Option<Known> {
        let holds = self.conditions_hold(scope);
        if let Some(known) = self.in_doubt(scope) {
            return Some(known);
        }
        match holds {
            Ok(true) => None,
            Ok(false) => Some(Known { result: Ok(self.skipped_by_when()), at: None }),
            Err(trouble) => Some(Known { result: Err(trouble), at: None }),
        }
    }

    /// What a part is to do and where, with everything rendered; or what is known of it without a target.
    pub(in crate::execute) fn resolve(&self, scope: &Scope) -> Result<Work, Box<Known>> {
        let built = self.build(scope).and_then(|built| Ok((built, self.target(scope)?)));
        if let Some(known) = self.in_doubt(scope) {
            return Err(Box::new(known));
        }
        let (Built { effects, action, check_mode }, target) =
            built.map_err(|trouble| Box::new(Known { result: Err(trouble), at: None }))?;
        let watched = self.context.guard.watched(self.actor(), &effects, target, check_mode);
        Ok(Work { at: At { effects, target }, action, check_mode, watched })
    }

    async fn attempt(&self, scope: &Scope) -> Result<Outcome, NodeError> {
        let work = match self.resolve(scope) {
            Ok(work) => work,
            Err(known) => return self.foresee(known.at.as_ref(), known.result),
        };
        let Work { at, action, check_mode, watched } = work;
        let result = match self.context.foresight.is_absent(&self.who()) {
            Some(trouble) => Err(trouble),
            None => self.act(scope, action, (&at, check_mode), watched).await,
        };
        self.foresee(Some(&at), result)
    }

    async fn act(
        &self,
        scope: &Scope,
        action: Action,
        (at, check_mode): (&At, bool),
        watched: Option<Watched>,
    ) -> Result<Outcome, NodeError> {
        let effects = &at.effects;
        if watched.is_some()
            && let Some(outcome) = self.already_converged(scope, &action, effects).await?
        {
            return Ok(outcome);
        }
        let clusters = watched.as_ref().map(|on| on.clusters.clone()).unwrap_or_default();
        let _locked = self.context.guard.lock_clusters(&clusters).await?;
        if !matches!(action, Action::Done(_)) && self.once.can_change(effects, check_mode) {
            self.admit(at, || scope.clone()).await?;
        }
        let watch = watched.map(|on| on.watch);
        let result = self.perform(scope, action, (effects, check_mode), watch.clone()).await;
        if let Ok(outcome) = &result {
            self.meet_guest(outcome).await;
        }
        if watch.is_some() { result.map_err(|trouble| self.as_member_lost(trouble)) } else { result }
    }

    /// What every step passes right before it may change something, alone or with others. The quorum is asked about after all that
    /// takes long, and the record comes last: what is on it counts as begun.
    pub(in crate::execute) async fn admit(&self, at: &At, scope: impl Fn() -> Scope) -> Result<(), NodeError> {
        let At { effects, target } = at;
        self.context.guard.keep_members_up(self.actor(), effects, *target, || self.session(&scope())).await?;
        if let Target::Host(host) = *target {
            let is_computed = self.task.delegate_to.as_ref().is_some_and(Node::is_template);
            self.context.locks.hold(host, is_computed, &self.task).await?;
        }
        self.spare_again(at, scope).await?;
        self.once.intend().await
    }

    /// Looks before it waits for a turn: most of what may disrupt a member has nothing to do. A raw command cannot look, and a
    /// host cannot predict what only the operator does.
    async fn already_converged(
        &self,
        scope: &Scope,
        action: &Action,
        effects: &Effects,
    ) -> Result<Option<Outcome>, NodeError> {
        let Action::Remote(payload) = action else { return Ok(None) };
        if effects.opaque {
            return Ok(None);
        }
        let session = Session { fenced: false, ..self.session(scope)? };
        let outcome = self.on_target(&session, payload.clone(), effects, true).await?;
        Ok((!outcome.failed && !outcome.changed && !outcome.unknown).then_some(outcome))
    }

    async fn perform(
        &self,
        scope: &Scope,
        action: Action,
        (effects, check_mode): (&Effects, bool),
        watch: Option<Arc<MemberWatch>>,
    ) -> Result<Outcome, NodeError> {
        match action {
            Action::Done(outcome) => Ok(*outcome),
            Action::Remote(payload) => {
                let payload = Payload { watch, ..payload };
                let fenced = self.once.can_change(effects, check_mode);
                let session = Session { fenced, ..self.session(scope)? };
                match self.task.detach {
                    Some(_) if !check_mode => self.detached(&session, payload).await,
                    _ if self.runs_as_job(effects, check_mode) => self.as_job(&session, payload, effects).await,
                    _ => self.on_target(&session, payload, effects, check_mode).await,
                }
            }
            Action::Engine(action) => {
                let fenced = self.once.can_change(effects, check_mode);
                let session = Arc::new(Session { fenced, ..self.session(scope)? });
                let job = match action.reboots() && self.runs_as_job(effects, check_mode) {
                    true => match self.reboot_job(&session).await? {
                        None => return Ok(Outcome::changed().with("rebooted", true)),
                        job => job,
                    },
                    false => None,
                };
                let entry = self.once.entry(effects, check_mode);
                let context = ActionContext { entry, watch, job, ..self.action_context(session, fenced) };
                self.within_limit(action.run(&context)).await.and_then(|outcome| self.known(outcome))
            }
        }
    }

    /// What an action reaches: no ledger, no watch, no job of its own.
    pub(in crate::execute) fn action_context(&self, session: Arc<Session>, fenced: bool) -> ActionContext {
        ActionContext {
            session,
            timeout: self.task.timeout,
            entry: None,
            fenced,
            watch: None,
            job: None,
            state: self.context.options.state.clone(),
            command: self.context.options.command.clone(),
            opener: self.context.sources.opener().cloned(),
            progress: self.progress(),
            masker: self.context.sources.masker().clone(),
            scope: self.context.scope.clone(),
            reach: self.context.fleet.clone(),
            stop: self.context.interrupt.token(),
        }
    }

    /// Hands on how far a transfer of this node is.
    fn progress(&self) -> Progress {
        let (emitter, node) = (self.context.emitter.clone(), self.info.clone());
        Arc::new(move |done, total| emitter.emit(EventKind::NodeProgress { node: node.clone(), done, total }))
    }

    /// Whether the task only looks: as it says itself, or as the whole run does.
    pub(in crate::execute) fn check_mode(&self) -> bool {
        self.task.check_mode.unwrap_or(self.context.options.check_mode)
    }

    /// What the module makes of the rendered arguments.
    pub(in crate::execute) fn build(&self, scope: &Scope) -> Result<Built, NodeError> {
        let args = self.render(&self.task.args, scope)?;
        self.note_arguments(&args);
        self.build_module(self.task.module, &args, scope)
    }

    pub(in crate::execute) fn build_module(
        &self,
        module: &ModuleSpec,
        args: &Node,
        scope: &Scope,
    ) -> Result<Built, NodeError> {
        let check_mode = self.check_mode();
        let folders = self.context.folders(self.index, &self.task);
        let build = BuildContext {
            engine: &self.context.engine,
            scope,
            file_paths: &folders.files,
            template_paths: &folders.templates,
            check_mode,
            sources: &self.context.sources,
            span: self.task.span,
        };
        let (effects, action) =
            module.build(args, &build).map_err(|problems| NodeError::diagnostics(&self.context, &problems))?;
        Ok(Built { effects, action, check_mode })
    }

    async fn within_limit(
        &self,
        work: impl Future<Output = Result<Outcome, ActionError>>,
    ) -> Result<Outcome, NodeError> {
        match self.task.timeout {
            None => Ok(work.await?),
            Some(limit) => match tokio::time::timeout(limit, work).await {
                Ok(result) => Ok(result?),
                Err(_) => {
                    let outcome = Outcome::timed_out(format!("timed out after {}s", limit.as_secs_f64()));
                    Err(NodeError::Failed(Box::new(outcome), None))
                }
            },
        }
    }

    /// The payload as a step that runs once, and only while its lock is held, where that matters.
    pub(in crate::execute) fn step(
        &self,
        session: &Session,
        payload: Payload,
        effects: &Effects,
        check_mode: bool,
    ) -> Step {
        let fenced = self.once.can_change(effects, check_mode);
        Step { entry: self.once.entry(effects, check_mode), fenced, ..session.step(payload, check_mode) }
    }

    async fn on_target(
        &self,
        session: &Session,
        payload: Payload,
        effects: &Effects,
        check_mode: bool,
    ) -> Result<Outcome, NodeError> {
        let step = self.step(session, payload, effects, check_mode);
        let sink = OneStep { node: self, outcome: Mutex::default() };
        let lost = |sending: &mut Sending, error: &RemoteError| self.may_go_again(sending, error).then_some(0);
        // It is at hand already: an interrupt lets it end.
        let stop = CancellationToken::new();
        Sending::new(vec![step]).go(session, &sink, &stop, &self.context.interrupt, lost).await?;
        let outcome = lock(&sink.outcome).take();
        self.known(outcome.ok_or_else(|| NodeError::failed("the target sent no result"))?)
    }

    /// Whether what was lost on its way may be sent again, now.
    pub(in crate::execute) async fn goes_again(&self, sending: &mut Sending, error: &RemoteError) -> bool {
        self.may_go_again(sending, error) && sending.prepare_again(&self.context.interrupt, 0).await
    }

    pub(in crate::execute) fn may_go_again(&self, sending: &mut Sending, error: &RemoteError) -> bool {
        let again = sending.may_go_again(&self.once, error);
        if again {
            let msg = format!("{error}; asking the host what became of it");
            self.context.emitter.emit(EventKind::NodeRetry { node: self.info.clone(), attempt: 1, of: 0, msg });
        }
        again
    }

    /// Turns outcomes in doubt, with a lost lock or a lost member into errors.
    pub(in crate::execute) fn known(&self, outcome: Outcome) -> Result<Outcome, NodeError> {
        match outcome.ending {
            Ending::Own | Ending::TimedOut => Ok(outcome),
            Ending::InDoubt => {
                let msg = format!("in doubt: {}", outcome.msg);
                Err(NodeError::halted(Halt::InDoubt, Outcome { msg, ..outcome }))
            }
            Ending::MemberLost => Err(self.context.guard.member_lost(self.info.host.as_str(), outcome)),
            Ending::LockLost => Err(NodeError::halted(Halt::Unlocked, outcome)),
        }
    }

    /// Takes over what the node left behind in an earlier process.
    pub(in crate::execute) fn inherit(&self, done: &Done) {
        if let Some(left) = &done.left {
            self.restore(left, done.status);
        }
        if self.task.effects.opaque {
            self.inherit_ledger();
        }
    }

    /// An earlier process has left a ledger where this node ran; it goes away with those of this one.
    fn inherit_ledger(&self) {
        let scope = self.context.scope(self.play, self.host, &self.task);
        // Where it ran may depend on more than is known now. Then hosts tidy up by themselves, later.
        if let Ok(session) = self.session(&scope) {
            session.note_ledger(&self.context.options.run_id);
        }
    }

    /// The one place where a node that ran is settled.
    pub(in crate::execute) fn finish(self, result: Result<Outcome, NodeError>, started: Instant) -> Finished {
        let mut halts = None;
        let (outcome, status, hint) = match result {
            Ok(outcome) => {
                let status = self.status(&outcome);
                (outcome, status, None)
            }
            Err(NodeError::Failed(outcome, hint)) => {
                let status = self.status(&outcome);
                (*outcome, status, hint)
            }
            Err(NodeError::Unreachable { msg, hint, .. }) => {
                let status = if self.task.ignore_unreachable { Status::Ignored } else { Status::Unreachable };
                (Outcome::failed(msg).with("unreachable", true), status, hint)
            }
            Err(NodeError::Halted(halt, outcome, hint)) => {
                halts = Some(halt);
                (*outcome, halt.status(), hint.or_else(|| self.way_out(halt)))
            }
            // No failure that could be ignored or rescued: it runs again when the run is resumed.
            Err(NodeError::Interrupted) => (Outcome::failed("interrupted while it waited"), Status::NotRun, None),
        };
        let (outcome, status) = self.once.as_resumed(outcome, status);
        self.remember(&outcome, status);
        self.context.foresight.leave(&self.who(), &self.hosts, &outcome);
        self.predict(&outcome, status);
        if halts != Some(Halt::Unrecorded) {
            self.once.settled(&outcome, status, halts == Some(Halt::InDoubt), started.elapsed().as_secs_f64());
        }
        self.context.emitter.emit(EventKind::NodeFinished {
            node: self.info.clone(),
            status,
            seconds: started.elapsed().as_secs_f64(),
            // An unreachable host is reported even when the result is hidden: the message has no result in it.
            result: Shown::new(&outcome, self.task.no_log && status != Status::Unreachable),
            hint,
            because: None,
        });
        let Outcome { unknown, refused, .. } = outcome;
        Finished { unknown, refused, halts, ..Finished::new(self.index, self.hosts, status) }
    }

    /// What a person can do about a run that was halted.
    fn way_out(&self, halt: Halt) -> Option<String> {
        let (run, id) = (&self.context.options.run_id, &self.info.id);
        match halt {
            Halt::InDoubt => Some(format!(
                "inspect the host; then run `etcdrun resume {run} --assume done '{id}'`, or `--assume not-run` to run it again"
            )),
            Halt::MemberLost => Some(self.context.guard.quorum().way_out().to_owned()),
            Halt::Unlocked => Some("find out who did, and why; to continue, run `etcdrun resume`".to_owned()),
            Halt::Withheld | Halt::Unrecorded => None,
        }
    }

    fn status(&self, outcome: &Outcome) -> Status {
        match outcome.status() {
            Status::Failed if self.task.ignore_errors => Status::Ignored,
            Status::Failed if self.context.graph.node(self.index).rescued => Status::Rescued,
            status => status,
        }
    }

    /// As check mode sees it.
    pub(in crate::execute) fn who(&self) -> Who<'_> {
        let node = self.context.graph.node(self.index);
        Who {
            host: self.host,
            play: self.play,
            target: node.target,
            task: &self.task,
            notice: node.task.map(|task| (self.play, self.host, task)),
            only_looks: self.check_mode(),
        }
    }

    /// What came of a part, once it is held against what earlier tasks would have changed.
    pub(in crate::execute) fn foresee(
        &self,
        at: Option<&At>,
        result: Result<Outcome, NodeError>,
    ) -> Result<Outcome, NodeError> {
        self.context.foresight.foresee(&self.who(), at, result)
    }

    /// What can be said of a part by itself, if what was rendered for it was in doubt. It may still be known what
    /// it would change.
    fn in_doubt(&self, scope: &Scope) -> Option<Known> {
        let why = self.reads.take()?;
        let at = self.build(scope).ok().zip(self.target(scope).ok());
        let at =
            at.filter(|_| self.reads.take().is_none()).map(|(built, target)| At { effects: built.effects, target });
        Some(Known { result: Ok(unknown(why)), at })
    }

    /// Keeps what the arguments were rendered to, a line for each time.
    fn note_arguments(&self, args: &Node) {
        if self.context.options.check_mode {
            let mut arguments = lock(&self.arguments);
            arguments.push_str(&args.to_value().to_string());
            arguments.push('\n');
        }
    }

    /// Says in the plan what would become of the node.
    fn predict(&self, outcome: &Outcome, status: Status) {
        if !self.context.options.check_mode {
            return;
        }
        self.context.options.predictions.add(Prediction {
            id: self.info.id.clone(),
            host: self.info.host.clone(),
            task: self.info.task.clone(),
            forecast: Forecast::of(status, outcome.unknown),
            arguments: sum(lock(&self.arguments).as_bytes()),
            diff: outcome.diff.clone(),
            hidden: self.task.no_log,
        });
    }

    /// As the quorum guard sees it.
    pub(in crate::execute) fn actor(&self) -> Actor {
        Actor {
            host: self.host,
            has_turn: self.context.graph.play(self.play).rolls,
            is_about_guest: self.task.module.traits.is_about_guest,
            says_unchanged: self.task.says_unchanged(),
        }
    }

    /// The error of a watched step that did not report its end.
    pub(in crate::execute) fn as_member_lost(&self, trouble: NodeError) -> NodeError {
        self.context.guard.as_member_lost(self.info.host.as_str(), trouble, self.once.was_resent())
    }

    /// A guest whose key had to be learnt is a new machine.
    async fn meet_guest(&self, outcome: &Outcome) {
        if !self.task.module.traits.meets_host || !outcome.changed || self.check_mode() {
            return;
        }
        self.context.locks.lose(self.host);
        self.context.fleet.link(self.host).leads_elsewhere().await;
    }

    fn remember(&self, outcome: &Outcome, status: Status) {
        self.context.registered.register(&self.task, &self.hosts, outcome);
        if status == Status::Rescued {
            self.context.registered.keep_failure(&self.info.task, &self.hosts, outcome);
        }
    }

    /// The same, for a result of an earlier process.
    pub(in crate::execute) fn restore(&self, outcome: &Outcome, status: Status) {
        self.context.registered.restore_items(&self.task, &self.hosts, outcome);
        self.remember(outcome, status);
    }

    pub(in crate::execute) fn sets_facts(&self) -> bool {
        matches!(self.task.module.traits.sets, Sets::Arguments)
    }

    pub(in crate::execute) fn remember_facts(&self, outcome: &Outcome) {
        self.context.registered.keep_facts(&self.task, &self.hosts, outcome);
    }
}

/// What a module makes of its arguments.
pub(in crate::execute) struct Built {
    pub effects: Effects,
    pub action: Action,
    pub check_mode: bool,
}

/// A part whose result is known without its target, and what it would do where, as far as that is known.
pub(in crate::execute) struct Known {
    pub result: Result<Outcome, NodeError>,
    pub at: Option<At>,
}

/// What a part is to do, with everything rendered.
pub(in crate::execute) struct Work {
    pub at: At,
    pub action: Action,
    pub check_mode: bool,
    pub watched: Option<Watched>,
}

/// How much of one node's output is shown as it comes.
const LIVE_LIMIT: usize = 256 * 1024;

impl NodeRun {
    /// Hands live output on as events, up to a limit: a flood must not outlive its command in a queue.
    pub(in crate::execute) fn live(&self, stderr: bool, text: &[u8]) {
        if !self.context.options.live_output || self.task.no_log {
            return;
        }
        let before = self.shown.fetch_add(text.len(), Ordering::Relaxed);
        let emitter = &self.context.emitter;
        match before {
            ..LIVE_LIMIT => emitter.output(&self.info, stderr, text),
            _ if before - LIVE_LIMIT < text.len() => {
                emitter.end_output(&self.info, stderr);
                emitter.output(&self.info, stderr, b"\n(there is more output; it is not shown as it comes)\n");
            }
            _ => {}
        }
    }
}

/// Hears of the one step of a node.
struct OneStep<'a> {
    node: &'a NodeRun,
    outcome: Mutex<Option<Outcome>>,
}

impl StepSink for OneStep<'_> {
    fn started(&self, _: usize) {}

    fn output(&self, _: usize, stderr: bool, text: &[u8]) {
        self.node.live(stderr, text);
    }

    fn finished(&self, _: usize, outcome: &Outcome) {
        *lock(&self.outcome) = Some(outcome.clone());
    }
}
