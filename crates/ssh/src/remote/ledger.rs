//! Steps that must not run twice, and what a target keeps of them.

use std::sync::{Arc, LazyLock};

use super::{Link, Payload, Surroundings, script::compact};

pub(super) static LEDGER: LazyLock<String> =
    LazyLock::new(|| compact(concat!(include_str!("places.sh"), include_str!("ledger.sh"))));
const FORGET: &str =
    concat!(include_str!("ledger_forget.sh"), "_known=''\n_look \"$arg_run\"\nforget_run \"$arg_run\"\n");

/// A step that runs at most once, however often it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub run: Arc<str>,
    /// Unique in the run, and the same each time it is sent. Letters, digits and dashes.
    pub name: String,
    /// How many seconds ago it was sent for the first time.
    pub since: Option<u64>,
    /// Whether its output is wanted as it comes.
    pub live: bool,
}

/// Removes what the run has left on the target for this user.
pub(super) async fn forget(link: &Arc<Link>, run: &str, become_user: Option<Arc<str>>) {
    let session = link.session(Surroundings { become_user, ..Surroundings::default() });
    if let Err(error) = session.run_one(Payload::new(FORGET).value("run", run).with_ledger(), false).await {
        tracing::warn!(%run, %error, "cannot remove the ledger of the run");
    }
}
