//! The runner in the shells that hosts have: dash, bash and busybox.
use std::{
    process::Command,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use etcdrun::{
    model::{Diff, Outcome},
    remote::{Link, LinkOptions, OnFailure, Payload, RemoteError, Segment, Session, Step, StepSink, Surroundings},
};
use tokio_util::sync::CancellationToken;

const SHELLS: [&[&str]; 3] = [&["dash"], &["bash"], &["busybox", "sh"]];

fn session(shell: &[&str]) -> Session {
    Link::local(shell, LinkOptions::default()).session(Surroundings::default())
}

fn step(body: &'static str) -> Step {
    Step::plain(Payload::new(body))
}

/// Keeps what it hears.
#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl StepSink for Heard {
    fn started(&self, step: usize) {
        self.0.lock().unwrap().push(format!("started {step}"));
    }
    fn output(&self, step: usize, error: bool, text: &[u8]) {
        // How output is cut into pieces means nothing.
        let stream = format!("{} {step} ", if error { "err" } else { "out" });
        let text = String::from_utf8_lossy(text);
        let mut heard = self.0.lock().unwrap();
        match heard.iter_mut().rev().take(2).find(|line| line.starts_with(&stream)) {
            Some(line) => line.push_str(&text),
            None => heard.push(stream + &text),
        }
    }
    fn finished(&self, step: usize, outcome: &Outcome) {
        self.0.lock().unwrap().push(format!("finished {step} {:?}", outcome.status()));
    }
}

async fn run(shell: &[&str], steps: Vec<Step>) -> Result<Vec<Outcome>, RemoteError> {
    session(shell).run(Segment { steps }, &Heard::default()).await
}

async fn run_one(shell: &[&str], payload: Payload) -> Outcome {
    session(shell).run_one(payload, false).await.unwrap()
}

#[tokio::test]
async fn every_byte_survives_as_value_argument_and_environment() {
    let bytes: Vec<u8> = (1..=255).collect();
    let reversed: Vec<u8> = bytes.iter().rev().copied().collect();
    let text: String = (1u8..=126).map(char::from).chain("äöü\u{1F980}\n\n".chars()).collect();
    let body = r#"
        printf '%s' "$arg_bytes" | od -An -v -tx1 | tr -d ' \n'; echo
        printf '%s' "$1" | od -An -v -tx1 | tr -d ' \n'; echo
        echo "$# [$2]"
        printf '%s' "$3"
        env | sed -n 's/^LC_//p' >&2
        printf '%s' "$TEXT" | od -An -v -tx1 | tr -d ' \n' >&2"#;
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    for shell in SHELLS {
        let quotes = "'\"'\n`$(echo no)`\\ $arg_bytes !";
        let payload = Payload::new(body).value("bytes", &bytes).arg(&reversed).arg("").arg(quotes).capture();
        let session = Link::local(shell, LinkOptions::default()).session(Surroundings {
            environment: Arc::new(vec![("TEXT".into(), text.clone())]),
            ..Surroundings::default()
        });
        let outcome = session.run_one(payload, false).await.unwrap();
        let expected = format!("{}\n{}\n3 []\n{quotes}", hex(&bytes), hex(&reversed));
        assert_eq!(outcome.stdout, expected, "{shell:?}");
        assert_eq!(outcome.stderr, format!("ALL=C\n{}", hex(text.as_bytes())), "{shell:?}");
        assert_eq!(outcome.rc, Some(0));
    }
}

#[tokio::test]
async fn a_nul_byte_is_refused_before_anything_is_sent() {
    let error = session(&["sh"]).run_one(Payload::new(":").value("content", b"a\0b"), false).await.unwrap_err();
    assert_eq!(error.to_string(), "`content` contains a NUL byte, which a shell cannot hold");
}

