//! Backups of PostgreSQL by pgBackRest: in a bucket that every member reaches, and on a repository host.

use etcdrun_lab::{S3, s3_program};

use super::{
    again, changes, changes_nothing,
    postgres::{CLIENT, all_serve, deployed_with, primary},
    shell,
};
use crate::lab::{Place, Said, etcd::Site, rollout_faults::until};

const PASSPHRASE: &str = "the-passphrase-of-the-repository";

/// In the form that etcdrun expects.
const TIME: &str = "select replace((now() at time zone 'utc')::text, ' ', 'T') || 'Z'";

const COMMON: &str = "      postgres_backup_passphrase: the-passphrase-of-the-repository
      postgres_backup_keep_full: 2
      postgres_backup_archive_timeout: 60
";

/// A server for S3 with TLS on the client's host, as pgBackRest wants: by a name, behind HAProxy. It is there again after a boot.
fn bucket(place: &Place) -> String {
    let client = &place.hosts[CLIENT];
    std::fs::copy(s3_program().unwrap(), client.path("/usr/local/bin/s3s-fs").unwrap()).unwrap();
    let (key, secret) = (S3::ACCESS_KEY, S3::SECRET_KEY);
    let script = format!(
        "set -e; mkdir -p /srv/s3/backups; cd /etc/haproxy
        openssl req -x509 -newkey rsa:2048 -nodes -keyout s3.key -out s3.crt -days 9 -subj /CN=s3.lab -addext subjectAltName=DNS:s3.lab 2>&1
        cat s3.crt s3.key >s3.pem
        printf '%s\\n' 'defaults' ' mode tcp' ' timeout connect 9s' ' timeout client 99s' ' timeout server 99s' 'listen s3' \
        ' bind :9443 ssl crt /etc/haproxy/s3.pem' ' server s3 127.0.0.1:9000' >haproxy.cfg
        printf '%s\\n' '[Service]' 'ExecStart=/usr/local/bin/s3s-fs --host 127.0.0.1 --port 9000 --access-key {key} --secret-key {secret} /srv/s3' \
        '[Install]' 'WantedBy=multi-user.target' >/etc/systemd/system/s3.service
        systemctl daemon-reload; systemctl enable --quiet --now s3; systemctl enable --quiet haproxy; systemctl restart haproxy"
    );
    client.run(&["sh", "-c", &script]).unwrap();
    let authority = client.run(&["cat", "/etc/haproxy/s3.crt"]).unwrap();
    place.folder.write("s3-ca.crt", &authority);
    for host in &place.hosts[..CLIENT] {
        let line = format!("echo '{} s3.lab' >>/etc/hosts", client.address());
        host.run(&["sh", "-c", &line]).unwrap();
    }
    format!(
        "{COMMON}      postgres_backup_to: s3:backups/postgres
      postgres_backup_endpoint: s3.lab:9443
      postgres_backup_access_key_id: {key}
      postgres_backup_secret_access_key: {secret}
      postgres_backup_s3_ca: {}
",
        place.folder.path("s3-ca.crt").display()
    )
}

/// The client's host has the repository.
fn repository(place: &Place) -> String {
    let name = place.hosts[CLIENT].name();
    format!(
        "{COMMON}      postgres_backup_to: file:/srv/pgbackrest
      postgres_backup_host: {name}
      postgres_backup_from: replica
"
    )
}

/// The place of the primary among the hosts.
fn primary_at(site: &Site) -> usize {
    let name = primary(site).unwrap();
    site.place.hosts.iter().position(|host| host.name() == name).unwrap()
}

fn sql(site: &Site, query: &str) -> String {
    let command = format!("runuser -u postgres -- psql -XAtq -v ON_ERROR_STOP=1 -c \"{query}\"");
    shell(site, primary_at(site), &command).trim().to_owned()
}

fn with(site: &Site, playbook: &str, more: &[&str]) -> Said {
    site.place.folder.run(&[&["playbook", playbook, "-i", "inventory.yaml"], more].concat())
}

/// A drill, whose query must return true.
fn drill(site: &Site, query: &str) -> Said {
    let query = format!("{{\"postgres_drill_query\": \"{query}\"}}");
    with(site, "postgres-restore-drill.yaml", &["-e", &query])
}

/// Labels of the backups, the oldest first.
fn backups(site: &Site) -> Vec<String> {
    let info = shell(site, 0, "runuser -u postgres -- pgbackrest --stanza=main --output=json info");
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    let backups = info[0]["backup"].as_array().unwrap();
    backups.iter().map(|one| one["label"].as_str().unwrap().to_owned()).collect()
}

/// Files with secrets are the owner's, and nothing prints them.
fn keeps_secrets(site: &Site, said: &Said) {
    for secret in [PASSPHRASE, S3::SECRET_KEY] {
        assert!(!said.stdout.contains(secret) && !said.stderr.contains(secret), "{}", said.stdout);
    }
    for host in 0..3 {
        let rights = shell(site, host, "stat -c '%U %a' /etc/pgbackrest/pgbackrest.conf");
        assert_eq!(rights, "postgres 600\n");
        let found = format!(
            "grep -rlE '{PASSPHRASE}|{}' /etc /var/log /run/log --exclude=pgbackrest.conf || :",
            S3::SECRET_KEY
        );
        assert_eq!(shell(site, host, &found), "");
        let journal = format!("journalctl --no-pager | grep -E '{PASSPHRASE}|{}' || :", S3::SECRET_KEY);
        assert_eq!(shell(site, host, &journal), "");
    }
}

