//! Plain HTTP over the same tunnel, for what etcd does not tell by gRPC.

use std::{io, time::Duration};

use tokio_rustls::rustls::{AlertDescription, Error as RustlsError};

use super::{Credential, EtcdError};
use crate::{
    http::{Client, Dial, HttpError, Trust, text},
    pki::Certificate,
};

const LIMIT: Duration = Duration::from_secs(5);
/// The metrics of a busy server have some hundred KiB.
const LONGEST_ANSWER: usize = 2 << 20;

/// A client that trusts the members, and shows them who we are.
pub(super) fn client(credential: &Credential) -> Result<Client, EtcdError> {
    let identity = credential.identity.as_ref().map(|(certificate, key)| (certificate.as_str(), key.as_str()));
    Client::with_identity(Trust::Pem(&credential.authority), identity).map_err(|error| match error {
        HttpError::Certificates(why) => EtcdError::Certificates(why),
        other => EtcdError::Certificates(other.to_string()),
    })
}

/// Where requests go.
pub(super) struct Target<'a> {
    pub member: &'a str,
    /// The beginning of every URL: `https://10.0.0.1:2379`.
    pub url: String,
    pub client: &'a Client,
    pub dial: &'a dyn Dial,
}

/// The body of the answer, if it is a good one.
pub(super) async fn get(target: &Target<'_>, path: &str) -> Result<String, EtcdError> {
    let member = target.member.to_owned();
    match tokio::time::timeout(LIMIT, exchange(target, path)).await {
        Ok(result) => result,
        Err(_) => Err(EtcdError::TimedOut { member, limit: LIMIT }),
    }
}

/// The certificate that the server shows.
pub(super) async fn served(target: &Target<'_>) -> Result<Certificate, EtcdError> {
    let member = target.member.to_owned();
    match tokio::time::timeout(LIMIT, show(target)).await {
        Ok(result) => result,
        Err(_) => Err(EtcdError::TimedOut { member, limit: LIMIT }),
    }
}

async fn show(target: &Target<'_>) -> Result<Certificate, EtcdError> {
    let untrusted = |reason| EtcdError::Handshake { member: target.member.to_owned(), reason };
    let shown = target.client.certificate(&target.url, target.dial).await.map_err(|error| match innermost(&error) {
        cause if matches!(tls_error(cause), Some(RustlsError::InvalidCertificate(_))) => untrusted(cause.to_string()),
        cause => told(target.member, cause),
    })?;
    let shown = shown.ok_or_else(|| untrusted("it presents no certificate".to_owned()))?;
    Certificate::from_der(shown).map_err(|error| untrusted(error.message))
}

async fn exchange(target: &Target<'_>, path: &str) -> Result<String, EtcdError> {
    let failed = |error: HttpError| told(target.member, innermost(&error));
    let response = target.client.get(&format!("{}{path}", target.url), target.dial).await.map_err(failed)?;
    let status = response.status();
    let body = text(response, LONGEST_ANSWER).await.map_err(failed)?;
    match status.is_success() {
        true => Ok(body),
        false => Err(EtcdError::Unavailable {
            member: target.member.to_owned(),
            reason: format!("{path} answers {status}: {}", body.trim()),
        }),
    }
}

/// The cause alone: which member it is about is said anyway.
fn innermost(error: &HttpError) -> &(dyn std::error::Error + 'static) {
    match error {
        HttpError::Connect { error, .. } => error,
        HttpError::Exchange { error, .. } => error,
        HttpError::Body(error) => &**error,
        other => other,
    }
}

/// Why there is no answer. A server that ends the handshake has answered: it will not talk to us, and says why.
fn told(member: &str, error: &(dyn std::error::Error + 'static)) -> EtcdError {
    let member = member.to_owned();
    match tls_error(error) {
        Some(RustlsError::AlertReceived(alert)) => EtcdError::Refused { member, reason: meaning(*alert) },
        _ => EtcdError::Unavailable { member, reason: error.to_string() },
    }
}

/// What TLS has to say of it, however deep that is.
fn tls_error<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<&'e RustlsError> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = match inner {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}

/// What a server means by an alert, in words.
fn meaning(alert: AlertDescription) -> String {
    use AlertDescription as Alert;
    let what = match alert {
        Alert::UnknownCA => "it does not trust the CA of our certificate",
        Alert::CertificateExpired => "it reports that our certificate or its CA has expired",
        Alert::CertificateRevoked => "it reports that our certificate was revoked",
        Alert::CertificateRequired | Alert::NoCertificate => "it requires a client certificate",
        Alert::BadCertificate | Alert::CertificateUnknown | Alert::UnsupportedCertificate => {
            "it does not accept our certificate"
        }
        _ => "it ends the handshake",
    };
    format!("{what} (alert {alert:?})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alert_is_told_as_what_it_means_and_not_as_silence() {
        let alert = |alert| io::Error::other(RustlsError::AlertReceived(alert));
        let said = told("etcd-1", &alert(AlertDescription::UnknownCA)).to_string();
        assert!(said.contains("does not trust the CA") && !said.contains("does not answer"), "{said}");
        // As it comes out of another library, further inside.
        let inside = io::Error::other(alert(AlertDescription::CertificateExpired));
        assert!(told("etcd-1", &inside).to_string().contains("has expired"), "{inside}");
        let other = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert!(matches!(told("etcd-1", &other), EtcdError::Unavailable { .. }));
    }
}
