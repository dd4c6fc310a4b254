//! The authority that signs: made here, brought along, or a command.

use std::{path::Path, process::Stdio, sync::Arc, time::Duration};

use jiff::Timestamp;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use tokio::{io::AsyncWriteExt, sync::Mutex};
use zeroize::Zeroizing;

use super::{
    Certificate, Leaf, LeafKey, PkiError, Request, Store, Usage, Wish,
    leaf::{SLACK, distinguished_name, set_validity},
};
use crate::{
    inventory::sections::{CaSection, NextCa, TlsSection},
    secret::{Form, Recipients, find_recipients_file, seal},
    source::{Opener, exposed, is_sealed},
};

const VALIDITY: Duration = Duration::from_secs(3650 * 86_400);
/// A new CA stays for years: one that was created by a clock that is hours ahead must not wait for these hours.
const CA_SLACK: Duration = Duration::from_secs(86_400);
const SIGN_LIMIT: Duration = Duration::from_secs(60);
/// Held while a `sign_command` runs. Members get their certificates at the same time, and a CA that keeps serial numbers in a file, as
/// openssl does, would fail or give one number twice.
static SIGNING: Mutex<()> = Mutex::const_new(());
/// What is over before that is of no use.
const SHORTEST: Duration = Duration::from_secs(3600);

/// Who signs the certificates of a cluster.
pub struct Authority {
    /// Its certificate in PEM, with others behind it that lead to a root.
    pub pem: String,
    /// Whom members and clients trust, in PEM: this one, and while it is replaced the other one too.
    pub trusted: String,
    pub certificate: Certificate,
    signer: Signer,
}

enum Signer {
    Key(Box<Issuer<'static, KeyPair>>),
    Command(Vec<String>),
}

/// Whether a user gets a new certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// If there is no good one.
    IfNeeded,
    Always,
    /// If there is no good one; it is not kept, since nothing may change.
    ForNow,
}

/// A user's credential.
pub struct Client {
    pub certificate: String,
    pub key: Zeroizing<String>,
    /// It was issued just now.
    pub is_new: bool,
}

/// Where an authority is that somebody brought along.
pub(super) struct Files<'a> {
    pub certificate: &'a str,
    pub key: Option<&'a str>,
    pub sign_command: &'a [String],
}

/// How an authority that is made here is kept.
pub struct Keeping<'a> {
    pub store: &'a Store,
    pub opener: Option<&'a Arc<dyn Opener>>,
}

impl Authority {
    /// The authority that signs now, if there is one already.
    pub fn open(tls: &TlsSection, keeping: &Keeping<'_>) -> Result<Option<Self>, PkiError> {
        match keeping.store.rotation()? {
            Some(rotation) if !rotation.is_over(tls) => rotation.signing(tls, keeping).map(Some),
            _ => Self::settled(tls, keeping),
        }
    }

    /// The only one that there is.
    fn settled(tls: &TlsSection, keeping: &Keeping<'_>) -> Result<Option<Self>, PkiError> {
        if let Some(files) = Files::of(&tls.ca) {
            return Self::brought(&files, keeping.opener).map(Some);
        }
        let Some(pem) = keeping.store.authority_certificate()? else { return Ok(None) };
        Self::kept(pem, &keeping.store.key_path(), keeping).map(Some)
    }

    /// One whose encrypted key is in the state folder.
    pub(super) fn kept(pem: String, key_path: &Path, keeping: &Keeping<'_>) -> Result<Self, PkiError> {
        let Some(sealed) = keeping.store.authority_key(key_path)? else {
            return Err(PkiError::new(format!("the CA key is missing: {}", key_path.display()))
                .help("restore it from a copy; members would not trust a new CA"));
        };
        Self::with_key(pem, &open_key(&sealed, key_path, keeping.opener)?)
    }

    /// A new authority, kept before anything is signed by it.
    pub fn make(cluster: &str, tls: &TlsSection, keeping: &Keeping<'_>) -> Result<Self, PkiError> {
        let new = NewAuthority::generate(cluster, tls, keeping)?;
        keeping.store.keep_authority(&new.pem, &new.sealed_key)?;
        Self::with_key(new.pem, &new.key)
    }

    pub(super) fn brought(files: &Files<'_>, opener: Option<&Arc<dyn Opener>>) -> Result<Self, PkiError> {
        let path = files.certificate;
        let pem = read(Path::new(path))?;
        let pem = String::from_utf8_lossy(&pem).into_owned();
        let certificate = Certificate::parse(&pem).map_err(|error| at(path, error))?;
        if !certificate.is_authority {
            return Err(at(path, PkiError::new("this certificate is not a CA certificate")));
        }
        if !files.sign_command.is_empty() {
            let signer = Signer::Command(files.sign_command.to_vec());
            return Ok(Self { trusted: pem.clone(), pem, certificate, signer });
        }
        let Some(key_path) = files.key else {
            return Err(
                PkiError::new("the CA has a certificate, but no key").help("set its `key`, or a `sign_command`")
            );
        };
        Self::with_key_file(pem, Path::new(key_path), opener)
    }