#[test]
fn rows_come_back_and_backups_follow_the_primary() {
    let site = deployed_with("with backups in a bucket", bucket);
    changes_nothing(again(&site, "postgres.yaml"));
    let taken = with(&site, "postgres-backup.yaml", &["-e", "postgres_backup_type=full"]).ends(0);
    keeps_secrets(&site, &taken);
    assert_eq!((changes(&taken), backups(&site).len()), (1, 1), "one member took it: {}", taken.stdout);

    sql(&site, "create table kept (number int); insert into kept select generate_series(1, 1000)");
    let time = sql(&site, TIME);
    sql(&site, "delete from kept");
    let said = drill(&site, "select count(*) = 0 from kept").ends(0);
    assert!(
        said.stdout.contains("the query returned true") && said.stdout.contains("Bad checksums:  0"),
        "{}",
        said.stdout
    );
    changes_nothing(said);
    let refused = drill(&site, "select count(*) > 0 from kept");
    assert!(refused.code != 0 && refused.stdout.contains("not true"), "{}", refused.stdout);

    let at = format!("postgres_restore_at={time}");
    let refused = with(&site, "postgres-restore.yaml", &["-e", &at]);
    assert!(refused.code != 0 && refused.stdout.contains("postgres_restore_confirm=main"), "{}", refused.stdout);
    // Nothing will be committed at that time.
    let later = sql(&site, &TIME.replace("now()", "(now() + interval '1 hour')"));
    let later = format!("postgres_restore_at={later}");
    let refused = with(&site, "postgres-restore.yaml", &["-e", &later, "-e", "postgres_restore_confirm=main"]);
    assert!(
        refused.code != 0 && refused.stdout.contains("the archived WAL ends before the target"),
        "{}",
        refused.stdout
    );
    assert!(all_serve(&site), "it was refused before anything stopped");
    let restored = with(&site, "postgres-restore.yaml", &["-e", &at, "-e", "postgres_restore_confirm=main"]).ends(0);
    keeps_secrets(&site, &restored);
    until("all serve the restored data", || all_serve(&site));
    assert_eq!(sql(&site, "select count(*) from kept"), "1000");
    for host in 0..3 {
        let aside = shell(&site, host, "ls -d /var/lib/postgresql/15/main.before-* | wc -l");
        assert_eq!(aside, "1\n", "the former data is kept");
    }
    changes_nothing(again(&site, "postgres.yaml"));

    // WAL of the new timeline is archived, and a backup that was taken before it leads to it.
    sql(&site, "insert into kept values (0)");
    drill(&site, "select count(*) = 1001 from kept").ends(0);

    let (before, old) = (backups(&site).len(), primary_at(&site));
    site.place.hosts[old].kill().unwrap();
    until("another member is the primary", || primary(&site).is_some_and(|now| now != site.place.hosts[old].name()));
    site.place.hosts[old].start().unwrap();
    until("all serve again", || all_serve(&site));
    let now = primary_at(&site);
    for host in 0..3 {
        shell(&site, host, "systemctl start postgres-backup@incr");
        let log = shell(&site, host, "journalctl --no-pager -b -u postgres-backup@incr");
        assert_eq!(log.contains(": backup taken\n"), host == now, "{log}");
    }
    assert_eq!(backups(&site).len(), before + 1);
    changes_nothing(again(&site, "postgres.yaml"));
}

#[test]
fn a_repository_host_takes_backups_from_a_replica() {
    let site = deployed_with("with a repository host", repository);
    changes_nothing(again(&site, "postgres.yaml"));
    with(&site, "postgres-backup.yaml", &["-e", "postgres_backup_type=full"]).ends(0);
    shell(&site, CLIENT, "systemctl start postgres-backup@diff");
    assert_eq!(backups(&site).len(), 2);
    sql(&site, "create table kept as select generate_series(1, 1000)");
    drill(&site, "select count(*) = 1000 from kept").ends(0);

    // All data is lost, and what Patroni knew too.
    (0..3).for_each(|host| drop(shell(&site, host, "systemctl stop patroni; rm -r /var/lib/postgresql/15/main")));
    with(&site, "postgres-restore.yaml", &["-e", "postgres_restore_confirm=main"]).ends(0);
    until("all serve the restored data", || all_serve(&site));
    assert_eq!(sql(&site, "select count(*) from kept"), "1000");
    changes_nothing(again(&site, "postgres.yaml"));
    // Only the repository host knows the passphrase.
    (0..3).for_each(|host| assert_eq!(shell(&site, host, &format!("grep -rl {PASSPHRASE} /etc || :")), ""));
    let timers = |host: usize| shell(&site, host, "systemctl list-timers --all --no-legend 'postgres-backup-*'");
    assert!(timers(CLIENT).contains("postgres-backup-full.timer") && !timers(0).contains("postgres-backup-full.timer"));
}
