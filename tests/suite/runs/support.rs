//! A playbook of commands that must not run twice, and ways to break it off.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::support::{
    Sshd,
    program::{Folder, Said},
};

/// Hosts that keep what they remember in the folder of the test.
pub struct Bench {
    pub sshd: Sshd,
    pub folder: Folder,
}

impl Bench {
    pub fn new(hosts: usize, playbook: &str) -> Self {
        let folder = Folder::new();
        let home = folder.path("home");
        std::fs::create_dir(&home).unwrap();
        let sshd = Sshd::builder().env("HOME", &home.display().to_string()).start();
        folder.write("inventory.yaml", &sshd.inventory(hosts));
        let bench = Self { sshd, folder };
        bench.playbook(playbook);
        bench
    }

    /// The same, and the folder in which hosts keep what they need for a moment.
    pub fn with_own_tmp(hosts: usize, playbook: &str) -> (Self, PathBuf) {
        let folder = Folder::new();
        let (home, tmp) = (folder.path("home"), folder.path("tmp"));
        [&home, &tmp].into_iter().for_each(|path| std::fs::create_dir(path).unwrap());
        let sshd = Sshd::builder().env("HOME", home.to_str().unwrap()).env("TMPDIR", tmp.to_str().unwrap()).start();
        folder.write("inventory.yaml", &sshd.inventory(hosts));
        let bench = Self { sshd, folder };
        bench.playbook(playbook);
        (bench, tmp)
    }

    /// `DIR` stands for the folder that tasks work in.
    pub fn playbook(&self, text: &str) {
        self.folder.write("site.yaml", &text.replace("DIR", &self.folder.path("work").display().to_string()));
    }

    pub fn run(&self) -> Said {
        self.folder.run(&["playbook", "site.yaml"])
    }

    pub fn resume(&self) -> Said {
        self.folder.run(&["resume"])
    }

    /// The program with a crash in it: `PLACE:RECORD`.
    pub fn dying(&self, args: &[&str], point: &str) -> Said {
        Said::of(self.folder.command(args).env("ETCDRUN_TEST_DIE", point).output().unwrap())
    }

    /// Dies at each record, and goes on, until it is there.
    pub fn killed_until(&self, words: &[&str], is_there: impl Fn(&Self) -> bool) {
        let mut words = words.to_vec();
        for _ in 0..200 {
            let records = if words[0] == "resume" { self.records() } else { 0 };
            // The first record of a process that resumes only says so.
            self.dying(&words, &format!("after:{}", records + 2)).ends(-1);
            if is_there(self) {
                return;
            }
            words = vec!["resume"];
        }
        panic!("it never is");
    }

    pub fn run_folder(&self) -> PathBuf {
        self.folder.last_run()
    }

    pub fn run_id(&self) -> String {
        self.run_folder().file_name().unwrap().to_string_lossy().into_owned()
    }

    pub fn journal(&self) -> PathBuf {
        self.run_folder().join("journal")
    }

    pub fn events(&self) -> String {
        std::fs::read_to_string(self.run_folder().join("events")).unwrap()
    }

    /// How many whole records the journal has.
    pub fn records(&self) -> usize {
        self.folder.records()
    }

    /// All files that tasks made, with what is in them.
    pub fn work(&self) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        let mut folders = vec![self.folder.path("work")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let name = path.strip_prefix(self.folder.path("work")).unwrap().display().to_string();
                    found.insert(name, std::fs::read_to_string(path).unwrap());
                }
            }
        }
        found
    }

    /// What the hosts still remember.
    pub fn ledgers(&self) -> usize {
        std::fs::read_dir(self.folder.path("home/.etcdrun/runs")).map_or(0, Iterator::count)
    }

    pub fn runs(&self) -> Vec<Value> {
        serde_json::from_str(&self.folder.run(&["runs", "--json"]).ends(0).stdout).unwrap()
    }

    /// The state of each node of the last run.
    pub fn nodes(&self) -> BTreeMap<String, String> {
        let shown = self.folder.run(&["runs", "show", &self.run_id(), "--json"]).ends(0).stdout;
        let shown: Value = serde_json::from_str(&shown).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        shown["nodes"].as_array().unwrap().iter().map(|node| (text(&node["id"]), text(&node["state"]))).collect()
    }
}

/// A file system of its own, which is soon full. Needs root.
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    pub fn mount(at: PathBuf, size: &str) -> Self {
        std::fs::create_dir_all(&at).unwrap();
        let options = format!("size={size},mode=700");
        crate::support::run("mount", &["-t", "tmpfs", "-o", &options, "tmpfs", at.to_str().unwrap()]);
        Self(at)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}
