//! Certificates of real clusters that are renewed, mended and replaced, while clients write and connect.

use std::{
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use etcdrun::etcd::{Credential, MemberClient};
use etcdrun_lab::wait;

use super::{
    Said,
    etcd::{PLAIN, Site},
    knock::{Knocked, Knocking, knock},
    upgrade::nothing_is_lost,
    writer::{Direct, Manner, Writer, Written},
};

fn certs(site: &Site, words: &[&str]) -> Said {
    let yes: &[&str] = if words[0] == "rotate-ca" { &["--yes"] } else { &[] };
    site.place.folder.run(&[&["certs"], words, yes, &["-i", "inventory.yaml"]].concat())
}

/// What a client of root has, as it was exported just now.
pub(super) fn exported(site: &Site, folder: &str) -> Credential {
    certs(site, &["export", "root", "--to", folder]).ends(0);
    let pem = |name: &str| site.place.folder.read(&format!("{folder}/{name}"));
    let identity = Some((pem("root.crt"), pem("root.key").into()));
    Credential { authority: pem("ca.crt"), identity, login: None }
}

/// A change while a client writes and another connects again and again; none of them may notice.
fn unnoticed(site: &Site, what: &str, credential: &Credential, change: impl FnOnce()) {
    site.etcdctl(&["del", "--prefix", "/written/"]);
    let members = site.members();
    let (writer, knocking) =
        (Writer::start(&members, credential, Manner::default()), Knocking::start(&members, credential));
    change();
    let (written, Knocked { handshakes, refused }) = (writer.stop().unwrap(), knocking.stop().unwrap());
    assert!(refused.is_empty() && handshakes > 20, "{handshakes} handshakes, refused: {refused:?}");
    nothing_is_lost(site, &written);
    let Written { acknowledged, longest, errors, .. } = &written;
    println!(
        "{what}: {} writes, longest gap {longest:?}, {} retries, {handshakes} handshakes, none refused",
        acknowledged.len(),
        errors.len()
    );
}

fn starts(site: &Site) -> Vec<String> {
    let started = ["systemctl", "show", "--value", "-p", "InvocationID", "etcd"];
    site.place.hosts.iter().map(|host| host.run(&started).unwrap()).collect()
}

/// The serial number that each member shows at a port.
fn serials(site: &Site, credential: &Credential, port: u16) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let serial = |(name, ip): &(String, String)| {
        runtime.block_on(async {
            let client = MemberClient::new(name, ip, port, credential, Arc::new(Direct)).unwrap();
            client.served(port).await.unwrap().serial
        })
    };
    site.members().iter().map(serial).collect()
}

#[test]
fn renewed_certificates_are_shown_without_a_restart() {
    let site = Site::formed(3, "3.5", PLAIN);
    certs(&site, &["issue", "writer"]).ends(0);
    let credential = exported(&site, "client");
    let before = (starts(&site), serials(&site, &credential, 2379));
    let changes = |said: &Said| said.stdout.lines().filter(|line| line.starts_with("changed ")).count();

    let early = certs(&site, &["renew"]).ends(0);
    assert_eq!(changes(&early), 0, "nothing is due: {}", early.stdout);
    assert!(!early.stdout.contains("renewed") && early.stdout.contains("364 days left"), "{}", early.stdout);
    let plan = certs(&site, &["renew", "prod", "--early", "366d", "--check"]).ends(0);
    assert!(plan.stdout.contains("change "), "{}", plan.stdout);
    assert_eq!(serials(&site, &credential, 2379), before.1, "a plan renews nothing");

    unnoticed(&site, "renewal", &credential, || {
        let said = certs(&site, &["renew", "prod", "--early", "366d"]).ends(0);
        // Three members, root and the other user.
        assert_eq!(said.stdout.matches("364 days left, renewed").count(), 5, "{}", said.stdout);
        // Once is over in less than a second.
        (0..3).for_each(|_| drop(certs(&site, &["renew", "--all"]).ends(0)));
    });
    for port in [2379, 2380] {
        let now = serials(&site, &credential, port);
        assert!(now.iter().zip(&before.1).all(|(now, before)| now != before), "port {port}");
    }
    assert_eq!(starts(&site), before.0, "nothing restarts");
    site.is_served_by_all();
    site.changes_nothing();

    let wrong = certs(&site, &["renew", &site.names[0]]).ends(5);
    assert!(wrong.stderr.contains("there is no cluster"), "{}", wrong.stderr);
    // A key that is gone takes a restart, which is not for this verb.
    site.place.hosts[0].run(&["sh", "-c", "mv /etc/etcd/pki/server.key /root/"]).unwrap();
    let key = certs(&site, &["renew", "--all", "--check"]).ends(2);
    assert!(key.stdout.contains("needs a new key") && key.stdout.contains("settings.yaml"), "{}", key.stdout);
}

