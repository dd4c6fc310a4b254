//! The sections of clusters: what is wrong with them is told before anything connects.

use crate::inventory::support::{folder, load, load_paths};

const SUM: &str = "2b7e151628aed2a6abf7158809cf4f3c2b7e151628aed2a6abf7158809cf4f3c";

#[test]
fn every_problem_of_a_section_has_a_place_and_a_way_out() {
    let text = format!(
        r"etcd_releases:
  3.5.34: {{ file: etcd, sha256: {SUM} }}
  3.6.15: {{ file: etcd }}
  3.7.2: {{ file: etcd, url: https://example.org/etcd, sha256: abc }}
  latest: {{ file: etcd, sha256: {SUM} }}
clusters:
  one:
    etcd: {{ version: 3.5, qota: 8GiB }}
    tls: {{ ca: {{ certificate: ca.crt }}, validity: 1d, early_renewal: 2d }}
    members: {{ a1: {{ address: 10.0.0.1 }}, a2: {{ address: 10.0.0.2, etcd: {{ data_dir: /x }} }} }}
  two:
    etcd:
      version: 3.6.14
      gateway: true
      discovery: {{ url: https://example.org/1, dns_srv: example.org }}
      settings: {{ enable-v2: true, snapshot-cont: 1, data-dir: /x, force-new-cluster: true }}
    auth:
      bootstrap: [b1, b2]
      users: {{ b1: {{ roles: [ap] }} }}
      roles: {{ app: {{ permissions: [{{ access: read }}] }} }}
    members: {{ b1: {{ address: 10.0.0.3 }}, b2: {{ address: 10.0.0.4 }}, b3: {{ address: 10.0.0.5 }} }}
  three:
    etcd: {{ version: 3.5.2 }}
    tls: {{ ca: {{ key: ca.key }} }}
    auth:
      method: password
      bootstrap: c9
      users: {{ c1: {{ roles: [ap] }} }}
      roles: {{ app: {{ permissions: [{{ access: read }}] }} }}
    members: {{ c1: {{ address: 10.0.0.6 }}, a1: {{ address: 10.0.0.7 }} }}
"
    );
    insta::assert_snapshot!(load(&text).problems());
}

#[test]
fn the_gateway_goes_with_authentication_that_is_off() {
    let problems = |auth: &str| {
        load(&format!("clusters:\n  prod:\n    etcd: {{ gateway: true }}\n    auth: {auth}\n    members: {{ a1: {{ address: 10.0.0.1 }} }}\n"))
            .problems()
    };
    assert_eq!(problems("{ enabled: false }"), "");
    assert_eq!(problems("{ method: password }"), "");
    assert!(problems("{}").contains("the gateway cannot be used with certificate authentication"));
}

#[test]
fn neither_data_nor_its_disk_takes_a_folder_that_others_need() {
    let problems = |etcd: &str, member: &str| {
        let releases = format!("etcd_releases: {{ 3.5.34: {{ file: etcd, sha256: {SUM} }} }}\n");
        let text = format!(
            "{releases}clusters:\n  one:\n    etcd: {{ version: 3.5.34, {etcd} }}\n    members: {{ a1: {{ address: 10.0.0.1{member} }} }}\n"
        );
        load(&text).problems()
    };
    for (etcd, member) in [
        ("data_dir: /var/lib/etcd", ""),
        ("data_dir: /var/lib/etcd/data, data_device: /dev/vdb", ""),
        ("data_dir: /data/etcd", ", etcd: { quota: 2GiB }"),
    ] {
        assert_eq!(problems(etcd, member), "", "{etcd} {member}");
    }
    for etcd in ["data_dir: /var/lib/", "data_dir: /", "data_dir: etcd"] {
        let said = problems(etcd, "");
        assert!(said.contains("cannot be the data directory") && said.contains("/var/lib/etcd/data"), "{said}");
    }
    for (etcd, member) in [
        ("data_dir: /var/lib/etcd, data_device: /dev/vdb", ""),
        ("data_dir: /var/lib/etcd", ", etcd: { data_device: /dev/vdb }"),
    ] {
        let said = problems(etcd, member);
        assert!(said.contains("would be mounted on /var/lib, the parent directory"), "{said}");
    }
}

fn problems_of(etcd: &str, member: &str, more: &str) -> String {
    let releases: String =
        ["3.5.27", "3.6.15", "3.7.2"].map(|it| format!("  {it}: {{ file: etcd, sha256: {SUM} }}\n")).concat();
    load(&format!(
        "etcd_releases:\n{releases}clusters:\n  one:\n    etcd: {{ {etcd} }}\n{more}    members: {{ a1: {{ address: 10.0.0.1{member} }} }}\n"
    ))
    .problems()
}

#[test]
fn a_cluster_of_3_7_cannot_form_by_a_discovery_url() {
    let url = "discovery: { url: https://example.org/1 }";
    assert_eq!(problems_of(&format!("version: 3.6.15, {url}"), "", ""), "");
    assert_eq!(problems_of("version: 3.7.2, discovery: { dns_srv: example.org }", "", ""), "");
    for (etcd, member) in
        [(format!("version: 3.7.2, {url}"), ""), (format!("version: 3.6.15, {url}"), ", etcd: { version: 3.7.2 }")]
    {
        let said = problems_of(&etcd, member, "");
        assert!(said.contains("3.7.2 cannot bootstrap a cluster by `discovery.url`"), "{said}");
        assert!(said.contains("an existing cluster does not need it") && said.contains("dns_srv"), "{said}");
    }
}

#[test]
fn a_release_with_known_problems_is_told_with_the_one_to_take() {
    let said = problems_of("version: 3.5.27", "", "");
    assert!(said.contains("CVE-2026-33413") && said.contains("use 3.5.33 or later"), "{said}");
    assert!(said.starts_with("warning: ") && !said.contains("error: "), "{said}");
}

#[test]
fn clients_are_known_programs_with_a_version() {
    let clients = |text: &str| problems_of("version: 3.6.15", "", &format!("    clients: {text}\n"));
    assert_eq!(clients("[{ name: patroni, version: 4.1.4 }]"), "");
    for wrong in ["[{ name: patron, version: 4.1.4 }]", "[{ name: patroni }]", "[{ name: patroni, version: 4 }]"] {
        assert_ne!(clients(wrong), "", "{wrong}");
    }
}

#[test]
fn templates_and_secrets_can_stand_where_values_do() {
    let text = format!(
        r"etcd_releases:
  3.5.34: {{ file: etcd, sha256: {SUM} }}
vars: {{ quota: 2GiB, version: 3.5.34 }}
clusters:
  one:
    etcd: {{ version: '{{{{ version }}}}', quota: '{{{{ quota }}}}', gateway: '{{{{ true }}}}', settings: '{{{{ more }}}}' }}
    auth: {{ root_password: '{{{{ secret }}}}' }}
    members: {{ a1: {{ address: 10.0.0.1 }} }}
"
    );
    assert_eq!(load(&text).problems(), "");
}

#[test]
fn an_authority_whose_key_is_another_one_is_found_at_once() {
    let make = |name: &str| rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let (one, other) = (make("one"), make("other"));
    let folder = folder(&[
        ("leaf.crt", &one.cert.pem()),
        ("other.key", &other.signing_key.serialize_pem()),
        (
            "a.yaml",
            "clusters: {p: {tls: {ca: {certificate: leaf.crt, key: other.key}}, members: {m: {address: 10.0.0.1}}}}\n",
        ),
        (
            "b.yaml",
            "clusters: {q: {tls: {ca: {certificate: gone.crt, key: other.key}}, members: {n: {address: 10.0.0.2}}}}\n",
        ),
    ]);
    let problems = load_paths(folder, &["a.yaml", "b.yaml"]).problems();
    assert!(problems.contains("is not a CA certificate") && problems.contains("gone.crt"), "{problems}");
}
