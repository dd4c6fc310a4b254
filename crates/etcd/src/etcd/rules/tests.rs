//! Each rule with a situation that it alone refuses; and all of them with a cluster that is well.

use std::process::{Command, Stdio};

use super::{
    super::{
        agree::{Agreement, KeysHash},
        observe::{Alarm, AlarmKind, Listed, Observation, Seen, View},
    },
    *,
};
use crate::model::Version;

/// A cluster, and what is known beside it. Its first member is in turn, its last one leads.
struct World {
    members: Vec<String>,
    peers: Vec<(String, String)>,
    client_port: u16,
    now: Observation,
    before: Observation,
    hosts: Vec<HostSeen>,
    target: String,
    along: Vec<String>,
    mark: u64,
    step: Option<Step>,
    snapshot: Option<SnapshotSeen>,
    data: Agreement,
    change: Option<MemberChange>,
    decided: Option<Decided>,
    consent: Consent,
}

fn version(text: &str) -> Version {
    text.parse().unwrap()
}

fn step(from: &str, to: &str) -> Option<Step> {
    Some(Step { from: version(from), to: version(to) })
}

impl World {
    /// All is well, on the way from one version to another, at that gate.
    fn on_the_way(gate: Gate, members: u64, from: &str, to: &str) -> Self {
        let names: Vec<String> = (1..=members).map(|number| format!("etcd-{number}")).collect();
        let listed = |id: u64| Listed {
            id,
            name: format!("etcd-{id}"),
            peer_urls: vec![format!("https://10.0.0.{id}:2380")],
            is_learner: false,
        };
        let list: Vec<Listed> = (1..=members).map(listed).collect();
        let view = |id: u64, runs: Version, cluster: Version| View {
            id,
            cluster_id: 77,
            version: runs,
            cluster_version: Some(cluster.series()),
            storage_version: (runs.series() >= (3, 6)).then_some(cluster.series()),
            downgrade: None,
            leader: Some(members),
            term: 4,
            counted: None,
            raft_index: 1000,
            applied_index: 1000,
            revision: 900,
            db_size: 1 << 20,
            db_in_use: 1 << 19,
            quota: None,
            is_learner: false,
            alarms: Vec::new(),
            complaints: Vec::new(),
            list: Ok(list.clone()),
            read: Ok(()),
            lacks_majority: false,
        };
        let look = |gate: Gate| {
            let cluster = if gate == Gate::Settled { version(to) } else { version(from) };
            let runs = |id: u64| match gate {
                Gate::Settled => version(to),
                Gate::After if id == 1 => version(to),
                _ => version(from),
            };
            let seen = |id: u64| Seen { name: format!("etcd-{id}"), answer: Ok(view(id, runs(id), cluster)) };
            Observation { members: (1..=members).map(seen).collect(), auth: Some(false) }
        };
        let sum = "ab".repeat(32);
        let release = ReleaseSeen { path: "/opt/etcd".into(), sha256: Some(sum.clone()), wanted: sum };
        let host = |name: &String| HostSeen {
            name: name.clone(),
            unreachable: None,
            answers_others: Some(true),
            clock: Some((5, 10)),
            rooms: vec![Room { path: "/var/lib/etcd".into(), free: 2 << 20, needed: 1 << 20, what: "a copy".into() }],
            release: Some(release.clone()),
            strict_reconfig: Some(true),
            is_stopped: false,
            next_peers: None,
            unreached: Vec::new(),
            client_urls: vec![
                format!("https://10.0.0.{}:2379", name.trim_start_matches("etcd-")),
                "https://127.0.0.1:2379".into(),
            ],
        };
        let peers = (1..=members).map(|id| (format!("etcd-{id}"), format!("https://10.0.0.{id}:2380"))).collect();
        Self {
            hosts: names.iter().map(host).collect(),
            peers,
            client_port: 2379,
            members: names,
            now: look(gate),
            before: look(Gate::Before),
            target: "etcd-1".into(),
            along: Vec::new(),
            mark: 990,
            step: step(from, to),
            snapshot: Some(SnapshotSeen { size: (1 << 20) + 32, sum_matches: true, age: None }),
            data: Agreement {
                revision: 900,
                members: (1..=members).map(|id| (format!("etcd-{id}"), Ok(HASH))).collect(),
            },
            change: None,
            decided: None,
            consent: Consent::default(),
        }
    }

