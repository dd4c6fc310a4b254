//! The way to hosts for commands that run no graph.

use std::{sync::Arc, time::Duration};

use tokio::{runtime::Runtime, time::timeout};

use super::{CliError, Invocation, args::ConnectionArgs, run::reach, runtime::runtime, site::Site};
use crate::{
    execute::Visit,
    inventory::{Host, Inventory},
    report::MultiProgress,
    source::did_you_mean,
};

/// The hosts of an inventory, and the connections to them.
pub struct Hosts {
    pub inventory: Arc<Inventory>,
    pub visit: Visit,
    pub runtime: Runtime,
}

impl Hosts {
    pub fn new(site: &Site, connection: &ConnectionArgs, invocation: &Invocation) -> Result<Self, CliError> {
        let mut inventory = site.inventory.clone();
        let (connector, options) = reach(&mut inventory, connection, &site.state, MultiProgress::new(), invocation)?;
        let inventory = Arc::new(inventory);
        let visit = Visit::new(inventory.clone(), connector, &options);
        Ok(Self { inventory, visit, runtime: runtime()? })
    }

    pub fn host(&self, name: &str) -> Result<&Host, CliError> {
        self.inventory.hosts().find(|host| host.name.as_str() == name).ok_or_else(|| {
            let help = did_you_mean(name, self.inventory.hosts().map(|host| host.name.as_str()));
            CliError::usage_with_help(format!("there is no host `{name}` in the inventory"), help)
        })
    }

    /// Closes the connections, and does not wait for a host that hangs.
    pub fn leave(self) {
        let _ = self.runtime.block_on(async { timeout(Duration::from_secs(2), self.visit.close()).await });
        self.runtime.shutdown_background();
    }
}
