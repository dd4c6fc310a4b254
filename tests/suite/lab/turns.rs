//! What may take members of clusters down, outside of their turns and in them.

use etcdrun_lab::Kind;

use super::{
    Place, Said,
    etcd::{PLAIN, Site},
};

fn site() -> Site {
    Site::formed(3, "3.5", PLAIN)
}

/// One task on all members; `more` are keywords of the play or of the task.
fn play(site: &Site, task: &str, of_play: &str, of_task: &str) -> Said {
    let text = format!("- hosts: prod\n  become: true\n{of_play}  tasks:\n    - name: Now\n      {task}\n{of_task}");
    site.place.folder.write("now.yaml", &text);
    site.place.folder.run(&["playbook", "now.yaml", "-i", "inventory.yaml"])
}

fn exec(site: &Site, words: &[&str]) -> Said {
    site.place.folder.run(&[&["exec", "prod", "-i", "inventory.yaml", "-b"], words].concat())
}

/// Which start of etcd runs on each member; nothing where none does.
pub(super) fn starts(site: &Site) -> Vec<String> {
    let ask = ["systemctl", "show", "-p", "ActiveState", "-p", "InvocationID", "etcd.service"];
    site.place.hosts.iter().map(|host| host.run(&ask).unwrap()).collect()
}

pub(super) fn differing(one: &[String], other: &[String]) -> usize {
    one.iter().zip(other).filter(|(one, other)| one != other).count()
}

#[test]
fn a_command_that_restarts_a_member_is_the_last_one() {
    let site = site();
    let restart = "shell: systemctl restart etcd";
    let before = starts(&site);
    // Neither `ignore_errors` nor a verdict of the playbook's own makes it harmless.
    let said = play(&site, restart, "", "      ignore_errors: true\n      failed_when: false\n").ends(3);
    assert!(said.stdout.contains("etcd.service was stopped or restarted by this"), "{}", said.stdout);
    assert!(said.stdout.contains("rollout:"), "{}", said.stdout);
    let after = starts(&site);
    assert_eq!(differing(&before, &after), 1, "nobody else is touched: {}", said.stdout);

    // What is behind it does not run either, on any member.
    let tasks = "shell: systemctl --no-block restart etcd\n      ignore_errors: true\n    - name: Then\n      command: touch /root/then";
    play(&site, tasks, "", "").ends(3);
    for host in &site.place.hosts {
        assert!(host.run(&["test", "-e", "/root/then"]).is_err());
    }
    let again = starts(&site);
    assert!(differing(&after, &again) <= 1, "{after:?} {again:?}");

    // Who is still starting would not be missed.
    for host in &site.place.hosts {
        host.run(&["systemctl", "start", "etcd"]).unwrap();
    }
    exec(&site, &["--shell", "systemctl stop etcd"]).ends(3);
    assert_eq!(starts(&site).iter().filter(|state| !state.contains("=active")).count(), 1);
    // A member that is down may be looked at, and mended.
    exec(&site, &["--shell", "systemctl start etcd"]).ends(0);
    site.is_served_by_all();

    // What changes nothing, and what leaves members alone, runs everywhere.
    exec(&site, &["--read-only", "--", "uptime"]).ends(0);
    exec(&site, &["--", "touch", "/root/harmless"]).ends(0);
    let before = starts(&site);
    play(&site, restart, "  rollout: { strategy: etcd }\n", "").ends(0);
    assert_eq!(differing(&before, &starts(&site)), 3, "in its turn each of them restarts");
    site.is_served_by_all();
}

