//! Changes of members: `etcdrun member replace`, `move` and `remove`, from the decision to the end.
//!
//! The decision is that of `membership::Situation`. Copied, since it needs an inventory or reaches hosts: what follows from the decision
//! (`membership::draft`), the tasks of `roles/member`, what `etcd_member` does with the list, and which gates a resumed run passes
//! again.

use etcdrun_etcd::etcd::rules::{Decided, Gate, MemberChange, Profile};

use crate::{
    cluster::{Data, Release},
    list::{Call, Entry, Mask, Slot, has, with, without},
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
    /// How many voters there were.
    pub voters: usize,
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
    /// Its initial settings name these members.
    Learner(Mask),
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
            is_fenced: self.ends == Ends::Guest && gate != Gate::Begin,
            ..Question::at(Profile::Replace, gate)
        }
    }
}

impl World {
    /// What may be decided now about a member, all ways to go on from there.
    pub fn changes(&self, state: &State, who: Who, old: Slot, is_removal: bool) -> Vec<Run> {
        let look = self.look(state, who, state.inventory);
        let Some(decision) = self.rules.decide(&look, old, is_removal) else { return Vec::new() };
        // The next free name is that of a member that the inventory does not have.
        let free = (0..=self.scope.voters).find(|slot| !has(state.inventory, *slot));
        let is_reached = look.reaches(old);
        let ways: Vec<(Option<Slot>, Ends)> = match (is_removal, decision.was) {
            (true, _) if is_reached => vec![(None, Ends::Host)],
            (true, _) => vec![(None, Ends::Guest), (None, Ends::Nothing)],
            (false, Was::Alive) => vec![(free, Ends::Host)],
            (false, _) if is_reached => vec![(Some(old), Ends::Host)],
            (false, _) => vec![(Some(old), Ends::Guest), (free, Ends::Nothing)],
        };
        let change = |(new, ends): (Option<Slot>, Ends)| {
            let rest = without(state.inventory, old);
            let change = Change {
                old,
                new,
                was: decision.was,
                ends,
                well: decision.well,
                is_whole: decision.is_whole,
                after: new.map_or(rest, |new| with(rest, new)),
                voters: state.cluster.voters().count(),
                release: state.cluster.members[decision.via].release,
            };
            let has_leftover = new.is_some_and(|new| has(decision.learners, new));
            Run::Change(change, if has_leftover { Point::Decided } else { Point::Cleared })
        };
        ways.into_iter().filter(|(new, _)| is_removal || new.is_some()).map(change).collect()
    }

    pub fn change_step(&self, state: &State, who: Who, change: Change, point: Point) -> Option<Step> {
        let here = Here { world: self, state, who, change };
        match point {
            Point::Decided => here.clear(),
            Point::Cleared => here.check(),
            Point::Checked => here.retire_dead(),
            Point::Retired => here.remove_dead(),
            Point::Removed => here.add(MemberChange::AddLearner),
            Point::Learner(settings) => here.start(settings),
            Point::Started => here.promote(),
            Point::Promoted => Some(here.to(Act::Forget(change.new?), Point::Joined)),
            Point::Joined => here.see_serving(),
            Point::Served => here.remove_alive(),
            Point::Gone => here.retire_alive(),
            Point::Settling => here.settle(),
        }
    }

    /// Asks for a voter where the run would add a learner.
    pub fn add_voter(&self, state: &State, who: Who) -> Option<Step> {
        let Some(Run::Change(change, Point::Removed)) = state.operators[who].run else { return None };
        let step = Here { world: self, state, who, change }.add(MemberChange::AddVoter)?;
        matches!(step.act, Act::Call(_)).then_some(step)
    }

    /// A learner that does not get ready is removed again, and the run fails.
    pub fn give_up(&self, state: &State, who: Who) -> Option<Step> {
        let Some(Run::Change(change, Point::Started)) = state.operators[who].run else { return None };
        let here = Here { world: self, state, who, change };
        let slot = change.new?;
        let entry = state.cluster.list.of(slot).filter(|entry| entry.is_learner)?;
        let is_hopeless = !here.has_caught_up(slot) && here.is_led(change.during());
        is_hopeless.then(|| Step::new(Act::Call(Call::Remove { slot, generation: entry.generation }), None))
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
}

/// A change, as one operator sees it now.
struct Here<'a> {
    world: &'a World,
    state: &'a State,
    who: Who,
    change: Change,
}

