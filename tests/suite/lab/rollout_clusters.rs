//! Several clusters in one rollout.

use etcdrun_lab::etcd;

use super::etcd::{PLAIN, Site, release};

/// Two clusters of three members each: `prod` and `test`.
fn clusters() -> Site {
    let mut site = Site::new(6, "3.5", PLAIN);
    let text = site.place.folder.read("inventory.yaml");
    let fourth = format!("      {}: {{", site.names[3]);
    let section = PLAIN.replace("VERSION", &etcd("3.5").unwrap().version);
    let text = text.replace(&fourth, &format!("  test:\n{section}    members:\n{fourth}"));
    let releases: String = ["3.6", "3.7"].iter().map(|minor| release(&etcd(minor).unwrap())).collect();
    site.place
        .folder
        .write("inventory.yaml", &text.replace("etcd_releases:\n", &format!("etcd_releases:\n{releases}")));
    site.forget(3);
    site.play(&[]).ends(0);
    site
}

fn wants(site: &Site, from: &str, to: &str) {
    let text = site.place.folder.read("inventory.yaml");
    let changed = text.replace(&format!("version: {from}"), &format!("version: {to}"));
    assert_ne!(text, changed);
    site.place.folder.write("inventory.yaml", &changed);
}

fn members_of(site: &Site, cluster: &str, version: &str) -> usize {
    let said = site.place.etcdctl(cluster, &["endpoint", "status", "--cluster"]).ends(0);
    said.stdout.matches(&format!(", {version}, ")).count()
}

/// When each server of a cluster was started, first and last. All hosts of the lab have this machine's clock.
fn started(site: &Site, cluster: usize) -> (u64, u64) {
    let ask = ["systemctl", "show", "-P", "ActiveEnterTimestampMonotonic", "etcd"];
    let hosts = &site.place.hosts[cluster * 3..][..3];
    let times: Vec<u64> = hosts.iter().map(|host| host.run(&ask).unwrap().trim().parse().unwrap()).collect();
    (*times.iter().min().unwrap(), *times.iter().max().unwrap())
}

#[test]
fn clusters_roll_side_by_side_and_one_that_halts_leaves_the_other_going() {
    let site = clusters();
    let versions: Vec<String> = ["3.5", "3.6", "3.7"].iter().map(|minor| etcd(minor).unwrap().version).collect();
    let run = |words: &[&str]| site.place.folder.run(&[words, &["-i", "inventory.yaml"]].concat());

    // A learner that is left over stops one of them.
    let ghost = ["member", "add", "ghost", "--learner", "--peer-urls=https://127.9.9.9:2380"];
    let mut added = site.place.etcdctl("test", &ghost);
    for _ in 0..30 {
        // etcd refuses while its members have not been connected for five seconds.
        if added.code == 0 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_secs(1));
        added = site.place.etcdctl("test", &ghost);
    }
    let id = added.ends(0).stdout.split_whitespace().nth(1).unwrap().to_owned();
    wants(&site, &versions[0], &versions[1]);
    let halting = "- hosts: clusters\n  become: true\n  rollout: { strategy: etcd, upgrade: true, timeout: 5s }\n  roles: [etcd]\n";
    site.place.folder.write("halting.yaml", halting);
    let said = run(&["playbook", "halting.yaml"]).ends(3);
    assert!(said.stdout.contains("learner"), "{}", said.stdout);
    assert_eq!((members_of(&site, "prod", &versions[1]), members_of(&site, "test", &versions[0])), (3, 3));
    site.place.etcdctl("test", &["member", "remove", &id]).ends(0);
    site.place.folder.run(&["resume"]).ends(0);
    assert_eq!(members_of(&site, "test", &versions[1]), 3);
    let (prod, test) = (started(&site, 0), started(&site, 1));
    assert!(prod.1 < test.0, "those of prod ran all the time: {prod:?} {test:?}");

    wants(&site, &versions[1], &versions[2]);
    run(&["playbook", "upgrade.yaml"]).ends(0);
    assert_eq!((members_of(&site, "prod", &versions[2]), members_of(&site, "test", &versions[2])), (3, 3));
    let (prod, test) = (started(&site, 0), started(&site, 1));
    assert!(prod.0 < test.1 && test.0 < prod.1, "at the same time: {prod:?} {test:?}");

    // One cluster after the other, if that is wanted.
    let restart = "- hosts: clusters\n  become: true\n  rollout: { strategy: etcd, max_clusters: 1 }\n  tasks: [{ name: Restart, service: { name: etcd, state: restarted } }]\n";
    site.place.folder.write("restart.yaml", restart);
    run(&["playbook", "restart.yaml"]).ends(0);
    let (first, second) = (started(&site, 0), started(&site, 1));
    assert!(first.1 < second.0 || second.1 < first.0, "one after the other: {first:?} {second:?}");
}