#[test]
fn a_module_that_may_disrupt_is_watched_too() {
    let site = site();
    for host in &site.place.hosts {
        let unit = "printf '[Unit]\\nConflicts=etcd.service\\n[Service]\\nExecStart=/bin/sleep 1000\\n' >/etc/systemd/system/rival.service; systemctl daemon-reload";
        host.run(&["sh", "-c", unit]).unwrap();
    }
    // What is as it should be takes nobody's turn: it only looks, and so intends nothing.
    let intents =
        || std::fs::read_to_string(site.place.folder.last_run().join("journal")).unwrap().matches("\"intent\"").count();
    play(&site, "service: { name: etcd, state: started }", "", "").ends(0);
    assert_eq!(intents(), 0);
    let said = play(&site, "service: { name: rival, state: started }", "", "").ends(3);
    assert!(intents() > 0);
    assert!(said.stdout.contains("etcd.service was stopped or restarted by this"), "{}", said.stdout);
    assert_eq!(starts(&site).iter().filter(|state| !state.contains("=active")).count(), 1, "{}", said.stdout);
    // A job that nobody waits for could not be watched.
    let late = play(&site, "command: uptime", "", "      async: 60\n      poll: 0\n").ends(3);
    assert!(late.stdout.contains("`poll: 0`"), "{}", late.stdout);
}

#[test]
fn a_cluster_that_was_formed_from_elsewhere_keeps_its_members_as_well() {
    let site = site();
    // As on the machine of a colleague who has the inventory, and nothing else.
    let place = &site.place;
    std::fs::remove_dir_all(place.folder.path(".etcdrun/clusters")).unwrap();
    let before = starts(&site);
    let said = play(&site, "service: { name: etcd, state: restarted }", "", "").ends(3);
    assert!(said.stdout.contains("without a quorum check"), "{}", said.stdout);
    assert_eq!(differing(&before, &starts(&site)), 0, "{}", said.stdout);
    let said = exec(&site, &["--shell", "systemctl stop etcd", "--limit", &site.names[0]]).ends(3);
    assert!(said.stdout.contains("etcd.service was stopped or restarted by this"), "{}", said.stdout);
    // What does not run cannot be lost.
    let said = place.folder.run(&[
        "exec",
        &site.names[0],
        "-i",
        "inventory.yaml",
        "-b",
        "-m",
        "service",
        "-a",
        "name=etcd state=stopped",
    ]);
    said.ends(0);
}

/// Two hypervisors with a guest each, whose cluster counts as formed. The guests have nothing to boot.
fn hypervisors() -> Place {
    let place = Place::new(Kind::Hypervisor, 2);
    let written = place.folder.read("inventory.yaml");
    let mut members = String::new();
    for (number, host) in place.hosts.iter().enumerate() {
        let xml = format!(
            "<domain type='qemu'><name>etcd-{number}</name><memory unit='MiB'>16</memory><os><type machine='q35'>hvm</type></os></domain>"
        );
        host.run(&["sh", "-c", &format!("echo \"{xml}\" | virsh create /dev/stdin")]).unwrap();
        members += &format!("      etcd-{number}: {{ hypervisor: {}, address: 192.0.2.{number} }}\n", host.name());
    }
    place.folder.write("inventory.yaml", &format!("{written}clusters:\n  prod:\n    members:\n{members}"));
    let record = r#"{"phase":"formed","token":"t","members":["etcd-0","etcd-1"],"cluster_id":"1"}"#;
    place.folder.write(".etcdrun/clusters/prod.json", record);
    place
}

#[test]
fn a_command_that_takes_a_guest_from_a_hypervisor_is_the_last_one() {
    let place = hypervisors();
    let running = || -> usize {
        let names = place.hosts.iter().map(|host| host.run(&["virsh", "list", "--name"]).unwrap());
        names.map(|names| names.split_whitespace().count()).sum()
    };
    assert_eq!(running(), 2);
    let exec = |words: &[&str]| place.folder.run(&[&["exec", "hypervisors", "-i", "inventory.yaml"], words].concat());
    exec(&["--", "virsh", "list"]).ends(0);
    let said = exec(&["--shell", "for name in $(virsh list --name); do virsh destroy $name; done"]).ends(3);
    assert!(said.stdout.contains("was stopped or restarted by this"), "{}", said.stdout);
    assert_eq!(running(), 1, "{}", said.stdout);
    // One that is paused serves nobody, although it is there.
    let last = "for name in $(virsh list --name); do virsh suspend $name; done";
    let said = exec(&["--shell", last]).ends(3);
    assert!(said.stdout.contains("was stopped or restarted by this"), "{}", said.stdout);
    // Without libvirt, its notes tell who runs.
    for host in &place.hosts {
        let stop = "systemctl stop libvirtd.socket libvirtd-ro.socket libvirtd-admin.socket libvirtd.service";
        host.run(&["sh", "-c", stop]).unwrap();
    }
    let said = exec(&["--shell", "kill -9 $(cat /run/libvirt/qemu/*.pid); sleep 0.2"]).ends(3);
    assert!(said.stdout.contains("was stopped or restarted by this"), "{}", said.stdout);
    for host in &place.hosts {
        host.run(&["systemctl", "start", "libvirtd.socket", "libvirtd-ro.socket", "libvirtd.service"]).unwrap();
    }
    // A reboot is known to take guests down, and is not even tried.
    let said = exec(&["-m", "reboot"]).ends(3);
    assert!(said.stdout.contains("would stop etcd-"), "{}", said.stdout);
}