#[tokio::test]
async fn steps_report_by_themselves_and_nothing_runs_after_a_failure() {
    for shell in SHELLS {
        let heard = Heard::default();
        let steps = vec![
            step("echo one; changed; result color blue; result_int many 7; result_bool yes 1; result_json list '[1]'"),
            step("echo two >&2; note all is well"),
            step("echo three; echo wrong >&2; fail it is broken"),
            step("echo four; changed"),
        ];
        let outcomes = session(shell).run(Segment { steps }, &heard).await.unwrap();
        assert_eq!(outcomes.len(), 3, "{shell:?}");
        assert!(outcomes[0].changed && !outcomes[0].failed);
        assert_eq!(
            serde_json::to_string(&outcomes[0].data).unwrap(),
            r#"{"color":"blue","many":7,"yes":true,"list":[1]}"#
        );
        assert_eq!((outcomes[0].stdout.as_str(), outcomes[0].rc), ("", None));
        assert_eq!((outcomes[1].msg.as_str(), outcomes[1].changed), ("all is well", false));
        let failed = &outcomes[2];
        assert_eq!((failed.failed, failed.msg.as_str(), failed.rc), (true, "it is broken", Some(1)));
        assert_eq!((failed.stdout.as_str(), failed.stderr.as_str()), ("three", "wrong"));
        let heard = heard.0.into_inner().unwrap();
        let expected = [
            "started 0",
            "out 0 one\n",
            "finished 0 Changed",
            "started 1",
            "err 1 two\n",
            "finished 1 Ok",
            "started 2",
            "finished 2 Failed",
        ];
        assert_eq!(
            heard.iter().filter(|line| !line.contains(" 2 three") && !line.contains(" 2 wrong")).collect::<Vec<_>>(),
            expected
        );
        assert_eq!(heard.len(), expected.len() + 2);
    }
}

#[tokio::test]
async fn a_step_says_what_its_failure_stops() {
    use OnFailure::{GoOn, Stop, StopLater};
    let failing = |on_failure| Step { on_failure, ..step("exit 3") };
    let fine = |on_failure| Step { on_failure, ..step(":") };
    let cases = [
        (vec![failing(GoOn), fine(Stop), fine(Stop)], 3),
        (vec![failing(Stop), fine(Stop)], 1),
        (vec![failing(StopLater), fine(StopLater), failing(StopLater), fine(Stop), fine(Stop)], 4),
        (vec![fine(StopLater), fine(Stop), fine(Stop)], 3),
    ];
    for shell in SHELLS {
        for (steps, ran) in &cases {
            assert_eq!(run(shell, steps.clone()).await.unwrap().len(), *ran, "{shell:?}");
        }
    }
}

/// Asks for a stop when the first step starts.
#[derive(Default)]
struct Stopping(CancellationToken, Mutex<Vec<Outcome>>);

impl StepSink for Stopping {
    fn started(&self, _: usize) {
        self.0.cancel();
    }
    fn output(&self, _: usize, _: bool, _: &[u8]) {}
    fn finished(&self, _: usize, outcome: &Outcome) {
        self.1.lock().unwrap().push(outcome.clone());
    }
}

#[tokio::test]
async fn a_runner_that_is_told_to_stop_ends_its_step_and_starts_no_other() {
    for shell in SHELLS {
        let waiting = step("while [ ! -e \"$_stop\" ]; do sleep 0.05; done; result file \"$_stop\"");
        let segment = Segment { steps: vec![waiting, step("changed")] };
        let sink = Stopping::default();
        session(shell).run_until(&segment, &sink, &sink.0).await.unwrap();
        let outcomes = sink.1.into_inner().unwrap();
        assert_eq!(outcomes.len(), 1, "{shell:?}");
        let file = outcomes[0].data["file"].as_str().unwrap();
        assert!(!std::path::Path::new(file).exists(), "{shell:?}: {file} is left");
    }
}

#[tokio::test]
async fn a_body_ends_as_it_likes_without_harm_to_others() {
    let cases = [
        ("exit 0; echo never", 0, ""),
        ("echo last words >&2; exit 3", 3, "last words"),
        ("echo \"$no_such_name\"", -1, ""),
        ("kill -9 \"$(sh -c 'echo $PPID')\"; echo x", -1, ""),
        ("exec sh -c 'echo gone >&2; exit 4'", 4, "gone"),
        ("trap 'echo bye >&2' EXIT; set -e; false; echo never", 1, "bye"),
        ("cd / && set -- a b; PATH=/nowhere; exec 1>&- 3>&-; exit 5", 5, "exit code 5"),
    ];
    for shell in SHELLS {
        for (body, code, message) in cases {
            let outcomes = run(shell, vec![step("true"), step(body), step("echo after; changed")]).await.unwrap();
            let failed = &outcomes[1];
            assert_eq!(failed.failed, code != 0, "{shell:?} {body}: {failed:?}");
            assert_eq!(outcomes.len(), if code == 0 { 3 } else { 2 });
            if code > 0 {
                assert_eq!((failed.rc, failed.msg.as_str()), (Some(code), message), "{shell:?} {body}");
            }
        }
    }
}

