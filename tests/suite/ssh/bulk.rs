//! Much data and many hosts, over a real sshd.
use std::time::Duration;

use crate::support::{Sshd, options};
use bytes::Bytes;
use etcdrun::ssh::{Connector, ExecEvent, ExitStatus};

const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;

/// The most memory this process has ever had, in MiB.
fn peak_memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    let kib: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib / 1024
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gibibyte_goes_each_way_while_the_keys_are_renewed() {
    let sshd = Sshd::builder().config("RekeyLimit 64M").config("LogLevel DEBUG1").start();
    let connector = Connector::new(options(&sshd.path(""))).unwrap();
    let connection = connector.connect(&sshd.endpoint("h1", "127.0.1.1")).await.unwrap();

    // Up: the far end counts. Down: we do. Both at once would only compete for the processor.
    let (mut writer, mut reader) = connection.exec("wc -c").await.unwrap().split();
    let block = Bytes::from(vec![0x5a; MIB]);
    let upload = tokio::spawn(async move {
        for _ in 0..GIB / MIB {
            writer.write(block.clone()).await.unwrap();
        }
        writer.eof().await.unwrap();
    });
    let mut counted = Vec::new();
    while let Some(event) = reader.next().await.unwrap() {
        match event {
            ExecEvent::Stdout(bytes) => counted.extend_from_slice(&bytes),
            other => assert_eq!(other, ExecEvent::Exit(ExitStatus { code: 0 })),
        }
    }
    upload.await.unwrap();
    assert_eq!(String::from_utf8(counted).unwrap().trim(), GIB.to_string());

    let mut exec = connection.exec(&format!("head -c {GIB} /dev/zero")).await.unwrap();
    exec.eof().await.unwrap();
    let mut received = 0;
    while let Some(event) = exec.next().await.unwrap() {
        match event {
            ExecEvent::Stdout(bytes) => {
                assert!(bytes.iter().all(|&byte| byte == 0));
                received += bytes.len();
            }
            other => assert_eq!(other, ExecEvent::Exit(ExitStatus { code: 0 })),
        }
    }
    assert_eq!(received, GIB);

    let log = std::fs::read_to_string(sshd.path("sshd.log")).unwrap();
    let exchanges = log.matches("SSH2_MSG_NEWKEYS received").count();
    assert!(exchanges > 16, "the keys were exchanged {exchanges} times");
    assert!(peak_memory() < 200, "{} MiB", peak_memory());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_hosts_at_once() {
    let sshd = Sshd::start();
    let connector = Connector::new(options(&sshd.path(""))).unwrap();
    let hosts: Vec<_> = (1..=200).map(Sshd::host).collect();
    let work = hosts.iter().map(|(name, address)| {
        let (connector, endpoint) = (connector.clone(), sshd.endpoint(name, address));
        async move {
            let connection = connector.connect(&endpoint).await?;
            connection.exec("echo $SSH_CONNECTION").await?.output("").await
        }
    });
    let all = futures_util::future::join_all(work);
    let outputs = tokio::time::timeout(Duration::from_secs(120), all).await.unwrap();
    for ((name, address), output) in hosts.iter().zip(outputs) {
        let output = output.unwrap_or_else(|error| panic!("{name}: {error}"));
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.split_whitespace().nth(2), Some(address.as_str()), "{name}");
    }
}
