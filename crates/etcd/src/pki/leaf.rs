//! What is to be certified, and why a certificate that exists will not do.

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose, SanType,
    SerialNumber, SubjectPublicKeyInfo,
};
use zeroize::Zeroizing;

use super::{Certificate, PkiError};
use crate::inventory::sections::{KeyAlgorithm, TlsSection};

const DAY: Duration = Duration::from_secs(86_400);
const VALIDITY: Duration = Duration::from_secs(365 * DAY.as_secs());
/// Clocks differ; a certificate must be good on a machine that is a little behind.
pub(super) const SLACK: Duration = Duration::from_secs(3600);

/// Who may use a certificate for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// A member: a server to its clients, and both to its peers.
    Member,
    /// A user.
    Client,
}

/// What a certificate should say.
#[derive(Clone, Debug)]
pub struct Request {
    pub common_name: String,
    /// The name that its request is kept under: several hosts may have certificates with the same common name.
    pub record: String,
    pub organization: Option<String>,
    /// Addresses and host names.
    pub names: BTreeSet<String>,
    pub usage: Usage,
    pub validity: Duration,
    /// How long before its end it is renewed; without it, when a third of its time is left.
    pub early_renewal: Option<Duration>,
    /// It is renewed at least this long before its end.
    pub within: Duration,
    pub algorithm: KeyAlgorithm,
}

/// What has to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    Nothing,
    /// A new certificate for the key that is there, and why.
    Certificate(String),
    /// A new key and a certificate for it, and why.
    KeyAndCertificate(String),
}

/// A certificate for somebody, and the key if it is a new one.
pub struct Leaf {
    pub certificate: String,
    pub key: Option<Zeroizing<String>>,
}

/// The key that a certificate is for.
pub enum LeafKey {
    New(KeyPair),
    /// It is elsewhere; this is its public half.
    Known(SubjectPublicKeyInfo),
}

impl LeafKey {
    pub fn generate(algorithm: KeyAlgorithm) -> Result<Self, PkiError> {
        let algorithm = match algorithm {
            KeyAlgorithm::Ecdsa => &rcgen::PKCS_ECDSA_P256_SHA256,
            KeyAlgorithm::Rsa => &rcgen::PKCS_RSA_SHA256,
        };
        Ok(Self::New(KeyPair::generate_for(algorithm)?))
    }

    pub fn of(certificate: &Certificate) -> Result<Self, PkiError> {
        Ok(Self::Known(SubjectPublicKeyInfo::from_der(&certificate.public_key)?))
    }

    /// Somebody else has signed it, after a request that may be an old one.
    pub(super) fn must_be_in(&self, certificate: &Certificate) -> Result<(), PkiError> {
        use rcgen::PublicKeyData;
        let own = match self {
            Self::New(key) => key.subject_public_key_info(),
            Self::Known(key) => key.subject_public_key_info(),
        };
        match own == certificate.public_key {
            true => Ok(()),
            false => Err(PkiError::new("the signed certificate does not match the key")
                .help("to get a new key, move the member's key file away and run `etcdrun playbook settings.yaml`")),
        }
    }

    pub fn pem(&self) -> Option<Zeroizing<String>> {
        match self {
            Self::New(key) => Some(Zeroizing::new(key.serialize_pem())),
            Self::Known(_) => None,
        }
    }
}

impl Request {
    pub fn new(common_name: &str, usage: Usage, tls: &TlsSection) -> Self {
        let validity = tls.validity.map_or(VALIDITY, |validity| validity.0);
        Self {
            common_name: common_name.to_owned(),
            record: common_name.to_owned(),
            organization: tls.organization.clone(),
            names: BTreeSet::new(),
            usage,
            validity,
            early_renewal: tls.early_renewal.map(|early| early.0),
            within: Duration::ZERO,
            algorithm: tls.algorithm.unwrap_or_default(),
        }
    }

    /// Renewed this long before its end, if that is earlier than it would be anyway.
    pub fn renewed_within(self, time: Option<Duration>) -> Self {
        Self { within: time.unwrap_or_default(), ..self }
    }

    /// Kept under another name than the common name.
    pub fn recorded_as(self, record: &str) -> Self {
        Self { record: record.to_owned(), ..self }
    }

