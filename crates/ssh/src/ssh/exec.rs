//! One command on a host: its input, its output, and how it ended.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use russh::client::Msg;
use russh::{Channel, ChannelMsg, ChannelReadHalf, ChannelWriteHalf, Sig};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::SshError;
use super::connection::{Connection, SessionLease};

/// A daemon left behind may hold the output open. After the command itself has ended, so long a
/// silence means that nothing of its own is still on the way.
const QUIET_AFTER_EXIT: Duration = Duration::from_millis(200);
/// And a daemon that chatters on is not waited for longer than this.
const PATIENCE_AFTER_EXIT: Duration = Duration::from_secs(10);
/// How long the end of a session may take to be confirmed before its place is reused anyway.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExitStatus {
    pub code: u32,
}

impl ExitStatus {
    pub fn success(self) -> bool {
        self.code == 0
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecEvent {
    Stdout(Bytes),
    Stderr(Bytes),
    /// The command ended; nothing comes after this.
    Exit(ExitStatus),
    /// A signal ended the command; nothing comes after this.
    Signal(String),
}

/// How large a terminal is, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub columns: u32,
    pub rows: u32,
}

/// A signal to send to a running command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    Hangup,
    Interrupt,
    Terminate,
    Kill,
}

/// A running command. Dropping it closes its session; the command may live on.
///
/// Its output must be read: what nobody reads holds up everything else on the connection.
pub struct Exec {
    reader: ExecReader,
    writer: ExecWriter,
}

/// The output side of a command.
pub struct ExecReader {
    /// Taken out when the session is closed.
    session: Option<Session>,
    connection: Connection,
    /// Tells the writer that nobody reads its input any more.
    ended: CancellationToken,
    outcome: Option<ExecEvent>,
    output_ended: bool,
    exited: Option<Instant>,
    last_output: Instant,
    /// Events that came while input was being written.
    waiting: VecDeque<ExecEvent>,
    finished: bool,
    /// The channel ended without an outcome; why is told with the next call.
    cut_off: bool,
}

/// What a session holds until it is closed on both ends.
struct Session {
    incoming: ChannelReadHalf,
    outgoing: Arc<ChannelWriteHalf<Msg>>,
    lease: SessionLease,
    /// How the two ends stand.
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// The command has ended and its output too: the server closes next.
    Ending,
    Closed,
}

/// The input side of a command. Dropping it ends the input.
pub struct ExecWriter {
    channel: Arc<ChannelWriteHalf<Msg>>,
    connection: Connection,
    ended: CancellationToken,
    eof_sent: bool,
}

/// All that a command said, for commands that say little.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// The exit code, or the signal that ended it.
    pub outcome: Result<ExitStatus, String>,
}

impl Output {
    pub fn success(&self) -> bool {
        self.outcome.as_ref().is_ok_and(|status| status.success())
    }
}

impl Exec {
    pub(super) fn new(channel: Channel<Msg>, lease: SessionLease) -> Self {
        let connection = lease.connection.clone();
        let ended = CancellationToken::new();
        let (incoming, outgoing) = channel.split();
        let outgoing = Arc::new(outgoing);
        let writer = ExecWriter {
            channel: outgoing.clone(),
            connection: connection.clone(),
            ended: ended.clone(),
            eof_sent: false,
        };
        let session = Session { incoming, outgoing, lease, state: State::Open };
        let reader = ExecReader {
            session: Some(session),
            connection,
            ended,
            outcome: None,
            output_ended: false,
            exited: None,
            last_output: Instant::now(),
            waiting: VecDeque::new(),
            finished: false,
            cut_off: false,
        };
        Exec { reader, writer }
    }

    pub(super) async fn request(&self, command: &str) -> Result<(), SshError> {
        let sent = self.writer.channel.exec(true, command).await;
        sent.map_err(|_| self.writer.connection.dropped())
    }

    /// A command, or the user's own shell, at a terminal of that kind and size.
    pub(super) async fn request_terminal(&self, command: Option<&str>, kind: &str, size: Size) -> Result<(), SshError> {
        let channel = &self.writer.channel;
        let sent = async {
            channel.request_pty(false, kind, size.columns, size.rows, 0, 0, &[]).await?;
            match command {
                Some(command) => channel.exec(true, command).await,
                None => channel.request_shell(true).await,
            }
        };
        sent.await.map_err(|_| self.writer.connection.dropped())
    }

    /// Writes to the command's input. Output that comes meanwhile is kept for [`Exec::next`]; for
    /// large transfers [`Exec::split`] instead, and read while writing.
    pub async fn write(&mut self, bytes: impl Into<Bytes>) -> Result<(), SshError> {
        let writing = self.writer.write(bytes);
        tokio::pin!(writing);
        loop {
            tokio::select! {
                biased;
                written = &mut writing => return written,
                event = self.reader.read() => self.reader.waiting.extend(event?),
            }
        }
    }

