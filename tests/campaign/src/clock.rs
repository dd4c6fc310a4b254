//! The clock of the operator's machine. Namespaces cannot shift it, so the program is started with libfaketime.

use std::{fs, path::PathBuf};

use crate::fault::Fault;

/// The clock of a command with this fault, in seconds; nothing if its clock is right. What was issued before it was set back is valid from
/// an hour before that on, as certificates of etcdrun are; what is issued while it is ahead is valid only later.
pub fn shift(fault: Fault) -> Option<i64> {
    match fault {
        Fault::ClockBack => Some(-3600),
        Fault::ClockAhead => Some(7200),
        _ => None,
    }
}

/// The environment of a command whose clock is wrong; nothing without the package faketime.
pub fn shifted(seconds: i64) -> Option<[(&'static str, String); 5]> {
    let library = library()?.display().to_string();
    Some([
        ("LD_PRELOAD", library),
        ("FAKETIME", format!("{seconds:+}")),
        // A clock that is set back leaves the one that only counts as it is, and the times of files.
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ("NO_FAKE_STAT", "1".to_owned()),
        // What it would share with others stays in /dev/shm if it is killed.
        ("FAKETIME_DISABLE_SHM", "1".to_owned()),
    ])
}

/// The one for programs with threads, in the folder of this machine's architecture.
fn library() -> Option<PathBuf> {
    let folders = fs::read_dir("/usr/lib").ok()?.flatten().map(|entry| entry.path());
    folders.map(|folder| folder.join("faketime/libfaketimeMT.so.1")).find(|path| path.exists())
}