    /// How long before its end this one is renewed. A `sign_command` may have given it less time than was asked for; a third of that would
    /// be all of it.
    fn early_renewal_of(&self, there: &Certificate) -> SignedDuration {
        let given = there.not_after.duration_since(there.not_before);
        let asked = |time: Duration| SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX);
        let usual = self.early_renewal.map_or_else(|| asked(self.validity).min(given) / 3, asked);
        usual.max(asked(self.within))
    }

    /// Adds names and addresses; addresses in the form that certificates give back.
    pub fn with_names<'n>(mut self, names: impl IntoIterator<Item = &'n str>) -> Self {
        let canonical = |name: &str| name.parse::<IpAddr>().map_or_else(|_| name.to_owned(), |ip| ip.to_string());
        self.names.extend(names.into_iter().filter(|name| !name.is_empty()).map(canonical));
        self
    }

    /// What it takes to get from the certificate that is there to this.
    pub fn wish(&self, there: Option<&Certificate>, authority: &Certificate, now: Timestamp) -> Wish {
        let Some(there) = there else { return Wish::KeyAndCertificate("there is none yet".into()) };
        let renew = |why: &str| Wish::Certificate(why.to_owned());
        if self.algorithm != algorithm_of(there) {
            return Wish::KeyAndCertificate("it has another kind of key".into());
        }
        if !there.is_signed_by(authority) {
            return renew("another CA has signed it");
        }
        if there.common_name != self.common_name {
            return renew("it is for another name");
        }
        if there.organization != self.organization {
            return renew("it names another organization");
        }
        // Some CAs add the common name to a certificate without names. For a client, it makes no difference.
        let has_names = match self.usage {
            Usage::Member => there.names == self.names,
            Usage::Client => self.names.is_subset(&there.names),
        };
        if !has_names {
            return renew(&format!("it is for {}", list(&there.names)));
        }
        if !there.is_for_clients || (self.usage == Usage::Member && !there.is_for_servers) {
            return renew("it is not for this use");
        }
        // It was made when the clock of this machine was ahead.
        if there.not_before > now {
            return renew(&format!("it is not valid before {}", there.not_before));
        }
        let left = there.not_after.duration_since(now);
        if left <= self.early_renewal_of(there) {
            return renew(&format!("it expires at {}", there.not_after));
        }
        Wish::Nothing
    }

    pub(super) fn params(&self, now: Timestamp) -> Result<CertificateParams, PkiError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = distinguished_name(&self.common_name, self.organization.as_deref());
        params.subject_alt_names = self.names.iter().map(|name| alternative(name)).collect::<Result<_, _>>()?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        if self.algorithm == KeyAlgorithm::Rsa {
            params.key_usages.push(KeyUsagePurpose::KeyEncipherment);
        }
        params.extended_key_usages = match self.usage {
            Usage::Member => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
            Usage::Client => vec![ExtendedKeyUsagePurpose::ClientAuth],
        };
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, now, SLACK, self.validity);
        Ok(params)
    }
}

fn algorithm_of(certificate: &Certificate) -> KeyAlgorithm {
    // The object identifier of RSA keys, 1.2.840.113549.1.1.1.
    const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
    let is_rsa = certificate.public_key.windows(RSA.len()).take(16).any(|part| part == RSA);
    if is_rsa { KeyAlgorithm::Rsa } else { KeyAlgorithm::Ecdsa }
}

fn list(names: &BTreeSet<String>) -> String {
    names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

pub(super) fn distinguished_name(common_name: &str, organization: Option<&str>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    if let Some(organization) = organization {
        name.push(DnType::OrganizationName, organization);
    }
    name
}

/// From a little before now, and with a serial number that nobody guesses.
pub(super) fn set_validity(params: &mut CertificateParams, now: Timestamp, slack: Duration, validity: Duration) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let now = Duration::from_secs(u64::try_from(now.as_second()).unwrap_or_default());
    params.not_before = epoch + now.saturating_sub(slack);
    // X.509 ends with the year 9999.
    let latest = Duration::from_secs(253_402_300_799);
    params.not_after = epoch + (now + validity).min(latest);
    let mut serial: [u8; 16] = rand::random();
    serial[0] &= 0x7f;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
}

fn alternative(name: &str) -> Result<SanType, PkiError> {
    match name.parse::<IpAddr>() {
        Ok(address) => Ok(SanType::IpAddress(address)),
        Err(_) => Ok(SanType::DnsName(name.try_into().map_err(|_| {
            PkiError::new(format!("`{name}` is neither an address nor a host name that a certificate can be for"))
        })?)),
    }
}