    fn situation(&self) -> Situation<'_> {
        Situation {
            peers: &self.peers,
            client_port: Some(self.client_port),
            before: Some(&self.before),
            target: Some(&self.target),
            along: &self.along,
            mark: Some(self.mark),
            step: self.step,
            hosts: &self.hosts,
            snapshot: self.snapshot,
            data: Some(&self.data),
            change: self.change,
            decided: self.decided,
            consent: self.consent,
            ..Situation::new(&self.members, &self.now)
        }
    }

    /// What a member says, to be changed.
    fn view(&mut self, member: usize) -> &mut View {
        self.now.members[member - 1].answer.as_mut().unwrap()
    }

    fn silence(&mut self, member: usize) {
        self.now.members[member - 1].answer = Err("no route to host".into());
    }

    fn every_view(&mut self, change: impl Fn(&mut View)) {
        self.now.members.iter_mut().for_each(|seen| change(seen.answer.as_mut().unwrap()));
    }

    fn alarm(&mut self, kind: AlarmKind) {
        self.every_view(|view| view.alarms.push(Alarm { member: 2, kind: kind.clone() }));
    }
}

const HASH: KeysHash = KeysHash { hash: 7, compact_revision: 0 };
const FROM: &str = "3.5.34";
const TO: &str = "3.6.15";

/// A rule, and where it alone stands against something.
struct Case {
    rule: &'static str,
    profile: Profile,
    gate: Gate,
    members: u64,
    /// How the world is, and what is wrong with it.
    world: fn(&mut World),
}

const fn case(rule: &'static str, profile: Profile, gate: Gate, members: u64, world: fn(&mut World)) -> Case {
    Case { rule, profile, gate, members, world }
}

/// The same cluster, with all members on another version, going on to yet another one.
fn all_run(world: &mut World, from: &str, to: &str) {
    let members = world.members.len().try_into().unwrap();
    let fresh = World::on_the_way(Gate::Before, members, from, to);
    (world.now, world.step) = (fresh.now, fresh.step);
}

