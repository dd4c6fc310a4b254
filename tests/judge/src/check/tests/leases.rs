use super::*;
use crate::check::ViolationKind::*;

const SECOND: i64 = 1_000_000_000;

fn read(present: bool, revision: i64, raft_term: u64) -> LeaseStep {
    LeaseStep::Read { present, revision, raft_term }
}

/// A lease of ten seconds with its key, kept alive at five seconds.
fn kept() -> Sample {
    let mut sample = Sample::new();
    sample
        .lease([0, 1], LeaseStep::Granted { ttl_seconds: 10 })
        .lease([2, 3], LeaseStep::Put { revision: 2, raft_term: 1 })
        .lease([5 * SECOND, 5 * SECOND + 1], LeaseStep::Kept);
    sample
}

fn at(seconds: i64) -> [i64; 2] {
    [seconds * SECOND, seconds * SECOND + 1]
}

#[test]
fn a_key_lives_while_its_lease_is_kept_alive() {
    let mut sample = kept();
    sample.lease(at(6), read(true, 2, 1)).lease(at(12), read(true, 2, 1));
    sample.assert_good();
    assert_eq!(check(&sample.0).figures.leases.reads_while_kept, 2);
}

#[test]
fn a_key_that_vanished_early() {
    let mut sample = kept();
    sample.lease(at(12), read(false, 3, 1));
    assert_eq!(sample.kinds(), [LeaseKeyVanished]);
}

#[test]
fn a_key_that_vanished_early_after_a_change_of_leader() {
    let mut sample = kept();
    sample.lease(at(12), read(false, 3, 2));
    assert_eq!(sample.kinds(), [LeaseKeyVanishedAfterLeaderChange]);
}

#[test]
fn a_key_may_vanish_when_its_time_is_over() {
    let mut sample = kept();
    sample.lease(at(15), read(false, 3, 1));
    sample.assert_good();
}

#[test]
fn a_key_may_vanish_while_its_lease_is_revoked() {
    let mut sample = kept();
    sample.lease(at(6), LeaseStep::Revoking).lease(at(7), read(false, 3, 1));
    sample.assert_good();
}

#[test]
fn a_key_is_gone_after_its_lease_was_revoked() {
    let mut sample = kept();
    sample.lease(at(6), LeaseStep::Revoking).lease(at(7), LeaseStep::Revoked).lease(at(8), read(false, 3, 1));
    sample.assert_good();
    assert_eq!(check(&sample.0).figures.leases.reads_after_revoke, 1);
}

#[test]
fn a_key_that_is_there_after_its_lease_was_revoked() {
    let mut sample = kept();
    sample.lease(at(6), LeaseStep::Revoking).lease(at(7), LeaseStep::Revoked).lease(at(8), read(true, 2, 1));
    assert_eq!(sample.kinds(), [LeaseKeyAfterRevoke]);
}

#[test]
fn a_key_that_outlived_its_lease() {
    let mut sample = kept();
    sample.lease(at(8), LeaseStep::Left);
    for time in [10, 40, 79] {
        sample.lease(at(time), read(true, 2, 1));
    }
    sample.assert_good();
    sample.lease(at(81), read(true, 2, 1));
    assert_eq!(sample.kinds(), [LeaseKeyOutlivedLease]);
}

#[test]
fn a_new_leader_begins_leases_anew() {
    let mut sample = kept();
    sample.lease(at(8), LeaseStep::Left);
    for (time, term) in [(10, 1), (70, 1), (90, 2), (120, 2)] {
        sample.lease(at(time), read(true, 2, term));
    }
    sample.lease(at(130), read(false, 3, 2));
    sample.assert_good();
    assert_eq!(check(&sample.0).figures.leases.expired, 1);
}

#[test]
fn revisions_of_leases_count_too() {
    let mut sample = kept();
    sample.lease(at(6), read(true, 1, 1));
    assert_eq!(sample.kinds(), [RevisionWentBack]);
}
