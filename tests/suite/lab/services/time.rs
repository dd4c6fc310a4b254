//! The section `chrony`, with chronyd as client and as server. A host may not set its clock here, so chronyd only measures.

use etcdrun_lab::Kind;

use super::{changes, changes_nothing, shell};
use crate::lab::{
    etcd::{PLAIN, Site},
    rollout_faults::until,
};

const STARTED: &str = "systemctl show --value -p InvocationID chrony";

#[test]
fn members_take_their_time_from_the_server_of_the_inventory() {
    let site = Site::formed_on(Kind::Services, 1, "3.6", PLAIN).beside_of(Kind::Services, 1);
    let server = site.place.hosts[1].address();
    shell(&site, 1, "printf 'local stratum 8\nallow\n' >/etc/chrony/chrony.conf && systemctl start chrony");
    let plain = site.place.folder.read("inventory.yaml");
    let configure = |options: &str| {
        let section =
            format!("    chrony: {{ enabled: true, servers: [{{ url: {server}, options: [{options}] }}] }}\n");
        site.place
            .folder
            .write("inventory.yaml", &plain.replace("    members:\n", &format!("{section}    members:\n")));
        site.play(&[])
    };

    let wrong = configure("ibrust").ends(2);
    assert!(wrong.stdout.contains("Could not parse server directive"), "{}", wrong.stdout);
    assert_eq!(shell(&site, 0, "ls /etc/chrony/sources.d; systemctl is-active chrony || true"), "inactive\n");

    configure("iburst").ends(0);
    until("the server is in use", || shell(&site, 0, "chronyc -n sources").contains(&format!("^* {server}")));
    changes_nothing(site.play(&[]));

    let started = shell(&site, 0, STARTED);
    assert!(changes(&configure("iburst, minpoll 4").ends(0)) > 0);
    assert_eq!(shell(&site, 0, STARTED), started, "other options of a server need no restart");
    assert!(shell(&site, 0, "chronyc -n sources").contains(&server.to_string()));
}
