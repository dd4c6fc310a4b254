//! PostgreSQL under Patroni on three members of an etcd with passwords, and a client that commits rows.

use std::time::Duration;

use etcdrun_lab::{Kind, etcd, patroni_wheels};
use serde_json::Value;

use super::{again, changes_nothing, play, shell};
use crate::lab::{
    Place,
    etcd::{BOOT_AT_ONCE, BOOTED, Site, describe},
    rollout_faults::until,
    upgrade::{releases, wants},
};

const ETCD: &str = "    etcd: { version: VERSION, gateway: true }
    clients: [{ name: patroni, version: 4.1.5 }]
    auth:
      method: password
      roles: { patroni: { permissions: [{ prefix: /patroni/ }] } }
      users: { patroni: { roles: [patroni], password: the-password-in-etcd } }
";

pub(super) const PASSWORD: &str = "the-superuser-password";

/// Where the client is, and the balancer.
pub(super) const CLIENT: usize = 3;

fn group(names: &[String], more: &str) -> String {
    format!(
        "  balancers: {{}}
  pg:
    hosts: {{ {} }}
    vars:
      patroni_etcd_cluster: prod
      patroni_superuser_password: {PASSWORD}
      patroni_replication_password: the-replication-password
      patroni_wheels: {}
      patroni_certificate_names: [db.example.org]
      patroni_ttl: 20
      patroni_loop_wait: 2
      patroni_retry_timeout: 5
      patroni_parameters: {{ max_connections: 50, shared_buffers: 16MB }}
{more}",
        names.iter().map(|name| format!("{name}: {{}}")).collect::<Vec<_>>().join(", "),
        patroni_wheels().unwrap().display()
    )
}

/// A cluster that was deployed by this test or an earlier one.
fn deployed() -> Site {
    deployed_with("", |_| String::new())
}

/// The same, with more variables, which a function returns after it has prepared the client's host. `recipe` says what it does.
pub(super) fn deployed_with(recipe: &str, prepare_client: impl Fn(&Place) -> String) -> Site {
    let server = etcd("3.5").unwrap();
    let recipe = format!("PostgreSQL on {} {recipe}", server.path.display());
    let prepare = |place: &Place| {
        let more = prepare_client(place);
        describe(place, 3, "3.5", ETCD);
        let names: Vec<_> = place.hosts[..3].iter().map(|host| host.name().to_owned()).collect();
        let text = place.folder.read("inventory.yaml");
        let client = &place.hosts[CLIENT];
        let hosts = format!("hosts:\n  {}: {{ address: {}, groups: [balancers] }}\n", client.name(), client.address());
        place.folder.write("inventory.yaml", &(text + &hosts + "groups:\n" + &group(&names, &more)));
        place.folder.run(&["playbook", "postgres.yaml", "-i", "inventory.yaml"]).ends(0);
        place.hosts[..3].iter().for_each(|host| drop(host.run(&["sh", "-c", BOOT_AT_ONCE]).unwrap()));
    };
    let site = Site::of(Place::prepared(Kind::Services, 4, &recipe, prepare), 3);
    // What members say in etcd is from before they were switched off.
    let answers = |host: usize| site.place.hosts[host].run(&["pg_isready", "-q"]).is_ok();
    until("all members serve", || (0..3).all(answers) && all_serve(&site));
    (0..3).for_each(|host| drop(shell(&site, host, BOOTED)));
    site
}

/// What Patroni says of its members, at one that is up.
fn members(site: &Site) -> Vec<Value> {
    let list = |host: usize| site.place.hosts[host].run(&["patronictl", "list", "-f", "json"]);
    let said = (0..3).find_map(|host| list(host).ok()).unwrap_or_default();
    serde_json::from_str(&said).unwrap_or_default()
}

fn serves(member: &Value) -> bool {
    member["State"] == "running" || member["State"] == "streaming"
}

pub(super) fn primary(site: &Site) -> Option<String> {
    let members = members(site);
    let leader = members.iter().find(|member| member["Role"] == "Leader" && serves(member))?;
    Some(leader["Member"].as_str()?.to_owned())
}

pub(super) fn all_serve(site: &Site) -> bool {
    primary(site).is_some() && members(site).iter().filter(|member| serves(member)).count() == 3
}

/// It grows by one with each change of the primary.
fn timeline(site: &Site) -> u64 {
    members(site).iter().filter_map(|member| member["TL"].as_u64()).max().unwrap()
}

fn psql(site: &Site, more: &str) -> String {
    let hosts: Vec<String> = site.members().into_iter().map(|(_, ip)| ip).collect();
    psql_at(&format!("host={} target_session_attrs=read-write", hosts.join(",")), more)
}

fn psql_at(place: &str, more: &str) -> String {
    format!(
        "PGPASSWORD={PASSWORD} timeout 20 psql -XAtq -v ON_ERROR_STOP=1 '{place} dbname=postgres user=postgres connect_timeout=2 \
         tcp_user_timeout=3000 sslmode=verify-full sslrootcert=/root/ca.crt' -c \"{more}\""
    )
}

