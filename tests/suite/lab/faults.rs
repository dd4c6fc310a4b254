//! Each fault of the lab does what it says, and goes away again.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use etcdrun_lab::{Guest, Host, Kind, wait};

use super::{Place, lab};

const LIMIT: Duration = Duration::from_secs(30);

/// Whether one ping to an address is answered within a second.
fn reaches(from: &Host, to: &Host) -> bool {
    from.run(&["ping", "-q", "-c", "1", "-W", "1", &to.address().to_string()]).is_ok()
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    wait::until(what, LIMIT, || Ok(holds().then_some(()))).unwrap();
}

#[test]
fn a_cut_link_carries_nothing_and_tells_nobody() {
    let place = Place::new(Kind::Fast, 2);
    let (one, other) = (&place.hosts[0], &place.hosts[1]);
    assert!(reaches(one, other) && place.can_log_in(0));
    one.cut().unwrap();
    assert!(!reaches(one, other) && !place.can_log_in(0));
    assert!(place.can_log_in(1), "the others are as before");
    let link = one.run(&["ip", "-br", "link", "show", "dev", "eth0"]).unwrap();
    assert!(link.contains("UP") && !link.contains("DOWN"), "the host still believes in its link: {link}");
    lab_link_heals(one);
    eventually("the link is whole again", || reaches(one, other) && place.can_log_in(0));
}

fn lab_link_heals(host: &Host) {
    host.set_link_fault(&etcdrun_lab::LinkFault::default()).unwrap();
}

#[test]
fn a_delayed_link_takes_longer_by_that_much_each_way() {
    let place = Place::new(Kind::Fast, 2);
    let (one, other) = (&place.hosts[0], &place.hosts[1]);
    one.delay(Duration::from_millis(30)).unwrap();
    eventually("the slow link carries", || reaches(one, other));
    let start = Instant::now();
    assert!(reaches(one, other));
    // Only a lower bound: how much longer it takes depends on what else the machine does.
    assert!(start.elapsed() >= Duration::from_millis(60), "there and back took only {:?}", start.elapsed());
    place.exec(0, "head -c 3000000 /dev/zero | sha256sum").ends(0);
    lab_link_heals(one);
    eventually("the link is as before", || reaches(one, other));
}

#[test]
fn a_lossy_link_loses_frames_and_ssh_survives() {
    let place = Place::new(Kind::Fast, 2);
    let (one, other) = (&place.hosts[0], &place.hosts[1]);
    one.drop_frames(20).unwrap();
    // Its exit status tells whether all were answered.
    let address = other.address().to_string();
    let pings = one.command(&["ping", "-q", "-c", "40", "-i", "0.02", "-W", "1", &address]).unwrap().output().unwrap();
    let summary = String::from_utf8(pings.stdout).unwrap();
    let received: u32 = summary.split(", ").find_map(|part| part.strip_suffix(" received")?.parse().ok()).unwrap();
    assert!((1..40).contains(&received), "{summary}");
    place.exec(0, "true").ends(0);
}

#[test]
fn a_cut_link_stays_cut_when_its_host_comes_back() {
    let place = Place::new(Kind::Fast, 2);
    let (one, other) = (&place.hosts[0], &place.hosts[1]);
    one.cut().unwrap();
    one.kill().unwrap();
    one.start().unwrap();
    assert!(one.is_running() && !reaches(other, one));
    lab_link_heals(one);
    eventually("the link is whole again", || reaches(other, one));
}

#[test]
fn the_operator_is_cut_off_from_some_ports_of_some_hosts() {
    let place = Place::new(Kind::Fast, 2);
    let (one, other) = (&place.hosts[0], &place.hosts[1]);
    lab().cut_operator(&[one.address().into()], &[22]).unwrap();
    assert!(!place.can_log_in(0) && reaches(other, one), "other hosts still reach it");
    assert!(place.can_log_in(1), "the others are as before");
    let refused = std::net::TcpStream::connect((one.address(), 23)).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused, "nothing listens there, and the host says so");
    lab().cut_operator(&[other.address().into()], &[22]).unwrap();
    assert!(place.can_log_in(0) && !place.can_log_in(1), "instead of the first one");
    lab().cut_operator(&[], &[22]).unwrap();
    assert!(place.can_log_in(1));
}

#[test]
fn a_partition_separates_two_sides_and_nobody_else() {
    let place = Place::new(Kind::Fast, 3);
    let [one, other, third] = [&place.hosts[0], &place.hosts[1], &place.hosts[2]];
    lab().partition(&[one], &[other]).unwrap();
    assert!(!reaches(one, other) && !reaches(other, one));
    assert!(reaches(one, third) && reaches(third, other) && place.can_log_in(0) && place.can_log_in(1));
    lab().unpartition(&[one], &[other]).unwrap();
    eventually("the sides meet again", || reaches(one, other) && reaches(other, one));
}

