//! Releases of etcd: what is put into the inventory, from a server of our own that may stand for the official one, and what is said of
//! those that are there.

use std::{
    collections::HashMap,
    fs, io,
    process::Stdio,
    sync::{Arc, Mutex},
};

use etcdrun::digest::{hex, sha256};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustix::process::Signal;
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::Runtime,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, pki_types::PrivateKeyDer},
};

use crate::support::{
    program::{Folder, Said},
    signal, wait_until,
};

const TARBALL: &str = "etcd-v3.6.15-linux-amd64.tar.gz";

const INVENTORY: &str = "\
# our clusters
etcd_releases:   # each with its checksum
  3.5.34: { file: etcd, sha256: \"0000000000000000000000000000000000000000000000000000000000000000\" }   # the old one
clusters:
  prod:
    etcd: { version: 3.6.15 }
    members: { etcd-1: { address: 192.0.2.1 } }
";

/// What is at a path.
#[derive(Clone)]
enum Page {
    Body(Vec<u8>),
    /// So many bytes of a body, as if the connection broke then.
    Cut(Vec<u8>, usize),
    /// So many bytes of a body, and then nothing for as long as the client waits.
    Stuck(Vec<u8>, usize),
    Elsewhere(String),
}

#[derive(Default)]
struct Site {
    /// By path, or by host and path.
    pages: Mutex<HashMap<String, Page>>,
    /// The heads of the requests that it got.
    requests: Mutex<Vec<String>>,
}

/// A web server; through CONNECT it is any server, with a certificate.
struct Web {
    site: Arc<Site>,
    port: u16,
    ca: String,
    _runtime: Runtime,
}

impl Web {
    fn start() -> Self {
        let (ca, config) = identity();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let port = listener.local_addr().unwrap().port();
        let site = Arc::new(Site::default());
        let shared = site.clone();
        runtime.spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let (acceptor, site) = (acceptor.clone(), shared.clone());
                // A client that goes away is no concern of ours.
                tokio::spawn(async move { serve(connection, &acceptor, &site).await });
            }
        });
        Self { site, port, ca, _runtime: runtime }
    }

    /// With a release of these bytes, below `/etcd`.
    fn with_release(bytes: &[u8]) -> Self {
        let web = Self::start();
        web.put("/etcd/v3.6.15/SHA256SUMS", format!("{}  {TARBALL}\n", hex(sha256(bytes))).as_bytes());
        web.put(&format!("/etcd/v3.6.15/{TARBALL}"), bytes);
        web
    }

    fn put(&self, at: &str, body: &[u8]) {
        self.page(at, Page::Body(body.to_vec()));
    }

    fn page(&self, at: &str, page: Page) {
        self.site.pages.lock().unwrap().insert(at.to_owned(), page);
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/etcd", self.port)
    }

    /// The requests for a file since this was asked last.
    fn requests(&self, file: &str) -> Vec<String> {
        let mut all = self.site.requests.lock().unwrap();
        all.drain(..).filter(|head| head.lines().next().unwrap().contains(file)).collect()
    }
}

fn identity() -> (String, ServerConfig) {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let names = ["github.com", "api.github.com", "files.example.org"].map(str::to_owned);
    let leaf = CertificateParams::new(names).unwrap().signed_by(&key, &authority).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![leaf.der().clone()], key).unwrap();
    (authority.pem(), config)
}

async fn serve(mut connection: TcpStream, acceptor: &TlsAcceptor, site: &Site) -> io::Result<()> {
    let head = head(&mut connection).await?;
    if head.starts_with("CONNECT ") {
        connection.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
        let mut inner = acceptor.accept(connection).await?;
        let head = self::head(&mut inner).await?;
        return answer(&mut inner, head, site).await;
    }
    answer(&mut connection, head, site).await
}

async fn head(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    Ok(String::from_utf8(head).unwrap())
}

