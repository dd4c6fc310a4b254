//! wait_for.

use std::{fs, net::TcpListener, time::Duration};

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{
    support::{Sshd, run_module, session},
    target::Target,
};

/// A port that nobody listens on. Held by a bound socket until it is dropped.
fn closed_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Answers every request in the same way until the test ends.
async fn server(answer: &'static str) -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    port
}

#[tokio::test]
async fn an_open_port_is_found_through_the_target() {
    let target = Target::ssh();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    target.stays("wait_for", json!({ "port": port })).await;
    target.stays("wait_for", json!({ "port": port, "from": "operator" })).await;
    let msg = target
        .fails("wait_for", json!({ "port": port, "state": "stopped", "timeout": "300ms", "sleep": "50ms" }))
        .await;
    assert_eq!(msg, format!("waited 300ms for 127.0.0.1:{port} to go away: it is still there"));
    drop(listener);
    target.stays("wait_for", json!({ "port": port, "state": "stopped" })).await;
}

#[tokio::test]
async fn a_port_that_opens_later_ends_the_wait() {
    let (target, port) = (Target::ssh(), closed_port());
    let opener = tokio::task::spawn_blocking(move || {
        std::thread::sleep(Duration::from_millis(300));
        TcpListener::bind(("127.0.0.1", port)).unwrap()
    });
    let outcome = target.run("wait_for", json!({ "port": port, "sleep": "20ms", "timeout": 30 })).await;
    assert!(!outcome.failed && !outcome.changed && outcome.data.contains_key("elapsed"), "{outcome:?}");
    drop(opener.await.unwrap());
}

#[tokio::test]
async fn a_wait_in_vain_says_why_and_a_plan_does_not_wait() {
    let (target, port) = (Target::ssh(), closed_port());
    let args = json!({ "port": port, "timeout": "200ms", "sleep": "50ms" });
    let msg = target.fails("wait_for", args.clone()).await;
    assert_eq!(msg, format!("waited 200ms for 127.0.0.1:{port}: the connection failed there"));
    let mut own = args;
    own["msg"] = json!("etcd does not come up");
    assert_eq!(target.fails("wait_for", own).await, "etcd does not come up (the connection failed there)");
    let plan = target.check("wait_for", json!({ "port": port, "timeout": 1000 })).await;
    assert!(plan.unknown && !plan.failed && plan.msg.starts_with("would wait for"), "{plan:?}");
}

#[tokio::test]
async fn a_server_that_forbids_forwarding_is_not_taken_for_a_closed_port() {
    let sshd = Sshd::builder().config("AllowTcpForwarding no").start();
    let args = json!({ "port": closed_port(), "state": "stopped" }).to_string();
    let outcome = run_module(&session(&sshd), "wait_for", &args, false).await;
    assert!(outcome.failed && outcome.msg.contains("forbids forwarding"), "{outcome:?}");
    let url = json!({ "url": format!("http://127.0.0.1:{}/", closed_port()), "state": "absent" }).to_string();
    let outcome = run_module(&session(&sshd), "wait_for", &url, false).await;
    assert!(outcome.failed && outcome.msg.contains("forbids forwarding"), "{outcome:?}");
}

#[tokio::test]
async fn a_path_is_waited_for_and_searched() {
    for target in Target::all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a file");
        target.stays("wait_for", json!({ "path": path, "state": "absent" })).await;
        fs::write(&path, "starting\nready at 12:30\n").unwrap();
        target.stays("wait_for", json!({ "path": path })).await;
        let found = target.stays("wait_for", json!({ "path": path, "search_regex": "^ready at (\\d+):(\\d+)$" })).await;
        assert_eq!(found.data["match"], json!(["ready at 12:30", "12", "30"]));
        let args = json!({ "path": path, "search_regex": "stopped", "timeout": "100ms", "sleep": "20ms" });
        let msg = target.fails("wait_for", args).await;
        assert!(msg.ends_with("`stopped` is not found in it"), "{msg}");
    }
}

#[tokio::test]
async fn a_url_is_asked_through_the_target_or_directly() {
    let target = Target::ssh();
    let port = server("HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\n{\"health\":\"true\"}").await;
    let url = format!("http://127.0.0.1:{port}/health");
    for from in ["target", "operator"] {
        let args = json!({ "url": url, "from": from, "search_regex": "\"health\" *: *\"(.*?)\"" });
        let outcome = target.run("wait_for", args).await;
        assert_eq!(outcome.data["match"][1], json!("true"), "{outcome:?}");
    }
    let args = json!({ "url": url, "status": [204], "timeout": "100ms", "sleep": "20ms" });
    assert!(target.fails("wait_for", args).await.ends_with("it answers 200 OK"));
    let busy = server("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n").await;
    let busy = format!("http://127.0.0.1:{busy}/");
    target.stays("wait_for", json!({ "url": busy, "status": 503 })).await;
    let msg = target.fails("wait_for", json!({ "url": busy, "timeout": "100ms", "sleep": "20ms" })).await;
    assert!(msg.ends_with("it answers 503 Service Unavailable"), "{msg}");
    target.stays("wait_for", json!({ "url": format!("http://127.0.0.1:{}/", closed_port()), "state": "absent" })).await;
}

#[tokio::test]
async fn ssh_is_awaited_across_an_outage() {
    let mut sshd = Sshd::start();
    let session = session(&sshd);
    let ready = || async { run_module(&session, "wait_for", "{ssh: true, sleep: 50ms, timeout: 60}", false).await };
    assert!(!ready().await.failed);
    sshd.kill();
    let msg = run_module(&session, "wait_for", "{ssh: true, sleep: 50ms, timeout: 200ms}", false).await.msg;
    assert!(msg.starts_with("waited 200ms for SSH"), "{msg}");
    let (outcome, _sshd) = tokio::join!(ready(), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        sshd.restart();
        sshd
    });
    assert!(!outcome.failed, "{outcome:?}");
}