    /// Ends the command's input.
    pub async fn eof(&mut self) -> Result<(), SshError> {
        self.writer.eof().await
    }

    /// The next thing that happens; `None` after the command has ended. Safe to cancel.
    pub async fn next(&mut self) -> Result<Option<ExecEvent>, SshError> {
        self.reader.next().await
    }

    /// Both sides on their own, so that one task can write while another reads.
    pub fn split(self) -> (ExecWriter, ExecReader) {
        (self.writer, self.reader)
    }

    pub async fn signal(&mut self, signal: Signal) -> Result<(), SshError> {
        self.writer.signal(signal).await
    }

    /// Closes the session without waiting for the command.
    pub async fn close(self) {
        self.reader.close().await;
    }

    /// Feeds `input`, then waits for the end and keeps everything the command says.
    pub async fn output(self, input: impl Into<Bytes>) -> Result<Output, SshError> {
        let input = input.into();
        let (mut writer, mut reader) = self.split();
        let feed = async move {
            // If that fails, the reader knows better why: the command may well have ended before.
            let fed = writer.write(input).await;
            fed.is_ok() && writer.eof().await.is_ok()
        };
        let read = async move {
            let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
            let mut outcome = Err("unknown".to_owned());
            while let Some(event) = reader.next().await? {
                match event {
                    ExecEvent::Stdout(bytes) => stdout.extend_from_slice(&bytes),
                    ExecEvent::Stderr(bytes) => stderr.extend_from_slice(&bytes),
                    ExecEvent::Exit(status) => outcome = Ok(status),
                    ExecEvent::Signal(name) => outcome = Err(name),
                }
            }
            Ok(Output { stdout, stderr, outcome })
        };
        let (_fed, output) = tokio::join!(feed, read);
        output
    }
}

impl ExecWriter {
    /// Waits until the host has room for all of it. Fails with [`SshError::StdinClosed`] when the
    /// command has ended without reading it.
    pub async fn write(&mut self, bytes: impl Into<Bytes>) -> Result<(), SshError> {
        tokio::select! {
            biased;
            () = self.ended.cancelled() => Err(self.stdin_closed()),
            () = self.connection.closed() => Err(self.connection.dropped()),
            sent = self.channel.data_bytes(bytes) => sent.map_err(|_| self.connection.dropped()),
        }
    }

    /// Ends the input. Does nothing when the command is already over.
    pub async fn eof(&mut self) -> Result<(), SshError> {
        if self.eof_sent || self.ended.is_cancelled() {
            return Ok(());
        }
        self.eof_sent = true;
        self.channel.eof().await.map_err(|_| self.connection.dropped())
    }

    /// Asks the host to signal the command. sshd does not do so for root, so do not rely on it.
    pub async fn signal(&mut self, signal: Signal) -> Result<(), SshError> {
        let signal = match signal {
            Signal::Hangup => Sig::HUP,
            Signal::Interrupt => Sig::INT,
            Signal::Terminate => Sig::TERM,
            Signal::Kill => Sig::KILL,
        };
        let sent = self.channel.signal(signal).await;
        sent.map_err(|_| self.connection.dropped())
    }

    /// The terminal has another size now.
    pub async fn resize(&mut self, size: Size) -> Result<(), SshError> {
        let sent = self.channel.window_change(size.columns, size.rows, 0, 0).await;
        sent.map_err(|_| self.connection.dropped())
    }

    fn stdin_closed(&self) -> SshError {
        SshError::StdinClosed { to: self.connection.label().to_owned() }
    }
}

impl Drop for ExecWriter {
    fn drop(&mut self) {
        if self.eof_sent || self.ended.is_cancelled() {
            return;
        }
        let channel = self.channel.clone();
        in_background(async move {
            let _ = channel.eof().await;
        });
    }
}

impl ExecReader {
    /// The next thing that happens; `None` after the command has ended. Safe to cancel.
    pub async fn next(&mut self) -> Result<Option<ExecEvent>, SshError> {
        match self.waiting.pop_front() {
            Some(event) => Ok(Some(event)),
            None => self.read().await,
        }
    }

    async fn read(&mut self) -> Result<Option<ExecEvent>, SshError> {
        while let Some(session) = self.session.as_mut().filter(|_| !self.finished) {
            let message = tokio::select! {
                biased;
                message = session.incoming.wait() => message,
                () = silence(&self.connection, self.exited, self.last_output) => {
                    return Ok(self.finish());
                }
            };
            if let Some(event) = self.receive(message)? {
                return Ok(Some(event));
            }
        }
        match self.cut_off {
            true => Err(self.why_cut_off().await),
            false => Ok(None),
        }
    }