async fn answer(stream: &mut (impl AsyncWrite + Unpin), head: String, site: &Site) -> io::Result<()> {
    let path = head.split(' ').nth(1).unwrap().to_owned();
    let field =
        |name: &str| head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix(name).map(str::to_owned));
    let full = format!("{}{path}", field("host: ").unwrap());
    let from: usize = field("range: bytes=").map_or(0, |range| range.trim_end_matches('-').parse().unwrap());
    let page = {
        let pages = site.pages.lock().unwrap();
        pages.get(&full).or_else(|| pages.get(&path)).cloned()
    };
    site.requests.lock().unwrap().push(head);
    let close = "Connection: close\r\n";
    let is_stuck = matches!(page, Some(Page::Stuck(..)));
    let (start, body) = match page {
        None => (format!("404 Not Found\r\nContent-Length: 0\r\n{close}"), Vec::new()),
        Some(Page::Elsewhere(url)) => {
            (format!("302 Found\r\nLocation: {url}\r\nContent-Length: 0\r\n{close}"), Vec::new())
        }
        Some(Page::Cut(body, at) | Page::Stuck(body, at)) => {
            (format!("200 OK\r\nContent-Length: {}\r\n{close}", body.len()), body[..at].to_vec())
        }
        Some(Page::Body(body)) if from > 0 && from >= body.len() => {
            (format!("416 Range Not Satisfiable\r\nContent-Length: 0\r\n{close}"), Vec::new())
        }
        Some(Page::Body(body)) => {
            let status = if from > 0 { "206 Partial Content" } else { "200 OK" };
            (format!("{status}\r\nContent-Length: {}\r\n{close}", body.len() - from), body[from..].to_vec())
        }
    };
    stream.write_all(format!("HTTP/1.1 {start}\r\n").as_bytes()).await?;
    stream.write_all(&body).await?;
    if is_stuck {
        std::future::pending::<()>().await;
    }
    stream.shutdown().await
}

fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("inventory.yaml", INVENTORY);
    folder
}

fn add(folder: &Folder, words: &str, web: &Web) -> Said {
    let url = web.url();
    let words = words.split(' ').filter(|word| !word.is_empty());
    folder.run(&["releases", "add"].into_iter().chain(words).chain(["--from", &url]).collect::<Vec<_>>())
}

/// The whole inventory with a release more, right below the other.
fn with_entry(at: &str, sum: &str) -> String {
    let entry = format!("# the old one\n  3.6.15:\n    {at}\n    sha256: {sum}\n");
    INVENTORY.replace("# the old one\n", &entry)
}

/// As it is written: quoted where it begins with a digit.
fn sum(bytes: &[u8]) -> String {
    let sum = hex(sha256(bytes));
    if sum.starts_with(|letter: char| letter.is_ascii_digit()) { format!("{sum:?}") } else { sum }
}

#[test]
fn a_release_is_listed_with_its_published_checksum() {
    let web = Web::with_release(b"tarball");
    let folder = folder();
    // A cluster has the version that is to be added, so nothing loads before.
    folder.run(&["lint"]).ends(5);
    let check = add(&folder, "3.6.15 --check", &web).ends(0);
    assert!(check.stdout.contains("+  3.6.15:\n") && check.stdout.contains("would be added to"), "{}", check.stdout);
    assert_eq!(folder.read("inventory.yaml"), INVENTORY);
    let said = add(&folder, "v3.6.15", &web).ends(0);
    assert!(said.stdout.starts_with("etcd 3.6.15 added to inventory.yaml: http://127.0.0.1:"), "{}", said.stdout);
    assert!(said.stderr.contains("is not encrypted"), "{}", said.stderr);
    let wanted = with_entry(&format!("url: \"{}/v3.6.15/{TARBALL}\"", web.url()), &sum(b"tarball"));
    assert_eq!(folder.read("inventory.yaml"), wanted);
    folder.run(&["lint", "site.yaml", "upgrade.yaml"]).ends(0);
    let again = add(&folder, "3.6.15 3.6.15", &web).ends(0);
    assert_eq!(again.stdout, "etcd 3.6.15 is listed already, with this checksum\n");
    let document: Value = serde_json::from_str(&add(&folder, "3.6.15 --json", &web).ends(0).stdout).unwrap();
    assert_eq!(
        (&document["added"], &document["unchanged"][0]["version"]),
        (&Value::Array(Vec::new()), &"3.6.15".into())
    );
    assert_eq!(folder.read("inventory.yaml"), wanted);
}