/// What the machine of the operator issues then is valid only later: members would not accept each other until that.
#[test]
fn nothing_is_renewed_by_a_clock_that_is_two_hours_ahead() {
    let folders = std::fs::read_dir("/usr/lib").unwrap().flatten().map(|entry| entry.path());
    let mut libraries = folders.map(|folder| folder.join("faketime/libfaketimeMT.so.1"));
    let library = libraries.find(|path| path.exists()).expect("`.ci/setup tests` installs faketime");
    let site = Site::formed(3, "3.5", PLAIN);
    let credential = exported(&site, "root");
    let before = serials(&site, &credential, 2379);
    let mut command = site.place.folder.command(&["certs", "renew", "--all"]);
    command.env("LD_PRELOAD", library).env("FAKETIME", "+7200").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    command.env("NO_FAKE_STAT", "1").env("FAKETIME_DISABLE_SHM", "1");
    let ahead = Said::of(command.output().unwrap()).ends(2);
    assert!(ahead.stdout.contains("is valid only from"), "{}", ahead.stdout);
    assert_eq!(serials(&site, &credential, 2379), before, "all have what they had");
    certs(&site, &["renew", "--all"]).ends(0);
    site.is_served_by_all();
    site.changes_nothing();
}

/// All of them at once, root's too, and the servers restart meanwhile: nobody can talk to anybody.
#[test]
fn expired_certificates_are_mended_over_ssh_alone() {
    let site = Site::formed(3, "3.5", PLAIN);
    let key = site.place.folder.run(&["secret", "view", ".etcdrun/pki/prod/ca.key.age"]).ends(0);
    site.place.folder.write("ca.key", &key.stdout);
    let ca_key = site.place.folder.path("ca.key");
    let root = site.place.hosts[0].path("/root/root.crt").unwrap();
    let own = site.place.folder.path(".etcdrun/pki/prod/clients/root.crt");
    std::fs::copy(&own, &root).unwrap();
    site.place.hosts[0].expire_certificate("/root/root.crt", &ca_key).unwrap();
    std::fs::copy(&root, &own).unwrap();
    for host in &site.place.hosts {
        host.expire_certificate("/etc/etcd/pki/server.crt", &ca_key).unwrap();
        host.run(&["systemctl", "restart", "--no-block", "etcd"]).unwrap();
    }
    let sick = site.etcdctl(&["endpoint", "health"]);
    assert_eq!(sick.matches("is healthy").count(), 0, "{sick}");

    let said = certs(&site, &["renew"]).ends(0);
    assert_eq!(said.stdout.matches("364 days left, renewed").count(), 4, "{}", said.stdout);
    site.is_served_by_all();
    site.changes_nothing();
}

