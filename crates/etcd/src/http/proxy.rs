//! Connections through the proxy that the environment names: HTTPS_PROXY, and NO_PROXY for hosts that are reached directly.

use std::{env, io};

use async_trait::async_trait;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{Dial, Direct, HttpError, Target};
use crate::ssh::Stream;

/// More than any answer of a proxy.
const HEAD_LIMIT: usize = 16 * 1024;

/// The way to a URL. Without TLS nothing but a direct connection is safe to reuse for any request, so a proxy is for https only.
pub fn dial_for(url: &str) -> Result<Box<dyn Dial>, HttpError> {
    let set = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    let named = |lower: &str, upper: &str| set(lower).or_else(|| set(upper));
    let proxy = named("https_proxy", "HTTPS_PROXY").filter(|_| Target::parse(url).is_ok_and(|target| target.tls));
    Ok(match proxy {
        Some(proxy) => Box::new(Proxied::new(&proxy, &named("no_proxy", "NO_PROXY").unwrap_or_default())?),
        None => Box::new(Direct),
    })
}

/// Connects through a proxy, by CONNECT.
struct Proxied {
    host: String,
    port: u16,
    /// The value of Proxy-Authorization.
    credentials: Option<String>,
    /// Hosts, and domains with all that is in them, that need no proxy.
    exempt: Vec<String>,
}

impl Proxied {
    fn new(proxy: &str, exempt: &str) -> Result<Self, HttpError> {
        // It may hold a password, so it is not shown.
        let wrong = |why: &str| HttpError::BadUrl("HTTPS_PROXY".to_owned(), why.to_owned());
        let plain = proxy.split_once("://").map_or(Ok(proxy), |(scheme, rest)| match scheme {
            "http" => Ok(rest),
            _ => Err(wrong("only proxies with http:// are supported")),
        })?;
        let plain = plain.split(['/', '?', '#']).next().unwrap_or_default();
        let (user, host) = plain.rsplit_once('@').map_or((None, plain), |(user, host)| (Some(user), host));
        let target = Target::parse(&format!("http://{host}/")).map_err(|_| wrong("expected http://HOST:PORT"))?;
        let credentials = user.map(|user| format!("Basic {}", BASE64_STANDARD.encode(decoded(user))));
        let exempt = exempt.split(',').map(|name| name.trim().trim_start_matches("*.").trim_start_matches('.'));
        let exempt = exempt.filter(|name| !name.is_empty()).map(str::to_ascii_lowercase).collect();
        Ok(Self { host: target.host, port: target.port, credentials, exempt })
    }

    fn is_exempt(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        self.exempt.iter().any(|name| {
            name == "*" || host == *name || host.strip_suffix(name.as_str()).is_some_and(|rest| rest.ends_with('.'))
        })
    }

    fn request(&self, host: &str, port: u16) -> String {
        let name = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let credentials = self.credentials.iter().map(|value| format!("Proxy-Authorization: {value}\r\n"));
        format!("CONNECT {name} HTTP/1.1\r\nHost: {name}\r\n{}\r\n", credentials.collect::<String>())
    }
}

#[async_trait]
impl Dial for Proxied {
    async fn dial(&self, host: &str, port: u16) -> io::Result<Box<dyn Stream>> {
        if self.is_exempt(host) {
            return Direct.dial(host, port).await;
        }
        let failed = |what: &str| io::Error::other(format!("the proxy {}:{} {what}", self.host, self.port));
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await;
        let mut stream = stream.map_err(|error| failed(&format!("cannot be reached: {error}")))?;
        stream.set_nodelay(true)?;
        stream.write_all(self.request(host, port).as_bytes()).await?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            if head.len() == HEAD_LIMIT {
                return Err(failed("does not answer as a proxy"));
            }
            // Byte by byte: what comes behind the head is not ours.
            head.push(stream.read_u8().await.map_err(|_| failed("closed the connection"))?);
        }
        let head = String::from_utf8_lossy(&head);
        let status = head.lines().next().and_then(|line| line.split_once(' ')).map_or("", |(_, status)| status);
        match status.starts_with('2') {
            true => Ok(Box::new(stream)),
            false => Err(failed(&format!("answers {}", status.trim()))),
        }
    }
}

/// `%40` is an `@`, and so on.
fn decoded(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        match (first, hex) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            (first, _) => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxied(proxy: &str, exempt: &str) -> Proxied {
        Proxied::new(proxy, exempt).unwrap()
    }

    #[test]
    fn a_proxy_is_named_in_the_usual_ways() {
        let plain = proxied("http://proxy.example:3128/", "");
        assert_eq!(plain.request("github.com", 443), "CONNECT github.com:443 HTTP/1.1\r\nHost: github.com:443\r\n\r\n");
        let named = proxied("ops:p%40ss@10.0.0.1:8080", "");
        assert_eq!((named.host.as_str(), named.port), ("10.0.0.1", 8080));
        let encoded = BASE64_STANDARD.encode("ops:p@ss");
        assert!(named.request("::1", 443).contains(&format!("[::1]:443\r\nProxy-Authorization: Basic {encoded}\r\n")));
        for bad in ["socks5://x:1", "https://x:1", "http://"] {
            let error = Proxied::new(bad, "").err().unwrap().to_string();
            assert!(error.contains("HTTPS_PROXY") && !error.contains("x:1"), "{error}");
        }
    }

    #[test]
    fn some_hosts_need_no_proxy() {
        let some = proxied("http://proxy:1", "localhost, .example.org,*.example.net,10.0.0.5");
        for host in ["localhost", "a.example.org", "example.org", "A.Example.NET", "10.0.0.5"] {
            assert!(some.is_exempt(host), "{host}");
        }
        for host in ["github.com", "notexample.org", "10.0.0.50"] {
            assert!(!some.is_exempt(host), "{host}");
        }
        assert!(proxied("http://proxy:1", "*").is_exempt("github.com"));
    }

    #[tokio::test]
    async fn a_proxy_connects_or_says_why_not() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            for answer in ["200 Connection established\r\n\r\nhello", "407 Proxy Authentication Required\r\n\r\n"] {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                assert!(head.starts_with(b"CONNECT github.com:443 HTTP/1.1\r\n"));
                stream.write_all(format!("HTTP/1.1 {answer}").as_bytes()).await.unwrap();
            }
        });
        let proxy = proxied(&format!("http://127.0.0.1:{port}"), "");
        let mut text = String::new();
        proxy.dial("github.com", 443).await.unwrap().read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "hello");
        let refused = proxy.dial("github.com", 443).await.err().unwrap().to_string();
        assert!(refused.ends_with("answers 407 Proxy Authentication Required"), "{refused}");
    }
}