#[test]
fn a_release_with_another_checksum_is_an_error_that_names_both() {
    let web = Web::with_release(b"tarball");
    let folder = folder();
    add(&folder, "3.6.15", &web).ends(0);
    let before = folder.read("inventory.yaml");
    web.put("/etcd/v3.6.15/SHA256SUMS", format!("{}  {TARBALL}\n", hex(sha256("other"))).as_bytes());
    let said = add(&folder, "3.6.15", &web).ends(5);
    for sum in [hex(sha256("tarball")), hex(sha256("other"))] {
        assert!(said.stderr.contains(&sum), "{}", said.stderr);
    }
    assert!(said.stderr.contains("remove the entry from inventory.yaml"), "{}", said.stderr);
    assert_eq!(folder.read("inventory.yaml"), before);
}

#[test]
fn what_cannot_be_added_is_refused() {
    let web = Web::with_release(b"tarball");
    let folder = folder();
    for (words, why) in [
        ("3.6", "`3.6` is not a version of etcd; expected a full version like 3.5.34"),
        ("3.6.0-rc.1", "is not a version of etcd"),
        ("3.3.27", "etcd 3.3.27 is not supported; 3.4 to 3.7 are"),
        ("3.8.0", "etcd 3.8.0 is not supported"),
        ("3.5.1", "etcd 3.5.1 can lose data"),
        ("3.6.99 3.6.15", "there is no etcd 3.6.99 at http://127.0.0.1"),
        ("3.6.14", "inventory.yaml:6:22: error: etcd 3.6.15 is not in `etcd_releases`"),
        ("3.6.15 --arch arm64", "does not list etcd-v3.6.15-linux-arm64.tar.gz"),
        ("3.6.15 --into other.yaml", "other.yaml is not a plain file of the inventory"),
    ] {
        let said = add(&folder, words, &web).ends(5);
        assert!(said.stderr.contains(why), "{words}: {}", said.stderr);
    }
    for (from, why) in
        [("nowhere", "`nowhere` is neither a directory nor a URL"), ("ftp://x/", "is neither a directory")]
    {
        let said = folder.run(&["releases", "add", "3.6.15", "--from", from]).ends(5);
        assert!(said.stderr.contains(why), "{}", said.stderr);
    }
    // All of them, or none.
    assert_eq!(folder.read("inventory.yaml"), INVENTORY);
    // Bad input is found before anything is asked for.
    web.requests("");
    folder.write("inventory.yaml", &INVENTORY.replace("address", "adress"));
    let said = add(&folder, "3.6.15", &web).ends(5);
    assert!(said.stderr.contains("inventory.yaml:7:") && said.stderr.contains("adress"), "{}", said.stderr);
    assert_eq!(web.requests(""), [""; 0]);
}

