//! What runs apart from the connection, as units of a real systemd: sessions, operators and machines that go away.

use std::{
    process::{Child, Stdio},
    time::Duration,
};

use etcdrun_lab::{Kind, wait};

use super::Place;

const LIMIT: Duration = Duration::from_secs(60);

/// A service that says when it starts, and takes until it may.
const SLOW_SERVICE: &str = r#"
- name: Site
  hosts: all
  tasks:
    - name: Unit
      systemd_unit:
        name: slow.service
        content: |
          [Service]
          ExecStartPre=/bin/sh -c 'echo x >>/root/starts; while ! test -e /root/go; do sleep 0.05; done'
          ExecStart=/bin/sleep 1000
    - name: Restart
      service: { name: slow, state: restarted }
    - name: After
      shell: echo x >>/root/after
"#;

fn start(place: &Place, args: &[&str]) -> Child {
    place.folder.command(args).stdout(Stdio::piped()).spawn().unwrap()
}

fn ends(child: Child, code: i32) -> String {
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(code), "{said}");
    said
}

fn wait_for(place: &Place, path: &str) {
    let there = || Ok(place.hosts[0].run(&["test", "-e", path]).is_ok().then_some(()));
    wait::until(&format!("{path} is there"), LIMIT, there).unwrap();
}

/// The units of runs that are there now.
fn units(place: &Place) -> String {
    place.hosts[0].run(&["systemctl", "list-units", "--no-legend", "--plain", "etcdrun-*"]).unwrap()
}

fn read(place: &Place, path: &str) -> String {
    place.hosts[0].run(&["cat", path]).unwrap()
}

fn jobs(place: &Place) -> String {
    place.hosts[0].run(&["sh", "-c", "ls /root/.etcdrun/jobs /root/.etcdrun/runs 2>/dev/null || true"]).unwrap()
}

fn run_id(place: &Place) -> String {
    place.folder.last_run().file_name().unwrap().to_string_lossy().into_owned()
}

/// A run in the midst of the restart of a service.
fn restarting() -> (Place, Child) {
    let place = Place::new(Kind::Fast, 1);
    place.folder.write("site.yaml", SLOW_SERVICE);
    let run = start(&place, &["playbook", "site.yaml"]);
    wait_for(&place, "/root/starts");
    let (units, id) = (units(&place), run_id(&place));
    assert_eq!(units.lines().count(), 1, "{units}");
    assert!(units.starts_with(&format!("etcdrun-{id}-")) && units.contains("running"), "{units}");
    (place, run)
}

fn restarted_once(place: &Place) {
    assert_eq!(read(place, "/root/starts"), "x\n");
    assert_eq!(read(place, "/root/after"), "x\n");
    assert_eq!(units(place), "", "a unit goes with its end");
    let left: Vec<_> =
        jobs(place).lines().filter(|line| !line.is_empty() && !line.ends_with(':')).map(str::to_owned).collect();
    assert_eq!(left, [""; 0], "what the host remembers goes with the run");
}

#[test]
fn a_session_that_is_killed_neither_ends_nor_repeats_a_restart() {
    let (place, run) = restarting();
    place.hosts[0].sessions().unwrap().iter().for_each(|session| session.kill().unwrap());
    place.hosts[0].run(&["touch", "/root/go"]).unwrap();
    ends(run, 0);
    restarted_once(&place);
}

#[test]
fn an_operator_who_is_killed_neither_ends_nor_repeats_a_restart() {
    let (place, mut run) = restarting();
    run.kill().unwrap();
    run.wait().unwrap();
    place.hosts[0].run(&["touch", "/root/go"]).unwrap();
    place.folder.run(&["resume"]).ends(0);
    restarted_once(&place);
}

#[test]
fn a_restart_that_a_power_cut_took_is_in_doubt() {
    let (place, mut run) = restarting();
    run.kill().unwrap();
    run.wait().unwrap();
    place.hosts[0].kill().unwrap();
    place.hosts[0].start().unwrap();
    let said = place.folder.run(&["resume"]).ends(2);
    assert!(said.stdout.contains("in doubt: the host has rebooted while the job"), "{}", said.stdout);
    assert_eq!(read(&place, "/root/starts"), "x\n");
    place.folder.run(&["resume", "--assume", "done", &format!("Site/{}/Restart", place.hosts[0].name())]).ends(0);
    assert_eq!(read(&place, "/root/after"), "x\n");
}

#[test]
fn a_long_command_is_a_unit_with_the_surroundings_of_its_session() {
    let place = Place::new(Kind::Fast, 1);
    let play = r#"
- name: Long
  hosts: all
  tasks:
    - name: Count
      shell: "echo x >>/root/count; while ! test -e /root/go; do sleep 0.05; done; pwd; echo $HOME $GIVEN; umask; touch mark"
      environment: { GIVEN: "a 'b' c" }
      async: 60
      poll: 1
      register: counted
    - { name: Result, copy: { dest: /root/result, content: "{{ counted.stdout }}\n" } }
"#;
    place.folder.write("site.yaml", play);
    let run = start(&place, &["playbook", "site.yaml"]);
    wait_for(&place, "/root/count");
    assert!(units(&place).starts_with(&format!("etcdrun-{}-", run_id(&place))), "{}", units(&place));
    place.hosts[0].sessions().unwrap().iter().for_each(|session| session.kill().unwrap());
    place.hosts[0].run(&["touch", "/root/go"]).unwrap();
    ends(run, 0);
    assert_eq!(read(&place, "/root/count"), "x\n");
    assert_eq!(read(&place, "/root/result"), "/root\n/root a 'b' c\n0022\n");
    assert_eq!(place.hosts[0].run(&["stat", "-c", "%a", "/root/mark"]).unwrap().trim(), "644");
}

#[test]
fn a_reboot_that_has_happened_is_known_by_the_boot_id() {
    let place = Place::new(Kind::Fast, 1);
    let play = r#"
- name: Boot
  hosts: all
  tasks:
    - { name: Reboot, reboot: { reboot_command: "echo x >>/root/asked; sleep 1000" } }
    - { name: After, shell: "echo x >>/root/after" }
"#;
    place.folder.write("site.yaml", play);
    let mut run = start(&place, &["playbook", "site.yaml"]);
    wait_for(&place, "/root/asked");
    run.kill().unwrap();
    run.wait().unwrap();
    place.hosts[0].kill().unwrap();
    place.hosts[0].start().unwrap();
    place.folder.run(&["resume"]).ends(0);
    assert_eq!((read(&place, "/root/asked"), read(&place, "/root/after")), ("x\n".into(), "x\n".into()));
}
