//! The way to hosts for commands that run no graph: `ssh`, `console`, `logs`, `tunnel`, `etcdctl`.

use std::{path::Path, sync::Arc, time::Duration};

use tokio::runtime::Runtime;

use super::{
    CliError, Invocation,
    args::ConnectionArgs,
    run::reach,
    verb::{KnownArgs, known},
};
use crate::{
    execute::Visit,
    inventory::{Host, Inventory},
    report::MultiProgress,
    source::{Sources, did_you_mean},
    state::StateFolder,
};

/// An inventory, and the connections to its hosts.
pub struct Visitor {
    pub inventory: Arc<Inventory>,
    pub sources: Sources,
    pub state: StateFolder,
    pub visit: Visit,
    pub runtime: Runtime,
}

impl Visitor {
    pub fn new(
        args: &KnownArgs,
        connection: &ConnectionArgs,
        state_dir: Option<&Path>,
        invocation: &Invocation,
    ) -> Result<Self, CliError> {
        let known = known(args, state_dir, invocation)?;
        let (mut inventory, state) = (known.inventory, known.state);
        let (connector, options) = reach(&mut inventory, connection, &state, MultiProgress::new(), invocation)?;
        let inventory = Arc::new(inventory);
        let visit = Visit::new(inventory.clone(), connector, &options);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        Ok(Self { inventory, sources: known.sources, state, visit, runtime })
    }

    pub fn host(&self, name: &str) -> Result<&Host, CliError> {
        self.inventory.hosts().find(|host| host.name.as_str() == name).ok_or_else(|| {
            let help = did_you_mean(name, self.inventory.hosts().map(|host| host.name.as_str()));
            CliError::usage_with_help(format!("there is no host `{name}` in the inventory"), help)
        })
    }

    /// Leaves, and is not kept by a host that hangs.
    pub fn leave(self) {
        let _ = self.runtime.block_on(async { tokio::time::timeout(Duration::from_secs(2), self.visit.close()).await });
        self.runtime.shutdown_background();
    }
}
