//! Questions about a cluster right before a member goes down in its turn. The gate in front of the turn may be minutes old by then:
//! packages were upgraded, leadership was transferred, another member has died.

use std::sync::Arc;

use crate::execute::{
    context::Watch,
    foresight::At,
    node::{NodeError, NodeRun},
};
use crate::{
    model::Outcome,
    remote::Session,
    source::{Diagnostics, Key, Kind, Map, Node},
    task::{Action, Question, Word},
    template::Scope,
};

impl NodeRun {
    /// Another member leads, and each cluster can spare what goes down with this step, now. In the same process, and behind
    /// everything that takes long.
    pub(in crate::execute) async fn spare_again(&self, at: &At, scope: impl Fn() -> Scope) -> Result<(), NodeError> {
        let guard = &self.context.guard;
        let going = guard.going_down(self.actor(), &at.effects, at.target);
        if going.is_empty() {
            return Ok(());
        }
        let scope = &scope();
        let allow_outage = self.rollout_says(scope, "allow_outage")?;
        for question in guard.before_stop(&going, allow_outage) {
            self.ask(question, scope).await?;
        }
        Ok(())
    }

    fn word(&self, text: &str) -> Node {
        Node::string(self.task.span, text)
    }

    fn node(&self, word: &Word) -> Node {
        match word {
            Word::One(text) => self.word(text),
            Word::List(texts) => {
                Node::new(self.task.span, Kind::Seq(texts.iter().map(|text| self.word(text)).collect()))
            }
        }
    }

    fn rollout_says(&self, scope: &Scope, what: &str) -> Result<bool, NodeError> {
        let said = self.render(&self.word(&format!("{{{{ rollout.{what} }}}}")), scope)?;
        Ok(said.to_value().to_string().trim_matches('"').eq_ignore_ascii_case("true"))
    }

    /// Plays a module for the cluster of a member, as a task would. What it finds against the step is a refusal.
    async fn ask(&self, question: Question, scope: &Scope) -> Result<(), NodeError> {
        let Question { module, member, args } = question;
        let Some(member) = self.context.inventory.host(&member) else { return Ok(()) };
        let span = self.task.span;
        let empty = Node::new(span, Kind::Map(Map::default()));
        let own = module.with_own_cluster(empty, &mut Diagnostics::default());
        let own = self.render(&own, &self.context.host_scope(member.id, &Watch::default()))?;
        let given = args.iter().map(|(name, word)| (Key { name: (*name).into(), span }, self.node(word)));
        let given = self.render(&Node::new(span, Kind::Map(Map::new(given.collect()))), scope)?;
        let (Kind::Map(mut all), Kind::Map(given)) = (own.kind, given.kind) else { return Ok(()) };
        for (key, node) in given.iter() {
            all.push(key.clone(), node.clone());
        }
        let built = self.build_module(module, &Node::new(span, Kind::Map(all)), scope)?;
        let Action::Engine(action) = built.action else { return Ok(()) };
        let fenced = self.once.can_change(&built.effects, built.check_mode);
        let session = Arc::new(Session { fenced, ..self.session(scope)? });
        let context = self.action_context(session, fenced);
        let outcome = match action.run(&context).await.map_err(NodeError::from) {
            Ok(outcome) => outcome,
            Err(NodeError::Failed(outcome, _)) => *outcome,
            Err(trouble) => return Err(trouble),
        };
        match outcome.failed {
            false => Ok(()),
            true => {
                let msg = format!("nothing was stopped, because {} may not stop now: {}", member.name, outcome.msg);
                Err(NodeError::Failed(Box::new(Outcome { refused: true, msg, ..outcome }), None))
            }
        }
    }
}
