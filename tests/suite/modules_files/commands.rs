//! `command`, `shell` and `script`.

use etcdrun::model::Status;
use serde_json::json;

use super::bench::{Bench, ODD_NAMES, everywhere, over_ssh};

#[tokio::test]
async fn a_command_gets_its_words_and_nothing_else() {
    everywhere(async |bench: Bench| {
        let mut argv = vec!["printf", "<%s>"];
        argv.extend(ODD_NAMES);
        let outcome = bench.run("command", json!({"argv": argv})).await;
        let expected: String = ODD_NAMES.iter().map(|name| format!("<{name}>")).collect();
        assert_eq!(outcome.stdout, expected, "{}", bench.target);
        assert_eq!((outcome.status(), outcome.rc), (Status::Changed, Some(0)), "{}", bench.target);
        let outcome = bench.run("command", json!("printf '%s|' a\\ b \"c d\" $HOME *")).await;
        assert_eq!(outcome.stdout, "a b|c d|$HOME|*|", "{}", bench.target);
        assert_eq!(outcome.data["cmd"], json!("printf %s| a b c d $HOME *"), "{}", bench.target);
    })
    .await;
}

#[tokio::test]
async fn a_failure_has_its_code_and_its_words() {
    everywhere(async |bench: Bench| {
        let outcome = bench.run("shell", json!("echo out; echo err >&2; exit 7")).await;
        assert_eq!((outcome.status(), outcome.rc), (Status::Failed, Some(7)), "{}", bench.target);
        assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("out", "err"), "{}", bench.target);
        let outcome = bench.run("command", json!("no-such-program")).await;
        assert_eq!((outcome.failed, outcome.rc), (true, Some(127)), "{}: {outcome:?}", bench.target);
        assert!(outcome.stderr.contains("no-such-program"), "{}: {outcome:?}", bench.target);
        let outcome = bench.run("command", json!({"cmd": "true", "chdir": bench.at("nowhere")})).await;
        assert!(outcome.failed && outcome.msg.contains("cannot change to"), "{}: {outcome:?}", bench.target);
    })
    .await;
}

#[tokio::test]
async fn creates_and_removes_decide() {
    everywhere(async |bench: Bench| {
        let args = json!({"cmd": "touch made", "chdir": bench.at(""), "creates": "made"});
        let plan = bench.check("command", args.clone()).await;
        assert!(plan.unknown && !bench.path("made").exists(), "{}: {plan:?}", bench.target);
        assert!(bench.run("command", args.clone()).await.changed);
        bench.settled("command", args).await;
        bench.settled("shell", json!({"cmd": "exit 1", "creates": bench.at("m*de")})).await;
        bench.settled("shell", json!({"cmd": "exit 1", "removes": bench.at("gone*")})).await;
        let outcome = bench.run("shell", json!({"cmd": "echo done", "removes": bench.at("made")})).await;
        assert_eq!(outcome.stdout, "done", "{}: {outcome:?}", bench.target);
    })
    .await;
}

#[tokio::test]
async fn a_command_reads_what_it_is_given_or_nothing() {
    everywhere(async |bench: Bench| {
        assert_eq!(bench.run("command", json!("cat")).await.stdout, "", "{}", bench.target);
        let outcome = bench.run("command", json!({"cmd": "wc -l", "stdin": "a'b\n\nc"})).await;
        assert_eq!(outcome.stdout.trim(), "3", "{}", bench.target);
        let args = json!({"cmd": "cat; exit 3", "stdin": "x", "stdin_add_newline": false});
        let outcome = bench.run("shell", args).await;
        assert_eq!((outcome.stdout.as_str(), outcome.rc), ("x", Some(3)), "{}", bench.target);
    })
    .await;
}

#[tokio::test]
async fn a_shell_is_a_shell_and_keeps_its_command_to_itself() {
    everywhere(async |bench: Bench| {
        let outcome = bench.run("shell", json!("x='a b'; for i in 1 2; do echo \"$x $i\"; done | tail -n 1")).await;
        assert_eq!(outcome.stdout, "a b 2", "{}", bench.target);
        let outcome =
            bench.run("shell", json!("cat <<'END'\nit's $here\nEND\nenv | grep etcdrun_ || echo clean")).await;
        assert_eq!(outcome.stdout, "it's $here\nclean", "{}", bench.target);
        // s3cret must not stand on any command line while it is used.
        let outcome = bench.run("shell", json!("tr '\\0' ' ' < /proc/$$/cmdline; : s3cret")).await;
        assert!(!outcome.stdout.contains("s3cret"), "{}: {outcome:?}", bench.target);
        let outcome = bench.run("shell", json!("changed; note x; fail y; echo \"$?\"")).await;
        assert_eq!(outcome.stdout, "127", "{}: the runner's own functions are out of reach", bench.target);
    })
    .await;
}

#[tokio::test]
async fn another_shell_is_used_when_asked_for() {
    over_ssh(async |bench: Bench| {
        let args =
            json!({"cmd": "set -o pipefail; false | true; echo \"$? $BASH_VERSION\"", "executable": "/bin/bash"});
        let outcome = bench.run("shell", args).await;
        assert!(outcome.stdout.starts_with("1 5."), "{outcome:?}");
    })
    .await;
}

#[tokio::test]
async fn a_script_travels_runs_and_goes() {
    everywhere(async |bench: Bench| {
        bench.give("s.sh", "#!/bin/sh\necho \"$0\"\nprintf '<%s>' \"$@\"\nexit 4\n");
        let outcome = bench.run("script", json!("s.sh 'a b' \"it's\" ''")).await;
        assert_eq!(outcome.rc, Some(4), "{}: {outcome:?}", bench.target);
        let (path, words) = outcome.stdout.split_once('\n').unwrap();
        assert_eq!(words, "<a b><it's><>", "{}", bench.target);
        assert!(path.ends_with("/s.sh") && !std::path::Path::new(path).exists(), "{}: {path}", bench.target);

        bench.give("plain", "echo \"no first line $1\"");
        assert_eq!(bench.run("script", json!("plain x")).await.stdout, "no first line x", "{}", bench.target);
        bench.give("odd", "hello there");
        let outcome = bench.run("script", json!({"cmd": "odd", "executable": "grep -c there"})).await;
        assert_eq!(outcome.stdout, "1", "{}: {outcome:?}", bench.target);
        bench.give("large.sh", format!("#!/bin/sh\necho large\n# {}\n", "x".repeat(100_000)));
        assert_eq!(bench.run("script", json!("large.sh")).await.stdout, "large", "{}", bench.target);
        assert!(bench.check("script", json!("large.sh")).await.unknown);
        assert!(bench.refuses("script", json!("missing.sh")).contains("was not found"));
    })
    .await;
}