static CASES: &[Case] = {
    use Gate::{After, Back, Before, Begin, Settled, Stop};
    use Profile::{Certificate, Nospace, Replace, Restart, Upgrade};
    &[
        case("reachable", Certificate, Before, 3, |world| world.hosts[1].unreachable = Some("timed out".into())),
        case("answers", Upgrade, Before, 5, |world| world.silence(3)),
        case("one-leader", Upgrade, Before, 5, |world| {
            world.view(4).leader = Some(2);
            world.view(4).term = 3;
        }),
        case("members-agree", Upgrade, Before, 3, |world| {
            world.view(2).list.as_mut().unwrap()[0].peer_urls = vec!["https://10.9.9.9:2380".into()];
        }),
        case("raft-agrees", Upgrade, Before, 3, |world| {
            world.view(3).counted = Some(["1", "2", "4"].map(str::to_owned).into());
        }),
        case("members-known", Upgrade, Before, 3, |world| world.members.push("etcd-9".into())),
        case("addresses-known", Upgrade, Before, 3, |world| world.peers[1].1 = "https://10.0.0.2:12380".into()),
        case("address-at-start", Restart, Stop, 3, |world| {
            world.hosts[0].next_peers = Some(vec!["https://10.0.0.1:12380".into()]);
        }),
        case("peer-ports", Restart, Before, 3, |world| world.hosts[1].unreached = vec!["etcd-1".into()]),
        case("client-port", Restart, Before, 3, |world| {
            world.hosts[2].client_urls = vec!["https://10.0.0.3:4001".into()];
        }),
        case("client-address", Restart, Before, 3, |world| world.hosts[2].client_urls.remove(0).clear()),
        case("members-started", Upgrade, Before, 5, |world| {
            let new = Listed {
                id: 9,
                name: String::new(),
                peer_urls: vec!["https://10.0.0.9:2380".into()],
                is_learner: false,
            };
            world.every_view(|view| view.list.as_mut().unwrap().push(new.clone()));
            world.members.push("etcd-6".into());
        }),
        case("members-unchanged", Upgrade, After, 3, |world| {
            world.every_view(|view| drop(view.list.as_mut().unwrap().pop()));
        }),
        case("no-learner", Restart, Before, 5, |world| {
            world.every_view(|view| view.list.as_mut().unwrap()[2].is_learner = true);
            world.view(3).is_learner = true;
        }),
        case("no-alarm", Upgrade, Before, 3, |world| world.alarm(AlarmKind::Nospace)),
        case("no-corrupt", Nospace, Before, 3, |world| world.alarm(AlarmKind::Corrupt)),
        case("no-new-alarm", Restart, After, 3, |world| {
            world.step = None;
            world.before.members[0].answer = world.now.members[0].answer.clone();
            world.alarm(AlarmKind::Nospace);
        }),
        case("linearizable-read", Nospace, Before, 5, |world| world.view(3).read = Err("no quorum".into())),
        case("quorum-now", Replace, Before, 5, |world| {
            world.change = Some(MemberChange::Promote);
            (3..=5).for_each(|member| world.silence(member));
        }),
        case("quorum-after", Upgrade, Stop, 3, |world| world.view(2).read = Err("too slow".into())),
        case("small-cluster", Restart, Before, 2, |_| {}),
        case("caught-up", Restart, Before, 5, |world| world.view(3).applied_index = 12),
        case("leader-off", Upgrade, Stop, 3, |world| world.target = "etcd-3".into()),
        case("clock", Restart, Before, 3, |world| world.hosts[2].clock = Some((10_000, 10))),
        case("disk-room", Upgrade, Before, 3, |world| world.hosts[0].rooms[0].free = 1),
        case("binary-verified", Upgrade, Before, 3, |world| {
            world.hosts[0].release.as_mut().unwrap().sha256 = Some("cd".repeat(32));
        }),
        case("strict-reconfig", Restart, Before, 3, |world| world.hosts[1].strict_reconfig = Some(false)),
        case("unreachable-is-not-dead", Replace, Before, 3, |world| {
            world.hosts[0].unreachable = Some("timed out".into());
            world.silence(1);
        }),
        case("snapshot-verified", Upgrade, Before, 3, |world| {
            world.snapshot = Some(SnapshotSeen { size: 1 << 20, sum_matches: false, age: None });
        }),
        case("data-agrees", Upgrade, Begin, 3, |world| {
            world.data.members[1].1 = Ok(KeysHash { hash: 8, ..HASH });
        }),
        case("versions-expected", Upgrade, After, 3, |world| world.view(1).version = version(FROM)),
        case("one-minor", Upgrade, Before, 3, |world| world.step = step(FROM, "3.7.2")),
        case("forbidden-3.5.0", Upgrade, Before, 3, |world| world.step = step(FROM, "3.5.2")),
        case("floor-3.5", Upgrade, Before, 3, |world| all_run(world, "3.4.45", "3.5.20")),
        case("floor-3.6", Upgrade, Before, 3, |world| world.step = step(FROM, "3.6.5")),
        case("patch-3.5-first", Upgrade, Before, 3, |world| all_run(world, "3.5.31", TO)),
        case("patch-3.6-first", Upgrade, Before, 3, |world| all_run(world, "3.6.10", "3.7.2")),
        case("auth-3.4", Upgrade, Before, 3, |world| {
            all_run(world, "3.4.45", FROM);
            world.now.auth = Some(true);
        }),
        case("cluster-version", Upgrade, Settled, 3, |world| world.view(2).cluster_version = Some((3, 5))),
        case("storage-version", Upgrade, Settled, 3, |world| world.view(2).storage_version = Some((3, 5))),
        case("downgrade-enabled", Upgrade, Before, 3, |world| all_run(world, TO, FROM)),
        case("way-back", Upgrade, Back, 3, |world| world.view(2).cluster_version = Some((3, 6))),
        case("no-downgrade", Upgrade, Before, 3, |world| {
            all_run(world, TO, "3.7.2");
            world.every_view(|view| {
                view.downgrade = Some((3, 5));
                (view.cluster_version, view.storage_version) = (Some((3, 5)), Some((3, 5)));
            });
        }),
        case("patch-before-replace", Replace, Before, 3, |world| all_run(world, "3.5.10", TO)),
        case("learners-only", Replace, Before, 3, |world| world.change = Some(MemberChange::AddVoter)),
        case("dead-goes-first", Replace, Before, 5, |world| {
            world.change = Some(MemberChange::AddLearner);
            world.silence(4);
        }),
        case("as-decided", Replace, Stop, 3, |world| {
            world.change = Some(MemberChange::Remove);
            world.decided = Some(Decided::Dead);
        }),
        case("live-goes-last", Replace, Before, 3, |world| world.change = Some(MemberChange::Remove)),
    ]
};

impl Case {
    fn world(&self) -> World {
        let mut world = World::on_the_way(self.gate, self.members, FROM, TO);
        (self.world)(&mut world);
        world
    }
}

#[test]
fn every_rule_has_a_case_and_counts_somewhere() {
    let cases: Vec<&str> = CASES.iter().map(|case| case.rule).collect();
    let ids: Vec<&str> = RULES.iter().map(|rule| rule.id).collect();
    assert_eq!(cases, ids);
    for rule in RULES {
        assert!(everywhere().any(|(profile, gate)| rule.is_asked(profile, gate)), "{}", rule.id);
    }
    for (place, gate) in Gate::ALL.into_iter().enumerate() {
        assert_eq!(gate as usize, place, "rows keep their profiles in this order");
    }
}

/// How docs/gates.md writes a profile or a gate: as a playbook does.
fn word(value: impl serde::Serialize) -> String {
    serde_json::to_value(value).unwrap().as_str().unwrap().to_owned()
}

