//! Changes of members: `etcdrun member replace`, `move` and `remove`, from the decision to the end.
//!
//! The decision is that of `membership::Situation`. Copied, since it needs an inventory or reaches hosts: what follows from the decision
//! (`membership::draft`), the tasks of `roles/member`, what `etcd_member` does with the list, and which gates a resumed run passes
//! again.

use etcdrun_etcd::etcd::rules::{Decided, Gate, MemberChange, Profile};

use crate::{
    cluster::{Data, Release},
    list::{Call, Entry, Mask, SLOTS, Slot, has, slots, with, without},
    operator::{Act, Meant, Run, Step, Who},
    rules::{Question, Was},
    world::{State, World},
};

/// What was decided. A resumed run still has it, whatever has become of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Change {
    pub old: Slot,
    /// Who takes its place; nobody if it is removed for good.
    pub new: Option<Slot>,
    pub was: Was,
    pub ends: Ends,
    pub well: Mask,
    pub is_whole: bool,
    pub after: Mask,
    /// What the new one runs: as the member through which the cluster is spoken to.
    pub release: Release,
}

/// What is stopped of a member that has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ends {
    /// Its server, on its own host.
    Host,
    /// Its guest, by its hypervisor.
    Guest,
    /// Nothing: its host is not reached, and the new one is elsewhere.
    Nothing,
}

/// How far a change is: what it has done last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Point {
    /// A learner of an earlier attempt is in the way.
    Decided,
    /// No learner is in the way.
    Cleared,
    /// The gate in front of the removal of what has failed has passed.
    Checked,
    /// What has failed is stopped, and its data is aside.
    Retired,
    /// The new one may join.
    Removed,
    Learner,
    Started,
    Promoted,
    /// Its initial settings are gone.
    Joined,
    /// It serves, and the old one may go.
    Served,
    /// The old one, which was well, is not listed any more.
    Gone,
    Settling,
}

impl Change {
    fn is_alive(&self) -> bool {
        self.was == Was::Alive
    }

    fn before(&self) -> Mask {
        if self.is_alive() { self.well } else { with(self.well, self.old) }
    }

    fn during(&self) -> Mask {
        self.new.map_or(self.well, |new| with(self.well, new))
    }

    /// What happens first to the list.
    fn first(&self) -> MemberChange {
        match (self.new, self.was) {
            (None, Was::Alive) => MemberChange::Shrink,
            (None, _) | (_, Was::Dead) => MemberChange::Remove,
            _ => MemberChange::AddLearner,
        }
    }

    fn gate(&self, gate: Gate) -> Question {
        let is_addition = self.first() == MemberChange::AddLearner;
        Question {
            target: (gate == Gate::Stop || !is_addition).then_some(self.old),
            change: (gate != Gate::Begin).then_some(self.first()),
            decided: (!self.is_alive() && gate != Gate::Begin).then_some(Decided::Dead),
            is_fenced: self.ends == Ends::Guest && gate == Gate::Before,
            ..Question::at(Profile::Replace, gate)
        }
    }
}

impl World {
    /// What may be decided now about a member, all ways to go on from there.
    pub fn changes(&self, state: &State, who: Who, old: Slot, is_removal: bool) -> Vec<Run> {
        let look = self.look(state, who, state.inventory);
        let Some(decision) = self.rules.decide(&look, old, is_removal) else { return Vec::new() };
        let free = (0..SLOTS).find(|slot| !has(state.inventory, *slot) && *slot <= self.scope.voters);
        let is_reached = look.reaches(old);
        let ways: Vec<(Option<Slot>, Ends)> = match (is_removal, decision.was) {
            (true, _) if is_reached => vec![(None, Ends::Host)],
            (true, _) => vec![(None, Ends::Guest), (None, Ends::Nothing)],
            (false, Was::Alive) => vec![(free, Ends::Host)],
            (false, _) if is_reached => vec![(Some(old), Ends::Host)],
            (false, _) => vec![(Some(old), Ends::Guest), (free, Ends::Nothing)],
        };
        let change = |(new, ends): (Option<Slot>, Ends)| {
            let has_leftover = new.is_some_and(|new| has(decision.learners, new));
            let change = Change {
                old,
                new,
                was: decision.was,
                ends,
                well: decision.well,
                is_whole: decision.is_whole,
                after: new.map_or(without(state.inventory, old), |new| with(without(state.inventory, old), new)),
                release: state.cluster.members[decision.via].release,
            };
            Run::Change(change, if has_leftover { Point::Decided } else { Point::Cleared })
        };
        ways.into_iter().filter(|(new, _)| is_removal || new.is_some()).map(change).collect()
    }

