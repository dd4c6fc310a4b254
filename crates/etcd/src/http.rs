//! A small HTTP client over any stream: a connection of the operator, or a tunnel through a host.
//!
//! In: a URL, and what makes connections. Out: the answer, or why there is none. It knows nothing of etcd.

pub mod proxy;

use std::{io, path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::{
    Method, Request, Response, StatusCode, Uri,
    body::Incoming,
    header::{self, HeaderName, HeaderValue},
};
use hyper_util::rt::TokioIo;
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::aws_lc_rs,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    },
};

use crate::ssh::Stream;

const MAX_REDIRECTS: usize = 10;

/// Why there is no answer to use.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error("`{0}` is not a URL that can be fetched: {1}")]
    BadUrl(String, String),
    #[error("cannot connect to {host}:{port}: {error}")]
    Connect { host: String, port: u16, error: io::Error },
    #[error("cannot use the certificates: {0}")]
    Certificates(String),
    #[error("no answer from {host}: {error}")]
    Exchange { host: String, error: hyper::Error },
    #[error("{url} answers {status}")]
    Status { url: String, status: StatusCode },
    #[error("{0} redirects more than {MAX_REDIRECTS} times")]
    Redirects(String),
    #[error("`{0}` and its value do not make an HTTP header")]
    BadHeader(String),
    #[error("{0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
}

/// Makes the connections: directly, or through a host.
#[async_trait]
pub trait Dial: Send + Sync {
    async fn dial(&self, host: &str, port: u16) -> io::Result<Box<dyn Stream>>;
}

/// Connects from the operator's machine.
pub struct Direct;

#[async_trait]
impl Dial for Direct {
    async fn dial(&self, host: &str, port: u16) -> io::Result<Box<dyn Stream>> {
        let stream = tokio::net::TcpStream::connect((host, port)).await?;
        stream.set_nodelay(true)?;
        Ok(Box::new(stream))
    }
}

/// Whose certificates are believed.
#[derive(Clone, Copy, Debug)]
pub enum Trust<'a> {
    System,
    /// The certificates of this PEM file only.
    File(&'a Path),
    /// These certificates only, in PEM.
    Pem(&'a str),
}

/// A certificate and its key, in PEM.
pub type Identity<'a> = (&'a str, &'a str);

/// A client with the certificates it trusts.
#[derive(Clone)]
pub struct Client {
    tls: TlsConnector,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Client {
    pub fn new(trust: Trust<'_>) -> Result<Self, HttpError> {
        Self::with_identity(trust, None)
    }

    /// A client that shows this certificate to servers that ask for one.
    pub fn with_identity(trust: Trust<'_>, identity: Option<Identity<'_>>) -> Result<Self, HttpError> {
        let wrong = |what: &dyn std::fmt::Display| HttpError::Certificates(what.to_string());
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(&error))?
            .with_root_certificates(roots(trust)?);
        let config = match identity {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect();
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|error| wrong(&error))?;
                config
                    .with_client_auth_cert(chain.map_err(|error| wrong(&error))?, key)
                    .map_err(|error| wrong(&error))?
            }
        };
        Ok(Self { tls: TlsConnector::from(Arc::new(config)), headers: Vec::new() })
    }

    /// A header for every request to the first host; it does not follow a redirect to another.
    pub fn header(mut self, name: &str, value: &str) -> Result<Self, HttpError> {
        self.headers.push(parse_header(name, value)?);
        Ok(self)
    }

    /// One GET, redirects not followed; any status is an answer.
    pub async fn get(&self, url: &str, dial: &dyn Dial) -> Result<Response<Incoming>, HttpError> {
        self.exchange(&Target::parse(url)?, true, 0, dial).await
    }

    /// A GET that follows redirects and takes only success for an answer.
    pub async fn download(&self, url: &str, dial: &dyn Dial) -> Result<Response<Incoming>, HttpError> {
        self.download_from(url, 0, dial).await
    }

    /// The same, from this byte on. A server that cannot do so answers with all of it, and not with `206 Partial Content`.
    pub async fn download_from(&self, url: &str, from: u64, dial: &dyn Dial) -> Result<Response<Incoming>, HttpError> {
        let first = Target::parse(url)?;
        let mut target = first.clone();
        for _ in 0..=MAX_REDIRECTS {
            let response = self.exchange(&target, target.same_origin(&first), from, dial).await?;
            let status = response.status();
            match response.headers().get(header::LOCATION) {
                Some(location) if status.is_redirection() => target = target.redirect(location)?,
                _ if status.is_success() => return Ok(response),
                _ => return Err(HttpError::Status { url: target.uri.to_string(), status }),
            }
        }
        Err(HttpError::Redirects(url.to_owned()))
    }

    /// The certificate that the server of a URL shows in a handshake, if it shows one.
    pub async fn certificate(&self, url: &str, dial: &dyn Dial) -> Result<Option<Vec<u8>>, HttpError> {
        let target = Target::parse(url)?;
        let stream = self.encrypt(&target, self.dial(&target, dial).await?).await?;
        let chain = stream.get_ref().1.peer_certificates();
        Ok(chain.and_then(|chain| chain.first()).map(|certificate| certificate.to_vec()))
    }

    async fn exchange(
        &self,
        target: &Target,
        with_headers: bool,
        from: u64,
        dial: &dyn Dial,
    ) -> Result<Response<Incoming>, HttpError> {
        let stream = self.connect(target, dial).await?;
        let failed = |error| HttpError::Exchange { host: target.host.clone(), error };
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
        // Ends with the response: hyper closes the connection once nobody asks for more of it.
        tokio::spawn(connection);
        sender.send_request(self.request(target, with_headers, from)?).await.map_err(failed)
    }

    async fn connect(&self, target: &Target, dial: &dyn Dial) -> Result<Box<dyn Stream>, HttpError> {
        let stream = self.dial(target, dial).await?;
        if target.tls { Ok(Box::new(self.encrypt(target, stream).await?)) } else { Ok(stream) }
    }

    async fn dial(&self, target: &Target, dial: &dyn Dial) -> Result<Box<dyn Stream>, HttpError> {
        dial.dial(&target.host, target.port).await.map_err(|error| target.unconnected(error))
    }

    async fn encrypt(&self, target: &Target, stream: Box<dyn Stream>) -> Result<TlsStream<Box<dyn Stream>>, HttpError> {
        let name = ServerName::try_from(target.host.clone())
            .map_err(|error| HttpError::BadUrl(target.uri.to_string(), error.to_string()))?;
        self.tls.connect(name, stream).await.map_err(|error| target.unconnected(error))
    }

    fn request(&self, target: &Target, with_headers: bool, from: u64) -> Result<Request<Empty<Bytes>>, HttpError> {
        let path = target.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut request = Request::builder()
            .method(Method::GET)
            .uri(path)
            .header(header::HOST, target.authority())
            .header(header::USER_AGENT, concat!("etcdrun/", env!("CARGO_PKG_VERSION")))
            .header(header::ACCEPT, "*/*");
        for (name, value) in self.headers.iter().filter(|_| with_headers) {
            request = request.header(name, value);
        }
        if from > 0 {
            request = request.header(header::RANGE, format!("bytes={from}-"));
        }
        request.body(Empty::new()).map_err(|error| HttpError::BadUrl(target.uri.to_string(), error.to_string()))
    }
}

