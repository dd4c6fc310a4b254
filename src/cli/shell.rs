//! `etcdrun ssh HOST`, `console MEMBER` and `logs MEMBER`: a person at a host, by the way that the inventory knows.

use std::{
    io::{self, IsTerminal, Read, Write},
    os::fd::AsFd,
};

use clap::Args;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};

use super::{CliError, Exit, Invocation, args::ConnectionArgs, verb::KnownArgs, visit::Visitor};
use crate::{
    etcd::UNIT,
    inventory::{Host, HostKind},
    model::MaskedStream,
    report::sanitize,
    shell,
    ssh::{Connection, Exec, ExecEvent, Size, SshError},
};

/// A longer line is not waited for.
const LONG_LINE: usize = 64 * 1024;

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  etcdrun ssh etcd-1\n  etcdrun ssh hv1 -- virsh list")]
pub struct SshArgs {
    /// The host: a member, a hypervisor or any other of the inventory
    host: String,

    /// A command instead of a shell
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,

    #[command(flatten)]
    known: KnownArgs,

    #[command(flatten)]
    connection: ConnectionArgs,
}

#[derive(Args, Debug)]
pub struct ConsoleArgs {
    /// The member, or another guest by the name of its member
    member: String,

    #[command(flatten)]
    known: KnownArgs,

    #[command(flatten)]
    connection: ConnectionArgs,
}

#[derive(Args, Debug)]
pub struct LogsArgs {
    /// The member
    member: String,

    /// Follow the log
    #[arg(short, long)]
    follow: bool,

    /// Number of lines
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100)]
    lines: u32,

    /// A unit other than etcd's
    #[arg(long, value_name = "UNIT", default_value = UNIT)]
    unit: String,

    #[command(flatten)]
    known: KnownArgs,

    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(super) fn quote(word: &str) -> String {
    String::from_utf8_lossy(&shell::quote(word.as_bytes())).into_owned()
}

/// Root, or whoever may become it without being asked.
const AS_ROOT: &str = r#"[ "$(id -u)" = 0 ] || sudo=sudo; exec $sudo "#;
const AS_ROOT_SILENTLY: &str = r#"[ "$(id -u)" = 0 ] || sudo='sudo -n'; exec $sudo "#;

pub fn ssh(args: &SshArgs, invocation: &Invocation) -> Result<Exit, CliError> {
    let visitor = Visitor::new(&args.known, &args.connection, None, invocation)?;
    let host = visitor.host(&args.host)?.clone();
    let command =
        (!args.command.is_empty()).then(|| args.command.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" "));
    at(visitor, &host, command.as_deref())
}

pub fn console(args: &ConsoleArgs, invocation: &Invocation) -> Result<Exit, CliError> {
    let visitor = Visitor::new(&args.known, &args.connection, None, invocation)?;
    let member = visitor.host(&args.member)?;
    let hypervisor = visitor.inventory.hypervisor_of(member.id).ok_or_else(|| {
        let help = format!("`etcdrun ssh {}` logs in", args.member);
        CliError::usage_with_help(format!("`{}` has no hypervisor, so it has no console", args.member), Some(help))
    })?;
    if !io::stdin().is_terminal() {
        return Err(CliError::usage("a console needs a terminal"));
    }
    let hypervisor = hypervisor.clone();
    eprintln!("the console of {} on {}; press Ctrl-] to exit", args.member, hypervisor.name);
    let command = format!("{AS_ROOT}virsh --connect qemu:///system console {}", quote(&args.member));
    at(visitor, &hypervisor, Some(&command))
}

pub fn logs(args: &LogsArgs, invocation: &Invocation) -> Result<Exit, CliError> {
    let visitor = Visitor::new(&args.known, &args.connection, None, invocation)?;
    let member = visitor.host(&args.member)?.clone();
    if !matches!(member.kind, HostKind::Member { .. }) && args.unit == UNIT {
        let help = "pass --unit for another unit";
        return Err(CliError::usage_with_help(format!("`{}` is not a member", args.member), Some(help.into())));
    }
    let follow = if args.follow { " --follow" } else { "" };
    let unit = quote(&args.unit);
    let command = format!("{AS_ROOT_SILENTLY}journalctl --no-pager --unit {unit} --lines {}{follow}", args.lines);
    let code = visitor.runtime.block_on(async {
        let connection = connect(&visitor, &member).await?;
        show(connection.exec(&command).await.map_err(failed)?, invocation).await
    });
    ended(visitor, code)
}

