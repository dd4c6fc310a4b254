//! `etcdrun secret view FILE`.

use std::{io::Write, path::PathBuf};

use clap::Args;

use super::{Work, read};
use crate::cli::support::CliError;
use crate::source::is_sealed;

#[derive(Args, Debug)]
pub struct ViewArgs {
    /// The file
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

impl Work<'_> {
    pub fn view(&self, ViewArgs { file }: &ViewArgs) -> Result<(), CliError> {
        let bytes = read(file)?;
        // What was asked for is what is printed, unmasked.
        match is_sealed(&bytes) {
            true => std::io::stdout().lock().write_all(&self.open(&bytes, file)?)?,
            false => std::io::stdout().lock().write_all(self.draft(file, &bytes)?.text.as_bytes())?,
        }
        Ok(())
    }
}
