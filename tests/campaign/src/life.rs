//! The life of a cluster: operations one after the other, with faults in them, and what has to be so after each.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, anyhow, ensure};
use etcdrun_judge::{Judge, Settings, Violation, ViolationKind, check, hash_kv, hashes_agree};
use etcdrun_lab::{Host, Lab};

use crate::{
    choice::Choice,
    fault::Fault,
    operation::{Kind, Operation},
    operator::{Program, Said},
    record::{self, Happened, Line, Step},
    row::{ROOT_PASSWORD, Row, USER_PASSWORD},
    site::{Member, Site},
    world::Meanwhile,
};

/// How often something is tried to bring an operation to its end.
const ATTEMPTS: usize = 8;
const HEALTHY: Duration = Duration::from_secs(120);
/// A cluster that has a majority of servers that nothing is done to serves again within this time.
const LONGEST_GAP: Duration = Duration::from_secs(30);
/// After a fault is taken back, a member needs a moment.
const GRACE: i64 = 20_000;
/// How long it may take until a fault is seen by a gate that looks right before a stop.
const SEEN: i64 = 5_000;
/// What an operation's journal has if it was never run without a fault.
const RECORDS: usize = 60;

/// How many records the journal of each command has, by what it is.
pub type Lengths = BTreeMap<String, usize>;

