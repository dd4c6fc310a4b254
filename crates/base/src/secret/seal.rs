//! Encrypts.

use std::io::Write;

use age::armor::{ArmoredWriter, Format};

use super::Recipients;

/// How the result is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Binary,
    /// Text, as YAML and diffs need it.
    Armored,
}

pub fn seal(plain: &[u8], recipients: &Recipients, form: Form) -> Result<Vec<u8>, String> {
    let encryptor = match recipients {
        Recipients::Keys(keys) => age::Encryptor::with_recipients(keys.iter().map(|key| &**key as &dyn age::Recipient))
            .map_err(|error| error.to_string())?,
        Recipients::Passphrase(passphrase) => age::Encryptor::with_user_passphrase(passphrase.clone()),
    };
    let format = match form {
        Form::Binary => Format::Binary,
        Form::Armored => Format::AsciiArmor,
    };
    let mut sealed = Vec::new();
    write(encryptor, plain, format, &mut sealed).map_err(|error| error.to_string())?;
    Ok(sealed)
}

fn write(encryptor: age::Encryptor, plain: &[u8], format: Format, sealed: &mut Vec<u8>) -> std::io::Result<()> {
    let mut writer = encryptor.wrap_output(ArmoredWriter::wrap_output(sealed, format)?)?;
    writer.write_all(plain)?;
    writer.finish()?.finish().map(|_| ())
}