    pub fn change_step(&self, state: &State, who: Who, change: Change, point: Point) -> Option<Step> {
        let at = |point: Point| Run::Change(change, point);
        let pass = |asked: Mask, question: Question| self.rules.pass(&self.look(state, who, asked), question);
        let may_stop = || {
            let is_asked = self.scope.mended.stop_asks_neighbours;
            let (look, before) = (self.look(state, who, change.before()), change.gate(Gate::Before));
            pass(change.before(), change.gate(Gate::Stop))
                && (!is_asked || self.rules.holds(&look, before, "unreachable-is-not-dead"))
        };
        match point {
            Point::Decided => {
                let act = self.absent(state, who, change.during(), change.new?, MemberChange::Remove)?;
                Some(Step::new(act, Some(at(Point::Cleared))))
            }
            Point::Cleared => {
                let holds = |gate: Gate| pass(change.before(), change.gate(gate));
                let then = match (change.is_alive(), change.new) {
                    (false, _) => Point::Checked,
                    (true, Some(_)) => Point::Removed,
                    (true, None) => Point::Served,
                };
                (holds(Gate::Begin) && holds(Gate::Before)).then(|| Step::pass(at(then)))
            }
            Point::Checked if !may_stop() => None,
            Point::Checked if change.ends == Ends::Nothing => self.remove_dead(state, who, change),
            Point::Checked => {
                let can_stop = change.ends == Ends::Guest || self.reaches(state, who, change.old);
                can_stop.then(|| Step::new(Act::Retire(change.old), Some(at(Point::Retired))))
            }
            Point::Retired => {
                let is_admitted = !self.scope.mended.removal_has_gate || may_stop();
                if is_admitted { self.remove_dead(state, who, change) } else { None }
            }
            Point::Removed => self.add(state, who, change, change.new?, MemberChange::AddLearner),
            Point::Learner => {
                let new = change.new?;
                let act = match state.cluster.list.of(new) {
                    _ if !self.reaches(state, who, new) => return None,
                    None => return None,
                    Some(_) if state.cluster.runs(new) => Act::Pass,
                    Some(_) if state.cluster.is_own(new) => Act::Start(new, change.release),
                    Some(entry) if self.scope.mended.join_starts_learners && is_wiped_voter(entry) => return None,
                    Some(_) => Act::Join(new, change.release),
                };
                Some(Step::new(act, Some(at(Point::Started))))
            }
            Point::Started => self.promote(state, who, change),
            Point::Promoted => Some(Step::new(Act::Forget(change.new?), Some(at(Point::Joined)))),
            Point::Joined => {
                let question = Question {
                    target: change.new,
                    before: Some(state.cluster.list),
                    ..Question::at(Profile::Replace, Gate::After)
                };
                let then = if change.is_alive() { Point::Served } else { Point::Settling };
                pass(change.during(), question).then(|| Step::pass(at(then)))
            }
            Point::Served => {
                let led = self.led_by_another(state, who, change.during(), change.old)?;
                let removal = if change.new.is_some() { MemberChange::RemoveReplaced } else { MemberChange::Shrink };
                let act = self.absent(&led, who, change.during(), change.old, removal)?;
                Some(Step { meant: change.meant_by_removal(), ..Step::new(act, Some(at(Point::Gone))) })
            }
            Point::Gone => {
                let question = Question {
                    target: Some(change.old),
                    decided: Some(Decided::Gone),
                    ..Question::at(Profile::Replace, Gate::Stop)
                };
                let may_stop = pass(change.after, question) && self.reaches(state, who, change.old);
                may_stop.then(|| Step::new(Act::Retire(change.old), Some(at(Point::Settling))))
            }
            Point::Settling => {
                let is_settled = pass(change.after, Question::at(Profile::Replace, Gate::Settled));
                let step = Step { inventory: Some(change.after), ..Step::new(Act::Pass, None) };
                (!change.is_whole || is_settled).then_some(step)
            }
        }
    }

    /// Where a resumed run goes on: gates in front of something that was not done are passed again.
    pub fn resumed(&self, change: Change, point: Point) -> Point {
        match point {
            Point::Checked => Point::Cleared,
            Point::Served if change.new.is_some() => Point::Joined,
            Point::Served => Point::Cleared,
            other => other,
        }
    }

