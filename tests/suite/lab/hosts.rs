//! Fast hosts: a real systemd and a real sshd each, many at once.

use etcdrun_lab::Kind;

use super::Place;

#[test]
fn twenty_hosts_at_once_answer_by_their_names() {
    let place = Place::new(Kind::Fast, 20);
    let said = place.folder.run(&["exec", "all", "--", "hostname"]).ends(0);
    for host in &place.hosts {
        assert!(said.stdout.lines().any(|line| line == host.name()), "{} is missing in\n{}", host.name(), said.stdout);
    }
}

#[test]
fn a_host_has_a_systemd_that_is_content() {
    let place = Place::new(Kind::Fast, 1);
    let said = place
        .exec(0, "systemctl is-system-running --wait; cat /proc/1/comm; systemctl --failed --plain --no-legend")
        .ends(0);
    let lines: Vec<&str> = said.stdout.lines().skip(1).collect();
    assert_eq!(lines[..2], ["running", "systemd"], "{}", said.stdout);
}

#[test]
fn hosts_share_nothing_but_the_network() {
    let place = Place::new(Kind::Fast, 2);
    place.exec(0, "systemd-run --quiet --unit etcdrun-alone sleep 600; echo mine > /etc/mine").ends(0);
    place.exec(1, "test ! -e /etc/mine && ! systemctl is-active --quiet etcdrun-alone && ! pgrep -x sleep").ends(0);
    place.exec(0, "systemctl is-active --quiet etcdrun-alone").ends(0);
}
