//! The inventory as it is shown.

use etcdrun::inventory::{render, schema};

use crate::inventory::support::{Loaded, load_fine};

fn fleet() -> Loaded {
    load_fine(
        r#"ssh: { user: ops, connect_timeout: 5s }
vars: { region: north }
hypervisors:
  hv1: { address: 10.0.0.11, zone: rack-a, groups: [rack-a] }
  hv2: { address: 10.0.0.12, ssh: { port: 2222, jump: [bastion] } }
hosts: { bastion: { user: jump } }
groups:
  rack-a: { vars: { power: feed-1 } }
  site: { children: [rack-a, prod] }
clusters:
  prod:
    etcd: { version: 3.5.34 }
    vars: { region: south }
    members:
      etcd-1:
        hypervisor: hv1
        ssh_via: hypervisor
        interfaces: [{ network: net, ip: 192.168.121.4/24 }]
        vars: { text: "{{ region }} and a text that is much longer than anyone wants to read on one line" }
"#,
    )
}

#[test]
fn the_list_has_a_line_a_host() {
    insta::assert_snapshot!(render::list_text(&fleet().inventory, None));
}

#[test]
fn the_graph_is_a_tree() {
    insta::assert_snapshot!(render::graph_text(&fleet().inventory));
    insta::assert_json_snapshot!(render::graph_json(&fleet().inventory));
}

#[test]
fn a_host_shows_where_its_variables_come_from() {
    let fleet = fleet();
    let folder = format!("{}/", fleet.folder.path().display());
    let text: String = ["hv2", "etcd-1"]
        .map(|name| render::host_text(&fleet.inventory, fleet.inventory.host(name).unwrap().id, &fleet.sources))
        .join("\n");
    insta::assert_snapshot!(text.replace(&folder, ""));
    let id = fleet.inventory.host("etcd-1").unwrap().id;
    let json = serde_json::to_string_pretty(&render::host_json(&fleet.inventory, id, &fleet.sources)).unwrap();
    insta::assert_snapshot!(json.replace(&folder, ""));
}

#[test]
fn the_json_list_is_what_ansible_reads() {
    insta::assert_json_snapshot!(render::list_json(&fleet().inventory, None));
}

#[test]
fn the_schema_names_every_key() {
    let schema = schema();
    insta::assert_json_snapshot!(schema);
}
