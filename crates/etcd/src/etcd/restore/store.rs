//! Who the members are, in the form that etcd had before version 3 and still has in raft snapshots.

use serde_json::{Map, Value, json};

use super::NewCluster;

/// How many events the old store remembers; none of them is here, but the room has to be.
const EVENTS: usize = 1000;

pub(super) fn store(cluster: &NewCluster) -> Vec<u8> {
    let mut members = Map::new();
    for (number, member) in (1_u64..).zip(&cluster.members) {
        let path = format!("/0/members/{:x}", member.id);
        let value = |name: &str, value: &Value| {
            json!({ "Path": format!("{path}/{name}"), "CreatedIndex": number, "ModifiedIndex": number,
                "ExpireTime": NEVER, "Value": value.to_string(), "Children": null })
        };
        let children = json!({
            "attributes": value("attributes", &json!({ "name": member.name })),
            "raftAttributes": value("raftAttributes", &json!({ "peerURLs": [member.peer_url] })),
        });
        members.insert(format!("{:x}", member.id), folder(&path, number, children));
    }
    let cluster_folder = json!({ "members": folder("/0/members", 1, Value::Object(members)) });
    let root = json!({ "0": folder("/0", 0, cluster_folder), "1": folder("/1", 0, json!({})) });
    let queue = json!({ "Events": vec![Value::Null; EVENTS], "Size": 0, "Front": 0, "Back": 0, "Capacity": EVENTS });
    let whole = json!({
        "Root": folder("/", 0, root),
        "WatcherHub": { "EventHistory": { "Queue": queue, "StartIndex": 0, "LastIndex": 0 } },
        "CurrentIndex": cluster.members.len(),
        "Stats": {},
        "CurrentVersion": 2,
    });
    whole.to_string().into_bytes()
}

const NEVER: &str = "0001-01-01T00:00:00Z";

fn folder(path: &str, index: u64, children: Value) -> Value {
    json!({ "Path": path, "CreatedIndex": index, "ModifiedIndex": index, "ExpireTime": NEVER, "Value": "",
        "Children": children })
}
