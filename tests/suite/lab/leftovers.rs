//! After a lab nothing is left, however it ended.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use etcdrun_lab::{Lab, LinkFault, wait};

use super::lab;

const NAME: &str = "etcdrun-left";
const LIMIT: Duration = Duration::from_secs(60);

/// Everything of this machine that a lab could leave behind, a line each.
fn machine() -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    let mut add = |kind: &str, lines: &str| all.extend(lines.lines().map(|line| format!("{kind}: {line}")));
    add("mount", &mounts());
    add("interface", &names_in("/sys/class/net"));
    add("namespace", &said("ip", &["netns", "list"]));
    add("rule", &said("nft", &["list", "ruleset"]));
    add("cgroup", &cgroups());
    add("loop", &loops());
    add("limit", &fs::read_to_string("/proc/sys/fs/inotify/max_user_instances").unwrap());
    add("process", &strangers());
    for folder in ["/run/systemd/nspawn", "/run/netns", "/var/lib/etcdrun-lab", "/var/lib/machines"] {
        add(folder, &names_in(folder));
    }
    all
}

fn mounts() -> String {
    // Without the numbers, which differ when something else is mounted and unmounted in between.
    let text = fs::read_to_string("/proc/self/mounts").unwrap();
    text.lines().map(|line| line.split(' ').take(3).collect::<Vec<_>>().join(" ") + "\n").collect()
}

fn names_in(folder: &str) -> String {
    let Ok(entries) = fs::read_dir(folder) else { return String::new() };
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned() + "\n").collect()
}

fn said(program: &str, words: &[&str]) -> String {
    String::from_utf8(Command::new(program).args(words).output().unwrap().stdout).unwrap()
}

fn cgroups() -> String {
    let text = said("find", &["/sys/fs/cgroup", "-type", "d", "-path", "*etcdrun-lab*"]);
    text.lines().filter(|line| line.contains(NAME)).map(|line| line.to_owned() + "\n").collect()
}

fn loops() -> String {
    let blocks = names_in("/sys/block");
    let files =
        blocks.lines().filter_map(|block| fs::read_to_string(format!("/sys/block/{block}/loop/backing_file")).ok());
    files.collect()
}

/// Processes that are not in the namespaces of this machine.
fn strangers() -> String {
    let own = |pid: &str, kind: &str| fs::read_link(format!("/proc/{pid}/ns/{kind}")).ok();
    let here = ["net", "mnt", "pid"].map(|kind| own("self", kind));
    let numbers = names_in("/proc");
    let strangers = numbers.lines().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())).filter(|pid| {
        let there = ["net", "mnt", "pid"].map(|kind| own(pid, kind));
        there.iter().all(Option::is_some) && there != here
    });
    strangers
        .map(|pid| format!("{pid} {}", fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default()))
        .collect()
}