/// The row of docs/gates.md.
fn documented(rule: &Rule) -> String {
    let asked = |gate: Gate| {
        let profiles = Profile::ALL.into_iter().filter(|profile| rule.is_asked(*profile, gate));
        let profiles: Vec<String> = profiles.map(word).collect();
        (!profiles.is_empty()).then(|| format!("{}: {}", word(gate), profiles.join(", ")))
    };
    let asked: Vec<String> = Gate::ALL.into_iter().filter_map(asked).collect();
    let waiting = match rule.waiting {
        Waiting::Helps => "yes".to_owned(),
        Waiting::Useless => "no".to_owned(),
        Waiting::HelpsFor(limit) => format!("for {} seconds", limit.as_secs()),
        Waiting::UselessAt(gate) => format!("yes, except at `{}`", word(gate)),
    };
    format!("| `{}` | {} | {} | {waiting} |\n", rule.id, rule.demands, asked.join("; "))
}

#[test]
fn a_gate_waits_only_for_what_may_change() {
    let finding = |id: &str, answer: Answer| {
        let rule = RULES.iter().find(|rule| rule.id == id).unwrap();
        Finding { rule: rule.id, answer, waiting: rule.waiting, about_outage: rule.about_outage }
    };
    let refused = |id: &str| finding(id, Answer::refused("", ""));
    let waits = |id: &str, gate: Gate, seconds: u64| refused(id).may_change(gate, Duration::from_secs(seconds));
    assert!(waits("answers", Gate::After, 3600));
    assert!(!waits("disk-room", Gate::Before, 0));
    assert!(waits("clock", Gate::Before, 29) && !waits("clock", Gate::Before, 30));
    assert!(!waits("no-alarm", Gate::Before, 0) && waits("no-alarm", Gate::Settled, 0));
    assert!(!finding("answers", Answer::unknown("")).may_change(Gate::After, Duration::ZERO));
}

#[test]
fn every_rule_is_documented() {
    let page = include_str!("../../../../../docs/gates.md");
    for rule in RULES {
        assert!(page.contains(&documented(rule)), "docs/gates.md lacks this row:\n{}", documented(rule));
    }
    let rows: String = RULES.iter().map(documented).collect();
    let head = "| rule | demands | gates and profiles | waiting helps |\n|---|---|---|---|\n";
    assert!(page.contains(&format!("{head}{rows}\n")), "docs/gates.md has other rows, or another order:\n{rows}");
    let rows: String = [RELEASE_KNOWN, CLIENT_COMPAT, NO_V2_CONTENT]
        .iter()
        .map(|rule| format!("| `{}` | {} |\n", rule.id, rule.demands))
        .collect();
    assert!(page.contains(&format!("| rule | demands |\n|---|---|\n{rows}\n")), "{rows}");
}

#[test]
fn every_rule_has_an_entry_that_says_what_to_do() {
    let page = include_str!("../../../../../docs/refusals.md");
    for rule in RULES {
        assert!(page.contains(&format!("\n| `{}` | ", rule.id)), "{}", rule.id);
    }
}

#[test]
fn what_is_advised_can_be_typed_as_it_is() {
    for case in CASES {
        let mut world = World::on_the_way(case.gate, case.members, FROM, TO);
        (case.world)(&mut world);
        let situation = Situation { cluster: "prod", ..world.situation() };
        let verdict = judge(case.profile, case.gate, &situation);
        for finding in verdict.against().filter(|finding| finding.rule == case.rule) {
            if let Answer::Refused { way_out, .. } = &finding.answer {
                assert!(!way_out.contains("CLUSTER"), "{}: {way_out}", case.rule);
            }
        }
    }
}

#[test]
fn the_command_that_was_refused_is_advised_with_the_word_that_allows_it() {
    let told = |command: &str| {
        let world = World::on_the_way(Gate::Before, 1, FROM, FROM);
        let situation = Situation { cluster: "prod", command, ..world.situation() };
        judge(Profile::Restart, Gate::Before, &situation).told()
    };
    let playbook = told("etcdrun playbook reboot.yaml -l prod");
    assert!(playbook.contains("run `etcdrun playbook reboot.yaml -l prod -e rollout_allow_outage=true`"), "{playbook}");
    let verb = told("etcdrun member restart etcd-1");
    assert!(verb.contains("run `etcdrun member restart etcd-1 --allow-outage`"), "{verb}");
    let saved = told("etcdrun playbook --plan p");
    assert!(saved.contains("run the playbook with `-e rollout_allow_outage=true`"), "{saved}");
}

fn everywhere() -> impl Iterator<Item = (Profile, Gate)> {
    Profile::ALL.into_iter().flat_map(|profile| Gate::ALL.map(|gate| (profile, gate)))
}

#[test]
fn a_cluster_that_is_well_passes_every_gate() {
    for (profile, gate) in everywhere() {
        let mut world = World::on_the_way(gate, 3, FROM, TO);
        if profile != Profile::Upgrade {
            world = World::on_the_way(gate, 3, TO, TO);
            world.step = None;
        }
        let verdict = judge(profile, gate, &world.situation());
        assert!(verdict.holds(), "{profile:?} {gate:?}:\n{}", verdict.told());
    }
}