#[test]
fn a_download_that_breaks_is_continued() {
    let body: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let web = Web::with_release(&body);
    let folder = folder();
    let (path, file) = (format!("/etcd/v3.6.15/{TARBALL}"), format!("bin/{TARBALL}"));
    web.page(&path, Page::Elsewhere("/files/etcd".into()));
    web.page("/files/etcd", Page::Cut(body.clone(), 100_000));
    let said = add(&folder, "3.6.15 --download bin", &web).ends(4);
    assert!(
        said.stderr.contains("was interrupted after") && said.stderr.contains("continues where it stopped"),
        "{}",
        said.stderr
    );
    assert!(!folder.path(&file).exists() && folder.path(&format!("{file}.part")).exists());
    assert_eq!(folder.read("inventory.yaml"), INVENTORY);

    web.put("/files/etcd", &body);
    web.requests("");
    let said = add(&folder, "3.6.15 --download bin", &web).ends(0);
    assert!(said.stdout.contains("was downloaded and has the published checksum"), "{}", said.stdout);
    let ranges: Vec<bool> = web.requests("/files/etcd").iter().map(|head| head.contains("range: bytes=")).collect();
    assert_eq!(ranges, [true]);
    assert!(fs::read(folder.path(&file)).unwrap() == body);
    assert_eq!(fs::read_dir(folder.path("bin")).unwrap().count(), 1, "no part is left");
    assert_eq!(folder.read("inventory.yaml"), with_entry(&format!("file: {file}"), &sum(&body)));
    // What is there is not downloaded again.
    folder.write("inventory.yaml", INVENTORY);
    let said = add(&folder, "3.6.15 --download bin", &web).ends(0);
    assert!(said.stdout.contains("is there already"), "{}", said.stdout);
    assert_eq!(web.requests(TARBALL).len() + web.requests("/files").len(), 0);
}

#[test]
fn one_process_downloads_until_a_person_stops_it() {
    let web = Web::with_release(&[7; 50_000]);
    let folder = folder();
    let path = format!("/etcd/v3.6.15/{TARBALL}");
    web.page(&path, Page::Stuck(vec![7; 50_000], 20_000));
    let url = web.url();
    let words = ["releases", "add", "3.6.15", "--download", "bin", "--from", &url];
    let part = folder.path(&format!("bin/{TARBALL}.part"));
    let size = || fs::metadata(&part).map_or(0, |found| found.len());
    let child = folder.command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until(|| size() == 20_000);
    let other = folder.run(&words).ends(5);
    assert!(other.stderr.contains("another etcdrun downloads bin/"), "{}", other.stderr);
    signal(i32::try_from(child.id()).unwrap(), Signal::INT);
    let said = Said::of(child.wait_with_output().unwrap()).ends(130);
    assert!(said.stderr.contains("is kept; to continue, run the command again"), "{}", said.stderr);
    assert_eq!((size(), folder.read("inventory.yaml").as_str()), (20_000, INVENTORY));
    web.put(&path, &[7; 50_000]);
    folder.run(&words).ends(0);
    assert_eq!(fs::metadata(folder.path(&format!("bin/{TARBALL}"))).unwrap().len(), 50_000);
}

#[test]
fn a_download_with_another_checksum_is_not_kept() {
    let web = Web::with_release(b"tarball");
    let folder = folder();
    web.put(&format!("/etcd/v3.6.15/{TARBALL}"), b"tarball of another");
    // A part of something else does not spoil what is right, and does not save what is wrong.
    folder.write(&format!("bin/{TARBALL}.part"), "tar");
    let said = add(&folder, "3.6.15 --download bin", &web).ends(1);
    for sum in [hex(sha256("tarball")), hex(sha256("tarball of another"))] {
        assert!(said.stderr.contains(&sum), "{}", said.stderr);
    }
    assert_eq!(fs::read_dir(folder.path("bin")).unwrap().count(), 0);
    assert_eq!(folder.read("inventory.yaml"), INVENTORY);
    web.put(&format!("/etcd/v3.6.15/{TARBALL}"), b"tarball");
    folder.write(&format!("bin/{TARBALL}.part"), "something that is longer than the tarball");
    add(&folder, "3.6.15 --download bin", &web).ends(0);
    assert_eq!(folder.read(&format!("bin/{TARBALL}")), "tarball");
    // A file of that name that is something else stays, and is not listed.
    folder.write("inventory.yaml", INVENTORY).write(&format!("bin/{TARBALL}"), "mine");
    let said = add(&folder, "3.6.15 --download bin", &web).ends(1);
    assert!(said.stderr.contains(&hex(sha256("mine"))), "{}", said.stderr);
    assert_eq!(
        (folder.read(&format!("bin/{TARBALL}")).as_str(), folder.read("inventory.yaml").as_str()),
        ("mine", INVENTORY)
    );
}

