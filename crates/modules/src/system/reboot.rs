//! `reboot`: restarts the target and waits until it is back.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::{
    Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, ResultField, Running,
};
use crate::{
    model::{Disruption, Effects, Outcome, Resource, Seconds},
    remote::{Payload, RemoteError},
};

/// Reboots the target and waits until it runs again, with another boot id.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reboot {
    /// Fail if it is not back after this long.
    #[serde(default = "default_reboot_timeout")]
    reboot_timeout: Seconds,
    /// Wait this long before the reboot.
    #[serde(default)]
    pre_reboot_delay: Seconds,
    /// Wait this long after the reboot, before it is tested.
    #[serde(default)]
    post_reboot_delay: Seconds,
    /// The timeout of a single connection attempt.
    #[serde(default = "default_connect_timeout")]
    connect_timeout: Seconds,
    /// The message to logged-in users.
    #[serde(default = "default_msg")]
    msg: String,
    /// The command that reboots; default: systemctl or shutdown.
    #[serde(default)]
    reboot_command: Option<String>,
    /// A command that must succeed before the target counts as back.
    #[serde(default)]
    test_command: Option<String>,
    /// A command whose output differs after a reboot.
    #[serde(default = "default_boot_time_command")]
    boot_time_command: String,
}

fn default_reboot_timeout() -> Seconds {
    Seconds(Duration::from_secs(600))
}

fn default_connect_timeout() -> Seconds {
    Seconds(Duration::from_secs(10))
}

fn default_msg() -> String {
    "Reboot initiated by etcdrun".into()
}

fn default_boot_time_command() -> String {
    "cat /proc/sys/kernel/random/boot_id".into()
}

impl Module for Reboot {
    const NAME: &'static str = "reboot";
    const EXAMPLE: &'static str = "\
- name: Reboot into the new kernel
  reboot:
    reboot_timeout: 5m
    test_command: systemctl is-system-running --wait
";
    const RESULT: &'static [ResultField] = &[
        ResultField { name: "rebooted", doc: "Whether it has rebooted." },
        ResultField { name: "elapsed", doc: "How many seconds it was away." },
    ];

    fn effects(&self) -> Effects {
        Effects::converging().disrupting(Disruption::Yes).writing([Resource::AllUnits])
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        if self.boot_time_command.trim().is_empty() {
            return Err(ModuleError::new("`boot_time_command` is empty"));
        }
        Ok(Action::Engine(Box::new(self)))
    }
}

impl EngineAction for Reboot {
    fn reboots(&self) -> bool {
        true
    }

    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            if context.check_mode() {
                return Ok(Outcome { msg: "would reboot".into(), ..Outcome::changed() });
            }
            let before = self.boot_id(context).await?;
            sleep(self.pre_reboot_delay.0).await;
            let start = Instant::now();
            let deadline = start + self.reboot_timeout.0;
            self.go_down(context, deadline).await?;
            self.come_back(context, &before, deadline).await?;
            sleep(self.post_reboot_delay.0).await;
            self.pass_test(context, deadline).await?;
            Ok(Outcome::changed().with("rebooted", true).with("elapsed", start.elapsed().as_secs()))
        })
    }
}

impl Reboot {
    async fn boot_id(&self, context: &ActionContext) -> Result<String, ActionError> {
        let outcome = ask(context, &self.boot_time_command).await?;
        match outcome.failed {
            true => Err(ActionError::Failed(format!("`boot_time_command` failed: {}", outcome.stderr.trim()))),
            false => Ok(outcome.stdout.trim().to_owned()),
        }
    }

    /// Gives the command and waits for the connection to end. Losing it while the command runs is
    /// what is wanted; that the machine really booted is seen afterwards.
    async fn go_down(&self, context: &ActionContext, deadline: Instant) -> Result<(), ActionError> {
        let connection = context.session.link.connection().await?;
        let payload = Payload::new(include_str!("reboot.sh"))
            .maybe("reboot_command", self.reboot_command.as_deref())
            .value("msg", &self.msg);
        match timeout_at(deadline, context.run_apart(payload)).await {
            Ok(Ok(outcome)) if outcome.failed => {
                let said = [outcome.msg, outcome.stderr.trim().to_owned()].join(": ");
                return Err(ActionError::Failed(said.trim_end_matches(": ").to_owned()));
            }
            Ok(Ok(_) | Err(ActionError::Remote(RemoteError::Lost(_)))) => {}
            Ok(Err(error)) => return Err(error),
            Err(_) => return Err(self.too_late("the command to reboot did not end")),
        }
        // A machine can also go without a word; then the tries to come back find out.
        let _ = timeout_at(deadline.min(Instant::now() + self.connect_timeout.0), connection.closed()).await;
        Ok(())
    }

    /// Tries again and again, less and less often.
    async fn come_back(&self, context: &ActionContext, before: &str, deadline: Instant) -> Result<(), ActionError> {
        let mut pauses = Pauses::default();
        loop {
            let why = match self.try_boot_id(context).await {
                Ok(id) if id != before => return Ok(()),
                Ok(_) => "it still runs, and has not rebooted".to_owned(),
                Err(why) => why,
            };
            let next = Instant::now() + pauses.next();
            if next > deadline {
                return Err(self.too_late(&why));
            }
            sleep_until(next).await;
        }
    }

    async fn try_boot_id(&self, context: &ActionContext) -> Result<String, String> {
        match timeout(self.connect_timeout.0, self.boot_id(context)).await {
            Ok(id) => id.map_err(|error| error.to_string()),
            Err(_) => {
                // The old connection may be dead without knowing it.
                let _ = timeout(self.connect_timeout.0, context.session.link.reconnect()).await;
                Err(format!("no answer within {:?}", self.connect_timeout.0))
            }
        }
    }

    async fn pass_test(&self, context: &ActionContext, deadline: Instant) -> Result<(), ActionError> {
        let Some(command) = &self.test_command else { return Ok(()) };
        let mut pauses = Pauses::default();
        loop {
            let why = match timeout_at(deadline, ask(context, command)).await {
                Ok(Ok(outcome)) if !outcome.failed => return Ok(()),
                Ok(Ok(outcome)) => format!("{} {}", outcome.msg, outcome.stderr.trim()),
                Ok(Err(error)) => error.to_string(),
                Err(_) => "it did not end".into(),
            };
            let next = Instant::now() + pauses.next();
            if next > deadline {
                return Err(self.too_late(&format!("`test_command` does not succeed: {}", why.trim())));
            }
            sleep_until(next).await;
        }
    }

    fn too_late(&self, why: &str) -> ActionError {
        ActionError::Failed(format!("not back after {:?}: {why}", self.reboot_timeout.0))
    }
}

async fn ask(context: &ActionContext, command: &str) -> Result<Outcome, ActionError> {
    context.run(Payload::new(include_str!("reboot_ask.sh")).value("command", command).capture()).await
}

/// Half a second, growing to five.
struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Self {
        Self(Duration::from_millis(500))
    }
}

impl Pauses {
    fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 3 / 2).min(Duration::from_secs(5));
        pause
    }
}
