//! Prometheus that scrapes real members and hosts by TLS, and Alertmanager that hears of it.

use std::path::Path;

use etcdrun_lab::Kind;

use super::{add_group, again, changes_nothing, play, shell};
use crate::lab::{
    Place,
    etcd::{PLAIN, Site},
    rollout_faults::until,
};

const PLAYBOOK: &str = r#"
- name: Install node_exporter
  hosts: prod
  become: true
  roles:
    - { role: node_exporter, node_exporter_tls: true }
- name: Install the monitoring
  hosts: watch
  become: true
  roles:
    - role: alertmanager
      alertmanager_config: { route: { receiver: ops, group_wait: 1s }, receivers: [{ name: ops }] }
    - role: prometheus
      prometheus_nodes: "{{ groups.prod }}"
      prometheus_nodes_tls: true
      prometheus_interval: 1s
      prometheus_rule_files: [lost.yml]
"#;

/// As `EtcdMemberDown`, but at once.
const LOST: &str = "groups: [{ name: test, rules: [{ alert: Lost, expr: 'up{job=\"etcd\"} == 0' }] }]\n";

#[test]
fn members_and_hosts_are_scraped_and_a_lost_member_is_an_alert() {
    let site = Site::formed_on(Kind::Services, 3, "3.6", PLAIN).beside_of(Kind::Services, 1);
    add_group(&site, 3, "watch");
    site.place.folder.write("lost.yml", LOST);
    play(&site, "monitoring.yaml", PLAYBOOK).ends(0);
    changes_nothing(again(&site, "monitoring.yaml"));

    let ask = |what: &str| shell(&site, 3, &format!("curl -sG 127.0.0.1:9090/api/v1/{what}"));
    let value = |query: &str| ask(&format!("query --data-urlencode 'query={query}'"));
    let all_up = |job: &str| value(&format!("count(up{{job=\"{job}\"}} == 1)")).contains(",\"3\"]");
    until("all members and hosts are scraped", || all_up("etcd") && all_up("node"));
    assert!(ask("rules").contains("EtcdQuorumLost"));

    // Nothing without a certificate of its CA.
    let stranger = site.place.hosts[3].command(&["curl", "-sk", &node_exporter(&site)]).unwrap().output().unwrap();
    assert!(!stranger.status.success(), "{}", String::from_utf8_lossy(&stranger.stdout));

    // What etcdrun knows comes by a file.
    let metrics = site.place.folder.run(&["metrics", "-i", "inventory.yaml"]).ends(0).stdout;
    let file = "/var/lib/prometheus/node-exporter/etcdrun.prom";
    std::fs::write(site.place.hosts[0].path(file).unwrap(), metrics).unwrap();
    until("the metrics of etcdrun are scraped", || value("etcdrun_cluster_healthy").contains(",\"1\"]"));

    std::fs::write(site.place.hosts[3].path("/etc/systemd/system/grafana-server.service").unwrap(), GRAFANA).unwrap();
    shell(&site, 3, "mkdir -p /srv/grafana/api; touch /srv/grafana/api/health");
    play(&site, "grafana.yaml", DASHBOARD).ends(0);
    changes_nothing(again(&site, "grafana.yaml"));
    let environment = shell(&site, 3, "tr '\\0' '\\n' <\"/proc/$(systemctl show -P MainPID grafana-server)/environ\"");
    assert!(environment.contains("GF_SECURITY_ADMIN_PASSWORD=a \"quoted\" $pass\\word\n"), "{environment}");
    assert_eq!(shell(&site, 3, "stat -c %a /etc/grafana/etcdrun.env"), "600\n");
    for (panel, query) in queries() {
        let answers = || value(&query).contains("\"result\":[{");
        until(&format!("{panel}: {query} finds something"), answers);
    }

    site.place.hosts[0].run(&["systemctl", "stop", "etcd"]).unwrap();
    let lost = || shell(&site, 3, "curl -s 127.0.0.1:9093/api/v2/alerts");
    until("the alert arrives", || lost().contains("\"alertname\":\"Lost\"") && lost().contains(&site.names[0]));
    assert!(ask("alerts").contains("EtcdMemberDown"), "{}", ask("alerts"));
}

/// What stands in for Grafana, which no registry has.
const GRAFANA: &str = "[Service]
ExecStart=/usr/bin/python3 -m http.server $GF_SERVER_HTTP_PORT --bind $GF_SERVER_HTTP_ADDR --directory /srv/grafana
[Install]
WantedBy=multi-user.target
";

const DASHBOARD: &str = r#"
- name: Set up Grafana
  hosts: watch
  become: true
  roles:
    - { role: grafana, grafana_package: "", grafana_admin_password: 'a "quoted" $pass\word' }
"#;

/// The queries of the dashboard, with what Grafana puts into them.
fn queries() -> Vec<(String, String)> {
    let text = include_str!("../../../../roles/grafana/files/etcd.json");
    let dashboard: serde_json::Value = serde_json::from_str(text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    // No backup was taken.
    let panels = panels.filter(|panel| panel["title"] != "Newest backup, age");
    let queries: Vec<_> = panels
        .flat_map(|panel| panel["targets"].as_array().into_iter().flatten().map(move |target| (panel, target)))
        .map(|(panel, target)| {
            let query = target["expr"].as_str().unwrap().replace("$cluster", "prod").replace("$__rate_interval", "30s");
            (panel["title"].as_str().unwrap().to_owned(), query)
        })
        .collect();
    assert!(queries.len() > 25, "{}", queries.len());
    queries
}

fn node_exporter(site: &Site) -> String {
    format!("https://{}:9100/metrics", site.place.hosts[0].address())
}

#[test]
fn each_alert_fires_when_it_should() {
    let place = Place::new(Kind::Services, 1);
    let host = &place.hosts[0];
    for folder in ["roles/prometheus/files", "tests/monitoring"] {
        let to = host.path("/srv").unwrap().join(folder);
        std::fs::create_dir_all(&to).unwrap();
        for file in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
    }
    let test = "cd /srv && ls tests/monitoring/*.test.yml && promtool test rules tests/monitoring/*.test.yml 2>&1";
    let said = host.run(&["sh", "-c", test]).unwrap();
    assert_eq!(said.matches("SUCCESS").count(), said.matches(".test.yml\n").count() / 2, "{said}");
}