/// The official place, its redirects and its list of releases, through a proxy and with a CA of one's own.
#[test]
fn the_official_place_is_asked_through_a_proxy() {
    let web = Web::start();
    let folder = folder();
    let official = "github.com/etcd-io/etcd/releases/download/v3.6.15";
    web.put(&format!("{official}/SHA256SUMS"), format!("{}  {TARBALL}\n", hex(sha256("tarball"))).as_bytes());
    web.page(&format!("{official}/{TARBALL}"), Page::Elsewhere("https://files.example.org/x?token=y".into()));
    web.put("files.example.org/x?token=y", b"tarball");
    folder.write("ca.pem", &web.ca);
    let run = |words: &[&str], ca: &str| {
        let mut command = folder.command(words);
        command.env("HTTPS_PROXY", format!("http://127.0.0.1:{}", web.port)).env("SSL_CERT_FILE", folder.path(ca));
        Said::of(command.env_remove("https_proxy").env_remove("no_proxy").env_remove("NO_PROXY").output().unwrap())
    };
    let untrusted = run(&["releases", "add", "3.6.15"], "inventory.yaml").ends(4);
    assert!(untrusted.stderr.contains("cannot connect to github.com:443"), "{}", untrusted.stderr);
    assert!(
        untrusted.stderr.contains("HTTPS_PROXY") && untrusted.stderr.contains("SSL_CERT_FILE"),
        "{}",
        untrusted.stderr
    );
    run(&["releases", "add", "3.6.15"], "ca.pem").ends(0);
    let url = format!("url: \"https://{official}/{TARBALL}\"");
    assert_eq!(folder.read("inventory.yaml"), with_entry(&url, &sum(b"tarball")));
    folder.write("inventory.yaml", INVENTORY);
    run(&["releases", "add", "3.6.15", "--download", "bin"], "ca.pem").ends(0);
    assert_eq!(folder.read(&format!("bin/{TARBALL}")), "tarball");

    let list = r#"[{"tag_name":"v3.6.16"},{"tag_name":"v3.8.0"},{"tag_name":"v3.6.17-rc.0","prerelease":true}]"#;
    web.put("api.github.com/repos/etcd-io/etcd/releases?per_page=100", list.as_bytes());
    let checked = run(&["releases", "check", "--online"], "ca.pem").ends(2);
    assert!(
        checked.stdout.contains("! 3.6.15: 3.6.16 is the newest 3.6; run `etcdrun releases add 3.6.16`"),
        "{}",
        checked.stdout
    );
    assert!(checked.stdout.contains("etcd 3.8.0 has been published"), "{}", checked.stdout);
}

