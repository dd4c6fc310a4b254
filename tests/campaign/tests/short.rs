//! A short campaign with seeds that stay, for every run of the tests.
#![allow(clippy::unwrap_used, reason = "a test")]

mod lab {
    use std::{path::Path, process::Command};

    fn lives(seed: u64, steps: usize) {
        let campaign = Path::new(env!("CARGO_BIN_EXE_campaign"));
        let results = tempfile::tempdir().unwrap();
        let output = Command::new(campaign)
            .arg("--program")
            .arg(campaign.with_file_name("etcdrun"))
            .arg("--results")
            .arg(results.path())
            .args(["--seed", &seed.to_string(), "--lives", "1", "--steps", &steps.to_string()])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        println!("{said}");
        if !output.status.success() {
            // What it saw is worth more than the room that it takes.
            println!("the evidence is in {}", results.keep().display());
            panic!("a campaign with the seed {seed} found a violation");
        }
    }

    #[test]
    fn a_life_with_faults_keeps_all_promises() {
        lives(2, 4);
    }
}
