//! A shell or a command on a host, with the terminal of the operator: for `ssh`, `console` and `logs`.

use std::{
    io::{self, IsTerminal, Read, Write},
    os::fd::AsFd,
};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};

use super::{CliError, Exit, visit::Hosts};
use crate::{
    inventory::Host,
    shell,
    ssh::{Connection, Exec, ExecEvent, Size, SshError},
};

pub fn quote(word: &str) -> String {
    String::from_utf8_lossy(&shell::quote(word.as_bytes())).into_owned()
}

/// A shell or a command there: at a terminal, if there is one here.
pub fn at(hosts: Hosts, host: &Host, command: Option<&str>) -> Result<Exit, CliError> {
    let is_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    let code = hosts.runtime.block_on(async {
        let connection = connect(&hosts, host).await?;
        if !is_terminal {
            let command = command.unwrap_or("exec ${SHELL:-/bin/sh}");
            return relay(connection.exec(command).await.map_err(failed)?).await;
        }
        let kind = std::env::var("TERM").unwrap_or_else(|_| "xterm".into());
        let exec = connection.terminal(command, &kind, size()).await.map_err(failed)?;
        let _raw = Raw::begin()?;
        relay(exec).await
    });
    ended(hosts, code)
}

pub async fn connect(hosts: &Hosts, host: &Host) -> Result<Connection, CliError> {
    let session = hosts.visit.session(host.id);
    let limit = std::time::Duration::from_secs(60);
    match tokio::time::timeout(limit, session.link.connection()).await {
        Ok(connection) => connection.map_err(|error| CliError::Unreachable(error.to_string())),
        Err(_) => Err(CliError::Unreachable(format!("{}: no answer within {limit:?}", host.name))),
    }
}

pub fn failed(error: SshError) -> CliError {
    CliError::Unreachable(error.to_string())
}

fn size() -> Size {
    let size = tcgetwinsize(io::stdout()).ok();
    size.map_or(Size { columns: 80, rows: 24 }, |size| Size { columns: size.ws_col.into(), rows: size.ws_row.into() })
}

/// Its code is ours, as ssh has it.
pub fn ended(hosts: Hosts, code: Result<u32, CliError>) -> Result<Exit, CliError> {
    hosts.leave();
    match code? {
        0 => Ok(Exit::Success),
        code => std::process::exit(i32::try_from(code).unwrap_or(1)),
    }
}

/// Passes on what is typed and what is said, until the command ends.
async fn relay(exec: Exec) -> Result<u32, CliError> {
    let (mut writer, mut reader) = exec.split();
    let mut typed = Some(keyboard());
    let mut resized = signal(SignalKind::window_change())?;
    loop {
        let pressed = async {
            match &mut typed {
                Some(typed) => typed.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            event = reader.next() => match event.map_err(failed)? {
                Some(ExecEvent::Stdout(bytes)) => say(&mut io::stdout().lock(), &bytes)?,
                Some(ExecEvent::Stderr(bytes)) => say(&mut io::stderr().lock(), &bytes)?,
                Some(ExecEvent::Exit(status)) => return Ok(status.code),
                Some(ExecEvent::Signal(_)) | None => return Ok(255),
            },
            bytes = pressed => match bytes {
                // The command may have ended; the reader knows.
                Some(bytes) => drop(writer.write(bytes).await),
                None => {
                    typed = None;
                    drop(writer.eof().await);
                }
            },
            _ = resized.recv() => drop(writer.resize(size()).await),
        }
    }
}

pub fn say(out: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
    out.write_all(bytes)?;
    out.flush()
}

/// What is typed, as it comes. The thread ends with the program: nothing else can wake it.
fn keyboard() -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(16);
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count) = io::stdin().lock().read(&mut buffer) {
            if count == 0 || sender.blocking_send(buffer[..count].to_vec()).is_err() {
                break;
            }
        }
    });
    receiver
}

/// Every key goes to the other side while this lives.
struct Raw(Termios);

impl Raw {
    fn begin() -> io::Result<Self> {
        let before = tcgetattr(io::stdin().as_fd())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin().as_fd(), OptionalActions::Now, &raw)?;
        Ok(Self(before))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // There is nothing left to try if the terminal is gone.
        let _ = tcsetattr(io::stdin().as_fd(), OptionalActions::Now, &self.0);
    }
}
