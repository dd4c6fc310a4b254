//! The modules that need a running systemd and a machine that can reboot.

use etcdrun_lab::Kind;

use super::{Place, Said};

const UNIT: &str = r#"
- hosts: all
  tasks:
    - name: unit
      systemd_unit:
        name: etcdrun-test.service
        content: |
          [Unit]
          Description=A test
          [Service]
          ExecStart=/bin/sleep {{ seconds }}
          [Install]
          WantedBy=multi-user.target
      notify: restart
    - name: service
      service: { name: etcdrun-test, state: started, enabled: true }
  handlers:
    - name: restart
      service: { name: etcdrun-test, state: restarted }
"#;

/// What a unit's property is on the first host.
fn property(place: &Place, name: &str) -> String {
    place.hosts[0].run(&["systemctl", "show", "--value", "--property", name, "etcdrun-test"]).unwrap().trim().to_owned()
}

fn play(place: &Place, name: &str, more: &[&str]) -> Said {
    place.folder.run(&[&["playbook", name], more].concat())
}

#[test]
fn a_service_is_written_enabled_started_and_restarted_when_it_changes() {
    let place = Place::new(Kind::Fast, 1);
    place.folder.write("unit.yaml", UNIT);
    let check = play(&place, "unit.yaml", &["-e", "seconds=1000", "--check"]);
    assert_eq!(property(&place, "LoadState"), "not-found", "check mode changes nothing: {}", check.stdout);

    play(&place, "unit.yaml", &["-e", "seconds=1000"]).ends(0);
    assert_eq!(
        (property(&place, "ActiveState"), property(&place, "UnitFileState")),
        ("active".into(), "enabled".into())
    );
    let first = property(&place, "InvocationID");

    let again = play(&place, "unit.yaml", &["-e", "seconds=1000"]).ends(0);
    assert!(again.stdout.contains("changed=0") || !again.stdout.contains("changed:"), "{}", again.stdout);
    assert_eq!(property(&place, "InvocationID"), first, "nothing changed, so nothing was restarted");

    play(&place, "unit.yaml", &["-e", "seconds=2000"]).ends(0);
    assert_ne!(property(&place, "InvocationID"), first);
    assert!(property(&place, "ExecStart").contains("/bin/sleep 2000"));
}

#[test]
fn a_service_is_stopped_disabled_and_masked() {
    let place = Place::new(Kind::Fast, 1);
    place.folder.write("unit.yaml", UNIT);
    play(&place, "unit.yaml", &["-e", "seconds=1000"]).ends(0);
    let service = |args: &str| place.folder.run(&["exec", "all", "-m", "service", "-a", args]).ends(0);
    service("name=etcdrun-test state=stopped enabled=false");
    assert_eq!(
        (property(&place, "ActiveState"), property(&place, "UnitFileState")),
        ("inactive".into(), "disabled".into())
    );
}

#[test]
fn a_service_that_cannot_start_fails_with_what_its_log_says() {
    let place = Place::new(Kind::Fast, 1);
    let broken = UNIT
        .replace("/bin/sleep {{ seconds }}", "/bin/sh -c 'echo the reason; exit 7'")
        .replace("[Service]", "[Service]\n          Type=oneshot");
    place.folder.write("unit.yaml", &broken);
    let said = play(&place, "unit.yaml", &[]).ends(2);
    assert!(
        said.stdout.contains("the reason") || said.stderr.contains("the reason"),
        "{}\n{}",
        said.stdout,
        said.stderr
    );
}

#[test]
fn reboot_comes_back_as_another_boot() {
    let place = Place::new(Kind::Fast, 2);
    let boot_id = |host: usize| place.hosts[host].run(&["cat", "/proc/sys/kernel/random/boot_id"]).unwrap();
    let before = [boot_id(0), boot_id(1)];
    let first = place.hosts[0].name();
    place.folder.write(
        "reboot.yaml",
        &format!(
            "- hosts: {first}\n  tasks:\n    - shell: echo lost > /run/lost\n    - reboot: {{ reboot_timeout: 60s }}\n    - shell: test ! -e /run/lost\n"
        ),
    );
    play(&place, "reboot.yaml", &[]).ends(0);
    assert_ne!(boot_id(0), before[0]);
    assert_eq!(boot_id(1), before[1], "the other host was left alone");
}
