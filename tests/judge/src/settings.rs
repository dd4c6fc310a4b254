//! How much the clients do.

use std::time::Duration;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// Decides what the clients do next; not when, which depends on the cluster.
    pub seed: u64,
    /// How many clients work on the registers.
    pub writers: u32,
    /// How many registers there are.
    pub keys: u32,
    /// How many operations per second the writers do together.
    pub rate: f64,
    /// How long an answer is awaited. After it, nobody can tell whether the request took effect.
    pub timeout: Duration,
    pub watchers: u32,
    pub lease_clients: u32,
    pub lease_ttl: Duration,
    /// A put begins this often even while others are not answered yet, so that gaps are measured finely.
    pub probe_interval: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 0,
            writers: 4,
            keys: 10,
            rate: 35.0,
            timeout: Duration::from_secs(2),
            watchers: 2,
            lease_clients: 1,
            lease_ttl: Duration::from_secs(10),
            probe_interval: Duration::from_millis(200),
        }
    }
}
