//! The arithmetic of quorums, step by step, for the person who decides.

use super::Verb;

/// What a cluster is after a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub what: String,
    pub voters: usize,
    pub well: usize,
}

impl Step {
    /// How many voters must agree.
    pub fn majority(&self) -> usize {
        self.voters / 2 + 1
    }

    /// How many of those that are well may fail before the cluster stops answering; nothing if it has stopped.
    pub fn spare(&self) -> Option<usize> {
        self.well.checked_sub(self.majority())
    }
}

/// What will be done, with what the cluster is after it. Never more than one voter more or less at a time.
pub fn arithmetic(verb: Verb, old: &str, new: &str, alive: bool, listed: bool, now: (usize, usize)) -> Vec<Step> {
    let (mut voters, mut well) = now;
    let mut steps = vec![Step { what: "now".into(), voters, well }];
    let mut step = |what: String, more: (isize, isize)| {
        voters = voters.saturating_add_signed(more.0);
        well = well.saturating_add_signed(more.1);
        steps.push(Step { what, voters, well });
    };
    let comes = matches!(verb, Verb::Add | Verb::Replace | Verb::Move);
    let goes = matches!(verb, Verb::Remove | Verb::Replace | Verb::Move) && listed;
    if goes && !alive {
        step(format!("{old} is removed"), (-1, 0));
    }
    if comes {
        step(format!("{new} joins as a learner and catches up"), (0, 0));
        step(format!("{new} becomes a voter"), (1, 1));
    }
    if goes && alive {
        step(format!("{old} transfers leadership and is removed"), (-1, -1));
    }
    if verb == Verb::Restart {
        step(format!("{old} stops"), (0, -1));
        step(format!("{old} is back"), (0, 1));
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(steps: &[Step]) -> Vec<(usize, usize, usize, Option<usize>)> {
        steps.iter().map(|step| (step.voters, step.well, step.majority(), step.spare())).collect()
    }

    #[test]
    fn a_dead_one_goes_first_and_a_living_one_last() {
        let dead = arithmetic(Verb::Replace, "b", "b", false, true, (3, 2));
        assert_eq!(numbers(&dead), [(3, 2, 2, Some(0)), (2, 2, 2, Some(0)), (2, 2, 2, Some(0)), (3, 3, 2, Some(1))]);
        let live = arithmetic(Verb::Move, "b", "d", true, true, (3, 3));
        assert_eq!(numbers(&live), [(3, 3, 2, Some(1)), (3, 3, 2, Some(1)), (4, 4, 3, Some(1)), (3, 3, 2, Some(1))]);
    }

    #[test]
    fn it_is_seen_when_a_cluster_stops() {
        let last = arithmetic(Verb::Remove, "b", "", true, true, (3, 2));
        assert_eq!(last.last().unwrap().spare(), None);
        let restart = arithmetic(Verb::Restart, "a", "", true, true, (1, 1));
        assert_eq!(restart[1].spare(), None);
        // One that is not listed any more does not go a second time.
        assert_eq!(arithmetic(Verb::Replace, "b", "b", false, false, (2, 2)).len(), 3);
    }
}
