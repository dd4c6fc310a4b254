//! Plain HTTP over the same tunnel, for what etcd does not tell by gRPC.

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        AlertDescription, ClientConfig, Error as RustlsError, RootCertStore,
        crypto::aws_lc_rs,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    },
};

use super::{Credential, Dial, EtcdError, Stream};
use crate::pki::Certificate;

const LIMIT: Duration = Duration::from_secs(5);
/// The metrics of a busy server have some hundred KiB.
const LONGEST_ANSWER: usize = 2 << 20;

/// What TLS needs, the same for every request.
pub(super) fn tls(credential: &Credential) -> Result<TlsConnector, EtcdError> {
    let wrong = |what: &dyn std::fmt::Display| EtcdError::Certificates(what.to_string());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(credential.authority.as_bytes()) {
        roots.add(certificate.map_err(|error| wrong(&error))?).map_err(|error| wrong(&error))?;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(&error))?
        .with_root_certificates(roots);
    let config = match &credential.identity {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect();
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|error| wrong(&error))?;
            config.with_client_auth_cert(chain.map_err(|error| wrong(&error))?, key).map_err(|error| wrong(&error))?
        }
    };
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Where requests go.
pub(super) struct Target<'a> {
    pub member: &'a str,
    pub address: &'a str,
    pub port: u16,
    pub tls: &'a TlsConnector,
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
    let member = || target.member.to_owned();
    let untrusted = |reason| EtcdError::Handshake { member: member(), reason };
    let stream = connect(target).await.map_err(|error| match tls_error(&error) {
        Some(RustlsError::InvalidCertificate(_)) => untrusted(error.to_string()),
        _ => told(target.member, &error),
    })?;
    let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let shown = shown.ok_or_else(|| untrusted("it presents no certificate".to_owned()))?;
    Certificate::from_der(shown.to_vec()).map_err(|error| untrusted(error.message))
}

async fn connect(target: &Target<'_>) -> io::Result<TlsStream<Box<dyn Stream>>> {
    let stream = target.dial.dial(target.address, target.port).await?;
    let name = ServerName::try_from(target.address.to_owned()).map_err(io::Error::other)?;
    target.tls.connect(name, stream).await
}

async fn exchange(target: &Target<'_>, path: &str) -> Result<String, EtcdError> {
    let failed = |error: &(dyn std::error::Error + 'static)| told(target.member, error);
    let stream = connect(target).await.map_err(|error| failed(&error))?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
    // Ends with the response: hyper closes the connection once nobody asks for more of it.
    tokio::spawn(connection);
    let request = Request::get(path).header(header::HOST, target.address).body(Empty::<Bytes>::new());
    let response =
        sender.send_request(request.map_err(|error| failed(&error))?).await.map_err(|error| failed(&error))?;
    let status = response.status();
    let body = Limited::new(response.into_body(), LONGEST_ANSWER).collect().await.map_err(|error| failed(&*error))?;
    let body = String::from_utf8_lossy(&body.to_bytes()).into_owned();
    match status.is_success() {
        true => Ok(body),
        false => Err(EtcdError::Unavailable {
            member: target.member.to_owned(),
            reason: format!("{path} answers {status}: {}", body.trim()),
        }),
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
