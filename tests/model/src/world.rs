//! The model: what may happen in a state, and what comes of it.

use etcdrun_etcd::etcd::rules::{Gate, Profile};
use stateright::{Model, Property};

use crate::{
    change::Point,
    cluster::{Amiss, Cluster, Release},
    faults::Fault,
    list::{Call, Mask, Slot, slots, with},
    operator::{Act, Life, Meant, OPERATORS, Operator, Pending, Run, Step, Who},
    promises::{Intent, Promise, properties},
    rollout::{Rollout, Turn},
    rules::{Question, Rules, Was},
    scope::{Limits, Scope},
};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub cluster: Cluster,
    pub operators: [Operator; OPERATORS],
    /// The members that each operator does not reach.
    pub cuts: [Mask; OPERATORS],
    pub inventory: Mask,
    /// Members that persons have removed for good.
    pub leaving: Mask,
    pub left: Limits,
    /// A new cluster was begun; the model ends there.
    pub has_begun_anew: bool,
    /// And the one before it could still serve.
    pub has_second_cluster: bool,
    pub broken: Option<Promise>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Happens(Fault),
    /// An operator begins a run, with what it has decided.
    Begins(Who, Run),
    /// The next step of its run.
    Goes(Who),
    /// It asks for a voter where its run would add a learner.
    AddsVoter(Who),
    /// It removes a learner that does not get ready.
    GivesUp(Who),
    /// Its run ends early, and lets go of its locks.
    Dies(Who),
    Resumes(Who),
    /// It hangs in front of a call, and its lock is broken.
    Hangs(Who),
    /// The call comes through after all.
    Lands(Who),
}

/// The model of what a scope covers.
pub struct World {
    pub scope: Scope,
    pub rules: Rules,
}

impl World {
    pub fn new(scope: Scope) -> Self {
        Self { scope, rules: Rules::default() }
    }

    fn begins(&self, state: &State, who: Who, actions: &mut Vec<Action>) {
        let tasks = self.scope.tasks;
        let mut begin = |run: Run| actions.push(Action::Begins(who, run));
        let is_old = |slot: Slot| state.cluster.members[slot].release == Release::Old;
        if tasks.upgrade && slots(state.inventory).any(is_old) {
            let look = self.look(state, who, state.inventory);
            if self.rules.pass(&look, Question::at(Profile::Upgrade, Gate::Begin)) {
                begin(Run::Rollout(Rollout::Upgrade, Turn::Begin));
            }
        }
        for slot in slots(state.inventory).filter(|slot| !state.is_like_an_earlier_one(*slot)) {
            if tasks.restart {
                begin(Run::Rollout(Rollout::Restart(slot), Turn::Begin));
            }
            if tasks.site {
                begin(Run::Rollout(Rollout::Site(slot), Turn::Begin));
            }
            if tasks.replace {
                self.changes(state, who, slot, false).into_iter().for_each(&mut begin);
            }
            if tasks.remove {
                self.changes(state, who, slot, true).into_iter().for_each(&mut begin);
            }
        }
    }

    fn acts(&self, state: &State, who: Who, actions: &mut Vec<Action>) {
        let Operator { run, life } = state.operators[who];
        match (run, life) {
            // Of two that are idle it does not matter which one begins.
            (None, _) if who > 0 && state.operators[..who].iter().any(|other| other.run.is_none()) => {}
            (None, _) if state.left.runs > 0 && self.gets_lock(state, who) => self.begins(state, who, actions),
            (None, _) => {}
            (Some(_), Life::Died) if self.gets_lock(state, who) => actions.push(Action::Resumes(who)),
            (Some(_), Life::Died) => {}
            (Some(_), Life::Hangs(_)) => actions.push(Action::Lands(who)),
            (Some(run), Life::Works) => {
                actions.extend([Action::Goes(who), Action::GivesUp(who)]);
                if self.scope.tasks.add_voter && matches!(run, Run::Change(_, Point::Removed)) {
                    actions.push(Action::AddsVoter(who));
                }
                if state.left.deaths > 0 {
                    actions.push(Action::Dies(who));
                }
                if state.left.hangs > 0 {
                    actions.push(Action::Hangs(who));
                }
            }
        }
    }