#[test]
fn releases_come_from_a_directory() {
    let web = Web::start();
    let folder = folder();
    let from = |folder: &Folder, words: &str| {
        folder.run(&["releases", "add"].into_iter().chain(words.split(' ')).collect::<Vec<_>>())
    };
    folder.write(&format!("dist/{TARBALL}"), "tarball");
    let said = from(&folder, "3.6.15 --from dist").ends(5);
    assert!(said.stderr.contains("there is no SHA256SUMS in dist"), "{}", said.stderr);
    folder.write("dist/SHA256SUMS", &format!("{}  {TARBALL}\n", hex(sha256("other"))));
    let said = from(&folder, "3.6.15 --from dist").ends(1);
    assert!(
        said.stderr.contains(&hex(sha256("other"))) && said.stderr.contains(&hex(sha256("tarball"))),
        "{}",
        said.stderr
    );
    folder.write("dist/SHA256SUMS", &format!("{}  {TARBALL}\n", hex(sha256("tarball"))));
    let said = from(&folder, "3.6.15 --from dist").ends(0);
    assert!(said.stdout.contains("has the published checksum"), "{}", said.stdout);
    assert_eq!(folder.read("inventory.yaml"), with_entry(&format!("file: dist/{TARBALL}"), &sum(b"tarball")));
    folder.write("inventory.yaml", INVENTORY);
    from(&folder, "3.6.15 --from dist --download bin").ends(0);
    assert_eq!(folder.read(&format!("bin/{TARBALL}")), "tarball");
    assert!(folder.read("inventory.yaml").contains(&format!("file: bin/{TARBALL}\n")));

    // A binary has to be one for the members, and cannot be compared with anything that is published.
    folder.write("inventory.yaml", INVENTORY).write("bare/etcd-3.6.15", "#!/bin/sh\n");
    let said = from(&folder, "3.6.15 --from bare").ends(5);
    assert!(said.stderr.contains("is not a binary for amd64 or arm64, expected a binary for amd64"), "{}", said.stderr);
    let (arch, machine) = if std::env::consts::ARCH == "x86_64" { ("arm64", 183) } else { ("amd64", 62) };
    let mut elf = b"\x7fELF\x02".to_vec();
    elf.resize(64, 0);
    elf[18] = machine;
    fs::write(folder.path("bare/etcd-3.6.15"), &elf).unwrap();
    let said = from(&folder, &format!("3.6.15 --from bare --arch {arch}")).ends(0);
    assert!(said.stderr.contains("no checksum is published for a binary without its tarball"), "{}", said.stderr);
    assert_eq!(folder.read("inventory.yaml"), with_entry("file: bare/etcd-3.6.15", &sum(&elf)));
    assert_eq!(web.requests(""), [""; 0]);
}

#[test]
fn the_file_that_lists_releases_is_edited() {
    let web = Web::with_release(b"tarball");
    let folder = Folder::new();
    let (releases, clusters) = INVENTORY.split_once("clusters:").unwrap();
    folder.write("inventory/a.yaml", "vars: {}\n").write("inventory/b.yaml", &format!("clusters:{clusters}"));
    add(&folder, "3.6.15", &web).ends(0);
    assert!(folder.read("inventory/b.yaml").contains("\n\netcd_releases:\n  3.6.15:\n"));
    folder.write("inventory/b.yaml", &format!("clusters:{clusters}")).write("inventory/c.yaml", releases);
    add(&folder, "3.6.15", &web).ends(0);
    assert!(folder.read("inventory/c.yaml").contains("# the old one\n  3.6.15:\n"));
    // One that is listed in another file is listed.
    folder.write("inventory/a.yaml", "etcd_releases: {}\n");
    let several = add(&folder, "3.7.2", &web).ends(5);
    assert!(
        several.stderr.contains("choose one with --into: inventory/a.yaml, inventory/c.yaml"),
        "{}",
        several.stderr
    );
    let listed = add(&folder, "3.6.15 --into inventory/a.yaml", &web).ends(0);
    assert!(listed.stdout.contains("is listed already"), "{}", listed.stdout);
    // What has no certain place for an entry is left to a person.
    let alias = "vars: { r: &r {} }\netcd_releases: *r\n";
    folder.write("inventory/c.yaml", alias).write("inventory/a.yaml", "vars: {}\n");
    let said = add(&folder, "3.6.15", &web).ends(5);
    assert!(said.stderr.contains("cannot edit inventory/c.yaml: "), "{}", said.stderr);
    assert!(said.stderr.contains("yourself:") && said.stderr.contains("  3.6.15:"), "{}", said.stderr);
    assert_eq!(folder.read("inventory/c.yaml"), alias);
}

