//! The operator's keys, read when something must be opened and not before.

use std::{
    fs::{DirBuilder, OpenOptions},
    io::{Cursor, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use age::secrecy::SecretString;
use zeroize::Zeroizing;

use super::{
    Stanza, header,
    identity::{Identity, Unusable, load, open_with, open_with_passphrase},
    stanzas,
};
use crate::{
    model::Masker,
    source::{OpenError, Opener, exposed},
};

/// A header of a few hundred recipients is shorter.
const BEGINNING: u64 = 64 * 1024;

/// Asks the person for something secret; nothing if there is nobody, or they declined.
pub type Ask = Arc<dyn Fn(&str) -> Option<Zeroizing<String>> + Send + Sync>;

/// Where keys come from.
#[derive(Clone, Default)]
pub struct KeyOptions {
    /// Identity files that were named. With none, the usual places are looked at.
    pub identities: Vec<PathBuf>,
    /// The file whose first line is the passphrase.
    pub passphrase_file: Option<PathBuf>,
    pub ask: Option<Ask>,
}

/// What was there, or why it cannot be used: nobody is asked twice.
type Identities = Result<Arc<[Identity]>, OpenError>;

/// Opens what the operator's keys open.
pub struct Keyring {
    options: KeyOptions,
    masker: Masker,
    /// Once they were read, until there is a new one.
    identities: Mutex<Option<Identities>>,
    passphrase: Mutex<Option<SecretString>>,
}

impl Keyring {
    pub fn new(options: KeyOptions, masker: Masker) -> Self {
        Self { options, masker, identities: Mutex::default(), passphrase: Mutex::default() }
    }

    /// The places that are tried, for messages.
    fn places(&self) -> Vec<PathBuf> {
        match self.options.identities.is_empty() {
            true => usual_places(),
            false => self.options.identities.clone(),
        }
    }

    fn identities(&self) -> Identities {
        let mut known = self.identities.lock().unwrap_or_else(PoisonError::into_inner);
        known.get_or_insert_with(|| self.load_all()).clone()
    }

    fn load_all(&self) -> Identities {
        let named = !self.options.identities.is_empty();
        let own = own_place();
        let mut all = Vec::new();
        for path in self.places() {
            match load(&path, &|what| self.ask_for_identity(what)) {
                Ok(identities) => all.extend(identities),
                Err(Unusable::Missing(error)) if named => {
                    let message = format!("the identity file {}: {error}", path.display());
                    return Err(OpenError::new(message, "name another with --age-identity"));
                }
                Err(Unusable::Wrong(error)) if named => return Err(error),
                Err(Unusable::Exposed(error)) if named || Some(&path) == own.as_ref() => return Err(error),
                // What else is in the usual places need not be for us.
                Err(Unusable::Missing(_) | Unusable::Wrong(_) | Unusable::Exposed(_)) => {}
            }
        }
        Ok(all.into())
    }

    fn ask_for_identity(&self, path: &str) -> Result<SecretString, OpenError> {
        let answer = self.options.ask.as_ref().and_then(|ask| ask(&format!("passphrase of {path}: ")));
        match answer {
            Some(answer) => Ok(self.noted(&answer)),
            None => Err(OpenError::new(
                format!("{path} needs a passphrase, and there is no terminal to prompt for it"),
                "run on a terminal, or use an identity without a passphrase",
            )),
        }
    }

    /// The passphrase for what is encrypted with one: from its file, or asked for once.
    pub fn passphrase(&self, question: &str) -> Result<SecretString, OpenError> {
        let mut known = self.passphrase.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(passphrase) = &*known {
            return Ok(passphrase.clone());
        }
        let passphrase = match (&self.options.passphrase_file, &self.options.ask) {
            (Some(path), _) => read_passphrase(path)?,
            (None, Some(ask)) => ask(question).ok_or_else(nobody_to_ask)?,
            (None, None) => return Err(nobody_to_ask()),
        };
        Ok(known.insert(self.noted(&passphrase)).clone())
    }

    /// A passphrase is a secret too.
    fn noted(&self, passphrase: &str) -> SecretString {
        self.masker.add(passphrase);
        SecretString::from(passphrase.to_owned())
    }

    /// The recipient that something is encrypted to, if it is ours and the only one.
    pub fn only_recipient(&self, sealed: &[u8]) -> Result<Option<String>, OpenError> {
        let stanzas = stanzas(sealed);
        for identity in &*self.identities()? {
            let usable = identity.usable(&stanzas, self.options.ask.as_ref());
            let Some(usable) = usable else { continue };
            if open_with(sealed, &[usable]).is_ok() {
                return Ok(identity.public().filter(|_| stanzas.len() == 1));
            }
        }
        Ok(None)
    }

    fn open_with_identities(&self, sealed: &[u8], stanzas: &[Stanza]) -> Result<Zeroizing<Vec<u8>>, OpenError> {
        let ask = self.options.ask.as_ref();
        let identities = self.identities()?;
        let usable: Vec<_> = identities.iter().filter_map(|identity| identity.usable(stanzas, ask)).collect();
        open_with(sealed, &usable).map_err(|error| match error {
            age::DecryptError::NoMatchingKeys => self.no_key(stanzas),
            other => damaged(&other),
        })
    }

    fn no_key(&self, stanzas: &[Stanza]) -> OpenError {
        let tried: Vec<String> = self.places().iter().map(|path| path.display().to_string()).collect();
        let message = format!("encrypted to {}; none of your keys matches", header::describe(stanzas));
        let help = format!(
            "tried {}; name the identity file with --age-identity, or have someone who can decrypt it add you with `etcdrun secret rekey`",
            tried.join(", ")
        );
        OpenError::new(message, help)
    }
}

/// A new identity in the first of the usual places, as age-keygen writes it. Returns its public half.
fn make_identity(path: &Path) -> Result<String, OpenError> {
    use age::secrecy::ExposeSecret;
    let wrong = |error: std::io::Error| {
        OpenError::new(
            format!("cannot create an identity at {}: {error}", path.display()),
            "name one with --age-identity, or name recipients (`tls.ca.recipients`, .age-recipients)",
        )
    };
    let identity = age::x25519::Identity::generate();
    let public = identity.to_public().to_string();
    let secret = identity.to_string();
    let text = Zeroizing::new(format!("# public key: {public}\n{}\n", secret.expose_secret()));
    let folder = path.parent().unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(wrong)?;
    let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(path).map_err(wrong)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(wrong)?;
    Ok(public)
}

impl Opener for Keyring {
    fn own_recipient(&self) -> Result<Option<String>, OpenError> {
        // Held all the time: two clusters that are made at once have one identity.
        let mut known = self.identities.lock().unwrap_or_else(PoisonError::into_inner);
        let identities = known.get_or_insert_with(|| self.load_all()).clone()?;
        if let Some(own) = identities.iter().find_map(Identity::public) {
            return Ok(Some(own));
        }
        let places = usual_places();
        let Some(path) = places.first().filter(|_| self.options.identities.is_empty()) else { return Ok(None) };
        let made = make_identity(path)?;
        *known = None;
        Ok(Some(made))
    }

    fn open_stream(&self, mut sealed: Box<dyn Read + Send>) -> Result<Box<dyn Read + Send>, OpenError> {
        let mut beginning = Vec::new();
        let read = (&mut sealed).take(BEGINNING).read_to_end(&mut beginning);
        read.map_err(|error| OpenError::new(format!("it cannot be read: {error}"), "try again"))?;
        let stanzas = stanzas(&beginning);
        if stanzas.is_empty() {
            return Err(OpenError::new("it is not encrypted with age, or damaged", "restore it from a copy"));
        }
        let ask = self.options.ask.as_ref();
        let identities = self.identities()?;
        let usable: Vec<_> = identities.iter().filter_map(|identity| identity.usable(&stanzas, ask)).collect();
        let whole = Cursor::new(beginning).chain(sealed);
        let opened = age::Decryptor::new(whole)
            .and_then(|decryptor| decryptor.decrypt(usable.iter().map(|identity| &**identity as &dyn age::Identity)));
        match opened {
            Ok(reader) => Ok(Box::new(reader)),
            Err(age::DecryptError::NoMatchingKeys) => Err(self.no_key(&stanzas)),
            Err(error) => Err(damaged(&error)),
        }
    }

    fn open(&self, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, OpenError> {
        let stanzas = stanzas(sealed);
        if stanzas.is_empty() {
            return Err(OpenError::new("this is encrypted with age, and damaged", "restore it from a copy"));
        }
        if stanzas.iter().all(|stanza| stanza.kind != "scrypt") {
            return self.open_with_identities(sealed, &stanzas);
        }
        let passphrase = self.passphrase("age passphrase: ")?;
        open_with_passphrase(sealed, &passphrase).map_err(|message| {
            OpenError::new(
                format!("encrypted with a passphrase: {message}"),
                "a run uses one passphrase for everything; check the one in --age-passphrase-file",
            )
        })
    }
}

fn damaged(error: &age::DecryptError) -> OpenError {
    OpenError::new(format!("this is encrypted with age, and damaged: {error}"), "restore it from a copy")
}

fn nobody_to_ask() -> OpenError {
    OpenError::new(
        "this needs a passphrase, and there is no terminal to prompt for it",
        "run on a terminal, or name a file with --age-passphrase-file",
    )
}

/// The first line of the file, without its end.
fn read_passphrase(path: &Path) -> Result<Zeroizing<String>, OpenError> {
    let wrong = |what: String| {
        OpenError::new(
            format!("the passphrase file {}: {what}", path.display()),
            "put the passphrase on its first line",
        )
    };
    let text = Zeroizing::new(std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?);
    if let Some(why) = exposed(path) {
        return Err(OpenError::new(format!("the passphrase file {} {why}", path.display()), "others can read it"));
    }
    match text.lines().next().filter(|line| !line.is_empty()) {
        Some(line) => Ok(Zeroizing::new(line.to_owned())),
        None => Err(wrong("has no first line".to_owned())),
    }
}

/// Where the identity is that etcdrun makes.
fn own_place() -> Option<PathBuf> {
    let configured = std::env::var_os("XDG_CONFIG_HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
    let config = configured.or_else(|| std::env::home_dir().map(|home| home.join(".config")));
    config.map(|config| config.join("etcdrun").join("identity"))
}

fn usual_places() -> Vec<PathBuf> {
    let own = own_place();
    let ssh = std::env::home_dir()
        .into_iter()
        .flat_map(|home| ["id_ed25519", "id_rsa"].map(|name| home.join(".ssh").join(name)));
    own.into_iter().chain(ssh).collect()
}
