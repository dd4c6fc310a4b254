//! `wait_for`: waits until a port, a path, SSH or a web server is as it should be.

use std::{
    io,
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout};

use super::{
    Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, ResultField, Running,
};
use crate::{
    http::{self, Client, Dial, Direct, HttpError, Trust},
    model::{Effects, Outcome, Resource, Seconds},
    remote::{Payload, RemoteError, Session, Trouble},
    ssh::{SshError, Stream, TcpTunnel},
};

/// Waits until a port answers, a path exists, SSH accepts a login or a URL answers; or until it no
/// longer does.
///
/// Ports and URLs are tried through the target's SSH connection, so the target needs no tools and
/// the operator no route. Read-only. A plan checks once and does not wait.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WaitFor {
    /// The port to try.
    #[serde(default)]
    port: Option<u16>,
    /// Where the port is, as seen from the target.
    #[serde(default)]
    host: Option<String>,
    /// A path on the target.
    #[serde(default)]
    path: Option<String>,
    /// Wait until the target accepts an SSH connection and runs a shell.
    #[serde(default)]
    ssh: Option<bool>,
    /// An http or https URL.
    #[serde(default)]
    url: Option<String>,
    /// The expected status codes of the URL; default: any 2xx.
    #[serde(default)]
    status: Option<Vec<u16>>,
    /// Certificates to trust for an https URL, instead of the operator's usual ones: a PEM file here.
    #[serde(default)]
    ca_file: Option<PathBuf>,
    /// From where ports and URLs are tried.
    #[serde(default)]
    from: From,
    /// A regular expression that must be found in the file, or in the answer of the URL.
    #[serde(default)]
    search_regex: Option<String>,
    #[serde(default)]
    state: State,
    /// The timeout.
    #[serde(default = "default_timeout")]
    timeout: Seconds,
    /// Wait this long before the first check.
    #[serde(default)]
    delay: Seconds,
    /// Wait this long between checks.
    #[serde(default = "default_sleep")]
    sleep: Seconds,
    /// The timeout of a single check.
    #[serde(default = "default_connect_timeout")]
    connect_timeout: Seconds,
    /// The message at the timeout.
    #[serde(default)]
    msg: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum From {
    /// Through the SSH connection, as the target would.
    #[default]
    Target,
    /// Directly from the workstation that etcdrun runs on.
    Operator,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum State {
    /// It answers. The same as `present`.
    #[default]
    Started,
    Present,
    /// It no longer answers. The same as `absent`.
    Stopped,
    Absent,
}

fn default_timeout() -> Seconds {
    Seconds(Duration::from_secs(300))
}

fn default_sleep() -> Seconds {
    Seconds(Duration::from_secs(1))
}

fn default_connect_timeout() -> Seconds {
    Seconds(Duration::from_secs(5))
}

impl Module for WaitFor {
    const NAME: &'static str = "wait_for";
    const EXAMPLE: &'static str = "\
- name: Wait until etcd accepts clients
  wait_for:
    port: 2379
    timeout: 2m
- name: Wait until etcd is healthy
  wait_for:
    url: http://127.0.0.1:2381/health
    search_regex: '\"health\" *: *\"true\"'
";
    const RESULT: &'static [ResultField] = &[
        ResultField { name: "elapsed", doc: "How many seconds it took." },
        ResultField { name: "match", doc: "What `search_regex` found, its groups after it." },
    ];

    fn validate(&self) -> Result<(), ModuleError> {
        let named = [
            ("port", self.port.is_some()),
            ("path", self.path.is_some()),
            ("ssh", self.ssh.is_some()),
            ("url", self.url.is_some()),
        ];
        let named: Vec<&str> = named.iter().filter(|(_, given)| *given).map(|(name, _)| *name).collect();
        match named.as_slice() {
            [] => Err(ModuleError::new("nothing to wait for").help("set one of `port`, `path`, `ssh` and `url`")),
            [only] => self.check_companions(only),
            several => Err(ModuleError::new(format!("`{}` exclude each other", several.join("`, `")))
                .help("use one task for each")),
        }
    }

    fn effects(&self) -> Effects {
        Effects::read_only().reading(self.path.as_deref().map(Resource::path))
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        Ok(Action::Engine(Box::new(Wait {
            until: self.condition()?,
            wanted: matches!(self.state, State::Started | State::Present),
            timeout: self.timeout.0,
            delay: self.delay.0,
            sleep: self.sleep.0.max(Duration::from_millis(10)),
            look_timeout: self.connect_timeout.0,
            msg: self.msg,
        })))
    }
}

