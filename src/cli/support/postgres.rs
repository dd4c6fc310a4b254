//! How PostgreSQL clusters under Patroni are: what their members say by Patroni's REST API, each through its own host. Changes nothing.

use std::{collections::BTreeMap, time::Duration};

use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::{site::Site, visit::Hosts};
use crate::{
    http::{Client, HttpError, Trust, text},
    inventory::{Host, HostId, Inventory},
    model::Value,
    modules::tunnel,
    pki::Store,
    report::sanitize,
    source::Node,
};

/// How long an answer may be.
const LONGEST: usize = 1 << 20;

/// A PostgreSQL cluster that the inventory describes: the hosts of a group with the variables of the role `patroni`.
pub struct PostgresQuery {
    scope: String,
    group: String,
    /// The etcd cluster of the inventory that it uses.
    etcd: Option<String>,
    /// How its members are asked, or why they cannot be.
    client: Result<Client, String>,
    members: Vec<Member>,
}

struct Member {
    id: HostId,
    name: String,
    url: String,
}

/// What has to be known to ask it.
const NAMES: [&str; 5] = ["patroni_scope", "patroni_group", "patroni_ca", "patroni_ip", "patroni_restapi_port"];

impl PostgresQuery {
    /// All of the inventory.
    pub fn all(site: &Site) -> Vec<Self> {
        let mut queries: BTreeMap<(String, String), Self> = BTreeMap::new();
        // Without this variable the role refuses to do anything.
        for host in site.inventory.hosts().filter(|host| host.var("patroni_superuser_password").is_some()) {
            let scope = said(host, "patroni_scope").unwrap_or_else(|| "main".into());
            let group = said(host, "patroni_group").unwrap_or_else(|| "pg".into());
            // The variables may be those of all hosts.
            if !host.group_names.iter().any(|name| name.as_str() == group) {
                continue;
            }
            let query = queries.entry((group, scope)).or_insert_with_key(|(group, scope)| {
                let authority = said(host, "patroni_ca").unwrap_or_else(|| format!("postgres-{scope}"));
                let etcd = said(host, "patroni_etcd_cluster");
                Self {
                    scope: scope.clone(),
                    group: group.clone(),
                    etcd: etcd.filter(|name| site.inventory.cluster(name).is_some()),
                    client: unaskable(host).map_or_else(|| client(&Store::new(site.state.path(), &authority)), Err),
                    members: Vec::new(),
                }
            });
            query.members.push(Member::of(host));
        }
        queries.into_values().collect()
    }

    /// Whether a member, or its hypervisor, is one of these hosts.
    pub fn has_one_of(&self, inventory: &Inventory, hosts: &[HostId]) -> bool {
        let is_there = |id| inventory.hypervisor_of(id).is_some_and(|host| hosts.contains(&host.id));
        self.members.iter().any(|member| hosts.contains(&member.id) || is_there(member.id))
    }

    pub async fn look(&self, hosts: &Hosts, limit: Duration) -> PostgresReport {
        match &self.client {
            Ok(client) => {
                self.report(&join_all(self.members.iter().map(|member| member.ask(hosts, client, limit))).await)
            }
            Err(why) => {
                let rows = self.members.iter().map(|member| PostgresRow::of(&member.name, None, false)).collect();
                self.told(None, rows, vec![why.clone()], Vec::new())
            }
        }
    }

    fn told(
        &self,
        primary: Option<String>,
        members: Vec<PostgresRow>,
        problems: Vec<String>,
        warnings: Vec<String>,
    ) -> PostgresReport {
        PostgresReport {
            name: self.scope.clone(),
            group: self.group.clone(),
            healthy: problems.is_empty(),
            primary,
            etcd: self.etcd.clone(),
            members,
            problems,
            warnings,
        }
    }