/// Through the balancer, by the name that is in the certificates.
fn balanced(site: &Site, port: u16, more: &str) -> String {
    let address = site.place.hosts[CLIENT].address();
    let command = psql_at(&format!("host=db.example.org hostaddr={address} port={port}"), more);
    site.place.hosts[CLIENT].run(&["sh", "-c", &command]).unwrap_or_default()
}

const BALANCER: &str = "
- name: Deploy the balancer
  hosts: balancers
  become: true
  roles:
    - role: postgres_balancer
";

/// A play of a user, whose task stops PostgreSQL.
const TURNS: &str = "
- name: Restart everything
  hosts: pg
  become: true
  rollout: { strategy: patroni }
  tasks:
    - name: Restart Patroni and PostgreSQL
      shell: |
        runuser -u postgres -- psql -XAtc 'select pg_is_in_recovery()' >>/root/turns
        systemctl restart patroni
";

/// A client that commits a row after the other, and writes down which were acknowledged, and when.
fn start_client(site: &Site) {
    let ca = site.place.folder.read(".etcdrun/pki/postgres-main/ca.crt");
    std::fs::write(site.place.hosts[CLIENT].path("/root/ca.crt").unwrap(), ca).unwrap();
    shell(
        site,
        CLIENT,
        "rm -f /root/stop /root/stopped /root/acknowledged /root/errors; systemctl reset-failed client 2>/dev/null || true",
    );
    shell(site, CLIENT, &psql(site, "drop table if exists rows; create table rows (number int primary key)"));
    let insert = psql(site, "insert into rows values ($number)");
    let script = format!(
        "number=0\nwhile ! [ -e /root/stop ]; do\n  number=$((number + 1))\n  if {insert} 2>>/root/errors; then echo \"$number $(date +%s%3N)\" \
         >>/root/acknowledged; fi\ndone\ntouch /root/stopped\n"
    );
    std::fs::write(site.place.hosts[CLIENT].path("/root/client").unwrap(), script).unwrap();
    shell(site, CLIENT, "systemd-run --quiet --unit=client sh /root/client");
}

/// Ends it. All that was acknowledged is there. Returns the longest time between two commits.
fn stop_client(site: &Site) -> Duration {
    shell(site, CLIENT, "touch /root/stop");
    until("the client has ended", || shell(site, CLIENT, "ls /root").contains("stopped"));
    let text = shell(site, CLIENT, "cat /root/acknowledged");
    let acknowledged: Vec<(&str, u64)> = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(number, at)| (number, at.parse().unwrap()))
        .collect();
    let rows = shell(site, CLIENT, &psql(site, "select number from rows"));
    let rows: std::collections::HashSet<&str> = rows.lines().collect();
    let lost: Vec<_> = acknowledged.iter().filter(|(number, _)| !rows.contains(number)).collect();
    let pause = acknowledged.windows(2).map(|pair| pair[1].1 - pair[0].1).max().unwrap_or_default();
    let errors = shell(site, CLIENT, "wc -l </root/errors");
    println!("{} commits, longest pause {pause} ms, {} lines of errors", acknowledged.len(), errors.trim());
    assert!(lost.is_empty() && acknowledged.len() > 10, "lost {lost:?} of {}", acknowledged.len());
    Duration::from_millis(pause)
}

#[test]
fn members_restart_one_after_the_other_and_no_commit_is_lost() {
    let site = deployed();
    changes_nothing(again(&site, "postgres.yaml"));
    let before = timeline(&site);
    start_client(&site);

    let text = site.place.folder.read("inventory.yaml").replace("max_connections: 50", "max_connections: 60");
    site.place.folder.write("inventory.yaml", &text);
    let waits = again(&site, "postgres.yaml").ends(0);
    assert_eq!(waits.stdout.matches(" waits for a restart: ").count(), 3, "{}", waits.stdout);
    again(&site, "postgres-restart.yaml").ends(0);
    assert_eq!(timeline(&site), before + 1, "one planned switchover");
    play(&site, "turns.yaml", TURNS).ends(0);

    let pause = stop_client(&site);
    assert!(pause < Duration::from_secs(30), "{pause:?}");
    assert_eq!(timeline(&site), before + 2, "one planned switchover more");
    for host in 0..3 {
        assert_eq!(shell(&site, host, "cat /root/turns"), "t\n", "each had a turn, and none as the primary");
    }
    for host in 0..3 {
        let show = "runuser -u postgres -- psql -XAtc 'show max_connections'";
        assert_eq!(shell(&site, host, show), "60\n");
    }
    changes_nothing(again(&site, "postgres.yaml"));
    changes_nothing(again(&site, "postgres-restart.yaml"));
}

