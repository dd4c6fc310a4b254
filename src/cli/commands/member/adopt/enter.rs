//! What runs on a host, and an answer of it.

use std::sync::Arc;

use tokio::time::timeout;
use zeroize::Zeroizing;

use super::{
    Adopting,
    way::{Stop, Way},
    wrong,
};
use crate::{
    cli::support::{CliError, query::LIMIT},
    etcd::{
        Credential, MemberClient,
        observe::{View, see},
    },
    inventory::{HostId, sections::TlsSection},
    membership::{Told, Url},
    modules::{FoundEtcd, find_etcd, read_etcd_files, tunnel},
    pki::{Authority, Certificate, Keeping, Renewal, Store},
    remote::RemoteError,
    source::Opener,
};

/// A host that was looked at, with what its server was started with.
pub(super) struct Looked {
    pub(super) found: FoundEtcd,
    pub(super) told: Told,
    pub(super) authority: String,
    pub(super) peer_authority: String,
    pub(super) certificate: String,
    pub(super) above_owner: Option<String>,
    pub(super) ip: Option<String>,
}

pub(super) const NOBODY: &str = "no certificate";
pub(super) const ROOT: &str = "a certificate for root";
pub(super) const SERVER: &str = "the member's own certificate";

/// How we got in, and what was said then.
pub(super) struct Entry {
    pub(super) whose: &'static str,
    pub(super) credential: Credential,
    pub(super) authority: String,
    pub(super) view: View,
    pub(super) auth: Option<bool>,
}

/// Why a host has nothing to say.
pub(super) enum Trouble {
    Unreachable(String),
    /// No server runs there that could be looked at.
    Silent(CliError),
    /// etcdrun could not run it.
    Unfit(CliError),
}

