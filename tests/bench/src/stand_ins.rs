//! `site.yaml` for guests that are as fast as hosts, which emulated ones are not: hosts of the lab stand in for them. The domains on
//! the hypervisors are real and have nothing to boot; their consoles are told the keys of the hosts that stand in for them.

use std::{fmt::Write as _, fs};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use crate::{
    cluster::{Cluster, USUAL, release},
    guests::serves,
    process::Took,
    site::{CONVERGED_LIMIT, Lab, etcdrun},
    table::Row,
    works::Bench,
};

const GUESTS: usize = 3;

/// Says on a guest's console what cloud-init would say, as soon as there is one.
const VOICE: &str = "
while :; do
    for log in /var/log/libvirt/qemu/*.console; do
        [ -f \"$log\" ] && ! grep -q 'END SSH' \"$log\" || continue
        { echo '-----BEGIN SSH HOST KEY KEYS-----'; cat /root/key; echo '-----END SSH HOST KEY KEYS-----'; } >>\"$log\"
    done
    sleep 0.1
done
";

/// From nothing, and then again and again with nothing to do.
pub fn converged(bench: &mut Bench) -> Result<Vec<Row>> {
    let cluster = prepare(bench)?;
    etcdrun(bench, &cluster.folder, &["playbook", "site.yaml"])?;
    serves(&cluster)?;
    let mut again = Vec::new();
    for round in 1..=bench.rounds {
        let Took { seconds, .. } = etcdrun(bench, &cluster.folder, &["playbook", "site.yaml"])?;
        eprintln!("  round {round}: three guests, nothing to do, {seconds:.2} s");
        again.push(seconds);
    }
    let name = "site: three guests on three hypervisors, nothing to do; hosts stand in for guests";
    Ok(vec![Row::limit(name, "s", &again, CONVERGED_LIMIT)])
}

fn prepare(bench: &Bench) -> Result<Cluster> {
    let number = GUESTS.to_string();
    let lab = Lab::up(&["--hypervisors", &number, "--hosts", &number])?;
    let folder = bench.folder.join("stand-ins");
    fs::create_dir_all(&folder)?;
    let mut hypervisors = lab.hosts()?;
    ensure!(hypervisors.len() == 2 * GUESTS, "the lab has {hypervisors:?}");
    let hosts = hypervisors.split_off(GUESTS);
    let members: Vec<(String, String)> =
        hosts.iter().zip(1..).map(|((_, ip), n)| (format!("etcd-{n}"), ip.clone())).collect();
    let cluster = Cluster { members, folder, releases: vec![release("3.5")?], data_dir: USUAL, lab };
    stand_in(bench, &cluster, &hypervisors, &hosts)?;
    let text = inventory(&cluster, &hypervisors)?;
    fs::write(cluster.folder.join("inventory.yaml"), text)?;
    Ok(cluster)
}

/// Each host is what the guest of a hypervisor will turn out to be; nobody has its address as far as a ping can tell.
fn stand_in(
    bench: &Bench,
    cluster: &Cluster,
    hypervisors: &[(String, String)],
    hosts: &[(String, String)],
) -> Result<()> {
    let known = fs::read_to_string(Lab::folder().join("known_hosts"))?;
    let key_of = |host: &str| {
        let line = known.lines().find(|line| line.starts_with(&format!("{host},")));
        line.and_then(|line| line.split_once(' ')).map(|(_, key)| key)
    };
    let mut keys = serde_json::Map::new();
    for ((hypervisor, _), (host, _)) in hypervisors.iter().zip(hosts) {
        keys.insert(hypervisor.clone(), key_of(host).context("the key of a host")?.into());
    }
    let names: Vec<&str> = hosts.iter().map(|(name, _)| name.as_str()).collect();
    let start = "qemu-img create -q -f qcow2 /srv/blank.qcow2 1M && systemd-run -q --unit=voice sh /root/voice.sh";
    let plays = json!([
        { "hosts": "hypervisors", "vars": { "keys": keys }, "tasks": [
            { "copy": { "dest": "/root/key", "content": "{{ keys[inventory_hostname] }}\n", "mode": "0600" } },
            { "copy": { "dest": "/root/voice.sh", "content": VOICE, "mode": "0600" } },
            { "shell": start },
        ] },
        { "hosts": names.join(":"), "tasks": [
            { "sysctl": { "name": "net.ipv4.icmp_echo_ignore_all", "value": "1", "sysctl_set": true } },
        ] },
    ]);
    fs::write(cluster.folder.join("stand_in.yaml"), plays.to_string())?;
    fs::write(cluster.folder.join("inventory.yaml"), cluster.lab.inventory()?)?;
    etcdrun(bench, &cluster.folder, &["playbook", "stand_in.yaml"]).map(drop)
}

fn inventory(cluster: &Cluster, hypervisors: &[(String, String)]) -> Result<String> {
    let lab = cluster.lab.inventory()?;
    let (head, _) = lab.split_once("hosts:\n").context("hosts of the lab")?;
    let (version, releases) = (&cluster.releases[0].version, cluster.releases[0].entry());
    let mut text = format!(
        "{head}etcd_releases:
{releases}clusters:
  prod:
    etcd: {{ version: {version} }}
    guest:
      vcpus: 1
      memory: 16MiB
      agent: false
      watchdog: false
      disk: {{ base: /srv/blank.qcow2, size: 8MiB }}
      data_disk: {{ size: 8MiB }}
      admin: {{ user: root }}
    # A host does not have the guest's disk.
    vars: {{ etcd_data_device: \"\" }}
    members:
"
    );
    for ((name, ip), (hypervisor, _)) in cluster.members.iter().zip(hypervisors) {
        let _ = writeln!(
            text,
            "      {name}: {{ hypervisor: {hypervisor}, ssh_via: direct, interfaces: [{{ bridge: br0, ip: {ip}/24 }}] }}"
        );
    }
    Ok(text)
}
