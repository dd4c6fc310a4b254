use super::*;
use crate::check::ViolationKind::*;

fn event(revision: i64, value: &str) -> Watched {
    Watched::Event { revision, key: KEY.to_owned(), value: Some(value.to_owned()) }
}

fn deletion(revision: i64) -> Watched {
    Watched::Event { revision, key: KEY.to_owned(), value: None }
}

/// Three acknowledged puts and a delete, of revisions 2 to 5.
fn writes() -> Sample {
    let mut sample = Sample::new();
    sample
        .put([0, 10], "r.1", None, 2)
        .put([20, 30], "r.2", Some(("r.1", 2)), 3)
        .put([40, 50], "r.3", Some(("r.2", 3)), 4)
        .delete([60, 70], Some(("r.3", 4)), 5);
    sample
}

fn watch(sample: &mut Sample, watcher: u32, all: impl IntoIterator<Item = Watched>) {
    for (what, at) in all.into_iter().zip(100..) {
        sample.watch(watcher, at, what);
    }
}

#[test]
fn all_events_in_order() {
    let mut sample = writes();
    let all = || [Watched::Began { from: 2 }, event(2, "r.1"), event(3, "r.2"), event(4, "r.3"), deletion(5)];
    watch(&mut sample, 0, all());
    watch(&mut sample, 1, all());
    sample.assert_good();
    assert_eq!(check(&sample.0).figures.events_expected, 8);
}

#[test]
fn a_watcher_is_only_judged_in_its_range() {
    let mut sample = writes();
    watch(&mut sample, 0, [Watched::Began { from: 3 }, event(3, "r.2"), event(4, "r.3")]);
    sample.assert_good();
}

#[test]
fn a_watch_may_continue_elsewhere() {
    let mut sample = writes();
    let ended = Watched::Ended { reason: "closed".to_owned() };
    let first = [Watched::Began { from: 2 }, event(2, "r.1"), ended, Watched::Began { from: 3 }];
    watch(&mut sample, 0, first.clone().into_iter().chain([event(3, "r.2"), event(4, "r.3"), deletion(5)]));
    sample.assert_good();
    let mut sample = writes();
    watch(&mut sample, 0, first.into_iter().chain([event(4, "r.3"), deletion(5)]));
    assert_eq!(sample.kinds(), [WatchGap]);
}

#[test]
fn a_gap() {
    let mut sample = writes();
    watch(&mut sample, 0, [Watched::Began { from: 2 }, event(2, "r.1"), event(4, "r.3"), deletion(5)]);
    assert_eq!(sample.kinds(), [WatchGap]);
}

#[test]
fn a_gap_before_a_promise_of_progress() {
    let mut sample = writes();
    watch(&mut sample, 0, [Watched::Began { from: 2 }, event(2, "r.1"), Watched::Progress { revision: 5 }]);
    assert_eq!(sample.kinds(), [WatchGap]);
}

#[test]
fn a_gap_that_a_compaction_explains() {
    let mut sample = writes();
    let compacted = Watched::Compacted { asked: 3, compact_revision: 4 };
    let records = [Watched::Began { from: 2 }, event(2, "r.1"), compacted, Watched::Began { from: 4 }];
    watch(&mut sample, 0, records.into_iter().chain([event(4, "r.3"), deletion(5)]));
    sample.assert_good();
    assert_eq!(check(&sample.0).figures.compacted, 1);
}

#[test]
fn another_value_than_written() {
    let mut sample = writes();
    watch(&mut sample, 0, [Watched::Began { from: 2 }, event(2, "r.1"), deletion(3), event(4, "r.3")]);
    assert_eq!(sample.kinds(), [WatchGap, EventNobodyWrote]);
}

#[test]
fn a_duplicate() {
    let mut sample = writes();
    watch(&mut sample, 0, [Watched::Began { from: 2 }, event(2, "r.1"), event(3, "r.2"), event(3, "r.2")]);
    assert_eq!(sample.kinds(), [WatchDuplicate]);
}

#[test]
fn out_of_order() {
    let mut sample = writes();
    watch(&mut sample, 0, [Watched::Began { from: 2 }, event(2, "r.1"), event(4, "r.3"), event(3, "r.2")]);
    assert_eq!(sample.kinds(), [WatchOutOfOrder]);
}

#[test]
fn an_event_after_the_promise_that_none_is_to_come() {
    let mut sample = writes();
    let progress = Watched::Progress { revision: 4 };
    watch(&mut sample, 0, [Watched::Began { from: 2 }, event(2, "r.1"), event(3, "r.2"), progress, event(4, "r.3")]);
    assert_eq!(sample.kinds(), [WatchOutOfOrder]);
}

#[test]
fn an_event_that_was_not_asked_for() {
    let mut sample = writes();
    watch(&mut sample, 0, [Watched::Began { from: 3 }, event(2, "r.1"), event(3, "r.2")]);
    assert_eq!(sample.kinds(), [WatchOutOfOrder]);
}

#[test]
fn an_event_nobody_wrote() {
    let mut sample = writes();
    watch(&mut sample, 0, [Watched::Began { from: 6 }, event(6, "r.66")]);
    assert_eq!(sample.kinds(), [EventNobodyWrote]);
    let mut sample = writes();
    watch(&mut sample, 0, [Watched::Began { from: 6 }, event(6, "other.1")]);
    assert_eq!(sample.kinds(), [EventNobodyWrote]);
    let mut sample = writes();
    watch(&mut sample, 0, [Watched::Began { from: 6 }, deletion(6)]);
    assert_eq!(sample.kinds(), [EventNobodyWrote]);
}

#[test]
fn unknown_writes_explain_events() {
    let mut sample = writes();
    sample.unknown([80, 90], put("r.4")).unknown([80, 90], Kind::Delete);
    watch(&mut sample, 0, [Watched::Began { from: 6 }, event(6, "r.4"), deletion(7)]);
    sample.assert_good();
    sample.watch(0, 200, deletion(9));
    assert_eq!(sample.kinds(), [EventNobodyWrote]);
}

#[test]
fn watchers_that_disagree() {
    let mut sample = writes();
    sample.unknown([80, 90], put("r.4")).unknown([80, 90], put("r.5"));
    watch(&mut sample, 0, [Watched::Began { from: 6 }, event(6, "r.4"), event(7, "r.5")]);
    watch(&mut sample, 1, [Watched::Began { from: 6 }, event(7, "r.5")]);
    assert_eq!(sample.kinds(), [WatchersDisagree]);
}

#[test]
fn revisions_of_another_epoch_begin_anew() {
    let mut sample = writes();
    watch(&mut sample, 0, [Watched::Began { from: 4 }, event(4, "r.3"), deletion(5)]);
    sample.begin_epoch().put([80, 90], "r.7", Some(("r.1", 2)), 3);
    watch(&mut sample, 0, [Watched::Began { from: 3 }, event(3, "r.7")]);
    sample.assert_good();
}
