//! The life of a cluster: operations one after the other, with faults in them, and what has to be so after each.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, anyhow, ensure};
use etcdrun_judge::{Judge, Settings, Violation, ViolationKind, check, hash_kv, hashes_agree};
use etcdrun_lab::{Host, Lab};
use serde_json::Value;

use crate::{
    authority::{self, DAY},
    choice::Choice,
    clock,
    fault::Fault,
    hosts,
    lengths::Lengths,
    operation::{Kind, Operation},
    operator::{Program, Running, Said},
    record::{self, Happened, Line, Step},
    row::{Disk, ROOT_PASSWORD, Row, USER_PASSWORD},
    site::{CANCEL, CLUSTER, Member, Site},
    state_disk::StateDisk,
    world::Meanwhile,
};

/// How many calls the judge's clients make each second, and how often they look whether the cluster takes writes. Several clusters share
/// the processors of a machine: what one more call takes, an operation lacks.
const CALLS: f64 = 15.0;
const PROBE: Duration = Duration::from_millis(500);
/// How often something is tried to bring an operation to its end.
const ATTEMPTS: usize = 8;
const HEALTHY: Duration = Duration::from_secs(120);
/// A cluster that has a majority of servers that nothing is done to serves again within this time.
const LONGEST_GAP: Duration = Duration::from_secs(30);
/// After a fault is taken back, a member needs a moment.
const GRACE: i64 = 20_000;
/// How long it may take until a fault is seen by a gate that looks right before a stop: its look waits five seconds for a member, and then
/// the host has to hear of the stop.
const SEEN: i64 = 8_000;
/// How many faults are chosen for a command, at least and at most. Not each of them fits, or comes in time.
const FAULTS: (usize, usize) = (2, 5);
/// How many attempts to bring an operation to its end may meet faults.
const FAULTY_ATTEMPTS: usize = 3;
/// What is done about certificates that have ended.
const RENEW: [&str; 2] = ["certs", "renew"];
/// When certificates end after days have passed: before that they are renewed early.
const DAYS_LEFT: u32 = 10;
/// A run that is resumed has at least about as many records.
const LEAST_RECORDS: usize = 8;

/// A member was down by a fault, in milliseconds since 1970.
struct Down {
    member: String,
    from: i64,
    until: Option<i64>,
    /// It may serve at times, so that a gate may find that it does.
    serves: bool,
}

/// A member whose certificate has ended, or is near its end.
struct Aged {
    member: Member,
    /// When that was done to it, in milliseconds since 1970.
    at: i64,
}

impl Down {
    fn ends(&mut self) {
        self.until.get_or_insert_with(now);
    }
}

pub struct Life<'a> {
    seed: u64,
    choice: Choice,
    site: Site,
    judge: Judge,
    folder: PathBuf,
    disk: StateDisk,
    results: &'a Path,
    lengths: &'a mut Lengths,
    down: Vec<Down>,
    /// Times in which the cluster was meant to be down.
    replaced: Vec<(i64, i64)>,
    /// How many members there were when it was last looked whether they serve, and when that was.
    served: (usize, i64),
    cluster_id: u64,
    number: usize,
    step_begun: i64,
    /// Members whose disks were lost by a fault in this operation, and that were not replaced yet.
    lost: Vec<String>,
    /// Runs whose locks may still be on a host that was out of reach at their end: they have said so.
    told_to_unlock: Vec<String>,
    /// Those of them that may serve with a database that has flipped bits.
    flipped: Vec<String>,
    aged: Vec<Aged>,
    /// The host that the second operator is at, and those that it does not reach.
    split: Option<(Host, Vec<Host>)>,
    /// About how many records are left for the run that is resumed.
    left_over: usize,
}

/// A fault that is to come.
struct Planned {
    fault: Fault,
    /// In thousandths of the records that the command has.
    share: usize,
    later: Duration,
    hold: Option<Duration>,
    member: Member,
}

impl Planned {
    /// The record of the journal behind which it comes.
    fn record(&self, of: usize) -> usize {
        1 + self.share * of / 1000
    }

    fn happened(&self, words: &[&str], of: usize, came_too_late: bool) -> Happened {
        Happened {
            fault: self.fault,
            record: self.record(of),
            of,
            later: self.later.as_millis() as u64,
            member: (!self.fault.is_operators()).then(|| self.member.name.clone()),
            seconds: self.hold.map(|hold| hold.as_secs()),
            came_too_late,
            command: words.iter().take(2).copied().collect::<Vec<_>>().join(" "),
        }
    }
}

/// What another operator runs.
struct Other {
    running: Running,
    /// Whether it came to its end while the first operator's command was still running.
    is_over: bool,
}

impl Other {
    fn new(running: Running) -> Self {
        Self { running, is_over: false }
    }

    fn look(&mut self) -> Result<()> {
        self.is_over = self.is_over || self.running.is_over()?;
        Ok(())
    }
}

/// The runs whose locks may still be on a host, as a command has said.
fn to_unlock(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().filter(|line| line.contains("may still have the lock"));
    lines.filter_map(|line| Some(line.split_once("`etcdrun unlock ")?.1.split_once('`')?.0))
}

/// Whether a command that has come to its end had the lock of the cluster all the time.
fn locks_cluster(words: &[&str]) -> bool {
    matches!(words[0], "playbook" | "member")
}