fn program() -> Command {
    let mut command = Command::new(lab().program());
    command.args(["--name", NAME]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

fn up() -> Child {
    program().args(["up", "--hypervisors", "1", "--hosts", "2"]).spawn().unwrap()
}

/// No lab of an earlier run of the tests is there, and none of this one stays when the test fails.
struct Clean;

impl Clean {
    fn start() -> Self {
        down();
        Self
    }
}

impl Drop for Clean {
    fn drop(&mut self) {
        down();
    }
}

fn down() {
    let done = program().arg("down").output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[track_caller]
fn assert_nothing_left(before: &BTreeSet<String>, when: &str) {
    // The kernel takes namespaces apart in its own time.
    let left = || machine().difference(before).cloned().collect::<Vec<_>>();
    let gone = wait::until("all is gone", LIMIT, || Ok(left().is_empty().then_some(())));
    assert!(gone.is_ok(), "left {when}:\n{}", left().join("\n"));
    let lost: Vec<_> = before.iter().filter(|line| !line.starts_with("process")).cloned().collect();
    let now = machine();
    let lost: Vec<_> = lost.iter().filter(|line| !now.contains(*line)).collect();
    assert!(lost.is_empty(), "taken away {when}: {lost:?}");
}

#[test]
fn a_lab_with_everything_wrong_in_it_leaves_nothing() {
    let _clean = Clean::start();
    let before = machine();
    assert!(up().wait().unwrap().success());
    let lab = Lab::open(NAME).unwrap();
    let [hypervisor, one, other] = [lab.host("hv1").unwrap(), lab.host("node1").unwrap(), lab.host("node2").unwrap()];
    one.delay(Duration::from_millis(5)).unwrap();
    lab.partition(&[&one], &[&other]).unwrap();
    other.freeze().unwrap();
    hypervisor.cut().unwrap();
    assert!(machine().difference(&before).count() > 10, "there is something to be taken away");
    down();
    assert_nothing_left(&before, "after down");
    down();
}

#[test]
fn heal_takes_back_all_faults_of_the_network() {
    let _clean = Clean::start();
    assert!(up().wait().unwrap().success());
    let lab = Lab::open(NAME).unwrap();
    let [one, other] = [lab.host("node1").unwrap(), lab.host("node2").unwrap()];
    one.cut().unwrap();
    other.delay(Duration::from_millis(5)).unwrap();
    lab.partition(&[&one], &[&other]).unwrap();
    other.freeze().unwrap();
    lab.heal().unwrap();
    assert_eq!([one.link_fault().unwrap(), other.link_fault().unwrap()], [LinkFault::default(), LinkFault::default()]);
    assert!(lab.partitions().unwrap().trim().is_empty() && !other.is_frozen());
    wait::until("both answer", LIMIT, || Ok((one.answers() && other.answers()).then_some(()))).unwrap();
    down();
}

#[test]
fn a_start_that_was_killed_leaves_nothing_and_can_be_repeated() {
    let _clean = Clean::start();
    let before = machine();
    let folder = Path::new("/var/lib/etcdrun-lab").join(NAME);
    let moments = ["lab.json", "hosts/hv1", "hosts/node1/host.json", "hosts/hv1/keeper.pid", "hosts/node1/console"];
    for moment in moments {
        let mut start = up();
        wait::until(moment, LIMIT, || Ok((folder.join(moment).exists() || start.try_wait()?.is_some()).then_some(())))
            .unwrap();
        start.kill().unwrap();
        start.wait().unwrap();
        down();
        assert_nothing_left(&before, &format!("after a kill -9 at {moment}"));
    }
    // Without taking it down, another start goes on from there.
    let mut start = up();
    wait::until("the start is half done", LIMIT, || Ok(folder.join("hosts/node1/keeper.pid").exists().then_some(())))
        .unwrap();
    start.kill().unwrap();
    start.wait().unwrap();
    assert!(up().wait().unwrap().success());
    assert!(Lab::open(NAME).unwrap().hosts().unwrap().iter().all(|host| host.answers()));
    down();
    assert_nothing_left(&before, "after a repeated start");
}

#[test]
fn a_second_start_changes_nothing_and_another_size_only_the_difference() {
    let _clean = Clean::start();
    let boot_id =
        |lab: &Lab, host: &str| lab.host(host).unwrap().run(&["cat", "/proc/sys/kernel/random/boot_id"]).unwrap();
    assert!(up().wait().unwrap().success());
    let lab = Lab::open(NAME).unwrap();
    let before = (boot_id(&lab, "hv1"), boot_id(&lab, "node1"));
    assert!(up().wait().unwrap().success());
    assert!(program().args(["up", "--hypervisors", "1", "--hosts", "1"]).status().unwrap().success());
    assert_eq!((boot_id(&lab, "hv1"), boot_id(&lab, "node1")), before);
    assert!(lab.host("node2").is_err());
    down();
}

#[test]
fn without_root_it_refuses_and_says_why() {
    // Where others can get at it.
    let folder = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempdir().unwrap();
    let copy = folder.path().join("lab");
    fs::copy(lab().program(), &copy).unwrap();
    let done = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(copy)
        .args(["--name", NAME, "up"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(!done.status.success() && said.contains("needs root"), "{said}");
}