    /// `etcd_member` with `state: absent`, of a member that has failed.
    fn remove_dead(&self, state: &State, who: Who, change: Change) -> Option<Step> {
        let act = self.absent(state, who, change.well, change.old, MemberChange::Shrink)?;
        let then = Run::Change(change, if change.new.is_some() { Point::Removed } else { Point::Settling });
        Some(Step { meant: change.meant_by_removal(), ..Step::new(act, Some(then)) })
    }

    /// `etcd_member` with `state: absent`. One that is listed as a learner goes unasked.
    fn absent(&self, state: &State, who: Who, asked: Mask, slot: Slot, change: MemberChange) -> Option<Act> {
        if !self.is_led(state, who, asked) {
            return None;
        }
        let Some(entry) = state.cluster.list.of(slot) else { return Some(Act::Pass) };
        let look = self.look(state, who, asked).named(slot);
        let may_go = entry.is_learner || self.rules.may_change(&look, slot, change);
        may_go.then_some(Act::Call(Call::Remove { slot, generation: entry.generation }))
    }

    /// `roles/member/tasks/join.yaml`, until the new member is listed.
    pub fn add(&self, state: &State, who: Who, change: Change, new: Slot, as_what: MemberChange) -> Option<Step> {
        let member = &state.cluster.members[new];
        if !self.reaches(state, who, new) {
            return None;
        }
        // Data of an earlier attempt is moved aside; any other is an error.
        if member.data != Data::Lost {
            let then = Run::Change(change, Point::Removed);
            let is_spared = self.scope.mended.join_spares_voters && state.cluster.is_voter(new);
            return (member.is_joining && !is_spared).then(|| Step::new(Act::Retire(new), Some(then)));
        }
        let then = Run::Change(change, Point::Learner);
        if state.cluster.list.has(new) {
            return Some(Step::pass(then));
        }
        let look = self.look(state, who, change.during()).named(new);
        let is_learner = as_what != MemberChange::AddVoter;
        let may_join = self.is_led(state, who, change.during()) && self.rules.may_change(&look, new, as_what);
        may_join.then(|| Step::new(Act::Call(Call::Add { slot: new, is_learner }), Some(then)))
    }

    /// `etcd_member` with `state: voter`.
    fn promote(&self, state: &State, who: Who, change: Change) -> Option<Step> {
        let new = change.new?;
        let then = Run::Change(change, Point::Promoted);
        let meant = Meant { is_settled: (new != change.old && !change.is_alive()).then_some(change.old), leaves: None };
        let entry = state.cluster.list.of(new).filter(|_| self.is_led(state, who, change.during()))?;
        if !entry.is_learner {
            return Some(Step { meant, ..Step::pass(then) });
        }
        let look = self.look(state, who, change.during()).named(new);
        let is_ready = self.reaches(state, who, new) && self.has_caught_up(state, new);
        let call = Call::Promote { slot: new, generation: entry.generation };
        let may_vote = is_ready && self.rules.may_change(&look, new, MemberChange::Promote);
        may_vote.then(|| Step { meant, ..Step::new(Act::Call(call), Some(then)) })
    }

    fn has_caught_up(&self, state: &State, slot: Slot) -> bool {
        state.cluster.runs(slot) && state.cluster.members[slot].data == Data::Current
    }

    /// A learner that does not get ready is removed again, and the run fails.
    pub fn give_up(&self, state: &State, who: Who) -> Option<Step> {
        let Some(Run::Change(change, Point::Started)) = state.operators[who].run else { return None };
        let new = change.new?;
        let entry = state.cluster.list.of(new).filter(|entry| entry.is_learner)?;
        let is_hopeless = !self.has_caught_up(state, new) && self.is_led(state, who, change.during());
        let call = Call::Remove { slot: new, generation: entry.generation };
        is_hopeless.then(|| Step::new(Act::Call(call), None))
    }

    /// Whether the leader is one of those that are asked, and answers.
    fn is_led(&self, state: &State, who: Who, asked: Mask) -> bool {
        slots(asked).any(|slot| Some(slot) == state.cluster.leader && self.reaches(state, who, slot))
    }
}

/// A voter without its data, which would forget what it has agreed to.
fn is_wiped_voter(entry: Entry) -> bool {
    !entry.is_learner && entry.has_started
}

impl Change {
    fn meant_by_removal(&self) -> Meant {
        match (self.new, self.is_alive()) {
            (None, _) => Meant { is_settled: Some(self.old), leaves: Some(self.old) },
            (Some(_), true) => Meant { is_settled: Some(self.old), leaves: None },
            (Some(_), false) => Meant::default(),
        }
    }
}