#[test]
fn releases_are_checked() {
    let web = Web::with_release(b"tarball");
    let folder = Folder::new();
    let zeros = "0".repeat(64);
    let inventory = |releases: &str| {
        format!(
            "etcd_releases:\n{releases}clusters:\n  prod:\n    etcd: {{ version: 3.5.28 }}\n    members: {{ a: {{ address: 192.0.2.1 }} }}\n  new:\n    etcd: {{ version: 3.6.15 }}\n    members: {{ b: {{ address: 192.0.2.2 }} }}\n"
        )
    };
    let (url, sum) = (format!("{}/v3.6.15/{TARBALL}", web.url()), hex(sha256("binary")));
    folder.write("bin/etcd-3.5.28", "binary").write(
        "inventory.yaml",
        &inventory(&format!(
            "  3.4.45: {{ file: bin/none, sha256: \"{zeros}\" }}\n  3.5.28: {{ file: bin/etcd-3.5.28, sha256: \"{sum}\" }}\n  3.6.15: {{ url: \"{url}\", sha256: \"{zeros}\" }}\n"
        )),
    );
    let said = folder.run(&["releases", "check"]).ends(2);
    let lines: Vec<String> =
        said.stdout.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(
        lines[..4],
        [
            "VERSION USED BY NEWEST SOURCE STATE",
            "3.4.45 - 3.4.45 file file-missing, end-of-life, unused",
            "3.5.28 prod 3.5.34 file advisories, outdated",
            "3.6.15 new 3.6.15 url ok",
        ]
    );
    for told in [
        "bin/none does not exist",
        "GHSA-xg4h-6gfc-h4m8",
        "fixed in 3.5.33",
        "`etcdrun releases add 3.5.34`",
        "--online",
    ] {
        assert!(said.stdout.contains(told), "{told}: {}", said.stdout);
    }
    let document: Value = serde_json::from_str(&folder.run(&["releases", "check", "--json"]).ends(2).stdout).unwrap();
    let row = &document["releases"][1];
    assert_eq!(
        (&row["version"], &row["clusters"][0], &row["newest"]),
        (&"3.5.28".into(), &"prod".into(), &"3.5.34".into())
    );
    assert_eq!((&row["problems"][0]["kind"], &document["asked"]), (&"advisories".into(), &Value::Null));

    // A mirror knows later ones; what does not answer is a problem.
    web.put("/etcd/", b"<a href=\"v3.6.16/\">v3.6.16/</a>");
    let mirror = web.url();
    let online = ["releases", "check", "--online", "--from", &mirror];
    let said = folder.run(&online).ends(2);
    assert!(said.stdout.contains("! 3.6.15: 3.6.16 is the newest 3.6"), "{}", said.stdout);
    assert!(!said.stdout.contains("url-fails"), "{}", said.stdout);
    web.site.pages.lock().unwrap().remove(&format!("/etcd/v3.6.15/{TARBALL}"));
    let said = folder.run(&online).ends(2);
    assert!(said.stdout.contains("url-fails") && said.stdout.contains("answers 404 Not Found"), "{}", said.stdout);
    web.put("/etcd/", b"nothing");
    assert!(folder.run(&online).ends(5).stderr.contains("lists no release of etcd"));

    // Nothing to do.
    folder.write(
        "inventory.yaml",
        &inventory(&format!("  3.5.34: {{ file: bin/etcd-3.5.28, sha256: \"{sum}\" }}\n"))
            .replace("3.5.28 }", "3.5.34 }")
            .replace("3.6.15", "3.5.34"),
    );
    let said = folder.run(&["releases", "check"]).ends(0);
    assert!(said.stdout.contains("3.5.34   new,prod  3.5.34  file    ok\n"), "{}", said.stdout);
    folder.write("bin/etcd-3.5.28", "damaged");
    assert!(folder.run(&["releases", "check"]).ends(2).stdout.contains("file-differs"));
}