impl WaitFor {
    /// Arguments that mean something only together with others.
    fn check_companions(&self, what: &str) -> Result<(), ModuleError> {
        let companions = [
            ("host", self.host.is_some(), &["port"][..]),
            ("status", self.status.is_some(), &["url"]),
            ("ca_file", self.ca_file.is_some(), &["url"]),
            ("search_regex", self.search_regex.is_some(), &["path", "url"]),
        ];
        match companions.iter().find(|(_, given, goes_with)| *given && !goes_with.contains(&what)) {
            Some((name, _, goes_with)) => Err(ModuleError::new(format!("`{name}` means nothing with `{what}`"))
                .help(format!("it goes with `{}`", goes_with.join("` or `")))),
            None => Ok(()),
        }
    }

    fn condition(&self) -> Result<Condition, ModuleError> {
        let regex = self.search_regex.as_deref().map(compile).transpose()?;
        if let Some(port) = self.port {
            let host = self.host.clone().unwrap_or_else(|| "127.0.0.1".into());
            return Ok(Condition::Port { host, port, from: self.from });
        }
        if let Some(path) = self.path.clone() {
            return Ok(Condition::Path { path, regex });
        }
        if let Some(url) = self.url.clone() {
            let trust = self.ca_file.as_deref().map_or(Trust::System, Trust::File);
            let client = Client::new(trust).map_err(|error| ModuleError::new(error.to_string()))?;
            return Ok(Condition::Url { client, url, status: self.status.clone(), regex, from: self.from });
        }
        match self.state {
            _ if self.ssh != Some(true) => Err(ModuleError::new("nothing to wait for").help("`ssh` is false")),
            State::Started | State::Present => Ok(Condition::Ssh),
            _ => Err(ModuleError::new("`ssh` can only be waited for, not against").help("use `port: 22` for that")),
        }
    }
}

fn compile(pattern: &str) -> Result<Regex, ModuleError> {
    // As in other tools, `^` and `$` are about lines.
    regex::RegexBuilder::new(pattern)
        .multi_line(true)
        .build()
        .map_err(|error| ModuleError::new(format!("`search_regex` is not a regular expression: {error}")))
}

struct Wait {
    until: Condition,
    /// Whether the condition should hold, or no longer hold.
    wanted: bool,
    timeout: Duration,
    delay: Duration,
    sleep: Duration,
    look_timeout: Duration,
    msg: Option<String>,
}

enum Condition {
    Port { host: String, port: u16, from: From },
    Path { path: String, regex: Option<Regex> },
    Ssh,
    Url { client: Client, url: String, status: Option<Vec<u16>>, regex: Option<Regex>, from: From },
}

/// What one look came to.
enum Look {
    Holds {
        found: Option<Vec<String>>,
    },
    /// And why, for whoever waited in vain.
    HoldsNot(String),
}

impl EngineAction for Wait {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            if context.check_mode() {
                return self.foresee(&context.session).await;
            }
            let start = Instant::now();
            context.wait(self.delay).await?;
            loop {
                let why = match (self.look(&context.session).await?, self.wanted) {
                    (Look::Holds { found }, true) => return Ok(outcome(start, found)),
                    (Look::HoldsNot(_), false) => return Ok(outcome(start, None)),
                    (Look::HoldsNot(why), true) => why,
                    (Look::Holds { .. }, false) => "it is still there".to_owned(),
                };
                if start.elapsed() + self.sleep > self.timeout {
                    return Ok(self.in_vain(start, &why));
                }
                context.wait(self.sleep).await?;
            }
        })
    }
}

impl Wait {
    /// In a plan nobody waits: what is not so yet may become so through tasks that only a run does.
    async fn foresee(&self, session: &Session) -> Result<Outcome, ActionError> {
        Ok(match (self.look(session).await?, self.wanted) {
            (Look::Holds { .. }, true) | (Look::HoldsNot(_), false) => Outcome::ok(),
            (Look::HoldsNot(why), true) => would_wait(&format!("{}: {why}", self.until.describe())),
            (Look::Holds { .. }, false) => would_wait(&format!("{} is still there", self.until.describe())),
        })
    }

