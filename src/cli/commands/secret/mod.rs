//! `etcdrun secret encrypt|view|edit|rekey`: makes and tends what is encrypted with age.

use std::{
    fs,
    io::{IsTerminal, Read, Write, stdin},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};
use zeroize::Zeroizing;

use crate::cli::support::{CliError, Exit, Invocation, args::KeyArgs, terminal::ask_secret};
use crate::{
    model::MIN_SECRET,
    secret::{
        Draft, Form, Keyring, RECIPIENTS_FILE, Recipients, block, find_recipients_file, rewrite_values, seal, stanzas,
    },
    source::{Diagnostics, OpenError, Opener, Sources, is_sealed},
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
    #[command(
        after_help = "Examples:\n  etcdrun secret encrypt --name db_password >> inventory/group_vars/all.yaml\n  etcdrun secret encrypt group_vars/prod/secrets.yaml -r age1..."
    )]
    Encrypt(EncryptArgs),
    /// Show an encrypted file, or a YAML file with its values decrypted
    View {
        /// The file
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Edit an encrypted file, or a YAML file with its values decrypted, in $VISUAL or $EDITOR
    Edit {
        /// The file
        #[arg(value_name = "FILE")]
        file: PathBuf,

        #[command(flatten)]
        to: RecipientArgs,
    },
    /// Encrypt files, and the values in YAML files, to other recipients
    Rekey {
        /// The files
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,

        #[command(flatten)]
        to: RecipientArgs,
    },
}

#[derive(Args, Debug)]
struct EncryptArgs {
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
        Verb::Encrypt(args) if args.files.is_empty() => work.encrypt_value(args)?,
        Verb::Encrypt(args) => args.files.iter().try_for_each(|file| work.encrypt_file(file, &args.to))?,
        Verb::View { file } => work.view(file)?,
        Verb::Edit { file, to } => work.edit(file, to)?,
        Verb::Rekey { files, to } => files.iter().try_for_each(|file| work.rekey(file, to))?,
    }
    Ok(Exit::Success)
}

struct Work<'i> {
    keyring: Keyring,
    asks_twice: bool,
    invocation: &'i Invocation,
}

