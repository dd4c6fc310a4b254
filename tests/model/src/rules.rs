//! Asks the real rules, and the real decisions about members. Both are pure, so each question is asked once.

use std::{
    collections::{BTreeSet, HashMap},
    hash::Hash,
    sync::{Mutex, PoisonError},
};

use etcdrun_etcd::{
    etcd::rules::{
        Answer, Consent, Decided, Finding, Gate, MemberChange, Profile, Situation, SnapshotSeen, Step, Verdict, judge,
        judge_restart,
    },
    membership::{self, Condition, Request, Verb},
};

use crate::{
    list::{List, Mask, SLOTS, Slot, name, with},
    look::{Look, NEW, OLD, peer_url},
};

/// What is asked of the rules, and about what.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    pub profile: Profile,
    pub gate: Gate,
    pub target: Option<Slot>,
    pub change: Option<MemberChange>,
    pub decided: Option<Decided>,
    /// The list as it was before the member in turn was touched.
    pub before: Option<List>,
    /// The guest of the member in turn is powered off first.
    pub is_fenced: bool,
}

impl Question {
    pub fn at(profile: Profile, gate: Gate) -> Self {
        Self { profile, gate, target: None, change: None, decided: None, before: None, is_fenced: false }
    }

    fn key(&self, kind: Kind) -> Key {
        let change = self.change.map(|change| change as u8);
        let decided = self.decided.map(|decided| decided as u8);
        (kind, (self.profile, self.gate), self.target, (change, decided), self.before, self.is_fenced)
    }
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    /// `etcd_gate`
    Gate,
    /// `etcd_service`, before any restart
    Restart,
    /// `etcd_member`, before it changes the list; and how many voters there were when that was decided
    Step(usize),
}

type Key = (Kind, (Profile, Gate), Option<Slot>, (Option<u8>, Option<u8>), Option<List>, bool);

/// What a member was found to be, for who decides about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Was {
    Alive,
    Dead,
    Gone,
}

/// What `etcdrun member` finds out before anything is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    pub was: Was,
    /// Through whom the cluster is spoken to.
    pub via: Slot,
    /// The voters that are well.
    pub well: Mask,
    /// Whether all voters that stay are.
    pub is_whole: bool,
    pub learners: Mask,
}

#[derive(Default)]
pub struct Rules {
    answers: Memory<(Look, Key), bool>,
    decisive: Mutex<BTreeSet<&'static str>>,
    decisions: Memory<(Look, Slot, bool), Option<Decision>>,
}

impl Rules {
    /// Whether `etcd_gate` passes.
    pub fn pass(&self, look: &Look, question: Question) -> bool {
        self.answers.of((look.clone(), question.key(Kind::Gate)), || {
            self.is_clear(at_gate(look, question).against().map(|finding| finding.rule))
        })
    }

    /// Whether `etcd_service` may restart a member that runs.
    pub fn may_restart(&self, look: &Look, target: Slot) -> bool {
        let question = Question { target: Some(target), ..Question::at(Profile::Restart, Gate::Stop) };
        self.answers.of((look.clone(), question.key(Kind::Restart)), || {
            let (now, names, target) = (look.observation(), look.names(), name(target));
            let verdict = judge_restart(&Situation { target: Some(&target), ..Situation::new(&names, &now) });
            self.is_clear(verdict.against().map(|finding| finding.rule))
        })
    }

    /// Whether `etcd_member` may change the list. What only hosts know is not asked there.
    pub fn may_change(&self, look: &Look, target: Slot, change: MemberChange, voters_then: usize) -> bool {
        let question =
            Question { target: Some(target), change: Some(change), ..Question::at(Profile::Replace, Gate::Before) };
        self.answers.of((look.clone(), question.key(Kind::Step(voters_then))), || {
            let (now, names, target) = (look.observation(), look.names(), name(target));
            let consent = Consent { no_snapshot: true, outage: true, ..Consent::default() };
            let situation = Situation {
                target: Some(&target),
                change: Some(change),
                voters_then: Some(voters_then),
                consent,
                planning: true,
                ..Situation::new(&names, &now)
            };
            let gates: &[Gate] = if change.removes() { &[Gate::Before, Gate::Stop] } else { &[Gate::Before] };
            let verdicts: Vec<Verdict> = gates.iter().map(|gate| judge(Profile::Replace, *gate, &situation)).collect();
            let refused = verdicts.iter().flat_map(Verdict::against).filter(|finding| is_refused(finding));
            self.is_clear(refused.map(|finding| finding.rule))
        })
    }

