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
        ClientConfig, Error as RustlsError, RootCertStore,
        crypto::aws_lc_rs,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    },
};

use super::{Credential, Dial, EtcdError, Stream};
use crate::pki::Certificate;

const LIMIT: Duration = Duration::from_secs(5);
const LONGEST_ANSWER: usize = 64 * 1024;

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
        Ok(result) => result.map_err(|reason| EtcdError::Unavailable { member, reason }),
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
    let stream = connect(target).await.map_err(|error| match error.get_ref().and_then(|e| e.downcast_ref()) {
        Some(RustlsError::InvalidCertificate(_)) => untrusted(error.to_string()),
        _ => EtcdError::Unavailable { member: member(), reason: error.to_string() },
    })?;
    let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let shown = shown.ok_or_else(|| untrusted("it shows no certificate".to_owned()))?;
    Certificate::from_der(shown.to_vec()).map_err(|error| untrusted(error.message))
}

async fn connect(target: &Target<'_>) -> io::Result<TlsStream<Box<dyn Stream>>> {
    let stream = target.dial.dial(target.address, target.port).await?;
    let name = ServerName::try_from(target.address.to_owned()).map_err(io::Error::other)?;
    target.tls.connect(name, stream).await
}

async fn exchange(target: &Target<'_>, path: &str) -> Result<String, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let stream = connect(target).await.map_err(|error| text(&error))?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| text(&error))?;
    // Ends with the response: hyper closes the connection once nobody asks for more of it.
    tokio::spawn(connection);
    let request = Request::get(path).header(header::HOST, target.address).body(Empty::<Bytes>::new());
    let response = sender.send_request(request.map_err(|error| text(&error))?).await.map_err(|error| text(&error))?;
    let status = response.status();
    let body = Limited::new(response.into_body(), LONGEST_ANSWER).collect().await.map_err(|error| text(&error))?;
    let body = String::from_utf8_lossy(&body.to_bytes()).into_owned();
    if status.is_success() { Ok(body) } else { Err(format!("{path} answers {status}: {}", body.trim())) }
}
