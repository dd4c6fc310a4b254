//! `guest_trust`: learns a guest's SSH host keys by way of its hypervisor, and pins them.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

use super::{
    Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, ResultField, Running, Traits,
    libvirt,
};
use crate::{
    model::{Effects, Outcome, Seconds, Value},
    remote::Payload,
    ssh::Pinned,
};

const BODY: &str = concat!(include_str!("libvirt.sh"), include_str!("guest_trust.sh"));
/// How long one exec waits on the hypervisor, so that an interrupt is heard in time.
const ONE_WAIT: Duration = Duration::from_secs(10);

/// Reads the SSH host keys of a guest through its hypervisor, which is already trusted, and pins them in the state directory.
///
/// The keys come from the guest's console, where cloud-init prints them, or from its QEMU guest agent. A pin belongs to the
/// domain's UUID: a rebuilt guest has another UUID and gets a new pin, while another key with the same UUID is an
/// error. Connections to the guest trust only this pin.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GuestTrust {
    /// The name of the domain.
    name: String,
    /// The UUID of the domain.
    uuid: String,
    /// The name that connections look the key up by: `guest.pin`.
    pin: String,
    /// The log file of the guest's console on the hypervisor.
    #[serde(default)]
    console_log: Option<String>,
    /// Whether this run has created the guest. If it has not, and another guest of that name was pinned, the result has `replaced`.
    #[serde(default)]
    built: bool,
    /// Whether to query the guest agent too.
    #[serde(default = "yes")]
    agent: bool,
    /// The timeout.
    #[serde(default = "ten_minutes")]
    timeout: Seconds,
}

fn yes() -> bool {
    true
}

fn ten_minutes() -> Seconds {
    Seconds(Duration::from_secs(600))
}

impl Module for GuestTrust {
    const NAME: &'static str = "guest_trust";
    const TRAITS: Traits = Traits { meets_host: true, ..Traits::NONE };
    const EXAMPLE: &'static str = "\
- name: Pin the guest's host key
  guest_trust:
    name: \"{{ member.name }}\"
    uuid: \"{{ domain.uuid }}\"
    pin: \"{{ guest.pin }}\"
    console_log: \"{{ domain.console_log }}\"
  on: hypervisor
";
    const RESULT: &'static [ResultField] = &[
        ResultField { name: "fingerprints", doc: "The fingerprints of the keys." },
        ResultField {
            name: "replaced",
            doc: "The UUID of the previous guest of this name, if this run did not create the new one.",
        },
        ResultField { name: "elapsed", doc: "How many seconds it took until the guest had shown its keys." },
    ];

    fn effects(&self) -> Effects {
        Effects::converging()
    }

    fn action(mut self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        libvirt::check_name("domain", &self.name)?;
        self.uuid = libvirt::checked_uuid(&self.uuid)?;
        if self.pin.is_empty() || self.pin.contains([' ', ',', '*', '?', '!', '\n', '\t', '#', '|', '@']) {
            return Err(ModuleError::new(format!("`{}` cannot be the name of a pin", self.pin)));
        }
        if let Some(path) = &self.console_log {
            libvirt::checked_path("console_log", path)?;
        }
        Ok(Action::Engine(Box::new(self)))
    }
}

impl EngineAction for GuestTrust {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            let pins = context.pins();
            let failed =
                |error: std::io::Error| ActionError::Failed(format!("cannot use {}: {error}", pins.path().display()));
            if let Some(known) = pins.find(&self.pin, &self.uuid).map_err(failed)? {
                return Ok(Outcome::ok().with("fingerprints", known));
            }
            let replaced = pins.other(&self.pin, &self.uuid).map_err(failed)?.filter(|_| !self.built);
            if context.check_mode() {
                let outcome = Outcome { msg: "would learn the guest's key".into(), ..Outcome::changed() };
                return Ok(with_replaced(outcome, replaced));
            }
            let start = Instant::now();
            let keys = self.learn(context, start).await?;
            let keys: Vec<&str> = keys.lines().collect();
            let outcome = Outcome::changed().with("elapsed", start.elapsed().as_secs());
            let outcome = with_replaced(outcome, replaced);
            match pins.pin(&self.pin, &self.uuid, &keys).map_err(failed)? {
                Pinned::Kept(fingerprints) => Ok(outcome.with("fingerprints", fingerprints)),
                Pinned::Differs => Err(ActionError::Failed(format!(
                    "the guest {} shows other host keys than those pinned for its UUID in {}",
                    self.name,
                    pins.path().display()
                ))),
                Pinned::NoKey => {
                    Err(ActionError::Failed(format!("what the guest {} shows are no SSH keys", self.name)))
                }
            }
        })
    }
}

fn with_replaced(outcome: Outcome, replaced: Option<String>) -> Outcome {
    match replaced {
        Some(uuid) => outcome.with("replaced", uuid),
        None => outcome,
    }
}

impl GuestTrust {
    async fn learn(&self, context: &ActionContext, start: Instant) -> Result<String, ActionError> {
        loop {
            let left = self.timeout.0.saturating_sub(start.elapsed());
            let looked = context.run(self.look(left.min(ONE_WAIT))).await?;
            let text = |name: &str| looked.data.get(name).and_then(Value::as_str).unwrap_or_default();
            if looked.failed {
                return Err(ActionError::Failed(looked.msg));
            }
            if !text("keys").is_empty() {
                return Ok(text("keys").to_owned());
            }
            if left.is_zero() {
                let console = match text("tail").trim() {
                    "" => "its console is empty".to_owned(),
                    tail => format!("its console ends with:\n{tail}"),
                };
                let message = format!(
                    "the guest {} did not show its SSH host keys within {}; {console}",
                    self.name, self.timeout
                );
                return Err(ActionError::Failed(message));
            }
        }
    }

    fn look(&self, wait: Duration) -> Payload {
        Payload::new(BODY)
            .value("name", &self.name)
            .value("uuid", &self.uuid)
            .maybe("console", self.console_log.as_deref())
            .flag("agent", self.agent)
            .value("wait", wait.as_secs().to_string())
    }
}
