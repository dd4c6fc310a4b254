//! What is kept of a run, who may read it, and what happens when it cannot be kept.

use std::{os::unix::fs::PermissionsExt as _, path::Path};

use super::support::{Bench, SmallDisk};

const TWO: &str = r#"
- name: Two
  hosts: all
  tasks:
    - { name: Home, file: { path: DIR, state: directory } }
    - { name: Count, shell: "echo x >>DIR/count; echo hunter2", register: counted }
"#;

#[test]
fn a_run_is_listed_and_shown() {
    let bench = Bench::new(1, TWO);
    bench.run().ends(0);
    let said = bench.folder.run(&["runs"]).ends(0).stdout;
    assert!(said.contains("done") && said.contains("2/2") && said.contains("playbook site.yaml"), "{said}");
    let prefix = &bench.run_id()[..12];
    let said = bench.folder.run(&["runs", "show", prefix]).ends(0).stdout;
    assert!(said.contains("changed      Two/h1/Count"), "{said}");
    assert!(bench.folder.run(&["runs", "show", "2001"]).ends(5).stderr.contains("there is no run `2001`"));
    let said = bench.folder.run(&["resume", prefix]).ends(5);
    assert!(said.stderr.contains("it succeeded"), "{}", said.stderr);
    bench.folder.run(&["playbook", "site.yaml", "--check"]).ends(0);
    assert_eq!(bench.runs().len(), 1, "a look leaves nothing behind");
}

#[test]
fn only_the_owner_may_read_it_and_results_are_encrypted() {
    let bench = Bench::new(1, TWO);
    bench.run().ends(0);
    let mut folders = vec![bench.folder.path(".etcdrun")];
    while let Some(folder) = folders.pop() {
        assert_eq!(mode(&folder), 0o700, "{}", folder.display());
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                assert_eq!(mode(&path), 0o600, "{}", path.display());
            }
        }
    }
    let journal = std::fs::read_to_string(bench.journal()).unwrap();
    assert!(journal.contains("\"left\"") && !journal.contains("hunter2"), "{journal}");
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_run_goes_on_from_what_it_was_loaded_from() {
    let bench = Bench::new(1, TWO);
    assert_eq!(bench.dying(&["playbook", "site.yaml", "-e", "x=1"], "after:3").code, -1);
    bench.playbook("- name: Other\n  hosts: all\n  tasks:\n    - { name: Other, command: 'false' }\n");
    let said = bench.resume().ends(0);
    assert!(said.stderr.contains("changed since the run started: site.yaml"), "{}", said.stderr);
    assert_eq!(bench.folder.read("work/count"), "x\n");
}

#[test]
fn a_damaged_journal_is_refused_and_says_how_much_is_whole() {
    let bench = Bench::new(1, TWO);
    assert_eq!(bench.dying(&["playbook", "site.yaml"], "after:5").code, -1);
    let whole = std::fs::read(bench.journal()).unwrap();
    let lines: Vec<_> = whole.split_inclusive(|byte| *byte == b'\n').collect();
    let mut flipped = whole.clone();
    flipped[lines[0].len() + 20] ^= 1;
    let missing = [lines[0], lines[2], lines[3]].concat();
    let twice = [lines[0], lines[0], lines[1]].concat();
    for (damaged, line) in [(flipped, 2), (missing, 2), (twice, 2), (b"nonsense\n".to_vec(), 1)] {
        std::fs::write(bench.journal(), &damaged).unwrap();
        let said = bench.folder.run(&["resume", &bench.run_id()]).ends(1);
        assert!(said.stderr.contains(&format!("line {line} is damaged")), "{}", said.stderr);
        assert!(said.stderr.contains(&format!("lines 1 to {} of", line - 1)), "{}", said.stderr);
        assert_eq!(std::fs::read(bench.journal()).unwrap(), damaged, "it is left as it is");
    }
    let torn = [whole.as_slice(), b"{\"seq\":6,\"at\""].concat();
    std::fs::write(bench.journal(), torn).unwrap();
    let said = bench.resume().ends(0);
    assert!(said.stderr.contains("a crash has truncated the last line"), "{}", said.stderr);
    assert_eq!(bench.folder.read("work/count"), "x\n");
}

