//! What stands before a bucket in earnest: TLS by an authority of one's own, and a policy that may forbid to write.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::Runtime,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, pki_types::PrivateKeyDer},
};

const DENIED: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>";

/// Serves as long as it is there.
pub(super) struct Gateway {
    address: SocketAddr,
    /// The authority that its certificate is from, in PEM.
    pub ca: String,
    _runtime: Runtime,
}

impl Gateway {
    pub fn start(server: SocketAddr, may_write: bool) -> Self {
        let (ca, config) = identity();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                // Whoever does not trust us goes away, which is no concern of ours.
                tokio::spawn(async move { serve(&acceptor, connection, server, may_write).await });
            }
        });
        Self { address, ca, _runtime: runtime }
    }

    pub fn endpoint(&self) -> String {
        format!("https://{}", self.address)
    }
}

/// Each connection is for one request, so that none goes by unseen.
async fn serve(acceptor: &TlsAcceptor, connection: TcpStream, server: SocketAddr, may_write: bool) -> io::Result<()> {
    let mut client = acceptor.accept(connection).await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await?);
    }
    let reads = head.starts_with(b"GET ") || head.starts_with(b"HEAD ");
    if !reads && !may_write {
        let length = DENIED.len();
        let answer = format!("HTTP/1.1 403 Forbidden\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{DENIED}");
        client.write_all(answer.as_bytes()).await?;
        client.shutdown().await?;
        // Whoever is still sending would not get to the answer if the connection broke.
        let mut sink = tokio::io::sink();
        let rest = tokio::io::copy(&mut client, &mut sink);
        return tokio::time::timeout(Duration::from_secs(5), rest).await.unwrap_or(Ok(0)).map(drop);
    }
    head.truncate(head.len() - 2);
    head.extend_from_slice(b"Connection: close\r\n\r\n");
    let mut upstream = TcpStream::connect(server).await?;
    upstream.write_all(&head).await?;
    tokio::io::copy_bidirectional(&mut client, &mut upstream).await.map(drop)
}

fn identity() -> (String, ServerConfig) {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![leaf.der().clone()], key).unwrap();
    (authority.pem(), config)
}
