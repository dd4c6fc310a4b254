//! The verbs of every day, on a cluster of real etcd.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    process::{Command, Stdio},
};

use etcdrun_lab::etcd_tools;

use super::{
    Said,
    etcd::{PLAIN, Site},
};

fn etcdctl(site: &Site, words: &[&str]) -> Said {
    site.place.etcdctl("prod", words)
}

/// Whatever it is killed by, the key was never on a disk.
fn killed_it_leaves_no_key(site: &Site) {
    let temporary = tempfile::tempdir().unwrap();
    let program = site.place.folder.path("slow-etcdctl");
    fs::write(&program, "#!/bin/sh\ngrep -c 'PRIVATE KEY' \"$ETCDCTL_KEY\"\nexec sleep 60\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = site.place.folder.command(&["etcdctl", "prod", "-i", "inventory.yaml", "--", "get", "a"]);
    command.env("ETCDCTL_PROGRAM", &program).env("TMPDIR", temporary.path()).process_group(0);
    let mut running = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(running.stdout.as_mut().unwrap()).read_line(&mut first).unwrap();
    let files: Vec<_> = fs::read_dir(temporary.path()).unwrap().collect();
    // As Ctrl-C does: everybody in front of the terminal gets it.
    let group = format!("-{}", running.id());
    Command::new("kill").args(["-INT", "--", &group]).status().unwrap();
    running.wait().unwrap();
    assert_eq!(first.trim(), "2", "it could read the key");
    assert!(files.is_empty(), "{files:?}");
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
}

#[test]
fn a_cluster_is_at_hand() {
    let site = Site::formed(3, "3.5", PLAIN);
    let run = |words: &[&str]| site.place.folder.run(&[&words[..1], &["-i", "inventory.yaml"], &words[1..]].concat());

    assert!(etcdctl(&site, &["put", "a", "one"]).ends(0).stdout.contains("OK"));
    let health = etcdctl(&site, &["endpoint", "health"]);
    assert_eq!((health.stdout.clone() + &health.stderr).matches("is healthy").count(), 3, "{}", health.stderr);
    // Its own code comes back, and nothing of the credentials stays.
    assert_ne!(etcdctl(&site, &["nonsense"]).code, 0);

    killed_it_leaves_no_key(&site);

    let said = run(&["ssh", &site.names[0], "--", "sh", "-c", "cat; exit 7"]);
    assert_eq!(said.code, 7, "{}", said.stderr);
    let name = run(&["ssh", &site.names[1], "--", "hostname"]).ends(0);
    assert_eq!(name.stdout.trim(), site.names[1]);
    let near = run(&["ssh", "nobody"]).ends(5);
    assert!(near.stderr.contains("there is no host `nobody`"), "{}", near.stderr);

    let logs = run(&["logs", &site.names[0], "-n", "20"]).ends(0);
    assert!(logs.stdout.contains("etcd") && logs.stdout.lines().count() <= 21, "{}", logs.stdout);
    let none = run(&["console", &site.names[0]]).ends(5);
    assert!(none.stderr.contains("has no hypervisor"), "{}", none.stderr);

    let mut tunnel =
        site.place.folder.command(&["tunnel", "prod", "-i", "inventory.yaml"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(tunnel.stdout.as_mut().unwrap()).read_line(&mut first).unwrap();
    let endpoint = first.split(' ').next().unwrap().to_owned();
    let pki = |name: &str| site.place.folder.path(".etcdrun/pki/prod").join(name);
    let got = Command::new(etcd_tools().unwrap().join("etcdctl"))
        .args(["--endpoints", &endpoint, "--cacert"])
        .arg(pki("ca.crt"))
        .arg("--cert")
        .arg(pki("clients/root.crt"))
        .arg("--key")
        .arg(site.place.folder.opened_file(".etcdrun/pki/prod/clients/root.key"))
        .args(["get", "a", "--print-value-only"])
        .output();
    tunnel.kill().unwrap();
    tunnel.wait().unwrap();
    let got = got.unwrap();
    assert_eq!(String::from_utf8_lossy(&got.stdout).trim(), "one", "{}", String::from_utf8_lossy(&got.stderr));
}