#[tokio::test]
async fn check_mode_mutates_nothing() {
    for shell in SHELLS {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let body = r#"
            if [ ! -e "$arg_path" ]; then
                mutate touch "$arg_path" || fail "cannot touch"
                changed
            fi
            [ -z "$CHECK" ] || unknown "who knows"
            mutate false || exit 9"#;
        let payload = Payload::new(body).value("path", path.to_str().unwrap());
        let outcome = session(shell).run_one(payload.clone(), true).await.unwrap();
        assert!(outcome.changed && outcome.unknown && !outcome.failed, "{shell:?} {outcome:?}");
        assert_eq!(outcome.msg, "who knows");
        assert!(!path.exists());
        let outcome = session(shell).run_one(payload, false).await.unwrap();
        assert!(outcome.changed && !outcome.unknown);
        assert_eq!(outcome.rc, Some(9));
        assert!(path.exists());
    }
}

#[tokio::test]
async fn diffs_show_text_and_only_when_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let old = write("old", b"one\ntwo");
    let new = write("new", b"one\nthree\n");
    let binary = write("binary", b"\0\xff");
    let large = write("large", &vec![b'x'; 300 << 10]);
    let body = r#"
        show_before "$arg_label" <"$arg_old"
        show_after "$arg_label" <"$arg_new"
        show_before other <"$arg_binary"
        cat "$arg_large" 2>/dev/null | show_after other"#;
    for shell in SHELLS {
        for diff in [true, false] {
            let payload = Payload::new(body)
                .value("label", "with\nnewline")
                .value("old", &old)
                .value("new", &new)
                .value("binary", &binary)
                .value("large", &large);
            let session =
                Link::local(shell, LinkOptions::default()).session(Surroundings { diff, ..Surroundings::default() });
            let outcome = session.run_one(payload, false).await.unwrap();
            assert!(!outcome.failed, "{outcome:?}");
            if !diff {
                assert!(outcome.diff.is_empty());
                continue;
            }
            let expected = [
                ("with\nnewline", "one\ntwo", "one\nthree\n"),
                ("other", "[binary, not shown]\n", "[more than 256 KiB, not shown]\n"),
            ];
            let expected = expected.map(|(label, before, after)| Diff {
                label: label.into(),
                before: before.into(),
                after: after.into(),
            });
            assert_eq!(outcome.diff, expected, "{shell:?}");
        }
    }
}

#[tokio::test]
async fn output_needs_no_newline_and_markers_inside_it_leave_no_trace() {
    for shell in SHELLS {
        let body = "printf a; changed; printf b; note hi; printf '\\nc'; printf x >&2";
        let outcome = run_one(shell, Payload::new(body).capture()).await;
        assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("ab\nc", "x"), "{shell:?}");
        let outcome = run_one(shell, Payload::new("printf '\\n\\n a \\n\\n'").capture()).await;
        assert_eq!(outcome.stdout, "\n\n a ", "{shell:?}");
        let outcome =
            run_one(shell, Payload::new("x=$(changed; echo inner); echo \"$x\"; { changed; } >/dev/null").capture())
                .await;
        assert_eq!((outcome.stdout.as_str(), outcome.changed), ("inner", true), "{shell:?}");
    }
}

#[tokio::test]
async fn large_values_and_large_output_come_through() {
    let value: Vec<u8> = (0..5_000_000u32).map(|n| b"0123456789abcdef'\n"[(n % 18) as usize]).collect();
    for shell in SHELLS {
        let payload = Payload::new("printf '%s.' \"$arg_value\"").value("value", &value).capture();
        let outcome = run_one(shell, payload).await;
        assert!(outcome.stdout.as_bytes().strip_suffix(b".") == Some(&value), "{shell:?}");
    }
}

#[tokio::test]
async fn output_beyond_the_limit_is_dropped_but_drained() {
    let body = "head -c 9000000 /dev/zero | tr '\\0' x; echo end >&2";
    let outcome = run_one(&["sh"], Payload::new(body).capture()).await;
    assert_eq!(outcome.stderr, "end");
    assert!(outcome.stdout.ends_with("x\n[611392 more bytes were dropped]"));
}

