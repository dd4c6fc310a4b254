//! A cluster that a person has made by hand, with certificates by openssl and a unit of their own, and that etcdrun adopts.

use std::{fs, net::IpAddr, path::Path, process::Command};

use anyhow::{Context, Result, ensure};
use etcdrun_lab::{Borrowed, Host, etcd, etcd_tools};

use crate::{
    authority, hosts,
    operator::Operator,
    row::{Auth, Ca, Row, Ssh},
    site::{CLUSTER, url_host},
};

/// What the person has written, which must be there for good.
pub const KEY: &str = "/adopted";
pub const VALUE: &str = "kept";
/// What `adopt` writes, before a person has edited it.
const WRITTEN: &str = "adopted.yaml";
const FOLDER: &str = "/etc/elders";

/// Makes it, adopts it, and writes the inventory as the row wants it. `head` is what the inventory says before its clusters.
pub fn make(row: &Row, members: &[Borrowed], operator: &mut Operator, head: &str) -> Result<()> {
    authority::make(operator, row.ca, 1)?;
    let urls: Vec<String> = members.iter().map(|host| url(row, host, row.peer_port())).collect();
    let named: Vec<String> = members.iter().zip(&urls).map(|(host, url)| format!("{}={url}", name(host))).collect();
    for host in members {
        certify(operator, host, hosts::address(row, host))?;
        install(row, operator, host, &named.join(","))?;
    }
    // Each of them answers its notification only once there is a cluster.
    for host in members {
        host.run(&["systemctl", "start", "etcd"])?;
    }
    let first = members.first().context("there are no members")?;
    put(operator, first, &url(row, first, row.client_port()))?;

    let (before, _) = head.split_once("etcd_releases:\n").context("the inventory has no releases")?;
    let entries =
        members.iter().map(|host| format!("  {}: {{ address: \"{}\" }}\n", host.name(), hosts::address(row, host)));
    let section = if row.ssh == Ssh::Jump { "" } else { "hosts:\n" };
    operator.write("hosts.yaml", &format!("{before}{section}{}", entries.collect::<String>()))?;
    let adopt = ["member", "adopt", CLUSTER, "--via", first.name(), "-i", "hosts.yaml", "--out", WRITTEN];
    let key: &[&str] = if row.ca == Ca::Brought { &["--ca-key", "ca-1.key"] } else { &[] };
    operator.must(&[&adopt, key].concat())?;
    let text = edited(row, operator, &operator.read(WRITTEN)?)?;
    operator.write("inventory.yaml", &format!("{head}{text}"))
}

/// What a person makes of it: users, and the CA in one line.
fn edited(row: &Row, operator: &Operator, written: &str) -> Result<String> {
    let (_, clusters) = written.split_once("clusters:\n").context("adopt wrote no clusters")?;
    let mut text = String::from("clusters:\n");
    for line in clusters.lines() {
        match line {
            "      ca:" => text += &format!("      ca: {{ {} }}\n", authority::entry(operator, row.ca, 1)),
            _ if line.starts_with("        ") => {}
            _ if line.starts_with("    auth: ") => text += &first(row).auth_section(0),
            _ => text += &format!("{line}\n"),
        }
    }
    Ok(text)
}

/// How it is taken over. Servers that demand certificates would not let in who has a password alone, and the `sign_command` is asked for
/// none where passwords are the way in; so these come second.
pub fn first(row: &Row) -> Row {
    match (row.auth, row.ca) {
        (Auth::Password, Ca::Command) => Row { auth: Auth::Off, ..row.clone() },
        _ => row.clone(),
    }
}

fn name(host: &Host) -> String {
    format!("old-{}", host.name())
}

fn url(row: &Row, host: &Host, port: u16) -> String {
    format!("https://{}:{port}", url_host(hosts::address(row, host)))
}