    /// One whose certificate is at hand, and whose key is in a file.
    pub fn with_key_file(pem: String, path: &Path, opener: Option<&Arc<dyn Opener>>) -> Result<Self, PkiError> {
        let bytes = read(path)?;
        if let Some(why) = exposed(path).filter(|_| !is_sealed(&bytes)) {
            let help = "with the CA key one can authenticate as any user; encrypt it with `etcdrun secret encrypt`";
            return Err(PkiError::new(format!("the key {} is not encrypted, and {why}", path.display())).help(help));
        }
        let key = open_key(&bytes, path, opener)?;
        Self::with_key(pem, &key).map_err(|error| at(&path.display().to_string(), error))
    }

    fn with_key(pem: String, key: &str) -> Result<Self, PkiError> {
        use rcgen::PublicKeyData;
        let key =
            KeyPair::from_pem(key).map_err(|error| PkiError::new(format!("this is not a key in PEM: {error}")))?;
        let certificate = Certificate::parse(&pem)?;
        if key.subject_public_key_info() != certificate.public_key {
            return Err(PkiError::new("this key does not match the CA certificate"));
        }
        let issuer = Issuer::from_ca_cert_pem(&pem, key)?;
        Ok(Self { trusted: pem.clone(), pem, certificate, signer: Signer::Key(Box::new(issuer)) })
    }

    /// Certifies a key.
    pub async fn issue(&self, request: &Request, key: LeafKey, store: &Store) -> Result<Leaf, PkiError> {
        let now = Timestamp::now();
        let params = request.params(now)?;
        // Only who has the key can ask for a certificate for it, and a member's is soon nowhere but there.
        if let LeafKey::New(key) = &key
            && (request.usage == Usage::Member || matches!(self.signer, Signer::Command(_)))
        {
            let text = as_request(params.clone()).serialize_request(key)?.pem()?;
            store.keep_request(&request.record, &text)?;
        }
        let certificate = match (&self.signer, &key) {
            (Signer::Key(issuer), LeafKey::New(key)) => params.signed_by(key, issuer)?.pem(),
            (Signer::Key(issuer), LeafKey::Known(key)) => params.signed_by(key, issuer)?.pem(),
            (Signer::Command(command), _) => match store.request(&request.record)? {
                Some(text) => {
                    let pem = self.signed_by_command(command, &text).await?;
                    let certificate = Certificate::parse(&pem)?;
                    key.must_be_in(&certificate)?;
                    self.must_be_asked_for(request, &certificate)?;
                    pem
                }
                None => return Err(PkiError::new("the request for this key is no longer in the state directory")),
            },
        };
        Ok(Leaf { certificate, key: key.pem() })
    }

    /// Somebody else has signed it, and may have signed something else than what was asked for.
    fn must_be_asked_for(&self, request: &Request, given: &Certificate) -> Result<(), PkiError> {
        let now = Timestamp::now();
        if given.not_before > now {
            return Err(PkiError::new(format!(
                "`sign_command` printed a certificate that is valid only from {} on",
                given.not_before
            )));
        }
        // Whoever signs may have rules of its own for how long, for whom else, and in which organization.
        let has_all = request.names.is_subset(&given.names);
        let asked = Request {
            early_renewal: Some(SHORTEST),
            within: Duration::ZERO,
            organization: given.organization.clone(),
            names: if has_all { given.names.clone() } else { request.names.clone() },
            ..request.clone()
        };
        match asked.wish(Some(given), &self.certificate, now) {
            Wish::Nothing => Ok(()),
            Wish::Certificate(why) | Wish::KeyAndCertificate(why) => {
                let name = &request.common_name;
                let names: Vec<&str> = request.names.iter().map(String::as_str).chain([name.as_str()]).collect();
                let help = format!(
                    "nothing was sent. It should be for {}. A request is created together with its key, so other names need a new key: move server.key on the member away, then run `etcdrun playbook settings.yaml`",
                    names.join(", ")
                );
                Err(PkiError::new(format!("`sign_command` printed an unusable certificate for {name}: {why}"))
                    .help(help))
            }
        }
    }

    /// Whether it signs by itself, and not by a command.
    pub fn has_key(&self) -> bool {
        matches!(self.signer, Signer::Key(_))
    }

