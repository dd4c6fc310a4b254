//! How much a node costs in the journal. Measures and asserts nothing about time.

use std::{sync::Arc, time::Instant};

use etcdrun::{
    model::Status,
    source::disk::Inputs,
    state::{Bundle, Past, Recorder, RunId, Settled, StateFolder, read_journal},
};

const NODES: usize = 200_000;
/// As many at once as a run has forks.
const FORKS: usize = 50;

#[test]
#[ignore = "a measurement: cargo nextest run --run-ignored only --no-capture -E 'test(journal_takes)'"]
fn the_journal_takes_two_hundred_thousand_nodes() {
    let folder = tempfile::tempdir_in(".").unwrap();
    let state = StateFolder::at(folder.path().join("state"));
    let (id, inputs) = (RunId::new(), Inputs::default());
    let bundle = Bundle::new(Vec::new(), folder.path().to_owned(), serde_json::Value::Null, &inputs);
    let (journal, vault) = state.begin(&id, &bundle, &inputs).unwrap();
    let recorder = Recorder::new(journal, vault, 0, Past::default());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let started = Instant::now();
    runtime.block_on(async {
        let mut lanes = tokio::task::JoinSet::new();
        for lane in 0..FORKS {
            let recorder = recorder.clone();
            lanes.spawn(async move {
                for node in (lane..NODES).step_by(FORKS) {
                    let name: Arc<str> = format!("Site/member-{node}/etcd/Write the configuration").into();
                    recorder.intent(node, &name).await.unwrap();
                    let (status, changed, doubt, seconds) = (Status::Changed, true, false, 0.1);
                    recorder.settled(node, &name, Settled { status, changed, doubt, seconds, left: None });
                }
            });
        }
        lanes.join_all().await;
        recorder.through(etcdrun::model::RunResult::Success).await.unwrap();
    });
    let written = started.elapsed();
    println!("{:.1} µs a node", written.as_secs_f64() * 1e6 / NODES as f64);
    let started = Instant::now();
    let read = read_journal(&state.run(&id).join("journal")).unwrap();
    println!("read back in {:.1} s", started.elapsed().as_secs_f64());
    assert_eq!(read.lines.len(), 2 * NODES + 2);
}
