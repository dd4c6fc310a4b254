//! `etcdrun plan`: what it foresees, that it changes nothing, and that a saved plan is what runs.

mod foresight;
mod guard;
mod saved;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::support::{
    Sshd,
    program::{Folder, Said},
};

/// Loopback hosts, and a folder in which a playbook plans and runs. `DIR` stands for the folder that tasks work in.
pub struct Bench {
    _sshd: Sshd,
    pub folder: Folder,
}

/// What a plan says of each task: the word and the message.
pub type Foreseen = BTreeMap<String, (String, String)>;

impl Bench {
    pub fn new(hosts: usize, playbook: &str) -> Self {
        let folder = Folder::new();
        std::fs::create_dir(folder.path("home")).unwrap();
        std::fs::create_dir(folder.path("work")).unwrap();
        let sshd = Sshd::builder().env("HOME", &folder.path("home").display().to_string()).start();
        folder.write("inventory.yaml", &sshd.inventory(hosts));
        let bench = Self { _sshd: sshd, folder };
        bench.playbook(playbook);
        bench
    }

    pub fn playbook(&self, text: &str) {
        self.folder.write("site.yaml", &text.replace("DIR", &self.folder.path("work").display().to_string()));
    }

    pub fn plan(&self) -> Said {
        self.folder.run(&["plan", "site.yaml"])
    }

    pub fn foreseen(&self) -> Foreseen {
        let said = self.folder.run(&["plan", "site.yaml", "--json"]);
        let events = said.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        events.filter(|event| event["event"] == "node_finished").map(|event| word(&event)).collect()
    }
}

fn word(event: &Value) -> (String, (String, String)) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let word = if event["result"]["unknown"] == true { "unknown".to_owned() } else { text(&event["status"]) };
    (text(&event["node"]["task"]), (word, text(&event["result"]["msg"])))
}
