//! Local ports that lead to the members of a cluster, through SSH: for `tunnel` and `etcdctl`.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
};

use super::{
    CliError,
    clusters::find_cluster,
    query::{ClusterQuery, LIMIT},
    site::Site,
    visit::Hosts,
};
use crate::remote::Session;

/// A member that a connection may go to.
pub struct Member {
    ip: String,
    session: Session,
}

pub fn query(site: &Site, cluster: &str) -> Result<ClusterQuery, CliError> {
    find_cluster(&site.inventory, cluster)?;
    ClusterQuery::new(site, cluster, LIMIT)
}

pub fn members(hosts: &Hosts, query: &ClusterQuery) -> Vec<Member> {
    let member = |(id, ip): (_, &str)| Member { ip: ip.to_owned(), session: hosts.visit.session(id) };
    query.addresses().map(member).collect()
}

/// A local port. Each connection goes to the first member that takes it, from the one that took the last.
pub async fn listen(members: Arc<[Member]>, port: u16, local: u16) -> Result<SocketAddr, CliError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, local)).await.map_err(|error| {
        let help = "pass --port for another one".to_owned();
        CliError::usage_with_help(format!("cannot listen on port {local}: {error}"), Some(help))
    })?;
    let address = listener.local_addr()?;
    let good = Arc::new(AtomicUsize::new(0));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (members, good) = (members.clone(), good.clone());
            tokio::spawn(async move { pass_on(stream, &members, port, &good).await });
        }
    });
    Ok(address)
}

async fn pass_on(mut stream: TcpStream, members: &[Member], port: u16, good: &AtomicUsize) {
    let first = good.load(Ordering::Relaxed);
    for offset in 0..members.len() {
        let number = (first + offset) % members.len();
        let member = &members[number];
        match member.session.open_tcp(&member.ip, port).await {
            Ok(mut tunnel) => {
                good.store(number, Ordering::Relaxed);
                // However it ends, both sides have seen it themselves.
                let _ = copy_bidirectional(&mut stream, &mut tunnel).await;
                return;
            }
            Err(error) => tracing::warn!(member = member.ip, %error, "no tunnel"),
        }
    }
}