/// The one that has to fail if a rule is switched off: see the test behind it.
#[test]
fn every_rule_refuses_what_it_is_there_for() {
    for case in CASES {
        let world = case.world();
        let verdict = judge(case.profile, case.gate, &world.situation());
        let against: Vec<&str> = verdict.against().map(|finding| finding.rule).collect();
        assert_eq!(against, [case.rule], "{}:\n{}", case.rule, verdict.told());
        assert!(matches!(verdict.against().next().unwrap().answer, Answer::Refused { .. }), "{}", verdict.told());
    }
}

#[test]
fn without_its_rule_each_situation_is_let_through() {
    for case in CASES {
        let world = case.world();
        let verdict = judge_without(Some(case.rule), case.profile, case.gate, &world.situation());
        assert!(verdict.holds(), "{}:\n{}", case.rule, verdict.told());
    }
}

#[test]
fn the_test_of_each_rule_fails_once_that_rule_is_switched_off() {
    let this = std::env::current_exe().unwrap();
    let test = "etcd::rules::tests::every_rule_refuses_what_it_is_there_for";
    let run = |rule: &'static Rule| {
        let mut command = Command::new(&this);
        command.args([test, "--exact"]).env("ETCDRUN_TEST_OFF", rule.id).env("RUST_BACKTRACE", "0");
        (rule, command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    };
    let running: Vec<_> = RULES.iter().map(run).collect();
    for (rule, child) in running {
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(&format!("{}:", rule.id)), "{}:\n{text}", rule.id);
    }
}

#[test]
fn a_snapshot_of_yesterday_does_not_count() {
    let verdict = |minutes: u64| {
        let mut world = World::on_the_way(Gate::Before, 3, FROM, TO);
        let age = std::time::Duration::from_secs(minutes * 60);
        world.snapshot.as_mut().unwrap().age = Some(age);
        judge(Profile::Upgrade, Gate::Before, &world.situation())
    };
    assert!(verdict(59).holds(), "{}", verdict(59).told());
    let old = verdict(26 * 60).told();
    assert!(old.starts_with("snapshot-verified: the snapshot is 1560 minutes old, and 60 is the limit"), "{old}");
}

#[test]
fn data_that_differs_is_told_with_who_has_it() {
    let verdict = |profile: Profile, hashes: &[Result<u32, &str>]| {
        let mut world = World::on_the_way(Gate::Begin, hashes.len().try_into().unwrap(), FROM, TO);
        for (member, hash) in world.data.members.iter_mut().zip(hashes) {
            member.1 = hash.map(|hash| KeysHash { hash, ..HASH }).map_err(str::to_owned);
        }
        judge(profile, Gate::Begin, &world.situation())
    };
    let told = verdict(Profile::Upgrade, &[Ok(1), Ok(1), Ok(2)]).told();
    assert!(told.contains("etcd-1 and etcd-2 (00000001), etcd-3 (00000002)"), "{told}");
    assert!(told.contains("`etcdrun member replace etcd-3`"), "{told}");
    // Whoever is replaced may have something else, or tell nothing.
    for own in [Ok(9), Err("no route to host")] {
        assert!(verdict(Profile::Replace, &[own, Ok(1), Ok(1)]).holds());
    }
    let told = verdict(Profile::Replace, &[Ok(1), Ok(1), Err("no route to host")]).told();
    assert!(told.contains("etcd-3 does not report the hash"), "{told}");
    let told = verdict(Profile::Upgrade, &[Ok(1), Ok(2)]).told();
    assert!(told.contains("a majority must agree"), "{told}");
}

#[test]
fn a_dead_member_of_an_old_3_5_can_be_replaced() {
    let against = |prepare: fn(&mut World)| -> Vec<&'static str> {
        let mut world = World::on_the_way(Gate::Before, 3, "3.5.16", "3.5.16");
        world.hosts[0].answers_others = Some(false);
        prepare(&mut world);
        let verdict = judge(Profile::Replace, Gate::Before, &world.situation());
        verdict.against().map(|finding| finding.rule).collect()
    };
    let old = ["patch-before-replace"];
    // All of it is healthy: then it is upgraded first.
    assert_eq!(against(|world| world.change = Some(MemberChange::AddLearner)), old);
    assert_eq!(against(|world| world.change = Some(MemberChange::Shrink)), old);
    // The dead one goes, as the gate sees it, and as the step itself does, which asks only the others.
    assert_eq!(against(|world| world.silence(1)), [""; 0]);
    assert_eq!(
        against(|world| {
            drop(world.now.members.remove(0));
            world.change = Some(MemberChange::Remove);
        }),
        [""; 0]
    );
    // It is out, and the next one is about to join, and to get its vote.
    assert_eq!(
        against(|world| {
            world.every_view(|view| drop(view.list.as_mut().unwrap().remove(0)));
            world.silence(1);
            world.change = Some(MemberChange::AddLearner);
            world.consent.outage = true;
        }),
        [""; 0]
    );
    assert_eq!(against(|world| world.change = Some(MemberChange::Promote)), [""; 0]);
}