#[test]
fn another_authority_takes_over_and_clients_do_not_notice() {
    let site = Site::formed(3, "3.5", PLAIN);
    let rotate = |more: &[&str]| certs(&site, &[&["rotate-ca", "prod"], more].concat());
    let early = rotate(&["--issue"]).ends(3);
    assert!(early.stdout.contains("start one with `etcdrun certs rotate-ca prod`"), "{}", early.stdout);
    let before = starts(&site);
    let plan = rotate(&["--check"]).ends(0);
    assert!(plan.stdout.contains("unknown"), "what members would get is not known yet: {}", plan.stdout);
    assert!(!site.place.folder.path(".etcdrun/pki/prod/rotation.json").exists() && starts(&site) == before);

    unnoticed(&site, "trust", &exported(&site, "first"), || {
        let said = rotate(&[]).ends(0);
        assert!(said.stdout.contains("then run: etcdrun certs rotate-ca prod --issue"), "{}", said.stdout);
    });
    assert!(starts(&site).iter().zip(&before).all(|(now, before)| now != before), "trust is read at the start");
    let list = certs(&site, &["list"]).ends(0).stdout;
    assert!(list.contains("new, in the phase `trust`, complete"), "{list}");
    let refused = rotate(&["--finish"]).ends(3);
    assert!(refused.stdout.contains("--issue first"), "{}", refused.stdout);

    let bundle = exported(&site, "second");
    assert_eq!(bundle.authority.matches("BEGIN CERTIFICATE").count(), 2, "{}", bundle.authority);
    let running = starts(&site);
    unnoticed(&site, "issue", &bundle, || drop(rotate(&["--issue"]).ends(0)));
    assert_eq!(starts(&site), running, "certificates are read at every handshake");
    // The last phase was refused above, when clients were not ready. Nobody has said since that they are.
    let later = site.place.folder.run(&["resume"]).ends(5);
    assert!(later.stderr.contains("rotate-ca prod --finish"), "{}", later.stderr);
    assert_eq!(starts(&site), running);
    let list = certs(&site, &["list"]).ends(0).stdout;
    assert!(list.contains("in the phase `issue`, complete") && list.contains("Certificates issued here"), "{list}");
    let late = rotate(&["--abandon"]).ends(3);
    assert!(late.stdout.contains("already signs") && late.stdout.contains("--finish"), "{}", late.stdout);
    let old = rotate(&[]).ends(3);
    assert!(old.stdout.contains("already in the phase `issue`"), "{}", old.stdout);

    unnoticed(&site, "finish", &exported(&site, "third"), || drop(rotate(&["--finish"]).ends(0)));
    let last = exported(&site, "fourth");
    assert_eq!(last.authority.matches("BEGIN CERTIFICATE").count(), 1, "{}", last.authority);
    let first = site.place.folder.read("first/ca.crt");
    assert!(!first.contains(last.authority.trim()));
    // What the old authority has signed opens nothing any more.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (name, ip) in site.members() {
        let told = alert(&site, &ip, "fourth/ca.crt", "second/root");
        assert!(told.contains("alert"), "{name}: {told}");
        runtime.block_on(knock(&name, &ip, &last)).unwrap();
    }
    site.is_served_by_all();
    site.changes_nothing();
}

