//! Members of real clusters come and go, while a client writes.

use std::time::Instant;

use etcdrun_lab::Kind;

use super::{
    Place, Said,
    etcd::{PLAIN, Site},
    rollout_faults::{start, until},
    upgrade::{nothing_is_lost, writer},
};
use crate::cli::verbs::hide_shipped;

fn member(site: &Site, words: &[&str]) -> Said {
    site.place.folder.run(&[&["member"], words, &["-i", "inventory.yaml"]].concat())
}

pub(super) fn list(site: &Site) -> String {
    let ask = || site.etcdctl(&["member", "list"]);
    // etcdctl asks whom it likes, and a learner does not know.
    let said = (0..20).map(|_| ask()).find(|said| !said.contains("not supported for learner")).unwrap();
    // What etcdctl says of members that do not answer is another matter.
    said.lines().filter(|line| !line.starts_with('{')).map(|line| format!("{line}\n")).collect()
}

/// etcd is killed on a member, and its data is gone: the machine came back empty.
pub(super) fn lose(site: &Site, place: usize) {
    site.place.hosts[place]
        .run(&["sh", "-c", "systemctl kill -s KILL etcd; systemctl stop etcd; rm -rf /var/lib/etcd/data/*"])
        .unwrap();
}

/// A cluster that serves, in which one member lost its data.
fn broken(members: usize, lost: usize) -> Site {
    let site = Site::formed(members, "3.6", PLAIN);
    lose(&site, lost);
    site
}

fn no_learner(site: &Site) {
    let list = list(site);
    assert!(!list.contains("true") && !list.contains("unstarted"), "{list}");
}

fn dead_member_is_replaced(members: usize) {
    let site = Site::formed(members, "3.6", PLAIN);
    let lost = members - 1;
    lose(&site, lost);
    // What the death of a leader costs is not what replacing it costs.
    let writer = writer(&site);
    let begun = Instant::now();
    let said = member(&site, &["replace", &site.names[lost], "--yes"]);
    let took = begun.elapsed();
    let written = writer.stop().unwrap();
    let said = said.ends(0);
    println!(
        "{members} members: replaced in {took:.1?}, longest gap {:?}, {} writes",
        written.longest,
        written.acknowledged.len()
    );
    assert!(said.stdout.contains("CAN LOSE"), "{}", said.stdout);
    site.is_served_by_all();
    no_learner(&site);
    nothing_is_lost(&site, &written);
    // What it had is kept, and nobody uses it.
    site.changes_nothing();
    let again = member(&site, &["replace", &site.names[lost], "--yes"]).ends(5);
    assert!(again.stderr.contains("needs its own address"), "{}", again.stderr);
}

#[test]
fn a_dead_member_of_three_is_replaced_while_a_client_writes() {
    dead_member_is_replaced(3);
}

#[test]
fn a_dead_member_of_five_is_replaced_while_a_client_writes() {
    dead_member_is_replaced(5);
}

/// With passwords a learner takes no login, and every verb has to do without.
/// A log that reaches back only so far.
const SHORT: &str = "snapshot-count: 20";
const CATCH_UP: &str = "snapshot-catchup-entries: 5";

fn members_come_and_go(minor: &str, settings: &str, auth: &str) {
    let etcd = format!("    etcd: {{ version: VERSION, settings: {{ {settings} }} }}\n");
    let mut site = Site::new(4, minor, &format!("{etcd}    auth: {auth}\n"));
    let text = site.place.folder.read("inventory.yaml");
    let spare = text.lines().rfind(|line| line.contains("address: ")).unwrap().to_owned();
    site.place.folder.write("inventory.yaml", &text.replace(&format!("{spare}\n"), ""));
    let (new, ip) = site.members().pop().unwrap();
    site.forget(3);
    site.play(&[]).ends(0);
    lose(&site, 2);
    let status = |healthy: &str| {
        let said = site.place.folder.run(&["status", "prod", "-i", "inventory.yaml"]).ends(0);
        assert!(said.stdout.starts_with(&format!("prod: healthy, {healthy} members")), "{}", said.stdout);
    };
    member(&site, &["replace", &site.names[2], "--yes"]).ends(0);
    status("3 of 3");
    member(&site, &["add", &new, "--ip", &ip, "--yes"]).ends(0);
    status("4 of 4");
    member(&site, &["remove", &site.names[0], "--yes"]).ends(0);
    status("3 of 3");
    // A living one gives way to one that is under another name where the first was.
    let address = site.place.hosts[0].address().to_string();
    member(&site, &["replace", &site.names[1], "--new-name", "etcd-9", "--ip", &address, "--yes"]).ends(0);
    status("3 of 3");
}