/// A key and a certificate for a member, in the operator's folder.
fn certify(operator: &Operator, host: &Host, address: IpAddr) -> Result<()> {
    let name = name(host);
    let names = format!("subjectAltName=IP:{address},IP:127.0.0.1,DNS:etcd.example.org");
    let [key, request, certificate] =
        ["key", "csr", "crt"].map(|end| operator.path(&format!("{name}.{end}")).display().to_string());
    openssl(&[
        &[
            "req",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-keyout",
            &key,
            "-out",
            &request,
        ],
        &[
            "-subj",
            &format!("/O=Elders/CN={name}"),
            "-addext",
            &names,
            "-addext",
            "extendedKeyUsage=serverAuth,clientAuth",
        ],
    ])?;
    let [ca, ca_key] = ["crt", "key"].map(|end| operator.path(&format!("ca-1.{end}")).display().to_string());
    openssl(&[
        &["x509", "-req", "-in", &request, "-CA", &ca, "-CAkey", &ca_key, "-CAcreateserial", "-days", "30"],
        &["-copy_extensions", "copyall", "-out", &certificate],
    ])
}

fn openssl(words: &[&[&str]]) -> Result<()> {
    let output = Command::new("openssl").args(words.concat()).output()?;
    ensure!(output.status.success(), "openssl says: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Starts a server, which waits for the others.
fn install(row: &Row, operator: &Operator, host: &Host, members: &str) -> Result<()> {
    let data = row.data_dir();
    let above = Path::new(data).parent().context("the data has no folder above it")?.display();
    host.run(&["sh", "-c", &format!("useradd --system etcd; mkdir -p {above} {FOLDER}; chown etcd {above}")])?;
    fs::copy(etcd(row.release()?)?.path, host.path("/usr/local/bin/etcd")?)?;
    for (file, place) in [
        ("ca-1.crt", "ca.crt"),
        (&format!("{}.crt", name(host)), "own.crt"),
        (&format!("{}.key", name(host)), "own.key"),
    ] {
        fs::copy(operator.path(file), host.path(&format!("{FOLDER}/{place}"))?)?;
    }
    let (client, peer) = (url(row, host, row.client_port()), url(row, host, row.peer_port()));
    let mut flags = format!(
        "--name {} --data-dir {data} --listen-client-urls {client} --advertise-client-urls {client} --listen-peer-urls {peer} \
         --initial-advertise-peer-urls {peer} --initial-cluster {members} --initial-cluster-token elders \
         --quota-backend-bytes 2147483648",
        name(host)
    );
    for (name, value) in row.settings() {
        flags += &format!(" --{name} {value}");
    }
    for whose in ["", "peer-"] {
        flags += &format!(
            " --{whose}cert-file {FOLDER}/own.crt --{whose}key-file {FOLDER}/own.key --{whose}trusted-ca-file {FOLDER}/ca.crt \
             --{whose}client-cert-auth"
        );
    }
    let unit = format!(
        "[Service]\nType=notify\nUser=etcd\nExecStart=/usr/local/bin/etcd {flags}\n\n[Install]\nWantedBy=multi-user.target\n"
    );
    fs::write(host.path("/etc/systemd/system/etcd.service")?, unit)?;
    let start = format!(
        "chown -R etcd {FOLDER}; chmod 755 /usr/local/bin/etcd; systemctl daemon-reload; systemctl enable etcd; systemctl start --no-block etcd"
    );
    host.run(&["sh", "-c", &start]).map(drop)
}

fn put(operator: &Operator, host: &Host, url: &str) -> Result<()> {
    let mut command = Command::new(etcd_tools()?.join("etcdctl"));
    command.env("ETCDCTL_API", "3").args(["--endpoints", url, "--cacert"]).arg(operator.path("ca-1.crt"));
    command.arg("--cert").arg(operator.path(&format!("{}.crt", name(host))));
    command.arg("--key").arg(operator.path(&format!("{}.key", name(host))));
    let output = command.args(["put", KEY, VALUE]).output()?;
    ensure!(output.status.success(), "etcdctl says: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
