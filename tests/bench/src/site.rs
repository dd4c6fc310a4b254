//! `site.yaml` on hosts of the lab: how long a cluster takes from nothing, how long when there is nothing to do, and how
//! fast an image gets to a hypervisor.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

use crate::{
    cluster::{Cluster, USUAL, Wanted},
    process::{Took, measure, measure_behind},
    table::Row,
    works::Bench,
};

/// From nothing to healthy, with TLS and authentication.
const FIVE_LIMIT: f64 = 8.0;
/// When there is nothing to do.
pub const CONVERGED_LIMIT: f64 = 2.0;
const IMAGE_MIB: usize = 512;
/// scp leaves it to others to verify the checksum there.
const UPLOAD_BAR: f64 = 1.15;

/// The lab's name. Who runs two benches at once gives one of them another.
fn name() -> String {
    std::env::var("ETCDRUN_BENCH_LAB").unwrap_or_else(|_| "etcdrun-bench".to_owned())
}

/// A lab that goes away with this.
pub struct Lab;

impl Lab {
    pub fn up(size: &[&str]) -> Result<Self> {
        lab(&[&["up"], size].concat())?;
        Ok(Self)
    }

    pub fn folder() -> PathBuf {
        Path::new("/var/lib/etcdrun-lab").join(name())
    }

    pub fn inventory(&self) -> Result<String> {
        Ok(fs::read_to_string(Self::folder().join("inventory.yaml"))?)
    }

    /// Names and addresses of all hosts.
    pub fn hosts(&self) -> Result<Vec<(String, String)>> {
        let of = |line: &str| {
            let (name, rest) = line.trim().split_once(": { address: ")?;
            Some((name.to_owned(), rest.split([',', ' ']).next()?.to_owned()))
        };
        Ok(self.inventory()?.lines().filter_map(of).collect())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // What it leaves behind is told by `lab status`.
        let _ = lab(&["down"]);
    }
}

/// What the lab's own program says.
pub fn lab(words: &[&str]) -> Result<String> {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/debug/lab");
    let output = Command::new(&program).args(["--name", &name()]).args(words).output();
    let output = output.with_context(|| format!("{}: `make lab` builds it", program.display()))?;
    ensure!(output.status.success(), "lab {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

pub fn sum(path: &str) -> Result<String> {
    let output = Command::new("sha256sum").arg(path).output()?;
    ensure!(output.status.success(), "sha256sum {path}");
    Ok(String::from_utf8(output.stdout)?.chars().take(64).collect())
}

/// etcdrun in a folder of its own, with nothing of the person's settings.
pub fn etcdrun(bench: &Bench, folder: &Path, words: &[&str]) -> Result<Took> {
    measure(&mut command(bench, folder, words)?, &log(bench))
}

/// The same while a client looks what it notices.
pub fn etcdrun_behind(bench: &Bench, folder: &Path, words: &[&str]) -> Result<Took> {
    measure_behind(&command(bench, folder, words)?, &log(bench))
}

fn command(bench: &Bench, folder: &Path, words: &[&str]) -> Result<Command> {
    fs::write(folder.join("ssh_config"), "IdentityAgent none\nIdentityFile none\n")?;
    let mut command = Command::new(&bench.etcdrun);
    command.args(words).args(["-i", "inventory.yaml", "--ssh-config", "ssh_config"]);
    command.current_dir(folder).env("HOME", folder);
    Ok(command)
}

fn log(bench: &Bench) -> PathBuf {
    bench.folder.join("site.log")
}

/// Five members on hosts that exist; then once more, when nothing is left to do.
pub fn five(bench: &mut Bench) -> Result<Vec<Row>> {
    let (mut first, mut again) = (Vec::new(), Vec::new());
    for round in 1..=bench.rounds {
        let wanted = Wanted { members: 5, minors: &["3.5"], auth: true, data_dir: USUAL, settings: "" };
        let Cluster { folder, .. } = &Cluster::prepare(bench, &format!("site-{round}"), wanted)?;
        for (times, what) in [(&mut first, "from nothing"), (&mut again, "again")] {
            let Took { seconds, .. } = etcdrun(bench, folder, &["playbook", "site.yaml"])?;
            eprintln!("  round {round}: five members, {what} {seconds:.2} s");
            times.push(seconds);
        }
        etcdrun(bench, folder, &["status"]).context("the cluster is healthy")?;
    }
    Ok(vec![
        Row::limit("site: five members from nothing to healthy, TLS and authentication", "s", &first, FIVE_LIMIT),
        Row::limit("site: five members, nothing to do", "s", &again, CONVERGED_LIMIT),
    ])
}

/// A base image from here to a hypervisor, by etcdrun and by scp.
pub fn image(bench: &mut Bench) -> Result<Vec<Row>> {
    let up = Lab::up(&["--hypervisors", "1", "--hosts", "0"])?;
    let folder = bench.folder.join("image");
    fs::create_dir_all(&folder)?;
    let inventory = up.inventory()?;
    fs::write(folder.join("inventory.yaml"), &inventory)?;
    let image = folder.join("image.raw");
    // Nothing that compression could make small.
    let made = Command::new("dd")
        .args(["if=/dev/urandom", "bs=1M", &format!("count={IMAGE_MIB}"), "status=none"])
        .arg(format!("of={}", image.display()))
        .status()?;
    ensure!(made.success(), "dd: {made}");
    let address = inventory.split("address: ").nth(1).and_then(|rest| rest.split(',').next()).context("its address")?;
    let source = image.display().to_string();
    let sha256 = sum(&source)?;
    let (mut ours, mut plain, mut verified) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=bench.rounds {
        let mut scp = Command::new("scp");
        scp.args(["-q", "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes", "-i"]).arg(Lab::folder().join("operator"));
        scp.arg("-o").arg(format!("UserKnownHostsFile={}", Lab::folder().join("known_hosts").display()));
        scp.arg(&image).arg(format!("root@{address}:/var/lib/libvirt/images/scp-{round}.raw"));
        let mut check = Command::new("ssh");
        check.args(["-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes", "-i"]).arg(Lab::folder().join("operator"));
        check.arg("-o").arg(format!("UserKnownHostsFile={}", Lab::folder().join("known_hosts").display()));
        check.arg(format!("root@{address}")).arg(format!("sha256sum /var/lib/libvirt/images/scp-{round}.raw"));
        let by_scp = measure(&mut scp, &bench.folder.join("scp.log"))?.seconds;
        let checked = measure(&mut check, &bench.folder.join("scp.log"))?.seconds;
        let args =
            format!("{{ pool: default, name: etcdrun-{round}.raw, source: {{ file: {source}, sha256: {sha256} }} }}");
        let by_us = etcdrun(bench, &folder, &["exec", "all", "-m", "libvirt_volume", "-a", &args])?.seconds;
        eprintln!(
            "  round {round}: {IMAGE_MIB} MiB, etcdrun {by_us:.2} s, scp {by_scp:.2} s, sha256sum {checked:.2} s"
        );
        ours.push(by_us);
        plain.push(by_scp);
        verified.push(by_scp + checked);
    }
    let name = format!("site: an image of {IMAGE_MIB} MiB to a hypervisor, verified there");
    Ok(vec![
        Row::within(&name, "s", &ours, "scp, then sha256sum", &verified, UPLOAD_BAR),
        Row::faster(&name, &ours, "scp alone", &plain, None),
    ])
}