/// Three members, and three other hosts that stand for their hypervisors.
pub(super) fn spread() -> (Site, Place) {
    let site = site();
    let place = Place::new(Kind::Fast, 3);
    let known = site.place.folder.read("known_hosts") + &place.folder.read("known_hosts");
    site.place.folder.write("known_hosts", &known);
    let mut text = site.place.folder.read("inventory.yaml");
    let mut listed = String::new();
    for (host, name) in place.hosts.iter().zip(&site.names) {
        listed += &format!("  {}: {{ address: {} }}\n", host.name(), host.address());
        text = text.replace(
            &format!("{name}: {{ address"),
            &format!("{name}: {{ hypervisor: {}, ssh_via: direct, address", host.name()),
        );
    }
    site.place.folder.write("inventory.yaml", &format!("{text}hypervisors:\n{listed}"));
    (site, place)
}

#[test]
fn hypervisors_take_the_turns_of_all_members_on_them() {
    let (site, hypervisors) = spread();
    let play = |rollout: &str, task: &str| {
        let text = format!("- hosts: hypervisors\n  become: true\n{rollout}  tasks:\n    - name: Now\n      {task}\n");
        site.place.folder.write("now.yaml", &text);
        site.place.folder.run(&["playbook", "now.yaml", "-i", "inventory.yaml"])
    };
    let rolls = "  rollout: { strategy: etcd, timeout: 20s }\n";
    // Its guests would go down with it.
    let refused = play("", "reboot:").ends(3);
    assert!(refused.stdout.contains("would stop"), "{}", refused.stdout);
    let log = site.place.folder.path("hooks").display().to_string();
    let hook = format!(
        "  vars: {{ rollout_hook_before: 'echo $ETCDRUN_HOST $ETCDRUN_CLUSTER $ETCDRUN_MEMBER >>{log}', rollout_hook_after: 'exit 7' }}\n"
    );
    let said = play(&format!("{rolls}{hook}"), "command: touch /root/turn").ends(0);
    for (host, member) in hypervisors.hosts.iter().zip(&site.names) {
        let hooks = site.place.folder.read("hooks");
        assert!(hooks.lines().any(|line| line == format!("{} prod {member}", host.name())), "{hooks}");
    }
    for host in &hypervisors.hosts {
        host.run(&["rm", "/root/turn"]).unwrap();
    }
    assert!(said.stdout.contains("longest gap"), "{}", said.stdout);

    // One member is down: only its own hypervisor may go.
    site.place.hosts[1].run(&["systemctl", "stop", "etcd"]).unwrap();
    let shut = play(rolls, "command: touch /root/turn").ends(3);
    assert!(shut.stdout.contains("the gate refuses"), "{}", shut.stdout);
    for host in &hypervisors.hosts {
        assert!(host.run(&["test", "-e", "/root/turn"]).is_err(), "{}", shut.stdout);
    }
    let own = hypervisors.hosts[1].name();
    let words = ["playbook", "now.yaml", "-i", "inventory.yaml", "--limit", own];
    site.place.hosts[1].run(&["systemctl", "start", "etcd"]).unwrap();
    site.place.folder.run(&words).ends(0);
}

/// Which boot this is on each host.
fn boots(site: &Site) -> Vec<String> {
    site.place.hosts.iter().map(|host| boot(host)).collect()
}