#[test]
fn members_come_and_go_with_passwords() {
    members_come_and_go("3.4", "", "{ method: password }");
    // A learner gets its data as a snapshot, as in clusters that have been there for some time.
    members_come_and_go("3.5", &format!("{SHORT}, experimental-{CATCH_UP}"), "{ method: password }");
    members_come_and_go("3.6", &format!("{SHORT}, experimental-{CATCH_UP}"), "{ method: password }");
    members_come_and_go("3.7", &format!("{SHORT}, {CATCH_UP}"), "{ method: password }");
}

#[test]
fn members_come_and_go_without_authentication() {
    members_come_and_go("3.4", "", "{ enabled: false, method: password }");
    members_come_and_go("3.7", "", "{ enabled: false, method: password }");
    members_come_and_go("3.5", "", "{ enabled: false }");
    members_come_and_go("3.6", "", "{ enabled: false }");
}

#[test]
fn a_member_that_crashed_over_and_over_is_replaced_at_the_first_try() {
    let site = Site::formed(3, "3.6", PLAIN);
    // A wiped disk: etcd tries until systemd has had enough.
    let wipe =
        "systemctl stop etcd; rm -rf /var/lib/etcd/data/*; for n in 1 2 3 4 5 6 7 8; do systemctl start etcd; done";
    let _ = site.place.hosts[2].run(&["sh", "-c", wipe]);
    // No verb runs what lies in the current folder.
    hide_shipped(&site.place.folder, "");
    hide_shipped(&site.place.folder, "playbooks/");
    member(&site, &["replace", &site.names[2], "--yes"]).ends(0);
    site.is_served_by_all();
    no_learner(&site);
    member(&site, &["restart", &site.names[0], "--yes"]).ends(0);
    member(&site, &["remove", &site.names[2], "--yes"]).ends(0);
}

#[test]
fn wherever_the_operator_is_killed_a_replacement_goes_on() {
    let site = broken(3, 1);
    let name = site.names[1].clone();
    let words = ["member", "replace", &name, "--yes", "-i", "inventory.yaml"];
    // The cluster has all voters but one at any time, and never one that has not started.
    site.place.folder.killed_here_and_there(&words, 30, || {
        let list = list(&site);
        let voters = list.lines().filter(|line| line.ends_with("false")).count();
        assert!((2..=3).contains(&voters), "{list}");
        assert!(!list.lines().any(|line| line.contains("unstarted") && line.ends_with("false")), "{list}");
    });
    site.is_served_by_all();
    no_learner(&site);
    site.changes_nothing();
}

#[test]
fn what_makes_no_sense_is_refused_and_changes_nothing() {
    let site = broken(3, 2);
    let before = (list(&site), site.place.folder.read("inventory.yaml"));
    let refused = |words: &[&str], code: i32, why: &str| {
        let said = member(&site, words).ends(code);
        assert!(said.stderr.contains(why), "{words:?}: {}", said.stderr);
    };
    let (first, dead) = (site.names[0].as_str(), site.names[2].as_str());
    let near = format!("{first}x");
    refused(&["replace", &near, "--yes"], 5, "did you mean");
    refused(&["replace", dead, "--to", "hv9", "--yes"], 5, "no hypervisor `hv9`");
    refused(&["replace", dead, "--ip", "10.0.0.300", "--yes"], 5, "is not an IP address");
    refused(&["replace", dead, "--new-name", first, "--ip", "10.9.9.9", "--yes"], 5, "is taken");
    refused(&["replace", dead, "--new-name", "prod", "--ip", "10.9.9.9", "--yes"], 5, "is taken: it is a group");
    let taken = site.place.hosts[0].address().to_string();
    refused(&["replace", dead, "--ip", &taken, "--yes"], 5, "is the address of");
    refused(&["remove", first, "--yes"], 3, "would lose quorum");
    refused(&["add", "etcd-9", "--ip", "10.9.9.9", "--yes"], 3, "has failed");
    refused(&["replace", first, "--new-name", "etcd-9", "--ip", "10.9.9.9", "--yes"], 3, "has failed");
    refused(&["replace", dead], 5, "--yes");
    assert_eq!((list(&site), site.place.folder.read("inventory.yaml")), before);
    // A plan changes nothing either.
    let plan = member(&site, &["replace", dead, "--check"]).ends(0);
    assert!(
        plan.stdout.contains("is removed") && plan.stdout.contains("Remove the old member from the cluster"),
        "{}",
        plan.stdout
    );
    assert_eq!(list(&site), before.0);
}

