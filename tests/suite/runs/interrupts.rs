//! Ctrl-C while a task waits: it ends at once, is no failure, and waits again when the run goes on.

use std::time::Instant;

use rustix::process::Signal;

use super::{
    locks::{ends, start, wait_for},
    support::Bench,
};
use crate::support::signal;

const PLAY: &str = r#"
- name: Wait
  hosts: h1
  tasks:
    - { name: Here, file: { path: DIR/here, state: directory } }
    - name: Guarded
      block:
        - { name: Wait, wait_for: { path: DIR/go, timeout: 300 }, ignore_errors: IGNORE }
      rescue:
        - { name: Rescue, command: touch DIR/rescued }
    - { name: Last, command: touch DIR/last }
"#;

#[test]
fn what_waits_is_ended_and_neither_failed_nor_rescued() {
    for ignore in ["false", "true"] {
        let bench = Bench::new(1, &PLAY.replace("IGNORE", ignore));
        let running = start(&bench, &[]);
        wait_for(&bench, "work/here");
        let begun = Instant::now();
        signal(running.id().cast_signed(), Signal::INT);
        ends(running, 130);
        assert!(begun.elapsed().as_secs() < 60, "{:?}", begun.elapsed());
        assert_eq!(bench.work().len(), 0);
        bench.folder.write("work/go", "");
        bench.resume().ends(0);
        assert_eq!(bench.work().into_keys().collect::<Vec<_>>(), ["go", "last"]);
    }
}