/// The member that a refusal advises to remove first.
fn to_remove(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("remove it first (`etcdrun member remove ")?;
    rest.split_once('`').map(|(name, _)| name)
}

/// A fault that is there.
struct Active<'a> {
    planned: &'a Planned,
    /// The hosts of the other members when it began: what is between them and it is taken back by their names.
    others: Vec<Host>,
    ends: Option<Instant>,
}

impl<'a> Life<'a> {
    /// Forms the cluster.
    pub fn begin(
        seed: u64,
        row: &Row,
        results: &'a Path,
        program: &Program,
        lab: Lab,
        lengths: &'a mut Lengths,
    ) -> Result<Self> {
        let folder = record::evidence(results, seed);
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        // One that was killed may have left hosts cut off, whose addresses are used again.
        lab.heal()?;
        let mut site = Site::new(row, &folder.join("operator"), program, lab)?;
        let disk = StateDisk::new(&site.operator.path(".etcdrun"))?;
        site.form()?;
        let settings = Settings { seed, rate: CALLS, probe_interval: PROBE, ..Settings::default() };
        let judge = Judge::start(site.as_user()?, settings, &folder.join("judge"))?;
        let mut life = Self {
            seed,
            choice: Choice::new(seed),
            site,
            judge,
            folder,
            disk,
            results,
            lengths,
            down: Vec::new(),
            replaced: Vec::new(),
            served: (0, 0),
            cluster_id: 0,
            number: 0,
            step_begun: 0,
            lost: Vec::new(),
            told_to_unlock: Vec::new(),
            flipped: Vec::new(),
            aged: Vec::new(),
            split: None,
            left_over: LEAST_RECORDS,
        };
        life.cluster_id = life.seen_cluster_id()?;
        life.served = (life.site.members()?.len(), now());
        Ok(life)
    }

    /// One operation, with some of these faults in it. Nothing if this cluster is not one that it can be done to.
    pub fn step(&mut self, kind: Kind, faults: &[Fault]) -> Result<Option<Step>> {
        let begun = Instant::now();
        self.step_begun = now();
        if matches!(kind, Kind::Restore | Kind::Recover) {
            self.judge.pause()?;
        }
        let Some(operation) = Operation::prepare(kind, &mut self.site, &mut self.choice)? else {
            self.judge.resume();
            return Ok(None);
        };
        self.number += 1;
        let mut step = Step {
            seed: self.seed,
            number: self.number,
            row: self.site.row.clone(),
            operation: kind,
            faults: Vec::new(),
            meanwhile: Vec::new(),
            codes: Vec::new(),
            seconds: 0.0,
            begun_anew: false,
            violations: Vec::new(),
        };
        self.lost.clear();
        self.flipped.clear();
        self.aged.clear();
        if let Err(error) = self.perform(&operation, faults, &mut step) {
            step.violations.push(format!("{error:#}"));
        } else if let Err(error) = self.settled(&operation, &mut step) {
            step.violations.push(format!("{error:#}"));
        }
        step.seconds = begun.elapsed().as_secs_f64();
        for violation in &step.violations {
            println!("    VIOLATION: {violation}");
        }
        let in_time = step.faults.iter().filter(|fault| !fault.came_too_late).map(|fault| format!("{:?}", fault.fault));
        println!(
            "{:>3} {kind:?} with {}: {:?} in {:.0} s{}",
            self.number,
            in_time.collect::<Vec<_>>().join(", "),
            step.codes,
            step.seconds,
            if step.begun_anew { ", begun anew" } else { "" }
        );
        record::append(self.results, &Line::Step(step.clone()))?;
        Ok(Some(step))
    }

    /// Runs all commands of it, and brings each to its end.
    fn perform(&mut self, operation: &Operation, faults: &[Fault], step: &mut Step) -> Result<()> {
        let since = now();
        if let Some((_, members)) = &operation.cause {
            for member in members {
                self.down.push(Down { member: member.name.clone(), from: now(), until: None, serves: false });
            }
        }
        for command in &operation.commands {
            if operation.replaces_data {
                self.judge.pause()?;
                self.judge.new_epoch(&format!("{:?}", operation.kind))?;
            }
            let count = FAULTS.0 + self.choice.below(FAULTS.1 - FAULTS.0 + 1);
            let planned = self.plan(faults, count, operation)?;
            let said = self.command(command, &planned, step)?;
            self.judge.resume();
            if said.code != Some(0) {
                self.converge(operation, command, faults, step)?;
            }
            // One whose disk was lost too late for that command is built again, and certificates are renewed.
            for _ in 0..ATTEMPTS {
                let is_built = self.lost.is_empty()
                    || (self.flipped.is_empty() && self.site.await_healthy(Duration::from_secs(10)).is_ok());
                if destroys_own(command) || (is_built && self.aged.is_empty()) {
                    break;
                }
                self.renew(step)?;
                if !is_built {
                    self.replace_lost(step)?;
                }
            }
            self.lost.clear();
            self.flipped.clear();
            self.aged.clear();
            self.refresh_judge()?;
        }
        self.down.iter_mut().for_each(Down::ends);
        // The judge has the old password until the end.
        if operation.replaces_data || operation.kind == Kind::Passwords {
            self.replaced.push((since, now() + GRACE));
        }
        Ok(())
    }