#[test]
fn a_living_member_is_replaced_by_another_machine_and_the_inventory_says_so() {
    let mut site = Site::formed_beside(3, 1, "3.5", PLAIN);
    // The fourth machine is a spare one at first.
    let (spare, address) = (site.place.hosts[3].name().to_owned(), site.place.hosts[3].address().to_string());
    let text = site.place.folder.read("inventory.yaml");
    site.place.folder.write("inventory.yaml", &format!("{text}      # no more of them\n"));
    let old = site.names[0].clone();
    let writer = writer(&site);
    let said = member(&site, &["replace", &old, "--new-name", &spare, "--ip", &address, "--yes"]);
    let written = writer.stop().unwrap();
    let said = said.ends(0);
    println!("a living one: longest gap {:?}", written.longest);
    let after = site.place.folder.read("inventory.yaml");
    assert!(after.contains(&format!("{spare}: {{ address: {address} }}")), "{after}");
    assert!(!after.contains(&format!("{old}:")) && after.contains("# no more of them"), "{after}");
    assert!(said.stdout.contains(&format!("replace {old} with {spare} at")), "{}", said.stdout);
    let old_host = &site.place.hosts[0];
    old_host.run(&["sh", "-c", "! systemctl is-active etcd && ls -d /var/lib/etcd/data.removed-*"]).unwrap();
    site.now_members(&[1, 2, 3]);
    site.is_served_by_all();
    no_learner(&site);
    nothing_is_lost(&site, &written);
    site.changes_nothing();

    // And back to two, and to three again, with the machine that was there before.
    member(&site, &["remove", &spare, "--yes", "--allow-outage"]).ends(0);
    site.now_members(&[1, 2]);
    site.is_served_by_all();
    let ip = site.place.hosts[0].address().to_string();
    let more = member(&site, &["add", &old, "--ip", &ip, "--yes"]).ends(0);
    assert!(more.stdout.contains(&format!("add {old} at")), "{}", more.stdout);
    site.now_members(&[0, 1, 2]);
    site.is_served_by_all();
    member(&site, &["restart", &old, "--yes"]).ends(0);
    site.is_served_by_all();
    site.changes_nothing();
}

#[test]
fn a_member_whose_data_is_damaged_is_replaced_although_it_runs() {
    let site = Site::formed(3, "3.6", PLAIN);
    let name = site.names[2].as_str();
    let raised = raise_corrupt(&site, name);
    assert!(raised.contains("CORRUPT"), "{raised}");
    let refused = site.etcdctl(&["put", "a", "b"]);
    assert!(refused.contains("corrupt"), "{refused}");
    let status = site.place.folder.run(&["status", "-i", "inventory.yaml"]);
    assert!(status.stdout.contains(&format!("etcdrun member replace {name}")), "{}", status.stdout);
    let said = member(&site, &["replace", name, "--yes"]).ends(0);
    assert!(said.stdout.contains("damaged"), "{}", said.stdout);
    assert_eq!(site.etcdctl(&["alarm", "list"]), "");
    assert_eq!(site.etcdctl(&["put", "a", "b"]), "OK\n");
    site.is_served_by_all();
    no_learner(&site);
}

/// A server compares its data when it starts, so one that is damaged does not come back. Its alarm stays.
#[test]
fn a_member_whose_data_is_damaged_is_replaced_although_it_has_stopped() {
    let site = Site::formed(3, "3.6", PLAIN);
    let name = site.names[2].as_str();
    raise_corrupt(&site, name);
    site.place.hosts[2].run(&["systemctl", "stop", "etcd"]).unwrap();
    member(&site, &["replace", name, "--yes"]).ends(0);
    assert_eq!(site.etcdctl(&["alarm", "list"]), "");
    assert_eq!(site.etcdctl(&["put", "a", "b"]), "OK\n");
    site.is_served_by_all();
    no_learner(&site);
}

