//! A certificate that exists, as far as etcdrun cares.

use std::{collections::BTreeSet, net::IpAddr};

use jiff::Timestamp;
use x509_parser::{
    extensions::GeneralName,
    pem::Pem,
    prelude::{FromDer, X509Certificate},
};

use super::PkiError;
use crate::digest::{hex, sha256};

/// What a certificate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    pub common_name: String,
    pub organization: Option<String>,
    /// Addresses and host names that it is for.
    pub names: BTreeSet<String>,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
    /// In hexadecimal.
    pub serial: String,
    pub is_for_servers: bool,
    pub is_for_clients: bool,
    pub is_authority: bool,
    /// The public key with its algorithm, in DER.
    pub public_key: Vec<u8>,
    der: Vec<u8>,
}

impl Certificate {
    /// The first certificate of a PEM text.
    pub fn parse(pem: &str) -> Result<Self, PkiError> {
        let first = Self::parse_all(pem)?.into_iter().next();
        first.ok_or_else(|| PkiError::new("it contains no certificate").help("it must be in PEM"))
    }

    /// All certificates of a PEM text, in order.
    pub fn parse_all(pem: &str) -> Result<Vec<Self>, PkiError> {
        let mut certificates = Vec::new();
        for block in Pem::iter_from_buffer(pem.as_bytes()) {
            let block = block.map_err(|error| PkiError::new(format!("it is not PEM: {error}")))?;
            if block.label == "CERTIFICATE" {
                certificates.push(Self::from_der(block.contents)?);
            }
        }
        Ok(certificates)
    }

    pub fn from_der(der: Vec<u8>) -> Result<Self, PkiError> {
        let (_, parsed) = X509Certificate::from_der(&der)
            .map_err(|error| PkiError::new(format!("it is not a certificate: {error}")))?;
        let subject = parsed.subject();
        let first = |text: Option<&x509_parser::x509::AttributeTypeAndValue<'_>>| {
            text.and_then(|attribute| attribute.as_str().ok()).map(str::to_owned)
        };
        let usage = parsed.extended_key_usage().ok().flatten().map(|usage| usage.value);
        let time = |time: i64| Timestamp::from_second(time).map_err(|error| PkiError::new(error.to_string()));
        let basic = parsed.basic_constraints().ok().flatten();
        Ok(Self {
            common_name: first(subject.iter_common_name().next()).unwrap_or_default(),
            organization: first(subject.iter_organization().next()),
            names: names(&parsed),
            not_before: time(parsed.validity().not_before.timestamp())?,
            not_after: time(parsed.validity().not_after.timestamp())?,
            serial: hex(parsed.raw_serial()),
            is_for_servers: usage.is_some_and(|usage| usage.server_auth || usage.any),
            is_for_clients: usage.is_some_and(|usage| usage.client_auth || usage.any),
            is_authority: basic.is_some_and(|basic| basic.value.ca),
            public_key: parsed.public_key().raw.to_vec(),
            der: der.clone(),
        })
    }

    /// Whether this authority has signed it.
    pub fn is_signed_by(&self, authority: &Self) -> bool {
        let parsed = (X509Certificate::from_der(&self.der), X509Certificate::from_der(&authority.der));
        let (Ok((_, own)), Ok((_, authority))) = parsed else { return false };
        own.issuer() == authority.subject() && own.verify_signature(Some(authority.public_key())).is_ok()
    }

    /// Whole days until it ends; less than none once it has.
    pub fn days_left(&self) -> i64 {
        self.not_after.duration_since(Timestamp::now()).as_secs().div_euclid(86_400)
    }

    /// The sum that people compare.
    pub fn fingerprint(&self) -> String {
        hex(sha256(&self.der))
    }
}

fn names(certificate: &X509Certificate<'_>) -> BTreeSet<String> {
    let alternative = certificate.subject_alternative_name().ok().flatten();
    let names = alternative.iter().flat_map(|extension| &extension.value.general_names);
    names
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            GeneralName::IPAddress(bytes) => address(bytes).map(|address| address.to_string()),
            _ => None,
        })
        .collect()
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}