#[test]
fn a_guest_that_serves_is_not_powered_off() {
    let verdict = |answers_others: Option<bool>| {
        let mut world = World::on_the_way(Gate::Before, 3, FROM, FROM);
        world.hosts[0].unreachable = Some("timed out".into());
        world.hosts[0].answers_others = answers_others;
        world.consent.fenced = true;
        world.silence(1);
        world.change = Some(MemberChange::Remove);
        judge(Profile::Replace, Gate::Before, &world.situation())
    };
    assert!(verdict(Some(true)).told().contains("it has not failed"), "{}", verdict(Some(true)).told());
    for dead in [Some(false), None] {
        assert!(verdict(dead).holds(), "{}", verdict(dead).told());
    }
}

#[test]
fn a_sick_member_in_turn_does_not_count_twice() {
    let mut world = World::on_the_way(Gate::Before, 3, FROM, TO);
    world.silence(1);
    let verdict = judge(Profile::Upgrade, Gate::Before, &world.situation());
    assert!(verdict.holds(), "{}", verdict.told());
    // Its turn is the first one: while it is sick, no other may go.
    world.target = "etcd-2".into();
    let verdict = judge(Profile::Upgrade, Gate::Before, &world.situation());
    let against: Vec<&str> = verdict.against().map(|finding| finding.rule).collect();
    assert_eq!(against, ["answers", "quorum-after"]);
}

#[test]
fn members_on_one_machine_go_down_together() {
    let against = |members: u64, along: &[&str], outage: bool| -> Vec<&'static str> {
        let mut world = World::on_the_way(Gate::Before, members, FROM, TO);
        world.along = along.iter().map(|name| (*name).to_owned()).collect();
        world.consent.outage = outage;
        let verdict = judge(Profile::Restart, Gate::Before, &world.situation());
        verdict.against().map(|finding| finding.rule).collect()
    };
    assert_eq!(against(3, &[], false), [""; 0]);
    assert_eq!(against(3, &["etcd-2"], false), ["quorum-after"]);
    assert_eq!(against(5, &["etcd-2"], false), [""; 0]);
    assert_eq!(against(3, &["etcd-2", "etcd-3"], true), [""; 0], "all of it goes, and may");
}

#[test]
fn a_member_may_change_its_address_in_its_own_turn_only() {
    let moved = |member: usize, gate: Gate| {
        let mut world = World::on_the_way(gate, 3, TO, TO);
        world.step = None;
        world.peers.iter_mut().for_each(|(_, url)| *url = url.replace("2380", "12380"));
        world.every_view(|view| {
            let listed = &mut view.list.as_mut().unwrap()[member - 1];
            listed.peer_urls = vec![format!("https://10.0.0.{member}:12380")];
        });
        let verdict = judge(Profile::Restart, gate, &world.situation());
        verdict.against().map(|finding| finding.rule).collect::<Vec<_>>()
    };
    assert_eq!(moved(1, Gate::Before), [""; 0], "the others are to come");
    assert_eq!(moved(1, Gate::After), [""; 0], "the others are to come");
    assert_eq!(moved(2, Gate::After), ["addresses-known", "members-unchanged"], "another one, which has no turn");
    assert_eq!(moved(1, Gate::Settled), ["addresses-known"], "none may be left behind");
}

#[test]
fn who_listens_everywhere_is_reached_at_the_port_that_is_listed() {
    let listed = ["https://10.0.0.1:2380"];
    assert!(is_at("https://10.0.0.1:2380", &listed) && is_at("https://0.0.0.0:2380", &listed));
    assert!(is_at("https://[::]:2380", &listed));
    assert!(!is_at("https://10.0.0.1:12380", &listed) && !is_at("https://0.0.0.0:12380", &listed));
    assert!(!is_at("https://10.0.0.2:2380", &listed));
}

