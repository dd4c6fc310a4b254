//! The JSON Schema of playbooks.

use etcdrun::{LIBRARY, model::Value, playbook::schema};
use serde_json::json;

fn references<'v>(value: &'v Value, found: &mut Vec<&'v str>) {
    match value {
        Value::Object(map) => {
            found.extend(map.get("$ref").and_then(Value::as_str));
            map.values().for_each(|value| references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[test]
fn every_reference_leads_somewhere() {
    let schema = schema(&LIBRARY);
    let mut found = Vec::new();
    references(&schema, &mut found);
    assert!(!found.is_empty());
    for reference in found {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(schema.pointer(pointer).is_some(), "{reference}");
    }
}

#[test]
fn settings_of_rollouts_are_known_and_others_are_not() {
    let rollout = &schema(&LIBRARY)["$defs"]["rollout"];
    for name in ["strategy", "max_clusters", "on_failure", "max_stall"] {
        let property = &rollout["properties"][name];
        assert!(
            property["description"].is_string() && property["anyOf"][1] == json!({ "$ref": "#/$defs/template" }),
            "{property}"
        );
    }
    assert_eq!(rollout["additionalProperties"], false);
}

#[test]
fn a_key_of_an_argument_may_be_a_template_and_a_member_need_not_name_its_cluster() {
    let cluster = &schema(&LIBRARY)["$defs"]["module_etcd_gate"]["$defs"]["ClusterArgs"];
    assert_eq!(cluster["properties"]["members"]["anyOf"][1], json!({ "$ref": "#/$defs/template" }), "{cluster}");
    assert_eq!(cluster.get("required"), None, "{cluster}");
}

#[test]
fn tasks_have_keywords_and_modules() {
    let schema = schema(&LIBRARY);
    let properties = &schema["$defs"]["call"]["properties"];
    for name in ["when", "register", "command", "copy"] {
        assert!(properties.get(name).is_some(), "{name}");
    }
    assert!(properties.get("listen").is_none());
    assert!(schema["$defs"]["handler_call"]["properties"].get("listen").is_some());
}