/// As etcd itself does when hashes of members differ.
fn raise_corrupt(site: &Site, name: &str) -> String {
    let list = site.etcdctl(&["member", "list"]);
    let line = list.lines().find(|line| line.contains(name)).unwrap();
    let id = u64::from_str_radix(line.split(',').next().unwrap(), 16).unwrap();
    let file = |name: &str| site.place.folder.opened(&format!(".etcdrun/pki/prod/{name}"));
    let (ca, certificate, key) = (file("ca.crt"), file("clients/root.crt"), file("clients/root.key"));
    let endpoint = format!("https://{}:2379", site.members()[0].1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        use etcd_client::{
            AlarmAction, AlarmOptions, AlarmType, Certificate, Client, ConnectOptions, Identity, TlsOptions,
        };
        let tls =
            TlsOptions::new().ca_certificate(Certificate::from_pem(ca)).identity(Identity::from_pem(certificate, key));
        let mut client = Client::connect([endpoint], Some(ConnectOptions::new().with_tls(tls))).await.unwrap();
        let mut options = AlarmOptions::new();
        options.with_member(id);
        client.alarm(AlarmAction::Activate, AlarmType::Corrupt, Some(options)).await.unwrap();
    });
    site.etcdctl(&["alarm", "list"])
}

/// Three members and a spare machine, whose name and address come along.
pub(super) fn with_spare() -> (Site, String, String) {
    let site = Site::formed_beside(3, 1, "3.6", PLAIN);
    let (spare, address) = (site.place.hosts[3].name().to_owned(), site.place.hosts[3].address().to_string());
    (site, spare, address)
}

#[test]
fn a_learner_that_is_late_goes_and_the_next_attempt_begins_anew() {
    let (mut site, spare, address) = with_spare();
    lose(&site, 2);
    let name = site.names[2].clone();
    let text = site.place.folder.read("inventory.yaml");
    site.place.folder.write("inventory.yaml", &format!("{text}vars: {{ member_timeout: 3s }}\n"));
    // It starts, and is never heard of again.
    let freeze = "mkdir -p /run/systemd/system/etcd.service.d && printf '[Service]\\nExecStartPost=+/bin/kill -STOP $MAINPID\\n' >/run/systemd/system/etcd.service.d/freeze.conf; systemctl daemon-reload";
    site.place.hosts[3].run(&["sh", "-c", freeze]).unwrap();
    let words = ["replace", &name, "--new-name", &spare, "--ip", &address, "--yes"];
    let said = member(&site, &words).ends(2);
    assert!(said.stdout.contains("was removed again"), "{}", said.stdout);
    assert!(!list(&site).contains(&spare) && !list(&site).contains(&name), "{}", list(&site));
    let resumed = site.place.folder.run(&["resume"]).ends(2);
    assert!(resumed.stdout.contains("did not catch up in time"), "{}", resumed.stdout);
    site.place.hosts[3]
        .run(&["sh", "-c", "rm /run/systemd/system/etcd.service.d/freeze.conf; systemctl daemon-reload"])
        .unwrap();
    member(&site, &words).ends(0);
    site.now_members(&[0, 1, 3]);
    site.is_served_by_all();
    no_learner(&site);
    site.place.hosts[3].run(&["sh", "-c", "ls -d /var/lib/etcd/data.removed-*"]).unwrap();
}

#[test]
fn nothing_goes_before_what_comes_is_found_fit() {
    let (site, spare, address) = with_spare();
    lose(&site, 2);
    let name = site.names[2].clone();
    let before = (list(&site), site.place.folder.read("inventory.yaml"));
    // A machine that is not there.
    site.place.hosts[3].run(&["systemctl", "stop", "ssh.service", "ssh.socket"]).unwrap();
    let words = ["replace", &name, "--new-name", &spare, "--ip", &address, "--yes"];
    member(&site, &words).ends(4);
    assert_eq!((list(&site), site.place.folder.read("inventory.yaml")), before);
    // One that something else keeps its data on.
    site.place.hosts[3].run(&["systemctl", "start", "ssh.service"]).unwrap();
    site.place.hosts[3]
        .run(&["sh", "-c", "mkdir -p /var/lib/etcd/data/member && touch /var/lib/etcd/data/member/x"])
        .unwrap();
    let said = member(&site, &words).ends(2);
    assert!(said.stdout.contains("has data of an etcd that is not a member"), "{}", said.stdout);
    site.place.hosts[3].run(&["test", "-e", "/var/lib/etcd/data/member/x"]).unwrap();
}