#[tokio::test]
async fn a_body_reads_nothing_from_stdin() {
    for shell in SHELLS {
        let steps = vec![step("cat; read -r line; result line \"${line:-none}\""), step("changed")];
        let outcomes = run(shell, steps).await.unwrap();
        assert_eq!(outcomes[0].data["line"], "none");
        assert!(outcomes[1].changed, "{shell:?}");
    }
}

#[tokio::test]
async fn a_child_that_holds_the_output_is_not_waited_for() {
    for shell in SHELLS {
        let started = Instant::now();
        let payload = Payload::new("sleep 30 & result_int child $!; echo here").capture();
        let outcome = run_one(shell, payload).await;
        assert_eq!(outcome.stdout, "here");
        assert!(started.elapsed() < Duration::from_secs(10), "{shell:?}");
        end(outcome.data["child"].as_i64().unwrap());
    }
}

#[tokio::test]
async fn a_child_that_writes_all_the_time_hides_no_marker() {
    for shell in SHELLS {
        let noise = "while printf x; do printf y >&2; printf '\\n'; done & tmp_dir; echo $! >\"$TMP/child\"";
        let end = "tmp_dir; read -r child <\"$TMP/child\"; kill \"$child\"";
        let steps: Vec<_> = std::iter::once(noise)
            .chain(std::iter::repeat_n("changed; result word value; echo hi", 30))
            .chain([end])
            .map(step)
            .collect();
        let outcomes = run(shell, steps).await.unwrap();
        assert_eq!(outcomes.len(), 32, "{shell:?} {:?}", outcomes.last());
        assert!(outcomes[1..31].iter().all(|outcome| outcome.changed && !outcome.failed), "{shell:?}");
        assert!(!outcomes[31].failed);
    }
}

#[tokio::test]
async fn the_temporary_folder_is_shared_by_steps_private_and_gone_afterwards() {
    for shell in SHELLS {
        let steps = vec![
            step("tmp_dir; echo hello >\"$TMP/file\"; result path \"$TMP\""),
            step(
                "tmp_dir; read -r line <\"$TMP/file\"; result line \"$line\"; result mode \"$(stat -c %a \"$TMP\")\"; fail now",
            ),
        ];
        let outcomes = run(shell, steps).await.unwrap();
        assert_eq!((&outcomes[1].data["line"], &outcomes[1].data["mode"]), (&"hello".into(), &"700".into()));
        let path = outcomes[0].data["path"].as_str().unwrap();
        assert!(!std::path::Path::new(path).exists(), "{shell:?}");
    }
}

#[tokio::test]
async fn a_script_finds_nothing_of_the_one_before_it() {
    let change = "cd /; umask 0; exec </dev/null; PATH=/nowhere; HERE=1; export HERE; changed() { :; }; fail later";
    let look = "changed; result shell $$; result folder \"$PWD\"; result mask \"$(umask)\"; result here \"${HERE:-}\"; ls >/dev/null";
    for shell in SHELLS {
        let session = session(shell);
        let before = session.run_one(Payload::new(look), false).await.unwrap();
        session.run_one(Payload::new(change), false).await.unwrap();
        let after = session.run_one(Payload::new(look), false).await.unwrap();
        assert_eq!(before, after, "{shell:?}");
        assert!(after.changed && after.data["here"] == "", "{shell:?}: {after:?}");
    }
}

#[tokio::test]
async fn the_shell_outlives_a_brief_step_that_fails() {
    for shell in SHELLS {
        let session = session(shell);
        let look = || session.run_one(Payload::new("result shell $$"), false);
        let before = look().await.unwrap();
        let failed = session.run_one(Payload::new("fail for once").brief(), false).await.unwrap();
        assert!(failed.failed && failed.msg == "for once", "{shell:?}: {failed:?}");
        assert_eq!(look().await.unwrap(), before, "{shell:?}");
    }
}

/// The script had arrived, so it may have run.
#[tokio::test]
async fn a_session_that_is_cut_before_it_says_anything_may_have_run() {
    let error = run(&["sh", "-c", "read -r _; kill -9 $$"], vec![step("true")]).await.unwrap_err();
    assert!(matches!(error, RemoteError::Lost(_)), "{error:?}");
    let error = run(&["sh", "-c", "read -r _; exit 1"], vec![step("true")]).await.unwrap_err();
    assert!(matches!(error, RemoteError::Protocol(_)), "{error:?}");
}

