//! Arguments that several commands share. Ansible's names and letters where it has them.

use std::{path::PathBuf, time::Duration};

use clap::{ArgAction, Args};

use crate::{model::Seconds, report::ColorChoice};

/// What every command takes.
#[derive(Args, Clone, Debug, Default)]
pub struct GlobalArgs {
    /// More output: -v results and live output, -vv also task starts
    #[arg(short, long, action = ArgAction::Count, global = true, help_heading = "Output")]
    pub verbose: u8,

    /// Print one JSON object per line (docs/events.md), or one JSON document
    #[arg(long, global = true, help_heading = "Output")]
    pub json: bool,

    /// Print plain lines, without progress bars and drawings
    #[arg(long, global = true, conflicts_with = "json", help_heading = "Output")]
    pub plain: bool,

    /// When to use color [default: auto]
    #[arg(long, global = true, value_name = "WHEN", hide_possible_values = false, help_heading = "Output")]
    pub color: Option<ColorChoice>,
}

/// Which inventory, and which keys.
#[derive(Args, Clone, Debug, Default)]
pub struct KnownArgs {
    /// Inventory file, directory or executable; several are merged [default: inventory/ or inventory.yaml]
    #[arg(short, long, value_name = "PATH", help_heading = "Hosts")]
    pub inventory: Vec<PathBuf>,

    #[command(flatten)]
    pub keys: KeyArgs,
}

impl KnownArgs {
    /// The same, for the hosts of a pattern only.
    pub fn only(&self, limit: Option<&str>) -> InventoryArgs {
        InventoryArgs { known: self.clone(), only: LimitArgs { limit: limit.map(str::to_owned) } }
    }
}

/// Which hosts exist, and which of them to use.
#[derive(Args, Clone, Debug, Default)]
pub struct InventoryArgs {
    #[command(flatten)]
    pub known: KnownArgs,

    #[command(flatten)]
    pub only: LimitArgs,
}

/// Which of the hosts to use.
#[derive(Args, Clone, Debug, Default)]
pub struct LimitArgs {
    /// Only these hosts: names, groups, globs, ranges, `:` or `,` union, `!` exclusion, `&` intersection
    #[arg(short, long, value_name = "PATTERN", help_heading = "Hosts")]
    pub limit: Option<String>,
}

/// For a command that prompts.
#[derive(Args, Clone, Debug, Default)]
pub struct YesArgs {
    /// Do not prompt; for scripts
    #[arg(short, long, help_heading = "Run")]
    pub yes: bool,
}

/// For a command that changes something.
#[derive(Args, Clone, Debug, Default)]
pub struct CheckArgs {
    /// Change nothing; show what would change
    #[arg(short = 'C', long, help_heading = "Run")]
    pub check: bool,
}

/// Which keys decrypt age files and values.
#[derive(Args, Clone, Debug, Default)]
pub struct KeyArgs {
    /// Decrypt secrets with this age identity or SSH key; repeatable [default:
    /// ~/.config/etcdrun/identity, ~/.ssh/id_ed25519, ~/.ssh/id_rsa]
    #[arg(long, value_name = "FILE", global = true, help_heading = "Secrets")]
    pub age_identity: Vec<PathBuf>,

    /// Read the age passphrase from the first line of this file instead of prompting for it
    #[arg(long, value_name = "FILE", global = true, help_heading = "Secrets")]
    pub age_passphrase_file: Option<PathBuf>,
}

/// Which tasks to run, and with which variables.
#[derive(Args, Clone, Debug, Default)]
pub struct SelectionArgs {
    /// Only tasks with one of these tags
    #[arg(short, long, value_name = "TAGS", value_delimiter = ',', help_heading = "Tasks")]
    pub tags: Vec<String>,

    /// All tasks except those with one of these tags
    #[arg(long, value_name = "TAGS", value_delimiter = ',', help_heading = "Tasks")]
    pub skip_tags: Vec<String>,

    /// Start at the task with this name
    #[arg(long, value_name = "TASK", help_heading = "Tasks")]
    pub start_at_task: Option<String>,

    #[command(flatten)]
    pub vars: VarsArgs,
}

#[derive(Args, Clone, Debug, Default)]
pub struct VarsArgs {
    /// Variables that win over all others: key=value, YAML, JSON, or @FILE
    #[arg(short, long = "extra-vars", value_name = "VARS", help_heading = "Tasks")]
    pub extra_vars: Vec<String>,
}

/// How to reach hosts, and as whom.
#[derive(Args, Clone, Debug, Default)]
pub struct ConnectionArgs {
    /// Log in as this user, if the inventory sets none
    #[arg(short, long, value_name = "USER", help_heading = "Connection")]
    pub user: Option<String>,

    /// Log in with this key, if the inventory sets none
    #[arg(long, value_name = "FILE", visible_alias = "key-file", help_heading = "Connection")]
    pub private_key: Option<PathBuf>,

    /// Read this SSH configuration instead of ~/.ssh/config
    #[arg(long, value_name = "FILE", help_heading = "Connection")]
    pub ssh_config: Option<PathBuf>,

    /// Trust and record host keys that were never seen; a changed key still fails
    #[arg(long, help_heading = "Connection")]
    pub accept_new: bool,

    /// Connection timeout in seconds [default: 10]
    #[arg(short = 'T', long, value_name = "SECONDS", visible_alias = "timeout", help_heading = "Connection")]
    pub connect_timeout: Option<u64>,

    /// Become another user by sudo
    #[arg(short, long, help_heading = "Connection")]
    pub r#become: bool,

    /// The user to become [default: root]
    #[arg(long, value_name = "USER", help_heading = "Connection")]
    pub become_user: Option<String>,

    /// Prompt for the sudo password
    #[arg(short = 'K', long, help_heading = "Connection")]
    pub ask_become_pass: bool,

    /// Read the sudo password from the first line of this file
    #[arg(
        long,
        value_name = "FILE",
        visible_alias = "become-pass-file",
        conflicts_with = "ask_become_pass",
        help_heading = "Connection"
    )]
    pub become_password_file: Option<PathBuf>,
}

/// How a run behaves.
#[derive(Args, Clone, Debug, Default)]
pub struct RunArgs {
    /// Maximum number of concurrent tasks, on all hosts together [default: 50]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Run")]
    pub forks: Option<u32>,

    #[command(flatten)]
    pub mode: CheckArgs,

    /// Show what changes in files
    #[arg(short = 'D', long, help_heading = "Run")]
    pub diff: bool,

    /// Wait up to this long for a lock held by another run (`30`, `5m`) [default: 0]
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = "Run")]
    pub lock_timeout: Option<Duration>,

    /// Store the run in this state directory [default: .etcdrun next to the inventory]
    #[arg(long, value_name = "FOLDER", help_heading = "Run")]
    pub state_dir: Option<PathBuf>,
}

pub fn duration(text: &str) -> Result<Duration, String> {
    text.parse::<Seconds>().map(|seconds| seconds.0).map_err(|error| error.to_string())
}

/// Where runs are stored.
#[derive(Args, Clone, Debug, Default)]
pub struct StateArgs {
    /// The inventory that the runs belong to [default: inventory/ or inventory.yaml]
    #[arg(short, long, value_name = "PATH", help_heading = "State")]
    pub inventory: Vec<PathBuf>,

    /// The state directory [default: .etcdrun next to the inventory]
    #[arg(long, value_name = "FOLDER", help_heading = "State")]
    pub state_dir: Option<PathBuf>,
}
