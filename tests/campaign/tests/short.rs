//! A short campaign with seeds that stay, for every run of the tests.
#![allow(clippy::unwrap_used, reason = "a test")]

mod lab {
    use std::{path::Path, process::Command};

    fn keeps_all_promises(words: &[&str]) {
        let campaign = Path::new(env!("CARGO_BIN_EXE_campaign"));
        let results = tempfile::tempdir().unwrap();
        let output = Command::new(campaign)
            .arg("--program")
            .arg(campaign.with_file_name("etcdrun"))
            .arg("--results")
            .arg(results.path())
            .args(words)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        println!("{said}");
        if !output.status.success() {
            // What it saw is worth more than the room that it takes.
            println!("the evidence is in {}", results.keep().display());
            panic!("`campaign {}` found a violation", words.join(" "));
        }
    }

    #[test]
    fn a_life_with_faults_keeps_all_promises() {
        keeps_all_promises(&["--seed", "2", "--lives", "1", "--steps", "4"]);
    }

    #[test]
    fn a_whole_life_of_the_matrix_keeps_all_promises() {
        keeps_all_promises(&["--matrix", "--rows", "13"]);
    }

    #[test]
    fn another_whole_life_of_the_matrix_keeps_all_promises() {
        keeps_all_promises(&["--matrix", "--rows", "10"]);
    }
}