impl Work<'_> {
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

    fn view(&self, file: &Path) -> Result<(), CliError> {
        let bytes = read(file)?;
        // What was asked for is what is printed, unmasked.
        match is_sealed(&bytes) {
            true => std::io::stdout().lock().write_all(&self.open(&bytes, file)?)?,
            false => std::io::stdout().lock().write_all(self.draft(file, &bytes)?.text.as_bytes())?,
        }
        Ok(())
    }

    fn edit(&self, file: &Path, to: &RecipientArgs) -> Result<(), CliError> {
        let bytes = read(file)?;
        match is_sealed(&bytes) {
            true => self.edit_file(file, &bytes, to),
            false => self.edit_yaml(file, &bytes, to),
        }
    }

    fn edit_file(&self, file: &Path, sealed: &[u8], to: &RecipientArgs) -> Result<(), CliError> {
        let plain = self.open(sealed, file)?;
        let recipients = self.same_recipients(sealed, file, to)?;
        let edited = edited(file, &plain)?;
        if *edited == *plain {
            return Ok(());
        }
        let form = if sealed.starts_with(b"age-encryption.org/") { Form::Binary } else { Form::Armored };
        replace(file, &sealed_bytes(&edited, &recipients, form)?)
    }

    /// Opens the values in place for the editor, and seals them again behind it.
    fn edit_yaml(&self, file: &Path, bytes: &[u8], to: &RecipientArgs) -> Result<(), CliError> {
        let draft = self.draft(file, bytes)?;
        let Some(first) = draft.sealed().next() else {
            let help = "`etcdrun secret encrypt` creates values for it, or encrypts the complete file".to_owned();
            return Err(CliError::usage_with_help(format!("{} has no `!age` values", file.display()), Some(help)));
        };
        let recipients = self.same_recipients(first.as_bytes(), file, to)?;
        let edited = edited(file, draft.text.as_bytes())?;
        if *edited == *draft.text.as_bytes() {
            return Ok(());
        }
        let text = std::str::from_utf8(&edited).map_err(|_| CliError::usage("the edited text is not UTF-8"))?;
        // What is wrong with it is told without its lines, which hold secrets.
        let sealed = draft.seal(text, &|plain| sealed_text(plain.as_bytes(), &recipients));
        let sealed = sealed.map_err(|problems| bad_yaml(problems, file, ""))??;
        replace(file, sealed.as_bytes())
    }

    fn rekey(&self, file: &Path, to: &RecipientArgs) -> Result<(), CliError> {
        let bytes = read(file)?;
        let recipients = self.new_recipients(to, folder_of(file))?;
        if is_sealed(&bytes) {
            let form = if bytes.starts_with(b"age-encryption.org/") { Form::Binary } else { Form::Armored };
            return replace(file, &sealed_bytes(&self.open(&bytes, file)?, &recipients, form)?);
        }
        let again = |sealed: &str, line: usize| {
            let plain = self.open_at(sealed.as_bytes(), file, line)?;
            sealed_text(&plain, &recipients)
        };
        let text = as_yaml(file, &bytes)?;
        let rewritten = rewrite_values(file, text, again).map_err(|problems| bad_yaml(problems, file, text))?;
        let (text, count) = rewritten?;
        if count == 0 {
            return Err(CliError::usage(format!("nothing in {} is encrypted", file.display())));
        }
        replace(file, text.as_bytes())
    }

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

    /// To whom an edited file goes: whoever could read it before. An age file does not say who that is,
    /// so the recipients come from the command line, the folder, or our own key if it was the only one.
    fn same_recipients(&self, sealed: &[u8], file: &Path, to: &RecipientArgs) -> Result<Recipients, CliError> {
        let before = stanzas(sealed);
        if before.iter().any(|stanza| stanza.kind == "scrypt") {
            let passphrase = self.keyring.passphrase("age passphrase: ").map_err(|error| shut("age", error))?;
            return Ok(Recipients::Passphrase(passphrase));
        }
        let explicit = !to.recipient.is_empty() || !to.recipients_file.is_empty();
        match self.named_recipients(to, folder_of(file))? {
            Some(recipients) if explicit || recipients.count() == Some(before.len()) => return Ok(recipients),
            Some(recipients) => {
                let message = format!(
                    "{} is encrypted to {} recipients, but {RECIPIENTS_FILE} names {}",
                    file.display(),
                    before.len(),
                    recipients.count().unwrap_or_default()
                );
                let help = "update the file first: `etcdrun secret rekey`".to_owned();
                return Err(CliError::usage_with_help(message, Some(help)));
            }
            None => {}
        }
        let own = self.keyring.only_recipient(sealed).map_err(|error| shut(&file.display().to_string(), error))?;
        let own = own.ok_or_else(|| {
            let help = format!("name them with --recipient, or list them in a file {RECIPIENTS_FILE} next to it");
            CliError::usage_with_help(
                format!("the recipients of {} are unknown: an age file does not name them", file.display()),
                Some(help),
            )
        })?;
        Recipients::parse([own.as_str()]).map_err(CliError::usage)
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

fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Writes beside the file and renames, so that nobody ever sees half of it. The mode stays.
fn replace(file: &Path, bytes: &[u8]) -> Result<(), CliError> {
    // The file itself, where a link points to it.
    let file = fs::canonicalize(file)?;
    let mode = fs::metadata(&file)?.permissions().mode();
    let new = folder_of(&file).join(format!(".etcdrun-{:016x}", rand::random::<u64>()));
    let written = (|| {
        let mut output = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        output.write_all(bytes)?;
        output.set_permissions(fs::Permissions::from_mode(mode))?;
        output.sync_all()?;
        fs::rename(&new, &file)
    })();
    if written.is_err() {
        // There may be nothing to remove.
        let _ = fs::remove_file(&new);
    }
    Ok(written?)
}

/// What the person makes of the text in their editor.
fn edited(file: &Path, plain: &[u8]) -> Result<Zeroizing<Vec<u8>>, CliError> {
    let place = Private::new()?;
    let name = file.file_name().unwrap_or_default();
    let path = place.folder.join(name);
    let mut output = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    output.write_all(plain)?;
    drop(output);
    let editor =
        ["VISUAL", "EDITOR"].iter().find_map(|name| std::env::var(name).ok().filter(|editor| !editor.is_empty()));
    let editor = editor.unwrap_or_else(|| "vi".to_owned());
    // Through a shell, since editors are set with options, as in `code --wait`.
    let status =
        std::process::Command::new("sh").arg("-c").arg(format!("{editor} \"$1\"")).arg("sh").arg(&path).status()?;
    match status.success() {
        true => read(&path),
        false => Err(CliError::usage(format!("the editor `{editor}` ended with {status}; nothing was changed"))),
    }
}

/// A folder that nobody else can look into, in memory where the system has such a place. What is in it is
/// overwritten and removed at the end.
struct Private {
    folder: PathBuf,
}

impl Private {
    fn new() -> Result<Self, CliError> {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let places = runtime.into_iter().chain([PathBuf::from("/dev/shm"), std::env::temp_dir()]);
        let name = format!("etcdrun-edit-{:016x}", rand::random::<u64>());
        let make = |place: PathBuf| {
            let folder = place.join(&name);
            fs::DirBuilder::new().mode(0o700).create(&folder).ok().map(|()| Self { folder })
        };
        let made = places.into_iter().find_map(make);
        made.ok_or_else(|| CliError::usage("cannot create a private directory in XDG_RUNTIME_DIR, /dev/shm or TMPDIR"))
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // Editors leave backups and swap files beside.
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let length = entry.metadata().map_or(0, |metadata| metadata.len());
            if let Ok(mut file) = fs::OpenOptions::new().write(true).open(entry.path()) {
                let _ = file
                    .write_all(&vec![0; usize::try_from(length).unwrap_or_default()])
                    .and_then(|()| file.sync_all());
            }
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}
