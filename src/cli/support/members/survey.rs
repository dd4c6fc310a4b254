//! What a change of members is decided on: the inventory, and how clusters and hypervisors are found to be.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use tokio::time::timeout;

use super::{
    super::{
        CliError, Invocation,
        input::Opening,
        query::{ClusterQuery, LIMIT},
        site::{Files, Site},
    },
    Shared,
};
use crate::{etcd::observe::settled, membership::Situation, state::Drained};

pub struct Survey {
    pub site: Site,
    /// Hypervisors that do not answer, and why.
    pub silent_hypervisors: BTreeMap<String, String>,
    /// Hypervisors that take no members for now.
    pub drained: Drained,
}

impl Survey {
    /// Asks every member of the clusters, every hypervisor that one of them is on, and those that one is to be on. All at once.
    pub fn take(
        site: Site,
        clusters: &[(&str, Option<&str>)],
        shared: &Shared,
        invocation: &Invocation,
    ) -> Result<(Self, Vec<Situation>), CliError> {
        let queries = clusters.iter().map(|(cluster, _)| ClusterQuery::new(&site, cluster, LIMIT));
        let queries = queries.collect::<Result<Vec<_>, _>>()?;
        let hosts = site.connect(&shared.connection, invocation)?;
        let inventory = &hosts.inventory;
        let members = clusters.iter().filter_map(|(cluster, _)| inventory.cluster(cluster));
        let members = members.flat_map(|cluster| &cluster.members);
        let to = clusters.iter().filter_map(|(_, to)| *to);
        let to = to.filter_map(|to| inventory.hypervisors().find(|host| host.name.as_str() == to));
        let mut hypervisors: Vec<_> = members.filter_map(|id| inventory.hypervisor_of(*id)).chain(to).collect();
        hypervisors.sort_by_key(|host| host.id);
        hypervisors.dedup_by_key(|host| host.id);
        let (seen, silent) = hosts.runtime.block_on(async {
            let asked = hypervisors.iter().map(|host| async {
                let session = hosts.visit.session(host.id);
                match timeout(LIMIT, session.link.connection()).await {
                    Ok(Ok(_)) => None,
                    Ok(Err(error)) => Some((host.name.to_string(), error.to_string())),
                    Err(_) => Some((host.name.to_string(), format!("no answer within {LIMIT:?}"))),
                }
            });
            let seen = queries.iter().map(|query| {
                settled(|| query.observe(&hosts.visit, site.sources.opener()), |(seen, _)| seen.has_quorum())
            });
            tokio::join!(join_all(seen), join_all(asked))
        });
        hosts.leave();
        let situation = |(&(cluster, _), (observation, unreachable)): (&(&str, _), _)| Situation {
            cluster: cluster.to_owned(),
            observation,
            unreachable,
        };
        let situations = clusters.iter().zip(seen).map(situation).collect();
        let drained = Drained::load(&site.state)?;
        Ok((Self { site, silent_hypervisors: silent.into_iter().flatten().collect(), drained }, situations))
    }

    /// The same, as if these were files of the inventory.
    pub fn with_files(&self, files: Files, shared: &Shared, invocation: &Invocation) -> Result<Self, CliError> {
        let files = self.site.files.clone().into_iter().chain(files).collect();
        // Nothing secret is needed, so etcdrun prompts for no key again.
        let opening = Opening::FilesOnly;
        let site = Site::load_as_if(files, opening, &shared.known, shared.run.state_dir.as_deref(), invocation)?;
        Ok(Self { site, silent_hypervisors: self.silent_hypervisors.clone(), drained: self.drained.clone() })
    }
}
