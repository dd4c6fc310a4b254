//! A server of its own on some folder of a host, which reaches nobody, and which only we reach.
//!
//! Its client port is as the member's own: TLS, and certificates or passwords. Its peer port believes one authority whose key was
//! never kept, so no other account of the host can speak raft to it.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    ActionContext, ActionError,
    cluster_args::{Cluster, Member, tunnel},
};
use crate::{model::Outcome, remote::Payload};
use etcdrun_etcd::{
    etcd::{MemberClient, observe::see},
    pki::Authority,
};

const LOOK: Duration = Duration::from_secs(5);
/// It reads all of the database before it answers.
const PATIENCE: Duration = Duration::from_secs(600);
const PAUSE: Duration = Duration::from_millis(200);
/// Its ports, on loopback.
const PORTS: (u16, u16) = (22379, 22380);

/// How its members reach it, which nobody does.
pub(super) fn peer_url() -> String {
    format!("https://127.0.0.1:{}", PORTS.1)
}

pub(super) struct Apart<'a> {
    pub cluster: &'a Cluster,
    /// Steps of `etcd_salvage.sh`, with what they are told about folders.
    pub payload: &'a (dyn Fn(&str) -> Payload + Send + Sync),
}

impl Apart<'_> {
    /// Starts it, and waits until it leads itself: a client for it, and the revision that it has. With `alone` it forgets the other
    /// members that its data names.
    pub async fn start(
        &self,
        context: &ActionContext,
        member: &Member,
        alone: bool,
    ) -> Result<(MemberClient, i64), ActionError> {
        let start = (self.payload)("start").flag("force", alone);
        let start = start.value("port", PORTS.0.to_string()).value("peer_port", PORTS.1.to_string());
        let authority = Authority::of_nobody().map_err(|error| ActionError::Failed(error.to_string()))?;
        let start = start.value("peer_authority", authority);
        done(context.run(start).await?)?;
        let client = self.client(context, member).await?;
        let revision = self.wait(context, &client).await?;
        Ok((client, revision))
    }

    async fn client(&self, context: &ActionContext, member: &Member) -> Result<MemberClient, ActionError> {
        let credential = self.cluster.root(context).await?;
        let session = context.reach.session(&member.name, &context.session);
        let session =
            session.ok_or_else(|| ActionError::Failed(format!("`{}` is not in the inventory", member.name)))?;
        MemberClient::new(&member.name, "127.0.0.1", PORTS.0, &credential, tunnel(session))
            .map_err(|error| ActionError::Failed(error.to_string()))
    }

    async fn wait(&self, context: &ActionContext, client: &MemberClient) -> Result<i64, ActionError> {
        let begun = Instant::now();
        loop {
            let seen = see(client, LOOK).await;
            let why = match &seen.answer {
                Ok(view) if view.leader == Some(view.id) && view.read.is_ok() => return Ok(view.revision),
                Ok(_) => "it does not lead itself".to_owned(),
                Err(why) => {
                    self.trusted(client).await?;
                    why.clone()
                }
            };
            done(context.run((self.payload)("alive")).await?)?;
            if begun.elapsed() > PATIENCE {
                return Err(ActionError::Failed(format!("the etcd on the copy does not answer: {why}")));
            }
            context.wait(PAUSE).await?;
        }
    }

    /// A server without an answer may still read its database. One whose certificate is not valid, or that does not accept ours, never
    /// answers.
    async fn trusted(&self, client: &MemberClient) -> Result<(), ActionError> {
        match client.served(PORTS.0).await {
            Err(error) if !error.is_transient() => Err(ActionError::Failed(format!(
                "{error}; run `etcdrun certs renew {}`, then the same command again",
                self.cluster.name
            ))),
            _ => Ok(()),
        }
    }
}

/// What did not go well is an error here.
pub(super) fn done(outcome: Outcome) -> Result<Outcome, ActionError> {
    match outcome.failed {
        true => Err(ActionError::Failed(outcome.msg)),
        false => Ok(outcome),
    }
}