#[tokio::test]
async fn a_killed_runner_is_an_error_and_not_a_hang() {
    for shell in SHELLS {
        let error = run(shell, vec![step("echo before"), step("kill -9 $$; sleep 20")]).await.unwrap_err();
        let RemoteError::Lost(trouble) = error else { panic!("{error:?}") };
        assert!(trouble.message.contains("in doubt"), "{shell:?} {trouble}");
    }
}

#[tokio::test]
async fn a_step_that_takes_too_long_is_ended_with_all_it_started() {
    for shell in SHELLS {
        let folder = tempfile::tempdir().unwrap();
        let pids = folder.path().join("pids");
        let body = r#"
            tmp_dir
            sh -c 'trap "" TERM; echo $$; while :; do sleep 0.1; done' >>"$arg_pids" &
            sh -c 'echo $$; sleep 60' >>"$arg_pids"
            echo not reached"#;
        let timed = Step {
            timeout: Some(Duration::from_millis(500)),
            ..Step::plain(Payload::new(body).value("pids", pids.to_str().unwrap()))
        };
        let error = run(shell, vec![step("true"), timed, step("changed")]).await.unwrap_err();
        assert!(matches!(error, RemoteError::TimedOut(limit) if limit == Duration::from_millis(500)), "{error:?}");
        let pids = std::fs::read_to_string(&pids).unwrap();
        assert_eq!(pids.lines().count(), 2);
        for pid in pids.lines() {
            assert!(!is_alive(pid), "{shell:?}: {pid} lives on");
        }
    }
}

#[tokio::test]
async fn files_go_up_and_come_down_whole() {
    let folder = tempfile::tempdir().unwrap();
    let local = folder.path().join("a file.tar.gz");
    let content: Vec<u8> = (0..3_000_000u32).flat_map(|n| n.to_le_bytes()).collect();
    std::fs::write(&local, &content).unwrap();
    for shell in SHELLS {
        let session = session(shell);
        let progress = Mutex::new(0);
        let staged = session.upload_with(&local, &|sent| *progress.lock().unwrap() = sent).await.unwrap();
        assert_eq!(*progress.lock().unwrap(), content.len() as u64);
        assert!(staged.ends_with("-a_file.tar.gz"), "{staged}");
        assert!(std::fs::read(&staged).unwrap() == content, "{shell:?}");
        let again = session.upload(&local).await.unwrap();
        assert_ne!(again, staged);

        let mut back = Vec::new();
        let outcome = session.download(&staged, &mut back).await.unwrap();
        assert!(back == content, "{shell:?}");
        assert_eq!(outcome.data["size"], content.len());
        session.link.close().await;
        assert!(!std::path::Path::new(&staged).parent().unwrap().exists());
    }
}

#[tokio::test]
async fn transfers_that_cannot_be_say_why() {
    let session = session(&["sh"]);
    let error = session.upload(std::path::Path::new("/no/such/file")).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot upload /no/such/file: No such file or directory (os error 2)");
    let outcome = session.download("/no/such/file", &mut Vec::new()).await.unwrap();
    assert_eq!((outcome.failed, outcome.msg.as_str()), (true, "/no/such/file does not exist"));
    let outcome = session.download("/etc", &mut Vec::new()).await.unwrap();
    assert_eq!((outcome.failed, outcome.msg.as_str()), (true, "/etc is not a regular file"));
    let empty = tempfile::NamedTempFile::new().unwrap();
    let staged = session.upload(empty.path()).await.unwrap();
    assert_eq!(std::fs::metadata(staged).unwrap().len(), 0);
    session.link.close().await;
}

#[tokio::test]
async fn a_missing_shell_is_unreachable() {
    let error = run(&["/no/such/shell"], vec![step("true")]).await.unwrap_err();
    assert!(matches!(error, RemoteError::Unreachable(_)), "{error:?}");
}

fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
}

fn end(pid: i64) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[test]
fn every_shell_file_passes_shellcheck() {
    let files =
        Command::new("find").args([concat!(env!("CARGO_MANIFEST_DIR"), "/crates"), "-name", "*.sh"]).output().unwrap();
    let files = String::from_utf8(files.stdout).unwrap();
    assert!(files.lines().count() > 3);
    let checked = Command::new("shellcheck").args(["-s", "sh"]).args(files.lines()).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}