    fn receive(&mut self, message: Option<ChannelMsg>) -> Result<Option<ExecEvent>, SshError> {
        match message {
            Some(ChannelMsg::Data { data }) => {
                self.last_output = Instant::now();
                return Ok(Some(ExecEvent::Stdout(data)));
            }
            Some(ChannelMsg::ExtendedData { data, ext: 1 }) => {
                self.last_output = Instant::now();
                return Ok(Some(ExecEvent::Stderr(data)));
            }
            Some(ChannelMsg::ExitStatus { exit_status }) => {
                self.exit(ExecEvent::Exit(ExitStatus { code: exit_status }));
            }
            Some(ChannelMsg::ExitSignal { signal_name, .. }) => {
                self.exit(ExecEvent::Signal(signal_text(&signal_name)));
            }
            Some(ChannelMsg::Eof) => self.output_ended = true,
            Some(ChannelMsg::Failure) => {
                self.finish();
                return Err(SshError::ExecRefused {
                    to: self.connection.label().to_owned(),
                    reason: "it denied the request".to_owned(),
                });
            }
            Some(ChannelMsg::Close) | None => {
                self.set_state(State::Closed);
                let outcome = self.finish();
                self.cut_off = outcome.is_none();
                return Ok(outcome);
            }
            Some(_) => {}
        }
        if !self.output_ended || self.outcome.is_none() {
            return Ok(None);
        }
        self.set_state(State::Ending);
        Ok(self.finish())
    }

    fn set_state(&mut self, state: State) {
        if let Some(session) = &mut self.session {
            session.state = state;
        }
    }

    fn exit(&mut self, outcome: ExecEvent) {
        self.outcome = Some(outcome);
        self.exited = Some(Instant::now());
        self.last_output = Instant::now();
        self.ended.cancel();
    }

    fn finish(&mut self) -> Option<ExecEvent> {
        self.finished = true;
        self.ended.cancel();
        self.outcome.take()
    }

    async fn why_cut_off(&self) -> SshError {
        self.connection.settle().await;
        match self.connection.is_closed() {
            true => self.connection.dropped(),
            false => SshError::NoExitStatus { to: self.connection.label().to_owned() },
        }
    }

    /// Whether the command has ended, or its connection is gone, as far as is known.
    pub fn is_cut_off(&self) -> bool {
        self.finished || self.ended.is_cancelled() || self.connection.is_closed()
    }

    /// Closes the session without waiting for the command.
    pub async fn close(mut self) {
        if let Some(session) = self.session.take() {
            session.hang_up().await;
        }
    }
}

/// Ends when a command that has exited has nothing more to say.
async fn silence(connection: &Connection, exited: Option<Instant>, last_output: Instant) {
    let Some(exited) = exited else {
        return std::future::pending().await;
    };
    let limit = exited + PATIENCE_AFTER_EXIT;
    let quiet = last_output + QUIET_AFTER_EXIT;
    tokio::time::sleep_until(quiet.min(limit)).await;
    if quiet < limit {
        // On a slow line, silence alone proves little: what is on its way arrives before this.
        connection.ping(PATIENCE_AFTER_EXIT).await;
    }
}

impl Drop for ExecReader {
    fn drop(&mut self) {
        self.ended.cancel();
        if let Some(session) = self.session.take() {
            in_background(session.hang_up());
        }
    }
}

impl Session {
    /// Closes the session, and gives its place back only when the server has seen that.
    async fn hang_up(mut self) {
        if self.state == State::Ending {
            // Better the server closes first: russh then forgets the channel at once.
            let closed = tokio::time::timeout(CLOSE_TIMEOUT, self.until_closed()).await;
            if closed.is_ok() {
                self.state = State::Closed;
            }
        }
        if self.state != State::Closed && self.outgoing.close().await.is_ok() {
            self.lease.connection.ping(CLOSE_TIMEOUT).await;
        }
    }

    async fn until_closed(&mut self) {
        while !matches!(self.incoming.wait().await, None | Some(ChannelMsg::Close)) {}
    }
}

/// Without a runtime there is no connection left to tidy up either.
fn in_background(work: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(work);
    }
}

fn signal_text(signal: &Sig) -> String {
    match signal {
        Sig::Custom(name) => name.clone(),
        other => format!("{other:?}"),
    }
}

impl std::fmt::Debug for Exec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exec").field("on", &self.writer.connection.label()).finish_non_exhaustive()
    }
}
