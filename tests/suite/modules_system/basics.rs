//! ping and facts.

use std::fs;

use etcdrun::{LIBRARY, modules::Facts};
use serde_json::json;

use super::{support::TempUser, target::Target};

fn first_line(path: &str) -> String {
    fs::read_to_string(path).unwrap().lines().next().unwrap().to_owned()
}

#[tokio::test]
async fn ping_answers_on_every_target() {
    for target in Target::all() {
        assert_eq!(target.stays("ping", json!({})).await.data["ping"], "pong");
        let odd = "a 'b'\n\"c\" $d\\";
        assert_eq!(target.run("ping", json!({ "data": odd })).await.data["ping"], odd);
    }
}

#[tokio::test]
async fn facts_are_the_same_on_every_road_and_true() {
    let mut seen: Vec<Facts> = Vec::new();
    for target in Target::all() {
        let outcome = target.stays("facts", json!({})).await;
        seen.push(serde_json::from_value(outcome.data["facts"].clone()).unwrap());
    }
    assert!(seen.windows(2).all(|pair| pair[0] == pair[1]), "{seen:#?}");
    let facts = &seen[0];
    assert_eq!(facts.hostname, first_line("/proc/sys/kernel/hostname"));
    assert_eq!(facts.kernel, first_line("/proc/sys/kernel/osrelease"));
    assert_eq!(facts.boot_id.as_deref(), Some(first_line("/proc/sys/kernel/random/boot_id").as_str()));
    assert_eq!((facts.user.as_str(), facts.uid), ("root", 0));
    assert_eq!(facts.arch, std::env::consts::ARCH);
    assert!(facts.cpus > 0 && facts.memory_mb > 0, "{facts:?}");
    let os_release = fs::read_to_string("/etc/os-release").unwrap();
    assert!(os_release.lines().any(|line| line.trim_matches('"') == format!("ID={}", facts.os.id)), "{facts:?}");
}

#[tokio::test]
async fn every_listed_fact_is_there() {
    let outcome = Target::ssh().run("facts", json!({})).await;
    for field in LIBRARY.facts().unwrap().1 {
        let pointer = format!("/{}", field.replace('.', "/"));
        assert!(outcome.data["facts"].pointer(&pointer).is_some(), "{field}");
    }
}

#[tokio::test]
async fn facts_name_the_user_that_asks() {
    let user = TempUser::create();
    let sshd = super::support::Sshd::builder().user(&user.name).start();
    let session = super::support::session(&sshd);
    let outcome = super::support::run_module(&session, "facts", "{}", false).await;
    assert_eq!(outcome.data["facts"]["user"], json!(user.name));
    assert_ne!(outcome.data["facts"]["uid"], json!(0));
}
