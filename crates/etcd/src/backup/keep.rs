//! Which backups stay.

use jiff::{SignedDuration, Timestamp};

use super::Manifest;

/// Without a limit everything stays. With both, what either of them keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    pub last: Option<u32>,
    pub days: Option<u32>,
}

/// Those that need not stay, of backups that have the newest first. The newest always stays.
pub fn superfluous(backups: &[Manifest], keep: Keep, now: Timestamp) -> Vec<&Manifest> {
    if keep.last.is_none() && keep.days.is_none() {
        return Vec::new();
    }
    let stays = |place: usize, manifest: &Manifest| {
        let is_young =
            |days: u32| now.duration_since(manifest.taken) <= SignedDuration::from_hours(i64::from(days) * 24);
        place == 0 || keep.last.is_some_and(|last| place < last as usize) || keep.days.is_some_and(is_young)
    };
    backups
        .iter()
        .enumerate()
        .filter(|(place, manifest)| !stays(*place, manifest))
        .map(|(_, manifest)| manifest)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backup::manifest::example;

    fn backup(day: i64) -> Manifest {
        example("prod", day, day, "")
    }

    fn days(keep: Keep) -> Vec<i64> {
        let backups: Vec<Manifest> = [20, 19, 10, 3, 1].map(backup).into();
        superfluous(&backups, keep, Timestamp::from_second(20 * 86_400).unwrap()).iter().map(|it| it.revision).collect()
    }

    #[test]
    fn what_either_limit_keeps_stays() {
        assert_eq!(days(Keep::default()), [0; 0]);
        assert_eq!(days(Keep { last: Some(2), days: None }), [10, 3, 1]);
        assert_eq!(days(Keep { last: None, days: Some(10) }), [3, 1]);
        assert_eq!(days(Keep { last: Some(4), days: Some(1) }), [1]);
        assert_eq!(days(Keep { last: Some(0), days: Some(0) }), [19, 10, 3, 1], "the newest always stays");
    }
}