impl Adopting<'_> {
    /// The machine that was named: without it there is nothing to go by.
    pub(super) async fn first(&self, way: &Way, id: HostId, stop: &Stop) -> Result<Looked, CliError> {
        self.look(way, id, &stop.host, "").await.map_err(|trouble| match trouble {
            Trouble::Unreachable(why) => CliError::Unreachable(format!("{}: {why}", stop.host)),
            Trouble::Silent(error) | Trouble::Unfit(error) => error,
        })
    }

    /// Asks a host what runs there. `host` is a name whose address is wanted.
    pub(super) async fn look(&self, way: &Way, id: HostId, name: &str, host: &str) -> Result<Looked, Trouble> {
        let session = way.session(id);
        match timeout(LIMIT, session.link.connection()).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(Trouble::Unreachable(error.to_string())),
            Err(_) => return Err(Trouble::Unreachable(format!("no answer within {LIMIT:?}"))),
        }
        let unfit = |error: RemoteError| {
            let help = error.hint().unwrap_or("--via must name a host on which a member runs");
            Trouble::Silent(CliError::Refused { message: format!("{name}: {error}"), help: Some(help.to_owned()) })
        };
        let found = find_etcd(&session).await.map_err(unfit)?;
        let told = match Told::config_file(&found.arguments, &found.environment) {
            None => Told::by_words(&found.arguments, &found.environment),
            Some(path) => {
                let path = if path.starts_with('/') { path } else { format!("{}/{path}", found.folder) };
                let read = read_etcd_files(&session, &found, &[&path], "", "").await.map_err(unfit)?;
                Told::by_file(&path, read.files.first().map_or("", |text| text))
                    .map_err(|refusal| Trouble::Unfit(refusal.into()))?
            }
        };
        told.check(name, &found.folder).map_err(|refusal| Trouble::Unfit(refusal.into()))?;
        let path = |flag: &str| told.path(flag, &found.folder).unwrap_or_default();
        // Who asks clients for certificates names an authority for them; the others have one for peers.
        let authority = if told.get("trusted-ca-file").is_some() { "trusted-ca-file" } else { "peer-trusted-ca-file" };
        let paths = [path(authority), path("peer-trusted-ca-file"), path("cert-file")];
        let data_dir = told.data_dir(&found.folder);
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        let read = read_etcd_files(&session, &found, &paths, &data_dir, host).await.map_err(unfit)?;
        let [authority, peer_authority, certificate]: [Zeroizing<String>; 3] =
            read.files.try_into().map_err(|_| Trouble::Unreachable("the host did not send all files".to_owned()))?;
        let plain = |text: Zeroizing<String>| text.as_str().to_owned();
        Ok(Looked {
            found,
            told,
            authority: plain(authority),
            peer_authority: plain(peer_authority),
            certificate: plain(certificate),
            above_owner: read.above_owner,
            ip: read.ip,
        })
    }

    /// Gets an answer of the member on that host, with the first credential that does.
    pub(super) async fn enter(&self, way: &Way, id: HostId, stop: &Stop, looked: &Looked) -> Result<Entry, CliError> {
        let authority = self.authority(stop, looked)?;
        let ways = self.credentials(way, id, looked, &authority).await?;
        let port = looked.told.client_port();
        let address = client_address(looked, stop);
        let mut reasons = Vec::new();
        for (whose, credential) in ways {
            let client = MemberClient::new(&stop.host, &address, port, &credential, tunnel(way.session(id)));
            let seen = match &client {
                Ok(client) => see(client, LIMIT).await.answer,
                Err(error) => Err(error.to_string()),
            };
            match (seen, client) {
                (Ok(View { list: Err(why), .. }), _) | (Err(why), _) => reasons.push(format!("with {whose}: {why}")),
                (Ok(view), Ok(client)) => {
                    let auth = timeout(LIMIT, client.authenticates()).await.ok().and_then(Result::ok);
                    return Ok(Entry { whose, credential, authority, view, auth });
                }
                (Ok(_), Err(error)) => reasons.push(error.to_string()),
            }
        }
        let help = "pass --cert and --key with a client certificate that it accepts, --ca-key with the CA key, or --ca-cert with the CA of its own certificate";
        Err(CliError::Refused {
            message: format!("etcd at {address}:{port} rejects the login: {}", reasons.join("; ")),
            help: Some(help.to_owned()),
        })
    }

    /// The authority, with the one first that has signed the server's certificate.
    fn authority(&self, stop: &Stop, looked: &Looked) -> Result<String, CliError> {
        if looked.authority.trim() != looked.peer_authority.trim() {
            return Err(CliError::Refused {
                message: format!("{} trusts different CAs for clients and peers", stop.host),
                help: Some("etcdrun uses one CA for both: before you adopt the cluster, make both trust both CAs, and give the members certificates of one of them".to_owned()),
            });
        }
        let pem = self.here.authority.clone().unwrap_or_else(|| looked.authority.clone());
        let parsed = Certificate::parse_all(&pem).map_err(|error| wrong(&error))?;
        let own = Certificate::parse(&looked.certificate).map_err(|error| wrong(&error))?;
        match parsed.iter().position(|authority| own.is_signed_by(authority)) {
            Some(0) | None => Ok(pem),
            Some(place) => {
                let blocks: Vec<String> = pem
                    .split_inclusive("-----END CERTIFICATE-----")
                    .map(|block| block.trim().to_owned())
                    .filter(|block| block.contains("BEGIN"))
                    .collect();
                let (first, rest) =
                    (blocks.get(place), blocks.iter().enumerate().filter(|(number, _)| *number != place));
                let blocks: Vec<&str> =
                    first.into_iter().chain(rest.map(|(_, block)| block)).map(String::as_str).collect();
                Ok(blocks.join("\n") + "\n")
            }
        }
    }

    /// What may let us in, best first. The server's own key is only asked for where there is nothing better.
    async fn credentials(
        &self,
        way: &Way,
        id: HostId,
        looked: &Looked,
        authority: &str,
    ) -> Result<Vec<(&'static str, Credential)>, CliError> {
        let credential = |identity| Credential { authority: authority.to_owned(), identity, login: None };
        if let Some(identity) = &self.here.identity {
            return Ok(vec![("--cert", credential(Some(identity.clone())))]);
        }
        let mut all = Vec::new();
        if !looked.told.wants_certificates() {
            all.push((NOBODY, credential(None)));
        }
        if let Some(root) = self.root(way.sources.opener(), authority).await? {
            self.invocation.masker.add(&root.1);
            all.push((ROOT, credential(Some(root))));
        }
        if all.is_empty() {
            let path = looked.told.path("key-file", &looked.found.folder).unwrap_or_default();
            let read = read_etcd_files(&way.session(id), &looked.found, &[&path], "", "").await;
            let read = read.map_err(|error| CliError::Unexpected(error.to_string()))?;
            let key = read.files.into_iter().next().unwrap_or_default();
            self.invocation.masker.add(&key);
            all.push((SERVER, credential(Some((looked.certificate.clone(), key)))));
        }
        Ok(all)
    }

    /// A certificate for root, signed here.
    async fn root(
        &self,
        opener: Option<&Arc<dyn Opener>>,
        authority: &str,
    ) -> Result<Option<(String, Zeroizing<String>)>, CliError> {
        let Some(key) = &self.args.ca_key else { return Ok(None) };
        let store = Store::new(self.here.state.path(), &self.args.cluster);
        let keeping = Keeping { store: &store, opener };
        let issued = async {
            let authority = Authority::with_key_file(authority.to_owned(), key, opener)?;
            // Nothing is kept: what comes of this is not known yet.
            authority.client("root", &TlsSection::default(), &keeping, Renewal::ForNow).await
        };
        let client = issued.await.map_err(|error| wrong(&error))?;
        Ok(Some((client.certificate, client.key)))
    }
}

/// Where etcd says that clients find it.
fn client_address(looked: &Looked, stop: &Stop) -> String {
    let urls = looked.told.get("advertise-client-urls").unwrap_or_default();
    let url = urls.split(',').filter_map(Url::parse).find(|url| url.is_secure);
    url.map_or_else(|| stop.host.clone(), |url| url.host)
}
