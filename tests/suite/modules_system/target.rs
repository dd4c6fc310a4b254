//! Targets, and what every converging module must do on each of them.

use std::{fmt::Debug, sync::Arc};

use etcdrun::{model::Outcome, remote::Session};
use serde_json::Value;

use super::support::{Sshd, local_session, run_module, session};

/// A target, and the server that must live as long as it is used.
pub struct Target {
    pub name: &'static str,
    pub session: Arc<Session>,
    _sshd: Option<Sshd>,
}

impl Target {
    pub fn ssh() -> Self {
        let sshd = Sshd::start();
        Self { name: "ssh", session: session(&sshd), _sshd: Some(sshd) }
    }

    /// The same machine over SSH and through each shell that targets have.
    pub fn all() -> Vec<Self> {
        let local = |name, shell: &[&str]| Self { name, session: local_session(shell), _sshd: None };
        vec![Self::ssh(), local("dash", &["dash"]), local("bash", &["bash"]), local("busybox", &["busybox", "sh"])]
    }

    pub async fn run(&self, module: &str, args: Value) -> Outcome {
        run_module(&self.session, module, &args.to_string(), false).await
    }

    pub async fn check(&self, module: &str, args: Value) -> Outcome {
        run_module(&self.session, module, &args.to_string(), true).await
    }

    /// The task changes something, a plan foretells it and changes nothing, and it is done once.
    /// `look` is the part of the machine that it is about.
    pub async fn converges<T: PartialEq + Debug>(&self, module: &str, args: Value, look: impl Fn() -> T) -> Outcome {
        let say = |what: &str, outcome: &Outcome| format!("{}: {module} {args}: {what}: {outcome:?}", self.name);
        let before = look();
        let plan = self.check(module, args.clone()).await;
        assert!(plan.changed && !plan.failed, "{}", say("the plan", &plan));
        assert_eq!(look(), before, "{}", say("the plan changed something", &plan));
        let done = self.run(module, args.clone()).await;
        assert!(done.changed && !done.failed, "{}", say("the run", &done));
        assert_ne!(look(), before, "{}", say("the run changed nothing", &done));
        assert_eq!(plan.diff, done.diff, "{}", say("the plan foretold another diff", &plan));
        self.stays(module, args.clone()).await;
        done
    }

    /// Neither a plan nor a run finds anything to do.
    pub async fn stays(&self, module: &str, args: Value) -> Outcome {
        let plan = self.check(module, args.clone()).await;
        assert!(!plan.changed && !plan.failed, "{}: {module} {args}: {plan:?}", self.name);
        let outcome = self.run(module, args.clone()).await;
        assert!(!outcome.changed && !outcome.failed, "{}: {module} {args}: {outcome:?}", self.name);
        outcome
    }

    /// The task fails, and says why.
    pub async fn fails(&self, module: &str, args: Value) -> String {
        let outcome = self.run(module, args.clone()).await;
        assert!(outcome.failed, "{}: {module} {args} did not fail: {outcome:?}", self.name);
        outcome.msg
    }
}