#[test]
fn what_was_decided_of_a_member_has_to_hold_when_it_goes() {
    let against = |decided: Decided, world: fn(&mut World)| {
        let mut changed = World::on_the_way(Gate::Stop, 3, TO, TO);
        changed.decided = Some(decided);
        changed.change = (decided != Decided::Gone).then_some(MemberChange::Remove);
        world(&mut changed);
        let verdict = judge(Profile::Replace, Gate::Stop, &changed.situation());
        verdict.against().map(|finding| finding.rule).collect::<Vec<_>>()
    };
    assert_eq!(against(Decided::Dead, |world| world.silence(1)), [""; 0], "it is dead");
    assert_eq!(against(Decided::Dead, |_| {}), ["as-decided"], "it came back");
    // It came back, and another one died.
    assert_eq!(against(Decided::Dead, |world| world.silence(2)), ["quorum-after", "as-decided"]);
    let corrupt = |world: &mut World| {
        world.every_view(|view| view.alarms.push(Alarm { member: 1, kind: AlarmKind::Corrupt }));
    };
    assert_eq!(against(Decided::Corrupt, corrupt), [""; 0]);
    assert_eq!(against(Decided::Corrupt, |_| {}), ["as-decided"], "its data was replaced");
    assert_eq!(against(Decided::Gone, |_| {}), ["as-decided"], "it was added again");
    let left = |world: &mut World| world.every_view(|view| drop(view.list.as_mut().unwrap().remove(0)));
    assert_eq!(against(Decided::Gone, left), [""; 0], "two voters are left, and none goes");
    assert_eq!(against(Decided::Dead, is_cut_off), ["unreachable-is-not-dead"], "it came back out of sight");
    let was_no_voter = |world: &mut World| {
        is_cut_off(world);
        world.change = Some(MemberChange::AddLearner);
    };
    assert_eq!(against(Decided::Dead, was_no_voter), ["unreachable-is-not-dead"], "it is stopped all the same");
}

/// SSH does not reach it, and the others do.
fn is_cut_off(world: &mut World) {
    world.silence(1);
    world.hosts[0].unreachable = Some("timed out".into());
    world.hosts[0].answers_others = Some(true);
}

#[test]
fn one_new_member_takes_the_place_of_one() {
    let against = |then: usize| {
        let world = World::on_the_way(Gate::Before, 4, TO, TO);
        let situation = world.situation();
        let change = Some(MemberChange::RemoveReplaced);
        let situation = Situation { change, voters_then: Some(then), target: Some("etcd-1"), ..situation };
        let verdict = judge(Profile::Replace, Gate::Before, &situation);
        verdict.against().any(|finding| finding.rule == "live-goes-last")
    };
    assert!(!against(3), "there is one more than there was");
    assert!(against(4), "the new one has the place of another");
}

#[test]
fn voters_are_those_that_etcd_lists_and_not_those_of_the_inventory() {
    // Five voters, two of them gone, and the inventory was shortened by hand.
    let mut world = World::on_the_way(Gate::Stop, 5, TO, TO);
    world.members.truncate(3);
    world.now.members.truncate(3);
    world.every_view(|view| view.leader = Some(2));
    let verdict = judge_restart(&world.situation());
    assert!(verdict.told().contains("would leave 2 of 5 voters healthy"), "{}", verdict.told());
}

#[test]
fn what_is_stopped_already_may_be_brought_to_its_end() {
    let mut world = World::on_the_way(Gate::Stop, 3, TO, TO);
    world.silence(1);
    world.silence(2);
    let is_asked = |rule: &Rule| ["quorum-after", "small-cluster"].contains(&rule.id);
    let holds = |world: &World| judge_where(None, is_asked, Gate::Stop, &world.situation()).holds();
    assert!(!holds(&world));
    world.hosts[0].is_stopped = true;
    assert!(holds(&world));
}

/// The machine of a member is off: neither SSH nor etcd answers.
fn switch_off(world: &mut World, member: usize) {
    world.silence(member);
    let host = &mut world.hosts[member - 1];
    let name = host.name.clone();
    *host =
        HostSeen { name, unreachable: Some("timed out".into()), answers_others: Some(false), ..HostSeen::default() };
}

#[test]
fn a_member_of_two_whose_guest_is_off_may_be_brought_to_its_end() {
    let mut world = World::on_the_way(Gate::Stop, 2, TO, TO);
    switch_off(&mut world, 1);
    world.view(2).leader = None;
    world.view(2).read = Err("no leader".into());
    let verdict = |world: &World| judge(Profile::Nospace, Gate::Stop, &world.situation());
    assert!(!verdict(&world).holds(), "nobody has accepted an outage");
    world.consent.outage = true;
    assert!(verdict(&world).holds(), "{}", verdict(&world).told());
    world.hosts[0].answers_others = Some(true);
    assert!(!verdict(&world).holds(), "it serves");
}

#[test]
fn a_turn_that_has_switched_its_machine_off_can_go_on() {
    let mut world = World::on_the_way(Gate::Before, 3, TO, TO);
    world.step = None;
    switch_off(&mut world, 1);
    let verdict = |world: &World| judge(Profile::Restart, Gate::Before, &world.situation());
    assert!(verdict(&world).holds(), "{}", verdict(&world).told());
    world.target = "etcd-2".into();
    assert!(verdict(&world).told().contains("reachable"), "{}", verdict(&world).told());
}

