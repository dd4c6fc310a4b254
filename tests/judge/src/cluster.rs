//! How to reach a cluster.

use std::net::IpAddr;

/// The member of a cluster, where clients reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub name: String,
    pub ip: IpAddr,
    pub port: u16,
}

impl Endpoint {
    pub fn new(name: &str, ip: IpAddr, port: u16) -> Self {
        Self { name: name.to_owned(), ip, port }
    }
}

/// What proves who the members are, and who the client is.
#[derive(Clone)]
pub struct Tls {
    pub ca_pem: String,
    pub certificate_pem: Option<String>,
    pub key_pem: Option<String>,
}

#[derive(Clone)]
pub struct Login {
    pub user: String,
    pub password: String,
}

#[derive(Clone, Default)]
pub struct Cluster {
    pub endpoints: Vec<Endpoint>,
    /// Without it, connections are plain.
    pub tls: Option<Tls>,
    pub login: Option<Login>,
}