impl Here<'_> {
    fn to(&self, act: Act, point: Point) -> Step {
        Step::new(act, Some(Run::Change(self.change, point)))
    }

    fn pass(&self, asked: Mask, question: Question) -> bool {
        self.world.rules.pass(&self.world.look(self.state, self.who, asked), question)
    }

    fn reaches(&self, slot: Slot) -> bool {
        self.world.reaches(self.state, self.who, slot)
    }

    /// Whether the leader is one of those that are asked, and answers.
    fn is_led(&self, asked: Mask) -> bool {
        self.state.cluster.leader.is_some_and(|leader| has(asked, leader) && self.reaches(leader))
    }

    fn has_caught_up(&self, slot: Slot) -> bool {
        self.state.cluster.runs(slot) && self.state.cluster.members[slot].data == Data::Current
    }

    /// The learner of an earlier attempt goes.
    fn clear(&self) -> Option<Step> {
        let new = self.change.new?;
        if self.state.cluster.is_voter(new) {
            return None;
        }
        Some(self.to(self.absent(self.state, self.change.during(), new, MemberChange::Remove)?, Point::Cleared))
    }

    fn check(&self) -> Option<Step> {
        let holds = |gate: Gate| self.pass(self.change.before(), self.change.gate(gate));
        let then = match (self.change.is_alive(), self.change.new) {
            (false, _) => Point::Checked,
            (true, Some(_)) => Point::Removed,
            (true, None) => Point::Served,
        };
        (holds(Gate::Begin) && holds(Gate::Before)).then(|| self.to(Act::Pass, then))
    }

    /// The gate `stop`.
    fn may_stop(&self) -> bool {
        self.pass(self.change.before(), self.change.gate(Gate::Stop))
    }

    fn retire_dead(&self) -> Option<Step> {
        let old = self.change.old;
        match self.change.ends {
            _ if !self.may_stop() => None,
            Ends::Nothing => self.take_out_dead(),
            Ends::Host if !self.reaches(old) => None,
            Ends::Host | Ends::Guest => Some(self.to(Act::Retire(old), Point::Retired)),
        }
    }

    fn remove_dead(&self) -> Option<Step> {
        if self.may_stop() { self.take_out_dead() } else { None }
    }

    fn take_out_dead(&self) -> Option<Step> {
        let act = self.absent(self.state, self.change.well, self.change.old, MemberChange::Shrink)?;
        let then = if self.change.new.is_some() { Point::Removed } else { Point::Settling };
        Some(Step { meant: self.change.meant_by_removal(), ..self.to(act, then) })
    }

    /// `etcd_member` with `state: absent`. One that is listed as a learner goes unasked.
    fn absent(&self, state: &State, asked: Mask, slot: Slot, change: MemberChange) -> Option<Act> {
        if !self.is_led(asked) {
            return None;
        }
        let Some(entry) = state.cluster.list.of(slot) else { return Some(Act::Pass) };
        let look = self.world.look(state, self.who, asked).named(slot);
        let may_go = entry.is_learner || self.world.rules.may_change(&look, slot, change, self.change.voters);
        may_go.then_some(Act::Call(Call::Remove { slot, generation: entry.generation }))
    }

    /// Data of an earlier attempt is moved aside, and the new member is listed.
    fn add(&self, as_what: MemberChange) -> Option<Step> {
        let (slot, cluster) = (self.change.new?, &self.state.cluster);
        if !self.reaches(slot) {
            return None;
        }
        // Any other data is an error.
        if cluster.members[slot].data != Data::Lost {
            let is_leftover = cluster.members[slot].is_joining && self.is_no_voter(slot);
            return is_leftover.then(|| self.to(Act::Retire(slot), Point::Removed));
        }
        if cluster.list.has(slot) {
            return Some(self.to(Act::Pass, Point::Learner(cluster.list.mask())));
        }
        let during = self.change.during();
        let look = self.world.look(self.state, self.who, during).named(slot);
        let may_join = self.is_led(during) && self.world.rules.may_change(&look, slot, as_what, self.change.voters);
        let call = Call::Add { slot, is_learner: as_what != MemberChange::AddVoter };
        may_join.then(|| self.to(Act::Call(call), Point::Learner(with(cluster.list.mask(), slot))))
    }

    /// The gate before data of an earlier attempt is moved aside.
    fn is_no_voter(&self, slot: Slot) -> bool {
        self.pass(self.change.during(), gone(slot))
    }

    fn start(&self, settings: Mask) -> Option<Step> {
        let (new, cluster) = (self.change.new?, &self.state.cluster);
        let entry = cluster.list.of(new).filter(|_| self.reaches(new))?;
        let act = match entry {
            _ if cluster.runs(new) => Act::Pass,
            _ if cluster.is_own(new) => Act::Start(new, self.change.release),
            entry if is_wiped_voter(entry) => return None,
            // etcd does not start for the first time with other members than there are.
            _ if settings != cluster.list.mask() => return None,
            _ => Act::Join(new, self.change.release),
        };
        Some(self.to(act, Point::Started))
    }

    /// `etcd_member` with `state: voter`.
    fn promote(&self) -> Option<Step> {
        let (slot, during) = (self.change.new?, self.change.during());
        let entry = self.state.cluster.list.of(slot).filter(|_| self.is_led(during))?;
        if !entry.is_learner {
            return Some(self.to(Act::Pass, Point::Promoted));
        }
        let look = self.world.look(self.state, self.who, during).named(slot);
        let is_ready = self.reaches(slot) && self.has_caught_up(slot);
        let may_vote = is_ready && self.world.rules.may_change(&look, slot, MemberChange::Promote, self.change.voters);
        let call = Call::Promote { slot, generation: entry.generation };
        let meant = self.change.meant_by_promotion();
        may_vote.then(|| Step { meant, ..self.to(Act::Call(call), Point::Promoted) })
    }

    fn see_serving(&self) -> Option<Step> {
        let question = Question {
            target: self.change.new,
            before: Some(self.state.cluster.list),
            ..Question::at(Profile::Replace, Gate::After)
        };
        let then = if self.change.is_alive() { Point::Served } else { Point::Settling };
        self.pass(self.change.during(), question).then(|| self.to(Act::Pass, then))
    }

    fn remove_alive(&self) -> Option<Step> {
        let (old, during) = (self.change.old, self.change.during());
        let led = self.world.led_by_another(self.state, self.who, during, old)?;
        let removal = if self.change.new.is_some() { MemberChange::RemoveReplaced } else { MemberChange::Shrink };
        let act = self.absent(&led, during, old, removal)?;
        Some(Step { meant: self.change.meant_by_removal(), ..self.to(act, Point::Gone) })
    }

    fn retire_alive(&self) -> Option<Step> {
        let old = self.change.old;
        let may_stop = self.pass(self.change.after, gone(old)) && self.reaches(old);
        may_stop.then(|| self.to(Act::Retire(old), Point::Settling))
    }

    fn settle(&self) -> Option<Step> {
        let is_settled = self.pass(self.change.after, Question::at(Profile::Replace, Gate::Settled));
        let step = Step { inventory: Some(self.change.after), ..Step::new(Act::Pass, None) };
        (!self.change.is_whole || is_settled).then_some(step)
    }
}

/// The gate `stop` for a member that was no voter when this was decided.
fn gone(slot: Slot) -> Question {
    Question { target: Some(slot), decided: Some(Decided::Gone), ..Question::at(Profile::Replace, Gate::Stop) }
}

/// A voter without its data, which would forget what it has agreed to.
fn is_wiped_voter(entry: Entry) -> bool {
    !entry.is_learner && entry.has_started
}

impl Change {
    fn meant_by_promotion(&self) -> Meant {
        let takes_place = self.new != Some(self.old) && !self.is_alive();
        Meant { is_settled: takes_place.then_some(self.old), leaves: None }
    }

    fn meant_by_removal(&self) -> Meant {
        match (self.new, self.is_alive()) {
            (None, _) => Meant { is_settled: Some(self.old), leaves: Some(self.old) },
            (Some(_), true) => Meant { is_settled: Some(self.old), leaves: None },
            (Some(_), false) => Meant::default(),
        }
    }
}