    /// Whether nothing is against it. If it is one rule alone, everything depends on that rule.
    fn is_clear(&self, against: impl Iterator<Item = &'static str>) -> bool {
        let against: BTreeSet<&'static str> = against.collect();
        if against.len() == 1 {
            self.decisive.lock().unwrap_or_else(PoisonError::into_inner).extend(&against);
        }
        against.is_empty()
    }

    /// Rules that were at some time the only one to refuse. Without any other rule the search would have been the same.
    pub fn decisive(&self) -> BTreeSet<&'static str> {
        self.decisive.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What `etcdrun member` finds, if it does not refuse.
    pub fn decide(&self, look: &Look, old: Slot, is_removal: bool) -> Option<Decision> {
        self.decisions.of((look.clone(), old, is_removal), || decide(look, old, is_removal))
    }
}

fn is_refused(finding: &Finding) -> bool {
    matches!(finding.answer, Answer::Refused { .. })
}

/// Asks as `etcd_gate` does: hosts are looked at where it looks at them.
fn at_gate(look: &Look, question: Question) -> Verdict {
    let (now, names, peers) = (look.observation(), look.names(), look.peers());
    let looks_at_hosts = matches!(question.gate, Gate::Before | Gate::Stop);
    let hosts = if looks_at_hosts { look.hosts() } else { Vec::new() };
    let data = (question.gate == Gate::Begin).then(|| look.data());
    let before = question.before.map(|list| Look::of_list(&list).observation());
    let target = question.target.map(name);
    let upgrades = question.profile == Profile::Upgrade && question.gate != Gate::Begin;
    let situation = Situation {
        peers: &peers,
        client_port: Some(2379),
        before: before.as_ref(),
        target: target.as_deref(),
        mark: now.mark(),
        step: upgrades.then_some(Step { from: OLD, to: NEW }),
        hosts: &hosts,
        snapshot: Some(SnapshotSeen { size: (1 << 20) + 32, sum_matches: true, age: None }),
        data: data.as_ref(),
        change: question.change,
        decided: question.decided,
        consent: Consent { fenced: question.is_fenced, ..Consent::default() },
        ..Situation::new(&names, &now)
    };
    judge(question.profile, question.gate, &situation)
}

fn decide(look: &Look, old: Slot, is_removal: bool) -> Option<Decision> {
    let situation = membership::Situation {
        cluster: "prod".to_owned(),
        observation: look.observation(),
        unreachable: look.unreachable(),
    };
    let old = name(old);
    let request = Request {
        verb: if is_removal { Verb::Remove } else { Verb::Replace },
        old: Some(old.clone()),
        new_name: None,
        to: None,
        ip: None,
        fence_unreachable: false,
        snapshot: true,
        allow_outage: false,
    };
    situation.check(&request).ok()?;
    let was = match situation.condition(&old) {
        Condition::Alive => Was::Alive,
        Condition::Dead(_) => Was::Dead,
        Condition::Gone => Was::Gone,
    };
    let (_, well) = situation.voters();
    let mut others = situation.observation.voters().filter(|voter| voter.name != old);
    let is_whole = others.all(|voter| well.contains(&voter.name.as_str()));
    let via = situation.via(Some(&old)).or_else(|| situation.via(None))?;
    let mask = |is_meant: &dyn Fn(Slot) -> bool| (0..SLOTS).filter(|slot| is_meant(*slot)).fold(0, with);
    Some(Decision {
        was,
        via: (0..SLOTS).find(|slot| name(*slot) == via)?,
        well: mask(&|slot| well.contains(&name(slot).as_str())),
        is_whole,
        learners: mask(&|slot| situation.has_learner(&name(slot), &peer_url(slot))),
    })
}

/// Answers that were given before.
struct Memory<K, V>(Mutex<HashMap<K, V>>);

impl<K, V> Default for Memory<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, V: Copy> Memory<K, V> {
    fn of(&self, key: K, ask: impl FnOnce() -> V) -> V {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *known.entry(key).or_insert_with(ask)
    }
}
