//! The way to hosts for commands that run no graph, and change nothing.

use std::sync::Arc;

use super::{Interrupt, Locking, Run, RunOptions, context::Context, locks::session};
use crate::{
    graph::Graph,
    inventory::{HostId, Inventory},
    model::Emitter,
    remote::Session,
    ssh::Connector,
    state::Recorder,
};

/// Hosts that are only looked at.
pub struct Visit {
    context: Arc<Context>,
}

impl Visit {
    pub fn new(inventory: Arc<Inventory>, connector: Connector, options: RunOptions) -> Self {
        let hosts = inventory.hosts().map(|host| host.name.clone()).collect();
        let nothing = Run {
            graph: Arc::new(Graph { hosts, ..Graph::default() }),
            inventory,
            sources: Arc::default(),
            connector,
            options: RunOptions { check_mode: true, locking: Locking::Look, ..options },
            emitter: Emitter::silent(),
            interrupt: Interrupt::default(),
            recorder: Recorder::none(),
        };
        Self { context: Arc::new(Context::new(nothing)) }
    }

    /// In check mode, as root where the inventory or the command line says so.
    pub fn session(&self, host: HostId) -> Session {
        session(&self.context, host)
    }

    pub async fn close(&self) {
        self.context.hosts.close(false).await;
    }
}