#[test]
fn one_process_at_a_time_goes_on_with_a_run() {
    let bench = Bench::new(1, TWO);
    assert_eq!(bench.dying(&["playbook", "site.yaml"], "after:4").code, -1);
    let journal = std::fs::File::open(bench.journal()).unwrap();
    rustix::fs::flock(&journal, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let said = bench.folder.run(&["resume", &bench.run_id()]).ends(6);
    assert!(said.stderr.contains("is active"), "{}", said.stderr);
    assert_eq!(bench.runs()[0]["state"], "running");
    drop(journal);
    bench.resume().ends(0);
}

#[test]
fn old_runs_go_and_unfinished_ones_stay() {
    let bench = Bench::new(1, TWO);
    assert_eq!(bench.dying(&["playbook", "site.yaml"], "after:4").code, -1);
    bench.folder.run(&["unlock", &bench.run_id()]).ends(0);
    for _ in 0..3 {
        bench.run().ends(0);
    }
    let told = bench.folder.run(&["runs", "prune", "--keep", "1", "--check"]).ends(0).stdout;
    assert!(told.ends_with("2 would be deleted\n") && bench.runs().len() == 4, "{told}");
    bench.folder.run(&["runs", "prune", "--keep", "1"]).ends(0);
    let states: Vec<_> = bench.runs().iter().map(|run| run["state"].as_str().unwrap().to_owned()).collect();
    assert_eq!(states, ["done", "crashed"]);
    assert!(std::fs::read_dir(bench.folder.path(".etcdrun/objects")).unwrap().count() >= 2);
    bench.folder.run(&["resume"]).ends(0);
    bench.folder.run(&["runs", "prune", "--keep", "0"]).ends(0);
    assert_eq!(bench.runs().len(), 0);
    assert_eq!(std::fs::read_dir(bench.folder.path(".etcdrun/objects")).unwrap().count(), 0);
}

#[test]
fn a_full_disk_stops_the_run_before_anything_is_sent_that_is_not_on_record() {
    let bench = Bench::new(1, "- hosts: all\n  tasks: []\n");
    let disk = SmallDisk::mount(bench.folder.path("small"), "256k");
    let mut play =
        "- name: Many\n  hosts: all\n  tasks:\n    - { name: Home, file: { path: DIR, state: directory } }\n"
            .to_owned();
    for number in 0..60 {
        // What is registered takes room; each needs the one before, so that they do not go out together.
        let before = if number == 0 { "0".to_owned() } else { format!("{{{{ r{}.rc }}}}", number - 1) };
        let command = format!("echo {number} >>DIR/count; head -c 9000 /dev/zero | tr '\\\\0' x; exit {before}");
        play += &format!("    - {{ name: Task {number}, shell: \"{command}\", register: r{number} }}\n");
    }
    bench.playbook(&play);
    let said = bench.folder.run(&["playbook", "site.yaml", "--state-dir", "small"]).ends(1);
    assert!(said.stderr.contains("No space left on device"), "{}", said.stderr);
    assert!(said.stderr.contains("free some space"), "{}", said.stderr);
    let counted = bench.folder.read("work/count").lines().count();
    assert!((1..60).contains(&counted), "{counted}");
    // With room again, it goes on, and nothing has run twice.
    let disk_path = disk.path().to_str().unwrap();
    crate::support::run("mount", &["-o", "remount,size=8m", disk_path]);
    bench.folder.run(&["resume", "--state-dir", "small"]).ends(0);
    let counted: Vec<_> = bench.folder.read("work/count").lines().map(str::to_owned).collect();
    assert_eq!(counted, (0..60).map(|number| number.to_string()).collect::<Vec<_>>());
}

#[test]
fn a_folder_that_cannot_be_written_has_a_way_out() {
    let bench = Bench::new(1, TWO);
    bench.folder.write("blocked", "");
    let said = bench.folder.run(&["playbook", "site.yaml", "--state-dir", "blocked/state"]).ends(1);
    assert!(said.stderr.contains("blocked/state") && said.stderr.contains("--state-dir"), "{}", said.stderr);
    assert!(!bench.folder.path("work/count").exists());
}