#[test]
fn a_killed_host_is_gone_and_comes_back_with_its_disks() {
    let place = Place::new(Kind::Fast, 1);
    place.exec(0, "echo kept > /etc/kept; echo kept > /var/lib/etcd/kept; echo lost > /run/lost; sync").ends(0);
    place.hosts[0].kill().unwrap();
    assert!(!place.hosts[0].is_running() && !place.can_log_in(0));
    place.hosts[0].start().unwrap();
    let said = place.exec(0, "cat /etc/kept /var/lib/etcd/kept; test ! -e /run/lost").ends(0);
    assert_eq!(said.stdout.matches("kept").count(), 2, "{}", said.stdout);
}

#[test]
fn lost_power_takes_what_was_not_synced() {
    let place = Place::new(Kind::Fast, 1);
    let write = "cd /var/lib/etcd; echo kept > synced; sync; echo stale >> synced; echo stale > unsynced";
    place.exec(0, write).ends(0);
    place.hosts[0].lose_power().unwrap();
    assert!(!place.hosts[0].is_running() && !place.can_log_in(0));
    place.hosts[0].start().unwrap();
    let said = place.exec(0, "cat /var/lib/etcd/synced; ls /var/lib/etcd").ends(0);
    assert!(said.stdout.contains("kept") && !said.stdout.contains("stale"), "{}", said.stdout);
    assert!(!said.stdout.contains("unsynced"), "{}", said.stdout);
    place.exec(0, "dd if=/dev/zero of=/var/lib/etcd/more bs=4096 count=1 conv=fsync").ends(0);
}

#[test]
fn a_frozen_host_answers_nothing_until_it_is_thawed() {
    let place = Place::new(Kind::Fast, 1);
    place.hosts[0].freeze().unwrap();
    assert!(place.hosts[0].is_frozen() && !place.can_log_in(0));
    place.hosts[0].thaw().unwrap();
    assert!(place.can_log_in(0));
}

#[test]
fn a_frozen_host_that_is_killed_can_be_started() {
    let place = Place::new(Kind::Fast, 1);
    place.hosts[0].freeze().unwrap();
    place.hosts[0].kill().unwrap();
    place.hosts[0].start().unwrap();
    assert!(place.can_log_in(0));
}

/// Starts a command over SSH that would go on for a minute, and waits until its session is there.
fn long_session(place: &Place) -> std::process::Child {
    let mut command = place.folder.command(&["exec", place.hosts[0].name(), "--", "sleep", "60"]);
    let child = command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap();
    eventually("the command runs", || place.hosts[0].run(&["pgrep", "-x", "sleep"]).is_ok());
    child
}

#[test]
fn a_killed_session_is_gone_and_the_host_lives() {
    let place = Place::new(Kind::Fast, 1);
    let host = &place.hosts[0];
    let mut run = long_session(&place);
    let sessions = host.sessions().unwrap();
    assert_eq!(sessions.iter().map(|session| session.user.as_str()).collect::<Vec<_>>(), ["root"]);
    sessions[0].kill().unwrap();
    // The command outlives the session, and etcdrun comes back for it in another one.
    eventually("there is another session", || {
        host.sessions().unwrap().iter().any(|session| session.id() != sessions[0].id())
    });
    host.run(&["pkill", "-x", "sleep"]).unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(2), "sleep was ended by a signal");
}

#[test]
fn a_frozen_session_hangs_and_a_new_one_does_not() {
    let place = Place::new(Kind::Fast, 1);
    let mut run = long_session(&place);
    let session = &place.hosts[0].sessions().unwrap()[0];
    session.freeze().unwrap();
    assert!(place.hosts[0].answers(), "another session would be served");
    place.hosts[0].run(&["pkill", "-x", "sleep"]).unwrap();
    assert!(run.try_wait().unwrap().is_none(), "the end of the command cannot be told by a frozen session");
    session.thaw().unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(2), "sleep was ended by a signal");
}

#[test]
fn a_full_disk_takes_nothing_more_until_it_is_emptied() {
    let place = Place::new(Kind::Fast, 1);
    place.hosts[0].fill("/var/lib/etcd").unwrap();
    let said = place.exec(0, "dd if=/dev/zero of=/var/lib/etcd/more bs=4096 count=1").ends(2);
    assert!(said.stdout.contains("No space left on device"), "{}", said.stdout);
    place.exec(0, "echo the rest of the host has room > /root/note").ends(0);
    place.hosts[0].empty("/var/lib/etcd").unwrap();
    place.exec(0, "dd if=/dev/zero of=/var/lib/etcd/more bs=4096 count=1").ends(0);
}

