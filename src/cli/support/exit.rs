//! How the program ends. One table; the same numbers as Ansible where it has them.

use std::process::ExitCode;

use crate::model::RunResult;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Exit {
    /// Everything that was asked for was done.
    Success = 0,
    /// Something unexpected on the operator's machine, such as a full disk.
    Unexpected = 1,
    /// A task failed on a host, and all hosts could be reached.
    TaskFailed = 2,
    /// A gate did not hold, so a rollout stopped before it did harm.
    GateRefused = 3,
    /// A host could not be reached.
    Unreachable = 4,
    /// The input is wrong: arguments, configuration, inventory or playbook. Nothing was connected to.
    BadInput = 5,
    /// Another run holds the lock.
    LockHeld = 6,
    /// A saved plan was not run, because something is not as it was planned.
    Moved = 7,
    /// Ctrl-C or SIGTERM.
    Interrupted = 130,
    /// With `--detailed-exitcode`: a plan would or might change something. Terraform's number.
    WouldChange = 0x102,
}

impl Exit {
    /// Every way to end, with its line in the help.
    pub const TABLE: &[(Self, &'static str)] = &[
        (Self::Success, "success"),
        (Self::Unexpected, "unexpected local error"),
        (Self::TaskFailed, "a task failed"),
        (Self::GateRefused, "a gate refused"),
        (Self::Unreachable, "a host was unreachable"),
        (Self::BadInput, "bad input; nothing was connected to"),
        (Self::LockHeld, "another run holds the lock"),
        (Self::Moved, "a saved plan was not run: it is out of date"),
        (Self::Interrupted, "interrupted"),
    ];

    pub fn code(self) -> u8 {
        // What `--detailed-exitcode` says has a number that means something else without it.
        (self as u16).to_le_bytes()[0]
    }

    /// The table as the help shows it.
    pub fn help() -> String {
        let line = |(exit, meaning): &(Self, &str)| format!("  {:>3}  {meaning}\n", exit.code());
        format!("Exit codes:\n{}", Self::TABLE.iter().map(line).collect::<String>().trim_end())
    }
}

impl From<RunResult> for Exit {
    fn from(result: RunResult) -> Self {
        match result {
            RunResult::Success => Self::Success,
            RunResult::Failed => Self::TaskFailed,
            RunResult::Unreachable => Self::Unreachable,
            RunResult::GateRefused => Self::GateRefused,
            RunResult::LockHeld => Self::LockHeld,
            RunResult::Moved => Self::Moved,
            RunResult::Interrupted => Self::Interrupted,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_table_is_the_table() {
        let docs = include_str!("../../../docs/cli.md");
        for (exit, meaning) in Exit::TABLE {
            let row = format!("| {} | {meaning} |", exit.code());
            assert!(docs.contains(&row), "docs/cli.md lacks the row {row:?}");
        }
    }
}