    /// The state after an admitted step, with what the step has broken.
    fn after(&self, state: &State, who: Who, step: Step) -> Option<State> {
        let (act, intent) = (step.act, intent(state.operators[who].run));
        let mut next = self.perform(state, who, step)?;
        next.broken = Promise::broken(&state.cluster, act, intent, &next.cluster);
        Some(next)
    }

    fn resume(&self, state: &State, who: Who) -> State {
        let mut next = state.clone();
        let operator = &mut next.operators[who];
        operator.life = Life::Works;
        operator.run = operator.run.map(|run| match run {
            Run::Change(change, point) => Run::Change(change, self.resumed(change, point)),
            Run::Rollout(rollout, Turn::Of { target, stage, before, .. }) => {
                Run::Rollout(rollout, Turn::Of { target, stage, is_resumed: true, before })
            }
            other => other,
        });
        next
    }

    fn hang(&self, state: &State, who: Who) -> Option<State> {
        let step = self.step(state, who)?;
        let Act::Call(call) = step.act else { return None };
        let mut next = state.clone();
        next.left.hangs -= 1;
        next.operators[who].life = Life::Hangs(Pending { call, meant: step.meant });
        Some(next)
    }

    fn lands(&self, state: &State, who: Who) -> Option<State> {
        let Life::Hangs(Pending { call, meant }) = state.operators[who].life else { return None };
        let mut next = state.clone();
        next.operators[who].life = Life::Died;
        if self.is_taken(state, call) {
            next.land(call);
            next.mean(Meant { leaves: meant.leaves, ..Meant::default() });
            next.cluster.settle();
            // What has changed while the call hangs is what the call cannot know. One member is what that costs.
            let is_cost = match call {
                Call::Remove { slot, .. } => state.cluster.is_voter(slot) && !next.cluster.is_voter(slot),
                Call::Promote { slot, .. } => next.cluster.is_voter(slot) && !next.cluster.serves(slot),
                Call::Add { .. } => false,
            };
            if is_cost {
                next.cluster.members[call.slot()].amiss = Amiss::Fault;
            }
            let broken = Promise::broken(&state.cluster, Act::Call(call), Intent::KnownToServe, &next.cluster);
            // Here only etcd is left to refuse. It checks removals, and counts whom it is connected to, also those that have still to
            // catch up; it does not mind a learner.
            let is_promised = |broken: &Promise| match broken {
                Promise::QuorumTaken => matches!(call, Call::Remove { .. }) && !next.cluster.can_agree(),
                broken => *broken != Promise::TwoChanges,
            };
            next.broken = broken.filter(is_promised);
        }
        Some(next)
    }
}

/// What the run knows of the member that it takes out.
fn intent(run: Option<Run>) -> Intent {
    match run {
        Some(Run::Change(change, Point::Served)) if change.was == Was::Alive => Intent::KnownToServe,
        _ => Intent::Other,
    }
}

impl Model for World {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let voters = self.scope.voters;
        vec![State {
            cluster: Cluster::new(voters),
            operators: [Operator::IDLE; OPERATORS],
            cuts: [0; OPERATORS],
            inventory: (0..voters).fold(0, with),
            leaving: 0,
            left: self.scope.limits,
            has_begun_anew: false,
            has_second_cluster: false,
            broken: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.broken.is_some() || state.has_begun_anew {
            return;
        }
        let mut faults = Vec::new();
        Fault::possible(state, self.scope.has_two_locks, &mut faults);
        actions.extend(faults.into_iter().map(Action::Happens));
        (0..OPERATORS).for_each(|who| self.acts(state, who, actions));
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        match action {
            Action::Happens(fault) => Some(fault.happens(state)),
            Action::Begins(who, run) => {
                let mut next = state.clone();
                next.left.runs -= 1;
                next.operators[who] = Operator { run: Some(run), life: Life::Works };
                Some(next)
            }
            Action::Goes(who) => self.after(state, who, self.step(state, who)?),
            Action::AddsVoter(who) => self.after(state, who, self.add_voter(state, who)?),
            Action::GivesUp(who) => self.after(state, who, self.give_up(state, who)?),
            Action::Dies(who) => {
                let mut next = state.clone();
                next.left.deaths -= 1;
                next.kill(who);
                Some(next)
            }
            Action::Resumes(who) => Some(self.resume(state, who)),
            Action::Hangs(who) => self.hang(state, who),
            Action::Lands(who) => self.lands(state, who),
        }
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties()
    }
}
