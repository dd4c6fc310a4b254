//! `etcdrun secret encrypt|view|edit|rekey`: makes and tends what is encrypted with age.

mod edit;
mod encrypt;
mod rekey;
mod view;

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};
use zeroize::Zeroizing;

use crate::cli::support::{
    CliError, Exit, Invocation,
    args::KeyArgs,
    files::{self, folder_of},
    terminal::ask_secret,
};
use crate::{
    secret::{Draft, Form, Keyring, RECIPIENTS_FILE, Recipients, find_recipients_file, seal},
    source::{Diagnostics, OpenError, Opener, Sources},
};

#[derive(Args, Debug)]
pub struct SecretCommand {
    #[command(subcommand)]
    verb: Verb,

    #[command(flatten)]
    keys: KeyArgs,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// Encrypt a value for pasting into YAML, or complete files in place
    Encrypt(encrypt::EncryptArgs),
    /// Show an encrypted file, or a YAML file with its values decrypted
    View(view::ViewArgs),
    /// Edit an encrypted file, or a YAML file with its values decrypted, in $VISUAL or $EDITOR
    Edit(edit::EditArgs),
    /// Encrypt files, and the values in YAML files, to other recipients
    Rekey(rekey::RekeyArgs),
}

/// To whom something is encrypted.
#[derive(Args, Clone, Debug, Default)]
struct RecipientArgs {
    /// A recipient: age1..., ssh-ed25519 ... or ssh-rsa ...; repeatable
    #[arg(short, long, value_name = "RECIPIENT", help_heading = "Secrets")]
    recipient: Vec<String>,

    /// A file with recipients, one per line [default: the nearest .age-recipients, from the file's
    /// directory upwards]
    #[arg(short = 'R', long, value_name = "FILE", help_heading = "Secrets")]
    recipients_file: Vec<PathBuf>,

    /// Encrypt with a passphrase instead
    #[arg(short, long, conflicts_with_all = ["recipient", "recipients_file"], help_heading = "Secrets")]
    passphrase: bool,
}

pub fn run(args: &SecretCommand, invocation: &Invocation) -> Result<Exit, CliError> {
    let keyring = invocation.keyring(&args.keys, true);
    let work = Work { keyring, asks_twice: args.keys.age_passphrase_file.is_none(), invocation };
    match &args.verb {
        Verb::Encrypt(args) => work.encrypt(args)?,
        Verb::View(args) => work.view(args)?,
        Verb::Edit(args) => work.edit(args)?,
        Verb::Rekey(args) => work.rekey(args)?,
    }
    Ok(Exit::Success)
}

struct Work<'i> {
    keyring: Keyring,
    asks_twice: bool,
    invocation: &'i Invocation,
}

impl Work<'_> {
    fn draft(&self, file: &Path, bytes: &[u8]) -> Result<Draft, CliError> {
        let text = as_yaml(file, bytes)?;
        let open = |sealed: &str, line: usize| self.open_at(sealed.as_bytes(), file, line);
        Draft::open(file, text, &open).map_err(|problems| bad_yaml(problems, file, text))?
    }

    fn open(&self, sealed: &[u8], file: &Path) -> Result<Zeroizing<Vec<u8>>, CliError> {
        self.keyring.open(sealed).map_err(|error| shut(&file.display().to_string(), error))
    }

    fn open_at(&self, sealed: &[u8], file: &Path, line: usize) -> Result<Zeroizing<Vec<u8>>, CliError> {
        self.keyring.open(sealed).map_err(|error| shut(&format!("{}:{line}", file.display()), error))
    }

    /// The recipients that were named, or those of the folder.
    fn new_recipients(&self, to: &RecipientArgs, folder: &Path) -> Result<Recipients, CliError> {
        if to.passphrase {
            return self.new_passphrase();
        }
        self.named_recipients(to, folder)?.ok_or_else(|| {
            let help = format!("name one with --recipient, list them in a file {RECIPIENTS_FILE}, or use --passphrase");
            CliError::usage_with_help("there are no recipients to encrypt to", Some(help))
        })
    }

    fn named_recipients(&self, to: &RecipientArgs, folder: &Path) -> Result<Option<Recipients>, CliError> {
        let mut files = to.recipients_file.clone();
        if files.is_empty() && to.recipient.is_empty() {
            files.extend(find_recipients_file(folder));
        }
        let mut lines = to.recipient.clone();
        for file in &files {
            let text = fs::read_to_string(file)
                .map_err(|error| CliError::usage(format!("the recipients file {}: {error}", file.display())))?;
            lines.extend(text.lines().map(str::to_owned));
        }
        let recipients = Recipients::parse(lines.iter().map(String::as_str)).map_err(CliError::usage)?;
        Ok(Some(recipients).filter(|recipients| recipients.count() != Some(0)))
    }

    fn new_passphrase(&self) -> Result<Recipients, CliError> {
        let passphrase = self.keyring.passphrase("new age passphrase: ").map_err(|error| shut("age", error))?;
        if self.asks_twice {
            let again = ask_secret("the same again: ")?.ok_or(CliError::Interrupted)?;
            if *again != *age::secrecy::ExposeSecret::expose_secret(&passphrase) {
                return Err(CliError::usage("the two passphrases differ"));
            }
        }
        Ok(Recipients::Passphrase(passphrase))
    }
}

fn sealed_bytes(plain: &[u8], recipients: &Recipients, form: Form) -> Result<Vec<u8>, CliError> {
    seal(plain, recipients, form).map_err(|error| CliError::Unexpected(format!("cannot encrypt: {error}")))
}

fn sealed_text(plain: &[u8], recipients: &Recipients) -> Result<String, CliError> {
    sealed_bytes(plain, recipients, Form::Armored).map(|sealed| String::from_utf8_lossy(&sealed).into_owned())
}

fn as_yaml<'b>(file: &Path, bytes: &'b [u8]) -> Result<&'b str, CliError> {
    let neither = |_| CliError::usage(format!("{} is neither YAML nor an age file", file.display()));
    std::str::from_utf8(bytes).map_err(neither)
}

fn bad_yaml(problems: Vec<crate::source::Diagnostic>, file: &Path, text: &str) -> CliError {
    let (mut diagnostics, mut sources) = (Diagnostics::default(), Sources::default());
    sources.add(file, text);
    problems.into_iter().for_each(|problem| diagnostics.push(problem));
    CliError::Input(Box::new((diagnostics, sources)))
}

fn shut(place: &str, error: OpenError) -> CliError {
    CliError::usage_with_help(format!("{place}: {}", error.message), error.help)
}

fn read(file: &Path) -> Result<Zeroizing<Vec<u8>>, CliError> {
    let bytes = fs::read(file).map_err(|error| CliError::usage(format!("{}: {error}", file.display())))?;
    Ok(Zeroizing::new(bytes))
}

fn replace(file: &Path, bytes: &[u8]) -> Result<(), CliError> {
    Ok(files::replace(file, bytes, 0o600)?)
}
