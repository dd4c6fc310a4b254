//! `etcdrun secret encrypt [FILE...]`: a value for YAML, or complete files.

use std::{
    io::{IsTerminal, Read, stdin},
    path::{Path, PathBuf},
};

use clap::Args;
use zeroize::Zeroizing;

use super::{RecipientArgs, Work, folder_of, read, replace, sealed_bytes, sealed_text};
use crate::cli::support::{CliError, terminal::ask_secret};
use crate::{
    model::MIN_SECRET,
    secret::{Form, block},
    source::is_sealed,
};

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  etcdrun secret encrypt --name db_password >> inventory/group_vars/all.yaml\n  etcdrun secret encrypt group_vars/prod/secrets.yaml -r age1..."
)]
pub struct EncryptArgs {
    /// Files to encrypt in place; without files, a value is read from standard input or a prompt
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Print the value as this variable, ready for YAML
    #[arg(short, long, value_name = "NAME", conflicts_with = "files")]
    name: Option<String>,

    /// Number of blanks to indent the value's lines by
    #[arg(long, value_name = "N", default_value_t = 2, conflicts_with = "files")]
    indent: usize,

    #[command(flatten)]
    to: RecipientArgs,
}

impl Work<'_> {
    pub fn encrypt(&self, args: &EncryptArgs) -> Result<(), CliError> {
        match args.files.is_empty() {
            true => self.encrypt_value(args),
            false => args.files.iter().try_for_each(|file| self.encrypt_file(file, &args.to)),
        }
    }

    fn encrypt_value(&self, args: &EncryptArgs) -> Result<(), CliError> {
        let recipients = self.new_recipients(&args.to, Path::new("."))?;
        let value = read_value()?;
        if value.trim().chars().count() < MIN_SECRET {
            let message = format!("a secret of fewer than {MIN_SECRET} characters would not be masked in outputs");
            return Err(CliError::usage_with_help(message, Some("choose a longer one".to_owned())));
        }
        let sealed = sealed_text(value.as_bytes(), &recipients)?;
        let name = args.name.as_ref().map(|name| format!("{name}: ")).unwrap_or_default();
        self.invocation.print(&format!("{name}{}", block(&sealed, args.indent)))
    }

    fn encrypt_file(&self, file: &Path, to: &RecipientArgs) -> Result<(), CliError> {
        let plain = read(file)?;
        if is_sealed(&plain) {
            let help = "`etcdrun secret rekey` changes its recipients, `secret edit` its contents".to_owned();
            return Err(CliError::usage_with_help(format!("{} is already encrypted", file.display()), Some(help)));
        }
        let recipients = self.new_recipients(to, folder_of(file))?;
        replace(file, &sealed_bytes(&plain, &recipients, Form::Armored)?)
    }
}

/// A value from a pipe or typed by a person. The end of a single line is not part of it.
fn read_value() -> Result<Zeroizing<String>, CliError> {
    if stdin().is_terminal() {
        return ask_secret("value: ")?.ok_or(CliError::Interrupted);
    }
    let mut text = Zeroizing::new(String::new());
    stdin().lock().read_to_string(&mut text).map_err(|error| CliError::usage(format!("standard input: {error}")))?;
    let single_line = text.trim_end_matches('\n').lines().count() <= 1;
    Ok(match text.strip_suffix('\n').filter(|_| single_line) {
        Some(line) => Zeroizing::new(line.to_owned()),
        None => text,
    })
}
