//! An executable inventory: run with `--list`, it prints Ansible's JSON.

use std::{
    io::{self, Read},
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, ExitStatus, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use super::range::MAX_HOSTS;
use crate::{
    model::{FileId, ValueMap},
    source::{Diagnostic, MAX_FILE_BYTES, Sources, disk},
};

/// For everything the program is asked, together.
const TIME_LIMIT: Duration = Duration::from_secs(30);
const MAX_STDERR_BYTES: usize = 64 << 10;

/// Runs the program and keeps its output like the text of a file.
pub(super) fn run(path: &Path, sources: &mut Sources) -> Result<FileId, Diagnostic> {
    let text = disk::printed(path, || {
        let program = Program { path, deadline: Instant::now() + TIME_LIMIT };
        let list = program.ask(&["--list"])?;
        Ok::<_, Diagnostic>(match program.with_host_variables(&list)? {
            Some(complete) => serde_json::to_string_pretty(&complete).unwrap_or(list),
            None => list,
        })
    })?;
    Ok(sources.add(format!("{} --list", path.display()), text))
}

struct Program<'p> {
    path: &'p Path,
    deadline: Instant,
}

impl Program<'_> {
    /// Programs that do not print `_meta` are asked for each host. `None` if nothing needs adding.
    fn with_host_variables(&self, list: &str) -> Result<Option<Value>, Diagnostic> {
        let Ok(Value::Object(mut groups)) = serde_json::from_str::<Value>(list) else { return Ok(None) };
        if groups.contains_key("_meta") {
            return Ok(None);
        }
        let mut variables = ValueMap::new();
        for host in host_names(&groups) {
            let answer = self.ask(&["--host", &host])?;
            let vars = serde_json::from_str(if answer.trim().is_empty() { "{}" } else { &answer })
                .map_err(|error| self.problem(format!("printed no JSON for `--host {host}`: {error}"), ""))?;
            variables.insert(host, vars);
        }
        groups.insert("_meta".into(), serde_json::json!({ "hostvars": variables }));
        Ok(Some(Value::Object(groups)))
    }

    /// Runs the program once; returns what it printed.
    fn ask(&self, arguments: &[&str]) -> Result<String, Diagnostic> {
        // A bare name would be looked up in PATH instead of the current folder.
        let file = if self.path.is_absolute() { self.path.to_owned() } else { Path::new(".").join(self.path) };
        let mut child = Command::new(file)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|error| self.not_started(&error))?;
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let (sender, parts) = mpsc::channel();
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (out, err) = (sender.clone(), sender.clone());
        thread::spawn(move || out.send(Part::Stdout(read_up_to(stdout, MAX_FILE_BYTES + 1))));
        thread::spawn(move || err.send(Part::Stderr(read_up_to(stderr, MAX_STDERR_BYTES))));
        thread::spawn(move || sender.send(Part::Status(child.wait())));

        let end = self.gather(&parts);
        // Whatever it left running would hold on to our pipes, so the whole group goes.
        if let (true, Some(group)) = (end.is_err(), group) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let output = end.map_err(|stop| self.stopped(stop, arguments))?;
        self.accept(output, arguments)
    }

    fn not_started(&self, error: &io::Error) -> Diagnostic {
        let problem = self.problem(format!("cannot be run: {error}"), "");
        // The file itself was just looked at, so what is missing is the program that its `#!` line names.
        let missing = error.kind() == io::ErrorKind::NotFound;
        problem.maybe_help(missing.then(|| "check that the interpreter in its first line is installed".to_owned()))
    }

    fn gather(&self, parts: &mpsc::Receiver<Part>) -> Result<Output, Stop> {
        let mut output = Output::default();
        while !output.is_complete() {
            let left = self.deadline.saturating_duration_since(Instant::now());
            match parts.recv_timeout(left) {
                Ok(Part::Stdout(bytes)) if bytes.len() > MAX_FILE_BYTES => return Err(Stop::TooMuch),
                Ok(Part::Stdout(bytes)) => output.stdout = Some(bytes),
                Ok(Part::Stderr(bytes)) => output.stderr = Some(bytes),
                Ok(Part::Status(status)) => output.status = Some(status),
                Err(RecvTimeoutError::Timeout) => return Err(Stop::TooLate),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        Ok(output)
    }

    fn accept(&self, output: Output, arguments: &[&str]) -> Result<String, Diagnostic> {
        let stderr = String::from_utf8_lossy(output.stderr.as_deref().unwrap_or_default()).trim().to_owned();
        match output.status {
            Some(Ok(status)) if status.success() => {}
            Some(Ok(status)) => {
                return Err(self.problem(format!("`{}` ended with {status}", arguments.join(" ")), &stderr));
            }
            Some(Err(error)) => return Err(self.problem(format!("cannot be awaited: {error}"), &stderr)),
            None => return Err(self.problem("ended without a status".into(), &stderr)),
        }
        String::from_utf8(output.stdout.unwrap_or_default())
            .map_err(|_| self.problem("printed something that is not text".into(), &stderr))
    }

    fn stopped(&self, stop: Stop, arguments: &[&str]) -> Diagnostic {
        let arguments = arguments.join(" ");
        let message = match stop {
            Stop::TooLate => {
                format!("`{arguments}` took longer than {} seconds, so it was ended", TIME_LIMIT.as_secs())
            }
            Stop::TooMuch => format!("`{arguments}` printed more than {} MiB, so it was ended", MAX_FILE_BYTES >> 20),
        };
        self.problem(message, "")
    }

    fn problem(&self, message: String, stderr: &str) -> Diagnostic {
        let problem = Diagnostic::error(None, format!("{}: {message}", self.path.display()));
        if stderr.is_empty() { problem } else { problem.help(format!("it printed:\n{stderr}")) }
    }
}

enum Part {
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
    Status(io::Result<ExitStatus>),
}

enum Stop {
    TooLate,
    TooMuch,
}

#[derive(Default)]
struct Output {
    stdout: Option<Vec<u8>>,
    stderr: Option<Vec<u8>>,
    status: Option<io::Result<ExitStatus>>,
}

impl Output {
    fn is_complete(&self) -> bool {
        self.stdout.is_some() && self.stderr.is_some() && self.status.is_some()
    }
}

/// What can be read, up to a limit. The rest is thrown away so that the writer is not held up.
fn read_up_to(pipe: Option<impl Read>, limit: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let Some(mut pipe) = pipe else { return bytes };
    let limit = u64::try_from(limit).unwrap_or(u64::MAX);
    let full = pipe.by_ref().take(limit).read_to_end(&mut bytes).is_ok_and(|read| read as u64 == limit);
    if full && limit < MAX_FILE_BYTES as u64 {
        let _ = io::copy(&mut pipe, &mut io::sink());
    }
    bytes
}

/// The hosts of all groups, each once.
fn host_names(groups: &ValueMap) -> indexmap::IndexSet<String> {
    let hosts = groups.values().filter_map(|group| match group {
        Value::Array(hosts) => Some(hosts),
        Value::Object(fields) => fields.get("hosts").and_then(Value::as_array),
        _ => None,
    });
    hosts.flatten().filter_map(Value::as_str).take(MAX_HOSTS).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use rustix::process::test_kill_process;

    use super::*;

    #[test]
    fn a_program_that_hangs_is_ended_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let (path, pids) = (folder.path().join("hangs"), folder.path().join("pids"));
        let script = format!("#!/bin/sh\nsleep 600 &\necho $$ $! > {}\nexec >&-\nwait\n", pids.display());
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let program = Program { path: &path, deadline: Instant::now() + Duration::from_secs(2) };

        let problem = program.ask(&["--list"]).unwrap_err();
        assert!(problem.message.contains("took longer"), "{}", problem.message);
        for pid in fs::read_to_string(&pids).unwrap().split_whitespace() {
            let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
            let deadline = Instant::now() + Duration::from_secs(10);
            while is_running(pid) {
                assert!(Instant::now() < deadline, "{pid:?} still runs");
                thread::yield_now();
            }
        }
    }

    /// A process that ended but was not waited for yet runs no more.
    fn is_running(pid: Pid) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
        test_kill_process(pid).is_ok() && !stat.contains(") Z ")
    }
}
