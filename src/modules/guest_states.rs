//! How guests are, as their hypervisor says.

use std::collections::BTreeMap;

use crate::{
    model::Value,
    remote::{Payload, RemoteError, Session},
};

const BODY: &str = concat!(include_str!("libvirt.sh"), "\n", include_str!("guest_states.sh"));

/// The state of each domain, in libvirt's words; `absent` where there is none.
pub(crate) async fn guest_states(
    hypervisor: &Session,
    names: &[&str],
) -> Result<BTreeMap<String, String>, RemoteError> {
    let payload = names.iter().fold(Payload::new(BODY), |payload, name| payload.arg(*name));
    let outcome = hypervisor.run_one(payload, true).await?;
    if outcome.failed {
        return Err(RemoteError::Protocol(outcome.msg.into()));
    }
    let text = outcome.data.get("states").and_then(Value::as_str).unwrap_or_default();
    Ok(text.lines().filter_map(|line| line.split_once('=')).map(|(name, state)| (name.into(), state.into())).collect())
}