/// Shows what a command says, as all that is shown: without secrets, and on a terminal nothing that it would obey.
async fn show(exec: Exec, invocation: &Invocation) -> Result<u32, CliError> {
    let (_writer, mut reader) = exec.split();
    let mut out = Lines::new(invocation, io::stdout().is_terminal());
    let mut err = Lines::new(invocation, io::stderr().is_terminal());
    loop {
        let code = match reader.next().await.map_err(failed)? {
            Some(ExecEvent::Stdout(bytes)) => {
                say(&mut io::stdout().lock(), out.push(&bytes).as_bytes())?;
                continue;
            }
            Some(ExecEvent::Stderr(bytes)) => {
                say(&mut io::stderr().lock(), err.push(&bytes).as_bytes())?;
                continue;
            }
            Some(ExecEvent::Exit(status)) => status.code,
            Some(ExecEvent::Signal(_)) | None => 255,
        };
        say(&mut io::stdout().lock(), out.finish().as_bytes())?;
        say(&mut io::stderr().lock(), err.finish().as_bytes())?;
        return Ok(code);
    }
}

/// Text that comes in pieces, and is shown by whole lines: an escape sequence may be cut in two.
struct Lines {
    masked: MaskedStream,
    held: String,
    is_terminal: bool,
}

impl Lines {
    fn new(invocation: &Invocation, is_terminal: bool) -> Self {
        Self { masked: invocation.masker.stream(), held: String::new(), is_terminal }
    }

    fn push(&mut self, piece: &[u8]) -> String {
        self.held += &self.masked.push(piece);
        // One that never ends is shown in parts.
        let end = self.held.rfind('\n').map(|end| end + 1).or((self.held.len() > LONG_LINE).then_some(self.held.len()));
        let shown: String = self.held.drain(..end.unwrap_or(0)).collect();
        self.safe(shown)
    }

    fn finish(&mut self) -> String {
        let rest = std::mem::take(&mut self.held) + &self.masked.finish();
        self.safe(rest)
    }

    fn safe(&self, text: String) -> String {
        if self.is_terminal { sanitize(&text).into_owned() } else { text }
    }
}

/// A shell or a command there: at a terminal, if there is one here.
fn at(visitor: Visitor, host: &Host, command: Option<&str>) -> Result<Exit, CliError> {
    let is_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    let code = visitor.runtime.block_on(async {
        let connection = connect(&visitor, host).await?;
        if !is_terminal {
            let command = command.unwrap_or("exec ${SHELL:-/bin/sh}");
            return relay(connection.exec(command).await.map_err(failed)?).await;
        }
        let kind = std::env::var("TERM").unwrap_or_else(|_| "xterm".into());
        let exec = connection.terminal(command, &kind, size()).await.map_err(failed)?;
        let _raw = Raw::begin()?;
        relay(exec).await
    });
    ended(visitor, code)
}

async fn connect(visitor: &Visitor, host: &Host) -> Result<Connection, CliError> {
    let session = visitor.visit.session(host.id);
    let limit = std::time::Duration::from_secs(60);
    match tokio::time::timeout(limit, session.link.connection()).await {
        Ok(connection) => connection.map_err(|error| CliError::Unreachable(error.to_string())),
        Err(_) => Err(CliError::Unreachable(format!("{}: no answer within {limit:?}", host.name))),
    }
}

fn failed(error: SshError) -> CliError {
    CliError::Unreachable(error.to_string())
}

fn size() -> Size {
    let size = tcgetwinsize(io::stdout()).ok();
    size.map_or(Size { columns: 80, rows: 24 }, |size| Size { columns: size.ws_col.into(), rows: size.ws_row.into() })
}

/// Its code is ours, as ssh has it.
fn ended(visitor: Visitor, code: Result<u32, CliError>) -> Result<Exit, CliError> {
    visitor.leave();
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

fn say(out: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Masker;

    fn shown(is_terminal: bool, pieces: &[&str]) -> String {
        let masker = Masker::default();
        masker.add("hunter2");
        let mut lines = Lines { masked: masker.stream(), held: String::new(), is_terminal };
        let shown: String = pieces.iter().map(|piece| lines.push(piece.as_bytes())).collect();
        shown + &lines.finish()
    }

    #[test]
    fn logs_are_shown_without_secrets_and_do_not_touch_the_terminal() {
        let pieces = ["a hun", "ter2 \x1b", "]0;title\x07b\x1b[", "2Jc\nthe rest\x1b[31m"];
        assert_eq!(shown(true, &pieces), "a <secret> bc\nthe rest");
        assert_eq!(shown(false, &pieces), "a <secret> \x1b]0;title\x07b\x1b[2Jc\nthe rest\x1b[31m");
    }
}
