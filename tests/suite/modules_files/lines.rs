//! `line_in_file`.

use serde_json::json;

use super::bench::{Bench, everywhere, over_ssh, owner};

#[tokio::test]
async fn a_line_is_added_replaced_and_removed() {
    everywhere(async |bench: Bench| {
        bench.write("f", "# comment\nport = 1\n");
        bench.set_mode("f", 0o600);
        let path = bench.at("f");
        let outcome =
            bench.converges("line_in_file", json!({"path": path, "regexp": "^port", "line": "port = 2"})).await;
        assert_eq!(outcome.diff[0].before, "# comment\nport = 1\n");
        bench.converges("line_in_file", json!({"path": path, "line": "last 'one' \\1 $x"})).await;
        bench.converges("line_in_file", json!({"path": path, "line": "first", "insertbefore": "BOF"})).await;
        assert_eq!(bench.read("f"), "first\n# comment\nport = 2\nlast 'one' \\1 $x\n", "{}", bench.target);
        let swap = json!({"path": path, "regexp": r"^(\w+) = (\d)$", "line": r"\2 = \1", "backrefs": true});
        bench.converges("line_in_file", swap).await;
        bench.converges("line_in_file", json!({"path": path, "regexp": "^(#|2|last)", "state": "absent"})).await;
        assert_eq!((bench.read("f").as_str(), bench.mode("f")), ("first\n", 0o600), "{}", bench.target);
    })
    .await;
}

#[tokio::test]
async fn a_missing_file_is_made_only_on_request() {
    everywhere(async |bench: Bench| {
        let path = bench.at("f");
        bench.fails("line_in_file", json!({"path": path, "line": "x"}), "create: true").await;
        assert!(bench.check("line_in_file", json!({"path": path, "line": "x"})).await.unknown);
        bench.settled("line_in_file", json!({"path": path, "line": "x", "state": "absent"})).await;
        let args = json!({"path": path, "line": "x", "create": true, "mode": "0640", "owner": "nobody"});
        bench.converges("line_in_file", args).await;
        assert_eq!((bench.mode("f"), owner(&bench.path("f")).0), (0o640, 65534), "{}", bench.target);
        // Attributes alone.
        bench.converges("line_in_file", json!({"path": path, "line": "x", "mode": "0600"})).await;
    })
    .await;
}

#[tokio::test]
async fn bytes_that_are_no_text_survive() {
    over_ssh(async |bench: Bench| {
        bench.write("f", b"gr\xfc\xdfe\r\nkey=1\r\n");
        bench.converges("line_in_file", json!({"path": bench.at("f"), "regexp": "^key=", "line": "key=2"})).await;
        assert_eq!(std::fs::read(bench.path("f")).unwrap(), b"gr\xfc\xdfe\r\nkey=2\r\n");
        bench.write("binary", b"a\0b\n");
        bench.fails("line_in_file", json!({"path": bench.at("binary"), "line": "x"}), "not a text file").await;
        let problem = bench.refuses("line_in_file", json!({"path": "/x", "regexp": "(", "line": "x"}));
        assert!(problem.contains("`(` is not a pattern"), "{problem}");
        bench.write("s", "a\n");
        let refused = json!({"path": bench.at("s"), "line": "bad", "validate": "grep -v bad %s"});
        bench.run("line_in_file", refused).await;
        bench
            .fails("line_in_file", json!({"path": bench.at("s"), "line": "x", "validate": "false %s"}), "did not pass")
            .await;
    })
    .await;
}