fn boot(host: &etcdrun_lab::Host) -> String {
    host.run(&["cat", "/proc/sys/kernel/random/boot_id"]).unwrap()
}

#[test]
fn a_hypervisor_that_is_drained_takes_no_members_and_one_without_any_just_boots() {
    let (site, hypervisors) = spread();
    let spare = Place::new(Kind::Fast, 1);
    let folder = &site.place.folder;
    folder.write("known_hosts", &(folder.read("known_hosts") + &spare.folder.read("known_hosts")));
    let empty = spare.hosts[0].name();
    let text = folder.read("inventory.yaml") + &format!("  {empty}: {{ address: {} }}\n", spare.hosts[0].address());
    folder.write("inventory.yaml", &text);
    let run = |words: &[&str]| folder.run(&[words, &["-i", "inventory.yaml"]].concat());
    let said = run(&["drain", empty, "--yes"]).ends(0);
    assert!(said.stdout.contains("no member runs on") && said.stdout.contains("undrain"), "{}", said.stdout);
    let said = run(&["member", "move", &site.names[0], "--to", empty, "--ip", "192.0.2.1", "--yes"]).ends(5);
    assert!(said.stderr.contains("is drained"), "{}", said.stderr);
    // Those that are left are no way out for a machine of its own.
    let said = run(&["drain", hypervisors.hosts[0].name(), "--yes"]);
    assert_ne!(said.code, 0, "{}", said.stdout);
    assert!(run(&["undrain", empty, "--yes"]).ends(0).stdout.contains("accepts members again"));
    assert!(run(&["undrain", empty, "--yes"]).ends(0).stdout.contains("is not drained"));
    let before = boot(&spare.hosts[0]);
    run(&["drain", empty, "--reboot", "--yes"]).ends(0);
    assert_ne!(boot(&spare.hosts[0]), before);
    assert!(run(&["drain", "hv9", "--reboot", "--yes"]).ends(5).stderr.contains("no hypervisor `hv9`"));
}

#[test]
fn a_command_that_nobody_saw_the_end_of_is_the_last_one() {
    let site = site();
    let before = boots(&site);
    let said = exec(&site, &["--shell", "systemctl reboot; sleep 600"]);
    assert!([2, 3].contains(&said.code), "{}", said.stdout);
    assert_eq!(differing(&before, &boots(&site)), 1, "{}", said.stdout);
}

#[test]
fn machines_of_members_boot_one_after_the_other() {
    let site = site();
    let before = boots(&site);
    let said = site.place.folder.run(&["playbook", "reboot.yaml", "-i", "inventory.yaml"]).ends(0);
    assert_eq!(differing(&before, &boots(&site)), 3, "{}", said.stdout);
    site.is_served_by_all();
    assert!(said.stdout.contains("longest gap"), "{}", said.stdout);
    // How long that took is known to the next plan.
    let plan = site.place.folder.run(&["plan", "reboot.yaml", "-i", "inventory.yaml"]).ends(0);
    for words in ["Rollout of prod", "  order  ", "  gates  before: ", "  time   3 turns, about "] {
        assert!(plan.stdout.contains(words), "{words}: {}", plan.stdout);
    }
}

#[test]
fn operating_systems_are_upgraded_in_turns() {
    let site = site();
    // A machine whose packages ask for a boot.
    let waiting = &site.place.hosts[1];
    waiting.run(&["sh", "-c", "mkdir -p /run && touch /run/reboot-required"]).unwrap();
    for host in &site.place.hosts {
        // There is no repository to ask here.
        host.run(&["sh", "-c", "rm -rf /etc/apt/sources.list /etc/apt/sources.list.d; apt-get update"]).unwrap();
    }
    let before = starts(&site);
    let said = site.place.folder.run(&["playbook", "os-upgrade.yaml", "-i", "inventory.yaml"]).ends(0);
    assert_eq!(differing(&before, &starts(&site)), 1, "{}", said.stdout);
    assert!(waiting.run(&["test", "-e", "/run/reboot-required"]).is_err());
    site.is_served_by_all();
}

