//! How guests are, as their hypervisor says.

use std::collections::BTreeMap;

use etcdrun_etcd::membership::MadeGuest;

use super::domain_xml::NAMESPACE;
use crate::{
    model::Value,
    remote::{Payload, RemoteError, Session},
};

const BODY: &str = concat!(include_str!("libvirt.sh"), "\n", include_str!("guest_states.sh"));

/// What a hypervisor says of its guests.
#[derive(Clone, Debug, Default)]
pub struct GuestStates {
    /// The state of each domain that was asked for, in libvirt's words; `absent` where there is none.
    pub states: BTreeMap<String, String>,
    /// All domains that etcdrun has made there.
    pub made: Vec<MadeGuest>,
}

pub async fn guest_states(hypervisor: &Session, names: &[&str]) -> Result<GuestStates, RemoteError> {
    let payload = Payload::new(BODY).value("namespace", NAMESPACE);
    let payload = names.iter().fold(payload, |payload, name| payload.arg(*name));
    let outcome = hypervisor.run_one(payload, true).await?;
    if outcome.failed {
        return Err(RemoteError::Protocol(outcome.msg.into()));
    }
    let text = |name: &str| outcome.data.get(name).and_then(Value::as_str).unwrap_or_default();
    let states = text("states").lines().filter_map(|line| line.split_once('='));
    Ok(GuestStates {
        states: states.map(|(name, state)| (name.into(), state.into())).collect(),
        made: text("made").lines().filter_map(made).collect(),
    })
}

fn made(line: &str) -> Option<MadeGuest> {
    let (cluster, rest) = line.split_once('\t')?;
    let (state, name) = rest.split_once('\t')?;
    Some(MadeGuest { name: name.into(), cluster: cluster.into(), state: state.into() })
}
