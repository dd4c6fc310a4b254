//! `etcdrun secret rekey FILE...`: other recipients for what is encrypted.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{RecipientArgs, Work, as_yaml, bad_yaml, folder_of, read, replace, sealed_bytes, sealed_text};
use crate::cli::support::CliError;
use crate::{
    secret::{Form, rewrite_values},
    source::is_sealed,
};

#[derive(Args, Debug)]
pub struct RekeyArgs {
    /// The files
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    #[command(flatten)]
    to: RecipientArgs,
}

impl Work<'_> {
    pub fn rekey(&self, args: &RekeyArgs) -> Result<(), CliError> {
        args.files.iter().try_for_each(|file| self.rekey_file(file, &args.to))
    }

    fn rekey_file(&self, file: &Path, to: &RecipientArgs) -> Result<(), CliError> {
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
}
