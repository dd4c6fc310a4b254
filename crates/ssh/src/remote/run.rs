//! Runs one segment: sends the script, reads the markers, keeps the time.

use std::{pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::future::{Fuse, FutureExt};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    Fence, Link, Payload, RemoteError, Segment, Session, Step, StepSink, Transport,
    channel::{ChannelError, Exit, Input, Output, Said},
    error::Trouble,
    reader::{Event, Reader, Source},
    script::{self, Become, HALT, Library, NO_SCRIPT, Nonce, Reads, Script},
    shell::Shell,
    sudo,
};
use crate::model::Outcome;
use etcdrun_base::mutant::{is_off, repair};

pub(super) const KILL: &str = include_str!("kill.sh");
const STOP: &str = include_str!("stop.sh");

/// How long a shell that has its whole script may take to start a step.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How long the end of a step that took too long may take: it has two seconds to end by itself.
const KILL_LIMIT: Duration = Duration::from_secs(15);
/// How much is handed to the transport at once.
const CHUNK: usize = 256 << 10;

/// Where the files go that a step sends.
pub(super) enum Files<'a> {
    None,
    Into(&'a mut (dyn AsyncWrite + Send + Unpin)),
    /// Output and errors of a job.
    Keep {
        stdout: &'a mut Vec<u8>,
        stderr: &'a mut Vec<u8>,
        limit: usize,
    },
}

/// What a step reads on stdin, and who hears how far it is.
pub(super) struct Data<'a> {
    pub(super) source: &'a mut (dyn AsyncRead + Send + Unpin),
    pub(super) progress: &'a (dyn Fn(u64) + Send + Sync),
}

/// One exec on its way.
struct Run<'a> {
    link: &'a Arc<Link>,
    as_whom: Become<'a>,
    segment: &'a Segment,
    sink: &'a dyn StepSink,
    files: Files<'a>,
    reader: Reader,
    outcomes: Vec<Outcome>,
    /// Steps that have ended, and whether one of them failed.
    ended: usize,
    failed: bool,
    runner: Option<u32>,
    deadline: Option<Instant>,
    /// The whole script has left us: from now on it may run.
    sent: bool,
    /// The shell had run a script before.
    used: bool,
    nonce: Nonce,
    /// Once it is cancelled, no further step starts.
    stop: Option<&'a CancellationToken>,
    stopped: bool,
    /// The sink alone hears of outcomes.
    to_sink: bool,
}

impl Session {
    /// Runs the steps in order in one exec. Returns the outcomes of those that ran.
    pub async fn run(&self, segment: Segment, sink: &dyn StepSink) -> Result<Vec<Outcome>, RemoteError> {
        self.exchange(&segment, sink, None, Files::None, None).await
    }

    /// The same, with the sink alone to hear of outcomes: all of them together may be large. Once `stop`
    /// is cancelled, the step at hand still ends, and no further one starts.
    pub async fn run_until(
        &self,
        segment: &Segment,
        sink: &dyn StepSink,
        stop: &CancellationToken,
    ) -> Result<(), RemoteError> {
        self.exchange(segment, sink, None, Files::None, Some(stop)).await.map(drop)
    }

    pub(super) async fn exchange<'a>(
        &'a self,
        segment: &'a Segment,
        sink: &'a dyn StepSink,
        data: Option<Data<'_>>,
        files: Files<'a>,
        stop: Option<&'a CancellationToken>,
    ) -> Result<Vec<Outcome>, RemoteError> {
        segment.steps.iter().try_for_each(|step| self.refuse_exposed(step))?;
        // A step that looks takes no data and leaves no ledger; one that is more than a look needs to be allowed.
        let only_looks = |step: &Step| step.check_mode && step.entry.is_none();
        if data.is_some() || !segment.steps.iter().all(only_looks) {
            self.may_change()?;
        }
        let user = self.surroundings.become_user.as_ref();
        if let Some(entry) = segment.steps.iter().find_map(|step| step.entry.as_ref()) {
            self.note_ledger(&entry.run);
        }
        let as_whom = self.link.becoming(user).await?;
        let nonce = Nonce::random();
        segment.steps.iter().try_for_each(script::check)?;
        if self.link.options.transport == Transport::Nowhere {
            drop(Script::of(segment, &nonce, &self.link.fences(), Library::default()));
            return Ok(unsent(segment, sink));
        }
        let run = Run { files, stop, to_sink: stop.is_some(), ..Run::new(&self.link, as_whom, segment, sink, nonce) };
        run.go(&self.link.fences(), data).await
    }
}