#[test]
fn an_alarm_of_a_member_that_is_gone_has_a_way_out() {
    let mut world = World::on_the_way(Gate::Before, 3, TO, TO);
    let alarm = Alarm { member: 0xdead, kind: AlarmKind::Corrupt };
    world.every_view(|view| view.alarms = vec![alarm.clone()]);
    world.change = Some(MemberChange::AddLearner);
    let told = judge(Profile::Replace, Gate::Before, &world.situation()).told();
    assert!(
        told.contains("no longer a member") && told.contains("alarm disarm") && !told.contains("replace dead"),
        "{told}"
    );
}

#[test]
fn a_replacement_in_a_full_cluster_comes_to_its_end() {
    let mut world = World::on_the_way(Gate::Settled, 3, TO, TO);
    world.alarm(AlarmKind::Nospace);
    assert!(judge(Profile::Replace, Gate::Settled, &world.situation()).holds());
    world.alarm(AlarmKind::Corrupt);
    assert!(!judge(Profile::Replace, Gate::Settled, &world.situation()).holds());
}

#[test]
fn two_members_that_are_silent_do_not_refer_to_each_other() {
    let mut world = World::on_the_way(Gate::Before, 5, TO, TO);
    world.silence(1);
    world.silence(2);
    let told = judge(Profile::Restart, Gate::Before, &world.situation()).told();
    assert!(told.contains("playbook site.yaml") && !told.contains("member restart"), "{told}");
}

#[test]
fn the_only_member_may_be_mended_if_an_outage_is_allowed() {
    let mut world = World::on_the_way(Gate::Before, 1, FROM, TO);
    world.consent.outage = true;
    for sick in [false, true] {
        if sick {
            world.silence(1);
        }
        let verdict = judge(Profile::Restart, Gate::Before, &world.situation());
        assert!(verdict.holds(), "{}", verdict.told());
    }
    // Before the turn its host was booting, so no member could list the members.
    let mut world = World::on_the_way(Gate::After, 1, FROM, FROM);
    world.before.members[0].answer = Err("connection refused".into());
    let verdict = judge(Profile::Restart, Gate::After, &world.situation());
    assert!(verdict.holds(), "{}", verdict.told());
    world.every_view(|view| view.list.as_mut().unwrap()[0].name = "another".into());
    let verdict = judge(Profile::Restart, Gate::After, &world.situation());
    assert!(verdict.told().contains("another is a member, but not in the inventory"), "{}", verdict.told());
}

#[test]
fn what_nobody_looked_at_counts_against_it_but_not_in_a_plan() {
    let mut world = World::on_the_way(Gate::Before, 3, FROM, TO);
    world.hosts.clear();
    let verdict = judge(Profile::Upgrade, Gate::Before, &world.situation());
    let against: Vec<&str> = verdict.against().map(|finding| finding.rule).collect();
    assert_eq!(against, ["reachable", "clock", "disk-room", "binary-verified", "strict-reconfig"]);
    let plan = Situation { planning: true, ..world.situation() };
    assert!(judge(Profile::Upgrade, Gate::Before, &plan).holds());
}

#[test]
fn no_member_joins_while_a_downgrade_is_in_progress() {
    let refused = |gate, change, downgrade| {
        let mut world = World::on_the_way(gate, 3, TO, TO);
        world.change = Some(change);
        world.every_view(|view| view.downgrade = downgrade);
        let verdict = judge(Profile::Replace, gate, &world.situation());
        verdict.against().any(|finding| finding.rule == "no-downgrade")
    };
    for gate in [Gate::Before, Gate::Stop] {
        assert!(refused(gate, MemberChange::AddLearner, Some((3, 5))), "{gate:?}");
        assert!(refused(gate, MemberChange::Remove, Some((3, 5))), "its successor would not start ({gate:?})");
        assert!(!refused(gate, MemberChange::Shrink, Some((3, 5))), "nothing joins ({gate:?})");
        assert!(!refused(gate, MemberChange::AddLearner, None), "{gate:?}");
    }
}

#[test]
fn a_rollback_by_binary_needs_one_old_member() {
    let mut world = World::on_the_way(Gate::Before, 3, TO, FROM);
    world.every_view(|view| view.cluster_version = Some((3, 5)));
    world.every_view(|view| view.storage_version = Some((3, 5)));
    *world.view(3) = View { version: version(FROM), storage_version: None, ..world.view(3).clone() };
    let verdict = judge(Profile::Upgrade, Gate::Before, &world.situation());
    assert!(verdict.holds(), "{}", verdict.told());
    // Once etcd has agreed, none is needed.
    let mut world = World::on_the_way(Gate::Before, 3, TO, FROM);
    world.every_view(|view| {
        view.downgrade = Some((3, 5));
        (view.cluster_version, view.storage_version) = (Some((3, 5)), Some((3, 5)));
    });
    let verdict = judge(Profile::Upgrade, Gate::Before, &world.situation());
    assert!(verdict.holds(), "{}", verdict.told());
}