    fn report(&self, answers: &[Answer]) -> PostgresReport {
        let views = answers.iter().filter_map(|answer| if let Answer::Seen(view) = answer { Some(view) } else { None });
        // Who is up to date is who knows of the latest primary.
        let newest = |view: &&View| view.members.iter().filter_map(|member| member.timeline).max();
        let view = views.max_by_key(newest);
        let listed = view.map_or(&[][..], |view| &view.members);
        let mut problems = Vec::new();
        let mut rows = Vec::new();
        for (member, answer) in self.members.iter().zip(answers) {
            let name = &member.name;
            let found = listed.iter().find(|other| other.name == *name);
            match answer {
                Answer::Unreachable(why) | Answer::Silent(why) => problems.push(format!("{name}: {}", sanitize(why))),
                Answer::Seen(_) => {}
            }
            match found {
                Some(found) if found.serves() => {}
                Some(found) if found.state == "running" => {
                    problems.push(format!("{name} runs, but does not stream from the primary; `etcdrun ssh {name} -- journalctl -u patroni` may show why"));
                }
                Some(found) => problems.push(format!(
                    "PostgreSQL on {name} is {}; `etcdrun ssh {name} -- journalctl -u patroni` may show why",
                    sanitize(&found.state)
                )),
                // One that was down for a while is no longer listed.
                None if view.is_none() || matches!(answer, Answer::Unreachable(_)) => {}
                None => problems.push(format!(
                    "{name} is no member of {}; `etcdrun playbook postgres.yaml` adds it{}",
                    self.scope,
                    self.consent()
                )),
            }
            rows.push(PostgresRow::of(name, found, matches!(answer, Answer::Unreachable(_))));
        }
        let known = |other: &&Listed| self.members.iter().any(|member| member.name == other.name);
        for other in listed.iter().filter(|other| !known(other)) {
            problems.push(format!("{} is a member, but not in the inventory", sanitize(&other.name)));
        }
        let primary = listed.iter().find(|member| member.leads() && member.serves());
        let primary = primary.map(|member| sanitize(&member.name).into_owned());
        if view.is_some() && primary.is_none() {
            problems.push(format!("{} has no primary", self.scope));
        }
        let paused = view.is_some_and(|view| view.pause);
        let warnings = paused.then(|| "failover is paused; `patronictl resume` on a member ends that".to_owned());
        self.told(primary, rows, problems, warnings.into_iter().collect())
    }

    fn consent(&self) -> String {
        if self.group == "pg" { String::new() } else { format!(" (with `-e patroni_hosts={}`)", self.group) }
    }
}