    /// Faults for one command, each to another member.
    fn plan(&mut self, faults: &[Fault], count: usize, operation: &Operation) -> Result<Vec<Planned>> {
        if faults.is_empty() {
            return Ok(Vec::new());
        }
        let members = self.site.members()?;
        let of_cause = operation.cause.iter().flat_map(|(_, members)| members);
        let mut lost: Vec<String> = of_cause.map(|member| member.name.clone()).chain(self.lost.clone()).collect();
        let spare = (members.len() - 1) / 2;
        // One that is lost already has nothing more to lose; and more than a minority is another story.
        let mut victims: Vec<Member> = members.iter().filter(|member| !lost.contains(&member.name)).cloned().collect();
        let mut planned: Vec<Planned> = Vec::new();
        for _ in 0..count {
            let fault = *self.choice.one_of(faults);
            let (share, later) = (self.choice.below(1000), Duration::from_millis(self.choice.below(400) as u64));
            let hold = match self.choice.below(6) {
                0 if !matches!(fault, Fault::OperatorSleeps | Fault::DiskHangs) => None,
                0..=2 => Some(Duration::from_secs(2)),
                _ => Some(Duration::from_secs(3 + self.choice.below(10) as u64)),
            };
            // A page that is there has room for some records: it is full until the command feels it.
            let hold = if fault == Fault::OperatorDiskFull { None } else { hold };
            let hold = if fault.passes() { Some(Duration::from_secs(1)) } else { hold };
            let is_for_hosts = self.site.row.machines.are_guests() && !fault.is_for_guests();
            let is_alone = fault.needs_others() && members.len() < 2;
            let is_second = fault.is_operators() && planned.iter().any(|planned| planned.fault.is_operators());
            let loses_too_much = fault.loses_data() && lost.len() + 1 > spare;
            let cannot_be = match fault {
                // Which CA has signed what is not known as long as it is rotated.
                Fault::CertificateExpired => operation.kind == Kind::RotateCa,
                // It is chosen by the time of day which backup is the newest.
                Fault::ClockBack | Fault::ClockAhead => operation.replaces_data || operation.kind == Kind::Elsewhere,
                // The second one is at the host that no member has, and guests are not on hosts that it could be cut off from.
                Fault::SplitOperators if self.site.row.machines.are_guests() => true,
                Fault::SplitOperators => members.len() < 3 || matches!(operation.kind, Kind::Move | Kind::Add),
                _ => false,
            };
            let is_everywhere = fault.needs_own_disk() && self.site.row.disk == Disk::Root;
            if is_for_hosts
                || is_alone
                || is_second
                || is_everywhere
                || loses_too_much
                || cannot_be
                || victims.is_empty()
            {
                continue;
            }
            let member = victims[self.choice.below(victims.len())].clone();
            if !fault.is_operators() {
                victims.retain(|other| other.name != member.name);
            }
            if fault.loses_data() {
                lost.push(member.name.clone());
            }
            planned.push(Planned { fault, share, later, hold, member });
        }
        Ok(planned)
    }

    /// Runs a command, and lets faults happen to it.
    fn command(&mut self, command: &[String], planned: &[Planned], step: &mut Step) -> Result<Said> {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let name = words.iter().take(2).copied().collect::<Vec<_>>().join(" ");
        let of = match words[0] {
            "resume" => self.left_over,
            _ => self.lengths.of(&name, self.site.row.members),
        };
        let said = self.with_faults(&words, of, planned, step)?;
        self.left_over = of.saturating_sub(said.records).max(LEAST_RECORDS);
        self.look_at(&said, step);
        step.codes.push(said.code);
        // A run that goes on has fewer.
        if planned.is_empty() && said.code == Some(0) && said.records > 2 && words[0] != "resume" {
            self.lengths.learn(&name, self.site.row.members, said.records);
        }
        Ok(said)
    }

