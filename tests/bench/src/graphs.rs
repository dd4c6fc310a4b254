//! A large fleet: how long it takes to compile, and to walk its graph when nothing is sent anywhere.

use std::{
    fmt::Write as _,
    fs,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, bail, ensure};
use etcdrun::{
    compile::{CompileOptions, compile},
    execute::{Interrupt, Run, RunOptions, run},
    graph::Graph,
    inventory::Inventory,
    model::{Emitter, RunResult},
    playbook::{self, LoadOptions, Place, PlaybookSource},
    remote::Transport,
    source::{Diagnostics, Sources, disk::Inputs},
    ssh::{Connector, Options},
    state::{Bundle, Past, Recorder, RunId, StateFolder},
};
use serde::{Deserialize, Serialize};

use crate::process::resident;

/// Members of a cluster.
const MEMBERS: usize = 5;
pub const TASKS: usize = 40;

/// What a child process found.
#[derive(Debug, Deserialize, Serialize)]
pub struct Figures {
    pub nodes: usize,
    pub seconds: f64,
    /// The most memory that was resident, in MiB.
    pub memory: f64,
}

/// Writes the files of a fleet: as many clusters as hypervisors, of five members each.
pub fn write(folder: &Path, hypervisors: usize) -> Result<()> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join("inventory.yaml"), inventory_text(hypervisors))?;
    fs::write(folder.join("site.yaml"), playbook_text())?;
    Ok(())
}

fn inventory_text(hypervisors: usize) -> String {
    let mut text = String::from("vars: { data: /var/lib/etcd }\nhypervisors:\n");
    for n in 0..hypervisors {
        let _ = writeln!(text, "  hv{n}: {{ address: {}, zone: rack-{} }}", ip(10, n), n % 40);
    }
    text.push_str("clusters:\n");
    for n in 0..hypervisors {
        let _ = writeln!(text, "  c{n}:\n    etcd: {{ version: 3.5.34 }}\n    members:");
        for m in 0..MEMBERS {
            let hypervisor = (n + m) % hypervisors;
            let _ = writeln!(
                text,
                "      c{n}-m{m}: {{ hypervisor: hv{hypervisor}, address: {}, vars: {{ number: {m} }} }}",
                ip(11, n * MEMBERS + m)
            );
        }
    }
    text
}

fn ip(first: usize, n: usize) -> String {
    format!("{first}.{}.{}.{}", n >> 16 & 255, n >> 8 & 255, n & 255)
}

/// Forty tasks a member, of the kinds that set up a member.
fn playbook_text() -> String {
    let mut text = String::from("- name: Site\n  hosts: clusters\n  tasks:\n");
    for n in 0..TASKS {
        let task = match n % 4 {
            0 => format!("command: etcdctl --write-out json endpoint status --cluster-id {{{{ number }}}}-{n}"),
            1 => format!(
                "copy: {{ dest: \"{{{{ data }}}}/conf-{n}\", mode: \"0640\", content: \"name: {{{{ inventory_hostname }}}}\" }}"
            ),
            2 => format!("file: {{ path: \"{{{{ data }}}}/dir-{n}\", state: directory, mode: \"0700\" }}"),
            _ => format!("shell: \"echo {{{{ number + {n} }}}} >/run/etcd-{n}\"\n      when: number < 9"),
        };
        let _ = writeln!(text, "    - name: Step {n}\n      {task}");
    }
    text
}

struct Loaded {
    graph: Graph,
    inventory: Inventory,
    sources: Sources,
}

fn load(folder: &Path) -> Result<Loaded> {
    let (mut sources, mut diagnostics) = (Sources::default(), Diagnostics::default());
    let inventory = etcdrun::etcd::load_inventory(&[folder.join("inventory.yaml")], &mut sources, &mut diagnostics);
    let source = PlaybookSource { place: Place::disk(folder.join("site.yaml")) };
    let playbook = playbook::load(&source, &LoadOptions::new(etcdrun::LIBRARY), &mut sources, &mut diagnostics);
    let graph = compile(&inventory, &playbook, &CompileOptions::default(), &mut sources, &mut diagnostics);
    match graph {
        Some(graph) if !diagnostics.has_errors() => Ok(Loaded { graph, inventory, sources }),
        _ => bail!("{:?}", diagnostics.iter().next()),
    }
}

/// Loads the files and compiles them.
pub fn compiled(folder: &Path) -> Result<Figures> {
    let started = Instant::now();
    let loaded = load(folder)?;
    let seconds = started.elapsed().as_secs_f64();
    Ok(Figures { nodes: loaded.graph.work().count(), seconds, memory: memory() })
}

/// Runs the graph with a transport that says of each task that it went well.
pub fn scheduled(folder: &Path, journaled: bool) -> Result<Figures> {
    let Loaded { graph, inventory, sources } = load(folder)?;
    let nodes = graph.work().count();
    let recorder = if journaled { recorder(folder)? } else { Recorder::none() };
    let (emitter, events) = Emitter::channel();
    let config_file = Some("/dev/null".into());
    let work = Run {
        graph: Arc::new(graph),
        inventory: Arc::new(inventory),
        sources: Arc::new(sources),
        connector: Connector::new(Options { config_file, ..Options::default() })?,
        options: RunOptions { transport: Transport::Nowhere, ..RunOptions::default() },
        emitter,
        interrupt: Interrupt::default(),
        recorder,
        scope: Arc::default(),
    };
    // Somebody hears the events, as in life.
    let reporter = std::thread::spawn(move || events.into_iter().count());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let started = Instant::now();
    // It ends when all of it is on the disk.
    let result = runtime.block_on(run(work));
    let seconds = started.elapsed().as_secs_f64();
    runtime.shutdown_timeout(Duration::from_secs(10));
    ensure!(result == RunResult::Success, "the run ended with {result:?}");
    let events = reporter.join().unwrap_or_default();
    ensure!(events > nodes * 2, "{events} events of {nodes} nodes");
    Ok(Figures { nodes, seconds, memory: memory() })
}

fn recorder(folder: &Path) -> Result<Recorder> {
    let state = StateFolder::at(folder.join("state"));
    let (id, inputs) = (RunId::new(), Inputs::default());
    let bundle = Bundle::new(Vec::new(), folder.to_owned(), serde_json::Value::Null, &inputs);
    let (journal, vault) = state.begin(&id, &bundle, &inputs)?;
    Ok(Recorder::new(journal, vault, 0, Past::default()))
}

fn memory() -> f64 {
    resident("self").unwrap_or_default()
}
