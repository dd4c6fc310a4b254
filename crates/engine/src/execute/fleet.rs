//! The way to hosts: a link to each, made when it is first asked for.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, OnceLock},
};

use super::{RunOptions, registered::lock};
use crate::{
    inventory::{HostId, Inventory},
    model::Masker,
    remote::{Link, LinkOptions, Session, Surroundings},
    ssh::Connector,
    task::Reach,
};

/// The hosts of an inventory, and this machine. It knows of no run: who only wants a session needs no more than this.
pub(super) struct Fleet {
    inventory: Arc<Inventory>,
    connector: Connector,
    link_options: LinkOptions,
    /// `-b`: become root unless something says otherwise.
    becomes: bool,
    links: Mutex<HashMap<HostId, Arc<Link>>>,
    /// This machine, for what is delegated to it.
    operator: OnceLock<Arc<Link>>,
}

impl Fleet {
    pub(super) fn new(inventory: Arc<Inventory>, connector: Connector, options: &RunOptions, masker: Masker) -> Self {
        let link_options = LinkOptions {
            become_password: options.become_password.clone(),
            command_timeout: options.command_timeout,
            masker,
            transport: options.transport,
        };
        let (links, operator) = (Mutex::default(), OnceLock::new());
        Self { inventory, connector, link_options, becomes: options.r#become, links, operator }
    }

    pub(super) fn link(&self, host: HostId) -> Arc<Link> {
        let make = || {
            let endpoint = self.inventory.host_by_id(host).endpoint.clone();
            Link::new(self.connector.clone(), endpoint, self.link_options.clone())
        };
        lock(&self.links).entry(host).or_insert_with(make).clone()
    }

    pub(super) fn operator(&self) -> Arc<Link> {
        self.operator.get_or_init(|| Link::local(&["sh"], self.link_options.clone())).clone()
    }

    /// For what etcdrun itself does on a host, such as locks: as root where tasks become another user, so that it can always undo it.
    pub(super) fn own_session(&self, host: HostId, check_mode: bool) -> Session {
        let becomes = self.becomes || self.inventory.host_by_id(host).r#become == Some(true);
        let become_user = becomes.then(|| "root".into());
        self.link(host).session(Surroundings { become_user, check_mode, ..Surroundings::default() })
    }

    /// Commands started on hosts so far.
    pub(super) fn execs(&self) -> u64 {
        let operator = self.operator.get().map_or(0, |link| link.execs());
        lock(&self.links).values().map(|link| link.execs()).sum::<u64>() + operator
    }

    /// Ends all connections and removes what was staged on the hosts; also what they remember, if `forget`.
    pub(super) async fn close(&self, forget: bool) {
        let links: Vec<_> =
            lock(&self.links).drain().map(|(_, link)| link).chain(self.operator.get().cloned()).collect();
        let closing = links.iter().map(|link| async move {
            if forget {
                link.forget_ledgers().await;
            }
            link.close().await;
        });
        futures_util::future::join_all(closing).await;
    }
}

impl Reach for Fleet {
    fn session(&self, host: &str, like: &Session) -> Option<Session> {
        let host = self.inventory.host(host)?;
        Some(self.link(host.id).session(like.surroundings.clone()))
    }
}