/// What a server tells a client with this certificate. The client sends nothing behind its handshake: who writes before the alert has
/// come may see only that the connection is gone.
fn alert(site: &Site, ip: &str, authority: &str, identity: &str) -> String {
    let client = Command::new("timeout")
        .args(["20", "openssl", "s_client", "-connect", &format!("{ip}:2379"), "-CAfile", authority])
        .args(["-verify_return_error", "-cert", &format!("{identity}.crt"), "-key", &format!("{identity}.key")])
        .current_dir(site.place.folder.path(""))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut client = client.unwrap();
    let _open = client.stdin.take();
    let output = client.wait_with_output().unwrap();
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The certificate of the authority, as if it had ended yesterday: here, and on every member.
fn end_authority(site: &Site) {
    let key = site.place.folder.run(&["secret", "view", ".etcdrun/pki/prod/ca.key.age"]).ends(0);
    site.place.folder.write("ca.key", &key.stdout);
    let own = site.place.folder.path(".etcdrun/pki/prod/ca.crt");
    let ended = site.place.hosts[0].path("/etc/etcd/pki/ca.crt").unwrap();
    site.place.hosts[0].expire_certificate("/etc/etcd/pki/ca.crt", &site.place.folder.path("ca.key")).unwrap();
    std::fs::copy(&ended, &own).unwrap();
    for host in &site.place.hosts[1..] {
        std::fs::copy(&ended, host.path("/etc/etcd/pki/ca.crt").unwrap()).unwrap();
    }
}

#[test]
fn an_authority_that_has_ended_is_replaced_over_ssh_alone() {
    let site = Site::formed(3, "3.5", PLAIN);
    site.etcdctl(&["put", "kept", "value"]);
    let early = certs(&site, &["rotate-ca", "prod", "--expired"]).ends(3);
    assert!(early.stdout.contains("is valid until"), "{}", early.stdout);
    end_authority(&site);
    for host in &site.place.hosts {
        host.run(&["systemctl", "restart", "--no-block", "etcd"]).unwrap();
    }
    let sick = site.etcdctl(&["endpoint", "health"]);
    assert_eq!(sick.matches("is healthy").count(), 0, "{sick}");

    for words in [&["rotate-ca", "prod"][..], &["renew", "--all"]] {
        let said = certs(&site, words);
        assert!(said.code != 0 && said.stdout.contains("rotate-ca prod --expired"), "{}", said.stdout);
    }
    certs(&site, &["rotate-ca", "prod", "--expired"]).ends(0);
    site.is_served_by_all();
    assert!(site.etcdctl(&["get", "kept"]).contains("value"));
    assert!(!site.place.folder.path(".etcdrun/pki/prod/rotation.json").exists());
    site.changes_nothing();
}

/// The servers run on, with the connections that they have, and nobody gets a new one.
#[test]
fn an_authority_that_ends_while_all_run_is_replaced_over_ssh_alone() {
    let site = Site::formed(3, "3.6", PLAIN);
    site.etcdctl(&["put", "kept", "value"]);
    end_authority(&site);
    certs(&site, &["rotate-ca", "prod", "--expired"]).ends(0);
    site.is_served_by_all();
    assert!(site.etcdctl(&["get", "kept"]).contains("value"));
    site.changes_nothing();
}

#[test]
fn a_rotation_is_given_up_in_its_first_phase() {
    let site = Site::formed(3, "3.6", PLAIN);
    let before = site.place.folder.read(".etcdrun/pki/prod/ca.crt");
    certs(&site, &["rotate-ca", "prod"]).ends(0);
    let running = starts(&site);
    let said = certs(&site, &["rotate-ca", "prod", "--abandon"]).ends(0);
    assert!(said.stdout.contains("was dropped"), "{}", said.stdout);
    assert_eq!(site.place.folder.read(".etcdrun/pki/prod/ca.crt"), before);
    for host in &site.place.hosts {
        assert_eq!(host.run(&["cat", "/etc/etcd/pki/ca.crt"]).unwrap().trim(), before.trim());
    }
    assert!(starts(&site).iter().zip(&running).all(|(now, before)| now != before), "trust is read at the start");
    site.is_served_by_all();
    site.changes_nothing();
    // It can be begun anew.
    certs(&site, &["rotate-ca", "prod"]).ends(0);
    site.is_served_by_all();
}

#[test]
fn what_is_wrong_with_a_member_is_told_and_not_waited_for() {
    let site = Site::formed(3, "3.5", PLAIN);
    site.place.hosts[1].run(&["systemctl", "stop", "etcd"]).unwrap();
    let start = std::time::Instant::now();
    let said = certs(&site, &["renew", "--all"]).ends(3);
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    assert!(said.stdout.contains(&format!("etcd is stopped on {}", site.names[1])), "{}", said.stdout);
    site.place.hosts[1].run(&["systemctl", "start", "etcd"]).unwrap();
    certs(&site, &["renew", "--all"]).ends(0);

    // A file that was written in the second of the start, and after it, was not read.
    let before = starts(&site);
    let show = ["systemctl", "show", "--value", "-p", "ExecMainStartTimestamp", "--timestamp=unix", "etcd"];
    let second = site.place.hosts[0].run(&show).unwrap();
    let touch = format!("touch -d '{}.999999' /etc/etcd/pki/ca.crt", second.trim());
    site.place.hosts[0].run(&["sh", "-c", &touch]).unwrap();
    site.place.folder.run(&["playbook", "settings.yaml", "-i", "inventory.yaml"]).ends(0);
    let restarted: Vec<bool> = starts(&site).iter().zip(&before).map(|(now, before)| now != before).collect();
    assert_eq!(restarted, [true, false, false]);
    site.changes_nothing();
}

/// How many runs were begun.
fn runs(site: &Site) -> usize {
    site.place.folder.path(".etcdrun/runs").read_dir().map_or(0, Iterator::count)
}

#[test]
fn a_rotation_goes_on_where_a_killed_operator_left_it() {
    let site = Site::formed(3, "3.6", PLAIN);
    let old = site.place.folder.read(".etcdrun/pki/prod/ca.crt");
    for phase in ["", "--issue", "--finish"] {
        let words: Vec<&str> = ["certs", "rotate-ca", "prod", "--yes", phase, "-i", "inventory.yaml"]
            .into_iter()
            .filter(|w| !w.is_empty())
            .collect();
        for (attempt, milliseconds) in [900, 1500, 2500, 1200].into_iter().enumerate() {
            let words: &[&str] = if attempt == 0 { &words } else { &["resume"] };
            let mut command = site.place.folder.command(words);
            let known = runs(&site);
            let mut running = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            if attempt == 0 {
                wait::until("the run has begun", Duration::from_secs(30), || Ok((runs(&site) > known).then_some(())))
                    .unwrap();
            }
            std::thread::sleep(Duration::from_millis(milliseconds));
            running.kill().unwrap();
            running.wait().unwrap();
            let health = site.etcdctl(&["endpoint", "health"]);
            assert!(health.matches("is healthy").count() >= 2, "{phase}: {health}");
        }
        let said = site.place.folder.run(&["resume"]);
        let is_over = said.stderr.contains("no run that could be resumed");
        assert!(said.code == 0 || is_over, "{phase}: {}\n{}", said.stdout, said.stderr);
        site.is_served_by_all();
    }
    let now = site.place.folder.read(".etcdrun/pki/prod/ca.crt");
    assert!(now.matches("BEGIN CERTIFICATE").count() == 1 && now != old, "{now}");
    let state = site.place.folder.path(".etcdrun/pki/prod");
    assert!(!state.join("rotation.json").exists() && !state.join("next.key.age").exists());
    site.changes_nothing();
}

/// Signs a request on its standard input, and counts.
const SIGN: &str =
    "openssl x509 -req -in /dev/stdin -CA ca.crt -CAkey ca.key -days 30 -copy_extensions copyall && echo x >>signed\n";

/// A person may sign, and be asleep. With passwords only the members need certificates.
#[test]
fn with_passwords_only_members_wait_for_the_sign_command() {
    let sections = "    etcd: { version: VERSION }\n    auth: { method: password }\n    tls: { ca: { certificate: ca.crt, sign_command: [sh, sign] } }\n";
    let site = Site::new(1, "3.6", sections);
    let folder = &site.place.folder;
    let made = std::process::Command::new("openssl")
        .args("req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -days 30 -subj /CN=signs".split(' '))
        .current_dir(folder.path(""))
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    folder.write("sign", SIGN);
    site.play(&[]).ends(0);
    assert_eq!(folder.read("signed"), "x\n", "one for the only member");
    folder.write("sign", "sleep 100\n");
    let start = std::time::Instant::now();
    site.play(&[]).ends(0);
    assert!(start.elapsed() < std::time::Duration::from_secs(50), "{:?}", start.elapsed());
}
