use std::time::Duration;

use super::*;
use crate::check::{ViolationKind::*, check_within};

#[test]
fn one_call_after_the_other() {
    let mut sample = Sample::new();
    sample
        .get([0, 10], None, 1)
        .put([20, 30], "r.1", None, 2)
        .get([40, 50], Some(("r.1", 2)), 2)
        .swap([60, 70], ["r.1", "r.2"], Some(("r.1", 2)), 3, true)
        .swap([80, 90], ["r.1", "r.3"], Some(("r.2", 3)), 3, false)
        .delete([100, 110], Some(("r.2", 3)), 4)
        .delete([120, 130], None, 4)
        .get([140, 150], None, 4);
    sample.assert_good();
    assert_eq!(check(&sample.0).figures.acknowledged, 8);
}

#[test]
fn calls_that_overlap_may_have_any_order() {
    let mut sample = Sample::new();
    sample.put([0, 100], "r.1", Some(("r.2", 2)), 3).put([0, 100], "r.2", None, 2).get([50, 90], None, 1).get(
        [50, 200],
        Some(("r.2", 2)),
        2,
    );
    sample.assert_good();
}

#[test]
fn a_key_may_begin_with_a_value_of_an_earlier_history() {
    let mut sample = Sample::new();
    sample.get([0, 10], Some(("other.7", 5)), 9).get([20, 30], Some(("other.7", 5)), 9);
    sample.assert_good();
    sample.put([40, 50], "r.1", Some(("other.7", 5)), 10).get([60, 70], Some(("other.7", 5)), 10);
    assert_eq!(sample.kinds(), [NotLinearizable]);
}

#[test]
fn a_stale_read() {
    let mut sample = Sample::new();
    sample.put([0, 10], "r.1", None, 2).put([20, 30], "r.2", Some(("r.1", 2)), 3).get([40, 50], Some(("r.1", 2)), 3);
    let verdict = check(&sample.0);
    assert_eq!(sample.kinds(), [NotLinearizable]);
    let violation = &verdict.violations[0];
    assert!(violation.sentence.contains("the get by client 2"), "{}", violation.sentence);
    assert_eq!(violation.operations[0].request.id, 2);
    assert_eq!((violation.key.as_deref(), violation.epoch), (Some(KEY), Some(0)));
    assert_eq!((violation.from, violation.until), (0, 50));
}

#[test]
fn a_stale_read_with_the_revision_of_its_time() {
    let mut sample = Sample::new();
    sample.put([0, 10], "r.1", None, 2).put([20, 30], "r.2", Some(("r.1", 2)), 3).get([40, 50], Some(("r.1", 2)), 2);
    assert_eq!(sample.kinds(), [NotLinearizable, RevisionWentBack]);
}

#[test]
fn a_lost_acknowledged_write() {
    let mut sample = Sample::new();
    sample.get([0, 10], None, 1).put([20, 30], "r.1", None, 2).get([40, 50], None, 3);
    assert_eq!(sample.kinds(), [NotLinearizable]);
}

#[test]
fn a_lost_write_is_noticed_by_the_next_put() {
    let mut sample = Sample::new();
    sample.put([0, 10], "r.1", None, 2).put([20, 30], "r.2", None, 3);
    assert_eq!(sample.kinds(), [NotLinearizable]);
}

#[test]
fn a_write_that_is_seen_twice() {
    let mut sample = Sample::new();
    sample
        .unknown([0, 10], put("r.1"))
        .get([20, 30], Some(("r.1", 2)), 2)
        .put([40, 50], "r.2", Some(("r.1", 2)), 3)
        .get([60, 70], Some(("r.1", 4)), 4);
    assert_eq!(sample.kinds(), [NotLinearizable, ValueAtTwoRevisions]);
}

#[test]
fn a_write_with_another_revision_than_acknowledged() {
    let mut sample = Sample::new();
    sample.put([0, 10], "r.1", None, 2).get([20, 30], Some(("r.1", 3)), 3);
    assert_eq!(sample.kinds(), [NotLinearizable, ValueAtTwoRevisions]);
}

#[test]
fn a_value_out_of_nowhere() {
    let mut sample = Sample::new();
    sample.get([0, 10], None, 1).get([20, 30], Some(("r.99", 2)), 2);
    assert_eq!(sample.kinds(), [NotLinearizable, ValueNobodyWrote]);
}

#[test]
fn a_value_before_it_was_written() {
    let mut sample = Sample::new();
    sample.get([0, 10], Some(("r.1", 2)), 2).unknown([20, 30], put("r.1"));
    assert_eq!(sample.kinds(), [NotLinearizable, ValueNobodyWrote]);
}

