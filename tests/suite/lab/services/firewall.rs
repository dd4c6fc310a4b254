//! Rules of real nftables, on trial until a new connection confirms them.

use std::{
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use etcdrun_lab::Kind;

use super::{again, changes_nothing, play, shell};
use crate::lab::{
    Said,
    etcd::{PLAIN, Site},
    lab,
    rollout_faults::{start, until},
    upgrade::{nothing_is_lost, writer},
};

const STATE: &str = "/usr/local/lib/etcdrun/firewall state";

/// SSH from `from` only. Clients are on this machine.
fn rules(site: &Site, from: &str) -> Said {
    let operator = lab().subnet().operator();
    let text = format!(
        "- name: Apply the firewall\n  hosts: prod\n  become: true\n  rollout: {{ strategy: etcd }}\n  roles:\n    - role: firewall\n      \
         vars:\n        firewall_ssh: {{ cidrs: [{from}] }}\n        firewall_timeout: 20\n        firewall_allow:\n          \
         - {{ name: etcd clients, ports: [2379], cidrs: [{operator}] }}\n"
    );
    play(site, "firewall.yaml", &text)
}

fn connects(site: &Site, host: usize, port: u16) -> bool {
    let address = SocketAddr::from((site.place.hosts[host].address(), port));
    TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok()
}

fn confirmed(site: &Site) -> usize {
    (0..3).filter(|host| shell(site, *host, STATE) == "confirmed\n").count()
}

/// How many hosts let in only the address that no machine has.
fn locked(site: &Site) -> usize {
    let table = "nft list table inet etcdrun_firewall 2>/dev/null || true";
    (0..3).filter(|host| shell(site, *host, table).contains(NOWHERE)).count()
}

const NOWHERE: &str = "192.0.2.1";

#[test]
fn rules_are_kept_over_a_reboot_and_taken_back_if_they_lock_the_operator_out() {
    let site = Site::formed_on(Kind::Services, 3, "3.6", PLAIN);
    let operator = lab().subnet().operator().to_string();
    let writer = writer(&site);
    rules(&site, &operator).ends(0);
    nothing_is_lost(&site, &writer.stop().unwrap());
    assert_eq!(confirmed(&site), 3);
    changes_nothing(again(&site, "firewall.yaml"));
    for host in 0..3 {
        assert!(connects(&site, host, 2379) && !connects(&site, host, 2380), "{}", site.names[host]);
    }

    site.place.hosts[0].kill().unwrap();
    site.place.hosts[0].start().unwrap();
    site.all_become_healthy();
    assert_eq!(confirmed(&site), 3);
    assert!(connects(&site, 0, 22) && !connects(&site, 0, 2380));

    // The first host takes them back, and the others never have them.
    let out = rules(&site, NOWHERE).ends(4);
    until("the rules are taken back", || locked(&site) == 0 && site.place.hosts.iter().all(|host| host.answers()));
    site.is_served_by_all();
    assert!(out.stdout.contains("NOT RUN"), "{}", out.stdout);
    unlock(&site);

    // So they are if etcdrun dies while it tries them.
    let mut run = start(&site, &["playbook", "firewall.yaml", "-i", "inventory.yaml"]);
    until("rules are on trial", || locked(&site) == 1);
    run.kill().unwrap();
    run.wait().unwrap();
    until("the rules are taken back", || locked(&site) == 0 && site.place.hosts.iter().all(|host| host.answers()));
    unlock(&site);
    rules(&site, &operator).ends(0);
    assert_eq!(confirmed(&site), 3);
}

fn unlock(site: &Site) {
    let run = site.place.folder.last_run();
    let name = run.file_name().unwrap().to_str().unwrap();
    // The host that cut the connection may have lost the lock with it.
    let said = site.place.folder.run(&["unlock", name, "-i", "inventory.yaml"]);
    assert!(said.code == 0 || said.stderr.contains("no host has a lock"), "{}", said.stderr);
}
