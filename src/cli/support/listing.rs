//! `--list-hosts`, `--list-tasks`, `--list-tags`: what a run would be about, in Ansible's form.

use std::{collections::BTreeSet, fmt::Write};

use serde_json::{Value, json};

use crate::{
    graph::{Graph, PlayIndex},
    playbook::Task,
};

/// Which lists were asked for.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    pub hosts: bool,
    pub tasks: bool,
    pub tags: bool,
}

impl Parts {
    pub fn any(self) -> bool {
        self.hosts || self.tasks || self.tags
    }
}

/// One play, as far as it is listed.
struct Listed<'a> {
    name: &'a str,
    hosts: Vec<&'a str>,
    tasks: Vec<&'a Task>,
    tags: BTreeSet<&'a str>,
}

pub fn render(graphs: &[Graph], parts: Parts, as_json: bool) -> String {
    if as_json {
        let books: Vec<Value> = graphs.iter().map(|graph| playbook_as_json(graph, parts)).collect();
        return format!("{:#}\n", Value::from(books));
    }
    let mut text = String::new();
    for graph in graphs {
        let _ = writeln!(text, "\nplaybook: {}", graph.playbook);
        for (number, play) in plays(graph).iter().enumerate() {
            render_play(&mut text, number + 1, play, parts);
        }
    }
    text
}

fn render_play(text: &mut String, number: usize, play: &Listed<'_>, parts: Parts) {
    let _ = writeln!(text, "\n  play #{number}: {}", play.name);
    if parts.hosts {
        let _ = writeln!(text, "    hosts ({}):", play.hosts.len());
        play.hosts.iter().for_each(|host| text.extend(["      ", host, "\n"]));
    }
    if parts.tasks {
        let _ = writeln!(text, "    tasks:");
        for task in &play.tasks {
            let _ = writeln!(text, "      {}  TAGS: [{}]", title(task), task.tags.join(", "));
        }
    }
    if parts.tags {
        let tags: Vec<&str> = play.tags.iter().copied().collect();
        let _ = writeln!(text, "    tags: [{}]", tags.join(", "));
    }
}

fn playbook_as_json(graph: &Graph, parts: Parts) -> Value {
    let play = |play: &Listed<'_>| {
        let task = |task: &&Task| json!({ "name": title(task), "tags": task.tags });
        json!({
            "name": play.name,
            "hosts": parts.hosts.then_some(&play.hosts),
            "tasks": parts.tasks.then(|| play.tasks.iter().map(task).collect::<Vec<_>>()),
            "tags": parts.tags.then_some(&play.tags),
        })
    };
    json!({ "playbook": graph.playbook, "plays": plays(graph).iter().map(play).collect::<Vec<_>>() })
}

fn plays(graph: &Graph) -> Vec<Listed<'_>> {
    let listed = |index: usize| {
        let play = &graph.plays[index];
        let hosts = play.hosts.iter().map(|host| graph.host(*host).as_str()).collect();
        let tasks: Vec<&Task> = tasks_of(graph, PlayIndex(u32::try_from(index).unwrap_or(u32::MAX)));
        let tags = tasks.iter().flat_map(|task| task.tags.iter().map(|tag| &**tag)).collect();
        Listed { name: &play.name, hosts, tasks, tags }
    };
    (0..graph.plays.len()).map(listed).collect()
}

/// The tasks of a play, each once, in the order they were written.
fn tasks_of(graph: &Graph, play: PlayIndex) -> Vec<&Task> {
    let nodes = graph.work().map(|index| graph.node(index)).filter(|node| node.play == play);
    let tasks: BTreeSet<_> = nodes.filter_map(|node| node.task).collect();
    tasks.into_iter().map(|task| &*graph.task(task).task).collect()
}

fn title(task: &Task) -> String {
    match &task.role {
        Some(role) => format!("{} : {}", role.name, task.name),
        None => task.name.clone(),
    }
}
