//! `copy` and `template`.

use std::{fs, os::unix::fs::symlink};

use etcdrun::model::Diff;
use serde_json::json;

use super::{
    bench::{Bench, NOBODY, ODD_NAMES, everywhere, over_ssh, owner},
    support::TempUser,
};

#[tokio::test]
async fn a_text_is_put_in_place_and_stays() {
    everywhere(async |bench: Bench| {
        let args = json!({"content": "one\ntwo\n", "dest": bench.at("f"), "mode": "0640"});
        let outcome = bench.converges("copy", args).await;
        assert_eq!((bench.read("f").as_str(), bench.mode("f")), ("one\ntwo\n", 0o640));
        let diff = Diff { label: bench.at("f"), before: String::new(), after: "one\ntwo\n".into() };
        assert_eq!(outcome.diff, [diff]);
        assert_eq!(outcome.data["dest"], json!(bench.at("f")));

        let outcome = bench.converges("copy", json!({"content": "one\n", "dest": bench.at("f")})).await;
        assert_eq!((bench.read("f").as_str(), bench.mode("f")), ("one\n", 0o640), "the mode is kept");
        assert_eq!(outcome.diff[0].before, "one\ntwo\n");
        assert_eq!(outcome.data["sha256"], json!("2c8b08da5ce60398e1f19af0e5dccc744df274b826abe585eaba68c525434806"));
    })
    .await;
}

