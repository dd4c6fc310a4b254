//! `etcdrun secret edit FILE`: decrypts for an editor, and encrypts what it leaves.

use std::{
    fs,
    io::Write,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use clap::Args;
use zeroize::Zeroizing;

use super::{RecipientArgs, Work, bad_yaml, folder_of, read, replace, sealed_bytes, sealed_text, shut};
use crate::cli::support::CliError;
use crate::{
    secret::{Form, RECIPIENTS_FILE, Recipients, stanzas},
    source::is_sealed,
};

#[derive(Args, Debug)]
pub struct EditArgs {
    /// The file
    #[arg(value_name = "FILE")]
    file: PathBuf,

    #[command(flatten)]
    to: RecipientArgs,
}

impl Work<'_> {
    pub fn edit(&self, EditArgs { file, to }: &EditArgs) -> Result<(), CliError> {
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
        // The error is reported without the lines, which hold secrets.
        let sealed = draft.seal(text, &|plain| sealed_text(plain.as_bytes(), &recipients));
        let sealed = sealed.map_err(|problems| bad_yaml(problems, file, ""))??;
        replace(file, sealed.as_bytes())
    }

    /// The recipients of an edited file: those that could read it before. An age file does not say who that is,
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

/// A folder that no other user can read, in memory where the system has such a place. What is in it is
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