#[test]
fn a_refused_write_that_is_seen() {
    let mut sample = Sample::new();
    sample.get([0, 10], None, 1).refused([20, 30], put("r.1")).get([40, 50], Some(("r.1", 2)), 2);
    assert_eq!(sample.kinds(), [NotLinearizable, ValueNobodyWrote]);
}

#[test]
fn a_swap_that_succeeded_twice() {
    let mut sample = Sample::new();
    sample.put([0, 10], "r.1", None, 2).swap([20, 60], ["r.1", "r.2"], Some(("r.1", 2)), 3, true).swap(
        [20, 60],
        ["r.1", "r.3"],
        Some(("r.1", 2)),
        4,
        true,
    );
    assert_eq!(sample.kinds(), [NotLinearizable]);
}

#[test]
fn swaps_that_contradict_themselves() {
    let mut sample = Sample::new();
    sample.put([0, 10], "r.1", None, 2).swap([20, 30], ["r.8", "r.2"], Some(("r.1", 2)), 3, true);
    assert_eq!(sample.kinds(), [ImpossibleAnswer]);
    let mut sample = Sample::new();
    sample.put([0, 10], "r.1", None, 2).swap([20, 30], ["r.1", "r.2"], Some(("r.1", 2)), 2, false);
    assert_eq!(sample.kinds(), [ImpossibleAnswer]);
}

#[test]
fn an_unknown_write_may_appear_late() {
    let mut sample = Sample::new();
    sample
        .put([0, 10], "r.1", None, 2)
        .unknown([20, 30], put("r.2"))
        .get([40, 50], Some(("r.1", 2)), 2)
        .put([60, 70], "r.3", Some(("r.1", 2)), 3)
        .get([80, 90], Some(("r.3", 3)), 3)
        .get([100, 110], Some(("r.2", 4)), 4)
        .get([120, 130], Some(("r.2", 4)), 4);
    sample.assert_good();
    sample.get([140, 150], Some(("r.3", 3)), 4);
    assert_eq!(sample.kinds(), [NotLinearizable]);
}

#[test]
fn an_unknown_write_may_never_appear() {
    let mut sample = Sample::new();
    sample
        .put([0, 10], "r.1", None, 2)
        .unknown([20, 30], put("r.2"))
        .unknown([20, 30], swap(["r.1", "r.3"]))
        .unknown([20, 30], Kind::Delete)
        .get([40, 50], Some(("r.1", 2)), 2)
        .get([60, 70], Some(("r.1", 2)), 2);
    sample.assert_good();
}

#[test]
fn an_unknown_write_explains_only_its_own_value() {
    let mut sample = Sample::new();
    sample.put([0, 10], "r.1", None, 2).unknown([20, 30], put("r.2")).get([40, 50], None, 3);
    assert_eq!(sample.kinds(), [NotLinearizable]);
}

#[test]
fn an_unknown_delete_explains_absence_once() {
    let mut sample = Sample::new();
    sample
        .put([0, 10], "r.1", None, 2)
        .unknown([20, 30], Kind::Delete)
        .get([40, 50], Some(("r.1", 2)), 2)
        .get([60, 70], None, 3)
        .put([80, 90], "r.2", None, 4);
    sample.assert_good();
    sample.get([100, 110], None, 5);
    assert_eq!(sample.kinds(), [NotLinearizable]);
}

#[test]
fn many_unknown_deletes_do_not_blow_up() {
    let mut sample = Sample::new();
    sample.put([0, 10], "r.0", None, 2);
    for at in 0..200 {
        sample.unknown([20 + at, 300], Kind::Delete).unknown([20 + at, 300], put(&format!("r.u{at}")));
    }
    for at in 0..300 {
        sample.get([400 + 10 * at, 405 + 10 * at], Some(("r.0", 2)), 2);
    }
    sample.assert_good();
}

#[test]
fn an_unknown_swap_needs_what_it_expects() {
    let mut sample = Sample::new();
    sample.put([0, 10], "r.1", None, 2).unknown([20, 30], swap(["r.1", "r.2"])).get([40, 50], Some(("r.2", 3)), 3);
    sample.assert_good();
    let mut sample = Sample::new();
    sample
        .put([0, 10], "r.1", None, 2)
        .put([12, 14], "r.3", Some(("r.1", 2)), 3)
        .unknown([20, 30], swap(["r.1", "r.2"]))
        .get([40, 50], Some(("r.2", 4)), 4);
    assert_eq!(sample.kinds(), [NotLinearizable]);
}

#[test]
fn an_unknown_swap_of_an_unknown_put() {
    let mut sample = Sample::new();
    sample.get([0, 10], None, 1).unknown([20, 30], put("r.1")).unknown([40, 50], swap(["r.1", "r.2"])).get(
        [60, 70],
        Some(("r.2", 3)),
        3,
    );
    sample.assert_good();
}

