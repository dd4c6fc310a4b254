//! The check right before a member goes down in its turn. The gate in front of the turn may be minutes old by then: packages were
//! upgraded, leadership was transferred, another member has died.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    context::Watch,
    guard::takes_down,
    node::{NodeRun, Trouble},
    surroundings::Target,
};
use crate::{
    inventory::Host,
    model::{Effects, Outcome},
    modules::{self, Action},
    remote::Session,
    source::{Diagnostics, Key, Kind, Map, Node},
    template::Scope,
};

impl NodeRun {
    /// Another member leads, and each cluster can spare what goes down with this step, now. In the same process, and behind
    /// everything that takes long.
    pub(super) async fn spare_again(&self, effects: &Effects, scope: &Scope) -> Result<(), Trouble> {
        let Target::Host(target) = self.target(scope)? else { return Ok(()) };
        if !takes_down(effects) {
            return Ok(());
        }
        let target = self.context.inventory.host_by_id(target);
        let mut clusters: BTreeMap<String, Vec<&Host>> = BTreeMap::new();
        for (member, cluster) in self.members_in_turn(target) {
            clusters.entry(cluster).or_default().push(member);
        }
        let going: Vec<&str> = clusters.values().flatten().map(|member| member.name.as_str()).collect();
        let may_stop_answering = !clusters.is_empty() && self.rollout_says(scope, "allow_outage")?;
        for members in clusters.values() {
            if !may_stop_answering {
                for member in members {
                    let args = [("name", self.word(member.name.as_str())), ("not_to", self.words(&going))];
                    self.ask("etcd_move_leader", member, args, scope).await?;
                }
            }
            let Some((first, along)) = members.split_first() else { continue };
            let along: Vec<&str> = along.iter().map(|member| member.name.as_str()).collect();
            // Where the cluster may stop answering, there may be nobody to lead it instead. That profile does not ask who leads.
            let profile = if may_stop_answering { "nospace" } else { "{{ rollout.profile }}" };
            let args = [
                ("name", self.word(first.name.as_str())),
                ("along", self.words(&along)),
                ("gate", self.word("stop")),
                ("profile", self.word(profile)),
                ("allow_outage", self.word("{{ rollout.allow_outage }}")),
                ("timeout", self.word("{{ rollout.timeout }}")),
            ];
            self.ask("etcd_gate", first, args, scope).await?;
        }
        Ok(())
    }

    fn word(&self, text: &str) -> Node {
        Node::string(self.task.span, text)
    }

    fn words(&self, texts: &[&str]) -> Node {
        Node::new(self.task.span, Kind::Seq(texts.iter().map(|text| self.word(text)).collect()))
    }

    fn rollout_says(&self, scope: &Scope, what: &str) -> Result<bool, Trouble> {
        let said = self.render(&self.word(&format!("{{{{ rollout.{what} }}}}")), scope)?;
        Ok(said.to_value().to_string().trim_matches('"').eq_ignore_ascii_case("true"))
    }

    /// Plays a module for the cluster of a member, as a task would. What it finds against the step is a refusal.
    async fn ask<const N: usize>(
        &self,
        module: &str,
        member: &Host,
        args: [(&str, Node); N],
        scope: &Scope,
    ) -> Result<(), Trouble> {
        let Some(module) = modules::find(module) else { return Ok(()) };
        let span = self.task.span;
        let empty = Node::new(span, Kind::Map(Map::default()));
        let own = module.with_own_cluster(empty, &mut Diagnostics::default());
        let own = self.render(&own, &self.context.host_scope(member.id, &Watch::default()))?;
        let given = args.into_iter().map(|(name, node)| (Key { name: name.into(), span }, node));
        let given = self.render(&Node::new(span, Kind::Map(Map::new(given.collect()))), scope)?;
        let (Kind::Map(mut all), Kind::Map(given)) = (own.kind, given.kind) else { return Ok(()) };
        for (key, node) in given.iter() {
            all.push(key.clone(), node.clone());
        }
        let built = self.build_module(module, &Node::new(span, Kind::Map(all)), scope)?;
        let Action::Engine(action) = built.action else { return Ok(()) };
        let fenced = self.can_change(&built.effects, built.check_mode);
        let session = Arc::new(Session { fenced, ..self.session(scope)? });
        let context = self.action_context(session, fenced);
        let outcome = match action.run(&context).await.map_err(Trouble::from) {
            Ok(outcome) => outcome,
            Err(Trouble::Failed(outcome, _)) => *outcome,
            Err(trouble) => return Err(trouble),
        };
        match outcome.failed {
            false => Ok(()),
            true => {
                let msg = format!("nothing was stopped, since by now {} may not go down: {}", member.name, outcome.msg);
                Err(Trouble::Failed(Box::new(Outcome { refused: true, msg, ..outcome }), None))
            }
        }
    }
}