    /// Whether it can certify a key again that is elsewhere.
    pub fn can_renew(&self, name: &str, store: &Store) -> Result<bool, PkiError> {
        Ok(self.has_key() || store.request(name)?.is_some())
    }

    /// A user's certificate out of the state folder, issued or renewed if need be. A renewed one has a new key.
    pub async fn client(
        &self,
        user: &str,
        tls: &TlsSection,
        keeping: &Keeping<'_>,
        renewal: Renewal,
    ) -> Result<Client, PkiError> {
        check_user(user)?;
        let request = Request::new(user, Usage::Client, tls);
        if renewal != Renewal::Always
            && let Some((certificate, key)) = keeping.client(user)?
            && self.wish_for(&request, &certificate, &key) == Wish::Nothing
        {
            if renewal == Renewal::IfNeeded
                && let Err(error) = keeping.seal_plain(&tls.ca, user)
            {
                tracing::warn!(user, %error, "the key stays unencrypted");
            }
            return Ok(Client { certificate, key, is_new: false });
        }
        let leaf = self.issue(&request, LeafKey::generate(request.algorithm)?, keeping.store).await?;
        let key = leaf.key.unwrap_or_default();
        if renewal != Renewal::ForNow {
            keeping.keep_client(&tls.ca, user, &leaf.certificate, &key)?;
        }
        Ok(Client { certificate: leaf.certificate, key, is_new: true })
    }

    /// What it takes for a user's certificate in the state folder to be a good one, which is renewed at least so long before its end.
    pub fn client_wish(
        &self,
        user: &str,
        tls: &TlsSection,
        keeping: &Keeping<'_>,
        within: Option<Duration>,
    ) -> Result<Wish, PkiError> {
        let (certificate, key) = keeping.client(user)?.unwrap_or_default();
        let request = Request::new(user, Usage::Client, tls).renewed_within(within);
        Ok(self.wish_for(&request, &certificate, &key))
    }

    fn wish_for(&self, request: &Request, certificate: &str, key: &str) -> Wish {
        request.wish(fitting(certificate, key).as_ref(), &self.certificate, Timestamp::now())
    }

    async fn signed_by_command(&self, command: &[String], request: &str) -> Result<String, PkiError> {
        let failed = |why: String| PkiError::new(format!("`sign_command` {why}"));
        let (program, args) = command.split_first().ok_or_else(|| failed("is empty".into()))?;
        let _alone = SIGNING.lock().await;
        let mut child = tokio::process::Command::new(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| failed(format!("cannot be started: {error}")))?;
        if let Some(mut stdin) = child.stdin.take() {
            // One that does not read it says so by what it answers.
            let _ = stdin.write_all(request.as_bytes()).await;
        }
        let output = tokio::time::timeout(SIGN_LIMIT, child.wait_with_output()).await;
        let output = output.map_err(|_| failed(format!("did not end within {SIGN_LIMIT:?}")))?;
        let output = output.map_err(|error| failed(error.to_string()))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(failed(format!("ended with {}: {}", output.status, said.trim())));
        }
        let pem = String::from_utf8_lossy(&output.stdout).into_owned();
        let certificate =
            Certificate::parse(&pem).map_err(|error| failed(format!("printed no certificate: {error}")))?;
        if !certificate.is_signed_by(&self.certificate) {
            return Err(failed("printed a certificate that this CA has not signed".into()));
        }
        Ok(pem)
    }
}

/// What is wrong with an authority that was brought along, if anything is.
pub fn check_authority(ca: &CaSection, opener: Option<&Arc<dyn Opener>>) -> Result<(), PkiError> {
    Files::of(ca).map_or(Ok(()), |files| Authority::brought(&files, opener).map(drop))
}

/// The same of one that is to take its place.
pub fn check_next_authority(next: &NextCa, opener: Option<&Arc<dyn Opener>>) -> Result<(), PkiError> {
    Authority::brought(&Files::of_next(next), opener).map(drop)
}

impl Authority {
    /// The certificate of an authority whose key is gone before anybody could use it: who believes only that one believes nobody.
    pub fn of_nobody() -> Result<String, PkiError> {
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = distinguished_name("nobody", None);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        set_validity(&mut params, Timestamp::now(), SLACK, VALIDITY);
        Ok(params.self_signed(&key)?.pem())
    }
}

/// An authority that signs nothing yet.
pub(super) struct NewAuthority {
    pub pem: String,
    pub key: Zeroizing<String>,
    pub sealed_key: Vec<u8>,
}