/// A member was down by a fault, in milliseconds since 1970.
struct Down {
    member: String,
    from: i64,
    until: Option<i64>,
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
    results: &'a Path,
    lengths: &'a mut Lengths,
    down: Vec<Down>,
    /// Times in which the cluster was meant to be down.
    replaced: Vec<(i64, i64)>,
    cluster_id: u64,
    number: usize,
    step_begun: i64,
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
        let mut site = Site::new(row, &folder.join("operator"), program, lab)?;
        site.operator.must(&["playbook", "site.yaml"])?;
        let judge = Judge::start(site.as_user()?, Settings { seed, ..Settings::default() }, &folder.join("judge"))?;
        let mut life = Self {
            seed,
            choice: Choice::new(seed),
            site,
            judge,
            folder,
            results,
            lengths,
            down: Vec::new(),
            replaced: Vec::new(),
            cluster_id: 0,
            number: 0,
            step_begun: 0,
        };
        life.cluster_id = life.seen_cluster_id()?;
        Ok(life)
    }

    /// One operation, with a fault in it or without. Nothing if this cluster is not one that it can be done to.
    pub fn step(&mut self, kind: Kind, fault: Option<Fault>) -> Result<Option<Step>> {
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
        println!("{:>3} {kind:?}{}", self.number, fault.map(|fault| format!(" with {fault:?}")).unwrap_or_default());
        if let Err(error) = self.perform(&operation, fault, &mut step) {
            step.violations.push(format!("{error:#}"));
        } else if let Err(error) = self.settled(&operation, &mut step) {
            step.violations.push(format!("{error:#}"));
        }
        step.seconds = begun.elapsed().as_secs_f64();
        for violation in &step.violations {
            println!("    VIOLATION: {violation}");
        }
        println!("    {:?} in {:.0} s{}", step.codes, step.seconds, if step.begun_anew { ", begun anew" } else { "" });
        record::append(self.results, &Line::Step(step.clone()))?;
        Ok(Some(step))
    }

    /// Runs all commands of it, and brings each to its end.
    fn perform(&mut self, operation: &Operation, fault: Option<Fault>, step: &mut Step) -> Result<()> {
        let since = now();
        if let Some((_, members)) = &operation.cause {
            for member in members {
                self.down.push(Down { member: member.name.clone(), from: now(), until: None });
            }
        }
        let hit = self.choice.below(operation.commands.len());
        for (number, command) in operation.commands.iter().enumerate() {
            if operation.replaces_data {
                self.judge.pause()?;
                self.judge.new_epoch(&format!("{:?}", operation.kind))?;
            }
            let planned = match fault.filter(|_| number == hit) {
                Some(fault) => self.plan(fault, operation)?,
                None => None,
            };
            let said = self.command(command, planned.as_ref(), step)?;
            self.judge.resume();
            if said.code != Some(0) {
                self.converge(operation, command, planned.as_ref(), step)?;
            }
            self.refresh_judge()?;
        }
        self.down.iter_mut().for_each(Down::ends);
        if operation.replaces_data {
            self.replaced.push((since, now() + GRACE));
        }
        Ok(())
    }

    fn plan(&mut self, fault: Fault, operation: &Operation) -> Result<Option<Planned>> {
        let members = self.site.members()?;
        let lost: Vec<&String> =
            operation.cause.iter().flat_map(|(_, members)| members).map(|member| &member.name).collect();
        // One that is lost already has nothing more to lose; and more than a minority is another story.
        let victims: Vec<Member> = members.iter().filter(|member| !lost.contains(&&member.name)).cloned().collect();
        let spare = (members.len() - 1) / 2;
        let is_alone = fault == Fault::Partitioned && members.len() < 2;
        if is_alone || (fault.loses_data() && lost.len() + 1 > spare) {
            return Ok(None);
        }
        let (share, later) = (self.choice.below(1000), Duration::from_millis(self.choice.below(400) as u64));
        let hold = match self.choice.below(6) {
            0 => None,
            1 | 2 => Some(Duration::from_secs(2)),
            _ => Some(Duration::from_secs(3 + self.choice.below(10) as u64)),
        };
        let member = self.choice.one_of(&victims).clone();
        Ok(Some(Planned { fault, share, later, hold, member }))
    }

    /// Runs a command, and lets a fault happen to it.
    fn command(&mut self, command: &[String], planned: Option<&Planned>, step: &mut Step) -> Result<Said> {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let name = words.iter().take(2).copied().collect::<Vec<_>>().join(" ");
        let of = self.lengths.get(&name).copied().unwrap_or(RECORDS);
        let said = match planned {
            None => self.site.operator.run(&words)?,
            Some(planned) => self.with_fault(&words, of, planned, step)?,
        };
        self.look_at(&said, step);
        step.codes.push(said.code);
        // A run that goes on has fewer.
        if said.code == Some(0) && said.records > 2 && words != ["resume"] {
            self.lengths.insert(name, said.records);
        }
        Ok(said)
    }

    fn with_fault(&mut self, words: &[&str], of: usize, planned: &Planned, step: &mut Step) -> Result<Said> {
        let Planned { fault, share, later, hold, member } = planned;
        let record = 1 + share * of / 1000;
        let mut happened = Happened {
            fault: *fault,
            record,
            of,
            later: later.as_millis() as u64,
            member: (!fault.is_operators()).then(|| member.name.clone()),
            seconds: hold.map(|hold| hold.as_secs()),
            came_too_late: false,
        };
        if let Some(place) = fault.place_of_death() {
            let death = format!("{place}:{record}");
            let said = self.site.operator.start(words, &[("ETCDRUN_TEST_DIE", &death)])?.wait()?;
            happened.came_too_late = said.code.is_some();
            step.faults.push(happened);
            return Ok(said);
        }
        let mut running = self.site.operator.start(words, &[])?;
        happened.came_too_late = !running.await_record(record)?;
        if happened.came_too_late {
            step.faults.push(happened);
            return running.wait();
        }
        sleep(*later);
        if *fault == Fault::OperatorKilled {
            step.faults.push(happened);
            running.kill()?;
            return running.wait();
        }
        step.faults.push(happened);
        let others = self.others(member)?;
        let others: Vec<&Host> = others.iter().collect();
        if fault.takes_down() {
            self.down.push(Down { member: member.name.clone(), from: now(), until: None });
        }
        fault.inject(&self.site.lab, member, &others)?;
        if let Some(hold) = hold {
            let until = Instant::now() + *hold;
            while Instant::now() < until && !running.is_over()? {
                sleep(Duration::from_millis(20));
            }
            fault.heal(&self.site.lab, member, &others)?;
            self.is_up(*fault, &member.name);
        }
        let said = running.wait()?;
        if hold.is_none() {
            fault.heal(&self.site.lab, member, &others)?;
            self.is_up(*fault, &member.name);
        }
        Ok(said)
    }

    /// A member whose data is lost is not up before it was replaced.
    fn is_up(&mut self, fault: Fault, member: &str) {
        if !fault.loses_data() {
            let of_member = self.down.iter_mut().filter(|down| down.member == member);
            of_member.for_each(Down::ends);
        }
    }

    fn others(&mut self, member: &Member) -> Result<Vec<Host>> {
        let members = self.site.members()?.into_iter();
        Ok(members.filter(|other| other.host.name() != member.host.name()).map(|other| other.host).collect())
    }

    /// Does what a person would do about a command that did not succeed, until it has, or until patience is at its end.
    fn converge(
        &mut self,
        operation: &Operation,
        command: &[String],
        planned: Option<&Planned>,
        step: &mut Step,
    ) -> Result<()> {
        let died = planned.is_some_and(|planned| planned.fault.is_operators());
        if died {
            let meanwhile = *self.choice.one_of(&Meanwhile::ALL);
            meanwhile.happen(&mut self.site, &mut self.choice)?;
            step.meanwhile.push(meanwhile);
        }
        for attempt in 0..ATTEMPTS {
            let unfinished = self.unfinished()?;
            // As long as the old cluster serves, what is written to it goes with it, as was asked for. What is written to the new one
            // must stay, also if the rest of the run comes later.
            if operation.replaces_data && (unfinished.is_none() || self.old_cluster_serves()) {
                self.judge.pause()?;
                self.judge.new_epoch("the old cluster is still there")?;
            }
            let resume = ["resume".to_owned()];
            step.begun_anew |= unfinished.is_none();
            let said = self.command(if unfinished.is_some() { &resume } else { command }, None, step);
            self.judge.resume();
            let said = said?;
            match said.code {
                Some(0) => return Ok(()),
                // What it was for is no longer so: the member that was to be replaced is well again, or was replaced.
                Some(5) if unfinished.is_none() && self.site.await_healthy(HEALTHY).is_ok() => return Ok(()),
                _ => {}
            }
            // A member that was lost meanwhile is replaced first, as the gates demand.
            if let Some(planned) = planned.filter(|planned| planned.fault.loses_data()) {
                let name = planned.member.name.clone();
                let listed = self.site.members()?.iter().any(|member| member.name == name);
                if listed && self.site.await_healthy(Duration::from_secs(5)).is_err() {
                    self.give_up(unfinished.as_deref())?;
                    let words = ["member", "replace", &name, "--yes"].map(str::to_owned);
                    self.command(&words, None, step)?;
                    continue;
                }
            }
            // It may have to wait for members that come back; after that a run that is still refused is given up.
            let healthy = self.site.await_healthy(Duration::from_secs(30)).is_ok();
            if attempt >= 2 && healthy {
                self.give_up(unfinished.as_deref())?;
            }
        }
        Err(anyhow!("{:?} does not come to its end: {:?}", operation.kind, step.codes))
    }

    fn old_cluster_serves(&mut self) -> bool {
        let Ok(root) = self.site.as_root() else { return false };
        let members = hash_kv(&root, None).unwrap_or_default();
        members.iter().any(|member| member.hash.as_ref().is_ok_and(|hash| hash.cluster_id == self.cluster_id))
    }

    /// The newest run, if it has not come to its end.
    fn unfinished(&mut self) -> Result<Option<String>> {
        let runs = self.site.operator.must(&["runs", "--json"])?.json()?;
        let newest = &runs[0];
        let id = newest["id"].as_str().context("a run has no id")?;
        Ok((newest["state"] != "done").then(|| id.to_owned()))
    }

    fn give_up(&mut self, run: Option<&str>) -> Result<()> {
        if let Some(run) = run {
            self.site.operator.run(&["unlock", run])?;
            self.site.operator.run(&["runs", "prune", "--keep", "1000", "--unfinished"])?;
            // The folder of a run that nobody resumes is out of the way.
            let folder = self.site.operator.path(".etcdrun/runs").join(run);
            let aside = self.site.operator.path(&format!("given-up-{run}"));
            if folder.exists() {
                fs::rename(folder, aside)?;
            }
        }
        Ok(())
    }

    /// Members, certificates and passwords may be others.
    fn refresh_judge(&mut self) -> Result<()> {
        let cluster = self.site.as_user()?;
        self.judge.now_credentials(cluster.tls, cluster.login);
        self.judge.now_members(cluster.endpoints);
        Ok(())
    }

    /// What has to be so of every command, however it ended.
    fn look_at(&self, said: &Said, step: &mut Step) {
        // What a command can end with; nothing if it was killed.
        if !matches!(said.code, None | Some(0 | 2..=7)) {
            step.violations.push(format!("a command ended with {:?}:\n{}", said.code, said.text));
        }
        if said.text.contains("panicked at") {
            step.violations.push(format!("a command panicked:\n{}", said.text));
        }
        for secret in [ROOT_PASSWORD, USER_PASSWORD, "PRIVATE KEY-----"] {
            if said.text.contains(secret) {
                step.violations.push(format!("an output shows `{secret}`:\n{}", said.text));
            }
        }
    }

    /// What has to be so after every operation.
    fn settled(&mut self, operation: &Operation, step: &mut Step) -> Result<()> {
        self.site.await_healthy(HEALTHY)?;
        let plan = self.site.operator.run(&["plan", "site.yaml", "--detailed-exitcode"])?;
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

    /// Nothing of a run is on a host, and no journal has a secret.
    fn nothing_is_left(&mut self, step: &mut Step) -> Result<()> {
        for member in self.site.members()? {
            let look = "ls -d /var/tmp/etcdrun-locks/*.lock /run/etcdrun-etcd /etc/etcd/*.new /etc/etcd/*.next /etc/etcd/pki/*.next 2>/dev/null; true";
            let left = member.host.run(&["sh", "-c", look])?;
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
        for member in &members {
            for at in stops(&member.host, self.step_begun)? {
                let is_down = |down: &&Down| down.from + SEEN < at && down.until.is_none_or(|until| at < until);
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
        let members = self.site.members()?.len();
        if members < 3 {
            return Ok(());
        }
        for gap in self.judge.gaps().list.iter().filter(|gap| gap.length() > LONGEST_GAP) {
            let (from, until) = (gap.from_unix_milliseconds, gap.until_unix_milliseconds);
            let is_meant = self.replaced.iter().any(|(begun, ended)| *begun < until && from < *ended);
            let overlaps = |down: &&Down| down.from < until && down.until.is_none_or(|up| from < up + GRACE);
            let down = self.down.iter().filter(overlaps).count();
            if !is_meant && members - down.min(members) > members / 2 {
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

    /// Ends it, and judges what clients saw. Without a violation its evidence is removed.
    pub fn end(self, earlier: Vec<String>, begun: Instant) -> Result<record::Life> {
        let Self { seed, site, judge, folder, results, number, .. } = self;
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
        if life.violations.is_empty() {
            drop(site);
            fs::remove_dir_all(&folder)?;
        } else {
            site.save_logs(&folder.join("logs"))?;
            println!("  the evidence is in {}", folder.display());
        }
        Ok(life)
    }
}

/// When systemd was told to stop the server of a host, in milliseconds since 1970.
fn stops(host: &Host, since: i64) -> Result<Vec<i64>> {
    let log = host.run(&[
        "sh",
        "-c",
        "journalctl -u etcd -o short-unix --no-pager | grep -F 'systemd[1]: Stopping etcd' || :",
    ])?;
    let at = |line: &str| Some((line.split(' ').next()?.parse::<f64>().ok()? * 1000.0) as i64);
    Ok(log.lines().filter_map(at).filter(|at| *at >= since).collect())
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as i64
}
