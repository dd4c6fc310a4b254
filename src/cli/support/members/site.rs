//! What the commands about members work on: the inventory, and how clusters are found to be.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout};

use super::{
    super::{
        CliError, Invocation,
        input::{Input, Opening},
        query::{ClusterQuery, LIMIT},
        record::state_folder,
        run::reach,
    },
    Shared,
};
use crate::{
    etcd::observe::Observation,
    execute::Visit,
    inventory::Inventory,
    membership::Situation,
    pki::Store,
    report::MultiProgress,
    source::{Opener, Sources, disk},
    state::{Drained, StateFolder},
};

/// Files that are read in place of what is on the disk.
pub type Files = BTreeMap<PathBuf, Vec<u8>>;

/// How long an election may take.
const ELECTION: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(200);

/// A look at the cluster, as soon as somebody leads it: an election, as after the death of a leader, is over in seconds.
async fn settled(
    query: &ClusterQuery,
    visit: &Visit,
    opener: Option<&Arc<dyn Opener>>,
) -> (Observation, Vec<(String, String)>) {
    let start = Instant::now();
    loop {
        let (observation, unreachable) = query.observe(visit, opener).await;
        let well = observation.members.iter().filter(|seen| seen.is_well()).count();
        if well > observation.voters().count() / 2 || start.elapsed() >= ELECTION {
            return (observation, unreachable);
        }
        sleep(PAUSE).await;
    }
}

/// What the commands work on.
pub struct Site {
    pub inventory: Inventory,
    pub sources: Sources,
    inventories: Vec<PathBuf>,
    /// What it was loaded from that is not on the disk.
    pub files: Files,
    /// Hypervisors that do not answer, and why.
    pub silent_hypervisors: BTreeMap<String, String>,
    /// Hypervisors that take no members for now.
    pub drained: Drained,
}

impl Site {
    pub fn load(shared: &Shared, invocation: &Invocation) -> Result<Self, CliError> {
        Self::load_as_if(Files::new(), Opening::All, shared, invocation)
    }

    fn load_as_if(files: Files, opening: Opening, shared: &Shared, invocation: &Invocation) -> Result<Self, CliError> {
        // What was told of the files on the disk is not told again.
        let is_first = files.is_empty();
        let (mut input, inventory) = disk::pretend(files.clone(), || {
            let mut input = Input::new(&shared.known.keys, opening, invocation);
            let inventory = input.inventory(&shared.known.only(None), invocation);
            (input, inventory)
        });
        if is_first || input.diagnostics.has_errors() {
            input.check(invocation)?;
        }
        let Input { sources, inventories, .. } = input;
        let (silent_hypervisors, drained) = Default::default();
        Ok(Self { inventory, sources, inventories, files, silent_hypervisors, drained })
    }

    pub fn state(&self, shared: &Shared, invocation: &Invocation) -> StateFolder {
        state_folder(shared.run.state_dir.as_deref(), &self.inventories, invocation)
    }

    /// Asks every member of the clusters, every hypervisor that one of them is on, and those that one is to be on. All at once.
    pub fn look(
        &mut self,
        clusters: &[(&str, Option<&str>)],
        shared: &Shared,
        invocation: &Invocation,
    ) -> Result<Vec<Situation>, CliError> {
        let state = self.state(shared, invocation);
        let mut inventory = self.inventory.clone();
        let (connector, options) = reach(&mut inventory, &shared.connection, &state, MultiProgress::new(), invocation)?;
        let inventory = Arc::new(inventory);
        let query = |cluster| ClusterQuery::new(&inventory, cluster, Store::new(state.path(), cluster), LIMIT);
        let queries = clusters.iter().map(|(cluster, _)| query(cluster)).collect::<Result<Vec<_>, _>>()?;
        let visit = Visit::new(inventory.clone(), connector, &options);
        let members = clusters.iter().filter_map(|(cluster, _)| inventory.cluster(cluster));
        let members = members.flat_map(|cluster| &cluster.members);
        let to = clusters.iter().filter_map(|(_, to)| *to);
        let to = to.filter_map(|to| inventory.hypervisors().find(|host| host.name.as_str() == to));
        let mut hypervisors: Vec<_> = members.filter_map(|id| inventory.hypervisor_of(*id)).chain(to).collect();
        hypervisors.sort_by_key(|host| host.id);
        hypervisors.dedup_by_key(|host| host.id);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let (seen, silent) = runtime.block_on(async {
            let asked = hypervisors.iter().map(|host| async {
                let session = visit.session(host.id);
                match timeout(LIMIT, session.link.connection()).await {
                    Ok(Ok(_)) => None,
                    Ok(Err(error)) => Some((host.name.to_string(), error.to_string())),
                    Err(_) => Some((host.name.to_string(), format!("no answer within {LIMIT:?}"))),
                }
            });
            let seen = queries.iter().map(|query| settled(query, &visit, self.sources.opener()));
            let both = tokio::join!(join_all(seen), join_all(asked));
            // A host that hangs must not keep us.
            let _ = timeout(Duration::from_secs(2), visit.close()).await;
            both
        });
        runtime.shutdown_background();
        self.silent_hypervisors = silent.into_iter().flatten().collect();
        self.drained = Drained::load(&state)?;
        let situation = |(&(cluster, _), (observation, unreachable)): (&(&str, _), _)| Situation {
            cluster: cluster.to_owned(),
            observation,
            unreachable,
        };
        Ok(clusters.iter().zip(seen).map(situation).collect())
    }
}
