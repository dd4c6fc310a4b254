//! `etcdrun logs MEMBER`: the log of a member's etcd, without secrets.

use std::io::{self, IsTerminal};

use clap::Args;

use crate::cli::support::{
    CliError, Exit, Invocation,
    args::{ConnectionArgs, KnownArgs},
    shell::{connect, ended, failed, quote, say},
    site::Site,
};
use crate::{
    etcd::UNIT,
    model::MaskedStream,
    report::sanitize,
    ssh::{Exec, ExecEvent},
};

/// A longer line is not waited for.
const LONG_LINE: usize = 64 * 1024;

/// Root, or a user that may become root without a password: there is no terminal to type it at.
const AS_ROOT_SILENTLY: &str = r#"[ "$(id -u)" = 0 ] || sudo='sudo -n'; exec $sudo "#;

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

pub fn run(args: &LogsArgs, invocation: &Invocation) -> Result<Exit, CliError> {
    let hosts = Site::load(&args.known, None, invocation)?.connect(&args.connection, invocation)?;
    let member = hosts.host(&args.member)?.clone();
    if member.cluster().is_none() && args.unit == UNIT {
        let help = "pass --unit for another unit";
        return Err(CliError::usage_with_help(format!("`{}` is not a member", args.member), Some(help.into())));
    }
    let follow = if args.follow { " --follow" } else { "" };
    let unit = quote(&args.unit);
    let command = format!("{AS_ROOT_SILENTLY}journalctl --no-pager --unit {unit} --lines {}{follow}", args.lines);
    let code = hosts.runtime.block_on(async {
        let connection = connect(&hosts, &member).await?;
        show(connection.exec(&command).await.map_err(failed)?, invocation).await
    });
    ended(hosts, code)
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
