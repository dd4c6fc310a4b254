use super::*;
use crate::check::ViolationKind::*;

fn member(id: u64, is_learner: bool) -> Member {
    Member { id, name: format!("etcd-{id}"), is_learner, peer_urls: vec![format!("http://10.0.0.{id}:2380")] }
}

/// Voters and learners.
fn list<const V: usize, const L: usize>(voters: [u64; V], learners: [u64; L]) -> Vec<Member> {
    let voters = voters.into_iter().map(|id| member(id, false));
    voters.chain(learners.into_iter().map(|id| member(id, true))).collect()
}

/// Three voters, seen first at a second.
fn three() -> Sample {
    let mut sample = Sample::new();
    sample.members([0, 1_000], &list([1, 2, 3], []));
    sample
}

#[test]
fn a_member_that_is_replaced_step_by_step() {
    let mut sample = three();
    sample
        .members([5_000, 5_150], &list([1, 2, 3], [4]))
        .members([9_000, 9_150], &list([1, 2, 3, 4], []))
        .members([9_300, 9_450], &list([2, 3, 4], []));
    sample.assert_good();
    let figures = check(&sample.0).figures;
    assert_eq!((figures.member_samples, figures.member_changes), (4, 3));
}

#[test]
fn two_voters_that_went_at_once() {
    let mut sample = three();
    sample.members([5_000, 5_150], &list([1], []));
    assert_eq!(sample.kinds(), [VotersNotOneByOne]);
    let violation = &check(&sample.0).violations[0];
    assert_eq!(violation.members, sample.0.members);
    assert_eq!((violation.epoch, violation.from, violation.until), (Some(0), 999_999_999, 5_150_000_000));
    let voters = "the voters were etcd-1 (1), etcd-2 (2), etcd-3 (3), and then etcd-1 (1)";
    assert_eq!(violation.sentence, format!("More than one voter changed between 5.000 s and 5.150 s: {voters}."));
}

#[test]
fn a_voter_that_came_for_another() {
    let mut sample = three();
    sample.members([2_000, 2_150], &list([1, 2, 3], [4])).members([5_000, 5_150], &list([1, 2, 4], []));
    sample.assert_good();
    sample.members([8_000, 8_400], &list([1, 2, 5], []));
    assert_eq!(sample.kinds(), [VotersNotOneByOne, VoterWasNoLearner]);
}

#[test]
fn voters_may_change_more_than_once_while_nobody_looks() {
    let mut sample = three();
    sample.members([2_000, 2_150], &list([1, 2, 3], [])).members([5_000, 5_401], &list([1], []));
    sample.assert_good();
}

#[test]
fn a_voter_that_was_no_learner() {
    let mut sample = three();
    sample.members([5_000, 7_000], &list([1, 2, 3, 4], []));
    assert_eq!(sample.kinds(), [VoterWasNoLearner]);
    let violation = &check(&sample.0).violations[0];
    let sentence = "etcd-4 (4) had a vote at 7.000 s, but was no learner before, and no member at all at 5.000 s.";
    assert_eq!((violation.sentence.as_str(), violation.members.len()), (sentence, 2));
}

#[test]
fn a_member_may_have_been_a_learner_while_nobody_looked() {
    let mut sample = three();
    sample.members([5_000, 7_001], &list([1, 2, 3, 4], [])).members([7_200, 7_350], &list([1, 2, 3, 4], [5]));
    sample.assert_good();
}

#[test]
fn two_learners() {
    let mut sample = three();
    sample.members([5_000, 5_150], &list([1, 2, 3], [4])).members([6_000, 9_000], &list([1, 2, 3], [4, 5]));
    assert_eq!(sample.kinds(), [TwoLearners]);
    let violation = &check(&sample.0).violations[0];
    assert_eq!(violation.sentence, "There was more than one learner at 9.000 s: etcd-4 (4), etcd-5 (5).");
}

#[test]
fn a_learner_may_go_and_another_one_come() {
    let mut sample = three();
    sample
        .members([5_000, 5_150], &list([1, 2, 3], [4]))
        .members([6_000, 6_150], &list([1, 2, 3], []))
        .members([7_000, 7_150], &list([1, 2, 3], [5]))
        .members([8_000, 8_150], &list([1, 2, 3, 5], []));
    sample.assert_good();
}

#[test]
fn names_and_addresses_may_change() {
    let mut sample = three();
    let mut members = list([1, 2, 3], [4]);
    members[3].name.clear();
    sample.members([5_000, 5_150], &members).members([6_000, 6_150], &list([1, 2, 3], [4]));
    members[3].name = "etcd-4".to_owned();
    members[0].peer_urls = vec!["https://10.0.0.1:2380".to_owned()];
    sample.members([7_000, 7_150], &members);
    sample.assert_good();
}

#[test]
fn old_answers_are_not_compared() {
    let mut sample = three();
    sample
        .members([5_000, 5_150], &list([1, 2, 3], [4]))
        .members([6_000, 6_150], &list([1, 2, 3, 4], []))
        .members([6_300, 6_450], &list([2, 3, 4], []));
    sample.assert_good();
    sample.members([6_600, 6_750], &list([1, 2, 3], [])).members([6_750, 6_900], &list([2, 3, 4], []));
    sample.assert_good();
    sample.members([7_050, 7_200], &list([3, 4], []));
    sample.assert_good();
    sample.members([7_350, 7_500], &list([1, 2, 3], [4])).members([7_500, 7_650], &list([5], []));
    assert_eq!(sample.kinds(), [VotersNotOneByOne, VoterWasNoLearner]);
}

#[test]
fn a_change_that_was_undone_may_be_what_comes_before_the_next() {
    let mut sample = three();
    sample
        .members([5_000, 5_150], &list([1, 2, 3], [4]))
        .members([6_000, 6_150], &list([1, 2, 3, 4], []))
        .members([6_150, 6_300], &list([1, 2, 3], []))
        .members([6_300, 6_450], &list([1, 2], []));
    sample.assert_good();
}

#[test]
fn the_first_list_of_an_epoch_is_compared_with_none() {
    let mut sample = three();
    sample.begin_epoch().members([0, 1_100], &list([7], [])).members([1_200, 1_300], &list([7], [8]));
    sample.assert_good();
    assert_eq!(check(&sample.0).figures.member_changes, 1);
    sample.members([1_400, 1_500], &list([7, 9], []));
    assert_eq!(sample.kinds(), [VoterWasNoLearner]);
    assert_eq!(check(&sample.0).violations[0].epoch, Some(1));
}
