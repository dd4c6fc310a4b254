//! What the engine asks about etcd, so that no cluster loses its quorum.

use std::{path::Path, time::Duration};

use super::{gate::EtcdGate, move_leader::EtcdMoveLeader};
use crate::{
    state::StateError,
    task::{ModuleSpec, Question, Quorum, Word},
};
use etcdrun_etcd::etcd::{ClusterRecord, TurnRecord, UNIT};

static MOVE_LEADER: ModuleSpec = ModuleSpec::of::<EtcdMoveLeader>();
static GATE: ModuleSpec = ModuleSpec::of::<EtcdGate>();

/// Clusters of etcd.
pub struct EtcdQuorum;

impl Quorum for EtcdQuorum {
    fn unit(&self) -> &'static str {
        UNIT
    }

    fn way_out(&self) -> &'static str {
        "put `rollout: {strategy: etcd}` on the play, so that members take turns; `playbooks/reboot.yaml` and `settings.yaml` do"
    }

    /// A record that cannot be read says at least that there is a cluster.
    fn is_formed(&self, state: &Path, cluster: &str) -> bool {
        !matches!(ClusterRecord::load(state, cluster), Ok(None))
    }

    fn keep_turn(&self, state: &Path, cluster: &str, longest: Duration) -> Result<(), StateError> {
        TurnRecord { longest: longest.as_secs_f64() }.keep(state, cluster)
    }

    fn before_stop(&self, members: &[&str], all: &[&str], allow_outage: bool) -> Vec<Question> {
        let Some((first, along)) = members.split_first() else { return Vec::new() };
        let transfer = |member: &&str| Question {
            module: &MOVE_LEADER,
            member: (*member).to_owned(),
            args: vec![("name", one(member)), ("not_to", list(all))],
        };
        // Where the cluster may stop answering, no other member may be able to lead it. That profile does not ask who leads. With
        // expired certificates no member can be asked, so the rules about the cluster are left out.
        const OUTAGE: &str = "{{ 'certificate' if rollout.profile == 'certificate' else 'nospace' }}";
        let profile = if allow_outage { OUTAGE } else { "{{ rollout.profile }}" };
        let gate = Question {
            module: &GATE,
            member: (*first).to_owned(),
            args: vec![
                ("name", one(first)),
                ("along", list(along)),
                ("gate", one("stop")),
                ("profile", one(profile)),
                ("allow_outage", one("{{ rollout.allow_outage }}")),
                ("timeout", one("{{ rollout.timeout }}")),
            ],
        };
        let transfers = members.iter().filter(|_| !allow_outage).map(transfer);
        transfers.chain([gate]).collect()
    }
}

fn one(text: &str) -> Word {
    Word::One(text.to_owned())
}

fn list(texts: &[&str]) -> Word {
    Word::List(texts.iter().map(|text| (*text).to_owned()).collect())
}
