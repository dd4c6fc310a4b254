//! Two HAProxys with one address before three members, and a client that knows only that address.

use std::time::Duration;

use etcdrun_lab::{Kind, etcd};

use super::{add_group, again, changes_nothing, play};
use crate::lab::{
    certs::exported,
    etcd::{PLAIN, Site},
    lab,
    rollout_faults::until,
    upgrade::{all_run, releases, upgrade, wants},
    writer::{Manner, Writer, found},
};

#[test]
fn a_client_of_the_one_address_outlives_a_member_a_balancer_and_an_upgrade() {
    // Hosts have numbers from 101 on here.
    let address = lab().subnet().address(99).to_string();
    let sections = format!("{PLAIN}    balancer: {{ name: {address} }}\n    tls: {{ names: [{address}] }}\n");
    let site = Site::formed(3, "3.5", &sections).beside_of(Kind::Services, 2);
    add_group(&site, 3, "balancers");
    let text = format!(
        "- name: Deploy the balancers\n  hosts: balancers\n  become: true\n  serial: 1\n  roles:\n    - role: load_balancer\n      vars:\n        \
         load_balancer_cluster: prod\n        load_balancer_virtual_address: {address}/24\n        load_balancer_hosts: balancers\n        \
         load_balancer_interface: eth0\n"
    );
    play(&site, "balancer.yaml", &text).ends(0);
    changes_nothing(again(&site, "balancer.yaml"));
    let url = site.place.folder.run(&["url", "prod", "-i", "inventory.yaml"]).ends(0).stdout;
    assert_eq!(url, format!("https://{address}:2379\n"));

    let credential = exported(&site, "client");
    let only = [("balancer".to_owned(), address.clone())];
    let has_address =
        |host: usize| site.place.hosts[host].run(&["ip", "addr"]).unwrap().contains(&format!("{address}/"));
    until("a balancer has the address", || has_address(3) != has_address(4));
    let writer = Writer::start(&only, &credential, Manner { patience: Duration::from_secs(1), ..Manner::default() });

    site.place.hosts[0].kill().unwrap();
    let status = || site.place.folder.run(&["status", "prod", "-i", "inventory.yaml"]);
    until("the others serve", || status().stdout.contains("2 of 3 members"));
    site.place.hosts[0].start().unwrap();
    site.all_become_healthy();

    let (first, second) = if has_address(3) { (3, 4) } else { (4, 3) };
    site.place.hosts[first].kill().unwrap();
    until("the other balancer has the address", || has_address(second));

    let [old, new] = ["3.5", "3.6"].map(|minor| etcd(minor).unwrap().version);
    wants(&site, &old, &new, &releases(&["3.6"]));
    upgrade(&site).ends(0);
    all_run(&site, &new);

    let written = writer.stop().unwrap();
    let there = found(&site.members(), &credential).unwrap();
    let lost: Vec<_> = written.acknowledged.iter().filter(|number| !there.contains(number)).collect();
    println!(
        "{} writes, longest gap {:?}, {} errors",
        written.acknowledged.len(),
        written.longest,
        written.errors.len()
    );
    assert!(lost.is_empty() && written.acknowledged.len() > 100, "lost {lost:?}");
    assert!(written.longest < Duration::from_secs(20), "{:?}", written.longest);

    site.place.hosts[first].start().unwrap();
    changes_nothing(again(&site, "balancer.yaml"));
}
