//! A plan of everything that writes leaves a host as it was: every file of it is compared.

use std::collections::{BTreeMap, BTreeSet};

use etcdrun_lab::Kind;

use super::Place;

const EVERYTHING: &str = r##"
- name: Everything that writes
  hosts: all
  become: true
  tasks:
    - { name: Facts, facts: {} }
    - { name: Group, group: { name: etcdrun-plan } }
    - { name: User, user: { name: etcdrun-plan, group: etcdrun-plan, home: /home/etcdrun-plan } }
    - { name: Root, user: { name: root, shell: /bin/sh, password_lock: true } }
    - { name: Folder, file: { path: /srv/plan/deep, state: directory, owner: etcdrun-plan, mode: u=rwx } }
    - { name: Touch, file: { path: /srv/touched, state: touch } }
    - { name: Link, file: { path: /srv/link, src: /etc/hostname, state: link } }
    - { name: Remove, file: { path: /etc/hostname, state: absent } }
    - { name: Modes, file: { path: /etc, state: directory, recurse: true, mode: g-r } }
    - { name: Copy, copy: { content: "x\n", dest: /srv/copy, mode: "u+x,g=", backup: true } }
    - { name: Replace, copy: { content: "x\n", dest: /etc/hosts, backup: true, validate: "test -f %s" } }
    - { name: Tree, copy: { src: tree/, dest: /srv/tree } }
    - { name: Large, copy: { src: large, dest: /srv/large } }
    - { name: Template, template: { src: greeting.j2, dest: /etc/motd } }
    - { name: Line, line_in_file: { path: /etc/passwd, line: "# a line" } }
    - { name: Archive, unarchive: { src: files.tar, dest: /opt } }
    - { name: Download, download: { url: "http://127.0.0.1:9/x", dest: /srv/, unverified: true, via: target } }
    - { name: Fetch, fetch: { src: /etc/os-release, dest: fetched/ } }
    - { name: Unit, systemd_unit: { name: etcdrun-plan.service, content: "[Service]\nExecStart=/bin/true\n", enabled: true } }
    - { name: Service, service: { name: systemd-journald, state: restarted, enabled: true } }
    - { name: Package, package: { name: sl, update_cache: true }, ignore_errors: true }
    - { name: Sysctl, sysctl: { name: vm.swappiness, value: "13", sysctl_set: true } }
    - { name: Filesystem, filesystem: { dev: /srv/no-such-disk, fstype: ext4 } }
    - { name: Mount, mount: { path: /mnt/plan, src: tmpfs, fstype: tmpfs, state: mounted } }
    - { name: Command, command: touch /srv/command }
    - { name: Shell, shell: "echo x >/srv/shell" }
    - { name: Script, script: script.sh }
    - { name: Job, command: touch /srv/job, async: 60, poll: 1 }
    - { name: Reboot, reboot: {} }
    - { name: Wait, wait_for: { path: /srv/copy, timeout: 1 } }
"##;

/// All that can be seen of each file; not its content, which cannot change without a time that is seen. What a
/// login leaves, and what a machine does by itself, is left out.
pub(super) fn files(place: &Place) -> BTreeMap<String, String> {
    let aside = [
        // What etcd does with its own files is its own business.
        "/var/lib/etcd",
        "/proc",
        "/sys",
        "/dev",
        "/run/systemd",
        "/run/log",
        "/run/user",
        "/run/utmp",
        "/run/dbus",
        "/run/sudo",
        "/var/log",
        "/var/lib/systemd",
        "/run/motd.dynamic",
    ];
    let prune: Vec<String> = aside.iter().flat_map(|path| ["-path".into(), (*path).into(), "-o".into()]).collect();
    let mut words: Vec<&str> = vec!["find", "/", "("];
    words.extend(prune.iter().take(prune.len() - 1).map(String::as_str));
    words.extend([")", "-prune", "-o", "-printf", "%p\t%y %m %u %g %s %T@ %l\n"]);
    let said = place.hosts[0].run(&words).unwrap();
    said.lines()
        .filter_map(|line| line.split_once('\t'))
        // A login writes the message of the day there.
        .filter(|(path, _)| *path != "/run")
        .map(|(path, rest)| (path.to_owned(), rest.to_owned()))
        .collect()
}

pub(super) fn are_the_same(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>, said: &str) {
    let changed: BTreeSet<_> =
        before.keys().chain(after.keys()).filter(|path| before.get(*path) != after.get(*path)).collect();
    assert!(changed.is_empty(), "{changed:#?}\n{said}");
}

#[test]
fn a_plan_of_everything_changes_no_file_of_a_host() {
    let place = Place::new(Kind::Fast, 1);
    place.folder.write("site.yaml", EVERYTHING).write("greeting.j2", "Hello {{ inventory_hostname }}.\n");
    place
        .folder
        .write("tree/a/b", "b\n")
        .write("large", &"x".repeat(200_000))
        .write("script.sh", "touch /srv/script\n");
    crate::support::run("tar", &["-cf", place.folder.path("files.tar").to_str().unwrap(), "-C", "/etc", "hostname"]);
    // The first login makes what every later one finds.
    place.exec(0, "true").ends(0);
    let here = || {
        let found = crate::support::run("find", &[place.folder.path("").to_str().unwrap()]);
        String::from_utf8(found.stdout).unwrap()
    };
    let (before, ours) = (files(&place), here());
    assert!(before.len() > 1000 && before.contains_key("/etc/hostname"), "{}", before.len());
    let said = place.folder.run(&["plan", "site.yaml", "--out", "site.plan"]);
    are_the_same(&before, &files(&place), &said.stdout);
    assert!(
        said.stdout.contains("Plan: ") && !said.stdout.contains("mistake in etcdrun"),
        "{}{}",
        said.stdout,
        said.stderr
    );
    for word in [
        "change      Copy",
        "change      Tree",
        "change      Large",
        "unknown     Shell",
        "unknown     Job",
        "change      Reboot",
    ] {
        assert!(said.stdout.contains(word), "{word}: {}", said.stdout);
    }
    let new = here().replace(&format!("{}\n", place.folder.path("site.plan").display()), "");
    assert_eq!(new.lines().collect::<BTreeSet<_>>(), ours.lines().collect::<BTreeSet<_>>(), "nor one of ours");
}
