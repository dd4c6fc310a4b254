//! The example in inventory/platform, as `make demo-postgres` plays it: etcd, PostgreSQL, load balancers and monitoring by one command, and
//! a primary that loses its power.

use std::process::{Command, Output};

struct Demo;

impl Demo {
    fn play(words: &[&str]) -> Output {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo-postgres.sh");
        Command::new(script)
            .args(words)
            .env("ETCDRUN_DEMO_LAB", "etcdrun-demo-t")
            .env_remove("ETCDRUN_INVENTORY")
            .output()
            .unwrap()
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        Self::play(&["down"]);
    }
}

#[test]
fn one_command_deploys_all_of_the_example() {
    let demo = Demo;
    let output = Demo::play(&[]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    let (_, again) = said.split_once("== Run it again").unwrap();
    let (again, after) = again.split_once("\n== ").unwrap();
    assert!(!again.lines().any(|line| line.starts_with("changed ")), "{again}");
    assert!(after.contains("s; rows: 2\n"), "{after}");
    for up in ["{\"job\":\"etcd\"},\"value\":[", "{\"job\":\"node\"},\"value\":["] {
        assert!(after.contains(up), "{after}");
    }
    drop(demo);
}
