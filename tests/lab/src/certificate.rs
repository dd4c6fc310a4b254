//! Certificates that end at another time.

use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use der::{
    Decode, DecodePem, Encode, EncodePem, Sequence,
    asn1::{Any, BitString},
    pem::{LineEnding, PemLabel},
};
use rcgen::{KeyPair, SigningKey};
use x509_cert::{
    Certificate,
    certificate::Rfc5280,
    spki::AlgorithmIdentifierOwned,
    time::{Time, Validity},
};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A certificate in its outermost form: what is signed, and the signature.
#[derive(Sequence)]
struct Signed {
    body: Any,
    algorithm: AlgorithmIdentifierOwned,
    signature: BitString,
}

impl PemLabel for Signed {
    const PEM_LABEL: &'static str = "CERTIFICATE";
}

/// The same certificate for the same key, signed anew by its authority, byte for byte alike but for the time it ends.
pub(crate) fn ending(certificate: &str, ca_key: &str, end: SystemTime) -> Result<String> {
    let key = KeyPair::from_pem(ca_key).context("the authority's key cannot be read")?;
    let parsed = Certificate::from_pem(certificate).context("the certificate cannot be read")?;
    let mut signed = Signed::from_pem(certificate).context("the certificate cannot be read")?;
    let old = parsed.tbs_certificate().validity().to_der()?;
    let new = validity(parsed.tbs_certificate().validity().not_before, end)?.to_der()?;
    let body = replaced(&signed.body.to_der()?, &old, &new)?;
    signed.signature = BitString::from_bytes(&key.sign(&body)?)?;
    signed.body = Any::from_der(&body)?;
    Ok(signed.to_pem(LineEnding::LF)?)
}

fn validity(not_before: Time, end: SystemTime) -> Result<Validity<Rfc5280>> {
    let start = not_before.to_system_time().min(end - DAY);
    Ok(Validity::new(Time::try_from(start)?, Time::try_from(end)?))
}

/// Exchanges one run of bytes for another of the same length, so that no length around it changes.
fn replaced(body: &[u8], old: &[u8], new: &[u8]) -> Result<Vec<u8>> {
    let place = body.windows(old.len()).position(|window| window == old);
    match place {
        Some(place) if old.len() == new.len() => {
            let mut body = body.to_vec();
            body[place..place + new.len()].copy_from_slice(new);
            Ok(body)
        }
        _ => bail!("the certificate ends after 2049, and such a one cannot be changed in place"),
    }
}
