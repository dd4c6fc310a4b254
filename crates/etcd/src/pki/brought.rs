//! A member's certificate and key that somebody else made.

use std::{path::Path, sync::Arc};

use rcgen::{KeyPair, PublicKeyData};
use zeroize::Zeroizing;

use super::{
    Certificate, PkiError,
    authority::{at, open_key, read},
};
use crate::source::Opener;

pub struct Brought {
    pub pem: String,
    pub certificate: Certificate,
    pub key: Zeroizing<String>,
}

impl Brought {
    /// Reads both files. They must fit each other, and be good for a member.
    pub fn open(certificate: &str, key: &str, opener: Option<&Arc<dyn Opener>>) -> Result<Self, PkiError> {
        let found = Self::read(certificate, key, opener)?;
        let parsed = &found.certificate;
        if !(parsed.is_for_servers && parsed.is_for_clients) {
            return Err(at(certificate, PkiError::new("a member's certificate must be for servers and for clients"))
                .help("it needs both extended key usages: a member is a server, and a client of its peers"));
        }
        if !parsed.names.contains("127.0.0.1") {
            return Err(at(certificate, PkiError::new("a member's certificate must also be for 127.0.0.1")));
        }
        Ok(found)
    }

    fn read(certificate: &str, key: &str, opener: Option<&Arc<dyn Opener>>) -> Result<Self, PkiError> {
        let pem = String::from_utf8_lossy(&read(Path::new(certificate))?).into_owned();
        let parsed = Certificate::parse(&pem).map_err(|error| at(certificate, error))?;
        let text = open_key(&read(Path::new(key))?, Path::new(key), opener)?;
        let pair = KeyPair::from_pem(&text)
            .map_err(|error| at(key, PkiError::new(format!("this is not a key in PEM: {error}"))))?;
        if pair.subject_public_key_info() != parsed.public_key {
            return Err(PkiError::new(format!("the certificate {certificate} does not match the key {key}")));
        }
        Ok(Self { pem, certificate: parsed, key: text })
    }
}

/// What is wrong with them, if anything is.
pub fn check_brought(certificate: &str, key: &str, opener: Option<&Arc<dyn Opener>>) -> Result<(), PkiError> {
    Brought::open(certificate, key, opener).map(drop)
}

/// The same of a certificate that only a client presents.
pub fn check_client(certificate: &str, key: &str, opener: Option<&Arc<dyn Opener>>) -> Result<(), PkiError> {
    Brought::read(certificate, key, opener).map(drop)
}

/// What is wrong with a file of CA certificates that others have issued, if anything is.
pub fn check_trusted(path: &str) -> Result<(), PkiError> {
    let pem = String::from_utf8_lossy(&read(Path::new(path))?).into_owned();
    Certificate::parse(&pem).map(drop).map_err(|error| at(path, error))
}