#[test]
fn revisions_that_go_back_between_keys() {
    let mut sample = Sample::new();
    sample.put([0, 10], "r.1", None, 7).put([20, 30], "r.2", None, 6);
    sample.0.operations[1].request.key = "/judge/register/1".to_owned();
    assert_eq!(sample.kinds(), [RevisionWentBack]);
}

#[test]
fn two_writes_with_one_revision() {
    let mut sample = Sample::new();
    sample.put([0, 30], "r.1", None, 7).put([0, 30], "r.2", None, 7);
    sample.0.operations[1].request.key = "/judge/register/1".to_owned();
    assert_eq!(sample.kinds(), [RevisionTwice]);
}

#[test]
fn older_values_need_an_epoch() {
    let mut sample = Sample::new();
    sample.put([0, 10], "r.1", None, 2).put([20, 30], "r.2", Some(("r.1", 2)), 3);
    let mut without = Sample(sample.0.clone());
    sample.begin_epoch().get([100, 110], Some(("r.1", 2)), 2).put([120, 130], "r.3", Some(("r.1", 2)), 3);
    sample.assert_good();
    assert_eq!(check(&sample.0).figures.epochs, 2);
    without.get([100, 110], Some(("r.1", 2)), 2).put([120, 130], "r.3", Some(("r.1", 2)), 3);
    assert_eq!(without.kinds(), [NotLinearizable, RevisionTwice, RevisionWentBack]);
}

#[test]
fn an_epoch_has_one_first_state() {
    let mut sample = Sample::new();
    sample.put([0, 10], "r.1", None, 2).put([20, 30], "r.2", Some(("r.1", 2)), 3);
    sample.begin_epoch().get([100, 110], Some(("r.1", 2)), 3).get([120, 130], Some(("r.2", 3)), 3);
    assert_eq!(sample.kinds(), [NotLinearizable]);
}

#[test]
fn an_unknown_write_may_appear_in_the_next_epoch() {
    let mut sample = Sample::new();
    sample.put([0, 10], "r.1", None, 2).unknown([20, 30], put("r.2"));
    sample.begin_epoch().get([100, 110], Some(("r.2", 3)), 3).put([120, 130], "r.3", Some(("r.2", 3)), 4).get(
        [140, 150],
        Some(("r.3", 4)),
        4,
    );
    sample.assert_good();
}

/// Longer than one part of a search.
fn long() -> Sample {
    let mut sample = Sample::new();
    let mut held: Option<(String, i64)> = None;
    for number in 0..3_000 {
        let (at, revision) = (number * 10, number + 2);
        let seen = held.as_ref().map(|(value, revision)| (value.as_str(), *revision));
        let value = format!("r.{number}");
        sample.put([at, at + 5], &value, seen, revision);
        held = Some((value, revision));
    }
    sample
}

#[test]
fn a_long_history_is_searched_in_parts() {
    let sample = long();
    sample.assert_good();
    assert!(check(&sample.0).figures.searches > 5);
}

#[test]
fn a_stale_read_across_parts() {
    let mut sample = long();
    sample.get([20_006, 20_008], Some(("r.1000", 1002)), 2_002);
    assert_eq!(sample.kinds(), [NotLinearizable]);
}

#[test]
fn an_unknown_write_across_parts() {
    let mut sample = Sample::new();
    sample.put([0, 5], "r.a", None, 2).unknown([6, 7], put("r.late"));
    for number in 1..1_000 {
        sample.get([number * 10, number * 10 + 5], Some(("r.a", 2)), 2);
    }
    for number in 1_000..2_000 {
        sample.get([number * 10, number * 10 + 5], Some(("r.late", 3)), 3);
    }
    sample.assert_good();
    assert!(check(&sample.0).figures.searches > 3);
}

#[test]
fn what_is_not_decided_in_time_is_no_success() {
    let mut sample = Sample::new();
    sample.put([0, 10], "r.1", None, 2);
    let kinds: Vec<ViolationKind> =
        check_within(&sample.0, Duration::ZERO).violations.iter().map(|violation| violation.kind).collect();
    assert_eq!(kinds, [Undecided]);
}

#[test]
fn no_more_than_some_of_a_kind_are_listed() {
    let mut sample = Sample::new();
    for number in 0..50 {
        sample.get([number * 10, number * 10 + 5], Some((&format!("r.no{number}"), 2)), 2);
    }
    let verdict = check(&sample.0);
    assert_eq!(verdict.violations.iter().filter(|violation| violation.kind == ValueNobodyWrote).count(), 20);
    assert_eq!(verdict.figures.left_out, 30);
}
