//! `etcd_retire`: whose data is moved aside.

use std::fs;

use serde_json::json;

use super::bench::{Bench, everywhere};

#[tokio::test]
async fn data_of_a_member_stays_and_what_no_member_has_written_is_moved_aside() {
    everywhere(async |bench: Bench| {
        let args = json!({"data_dir": bench.at("data"), "unfinished": bench.at("mark")});
        fs::create_dir_all(bench.path("data/member/wal")).unwrap();
        bench.write("data/member/wal/0.wal", "a log");
        bench.fails("etcd_retire", args.clone(), "has data of an etcd that is not a member of this cluster").await;

        // An etcd that started without a cluster.
        fs::remove_file(bench.path("data/member/wal/0.wal")).unwrap();
        fs::create_dir_all(bench.path("data/member/snap")).unwrap();
        bench.write("data/member/snap/db", "an empty database");
        bench.write("data/member/snap/1.snap", "a snapshot");
        bench.fails("etcd_retire", args.clone(), "has data of an etcd that is not a member of this cluster").await;
        fs::remove_file(bench.path("data/member/snap/1.snap")).unwrap();
        bench.write("data/notes", "somebody's");
        bench.fails("etcd_retire", args.clone(), "has data of an etcd that is not a member of this cluster").await;
        fs::remove_file(bench.path("data/notes")).unwrap();
        let outcome = bench.run("etcd_retire", args.clone()).await;
        assert!(
            outcome.changed && !outcome.failed && !bench.path("data/member").exists(),
            "{}: {outcome:?}",
            bench.target
        );
        assert!(!bench.run("etcd_retire", args).await.changed, "{}", bench.target);
    })
    .await;
}
