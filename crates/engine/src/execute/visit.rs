//! The way to hosts for commands that run no graph, and change nothing.

use std::sync::Arc;

use super::{RunOptions, fleet::Fleet};
use crate::{
    inventory::{HostId, Inventory},
    model::Masker,
    remote::Session,
    ssh::Connector,
};

/// Hosts that are only looked at.
pub struct Visit(Fleet);

impl Visit {
    pub fn new(inventory: Arc<Inventory>, connector: Connector, options: &RunOptions) -> Self {
        Self(Fleet::new(inventory, connector, options, Masker::default()))
    }

    /// In check mode, as root where the inventory or the command line says so.
    pub fn session(&self, host: HostId) -> Session {
        self.0.own_session(host, true)
    }

    pub async fn close(&self) {
        self.0.close(false).await;
    }
}