#[test]
fn only_a_data_disk_can_be_filled() {
    let place = Place::new(Kind::Fast, 1);
    for folder in ["/root", "/tmp"] {
        let error = place.hosts[0].fill(folder).unwrap_err().to_string();
        assert!(error.contains("is not on its data disk"), "{error}");
    }
}

#[test]
fn a_corrupted_file_differs_and_is_as_long_as_before() {
    let place = Place::new(Kind::Fast, 1);
    place.exec(0, "seq 1 10000 > /root/file; sha256sum /root/file > /root/sums").ends(0);
    place.hosts[0].corrupt("/root/file").unwrap();
    place.exec(0, "test $(stat -c %s /root/file) -eq 48894").ends(0);
    let said = place.exec(0, "sha256sum -c /root/sums").ends(2);
    assert!(said.stdout.contains("FAILED"), "{}", said.stdout);
}

#[test]
fn pages_of_a_file_are_corrupted_one_by_one() {
    let place = Place::new(Kind::Fast, 1);
    place.exec(0, "head -c 40960 /dev/zero > /root/file").ends(0);
    place.hosts[0].corrupt_pages("/root/file", 4).unwrap();
    let said = place.exec(0, "tr -d '\\0' < /root/file | wc -c; wc -c < /root/file").ends(0);
    assert!(said.stdout.contains("64\n") && said.stdout.contains("40960"), "{}", said.stdout);
}

#[test]
fn a_link_in_a_host_does_not_lead_to_files_of_this_machine() {
    let place = Place::new(Kind::Fast, 1);
    place.folder.write("victim", "as it was");
    let victim = place.folder.path("victim").display().to_string();
    place.hosts[0].run(&["ln", "-s", &victim, "/root/link"]).unwrap();
    assert!(place.hosts[0].corrupt("/root/link").is_err());
    assert_eq!(place.folder.read("victim"), "as it was");
}

#[test]
fn an_expired_certificate_is_the_same_but_too_old() {
    let place = Place::new(Kind::Fast, 1);
    let folder = &place.folder;
    let openssl = |line: &str| {
        let done = Command::new("openssl").args(line.split(' ')).current_dir(folder.path("")).output().unwrap();
        (
            done.status.success(),
            String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr),
        )
    };
    for line in [
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.pem -subj /CN=ca -days 30",
        "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout etcd.key -out etcd.csr -subj /CN=etcd-1 -addext subjectAltName=DNS:etcd-1,IP:127.0.0.1",
        "x509 -req -in etcd.csr -CA ca.pem -CAkey ca.key -copy_extensions copyall -days 30 -out etcd.pem",
        "verify -CAfile ca.pem etcd.pem",
    ] {
        assert!(openssl(line).0, "{line}: {}", openssl(line).1);
    }
    let inside = place.hosts[0].path("/etc/etcd.pem").unwrap();
    std::fs::copy(folder.path("etcd.pem"), &inside).unwrap();
    place.hosts[0].expire_certificate("/etc/etcd.pem", &folder.path("ca.key")).unwrap();
    std::fs::copy(&inside, folder.path("expired.pem")).unwrap();
    let (valid, said) = openssl("verify -CAfile ca.pem expired.pem");
    assert!(!valid && said.contains("certificate has expired"), "{said}");
    assert!(openssl("verify -no_check_time -CAfile ca.pem expired.pem").0, "the signature holds");
    let names = openssl("x509 -in expired.pem -noout -ext subjectAltName").1;
    assert!(names.contains("DNS:etcd-1") && names.contains("IP Address:127.0.0.1"), "{names}");
}

#[test]
fn a_changed_host_key_is_refused_and_a_restored_one_is_not() {
    let place = Place::new(Kind::Fast, 1);
    place.hosts[0].change_host_key().unwrap();
    let said = place.exec(0, "true").ends(4);
    assert!((said.stdout + &said.stderr).contains("HAS CHANGED"));
    place.hosts[0].restore_host_key().unwrap();
    place.exec(0, "true").ends(0);
}

#[test]
fn faults_of_guests_need_a_guest() {
    let place = Place::new(Kind::Fast, 1);
    let error = Guest::new(&place.hosts[0], "nobody").kill().unwrap_err().to_string();
    assert!(error.ends_with("runs no guest called nobody"), "{error}");
}