/// The value of a variable, if the inventory says it in so many words.
fn said(host: &Host, name: &str) -> Option<String> {
    let node = host.var(name).filter(|node| !node.is_template())?;
    match node.to_value() {
        Value::String(text) => Some(text),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Why it cannot be asked, whatever it is like.
fn unaskable(host: &Host) -> Option<String> {
    let instead = format!("`etcdrun ssh {} -- patronictl list` shows its members", host.name);
    if let Some(name) = NAMES.into_iter().find(|name| host.var(name).is_some_and(Node::is_template)) {
        return Some(format!(
            "cannot be queried, because `{name}` is a template, which only a run can render; {instead}"
        ));
    }
    let demands = said(host, "patroni_restapi_verify_client").as_deref() == Some("required");
    demands.then(|| {
        format!("cannot be queried, because `patroni_restapi_verify_client` is `required`, and etcdrun has no client certificate; {instead}")
    })
}

fn client(store: &Store) -> Result<Client, String> {
    let trusted = store.trusted().map_err(|error| error.message)?;
    let path = store.certificate_path();
    let trusted = trusted
        .ok_or_else(|| format!("there is no {}; `etcdrun playbook postgres.yaml` creates it", path.display()))?;
    Client::new(Trust::Pem(&trusted)).map_err(|error| error.to_string())
}

impl Member {
    fn of(host: &Host) -> Self {
        let member = host.var("member").and_then(Node::as_map).and_then(|member| member.get("ip"));
        let ip = said(host, "patroni_ip").or_else(|| member.and_then(Node::as_str).map(str::to_owned));
        let ip = ip.unwrap_or_else(|| host.address().to_owned());
        let ip = if ip.contains(':') { format!("[{ip}]") } else { ip };
        let port = said(host, "patroni_restapi_port").unwrap_or_else(|| "8008".into());
        Self { id: host.id, name: host.name.to_string(), url: format!("https://{ip}:{port}/cluster") }
    }

    async fn ask(&self, hosts: &Hosts, client: &Client, limit: Duration) -> Answer {
        let session = hosts.visit.session(self.id);
        let late = || format!("no answer within {limit:?}");
        match timeout(limit, session.link.connection()).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Answer::Unreachable(error.to_string()),
            Err(_) => return Answer::Unreachable(late()),
        }
        let dial = tunnel(session);
        let exchange = async {
            let response = client.get(&self.url, &*dial).await?;
            let status = response.status();
            if !status.is_success() {
                return Err(HttpError::Status { url: self.url.clone(), status });
            }
            text(response, LONGEST).await
        };
        let said = match timeout(limit, exchange).await {
            Ok(Ok(said)) => said,
            // It asks etcd first.
            Ok(Err(error)) => {
                return Answer::Silent(format!("Patroni does not answer, as it does while its etcd is down: {error}"));
            }
            Err(_) => return Answer::Silent(format!("Patroni does not answer: {}", late())),
        };
        match serde_json::from_str(&said) {
            Ok(view) => Answer::Seen(view),
            Err(error) => Answer::Silent(format!("the answer of Patroni cannot be read: {error}")),
        }
    }
}

enum Answer {
    /// Its host cannot be logged into.
    Unreachable(String),
    /// There is no way to ask it.
    Silent(String),
    Seen(View),
}

/// What a member says of all of them.
#[derive(Debug, Deserialize)]
struct View {
    #[serde(default)]
    members: Vec<Listed>,
    #[serde(default)]
    pause: bool,
}

#[derive(Debug, Deserialize)]
struct Listed {
    name: String,
    role: String,
    state: String,
    #[serde(default)]
    timeline: Option<u64>,
    /// In bytes, or `unknown`. The primary has none.
    #[serde(default)]
    lag: Value,
}

impl Listed {
    fn leads(&self) -> bool {
        matches!(self.role.as_str(), "leader" | "standby_leader")
    }

    /// A replica that only runs gets nothing from the primary.
    fn serves(&self) -> bool {
        self.state == "streaming" || (self.state == "running" && self.leads())
    }
}

#[derive(Debug, Serialize)]
pub struct PostgresReport {
    pub name: String,
    pub group: String,
    pub healthy: bool,
    pub primary: Option<String>,
    /// The etcd cluster that it uses, if the inventory has it.
    pub etcd: Option<String>,
    pub members: Vec<PostgresRow>,
    pub problems: Vec<String>,
    pub warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct PostgresRow {
    pub member: String,
    /// As Patroni says it: leader, replica, `sync_standby`, ...
    pub role: Option<String>,
    pub state: Option<String>,
    pub timeline: Option<u64>,
    pub lag: Option<u64>,
    pub unreachable: bool,
}

impl PostgresRow {
    fn of(name: &str, found: Option<&Listed>, unreachable: bool) -> Self {
        Self {
            member: name.to_owned(),
            role: found.map(|found| sanitize(&found.role).into_owned()),
            state: found.map(|found| sanitize(&found.state).into_owned()),
            timeline: found.and_then(|found| found.timeline),
            lag: found.and_then(|found| found.lag.as_u64()),
            unreachable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query() -> PostgresQuery {
        let member = |index: u32| Member { id: HostId(index), name: format!("pg-{index}"), url: String::new() };
        let members = vec![member(1), member(2)];
        PostgresQuery { scope: "main".into(), group: "pg".into(), etcd: None, client: Err(String::new()), members }
    }

    fn seen(text: &str) -> Answer {
        Answer::Seen(serde_json::from_str(text).unwrap())
    }

    const OLD: &str =
        r#"{"members": [{"name": "pg-2", "role": "leader", "state": "running", "timeline": 1}], "scope": "main"}"#;

    #[test]
    fn the_member_that_knows_of_the_latest_primary_is_believed() {
        let new = r#"{"members": [{"name": "pg-1", "role": "leader", "state": "running", "timeline": 2, "host": "10.0.0.1"},
            {"name": "pg-2", "role": "sync_standby", "state": "streaming", "timeline": 2, "lag": 16}], "pause": true}"#;
        let report = query().report(&[seen(new), seen(OLD)]);
        assert_eq!((report.primary.as_deref(), report.healthy), (Some("pg-1"), true), "{report:?}");
        assert_eq!((report.members[1].lag, report.warnings.len()), (Some(16), 1));
    }

    #[test]
    fn what_is_wrong_is_a_problem() {
        let stopped = r#"{"members": [{"name": "pg-1", "role": "replica", "state": "stopped", "lag": "unknown"},
            {"name": "pg-9", "role": "replica", "state": "streaming", "timeline": 1, "lag": 0}]}"#;
        let report = query().report(&[seen(stopped), Answer::Unreachable("no route".into())]);
        let problems = report.problems.join("\n");
        for part in ["PostgreSQL on pg-1 is stopped", "pg-2: no route", "pg-9 is a member, but", "has no primary"] {
            assert!(problems.contains(part), "{part}: {problems}");
        }
        assert!(report.members[1].unreachable && !report.healthy && !problems.contains("pg-2 is no member"));
        let alone = r#"{"members": [{"name": "pg-1", "role": "replica", "state": "running"}]}"#;
        let problems = query().report(&[seen(alone), Answer::Silent("off".into())]).problems.join("\n");
        for part in ["pg-1 runs, but does not stream", "pg-2 is no member of main"] {
            assert!(problems.contains(part), "{part}: {problems}");
        }
        let silent = query().report(&[Answer::Silent("off".into()), Answer::Silent("off".into())]);
        assert_eq!(silent.problems, ["pg-1: off", "pg-2: off"]);
    }
}
