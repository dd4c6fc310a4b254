//! The section `fluentbit`, with Fluent Bit on a member and a receiver on this machine that is another program. The Fluent Bit that can be
//! had has no input for the journal, so logs are lines of files here.

use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use etcdrun_lab::{etcd_tools, fluent_bit, fluent_receiver};
use serde_json::Value;

use super::{changes, changes_nothing, play, shell};
use crate::lab::{
    etcd::{PLAIN, Site},
    lab,
    rollout_faults::until,
};

const KEY: &str = "the-key-of-the-receiver";
const STARTED: &str = "systemctl show --value -p InvocationID fluent-bit";

/// Receives logs at an address of this machine, until it is dropped.
struct Receiver {
    process: Child,
    port: u16,
}

impl Receiver {
    fn start(site: &Site, port: u16, key: &str) -> Self {
        let file = |name: &str| site.place.folder.path(name);
        let mut process = Command::new("node")
            .env("NODE_PATH", fluent_bit().unwrap().join("node_modules"))
            .arg(fluent_receiver())
            .args([lab().subnet().operator().to_string(), port.to_string()])
            .args([file("receiver.crt"), file("receiver.key")])
            .arg(key)
            .arg(file("received"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        Self { process, port: line.trim().parse().unwrap() }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A member, and a certificate for the receiver, from a CA that is not the cluster's.
fn with_receiver(sections: &str) -> (Site, Receiver) {
    let site = Site::played(1, "3.6", sections);
    let address = lab().subnet().operator();
    let text = format!(
        "
- name: Issue the certificate of the receiver
  hosts: prod
  become: true
  tasks:
    - name: Create the CA
      pki_ca: {{ cluster: &ca {{ name: logs, tls: {{}} }} }}
    - name: Issue the certificate
      pki_certificate:
        cluster: *ca
        name: receiver
        names: [{address}]
        certificate: /root/receiver.crt
        key: /root/receiver.key
        authority: /root/receiver-ca.crt
"
    );
    play(&site, "receiver.yaml", &text).ends(0);
    for name in ["receiver.crt", "receiver.key"] {
        let path = site.place.hosts[0].path(&format!("/root/{name}")).unwrap();
        std::fs::copy(path, site.place.folder.path(name)).unwrap();
    }
    let receiver = Receiver::start(&site, 0, KEY);
    (site, receiver)
}

fn sum(path: &Path) -> String {
    let output = Command::new("sha256sum").arg(path).output().unwrap();
    String::from_utf8(output.stdout).unwrap().split(' ').next().unwrap().to_owned()
}

fn program(folder: PathBuf, name: &str) -> String {
    let path = folder.join(name);
    format!("{{ file: {}, sha256: {} }}", path.display(), sum(&path))
}

/// Runs site.yaml with this section.
fn configure(site: &Site, receiver: &Receiver, more: &str, forward: &str, plain: &str) -> super::Said {
    write_section(site, receiver, more, forward, plain);
    site.play(&["--diff"])
}

/// A section that sends the lines of a file in any case.
fn write_section(site: &Site, receiver: &Receiver, more: &str, forward: &str, plain: &str) {
    let address = lab().subnet().operator();
    let section = format!(
        "    fluentbit:
      enabled: true
      files: [{{ path: /var/log/app.log, tag: app }}]
      forward: {{ domain: {address}, port: {}, shared_key: {KEY}, ca_cert: .etcdrun/pki/logs/ca.crt{forward} }}
      binary: {}
{more}",
        receiver.port,
        program(fluent_bit().unwrap(), "fluent-bit")
    );
    let text = plain.replace("    members:\n", &format!("{section}    members:\n"));
    site.place.folder.write("inventory.yaml", &text);
}

fn log(site: &Site, file: &str, line: &str) {
    shell(site, 0, &format!("echo '{line}' >>/var/log/{file}.log"));
}

/// What the receiver has: the tag, and the line.
fn received(site: &Site) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(site.place.folder.path("received")).unwrap_or_default();
    // The last line may not be there as a whole yet.
    let values = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    values.map(|entry| (text(&entry["tag"]), text(&entry["record"]["log"]))).collect()
}

/// Fluent Bit tries again every 30 seconds at most.
#[track_caller]
fn arrives(site: &Site, tag: &str, line: &str) {
    let wanted = (tag.to_owned(), line.to_owned());
    let deadline = Instant::now() + Duration::from_secs(120);
    while !received(site).contains(&wanted) {
        let what = || format!("{line} does not arrive: {:?}\n{}", received(site), journal(site, "fluent-bit"));
        assert!(Instant::now() < deadline, "{}", what());
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn journal(site: &Site, unit: &str) -> String {
    shell(site, 0, &format!("journalctl --no-pager -o cat -u {unit}"))
}

#[test]
fn lines_of_a_member_arrive_also_after_an_outage_and_a_wrong_configuration_is_taken_back() {
    let (site, receiver) = with_receiver(PLAIN);
    let plain = site.place.folder.read("inventory.yaml");
    log(&site, "app", "before");
    write_section(&site, &receiver, "", "", &plain);
    let plan = site.play(&["--check"]).ends(0);
    assert!(plan.stdout.contains("changed") && !plan.stdout.contains(KEY), "{}", plan.stdout);
    assert_eq!(
        shell(&site, 0, "ls -d /etc/fluent-bit* /opt/fluent-bit* /run/etcdrun-fluent-bit 2>/dev/null || true"),
        ""
    );
    let said = configure(&site, &receiver, "", "", &plain).ends(0);
    arrives(&site, "app", "before");
    changes_nothing(site.play(&[]));
    assert!(!said.stdout.contains(KEY) && !journal(&site, "fluent-bit").contains(KEY), "{}", said.stdout);
    let modes = "stat -L -c '%a %U' /etc/fluent-bit-customization/default-config/fluent-bit-output.conf \
                 /etc/fluent-bit-customization/next/fluent-bit-output.conf; ps -o user= -C fluent-bit";
    assert_eq!(shell(&site, 0, modes), "600 fluent-bit\n600 fluent-bit\nfluent-bit\n");

    // The receiver is away, and Fluent Bit is killed with what it has not sent.
    let port = receiver.port;
    drop(receiver);
    (0..20).for_each(|number| log(&site, "app", &format!("away {number}")));
    until("they wait on the disk", || {
        !shell(&site, 0, "grep -rl 'away 19' /var/lib/fluent-bit/buffer || true").is_empty()
    });
    shell(&site, 0, "systemctl kill -s KILL fluent-bit");
    let receiver = Receiver::start(&site, port, KEY);
    (0..20).for_each(|number| arrives(&site, "app", &format!("away {number}")));

    drop(receiver);
    let stranger = Receiver::start(&site, port, "another-key");
    log(&site, "app", "for another");
    until("another key is refused", || journal(&site, "fluent-bit").contains("shared key mismatch"));
    assert!(!received(&site).iter().any(|(_, line)| line == "for another"));
    drop(stranger);
    let receiver = Receiver::start(&site, port, KEY);
    arrives(&site, "app", "for another");

    // One that Fluent Bit accepts until it starts with it.
    let wrong = configure(&site, &receiver, "", ", options: { compresss: gzip }", &plain).ends(2);
    assert!(wrong.stdout.contains("unknown configuration property 'compresss'"), "{}", wrong.stdout);
    log(&site, "app", "after a wrong one");
    arrives(&site, "app", "after a wrong one");

    // One that it refuses in its dry run, since it has no such input.
    let started = shell(&site, 0, STARTED);
    let journal_too = configure(&site, &receiver, "      etcd_tag: prod.etcd\n", "", &plain).ends(2);
    assert!(journal_too.stdout.contains("Input plugin 'systemd' cannot be loaded"), "{}", journal_too.stdout);
    assert_eq!(shell(&site, 0, STARTED), started, "it was not restarted");
    let inputs = shell(&site, 0, "cat /etc/fluent-bit-customization/next/fluent-bit-inputs.conf");
    let journal_input = "[INPUT]\n    name systemd\n    tag prod.etcd\n    systemd_filter _SYSTEMD_UNIT=etcd.service\n    \
                         db /var/lib/fluent-bit/journal-etcd.service.db\n    storage.type filesystem\n";
    assert!(inputs.contains(journal_input), "{inputs}");

    let planned = configure(&site, &receiver, "", ", options: { compress: gzip }", &plain).ends(0);
    assert!(changes(&planned) > 0 && !planned.stdout.contains(KEY), "{}", planned.stdout);
    log(&site, "app", "compressed");
    arrives(&site, "app", "compressed");
    changes_nothing(site.play(&[]));
}

/// Where the parts are that etcdrun writes.
const DEFAULT: &str = "@INCLUDE /etc/fluent-bit-customization/default-config/fluent-bit";

fn includes(more: &str) -> String {
    format!("{DEFAULT}-service.conf\n{DEFAULT}-inputs.conf\n{more}{DEFAULT}-output.conf\n")
}

fn put(site: &Site, key: &str, value: &str) {
    site.place.etcdctl("prod", &["put", key, value]).ends(0);
}

#[test]
fn the_configuration_comes_from_etcd_while_fluent_bit_runs() {
    let auth = "    auth:\n      roles: { logs: { permissions: [{ prefix: /logs/, access: read }] } }\n      users: { logs: { roles: [logs] } }\n";
    let (site, receiver) = with_receiver(&format!("{PLAIN}{auth}"));
    let plain = site.place.folder.read("inventory.yaml");
    let settings = format!(
        "      etcd: {{ enabled: true, key_prefix: /logs/, cluster: prod, client: {{ username: logs }}, etcdctl: {} }}\n",
        program(etcd_tools().unwrap(), "etcdctl")
    );
    log(&site, "app", "before");
    configure(&site, &receiver, &settings, "", &plain).ends(0);
    arrives(&site, "app", "before");
    changes_nothing(site.play(&[]));

    let input = |property: &str| {
        format!(
            "[INPUT]\n    name tail\n    {property} /var/log/more.log\n    tag more\n    db /var/lib/fluent-bit/more.db\n    read_from_head on\n"
        )
    };
    put(&site, "/logs/inputs/more.conf", &input("path"));
    put(&site, "/logs/fluent-bit.conf", &includes("@INCLUDE inputs/more.conf\n"));
    log(&site, "more", "from etcd");
    arrives(&site, "more", "from etcd");
    changes_nothing(site.play(&[]));

    let config = || journal(&site, "fluent-bit-config");
    let in_use = || config().matches(" is in use\n").count();
    until("the first is in use", || in_use() == 1);
    put(&site, "/logs/inputs/more.conf", &input("paath"));
    until("one that does not run is taken back", || config().contains("does not run with the configuration"));
    assert!(config().contains("property 'paath'"), "{}", config());
    put(&site, "/logs/inputs/more.conf", "[INPUT]\n    name tail\n  path /var/log/more.log\n");
    until("one that cannot be read is refused", || config().contains("Invalid indentation level"));
    put(&site, "/logs/fluent-bit.conf", "[INPUT]\n    name dummy\n");
    until("one that sends nothing is refused", || config().contains("there is no [OUTPUT] in it"));
    log(&site, "more", "still from etcd");
    arrives(&site, "more", "still from etcd");

    let started = shell(&site, 0, STARTED);
    site.place.etcdctl("prod", &["del", "--prefix", "/logs/"]).ends(0);
    until("the default is in use", || in_use() == 2);
    assert_ne!(shell(&site, 0, STARTED), started);
    log(&site, "app", "by default");
    arrives(&site, "app", "by default");

    configure(&site, &receiver, "", "", &plain).ends(0);
    log(&site, "app", "without etcd");
    arrives(&site, "app", "without etcd");
    let left = "systemctl is-active fluent-bit-config || true; ls -d /etc/fluent-bit-customization/etcd 2>&1 || true";
    assert!(shell(&site, 0, left).starts_with("inactive\nls: cannot access"));
}

#[test]
fn a_user_of_an_etcd_that_is_not_in_the_inventory_logs_in_with_a_password() {
    const PASSWORD: &str = "the pass'word $1: of logs";
    let auth = format!(
        "    auth:\n      method: password\n      roles: {{ logs: {{ permissions: [{{ prefix: /logs/, access: read }}] }} }}\n      \
         users: {{ logs: {{ roles: [logs], password: \"{PASSWORD}\" }} }}\n"
    );
    let (site, receiver) = with_receiver(&format!("{PLAIN}{auth}"));
    let plain = site.place.folder.read("inventory.yaml");
    let (_, address) = site.members().remove(0);
    let settings = format!(
        "      etcd:\n        enabled: true\n        key_prefix: /logs/\n        endpoints: [\"{address}:2379\"]\n        \
         ca_certificate: .etcdrun/pki/prod/ca.crt\n        client: {{ username: logs, password: \"{PASSWORD}\" }}\n        etcdctl: {}\n",
        program(etcd_tools().unwrap(), "etcdctl")
    );
    let said = configure(&site, &receiver, &settings, "", &plain).ends(0);
    assert!(!said.stdout.contains(PASSWORD), "{}", said.stdout);
    assert_eq!(shell(&site, 0, "stat -c %a /etc/fluent-bit-customization/etcd/password"), "600\n");
    put(
        &site,
        "/logs/fluent-bit.conf",
        &includes("[FILTER]\n    name record_modifier\n    match app\n    record seen yes\n"),
    );
    until("it is in use", || journal(&site, "fluent-bit-config").contains(" is in use"));
    log(&site, "app", "seen");
    arrives(&site, "app", "seen");
    assert!(site.place.folder.read("received").contains("\"seen\":\"yes\""));
    assert!(!shell(&site, 0, "ps axww").contains("the pass"), "the password is on no command line");
    changes_nothing(site.play(&[]));
}
