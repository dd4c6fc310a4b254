//! What the lab brings along: etcd of every minor version, and its tools.

use std::process::Command;

use etcdrun::{etcd::settings, model::Version};
use etcdrun_lab::{ETCD_VERSIONS, OLD_ETCD_RELEASES, S3, etcd, etcd_tools};

fn said(program: &std::path::Path, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output().unwrap();
    String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
}

#[test]
fn there_is_an_etcd_of_every_minor_version() {
    for version in ETCD_VERSIONS.iter().chain(&OLD_ETCD_RELEASES) {
        let etcd = etcd(version).unwrap();
        assert!(format!("{}.", etcd.version).starts_with(&format!("{version}.")), "{}", etcd.version);
        let version = said(&etcd.path, &["--version"]);
        assert!(version.starts_with(&format!("etcd Version: {}\n", etcd.version)), "{version}");
    }
}

/// Whether the server takes the flag, whatever its help says. It looks at flags before it tells its version.
fn takes(server: &std::path::Path, flag: &str) -> bool {
    !said(server, &[&format!("--{flag}="), "--version"]).contains("flag provided but not defined")
}

#[test]
fn every_server_takes_the_settings_that_are_known_of_it_and_no_others() {
    for minor in ETCD_VERSIONS {
        let server = etcd(minor).unwrap();
        let version: Version = server.version.parse().unwrap();
        let wrong: Vec<&str> =
            settings::names().filter(|name| takes(&server.path, name) != settings::has(version, name)).collect();
        assert!(wrong.is_empty(), "etcd {version}: {wrong:?}");
    }
}

#[test]
fn an_unknown_version_is_refused_with_those_at_hand() {
    let error = etcd("2.3").err().unwrap().to_string();
    assert_eq!(
        error,
        "the lab has no etcd 2.3; it has 3.4, 3.5, 3.6, 3.7, 3.4.38, 3.4.42, 3.5.16, 3.5.28, 3.6.0, 3.6.4, 3.6.9, 3.7.0"
    );
}

#[test]
fn etcdctl_and_etcdutl_are_there() {
    let folder = etcd_tools().unwrap();
    assert!(said(&folder.join("etcdctl"), &["version"]).contains("etcdctl version: 3.5."));
    assert!(said(&folder.join("etcdutl"), &["version"]).contains("etcdutl version: 3.5."));
}

#[test]
fn an_s3_server_keeps_what_it_is_given_and_knows_its_keys() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("backups")).unwrap();
    let s3 = S3::start(folder.path()).unwrap();
    let object = format!("{}/backups/snapshot.db", s3.endpoint());
    let curl = |keys: &str, words: &[&str]| {
        // Older curls sign, but do not say that the body is not part of it.
        let body = "x-amz-content-sha256: UNSIGNED-PAYLOAD";
        let signed = ["--silent", "--fail", "--aws-sigv4", "aws:amz:us-east-1:s3", "--user", keys, "--header", body];
        Command::new("curl").args(signed).args(words).output().unwrap()
    };
    let keys = format!("{}:{}", S3::ACCESS_KEY, S3::SECRET_KEY);
    assert!(curl(&keys, &["--request", "PUT", "--data-binary", "the bytes", &object]).status.success());
    assert_eq!(curl(&keys, &[&object]).stdout, b"the bytes");
    assert!(!curl("lab:wrong", &[&object]).status.success());
}
