//! `fetch`, `download` and `unarchive`.

use std::{
    fs,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::bench::{Bench, everywhere, over_ssh};

#[tokio::test]
async fn a_file_is_fetched_once() {
    everywhere(async |bench: Bench| {
        let body: Vec<u8> = (0..=255).cycle().take(300_000).collect();
        bench.write("f", &body);
        let args = json!({"src": bench.at("f"), "dest": "got"});
        let here = bench.files.path().join(format!("got/h1{}", bench.at("f")));
        let plan = bench.check("fetch", args.clone()).await;
        assert!(plan.changed && !here.exists(), "{}: {plan:?}", bench.target);
        let outcome = bench.run("fetch", args.clone()).await;
        assert!(outcome.changed, "{}: {outcome:?}", bench.target);
        assert!(fs::read(&here).unwrap() == body, "{}", bench.target);
        assert_eq!(fs::read_dir(here.parent().unwrap()).unwrap().count(), 1, "no scratch file is left");
        bench.settled("fetch", args).await;
        let flat = json!({"src": bench.at("f"), "dest": "flat/", "flat": true});
        assert!(bench.run("fetch", flat).await.changed);
        assert!(bench.files.path().join("flat/f").exists());
        bench.fails("fetch", json!({"src": bench.at("nope"), "dest": "x"}), "does not exist").await;
        bench.settled("fetch", json!({"src": bench.at("nope"), "dest": "x", "fail_on_missing": false})).await;
        bench.fails("fetch", json!({"src": bench.at(""), "dest": "x"}), "is a directory").await;
    })
    .await;
}

/// Serves one body at every path, and counts how often.
struct Server {
    port: u16,
    hits: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    async fn start(body: &'static [u8]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let hits = Arc::new(AtomicUsize::new(0));
        let counter = hits.clone();
        let task = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    let Ok(byte) = stream.read_u8().await else { break };
                    request.push(byte);
                }
                counter.fetch_add(1, Ordering::SeqCst);
                let request = String::from_utf8_lossy(&request).into_owned();
                let head = match request {
                    r if r.starts_with("GET /moved") => "HTTP/1.1 302 Found\r\nLocation: /file.bin\r\n".to_owned(),
                    r if r.starts_with("GET /secret") && !r.contains("s3cret") => "HTTP/1.1 403 No\r\n".to_owned(),
                    r if r.starts_with("GET /gone") => "HTTP/1.1 404 Not Found\r\n".to_owned(),
                    _ => "HTTP/1.1 200 OK\r\n".to_owned(),
                };
                let length = if head.contains("200") { body.len() } else { 0 };
                let head = format!("{head}Content-Length: {length}\r\nConnection: close\r\n\r\n");
                let _ = stream.write_all(head.as_bytes()).await;
                let _ = stream.write_all(&body[..length]).await;
            }
        });
        Self { port, hits, task }
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.port)
    }

    fn hits(&self) -> usize {
        self.hits.swap(0, Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

const BODY: &[u8] = b"hello\n";
const SUM: &str = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";

#[tokio::test]
async fn a_download_is_verified_and_not_repeated() {
    everywhere(async |bench: Bench| {
        let server = Server::start(BODY).await;
        for via in ["auto", "operator"] {
            let dest = bench.at(via);
            let args = json!({"url": server.url("file.bin"), "dest": dest, "sha256": SUM, "mode": "0640", "via": via});
            bench.converges("download", args).await;
            assert_eq!((bench.read(via).as_str(), bench.mode(via)), ("hello\n", 0o640), "{}", bench.target);
            assert_eq!(server.hits(), 1, "{} {via}: asked for once", bench.target);
            let wrong = "0".repeat(64);
            let args = json!({"url": server.url("file.bin"), "dest": dest, "sha256": wrong, "via": via});
            bench.fails("download", args, "expected 0000").await;
            let args = json!({"url": server.url("gone"), "dest": bench.at("x"), "sha256": SUM, "via": via});
            bench.fails("download", args, "404").await;
            server.hits();
        }
    })
    .await;
}

#[tokio::test]
async fn redirects_headers_names_and_unverified_files() {
    everywhere(async |bench: Bench| {
        let server = Server::start(BODY).await;
        fs::create_dir(bench.path("d")).unwrap();
        bench.converges("download", json!({"url": server.url("moved"), "dest": bench.at("d"), "sha256": SUM})).await;
        assert_eq!(bench.read("d/moved"), "hello\n");
        let args = json!({"url": server.url("secret?x=1"), "dest": bench.at("d/"), "sha256": SUM, "headers": {"X-Key": "a \"s3cret\\"}});
        bench.converges("download", args).await;
        assert_eq!(bench.read("d/secret"), "hello\n");
        let args = json!({"url": server.url("u"), "dest": bench.at("u"), "unverified": true});
        bench.converges("download", args).await;
        bench.write("u", "mine");
        bench.settled("download", json!({"url": server.url("u"), "dest": bench.at("u"), "unverified": true})).await;
        let forced = json!({"url": server.url("u"), "dest": bench.at("u"), "unverified": true, "force": true});
        assert!(bench.check("download", forced.clone()).await.unknown, "{}", bench.target);
        assert!(bench.run("download", forced.clone()).await.changed, "{}", bench.target);
        assert!(!bench.run("download", forced).await.changed, "{}", bench.target);
        assert_eq!(bench.read("u"), "hello\n");
    })
    .await;
}

#[tokio::test]
async fn bad_downloads_are_refused() {
    over_ssh(async |bench: Bench| {
        let refused =
            |url: &str, sha256: &str| bench.refuses("download", json!({"url": url, "dest": "/x", "sha256": sha256}));
        assert!(refused("ftp://x/y", SUM).contains("must start with http"));
        assert!(refused("http://x/y", "abc").contains("not a SHA-256 checksum"));
        assert!(bench.refuses("download", json!({"url": "http://x/y", "dest": "/x"})).contains("needs `sha256`"));
        let header = json!({"url": "http://x/y", "dest": "/x", "sha256": SUM, "headers": {"X": "a\nb"}});
        assert!(bench.refuses("download", header).contains("HTTP header"));
        // The target has no way to the server, nor has the operator.
        let closed = json!({"url": "http://127.0.0.1:1/x", "dest": bench.at("x"), "sha256": SUM});
        bench.fails("download", closed, "cannot connect to 127.0.0.1:1").await;
    })
    .await;
}

/// Makes the archives of one folder: `a`, `sub/b c` and an executable.
fn pack(bench: &Bench) {
    bench.give("pkg/a", "a\n");
    bench.give("pkg/sub/b c", "b\n");
    bench.give("pkg/.hidden", "h\n");
    let script = "cd \"$1\" && chmod 755 pkg/a && tar -cf p.tar pkg && tar -czf p.tar.gz pkg && tar -cJf p.tar.xz pkg \
         && tar -cjf p.tar.bz2 pkg && zip -qr p.zip pkg";
    let output = Command::new("sh").args(["-c", script, "sh"]).arg(bench.files.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn archives_are_unpacked_once() {
    everywhere(async |bench: Bench| {
        pack(&bench);
        for name in ["p.tar", "p.tar.gz", "p.tar.xz", "p.tar.bz2", "p.zip"] {
            let to = format!("to-{name}");
            fs::create_dir(bench.path(&to)).unwrap();
            bench.set_mode(&to, 0o710);
            bench.converges("unarchive", json!({"src": name, "dest": bench.at(&to)})).await;
            assert_eq!(bench.read(&format!("{to}/pkg/sub/b c")), "b\n", "{} {name}", bench.target);
            assert_eq!(bench.mode(&format!("{to}/pkg/a")), 0o755, "{} {name}", bench.target);
            assert_eq!(bench.mode(&to), 0o710, "{} {name}: the directory itself stays as it is", bench.target);
        }
    })
    .await;
}

#[tokio::test]
async fn what_was_unpacked_is_watched() {
    everywhere(async |bench: Bench| {
        pack(&bench);
        fs::create_dir(bench.path("d")).unwrap();
        bench.write("d/other", "kept");
        fs::copy(bench.files.path().join("p.tar.gz"), bench.path("p.tgz")).unwrap();
        let args = json!({"src": bench.at("p.tgz"), "remote_src": true, "dest": bench.at("d"), "strip_components": 1,
            "owner": "nobody", "group": "daemon"});
        bench.converges("unarchive", args.clone()).await;
        assert_eq!(bench.read("d/.hidden"), "h\n", "{}", bench.target);
        assert_eq!(super::bench::owner(&bench.path("d/sub/b c")), (65534, 1), "{}", bench.target);
        bench.write("d/a", "changed");
        bench.converges("unarchive", args.clone()).await;
        fs::remove_file(bench.path("d/sub/b c")).unwrap();
        bench.converges("unarchive", args.clone()).await;
        assert_eq!((bench.read("d/a").as_str(), bench.read("d/other").as_str()), ("a\n", "kept"));
        // A program that runs cannot be written to, only replaced.
        let creates = json!({"src": "p.tar", "dest": bench.at("d"), "creates": bench.at("d/a")});
        bench.settled("unarchive", creates).await;
    })
    .await;
}

#[tokio::test]
async fn bad_archives_are_refused() {
    everywhere(async |bench: Bench| {
        bench.give("broken.tar.gz", "not an archive");
        fs::create_dir(bench.path("d")).unwrap();
        bench
            .fails("unarchive", json!({"src": "broken.tar.gz", "dest": bench.at("d")}), "cannot unpack broken.tar.gz")
            .await;
        bench.fails("unarchive", json!({"src": "broken.tar.gz", "dest": bench.at("no")}), "does not exist").await;
        assert!(bench.refuses("unarchive", json!({"src": "x.rar", "dest": "/x"})).contains("no file extension"));
        let zip = json!({"src": "x.zip", "dest": "/x", "strip_components": 1});
        assert!(bench.refuses("unarchive", zip).contains("strip_components"));
        let gone = json!({"src": bench.at("gone.tar"), "dest": bench.at("d"), "remote_src": true});
        bench.fails("unarchive", gone.clone(), "is not a file on this host").await;
        assert!(bench.check("unarchive", gone).await.unknown);
    })
    .await;
}
