//! `site.yaml` with real guests on three hypervisors of the lab, from nothing to serving, beside a script that does the same
//! steps by hand. Guests are emulated for both, whatever the machine can do, so that they boot alike.

use std::{
    fmt::Write as _,
    fs,
    path::Path,
    process::{Child, Command},
    time::Instant,
};

use anyhow::{Context as _, Result, ensure};

use crate::{
    cluster::{Cluster, Release, USUAL, etcdctl, release},
    process::{Took, measure},
    site::{CONVERGED_LIMIT, Lab, etcdrun},
    table::Row,
    works::Bench,
};

/// Of the script's time.
const SCRIPT_BAR: f64 = 1.15;
const HYPERVISORS: u8 = 3;
/// The last part of the first guest's address; those below belong to the lab.
const FIRST: u8 = 210;
const BASE: &str = "/srv/guest.qcow2";

/// In turn, each in a lab of its own.
pub fn guests(bench: &mut Bench) -> Result<Vec<Row>> {
    let (mut ours, mut theirs, mut again, mut bare) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 1..=bench.rounds {
        let cluster = prepare(bench, &format!("guests-{round}"))?;
        let Took { seconds, .. } = etcdrun(bench, &cluster.folder, &["playbook", "site.yaml"])?;
        serves(&cluster)?;
        let Took { seconds: second, .. } = etcdrun(bench, &cluster.folder, &["playbook", "site.yaml"])?;
        let logins = logins(&cluster)?;
        eprintln!("  round {round}: etcdrun {seconds:.1} s, again {second:.1} s; logins alone {logins:.1} s");
        ours.push(seconds);
        again.push(second);
        bare.push(logins);
        // One lab at a time.
        drop(cluster);
        let cluster = prepare(bench, &format!("guests-script-{round}"))?;
        let Took { seconds, .. } = measure(&mut script(&cluster)?, &bench.folder.join("guests.log"))?;
        serves(&cluster)?;
        eprintln!("  round {round}: script {seconds:.1} s");
        theirs.push(seconds);
    }
    let name = "guests: three on three hypervisors, emulated, from nothing to healthy, TLS and authentication";
    let peer = "the same steps and waits by a script";
    let nothing = "guests: three, emulated, nothing to do";
    let beside = Row::within(nothing, "s", &again, "ssh and sudo on all three at once", &bare, 1.0);
    Ok(vec![
        Row::within(name, "s", &ours, peer, &theirs, SCRIPT_BAR),
        Row::limit(nothing, "s", &again, CONVERGED_LIMIT),
        Row { bar: None, ok: true, ..beside },
    ])
}

/// How long it takes to log in to all guests at once, become root, and do nothing.
fn logins(cluster: &Cluster) -> Result<f64> {
    let start = Instant::now();
    let login = |(name, ip): &(String, String)| -> Result<Child> {
        let mut command = Command::new("ssh");
        command.args(["-F", "none", "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-i"]);
        command.arg(Lab::folder().join("operator")).args(["-o", &format!("HostKeyAlias=prod/{name}"), "-o"]);
        command.arg(format!("UserKnownHostsFile={}", cluster.folder.join(".etcdrun/known_hosts").display()));
        Ok(command.arg(format!("ops@{ip}")).args(["sudo", "true"]).spawn()?)
    };
    for mut child in cluster.members.iter().map(login).collect::<Result<Vec<_>>>()? {
        ensure!(child.wait()?.success(), "a login failed");
    }
    Ok(start.elapsed().as_secs_f64())
}

/// Hypervisors, and an inventory that wants a guest on each.
fn prepare(bench: &Bench, name: &str) -> Result<Cluster> {
    let lab = Lab::up(&["--hypervisors", &HYPERVISORS.to_string(), "--hosts", "0"])?;
    let folder = bench.folder.join(name);
    fs::create_dir_all(&folder)?;
    let hosts = lab.hosts()?;
    ensure!(hosts.len() == usize::from(HYPERVISORS), "the lab has {hosts:?}");
    let (subnet, _) = hosts[0].1.rsplit_once('.').context("an address of the lab")?;
    let members = (0..HYPERVISORS).map(|n| (format!("etcd-{}", n + 1), format!("{subnet}.{}", FIRST + n))).collect();
    let cluster = Cluster { members, folder, releases: vec![release("3.5")?], data_dir: USUAL, lab };
    fs::write(cluster.folder.join("inventory.yaml"), inventory(&cluster, &hosts)?)?;
    Ok(cluster)
}

fn inventory(cluster: &Cluster, hypervisors: &[(String, String)]) -> Result<String> {
    let key = fs::read_to_string(Lab::folder().join("operator.pub"))?;
    let Release { version, .. } = &cluster.releases[0];
    let releases = cluster.releases[0].entry();
    let mut text = format!(
        "{}
etcd_releases:
{releases}clusters:
  prod:
    etcd: {{ version: {version}, quota: 1GiB }}
    guest:
      vcpus: 1
      memory: 512MiB
      virt: qemu
      disk: {{ base: {BASE}, size: 4GiB, cache: unsafe }}
      data_disk: {{ size: 1GiB, cache: unsafe }}
      admin: {{ user: ops, ssh_keys: [\"{}\"] }}
    ssh: {{ user: ops }}
    members:
",
        cluster.lab.inventory()?,
        key.trim()
    );
    for ((name, ip), (hypervisor, _)) in cluster.members.iter().zip(hypervisors) {
        let _ = writeln!(
            text,
            "      {name}: {{ hypervisor: {hypervisor}, interfaces: [{{ bridge: br0, ip: {ip}/24 }}] }}"
        );
    }
    Ok(text)
}

/// The script, with all that it needs to do the same.
fn script(cluster: &Cluster) -> Result<Command> {
    let mut members = String::new();
    for (place, ((name, ip), (_, host))) in cluster.members.iter().zip(cluster.lab.hosts()?).enumerate() {
        let _ = write!(members, "{name}={host}={ip}=52:54:00:be:9c:{:02x} ", place + 1);
    }
    let Release { file, sum, .. } = &cluster.releases[0];
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/site.sh"));
    command
        .env("MEMBERS", members)
        .env("KEY", Lab::folder().join("operator"))
        .env("KNOWN_HOSTS", Lab::folder().join("known_hosts"))
        .env("BASE", BASE)
        .env("ETCD", file)
        .env("SHA256", sum)
        .env("ETCDCTL", etcdctl()?)
        .env("PKI", cluster.pki(""))
        .env("WORK", &cluster.folder);
    Ok(command)
}

/// All members answer whom they know, and nobody else may read.
pub fn serves(cluster: &Cluster) -> Result<()> {
    let well = cluster.asked(&cluster.members, "health")?;
    ensure!(well.len() == cluster.members.len(), "{} of {} members answer", well.len(), cluster.members.len());
    let output = cluster.etcdctl(&cluster.members)?.args(["auth", "status"]).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(said.contains("Authentication Status: true"), "authentication is not on: {said}");
    Ok(())
}