#[tokio::test]
async fn any_text_arrives_as_it_is() {
    everywhere(async |bench: Bench| {
        let long = "a long line of text\n".repeat(50_000);
        let control: String = (1u8..=126).map(char::from).collect();
        for text in ["", "\n", "no end", "\n\n\n", "a'b\"c`d$e\\n%s\n", "grüße ✓\r\n", "-n", &control, &long] {
            bench.converges("copy", json!({"content": text, "dest": bench.at("f")})).await;
            assert_eq!(bench.read("f"), text, "{}", bench.target);
            fs::remove_file(bench.path("f")).unwrap();
        }
        bench.converges("copy", json!({"content": {"a": [1, "x"], "b": null}, "dest": bench.at("f")})).await;
        assert_eq!(bench.read("f"), r#"{"a":[1,"x"],"b":null}"#);
    })
    .await;
}

#[tokio::test]
async fn odd_names_are_only_names() {
    everywhere(async |bench: Bench| {
        for name in ODD_NAMES {
            bench.give(name, "small");
            let folder = bench.at(&format!("{name} d"));
            bench.converges("file", json!({"path": folder, "state": "directory"})).await;
            bench.converges("copy", json!({"src": name, "dest": folder})).await;
            assert_eq!(bench.read(&format!("{name} d/{name}")), "small", "{}", bench.target);
            bench.converges("copy", json!({"content": "x", "dest": bench.at(name), "mode": "u=rw,go="})).await;
            assert_eq!((bench.read(name).as_str(), bench.mode(name)), ("x", 0o600), "{}", bench.target);
            bench.converges("file", json!({"path": bench.at(name), "state": "absent"})).await;
        }
    })
    .await;
}

#[tokio::test]
async fn binary_and_large_bodies_travel_only_when_they_are_wanted() {
    everywhere(async |bench: Bench| {
        let binary: Vec<u8> = (0..=255).cycle().take(10_000).collect();
        let large: Vec<u8> = (0..3_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for (name, body) in [("binary", &binary), ("large", &large)] {
            bench.give(name, body);
            bench.converges("copy", json!({"src": name, "dest": bench.at(name), "mode": "0600"})).await;
            assert!(fs::read(bench.path(name)).unwrap() == *body, "{} {name}", bench.target);
        }
        bench.converges("copy", json!({"src": "large", "dest": bench.at("new/"), "mode": "0755"})).await;
        assert_eq!(bench.mode("new/large"), 0o755);
        // A change of the mode alone.
        bench.converges("copy", json!({"src": "large", "dest": bench.at("large"), "mode": "0640"})).await;
    })
    .await;
}

#[tokio::test]
async fn owner_and_mode_change_without_the_body_and_survive_a_new_one() {
    everywhere(async |bench: Bench| {
        bench.write("f", "x");
        let (uid, name) = NOBODY;
        bench.converges("copy", json!({"content": "x", "dest": bench.at("f"), "owner": name})).await;
        assert_eq!(owner(&bench.path("f")), (uid, 0), "{}", bench.target);
        bench.settled("copy", json!({"content": "x", "dest": bench.at("f"), "owner": uid.to_string()})).await;
        bench.converges("copy", json!({"content": "y", "dest": bench.at("f"), "group": "daemon"})).await;
        assert_eq!(owner(&bench.path("f")), (uid, 1), "{}", bench.target);
        bench.converges("copy", json!({"content": "z", "dest": bench.at("f")})).await;
        assert_eq!(owner(&bench.path("f")), (uid, 1), "{}", bench.target);
        let outcome = bench.converges("copy", json!({"content": "z", "dest": bench.at("f"), "mode": "u+x,o="})).await;
        assert_eq!(bench.mode("f"), 0o740, "{}", bench.target);
        assert_eq!((outcome.diff[0].before.trim(), outcome.diff[0].after.trim()), ("mode: 644", "mode: 740"));
        bench
            .fails("copy", json!({"content": "q", "dest": bench.at("g"), "owner": "no-such-user"}), "no-such-user")
            .await;
    })
    .await;
}

#[tokio::test]
async fn a_folder_is_copied_with_all_that_is_in_it() {
    everywhere(async |bench: Bench| {
        bench.give("tree/a", "a");
        bench.give("tree/sub/deep/b c", "b");
        bench.give("tree/sub/binary", [0, 1, 2]);
        fs::create_dir_all(bench.files.path().join("tree/empty")).unwrap();
        let args = json!({"src": "tree", "dest": bench.at("to"), "mode": "0640", "directory_mode": "0750"});
        bench.converges("copy", args).await;
        assert_eq!(bench.read("to/tree/sub/deep/b c"), "b");
        assert_eq!((bench.mode("to/tree/sub/deep"), bench.mode("to/tree/sub/binary")), (0o750, 0o640));
        assert!(bench.path("to/tree/empty").is_dir());
        bench.converges("copy", json!({"src": "tree/", "dest": bench.at("flat")})).await;
        assert_eq!(bench.read("flat/a"), "a");
        bench.write("flat/a", "changed");
        bench.converges("copy", json!({"src": "tree/", "dest": bench.at("flat/")})).await;
        assert_eq!(bench.read("flat/a"), "a");
    })
    .await;
}

#[tokio::test]
async fn links_are_replaced_or_followed() {
    everywhere(async |bench: Bench| {
        bench.write("real", "old");
        symlink(bench.path("real"), bench.path("link")).unwrap();
        bench.converges("copy", json!({"content": "new", "dest": bench.at("link"), "follow": true})).await;
        assert_eq!(bench.read("real"), "new");
        assert!(bench.path("link").is_symlink());
        bench.converges("copy", json!({"content": "own", "dest": bench.at("link")})).await;
        assert!(!bench.path("link").is_symlink());
        assert_eq!((bench.read("real").as_str(), bench.read("link").as_str()), ("new", "own"));
    })
    .await;
}

#[tokio::test]
async fn backups_validation_and_force() {
    everywhere(async |bench: Bench| {
        bench.write("f", "old");
        let bad = json!({"content": "new", "dest": bench.at("f"), "validate": "grep -q valid %s"});
        bench.fails("copy", bad, "did not pass the validation").await;
        let good = json!({"content": "valid", "dest": bench.at("f"), "validate": "grep -q valid %s", "backup": true});
        let outcome = bench.run("copy", good).await;
        let backup = outcome.data["backup_file"].as_str().unwrap_or_else(|| panic!("{}: {outcome:?}", bench.target));
        assert_eq!(fs::read_to_string(backup).unwrap(), "old");
        assert_eq!(bench.read("f"), "valid");
        bench.settled("copy", json!({"content": "other", "dest": bench.at("f"), "force": false})).await;
        bench.converges("copy", json!({"content": "other", "dest": bench.at("g"), "force": false})).await;
    })
    .await;
}

#[tokio::test]
async fn a_file_of_the_target_is_copied_there() {
    everywhere(async |bench: Bench| {
        bench.write("from", [0, 159, 146, 150]);
        bench.converges("copy", json!({"src": bench.at("from"), "dest": bench.at("to"), "remote_src": true})).await;
        assert_eq!(fs::read(bench.path("to")).unwrap(), [0, 159, 146, 150]);
        let missing = json!({"src": bench.at("nope"), "dest": bench.at("to"), "remote_src": true});
        bench.fails("copy", missing, "is not a file").await;
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_written_is_said() {
    everywhere(async |bench: Bench| {
        let args = json!({"content": "x", "dest": bench.at("no/such/f")});
        bench.fails("copy", args.clone(), "no/such does not exist").await;
        let plan = bench.check("copy", args).await;
        assert!(plan.changed && plan.msg.contains("does not exist yet"), "an earlier task may make it: {plan:?}");
        fs::create_dir(bench.path("dir")).unwrap();
        bench.fails("copy", json!({"content": "x", "dest": bench.at("dir")}), "is a directory").await;
        bench.give("big", vec![b'x'; 100_000]);
        bench.fails("copy", json!({"src": "big", "dest": bench.at("no/f")}), "does not exist").await;
    })
    .await;
}

#[tokio::test]
async fn an_ordinary_user_hears_what_is_forbidden() {
    over_ssh(async |bench: Bench| {
        let user = TempUser::create();
        bench.set_mode("", 0o755);
        bench.write("f", "x");
        let sshd = super::support::Sshd::builder().user(&user.name).start();
        let bench = Bench { session: super::support::session(&sshd), ..bench };
        bench.fails("copy", json!({"content": "y", "dest": bench.at("f")}), "cannot write to").await;
        bench.fails("file", json!({"path": bench.at("f"), "mode": "0600"}), "cannot set the mode").await;
        bench.fails("file", json!({"path": bench.at("f"), "state": "absent"}), "cannot remove").await;
        bench.set_mode("f", 0o600);
        bench.fails("copy", json!({"content": "y", "dest": bench.at("f")}), "cannot read").await;
        // A folder of its own, and a mode that locks itself out.
        let outcome = bench.run("copy", json!({"content": "mine", "dest": "~/f", "mode": "0400"})).await;
        assert!(outcome.changed, "{outcome:?}");
        assert_eq!(fs::read_to_string(format!("/home/{}/f", user.name)).unwrap(), "mine");
        bench.settled("copy", json!({"content": "mine", "dest": "~/f", "mode": "0400"})).await;
    })
    .await;
}

#[tokio::test]
async fn a_template_is_rendered_and_put_in_place() {
    everywhere(async |mut bench: Bench| {
        bench.vars.insert("members".into(), json!(["a", "b"]));
        bench.give("t.j2", "{% for m in members %}\n- {{ m }}\n{% endfor %}\n{% include 'part.j2' %}\n");
        bench.give("part.j2", "end of {{ inventory_hostname }}\n");
        let args = json!({"src": "t.j2", "dest": bench.at("t"), "mode": "0600"});
        bench.converges("template", args).await;
        assert_eq!(bench.read("t"), "- a\n- b\nend of h1\n");
        bench.give("bad.j2", "{{ nobody_knows }}");
        let problem = bench.refuses("template", json!({"src": "bad.j2", "dest": "/x"}));
        assert!(problem.contains("nobody_knows"), "{problem}");
    })
    .await;
}
