//! Asks the members of a cluster how they are, each through its own host: for `status`, `member`, `drain`, `etcdctl` and `tunnel`.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use jiff::Timestamp;
use tokio::time::timeout;

use super::{CliError, clusters::section, site::Site};
use crate::{
    etcd::{
        Credential, MemberClient,
        observe::{Observation, Seen, see},
    },
    execute::Visit,
    inventory::{
        Cluster, Host, HostId, Inventory,
        sections::{AuthSection, EtcdSection, TlsSection},
    },
    modules::tunnel,
    pki::{Keeping, PkiError, Store},
    source::{Node, Opener, from_node},
};

/// A host is not waited for any longer, and a member not once its host was reached; unless --connect-timeout gives them more.
pub const LIMIT: Duration = Duration::from_secs(30);
const DEFAULT_QUOTA: u64 = 8 << 30;

/// A cluster whose members are asked, and how.
pub struct ClusterQuery {
    pub name: String,
    tls: TlsSection,
    auth: AuthSection,
    pub store: Store,
    pub client_port: u16,
    pub members: Vec<Wanted>,
    /// How long each part may take.
    limit: Duration,
}

/// One member, as the inventory has it.
pub struct Wanted {
    pub id: HostId,
    pub name: String,
    pub ip: String,
    pub hypervisor: Option<(HostId, String)>,
    pub is_guest: bool,
    pub quota: u64,
}

impl ClusterQuery {
    pub fn new(site: &Site, name: &str, limit: Duration) -> Result<Self, CliError> {
        let inventory = &site.inventory;
        let cluster =
            inventory.cluster(name).ok_or_else(|| CliError::usage(format!("there is no cluster `{name}`")))?;
        let etcd: EtcdSection = section(cluster, "etcd")?;
        let members = cluster.members.iter().map(|id| Wanted::new(inventory, inventory.host_by_id(*id))).collect();
        Ok(Self {
            name: name.to_owned(),
            tls: section(cluster, "tls")?,
            auth: section(cluster, "auth")?,
            store: Store::new(site.state.path(), name),
            client_port: etcd.client_port.unwrap_or(2379),
            members,
            limit,
        })
    }

    /// Where the members are.
    pub fn addresses(&self) -> impl Iterator<Item = (HostId, &str)> {
        self.members.iter().map(|member| (member.id, member.ip.as_str()))
    }

    pub async fn ask_all(&self, visit: &Visit, opener: Option<&Arc<dyn Opener>>) -> Vec<Answer> {
        let credential = self.credential(opener).await;
        join_all(self.members.iter().map(|member| self.ask(visit, member, credential.as_ref()))).await
    }

    /// What the members say, and which of their hosts cannot be reached.
    pub async fn observe(
        &self,
        visit: &Visit,
        opener: Option<&Arc<dyn Opener>>,
    ) -> (Observation, Vec<(String, String)>) {
        let answers = self.ask_all(visit, opener).await;
        let mut unreachable = Vec::new();
        let seen = self.members.iter().zip(answers).map(|(member, answer)| match answer {
            Answer::Seen(seen, _) => *seen,
            Answer::Silent(why) => Seen { name: member.name.clone(), answer: Err(why) },
            Answer::Unreachable(why) => {
                unreachable.push((member.name.clone(), why.clone()));
                Seen { name: member.name.clone(), answer: Err(why) }
            }
        });
        let members = seen.collect();
        (Observation { members, auth: None }, unreachable)
    }

    pub async fn credential(&self, opener: Option<&Arc<dyn Opener>>) -> Result<Credential, PkiError> {
        Keeping { store: &self.store, opener }.root(&self.name, &self.tls, &self.auth).await
    }

    async fn ask(&self, visit: &Visit, member: &Wanted, credential: Result<&Credential, &PkiError>) -> Answer {
        let session = visit.session(member.id);
        match timeout(self.limit, session.link.connection()).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Answer::Unreachable(error.to_string()),
            Err(_) => return Answer::Unreachable(format!("no answer within {:?}", self.limit)),
        }
        let credential = match credential {
            Ok(credential) => credential,
            Err(error) => return Answer::Silent(error.message.clone()),
        };
        let client = MemberClient::new(&member.name, &member.ip, self.client_port, credential, tunnel(session));
        let client = match client {
            // Who waits longer for a host waits longer for its etcd.
            Ok(client) if self.limit > LIMIT => client.patient(self.limit),
            Ok(client) => client,
            Err(error) => return Answer::Silent(error.to_string()),
        };
        let (seen, certificate) = tokio::join!(see(&client, self.limit), client.served(self.client_port));
        Answer::Seen(Box::new(seen), certificate.ok().map(|certificate| certificate.not_after))
    }
}

/// Where clients reach the members, in the order of the inventory.
pub fn member_addresses(inventory: &Inventory, cluster: &Cluster) -> impl Iterator<Item = String> {
    cluster.members.iter().map(|id| Wanted::new(inventory, inventory.host_by_id(*id)).ip)
}

impl Wanted {
    fn new(inventory: &Inventory, host: &Host) -> Self {
        let member = host.var("member").and_then(Node::as_map);
        let field = |name: &str| member.and_then(|member| member.get(name));
        let etcd: EtcdSection = field("etcd").and_then(|node| from_node(node).ok()).unwrap_or_default();
        Self {
            id: host.id,
            name: host.name.to_string(),
            ip: field("ip").and_then(Node::as_str).unwrap_or_else(|| host.address()).to_owned(),
            hypervisor: inventory.hypervisor_of(host.id).map(|host| (host.id, host.name.to_string())),
            is_guest: field("guest").is_some(),
            quota: etcd.quota.map_or(DEFAULT_QUOTA, |quota| quota.0),
        }
    }
}

pub enum Answer {
    /// Its host cannot be logged into.
    Unreachable(String),
    /// There is no way to ask it.
    Silent(String),
    /// What it says, and when the certificate that it shows ends.
    Seen(Box<Seen>, Option<Timestamp>),
}