impl NewAuthority {
    pub fn generate(cluster: &str, tls: &TlsSection, keeping: &Keeping<'_>) -> Result<Self, PkiError> {
        let recipients = recipients(&tls.ca, keeping)?;
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
        let default = || format!("{cluster} etcd");
        let name = tls.ca.common_name.clone().unwrap_or_else(default);
        let mut params = CertificateParams::default();
        params.distinguished_name = distinguished_name(&name, tls.organization.as_deref());
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        set_validity(&mut params, Timestamp::now(), CA_SLACK, tls.ca.validity.map_or(VALIDITY, |validity| validity.0));
        let pem = params.self_signed(&key)?.pem();
        let key = Zeroizing::new(key.serialize_pem());
        let sealed_key = seal(key.as_bytes(), &recipients, Form::Armored).map_err(PkiError::new)?;
        Ok(Self { pem, key, sealed_key })
    }
}

impl<'a> Files<'a> {
    /// Where the authority is, if it was brought along.
    pub(super) fn of(ca: &'a CaSection) -> Option<Self> {
        let certificate = ca.certificate.as_deref()?;
        Some(Self { certificate, key: ca.key.as_deref(), sign_command: &ca.sign_command })
    }

    pub(super) fn of_next(next: &'a NextCa) -> Self {
        Self { certificate: &next.certificate, key: next.key.as_deref(), sign_command: &next.sign_command }
    }
}

/// A user's certificate, if the key is its own. A crash may have left the key of the next one beside it.
fn fitting(pem: &str, key: &str) -> Option<Certificate> {
    use rcgen::PublicKeyData;
    let (certificate, key) = (Certificate::parse(pem).ok()?, KeyPair::from_pem(key).ok()?);
    (key.subject_public_key_info() == certificate.public_key).then_some(certificate)
}

/// A request leaves to the authority what is the authority's to say.
fn as_request(mut params: CertificateParams) -> CertificateParams {
    params.serial_number = None;
    params.use_authority_key_identifier_extension = false;
    params
}

/// It becomes the name of a file.
fn check_user(user: &str) -> Result<(), PkiError> {
    let plain = |c: char| c.is_alphanumeric() || "-_.@".contains(c);
    match !user.is_empty() && !user.starts_with(['.', '-']) && user.chars().all(plain) {
        true => Ok(()),
        false => Err(PkiError::new(format!("`{user}` cannot be the name of a user here"))
            .help("use letters, digits, `-`, `_`, `.` and `@`")),
    }
}

/// To whom the key of a new authority, and what users have here, is encrypted: those that are named, those of the folder, or the operator.
pub(super) fn recipients(ca: &CaSection, keeping: &Keeping<'_>) -> Result<Recipients, PkiError> {
    if !ca.recipients.is_empty() {
        return Recipients::parse(ca.recipients.iter().map(String::as_str)).map_err(PkiError::new);
    }
    if let Some(file) = find_recipients_file(keeping.store.folder()) {
        let text = String::from_utf8_lossy(&read(&file)?).into_owned();
        return Recipients::parse(text.lines()).map_err(|error| at(&file.display().to_string(), PkiError::new(error)));
    }
    let own = keeping.opener.map(|opener| opener.own_recipient()).transpose();
    let own = own.map_err(|error| PkiError { message: error.message, help: error.help })?.flatten();
    let Some(own) = own else {
        return Err(PkiError::new("there are no recipients to encrypt keys to").help(
            "set `tls.ca.recipients`, put a file .age-recipients next to the inventory, or create an identity: `age-keygen -o ~/.config/etcdrun/identity`",
        ));
    };
    Recipients::parse([own.as_str()]).map_err(PkiError::new)
}

/// The text of a file that may be encrypted.
pub(super) fn open_key(
    bytes: &[u8],
    path: &Path,
    opener: Option<&Arc<dyn Opener>>,
) -> Result<Zeroizing<String>, PkiError> {
    let plain = match (is_sealed(bytes), opener) {
        (false, _) => Zeroizing::new(bytes.to_vec()),
        (true, Some(opener)) => opener.open(bytes).map_err(|error| PkiError {
            message: format!("{}: {}", path.display(), error.message),
            help: error.help,
        })?,
        (true, None) => {
            return Err(PkiError::new(format!("{} is encrypted, and there is no key to decrypt it", path.display())));
        }
    };
    Ok(Zeroizing::new(String::from_utf8_lossy(&plain).into_owned()))
}

pub(super) fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, PkiError> {
    std::fs::read(path).map(Zeroizing::new).map_err(|error| PkiError::new(format!("{}: {error}", path.display())))
}

pub(super) fn at(path: &str, error: PkiError) -> PkiError {
    PkiError { message: format!("{path}: {}", error.message), ..error }
}
