//! `file`.

use std::{
    fs,
    os::unix::fs::{MetadataExt, symlink},
};

use serde_json::json;

use super::bench::{Bench, NOBODY, ODD_NAMES, everywhere, over_ssh, owner};

#[tokio::test]
async fn directories_are_made_with_those_above_them() {
    everywhere(async |bench: Bench| {
        let args = json!({"path": bench.at("a/b/c"), "state": "directory", "mode": "0750", "owner": NOBODY.1});
        let outcome = bench.converges("file", args).await;
        assert_eq!(outcome.diff[0].before.trim(), "state: absent");
        for name in ["a", "a/b", "a/b/c"] {
            assert_eq!((bench.mode(name), owner(&bench.path(name)).0), (0o750, NOBODY.0), "{} {name}", bench.target);
        }
        bench.converges("file", json!({"path": bench.at("a/"), "state": "directory", "mode": "0700"})).await;
        assert_eq!((bench.mode("a"), bench.mode("a/b")), (0o700, 0o750));
        bench.set_mode("a", 0o2755);
        bench.converges("file", json!({"path": bench.at("a"), "state": "directory", "mode": "0755"})).await;
        assert_eq!(bench.mode("a"), 0o755, "{}: the set-id bit goes", bench.target);
        bench.write("f", "");
        bench.fails("file", json!({"path": bench.at("f"), "state": "directory"}), "not a directory").await;
    })
    .await;
}

#[tokio::test]
async fn attributes_reach_everything_below() {
    everywhere(async |bench: Bench| {
        fs::create_dir_all(bench.path("d/e")).unwrap();
        bench.write("d/e/f", "");
        let args = |mode: &str| json!({"path": bench.at("d"), "state": "directory", "recurse": true, "mode": mode, "owner": NOBODY.1, "group": "daemon"});
        bench.converges("file", args("0770")).await;
        assert_eq!((bench.mode("d/e/f"), owner(&bench.path("d/e/f"))), (0o770, (NOBODY.0, 1)), "{}", bench.target);
        let outcome = bench.run("file", args("u=rwX,g=rX,o=")).await;
        assert!(outcome.changed && !outcome.failed, "{}: {outcome:?}", bench.target);
        assert_eq!((bench.mode("d/e"), bench.mode("d/e/f")), (0o750, 0o750), "{}", bench.target);
        assert!(!bench.run("file", args("u=rwX,g=rX,o=")).await.changed, "{}", bench.target);
    })
    .await;
}

#[tokio::test]
async fn files_links_and_trees_go_away() {
    everywhere(async |bench: Bench| {
        fs::create_dir_all(bench.path("d/e")).unwrap();
        bench.write("d/f", "kept");
        symlink(bench.path("d"), bench.path("link")).unwrap();
        symlink("nowhere", bench.path("dangling")).unwrap();
        bench.converges("file", json!({"path": bench.at("link/"), "state": "absent"})).await;
        assert_eq!(bench.read("d/f"), "kept", "only the link goes");
        bench.converges("file", json!({"path": bench.at("dangling"), "state": "absent"})).await;
        bench.converges("file", json!({"path": bench.at("d"), "state": "absent"})).await;
        assert!(!bench.path("d").exists());
    })
    .await;
}

#[tokio::test]
async fn the_root_is_never_removed() {
    over_ssh(async |bench: Bench| {
        for path in ["/", "//", "/.", "/etc/.."] {
            assert!(
                bench.refuses("file", json!({"path": path, "state": "absent"})).contains("root of the file system")
            );
        }
        assert_eq!(bench.refuses("file", json!({"path": "", "state": "absent"})), "`path` is empty");
    })
    .await;
}

#[tokio::test]
async fn links_point_where_they_should() {
    everywhere(async |bench: Bench| {
        bench.write("one", "1");
        bench.write("two", "2");
        let link =
            |src: &str, force: bool| json!({"path": bench.at("link"), "state": "link", "src": src, "force": force});
        let outcome = bench.converges("file", link("one", false)).await;
        assert_eq!(outcome.diff[0].after.trim(), "state: link to one");
        bench.converges("file", link(&bench.at("two"), false)).await;
        assert_eq!(bench.read("link"), "2");
        bench.fails("file", link("nowhere", false), "does not exist").await;
        bench.converges("file", link("nowhere", true)).await;
        fs::create_dir(bench.path("dir")).unwrap();
        bench.converges("file", link("dir", false)).await;
        bench.converges("file", link("one", false)).await;
        assert!(fs::read_dir(bench.path("dir")).unwrap().next().is_none(), "nothing was made in the old target");

        let over = |force: bool| json!({"path": bench.at("two"), "state": "link", "src": "one", "force": force});
        bench.fails("file", over(false), "force: true").await;
        bench.converges("file", over(true)).await;
        fs::create_dir_all(bench.path("full/x")).unwrap();
        let full = json!({"path": bench.at("full"), "state": "link", "src": "one", "force": true});
        bench.fails("file", full, "not empty").await;
    })
    .await;
}

#[tokio::test]
async fn odd_names_can_be_linked() {
    everywhere(async |bench: Bench| {
        for name in ODD_NAMES {
            bench.write(name, *name);
            let link = format!("{name}.link");
            bench.converges("file", json!({"path": bench.at(&link), "state": "link", "src": bench.at(name)})).await;
            assert_eq!(bench.read(&link), *name, "{}", bench.target);
        }
    })
    .await;
}

#[tokio::test]
async fn hard_links_touch_and_plain_attributes() {
    everywhere(async |bench: Bench| {
        bench.write("one", "1");
        let args = json!({"path": bench.at("hard"), "state": "hard", "src": bench.at("one")});
        bench.converges("file", args).await;
        assert_eq!(fs::metadata(bench.path("hard")).unwrap().nlink(), 2);
        let outcome = bench.run("file", json!({"path": bench.at("new"), "state": "touch", "mode": "0600"})).await;
        assert!(outcome.changed && !outcome.failed, "{}: {outcome:?}", bench.target);
        assert_eq!((bench.read("new").as_str(), bench.mode("new")), ("", 0o600));
        bench.converges("file", json!({"path": bench.at("new"), "mode": "0644"})).await;
        bench.fails("file", json!({"path": bench.at("gone"), "mode": "0644"}), "does not exist").await;
        assert!(bench.check("file", json!({"path": bench.at("gone"), "mode": "0644"})).await.unknown);
        bench.fails("file", json!({"path": bench.at("gone/x"), "state": "touch"}), "does not exist").await;
    })
    .await;
}