    /// Faults come when the journal has so many records, and go when their time is over, or the command is.
    fn with_faults(&mut self, words: &[&str], of: usize, planned: &[Planned], step: &mut Step) -> Result<Said> {
        let death = planned.iter().find_map(|planned| {
            let place = planned.fault.place_of_death()?;
            Some(format!("{place}:{}", planned.record(of)))
        });
        let mut variables: Vec<(&str, &str)> = death.iter().map(|death| ("ETCDRUN_TEST_DIE", death.as_str())).collect();
        let clock = planned.iter().find_map(|planned| clock::shift(planned.fault)).map(clock::shifted);
        let clock = clock.map(|clock| clock.context("there is no libfaketime; `apt-get install faketime`"));
        let clock = clock.transpose()?;
        variables.extend(clock.iter().flatten().map(|(name, value)| (*name, value.as_str())));
        let mut running = self.site.operator.start(words, &variables)?;
        let mut coming: Vec<(&Planned, Option<Instant>)> = planned
            .iter()
            .filter(|planned| !planned.fault.is_there_from_the_start())
            .map(|planned| (planned, None))
            .collect();
        let (mut active, mut others): (Vec<Active<'_>>, Vec<Other>) = (Vec::new(), Vec::new());
        let mut processes_seen = Instant::now();
        let result = loop {
            if running.is_over()? {
                break Ok(());
            }
            let (records, now) = (running.records(), Instant::now());
            for (planned, begins) in &mut coming {
                if begins.is_none() && records >= planned.record(of) {
                    *begins = Some(now + planned.later);
                }
            }
            let due = |(_, begins): &(&Planned, Option<Instant>)| begins.is_some_and(|begins| begins <= now);
            let (begun, rest): (Vec<_>, Vec<_>) = coming.into_iter().partition(due);
            coming = rest;
            for (planned, _) in begun {
                step.faults.push(planned.happened(words, of, false));
                let mut others_then = Vec::new();
                match planned.fault {
                    Fault::OperatorKilled => running.kill()?,
                    Fault::SecondOperator => others.push(Other::new(self.second_operator(planned)?)),
                    Fault::OperatorSleeps => running.sleep(true)?,
                    Fault::OperatorCut => self.cut_operator(&[])?,
                    Fault::SplitOperators => others.push(Other::new(self.split_operators(planned)?)),
                    Fault::OperatorDiskFull => self.disk.fill(true)?,
                    _ => others_then = self.strike(planned)?,
                }
                let ends = planned.hold.map(|hold| Instant::now() + hold);
                active.push(Active { planned, others: others_then, ends });
            }
            let (over, rest): (Vec<Active<'_>>, Vec<Active<'_>>) =
                active.into_iter().partition(|active| active.ends.is_some_and(|ends| ends <= now));
            active = rest;
            for active in over {
                self.relieve(&active, &running)?;
            }
            if processes_seen.elapsed() > Duration::from_secs(1) {
                processes_seen = Instant::now();
                others.iter_mut().try_for_each(Other::look)?;
                no_secret_in_processes(&self.folder, self.site.lab.name(), step);
            }
            sleep(Duration::from_millis(5));
        };
        for active in active {
            self.relieve(&active, &running)?;
        }
        result.and_then(|()| {
            let said = running.wait()?;
            for other in others {
                let is_within = other.is_over;
                let by_other = other.running.wait()?;
                self.look_at(&by_other, step);
                if is_within && locks_cluster(words) && (said.code, by_other.code) == (Some(0), Some(0)) {
                    step.violations.push(format!("another operator restarted a member within `{}`", words.join(" ")));
                }
            }
            let too_late = coming.into_iter().map(|(planned, _)| planned);
            step.faults.extend(too_late.map(|planned| planned.happened(words, of, true)));
            let first = planned.iter().filter(|planned| planned.fault.is_there_from_the_start());
            step.faults.extend(first.map(|planned| {
                let missed = planned.fault.place_of_death().is_some() && said.code.is_some();
                planned.happened(words, of, missed)
            }));
            Ok(said)
        })
    }

    /// Lets it happen. Returns the hosts of the other members.
    fn strike(&mut self, planned: &Planned) -> Result<Vec<Host>> {
        let Planned { fault, member, .. } = planned;
        let others = self.others(member)?;
        if fault.takes_down() {
            self.is_down(&member.name, false);
        }
        if fault.slows() {
            self.is_down(&member.name, true);
        }
        if fault.loses_data() {
            self.lost.push(member.name.clone());
        }
        match fault {
            Fault::BitsFlipped => self.flipped.push(member.name.clone()),
            Fault::CertificateExpired => {
                self.age(member, SystemTime::now() - DAY)?;
                drop(member.run(&["systemctl", "kill", "-s", "KILL", "etcd"]));
            }
            _ => {}
        }
        fault.inject(&self.site.lab, member, &others.iter().collect::<Vec<_>>())?;
        Ok(others)
    }

    fn relieve(&mut self, Active { planned, others, .. }: &Active<'_>, running: &Running) -> Result<()> {
        match planned.fault {
            Fault::OperatorSleeps => running.sleep(false),
            Fault::OperatorCut => hosts::cut_operator(&self.site.lab, &[]),
            Fault::SplitOperators => self.join_operators(),
            Fault::OperatorDiskFull => self.disk.fill(false),
            fault if fault.is_operators() => Ok(()),
            fault => {
                fault.heal(&self.site.lab, &planned.member, &others.iter().collect::<Vec<_>>())?;
                self.is_up(fault, &planned.member.name);
                Ok(())
            }
        }
    }

    /// Somebody else, who wants to restart a member.
    fn second_operator(&mut self, planned: &Planned) -> Result<Running> {
        let mut other = self.site.operator.other(&self.folder.join("second-operator"))?;
        other.start(&["member", "restart", &planned.member.name, "--yes"], &[])
    }

    /// The operator reaches none of these members, or no host at all if it is none of them.
    fn cut_operator(&mut self, members: &[Member]) -> Result<()> {
        let mut addresses: Vec<IpAddr> = members.iter().map(|member| member.address).collect();
        if members.is_empty() {
            addresses.extend(self.site.hosts.iter().map(|host| self.site.address(host)));
            addresses.extend(self.site.members()?.iter().map(|member| member.address));
        }
        hosts::cut_operator(&self.site.lab, &addresses)
    }

    /// Somebody else, at the host that no member has, reaches one member and those behind it, up to a half; the operator reaches the
    /// others. Both want something.
    fn split_operators(&mut self, planned: &Planned) -> Result<Running> {
        let mut other = self.site.operator.other(&self.folder.join("second-operator"))?;
        let (here, there) = self.sides(planned)?;
        let Some(place) = self.site.spare()?.into_iter().next() else { return self.second_operator(planned) };
        other.is_at(&place)?;
        let here: Vec<Host> = here.into_iter().map(|member| member.host).collect();
        self.site.lab.partition(&[&place], &here.iter().collect::<Vec<_>>())?;
        self.split = Some((place, here));
        self.cut_operator(&there)?;
        other.start(&["member", "restart", &planned.member.name, "--yes"], &[])
    }

    fn join_operators(&mut self) -> Result<()> {
        hosts::cut_operator(&self.site.lab, &[])?;
        match self.split.take() {
            Some((place, here)) => self.site.lab.unpartition(&[&place], &here.iter().collect::<Vec<_>>()),
            None => Ok(()),
        }
    }

    /// Whom the operator reaches, and whom the second one does.
    fn sides(&mut self, planned: &Planned) -> Result<(Vec<Member>, Vec<Member>)> {
        let mut members = self.site.members()?;
        let half = members.len() / 2;
        let first = members.iter().position(|member| member.name == planned.member.name).unwrap_or_default();
        members.rotate_left(first);
        let here = members.split_off(half);
        Ok((here, members))
    }

    fn is_down(&mut self, member: &str, serves: bool) {
        self.down.push(Down { member: member.to_owned(), from: now(), until: None, serves });
    }

    /// The certificate of a member ends then.
    fn age(&mut self, member: &Member, end: SystemTime) -> Result<()> {
        if authority::end_certificate(&mut self.site, member, end)? {
            self.aged.push(Aged { member: member.clone(), at: now() });
        } else {
            let of_member = self.down.iter_mut().filter(|down| down.member == member.name);
            of_member.for_each(Down::ends);
        }
        Ok(())
    }

    /// A member whose data is lost is not up before it was replaced, and one whose certificate has ended not before that was renewed.
    fn is_up(&mut self, fault: Fault, member: &str) {
        if !fault.lasts() {
            let of_member = self.down.iter_mut().filter(|down| down.member == member);
            of_member.for_each(Down::ends);
        }
    }

    fn others(&mut self, member: &Member) -> Result<Vec<Host>> {
        let members = self.site.members()?.into_iter();
        Ok(members.filter(|other| other.host.name() != member.host.name()).map(|other| other.host).collect())
    }

    /// Does what a person would do about a command that did not succeed, until it has, or until patience is at its end.
    fn converge(&mut self, operation: &Operation, command: &[String], faults: &[Fault], step: &mut Step) -> Result<()> {
        for attempt in 0..ATTEMPTS {
            if step.codes.last() == Some(&None) {
                let meanwhile = *self.choice.one_of(&Meanwhile::ALL);
                meanwhile.happen(&mut self.site, &mut self.choice)?;
                if meanwhile == Meanwhile::DaysPass && operation.kind != Kind::RotateCa {
                    for member in self.site.members()? {
                        self.age(&member, SystemTime::now() + DAY * DAYS_LEFT)?;
                    }
                }
                if meanwhile == Meanwhile::MemberLost {
                    for planned in self.plan(&[Fault::DiskLost], 1, operation)? {
                        self.strike(&planned)?;
                    }
                }
                step.meanwhile.push(meanwhile);
            }
            // Certificates that have ended are renewed first: a gate would wait for their members, for minutes.
            if !self.aged.is_empty() && self.site.await_healthy(Duration::from_secs(5)).is_err() {
                self.renew(step)?;
            }
            let unfinished = self.unfinished()?;
            // As long as the old cluster serves, what is written to it goes with it, as was asked for. What is written to the new one
            // must stay, also if the rest of the run comes later.
            if operation.replaces_data && (unfinished.is_none() || self.old_cluster_serves()) {
                self.judge.pause()?;
                self.judge.new_epoch("the old cluster is still there")?;
            }
            let resume = self.resume(unfinished.as_deref())?;
            step.begun_anew |= unfinished.is_none();
            // What repairs it meets faults, too, and then it must come to its end.
            let count = if attempt < FAULTY_ATTEMPTS { self.choice.below(3) } else { 0 };
            let planned = self.plan(faults, count, operation)?;
            let said = self.command(if unfinished.is_some() { &resume } else { command }, &planned, step);
            self.judge.resume();
            let said = said?;
            match said.code {
                Some(0) => return Ok(()),
                // What it was for is no longer so: the member that was to be replaced is well again, or was replaced.
                Some(5) if unfinished.is_none() && self.site.await_healthy(HEALTHY).is_ok() => return Ok(()),
                _ => {}
            }
            // A member that was lost meanwhile is replaced first, as the gates demand.
            if !self.lost.is_empty() && self.site.await_healthy(Duration::from_secs(5)).is_err() {
                self.give_up()?;
                self.replace_lost(step)?;
                continue;
            }
            // It may have to wait for members that come back; after that a run that is still refused is given up.
            let healthy = self.site.await_healthy(Duration::from_secs(30)).is_ok();
            if attempt >= 2 && healthy {
                self.give_up()?;
            }
        }
        Err(anyhow!("{:?} does not come to its end: {:?}", operation.kind, step.codes))
    }

    /// Members whose disks were lost are built again.
    fn replace_lost(&mut self, step: &mut Step) -> Result<()> {
        for name in std::mem::take(&mut self.lost) {
            if self.site.members()?.iter().any(|member| member.name == name) {
                let words = ["member", "replace", &name, "--yes"].map(str::to_owned);
                let mut said = self.command(&words, &[], step)?;
                if let Some(other) = to_remove(&said.text).filter(|_| said.code != Some(0)) {
                    // Two are lost: one of them goes first, as the refusal advises.
                    self.command(&["member", "remove", other, "--yes"].map(str::to_owned), &[], step)?;
                    self.down.iter_mut().filter(|down| down.member == other).for_each(Down::ends);
                    said = self.command(&words, &[], step)?;
                }
                if said.code == Some(3) && said.text.contains(CANCEL) {
                    self.site.cancel_downgrade()?;
                    said = self.command(&words, &[], step)?;
                }
                // What was built again meanwhile needs nothing.
                match said.code {
                    // A person who knows that its data is damaged does not keep it because it serves.
                    Some(5) if self.flipped.contains(&name) => {
                        self.flipped.retain(|flipped| *flipped != name);
                        // It had come up, so that others could be stopped.
                        self.down.iter_mut().filter(|down| down.member == name).for_each(|down| down.serves = true);
                        let members = self.site.members()?;
                        for member in members.iter().filter(|member| member.name == name) {
                            Fault::DiskLost.inject(&self.site.lab, member, &[])?;
                        }
                        self.lost.push(name);
                    }
                    Some(0 | 5) => self.down.iter_mut().filter(|down| down.member == name).for_each(Down::ends),
                    _ => self.lost.push(name),
                }
            }
        }
        self.flipped.retain(|name| self.lost.contains(name));
        Ok(())
    }

    /// Certificates that have ended, or are about to, are renewed.
    fn renew(&mut self, step: &mut Step) -> Result<()> {
        if self.aged.is_empty() {
            return Ok(());
        }
        let words = RENEW.map(str::to_owned);
        let said = self.command(&words, &[], step)?;
        if said.code != Some(0) {
            // A run that is in the way is given up.
            return self.give_up();
        }
        for aged in std::mem::take(&mut self.aged) {
            // Another command may have renewed it before.
            let changed = aged.member.run(&["stat", "-c", "%.3Y", authority::CERTIFICATE]).unwrap_or_default();
            let changed = changed.trim().parse::<f64>().map_or_else(|_| now(), |seconds| (seconds * 1000.0) as i64);
            let until = if changed > aged.at { changed } else { now() };
            let of_member = self.down.iter_mut().filter(|down| down.member == aged.member.name);
            of_member.for_each(|down| down.until = down.until.or(Some(until)));
        }
        Ok(())
    }

    /// How the run is resumed. Without its name the newest one is, by a clock that may have been set back.
    fn resume(&mut self, unfinished: Option<&str>) -> Result<Vec<String>> {
        let runs = self.site.operator.must(&["runs", "--json"])?.json()?;
        let newest = runs[0]["id"].as_str();
        let name = unfinished.filter(|run| newest != Some(run));
        Ok(["resume"].into_iter().chain(name).map(str::to_owned).collect())
    }

    fn old_cluster_serves(&mut self) -> bool {
        let Ok(root) = self.site.as_root() else { return false };
        let members = hash_kv(&root, None).unwrap_or_default();
        members.iter().any(|member| member.hash.as_ref().is_ok_and(|hash| hash.cluster_id == self.cluster_id))
    }

    /// The newest run, if it has not come to its end. By the clock of this machine: that of the operator may have been set back.
    fn unfinished(&mut self) -> Result<Option<String>> {
        let runs = self.site.operator.must(&["runs", "--json"])?.json()?;
        let folder = self.site.operator.path(".etcdrun/runs");
        let begun = |run: &&Value| {
            let path = folder.join(run["id"].as_str().unwrap_or_default());
            fs::metadata(path).and_then(|folder| folder.created()).ok()
        };
        // Certificates that were renewed in between are no reason to begin anew.
        let renewed = |run: &&Value| run["state"] == "done" && run["command"] == serde_json::json!(RENEW);
        // One that died with its first record has done nothing, and is not to be resumed.
        let has_begun = |run: &&Value| run["command"].as_array().is_some_and(|words| !words.is_empty());
        let is_meant = |run: &&Value| has_begun(run) && !renewed(run);
        let all = runs.as_array().into_iter().flatten();
        let Some(newest) = all.rev().filter(is_meant).max_by_key(begun) else { return Ok(None) };
        let id = newest["id"].as_str().context("a run has no id")?;
        Ok((newest["state"] != "done").then(|| id.to_owned()))
    }

    fn give_up(&mut self) -> Result<()> {
        let Some(run) = self.unfinished()? else { return Ok(()) };
        self.site.operator.run(&["unlock", &run])?;
        // The folder of a run that is given up is out of the way.
        let folder = self.site.operator.path(".etcdrun/runs").join(&run);
        let aside = self.site.operator.path(".etcdrun/given-up").join(&run);
        if folder.exists() {
            fs::create_dir_all(self.site.operator.path(".etcdrun/given-up"))?;
            fs::rename(folder, aside)?;
        }
        // As long as another run is not finished, the inventory is its to edit.
        if self.unfinished()?.is_none() { self.site.know_all_voters() } else { Ok(()) }
    }

    /// Members, certificates and passwords may be others.
    fn refresh_judge(&mut self) -> Result<()> {
        let cluster = self.site.as_user()?;
        self.judge.now_credentials(cluster.tls, cluster.login);
        self.judge.now_members(cluster.endpoints);
        Ok(())
    }

    /// What has to be so of every command, however it ended.
    fn look_at(&mut self, said: &Said, step: &mut Step) {
        // What a command can end with; nothing if it was killed.
        let is_full = |fault: &Happened| fault.fault == Fault::OperatorDiskFull && !fault.came_too_late;
        let is_local =
            said.code == Some(1) && said.text.contains("No space left on device") && step.faults.iter().any(is_full);
        if !is_local && !matches!(said.code, None | Some(0 | 2..=7)) {
            step.violations.push(format!("a command ended with {:?}:\n{}", said.code, said.text));
        }
        if said.text.contains("panicked at") {
            step.violations.push(format!("a command panicked:\n{}", said.text));
        }
        self.told_to_unlock.extend(to_unlock(&said.text).map(str::to_owned));
        for secret in [ROOT_PASSWORD, USER_PASSWORD, "PRIVATE KEY-----"] {
            if said.text.contains(secret) {
                step.violations.push(format!("an output shows `{secret}`:\n{}", said.text));
            }
        }
    }

    /// What has to be so after every operation.
    fn settled(&mut self, operation: &Operation, step: &mut Step) -> Result<()> {
        let plan = self.plan_of_healthy()?;
        if plan.code != Some(0) {
            step.violations
                .push(format!("a plan says that there is something to do ({:?}):\n{}", plan.code, plan.text));
        }
        let root = self.site.as_root()?;
        if let Err(violation) = hashes_agree(&root, Duration::from_secs(60)) {
            step.violations.push(serde_json::to_string(&violation)?);
        }
        let id = self.seen_cluster_id()?;
        if operation.replaces_data {
            self.cluster_id = id;
        } else if id != self.cluster_id {
            step.violations.push(format!("the cluster has the id {id:x}, and had {:x}", self.cluster_id));
        }
        self.nothing_is_left(step)?;
        if !operation.replaces_data {
            self.stopped_rightly(step)?;
        }
        self.was_available(step)
    }

    /// What a plan says as soon as all is well. On a busy machine a member may be silent for a moment once more: then nothing is to
    /// change, and it is unknown whether the run would wait for that member.
    fn plan_of_healthy(&mut self) -> Result<Said> {
        let begun = Instant::now();
        loop {
            self.site.await_healthy(HEALTHY)?;
            let plan = self.site.operator.run(&["plan", "site.yaml", "--detailed-exitcode"])?;
            let only_waits = plan.code == Some(2) && plan.stdout.contains("Plan: 0 to change");
            if !only_waits || begun.elapsed() > HEALTHY {
                return Ok(plan);
            }
        }
    }

    /// Nothing of a run is on a host, and no journal has a secret.
    fn nothing_is_left(&mut self, step: &mut Step) -> Result<()> {
        // What was out of reach at the end of a run, and said so.
        for run in std::mem::take(&mut self.told_to_unlock) {
            self.site.operator.run(&["unlock", &run])?;
        }
        for member in self.site.members()? {
            let look = "ls -d /var/tmp/etcdrun-locks/*.lock /run/etcdrun-etcd /etc/etcd/*.new /etc/etcd/*.next /etc/etcd/pki/*.next 2>/dev/null; true";
            let left = member.run(&["sh", "-c", look])?;
            if !left.trim().is_empty() {
                step.violations.push(format!("on {} there is left: {}", member.name, left.trim().replace('\n', " ")));
            }
        }
        for run in fs::read_dir(self.site.operator.path(".etcdrun/runs"))?.flatten() {
            let journal = fs::read_to_string(run.path().join("journal")).unwrap_or_default();
            for secret in [ROOT_PASSWORD, USER_PASSWORD, "PRIVATE KEY-----"] {
                if journal.contains(secret) {
                    step.violations.push(format!("the journal of {} shows `{secret}`", run.path().display()));
                }
            }
        }
        Ok(())
    }

    /// No server was stopped while others were down, so that no majority was left. What they were down for is older than what a gate
    /// takes to look.
    fn stopped_rightly(&mut self, step: &mut Step) -> Result<()> {
        let members = self.site.members()?;
        if members.len() < 3 {
            return Ok(());
        }
        let mut started = BTreeMap::new();
        for member in &members {
            started.insert(&member.name, starts(member, self.step_begun)?);
        }
        for member in &members {
            for at in stops(member, self.step_begun)? {
                // What a fault stopped within its turn was started by that turn.
                let is_back = |down: &Down| {
                    started.get(&down.member).is_some_and(|all| all.iter().any(|start| (down.from..at).contains(start)))
                };
                let is_down = |down: &&Down| {
                    !down.serves && down.from + SEEN < at && down.until.is_none_or(|until| at < until) && !is_back(down)
                };
                let others: BTreeSet<&String> = self
                    .down
                    .iter()
                    .filter(is_down)
                    .map(|down| &down.member)
                    .filter(|name| **name != member.name)
                    .collect();
                // One that is down is stopped by its fault, or by what repairs it.
                let of_fault = |down: &Down| {
                    down.member == member.name
                        && down.from - SEEN < at
                        && down.until.is_none_or(|until| at < until + SEEN)
                };
                let is_fault = self.down.iter().any(of_fault);
                if !is_fault
                    && members.len() - others.len().min(members.len()) <= members.len() / 2 + 1
                    && !others.is_empty()
                {
                    let name = &member.name;
                    step.violations.push(format!("{name} was stopped at {at} although these were down: {others:?}"));
                }
            }
        }
        Ok(())
    }

    /// The cluster served, unless faults alone explain that it did not.
    fn was_available(&mut self, step: &mut Step) -> Result<()> {
        let now_there = self.site.members()?.len();
        let (before, since) = std::mem::replace(&mut self.served, (now_there, now()));
        // Two that became three could not lose one until then.
        let members = now_there.min(before);
        if members < 3 {
            return Ok(());
        }
        let longest = LONGEST_GAP * self.site.row.machines.slowness();
        let gaps = self.judge.gaps().list;
        for gap in gaps.iter().filter(|gap| gap.length() > longest && gap.until_unix_milliseconds > since) {
            let (from, until) = (gap.from_unix_milliseconds, gap.until_unix_milliseconds);
            let is_meant = self.replaced.iter().any(|(begun, ended)| *begun < until && from < *ended);
            let grace = GRACE * i64::from(self.site.row.machines.slowness());
            let overlaps = |down: &&Down| down.from < until && down.until.is_none_or(|up| from < up + grace);
            let down: BTreeSet<&String> = self.down.iter().filter(overlaps).map(|down| &down.member).collect();
            if !is_meant && members - down.len().min(members) > members / 2 {
                let length = gap.length();
                step.violations.push(format!("nothing could be written for {length:?}, from {from} to {until}"));
            }
        }
        Ok(())
    }

    /// What all members say that the cluster is.
    fn seen_cluster_id(&mut self) -> Result<u64> {
        let mut ids = BTreeSet::new();
        for member in hash_kv(&self.site.as_root()?, None)? {
            let hash = member.hash.map_err(|error| anyhow!("{} tells no hash: {error}", member.endpoint))?;
            ids.insert(hash.cluster_id);
        }
        ensure!(ids.len() == 1, "the members are of different clusters: {ids:x?}");
        ids.first().copied().context("there are no members")
    }

    /// Chooses what comes next.
    pub fn choice(&mut self) -> &mut Choice {
        &mut self.choice
    }

    /// Ends it, and judges what clients saw. Without a violation its evidence is removed, unless it is to be kept.
    pub fn end(self, earlier: Vec<String>, begun: Instant, keep: bool) -> Result<record::Life> {
        let Self { seed, mut site, judge, folder, disk, results, number, .. } = self;
        let history = judge.stop()?;
        let verdict = check(&history);
        fs::write(folder.join("verdict.json"), serde_json::to_vec_pretty(&verdict)?)?;
        let mut violations = earlier;
        // A leader that was stopped and goes on may revoke a lease that the new leader keeps: etcd's issue 15247, and none of etcdrun's.
        let of_etcd = |violation: &&Violation| violation.kind == ViolationKind::LeaseKeyVanishedAfterLeaderChange;
        for violation in verdict.violations.iter().filter(|violation| !of_etcd(violation)) {
            violations.push(serde_json::to_string(violation)?);
        }
        let known = verdict.violations.iter().filter(of_etcd).count();
        if known > 0 {
            println!("  {known} leases were lost after a change of the leader, as etcd does");
        }
        let life = record::Life {
            seed,
            row: site.row.clone(),
            steps: number,
            seconds: begun.elapsed().as_secs_f64(),
            calls: verdict.figures.acknowledged as u64,
            violations,
        };
        record::append(results, &Line::Life(life.clone()))?;
        drop(disk);
        if life.violations.is_empty() && !keep {
            drop(site);
            fs::remove_dir_all(&folder)?;
        } else {
            site.save_logs(&folder.join("logs"))?;
            println!("  the evidence is in {}", folder.display());
        }
        Ok(life)
    }
}

/// The hosts of the lab are on this machine, so that all their processes can be seen, and so can those of the operator.
fn no_secret_in_processes(folder: &Path, lab: &str, step: &mut Step) {
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let read = |name: &str| fs::read(process.path().join(name)).unwrap_or_default();
        let line = read("cmdline");
        let line = String::from_utf8_lossy(&line);
        let shows = |secret: &&&str| line.contains(**secret);
        // Another campaign may run at the same time.
        let is_own = || {
            fs::read_link(process.path().join("cwd")).is_ok_and(|at| at.starts_with(folder))
                || String::from_utf8_lossy(&read("cgroup")).contains(&format!("/{lab}/"))
        };
        if let Some(secret) = [ROOT_PASSWORD, USER_PASSWORD].iter().find(shows).filter(|_| is_own()) {
            step.violations.push(format!("a command line shows `{secret}`: {}", line.replace('\0', " ")));
        }
    }
}

/// When systemd was told to stop the server of a host, in milliseconds since 1970.
fn stops(member: &Member, since: i64) -> Result<Vec<i64>> {
    logged(member, "systemd[1]: Stopping etcd", since)
}

/// When the server of a host was ready.
fn starts(member: &Member, since: i64) -> Result<Vec<i64>> {
    logged(member, "systemd[1]: Started etcd", since)
}

fn logged(member: &Member, text: &str, since: i64) -> Result<Vec<i64>> {
    // The whole log would take an emulated guest a minute.
    let begin = since / 1000;
    let look = format!("journalctl -u etcd -o short-unix --no-pager --since @{begin} | grep -F '{text}' || :");
    let log = member.run(&["sh", "-c", &look])?;
    let at = |line: &str| Some((line.split(' ').next()?.parse::<f64>().ok()? * 1000.0) as i64);
    Ok(log.lines().filter_map(at).filter(|at| *at >= since).collect())
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as i64
}

/// Whether the cluster of this life is destroyed by it, and not a copy of it.
fn destroys_own(command: &[String]) -> bool {
    matches!(command, [verb, cluster, ..] if verb == "destroy" && cluster == CLUSTER)
}