    async fn look(&self, session: &Session) -> Result<Look, ActionError> {
        match timeout(self.look_timeout, self.until.look(session)).await {
            Ok(look) => look,
            Err(_) => {
                if matches!(self.until, Condition::Ssh) {
                    // A connection that went dead without a word would go on swallowing every try.
                    let _ = timeout(self.look_timeout, session.link.reconnect()).await;
                }
                Ok(Look::HoldsNot(format!("no answer within {:?}", self.look_timeout)))
            }
        }
    }

    fn in_vain(&self, start: Instant, why: &str) -> Outcome {
        let awaited = if self.wanted { "" } else { " to go away" };
        let msg = match &self.msg {
            Some(msg) => format!("{msg} ({why})"),
            None => format!("waited {:?} for {}{awaited}: {why}", self.timeout, self.until.describe()),
        };
        Outcome::failed(msg).with("elapsed", start.elapsed().as_secs())
    }
}

fn outcome(start: Instant, found: Option<Vec<String>>) -> Outcome {
    let outcome = Outcome::ok().with("elapsed", start.elapsed().as_secs());
    match found {
        Some(found) => outcome.with("match", found),
        None => outcome,
    }
}

fn would_wait(what: &str) -> Outcome {
    Outcome { unknown: true, msg: format!("would wait for {what}"), ..Outcome::ok() }
}

impl Condition {
    fn describe(&self) -> String {
        match self {
            Self::Port { host, port, .. } => format!("{host}:{port}"),
            Self::Path { path, .. } => path.clone(),
            Self::Ssh => "SSH".into(),
            Self::Url { url, .. } => url.clone(),
        }
    }

    async fn look(&self, session: &Session) -> Result<Look, ActionError> {
        match self {
            Self::Port { host, port, from } if is_direct(*from, session) => Ok(direct_port(host, *port).await),
            Self::Port { host, port, .. } => tunnelled_port(session, host, *port).await,
            Self::Path { path, regex } => look_at_path(session, path, regex.as_ref()).await,
            Self::Ssh => Ok(look_at_ssh(session).await),
            Self::Url { client, url, status, regex, from } => {
                let look = |dial| look_at_url(client, url, status.as_deref(), regex.as_ref(), dial);
                if is_direct(*from, session) {
                    return look(&Direct).await;
                }
                let tunnel = Tunnel { session, broken: Mutex::default() };
                let seen = look(&tunnel).await?;
                tunnel.verdict(seen)
            }
        }
    }
}

/// A target that is this machine needs no tunnel.
fn is_direct(from: From, session: &Session) -> bool {
    from == From::Operator || session.link.is_local()
}

async fn direct_port(host: &str, port: u16) -> Look {
    match Direct.dial(host, port).await {
        Ok(_) => Look::Holds { found: None },
        Err(error) => Look::HoldsNot(error.to_string()),
    }
}

async fn tunnelled_port(session: &Session, host: &str, port: u16) -> Result<Look, ActionError> {
    match open_tunnel(session, host, port).await? {
        Ok(_) => Ok(Look::Holds { found: None }),
        Err(reason) => Ok(Look::HoldsNot(reason)),
    }
}

/// The inner error is about the port, the outer one about the way to the target.
async fn open_tunnel(session: &Session, host: &str, port: u16) -> Result<Result<TcpTunnel, String>, ActionError> {
    let connection = session.link.connection().await?;
    match connection.open_tcp(host, port).await {
        Ok(tunnel) => Ok(Ok(tunnel)),
        // A server that lets nobody through says nothing about the port behind it.
        Err(error @ SshError::Tunnel { .. }) if error.to_string().contains("forbids forwarding") => {
            Err(ActionError::Failed(format!("{error}; try it with `from: operator`")))
        }
        Err(SshError::Tunnel { reason, .. }) => Ok(Err(reason)),
        Err(error) => Err(RemoteError::Unreachable(Trouble::from(&error)).into()),
    }
}

