//! A running shell and its three streams, over SSH or right here.

use std::{
    io,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
    time::{Instant, sleep_until},
};

use crate::ssh::{ExecEvent, ExecReader, ExecWriter, SshError};

/// As over SSH: a daemon left behind may hold the output open, and is not waited for.
const QUIET_AFTER_EXIT: Duration = Duration::from_millis(200);

/// What comes from a shell.
#[derive(Debug)]
pub(super) enum Said {
    Stdout(Bytes),
    Stderr(Bytes),
    /// It ended; nothing comes after this.
    Ended(Exit),
}

/// How a shell ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    Code(u32),
    Signal(String),
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(name) => write!(f, "signal {name}"),
        }
    }
}

/// Why a stream broke.
#[derive(Debug, thiserror::Error)]
pub(super) enum ChannelError {
    #[error(transparent)]
    Ssh(#[from] SshError),
    #[error("cannot run a shell here: {0}")]
    Local(#[from] io::Error),
}

/// The input of a shell. Dropping it ends the input.
pub(super) enum Input {
    Ssh(ExecWriter),
    Local(Option<ChildStdin>),
}

impl Input {
    /// False: the shell has ended or reads no more, and will say so itself.
    pub(super) async fn write(&mut self, bytes: Bytes) -> Result<bool, ChannelError> {
        match self {
            Self::Ssh(writer) => match writer.write(bytes).await {
                Ok(()) => Ok(true),
                Err(SshError::StdinClosed { .. }) => Ok(false),
                Err(error) => Err(error.into()),
            },
            Self::Local(stdin) => match stdin {
                Some(stdin) => Ok(stdin.write_all(&bytes).await.is_ok()),
                None => Ok(false),
            },
        }
    }

    pub(super) async fn end(&mut self) -> Result<(), ChannelError> {
        match self {
            Self::Ssh(writer) => Ok(writer.eof().await?),
            Self::Local(stdin) => {
                *stdin = None;
                Ok(())
            }
        }
    }
}

/// The output of a shell. Dropping it closes the session.
pub(super) enum Output {
    Ssh(ExecReader),
    Local(Box<LocalOutput>),
}

impl Output {
    /// The next thing that comes; `None` after the end. Safe to cancel.
    pub(super) async fn next(&mut self) -> Result<Option<Said>, ChannelError> {
        match self {
            Self::Ssh(reader) => Ok(reader.next().await?.map(|event| match event {
                ExecEvent::Stdout(bytes) => Said::Stdout(bytes),
                ExecEvent::Stderr(bytes) => Said::Stderr(bytes),
                ExecEvent::Exit(status) => Said::Ended(Exit::Code(status.code)),
                ExecEvent::Signal(name) => Said::Ended(Exit::Signal(name)),
            })),
            Self::Local(local) => Ok(local.next().await?),
        }
    }

    /// Whether nothing more can come, as far as is known.
    pub(super) fn is_cut_off(&self) -> bool {
        match self {
            Self::Ssh(reader) => reader.is_cut_off(),
            Self::Local(local) => local.over || local.exited.is_some(),
        }
    }
}

/// A shell on this machine.
pub(super) struct LocalOutput {
    child: Child,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    exited: Option<(ExitStatus, Instant)>,
    over: bool,
}

/// Starts a shell here, in a process group of its own, so that it can be ended as a whole.
pub(super) fn start_local(program: &str, arguments: &[&str]) -> Result<(Input, Output), ChannelError> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()?;
    let stdin = child.stdin.take();
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let output = LocalOutput { child, stdout, stderr, exited: None, over: false };
    Ok((Input::Local(stdin), Output::Local(Box::new(output))))
}

impl LocalOutput {
    async fn next(&mut self) -> io::Result<Option<Said>> {
        while !self.over {
            let (mut out, mut err) = (BytesMut::with_capacity(8192), BytesMut::with_capacity(8192));
            let quiet = self.exited.map(|(_, at)| at + QUIET_AFTER_EXIT);
            tokio::select! {
                biased;
                read = read(&mut self.stdout, &mut out), if self.stdout.is_some() => match read? {
                    true => return Ok(Some(Said::Stdout(out.freeze()))),
                    false => self.stdout = None,
                },
                read = read(&mut self.stderr, &mut err), if self.stderr.is_some() => match read? {
                    true => return Ok(Some(Said::Stderr(err.freeze()))),
                    false => self.stderr = None,
                },
                status = self.child.wait(), if self.exited.is_none() => self.exited = Some((status?, Instant::now())),
                () = sleep_until(quiet.unwrap_or_else(Instant::now)), if quiet.is_some() => self.over = true,
            }
            let silent = self.stdout.is_none() && self.stderr.is_none();
            self.over |= silent && self.exited.is_some();
        }
        Ok(self.exited.take().map(|(status, _)| Said::Ended(exit(status))))
    }
}

/// False at the end of the stream.
async fn read(stream: &mut Option<impl AsyncReadExt + Unpin>, into: &mut BytesMut) -> io::Result<bool> {
    match stream {
        Some(stream) => Ok(stream.read_buf(into).await? > 0),
        None => std::future::pending().await,
    }
}

fn exit(status: ExitStatus) -> Exit {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Code(u32::try_from(code).unwrap_or(u32::MAX)),
        (None, signal) => Exit::Signal(signal.map_or_else(|| "unknown".to_owned(), |number| number.to_string())),
    }
}