#[test]
fn an_inventory_that_is_edited_during_a_replacement_ends_as_it_should() {
    let (mut site, spare, address) = with_spare();
    let name = site.names[2].clone();
    let folder = site.place.folder.path("");
    let inventory = || std::fs::read_to_string(folder.join("inventory.yaml")).unwrap();
    let write = |text: &str| std::fs::write(folder.join("inventory.yaml"), text).unwrap();
    let begun = |site: &Site, task: &str| {
        let runs = std::fs::read_dir(site.place.folder.path(".etcdrun/runs")).unwrap().flatten();
        let newest = runs.map(|run| run.path()).max().unwrap();
        std::fs::read_to_string(newest.join("journal")).unwrap_or_default().contains(task)
    };
    let replace = |site: &Site, name: &str, new: &str, ip: &str, edit: &dyn Fn(&str) -> String| {
        let words = ["member", "replace", name, "--new-name", new, "--ip", ip, "--yes", "-i", "inventory.yaml"];
        let run = start(site, &words);
        until("the replacement has begun", || begun(site, &format!("{new}/member/Add the member as a learner")));
        write(&edit(&inventory()));
        Said::of(run.wait_with_output().unwrap())
    };

    // Somebody changes something else.
    let quota = |text: &str| text.replacen("    etcd: { ", "    etcd: { quota: 3GiB, ", 1);
    replace(&site, &name, &spare, &address, &quota).ends(0);
    let text = inventory();
    assert!(text.contains("quota: 3GiB") && text.contains(&format!("{spare}: ")), "{text}");
    assert!(!text.contains(&format!("{name}: ")), "{text}");
    site.now_members(&[0, 1, 3]);
    site.is_served_by_all();

    // Somebody changes the line of the member that goes.
    let back = site.place.hosts[2].address().to_string();
    let zone = |text: &str| text.replacen(&format!("{spare}: {{ "), &format!("{spare}: {{ zone: east, "), 1);
    let said = replace(&site, &spare, &name, &back, &zone).ends(2);
    let asked = format!("write `{name}: {{ address: {back} }}` below `members`");
    assert!(
        said.stdout.contains(&asked) && said.stdout.contains(&format!("remove the member `{spare}`")),
        "{}",
        said.stdout
    );
    let line = |text: &str| text.lines().find(|line| line.contains(&format!("{spare}: "))).unwrap().to_owned();
    write(&inventory().replace(&line(&inventory()), &format!("      {name}: {{ address: \"{back}\" }}")));
    site.place.folder.run(&["resume"]).ends(0);
    site.now_members(&[0, 1, 2]);
    site.is_served_by_all();
}

#[test]
fn a_guest_that_serves_is_not_powered_off_because_ssh_fails() {
    let site = Site::formed(3, "3.6", PLAIN);
    let hypervisor = Place::new(Kind::Hypervisor, 1);
    let known = site.place.folder.read("known_hosts") + &hypervisor.folder.read("known_hosts");
    site.place.folder.write("known_hosts", &known);
    let (name, ip) = site.members()[2].clone();
    let at = hypervisor.hosts[0].name();
    let text = site.place.folder.read("inventory.yaml").replace(
        &format!("{name}: {{ address: {ip} }}"),
        &format!(
            "{name}: {{ hypervisor: {at}, ssh_via: direct, guest: {{ vcpus: 1, memory: 512MiB, cloud_init: {{ user_data: {{}} }}, disk: {{ base: x.qcow2 }} }}, interfaces: [{{ network: default, ip: {ip}/24 }}] }}"
        ),
    );
    let text = format!("{text}hypervisors:\n  {at}: {{ address: {} }}\n", hypervisor.hosts[0].address());
    site.place.folder.write("inventory.yaml", &text);
    site.place.hosts[2].run(&["systemctl", "stop", "ssh.service", "ssh.socket"]).unwrap();
    let before = list(&site);
    for words in [["replace", name.as_str(), "--yes"], ["remove", name.as_str(), "--yes"]] {
        let said = member(&site, &words).ends(3);
        assert!(said.stdout.contains("its etcd serves: it has not failed"), "{}\n{}", said.stdout, said.stderr);
        assert_eq!(list(&site), before);
    }
}

#[test]
fn one_of_two_restarts_where_an_outage_is_allowed() {
    let site = Site::played(2, "3.6", PLAIN);
    let name = site.names[0].as_str();
    let said = member(&site, &["restart", name, "--yes"]).ends(3);
    assert!(said.stdout.contains("small-cluster"), "{}", said.stdout);
    member(&site, &["restart", name, "--yes", "--allow-outage"]).ends(0);
    site.is_served_by_all();
}