async fn look_at_path(session: &Session, path: &str, regex: Option<&Regex>) -> Result<Look, ActionError> {
    let payload = Payload::new(include_str!("wait_for.sh")).value("path", path).flag("read", regex.is_some()).capture();
    let outcome = session.run_one(payload, false).await?;
    if outcome.failed {
        return Err(ActionError::Failed(outcome.msg));
    }
    if outcome.data.get("exists") != Some(&true.into()) {
        return Ok(Look::HoldsNot("it does not exist".into()));
    }
    Ok(match regex {
        Some(regex) => search(regex, &outcome.stdout),
        None => Look::Holds { found: None },
    })
}

async fn look_at_ssh(session: &Session) -> Look {
    match session.run_one(Payload::new(include_str!("ping.sh")).value("data", "pong"), false).await {
        Ok(outcome) if !outcome.failed => Look::Holds { found: None },
        Ok(outcome) => Look::HoldsNot(outcome.msg),
        Err(error) => Look::HoldsNot(error.to_string()),
    }
}

async fn look_at_url(
    client: &Client,
    url: &str,
    status: Option<&[u16]>,
    regex: Option<&Regex>,
    dial: &dyn Dial,
) -> Result<Look, ActionError> {
    const LONGEST_ANSWER: usize = 1 << 20;
    let response = match client.get(url, dial).await {
        Ok(response) => response,
        Err(error @ HttpError::BadUrl(..)) => return Err(ActionError::Failed(error.to_string())),
        Err(error) => return Ok(Look::HoldsNot(error.to_string())),
    };
    let answer = response.status();
    if !status.map_or(answer.is_success(), |wanted| wanted.contains(&answer.as_u16())) {
        return Ok(Look::HoldsNot(format!("it answers {answer}")));
    }
    let Some(regex) = regex else { return Ok(Look::Holds { found: None }) };
    Ok(match http::text(response, LONGEST_ANSWER).await {
        Ok(text) => search(regex, &text),
        Err(error) => Look::HoldsNot(error.to_string()),
    })
}

fn search(regex: &Regex, text: &str) -> Look {
    match regex.captures(text) {
        Some(captures) => {
            let group = |found: Option<regex::Match<'_>>| found.map_or(String::new(), |part| part.as_str().to_owned());
            Look::Holds { found: Some(captures.iter().map(group).collect()) }
        }
        None => Look::HoldsNot(format!("`{regex}` is not found in it")),
    }
}

/// Connects through the target.
struct Tunnel<'a> {
    session: &'a Session,
    /// Why the way to the target itself does not serve, which is no word on what lies behind it.
    broken: Mutex<Option<ActionError>>,
}

impl Tunnel<'_> {
    fn verdict(self, seen: Look) -> Result<Look, ActionError> {
        match self.broken.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(seen),
        }
    }
}

#[async_trait]
impl Dial for Tunnel<'_> {
    async fn dial(&self, host: &str, port: u16) -> io::Result<Box<dyn Stream>> {
        match open_tunnel(self.session, host, port).await {
            Ok(Ok(tunnel)) => Ok(Box::new(tunnel)),
            Ok(Err(reason)) => Err(io::Error::other(reason)),
            Err(error) => {
                let told = io::Error::other(error.to_string());
                *self.broken.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                Err(told)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{source::from_node, support::testing::node};

    fn problem(text: &str) -> Option<String> {
        let module: WaitFor = from_node(&node(text)).unwrap();
        module.validate().err().map(|error| error.message)
    }

    #[test]
    fn one_thing_is_waited_for() {
        for good in [
            "{port: 22}",
            "{path: /x, search_regex: a, state: absent}",
            "{ssh: true}",
            "{url: 'http://x', status: 204}",
        ] {
            assert_eq!(problem(good), None, "{good}");
        }
        assert_eq!(problem("{timeout: 3}").unwrap(), "nothing to wait for");
        assert_eq!(problem("{port: 22, path: /x}").unwrap(), "`port`, `path` exclude each other");
        assert_eq!(problem("{port: 22, search_regex: x}").unwrap(), "`search_regex` means nothing with `port`");
        assert_eq!(problem("{path: /x, host: h}").unwrap(), "`host` means nothing with `path`");
    }
}