#[test]
fn guests_are_started_and_shut_down() {
    let place = Place::new(Kind::Hypervisor, 1);
    let xml = "<domain type='qemu'><name>g</name><memory unit='MiB'>16</memory><os><type machine='q35'>hvm</type></os></domain>";
    place.hosts[0].run(&["sh", "-c", &format!("echo \"{xml}\" | virsh define /dev/stdin")]).unwrap();
    let power = |words: &str, more: &[&str]| {
        let call = ["exec", "hypervisors", "-i", "inventory.yaml", "-m", "libvirt_power", "-a", words];
        place.folder.run(&[&call, more].concat())
    };
    let state = || place.hosts[0].run(&["virsh", "domstate", "g"]).unwrap().trim().to_owned();
    power("name=g state=running", &["--check"]).ends(0);
    assert_eq!(state(), "shut off");
    assert!(power("name=g state=running", &[]).ends(0).stdout.contains("CHANGED"));
    assert!(power("name=g state=running", &[]).ends(0).stdout.contains("SUCCESS"));
    // It has no system that could shut down, and is not simply cut off.
    let stays = power("name=g state=shut_off timeout=1", &[]).ends(2);
    assert!(stays.stdout.contains("did not shut down within 1 s"), "{}", stays.stdout);
    assert_eq!(state(), "running");
    let id = || place.hosts[0].run(&["virsh", "domid", "g"]).unwrap();
    let before = id();
    power("name=g state=restarted timeout=1 force=true", &[]).ends(0);
    assert_ne!(id(), before);
    power("name=g state=shut_off timeout=1 force=true", &[]).ends(0);
    assert_eq!(state(), "shut off");
}

#[test]
fn hooks_run_around_each_turn_and_the_first_one_can_stop_it() {
    let site = site();
    let said = site.place.folder.path("hooks").display().to_string();
    let hook = |when: &str| format!("rollout_hook_{when}='echo {when} $ETCDRUN_CLUSTER $ETCDRUN_MEMBER >>{said}'");
    let restart = |hooks: [&str; 2]| {
        let words = ["-i", "inventory.yaml", "-e", hooks[0], "-e", hooks[1]];
        let text = "- hosts: prod\n  become: true\n  rollout: { strategy: etcd }\n  tasks:\n    - name: Now\n      service: { name: etcd, state: restarted }\n";
        site.place.folder.write("now.yaml", text);
        site.place.folder.run(&[&["playbook", "now.yaml"], &words[..]].concat())
    };
    restart([&hook("before"), &hook("after")]).ends(0);
    let text = site.place.folder.read("hooks");
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
    assert_eq!(lines.len(), 6, "{text}");
    for turn in lines.chunks(2) {
        assert_eq!((turn[0][0], turn[1][0]), ("before", "after"), "{text}");
        assert!(turn[0][1..] == turn[1][1..] && turn[0][1] == "prod", "{text}");
    }
    assert!(site.names.iter().all(|name| text.matches(name.as_str()).count() == 2), "{text}");

    let before = starts(&site);
    restart(["rollout_hook_before='exit 7'", &hook("after")]).ends(2);
    assert_eq!(differing(&before, &starts(&site)), 0);
    let said = restart([&hook("before"), "rollout_hook_after='exit 7'"]).ends(0);
    assert_eq!(differing(&before, &starts(&site)), 3, "{}", said.stdout);
    assert!(said.stdout.contains("Run the hook after the turn"), "{}", said.stdout);
}

#[test]
fn another_strategy_takes_down_no_member_of_etcd() {
    let site = Site::formed(3, "3.5", PLAIN);
    let text =
        "- hosts: prod\n  become: true\n  rollout: { strategy: serial }\n  tasks:\n    - name: Reboot\n      reboot:\n";
    site.place.folder.write("serial.yaml", text);
    let said = site.place.folder.run(&["playbook", "serial.yaml", "-i", "inventory.yaml"]);
    let words = format!("{}{}", said.stdout, said.stderr);
    assert!(said.code != 0 && words.contains("strategy: etcd"), "{}: {words}", said.code);
    site.is_served_by_all();
}