#[test]
fn a_lost_primary_comes_back_as_a_replica_and_an_upgrade_of_etcd_is_not_noticed() {
    let site = deployed();
    start_client(&site);
    play(&site, "balancer.yaml", BALANCER).ends(0);
    changes_nothing(again(&site, "balancer.yaml"));
    let in_recovery = |port: u16| balanced(&site, port, "select pg_is_in_recovery()");
    until("the balancer knows who is who", || {
        (in_recovery(5432), in_recovery(5433)) == ("f\n".to_owned(), "t\n".to_owned())
    });

    let old = primary(&site).unwrap();
    let host = site.place.hosts.iter().find(|host| host.name() == old).unwrap();
    host.kill().unwrap();
    let status = || site.place.folder.run(&["status", "-i", "inventory.yaml"]);
    until("another member is the primary", || primary(&site).is_some_and(|now| now != old));
    until("the balancer leads to it", || in_recovery(5432) == "f\n");
    let lost = status().ends(4).stdout;
    assert!(lost.contains("PostgreSQL main: unhealthy") && lost.contains(&format!("! {old}: ")), "{lost}");
    host.start().unwrap();
    until("all serve again", || all_serve(&site) && status().code == 0);
    let well = status().ends(0).stdout;
    let primary_line = format!("PostgreSQL main: healthy, {} is the primary, in etcd prod\n", primary(&site).unwrap());
    assert!(well.contains(&primary_line) && well.contains("  sync standby  streaming  "), "{well}");
    changes_nothing(again(&site, "postgres.yaml"));

    let (now, before) = (primary(&site).unwrap(), timeline(&site));
    let [from, to] = ["3.5", "3.7"].map(|minor| etcd(minor).unwrap().version);
    wants(&site, &from, &to, &releases(&["3.6", "3.7"]));
    again(&site, "upgrade.yaml").ends(0);
    assert_eq!((primary(&site).unwrap(), timeline(&site)), (now, before), "no failover");
    // A primary that lost its power is replaced when its lock in etcd has expired, after 20 s.
    let pause = stop_client(&site);
    assert!(pause < Duration::from_secs(60), "{pause:?}");
    until("all serve", || all_serve(&site));
}

#[test]
fn a_replaced_member_and_another_ca_of_etcd_are_not_noticed() {
    let site = deployed();
    start_client(&site);
    let (primary_before, timeline_before) = (primary(&site), timeline(&site));
    let run = |words: &[&str]| site.place.folder.run(&[words, &["--yes", "-i", "inventory.yaml"]].concat()).ends(0);
    shell(&site, 1, "systemctl stop etcd; rm -rf /var/lib/etcd/data/*; systemctl start --no-block etcd");
    run(&["member", "replace", &site.names[1]]);
    changes_nothing(again(&site, "postgres.yaml"));
    // After each phase its clients get what they trust, and what they show.
    for phase in [&[][..], &["--issue"], &["--finish"]] {
        run(&[&["certs", "rotate-ca", "prod"], phase].concat());
        again(&site, "postgres.yaml").ends(0);
        changes_nothing(again(&site, "postgres.yaml"));
    }
    assert_eq!((primary(&site), timeline(&site)), (primary_before, timeline_before), "no failover");
    let pause = stop_client(&site);
    assert!(pause < Duration::from_secs(10), "{pause:?}");
    until("all serve", || all_serve(&site));
}

/// What a person does instead of `postgres-restart.yaml`.
fn restart_by_hand(site: &Site) {
    let ctl = |words: &str| {
        shell(site, 0, &format!("patronictl {words} --force"));
        until("all serve", || all_serve(site));
    };
    let old = primary(site).unwrap();
    for name in site.names.iter().filter(|name| **name != old) {
        ctl(&format!("restart main {name}"));
    }
    let is_next = |member: &&Value| member["Role"] == "Sync Standby";
    let next = members(site).iter().find(is_next).unwrap()["Member"].as_str().unwrap().to_owned();
    ctl(&format!("switchover main --leader {old} --candidate {next}"));
    ctl(&format!("restart main {old}"));
}

#[test]
#[ignore = "it measures, for minutes"]
fn a_restart_interrupts_clients_no_longer_than_by_hand() {
    let site = deployed();
    let measured = |restart: &dyn Fn()| {
        let before = timeline(&site);
        start_client(&site);
        let since = std::time::Instant::now();
        restart();
        let took = since.elapsed();
        assert_eq!(timeline(&site), before + 1, "one planned switchover");
        (stop_client(&site), took)
    };
    let all = ["playbook", "postgres-restart.yaml", "-i", "inventory.yaml", "-e", "patroni_restart_all=true"];
    let mut pauses = [Vec::new(), Vec::new()];
    for _ in 0..5 {
        pauses[0].push(measured(&|| drop(site.place.folder.run(&all).ends(0))));
        pauses[1].push(measured(&|| restart_by_hand(&site)));
    }
    for (who, pauses) in ["etcdrun", "patronictl"].iter().zip(&pauses) {
        println!("{who}: {pauses:?}");
    }
    let [etcdrun, by_hand] = pauses.map(|mut pauses| {
        pauses.sort();
        pauses[pauses.len() / 2].0
    });
    println!("median of the longest pauses: {etcdrun:?} by etcdrun, {by_hand:?} by hand");
    assert!(etcdrun < by_hand.mul_f64(1.1), "{etcdrun:?} {by_hand:?}");
}