/// Refuses what could not be fetched anyway, before anything is tried.
pub fn check_url(url: &str) -> Result<(), HttpError> {
    Target::parse(url).map(|_| ())
}

pub fn parse_header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), HttpError> {
    let wrong = || HttpError::BadHeader(name.to_owned());
    let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
    let mut value = HeaderValue::from_str(value).map_err(|_| wrong())?;
    value.set_sensitive(true);
    Ok((name, value))
}

/// The text of an answer, at most `limit` bytes of it.
pub async fn text(response: Response<Incoming>, limit: usize) -> Result<String, HttpError> {
    let body = Limited::new(response.into_body(), limit);
    let bytes = body.collect().await.map_err(HttpError::Body)?.to_bytes();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn roots(trust: Trust<'_>) -> Result<RootCertStore, HttpError> {
    let mut roots = RootCertStore::empty();
    match trust {
        Trust::System => {
            // A machine without certificates can still speak plain HTTP; TLS then fails by itself.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        Trust::Pem(text) => {
            for certificate in CertificateDer::pem_slice_iter(text.as_bytes()) {
                let certificate = certificate.map_err(|error| HttpError::Certificates(error.to_string()))?;
                roots.add(certificate).map_err(|error| HttpError::Certificates(error.to_string()))?;
            }
        }
        Trust::File(path) => {
            let wrong = |error: String| HttpError::Certificates(format!("`{}`: {error}", path.display()));
            let certificates = CertificateDer::pem_file_iter(path).map_err(|error| wrong(error.to_string()))?;
            for certificate in certificates {
                let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
                roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
            }
        }
    }
    Ok(roots)
}

/// A parsed URL.
#[derive(Clone, Debug)]
struct Target {
    uri: Uri,
    host: String,
    port: u16,
    tls: bool,
}

impl Target {
    fn parse(url: &str) -> Result<Self, HttpError> {
        let wrong = |why: &str| HttpError::BadUrl(url.to_owned(), why.to_owned());
        // A fragment is for the reader, not for the server.
        let plain = url.split_once('#').map_or(url, |(plain, _)| plain);
        let uri: Uri = plain.parse().map_err(|error: hyper::http::uri::InvalidUri| wrong(&error.to_string()))?;
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(wrong("it must start with http:// or https://")),
        };
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(wrong("name and password belong into a header"));
        }
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| wrong("it has no host"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
        Ok(Self { uri, host, port, tls })
    }

    fn unconnected(&self, error: io::Error) -> HttpError {
        HttpError::Connect { host: self.host.clone(), port: self.port, error }
    }

    fn authority(&self) -> &str {
        self.uri.authority().map_or(&self.host, |authority| authority.as_str())
    }

    fn same_origin(&self, other: &Self) -> bool {
        (&self.host, self.port, self.tls) == (&other.host, other.port, other.tls)
    }

    /// Where a redirect leads; never from an encrypted connection to a plain one.
    fn redirect(&self, location: &HeaderValue) -> Result<Self, HttpError> {
        let from = self.uri.to_string();
        let location = location.to_str().map_err(|_| HttpError::BadUrl(from.clone(), "a bad redirect".into()))?;
        let url = match location {
            url if url.contains("://") => url.to_owned(),
            url if url.starts_with("//") => format!("{}:{url}", if self.tls { "https" } else { "http" }),
            path if path.starts_with('/') => self.with_path(path),
            path => {
                let folder = self.uri.path().rsplit_once('/').map_or("", |(folder, _)| folder);
                self.with_path(&format!("{folder}/{path}"))
            }
        };
        let target = Self::parse(&url)?;
        match self.tls && !target.tls {
            true => Err(HttpError::BadUrl(from, format!("it redirects to {url}, which is not encrypted"))),
            false => Ok(target),
        }
    }

    fn with_path(&self, path: &str) -> String {
        format!("{}://{}{path}", if self.tls { "https" } else { "http" }, self.authority())
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Answers each connection with the next of the given texts, and returns the requests it got.
    async fn server(answers: Vec<String>) -> (u16, tokio::task::JoinHandle<Vec<String>>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let task = tokio::spawn(async move {
            let mut requests = Vec::new();
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    request.push(stream.read_u8().await.unwrap());
                }
                stream.write_all(answer.as_bytes()).await.unwrap();
                requests.push(String::from_utf8(request).unwrap());
            }
            requests
        });
        (port, task)
    }

    fn client() -> Client {
        Client::new(Trust::System).unwrap()
    }

    #[tokio::test]
    async fn redirects_are_followed_within_bounds() {
        let (port, requests) = server(vec![
            "HTTP/1.1 302 Found\r\nLocation: /there?x=1\r\nContent-Length: 0\r\n\r\n".into(),
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello".into(),
        ])
        .await;
        let client = client().header("X-Token", "s3cret").unwrap();
        let response = client.download(&format!("http://127.0.0.1:{port}/here#part"), &Direct).await.unwrap();
        assert_eq!(text(response, 100).await.unwrap(), "hello");
        let requests = requests.await.unwrap();
        assert!(requests[0].starts_with("GET /here HTTP/1.1\r\n"), "{}", requests[0]);
        assert!(requests[1].starts_with("GET /there?x=1 HTTP/1.1\r\n"), "{}", requests[1]);
        assert!(requests[1].contains(&format!("host: 127.0.0.1:{port}\r\n")) && requests[1].contains("s3cret"));
    }

    #[tokio::test]
    async fn headers_stay_with_the_first_host() {
        let (other, requests) = server(vec!["HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".into()]).await;
        let (port, _) = server(vec![format!(
            "HTTP/1.1 301 Moved\r\nLocation: http://127.0.0.1:{other}/\r\nContent-Length: 0\r\n\r\n"
        )])
        .await;
        let client = client().header("Authorization", "s3cret").unwrap();
        client.download(&format!("http://127.0.0.1:{port}/"), &Direct).await.unwrap();
        assert!(!requests.await.unwrap()[0].contains("s3cret"));
    }

    #[tokio::test]
    async fn a_loop_of_redirects_and_an_error_status_fail() {
        let again = "HTTP/1.1 302 Found\r\nLocation: again\r\nContent-Length: 0\r\n\r\n".to_owned();
        let (port, _) = server(vec![again; MAX_REDIRECTS + 1]).await;
        let error = client().download(&format!("http://127.0.0.1:{port}/a/b"), &Direct).await.unwrap_err();
        assert!(matches!(error, HttpError::Redirects(_)), "{error}");
        let (port, _) = server(vec!["HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".into()]).await;
        let error = client().download(&format!("http://127.0.0.1:{port}/x"), &Direct).await.unwrap_err();
        assert_eq!(error.to_string(), format!("http://127.0.0.1:{port}/x answers 404 Not Found"));
    }

    #[test]
    fn urls_are_checked() {
        for bad in ["ftp://x/y", "http://", "/x", "http://user:pw@host/", "http://a b/"] {
            assert!(Target::parse(bad).is_err(), "{bad}");
        }
        let target = Target::parse("https://[::1]:8443/x?y#z").unwrap();
        assert_eq!((target.host.as_str(), target.port, target.tls), ("::1", 8443, true));
        let plain = HeaderValue::from_static("http://elsewhere/");
        assert!(target.redirect(&plain).unwrap_err().to_string().contains("not encrypted"));
    }
}