impl<'a> Run<'a> {
    fn new(
        link: &'a Arc<Link>,
        as_whom: Become<'a>,
        segment: &'a Segment,
        sink: &'a dyn StepSink,
        nonce: Nonce,
    ) -> Self {
        Self {
            link,
            as_whom,
            segment,
            sink,
            files: Files::None,
            reader: Reader::new(segment, &nonce),
            outcomes: Vec::new(),
            ended: 0,
            failed: false,
            runner: None,
            deadline: None,
            sent: false,
            used: false,
            nonce,
            stop: None,
            stopped: false,
            to_sink: false,
        }
    }

    async fn go(mut self, fences: &[Fence], data: Option<Data<'_>>) -> Result<Vec<Outcome>, RemoteError> {
        let reads = if data.is_some() { Reads::Exactly } else { Reads::Scripts };
        let Shell { input, mut output, used, library } = self.link.shell(self.as_whom, reads).await?;
        self.used = used;
        let script = match data {
            Some(_) => Script::before_data(self.segment, &self.nonce, fences),
            None => Script::of(self.segment, &self.nonce, fences, library),
        };
        let library = library.and(script.library);
        let password = self.link.options.become_password.as_ref().filter(|_| !used);
        let before = sudo::lines_before_script(self.as_whom, password);
        // With data behind it, the script is there before the input ends.
        self.sent = data.is_some();
        let mut feeding = pin!(feed(input, before, script, data));
        let (mut fed, mut rest) = (false, None);
        let mut stopping = pin!(Fuse::terminated());
        loop {
            let deadline = self.deadline;
            tokio::select! {
                biased;
                runner = told_to_stop(self.stop, self.runner) => {
                    stopping.set(stop_runner(self.link, self.as_whom, runner, self.nonce.clone()).fuse());
                    (self.stop, self.stopped) = (None, true);
                }
                () = &mut stopping => {}
                result = &mut feeding, if !fed => {
                    fed = true;
                    rest = result.map_err(|error| self.broke(error))?;
                    self.sent = true;
                    self.deadline.get_or_insert_with(|| Instant::now() + START_LIMIT);
                }
                said = output.next() => match said {
                    Ok(Some(said)) => if self.hear(said).await? {
                        if let Some(input) = rest {
                            self.link.shells.keep(self.as_whom, Shell { input, output, used, library });
                        }
                        return Ok(self.outcomes);
                    },
                    Ok(None) => return Err(self.ended(None)),
                    Err(error) => return Err(self.broke(FeedError::Channel(error))),
                },
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    return Err(self.too_late(&mut output).await);
                }
            }
        }
    }

    /// True when all is said.
    async fn hear(&mut self, said: Said) -> Result<bool, RemoteError> {
        match said {
            Said::Stdout(bytes) => self.reader.push(Source::Stdout, &bytes),
            Said::Stderr(bytes) => self.reader.push(Source::Stderr, &bytes),
            Said::Ended(ending) => return Err(self.ended(Some(ending))),
        }
        while let Some(event) = self.reader.next().map_err(|error| RemoteError::Protocol(error.to_string().into()))? {
            if self.happen(event).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn happen(&mut self, event: Event) -> Result<bool, RemoteError> {
        match event {
            Event::Started { step, runner } => {
                self.runner = Some(runner);
                self.deadline = self.limit(step).map(|limit| Instant::now() + limit);
                self.sink.started(step);
            }
            Event::Output { step, error, text } => self.sink.output(step, error, &text),
            Event::File { error, bytes } => self.keep(error, &bytes).await?,
            Event::Finished { step, mut outcome } => {
                if let Some(step) = self.segment.steps.get(step) {
                    outcome.tell(&step.payload.told);
                }
                self.deadline = Some(Instant::now() + START_LIMIT);
                self.sink.finished(step, &outcome);
                self.ended += 1;
                self.failed |= outcome.failed;
                if !self.to_sink {
                    self.outcomes.push(*outcome);
                }
            }
            // A runner that is ended from outside says this too, in the middle of a step.
            Event::Done => return Ok(!self.reader.in_step() && self.is_complete()),
        }
        Ok(false)
    }

    fn limit(&self, step: usize) -> Option<Duration> {
        self.segment.steps.get(step).and_then(|step| step.timeout).or(self.link.options.command_timeout)
    }

    /// Nothing is missing, or what is missing was not wanted any more.
    fn is_complete(&self) -> bool {
        self.ended == self.segment.steps.len() || self.failed || self.stopped
    }

    async fn keep(&mut self, error: bool, bytes: &[u8]) -> Result<(), RemoteError> {
        match &mut self.files {
            Files::None => Ok(()),
            Files::Into(file) => file
                .write_all(bytes)
                .await
                .map_err(|error| RemoteError::Transfer(format!("cannot write the received data: {error}").into())),
            Files::Keep { stdout, stderr, limit } => {
                let kept = if error { stderr } else { stdout };
                let room = limit.saturating_sub(kept.len());
                kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
                Ok(())
            }
        }
    }

    /// The shell is gone before it was done.
    fn ended(&mut self, ending: Option<Exit>) -> RemoteError {
        let how = ending.as_ref().map_or_else(|| "no exit code".to_owned(), Exit::to_string);
        if self.reader.has_started() {
            return RemoteError::Lost(
                format!(
                    "the shell on the host ended in the middle of a step ({how}), so what the step did is in doubt"
                )
                .into(),
            );
        }
        // A shell that ends by itself has a code. Without one the session was cut, and what it had read may have run.
        let is_cut = self.sent && !matches!(ending, Some(Exit::Code(_))) && !is_off(repair::CUT_SESSION);
        if self.used || is_cut {
            return RemoteError::Lost(format!("the shell on the host ended ({how})").into());
        }
        let said = self.reader.noise();
        match self.as_whom {
            Become::Silently(user) if ending != Some(Exit::Code(NO_SCRIPT)) => sudo::refused(user, &said, false),
            Become::WithPassword(user) if ending != Some(Exit::Code(NO_SCRIPT)) => sudo::refused(user, &said, true),
            _ => RemoteError::Protocol(
                Trouble::new(match said.is_empty() {
                    true => format!("the host did not run the shell ({how})"),
                    false => format!("the host did not run the shell ({how}): {said}"),
                })
                .hint("check that the user can log in and run `sh`"),
            ),
        }
    }

    fn broke(&self, error: FeedError) -> RemoteError {
        match error {
            FeedError::Source(error) => RemoteError::Transfer(format!("cannot read the data to send: {error}").into()),
            FeedError::Channel(error) => match self.sent {
                true => RemoteError::Lost(error.into()),
                false => RemoteError::Unreachable(error.into()),
            },
        }
    }

    async fn too_late(&mut self, output: &mut Output) -> RemoteError {
        let Some(runner) = self.runner else {
            return RemoteError::Unreachable(
                format!("the shell on the host did not start within {} s", START_LIMIT.as_secs()).into(),
            );
        };
        let limit = self.limit(self.reader.step()).unwrap_or(START_LIMIT);
        tokio::select! {
            ended = timeout(KILL_LIMIT, end_runner(self.link, self.as_whom, runner)) => match ended {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(runner, %error, "cannot end a step that took too long"),
                Err(_) => tracing::warn!(runner, "a step that took too long does not end"),
            },
            () = drain(output) => {}
        }
        RemoteError::TimedOut(limit)
    }
}

/// What comes of steps that need not go anywhere.
fn unsent(segment: &Segment, sink: &dyn StepSink) -> Vec<Outcome> {
    let end = |step| {
        let outcome = Outcome::ok();
        sink.started(step);
        sink.finished(step, &outcome);
        outcome
    };
    (0..segment.steps.len()).map(end).collect()
}

/// Never ends. What nobody reads would hold up everything else on the connection.
async fn drain(output: &mut Output) {
    while let Ok(Some(_)) = output.next().await {}
    std::future::pending().await
}

/// Hears nothing.
pub(super) struct Deaf;

impl StepSink for Deaf {
    fn started(&self, _step: usize) {}
    fn output(&self, _step: usize, _error: bool, _text: &[u8]) {}
    fn finished(&self, _step: usize, _outcome: &Outcome) {}
}

/// The runner, once there is one and it should start nothing more.
async fn told_to_stop(stop: Option<&CancellationToken>, runner: Option<u32>) -> u32 {
    match (stop, runner) {
        (Some(stop), Some(runner)) => {
            stop.cancelled().await;
            runner
        }
        _ => std::future::pending().await,
    }
}

/// Ends a runner and all it started, as the user it runs as.
async fn end_runner(link: &Arc<Link>, as_whom: Become<'_>, runner: u32) -> Result<(), RemoteError> {
    beside(link, as_whom, Payload::new(KILL).value("runner", runner.to_string())).await
}

/// Lets a runner start no further step.
async fn stop_runner(link: &Arc<Link>, as_whom: Become<'_>, runner: u32, nonce: Nonce) {
    let payload = Payload::new(STOP).value("runner", runner.to_string()).value("halt", nonce.name(HALT));
    if let Err(error) = beside(link, as_whom, payload).await {
        tracing::debug!(runner, %error, "cannot stop a runner; it continues to its end");
    }
}

/// Runs a payload beside a runner, as the same user.
async fn beside(link: &Arc<Link>, as_whom: Become<'_>, payload: Payload) -> Result<(), RemoteError> {
    let segment = Segment { steps: vec![Step::plain(payload)] };
    let nonce = Nonce::random();
    let run = Run::new(link, as_whom, &segment, &Deaf, nonce);
    // Boxed, because it serves a run that is just like it.
    Box::pin(run.go(&[], None)).await.map(drop)
}

enum FeedError {
    Channel(ChannelError),
    Source(std::io::Error),
}

impl From<ChannelError> for FeedError {
    fn from(error: ChannelError) -> Self {
        Self::Channel(error)
    }
}

/// Sends it all. Comes back with the input, if another script may follow.
async fn feed(
    mut input: Input,
    before: Option<Bytes>,
    script: Script,
    data: Option<Data<'_>>,
) -> Result<Option<Input>, FeedError> {
    if let Some(before) = before {
        input.write(before).await?;
    }
    for chunk in script.bytes.chunks(CHUNK) {
        if !input.write(Bytes::copy_from_slice(chunk)).await? {
            return Ok(None);
        }
    }
    drop(script);
    let Some(Data { source, progress }) = data else { return Ok(Some(input)) };
    let mut sent = 0;
    loop {
        let mut buffer = bytes::BytesMut::with_capacity(CHUNK);
        let read = source.read_buf(&mut buffer).await.map_err(FeedError::Source)?;
        if read == 0 || !input.write(buffer.freeze()).await? {
            break;
        }
        sent += read as u64;
        progress(sent);
    }
    input.end().await?;
    Ok(None)
}
