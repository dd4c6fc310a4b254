//! `etcdrun member adopt CLUSTER --via ADDRESS`: an inventory for a cluster that something else has made. Hosts are only looked at.

mod enter;
mod way;
mod write;

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use clap::Args;
use futures_util::future::join_all;
use zeroize::Zeroizing;

use self::{
    enter::{Entry, Looked, Trouble},
    way::{Stop, Way, find, stop_at},
    write::Adopted,
};
use crate::{
    cli::support::{
        CliError, Exit, Invocation,
        args::{ConnectionArgs, KnownArgs},
        input::Opening,
        query::LIMIT,
        site::{Files, Site},
    },
    etcd::{
        ClusterRecord, MemberClient,
        observe::{Listed, see},
        settings,
    },
    inventory::{Inventory, edit::flow, is_name},
    membership::{Newcomer, Server, Url, is_address, places},
    model::Version,
    modules::tunnel,
    pki::{Certificate, PkiError},
    report::sanitize,
    state::StateFolder,
};

/// The hosts that are visited, under a name that no file has.
const HOSTS: &str = "etcdrun member adopt: its hosts.yaml";

#[derive(Args, Debug)]
#[command(
    after_help = "This changes nothing on any host. It needs root there, to see how etcd was started, and a client certificate: that of --cert and --key, one for root that --ca-key signs, or else the member's own.\n\nExamples:\n  etcdrun member adopt prod --via 10.0.0.11 -u ops --become\n  etcdrun member adopt prod --via root@etcd-1.example.org --ca-key ca.key --out inventory/prod.yaml\n  etcdrun member adopt prod --via etcd-1 -i hosts.yaml --out prod.yaml"
)]
pub(super) struct AdoptArgs {
    /// The name for the cluster
    cluster: String,

    /// A host with one of its members: [user@]address[:port], or a host of the inventory that -i names
    #[arg(long, value_name = "ADDRESS")]
    via: String,

    /// The inventory file to write
    #[arg(long, value_name = "FILE", default_value = "inventory.yaml")]
    out: PathBuf,

    /// Overwrite existing files
    #[arg(long)]
    force: bool,

    /// A client certificate that etcd accepts, preferably root's; with --key
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,

    /// The key of that certificate
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,

    /// The CA certificate [default: the one that etcd trusts]
    #[arg(long, value_name = "FILE")]
    ca_cert: Option<PathBuf>,

    /// The CA key, which may be encrypted with age; it is not copied
    #[arg(long, value_name = "FILE")]
    ca_key: Option<PathBuf>,

    /// The state directory for the cluster [default: .etcdrun next to the inventory that is written]
    #[arg(long, value_name = "FOLDER")]
    state_dir: Option<PathBuf>,

    #[command(flatten)]
    known: KnownArgs,

    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(super) fn run(args: &AdoptArgs, invocation: &Invocation) -> Result<Exit, CliError> {
    let first = Stop::of(&args.via)?;
    let here = Here::check(args, invocation)?;
    let adopted = Adopting { args, here: &here, invocation }.run(&first)?;
    invocation.print(&match invocation.json {
        true => format!("{:#}\n", adopted.json()),
        false => adopted.text(args),
    })?;
    Ok(if adopted.unreachable.is_empty() { Exit::Success } else { Exit::Unreachable })
}

/// What is on this machine.
struct Here {
    state: StateFolder,
    authority: Option<String>,
    identity: Option<(String, Zeroizing<String>)>,
}

impl Here {
    /// Refuses what would not go well in the end, before anything is connected to.
    fn check(args: &AdoptArgs, invocation: &Invocation) -> Result<Self, CliError> {
        if !is_name(&args.cluster) {
            let help = "names consist of letters, digits, `.`, `_` and `-`, and do not start with `-`".to_owned();
            return Err(CliError::usage_with_help(
                format!("{:?} cannot be the name of a cluster", args.cluster),
                Some(help),
            ));
        }
        if args.out.exists() && !args.force {
            let help = "pass --out for another file, or --force to overwrite it".to_owned();
            return Err(CliError::usage_with_help(format!("{} already exists", args.out.display()), Some(help)));
        }
        let folder = args.out.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !folder.is_dir() {
            return Err(CliError::usage(format!("there is no directory {}", folder.display())));
        }
        let state = match args.state_dir.as_deref().or(invocation.settings.state_dir.as_deref()) {
            Some(path) => StateFolder::at(path),
            None => StateFolder::at(args.out.parent().unwrap_or(Path::new("")).join(".etcdrun")),
        };
        let identity = match (&args.cert, &args.key) {
            (Some(certificate), Some(key)) => {
                let key = Zeroizing::new(text(key)?);
                invocation.masker.add(&key);
                Some((text(certificate)?, key))
            }
            _ => None,
        };
        if let Some(key) = &args.ca_key {
            drop(Zeroizing::new(text(key)?));
        }
        let authority = args.ca_cert.as_deref().map(text).transpose()?;
        Ok(Self { state, authority, identity })
    }
}

fn text(path: &Path) -> Result<String, CliError> {
    fs::read_to_string(path).map_err(|error| CliError::usage(format!("{}: {error}", path.display())))
}

struct Adopting<'a> {
    args: &'a AdoptArgs,
    here: &'a Here,
    invocation: &'a Invocation,
}

impl Adopting<'_> {
    fn run(&self, first: &Stop) -> Result<Adopted, CliError> {
        let way = self.way(&[first])?;
        let id = find(&way, first)?;
        let (looked, entry) = way.hosts.runtime.block_on(async {
            let looked = self.first(&way, id, first).await;
            let entry = match &looked {
                Ok(looked) => Some(self.enter(&way, id, first, looked).await),
                Err(_) => None,
            };
            (looked, entry)
        });
        way.hosts.leave();
        let (looked, entry) = (looked?, entry.transpose()?);
        let Some(entry) = entry else { return Err(CliError::Unexpected("no member was queried".to_owned())) };
        self.others(first, looked, entry)
    }

    /// A way to these hosts, by the inventory that was named, or without any.
    fn way(&self, stops: &[&Stop]) -> Result<Way, CliError> {
        let load = |files: Files| {
            let inventory = self.args.known.inventory.iter().cloned().chain(files.keys().cloned()).collect();
            let args = KnownArgs { inventory, ..self.args.known.clone() };
            Site::load_as_if(files, Opening::All, &args, Some(self.here.state.path()), self.invocation)
        };
        let known = match self.args.known.inventory.is_empty() {
            true => Inventory::default(),
            false => load(Files::new())?.inventory,
        };
        let strangers = stops.iter().filter(|stop| stop.find(&known).is_none());
        let mut text = String::from("hosts:\n");
        let mut written = BTreeSet::new();
        for stop in strangers.filter(|stop| written.insert(stop.host.clone())) {
            let _ = writeln!(text, "  {}: {}", flow(&stop.host.clone().into()), flow(&stop.entry()));
        }
        let files = match written.is_empty() {
            true => Files::new(),
            false => Files::from([(PathBuf::from(HOSTS), text.into_bytes())]),
        };
        let site = load(files)?;
        let hosts = site.connect(&self.args.connection, self.invocation)?;
        let r#become = self.args.connection.r#become || self.invocation.settings.r#become;
        Ok(Way { hosts, sources: site.sources, r#become })
    }

    fn others(&self, first: &Stop, looked: Looked, entry: Entry) -> Result<Adopted, CliError> {
        let list = entry.view.list.clone().unwrap_or_default();
        let places = places(&self.args.cluster, &list)?;
        let version = entry.view.version;
        if !settings::is_known(version) {
            let (oldest, newest) = (settings::KNOWN_MINORS.start(), settings::KNOWN_MINORS.end());
            let message = format!("etcd {version} runs there, and etcdrun supports 3.{oldest} to 3.{newest}");
            return Err(CliError::Refused {
                message,
                help: Some(
                    "upgrade the cluster to a supported version first, with the tool that created it".to_owned(),
                ),
            });
        }
        self.is_ours(&entry)?;
        let stops: Vec<Stop> =
            list.iter().zip(&places).map(|(member, place)| stop_at(member, place, first, entry.view.id)).collect();
        let way = self.way(&stops.iter().collect::<Vec<_>>())?;
        let members = way.hosts.runtime.block_on(async {
            let visits = list.iter().zip(&places).zip(&stops);
            let visits = visits.map(|((member, place), stop)| self.member(&way, member, place, stop, &entry));
            join_all(visits).await
        });
        way.hosts.leave();
        let mut members: Vec<Visited> = members.into_iter().collect::<Result<_, _>>()?;
        members.sort_by(|one, other| one.newcomer.name.cmp(&other.newcomer.name));
        same_version(version, &members)?;
        self.write(first, looked, entry, members)
    }

    /// A cluster of that name that is known here must be this one.
    fn is_ours(&self, entry: &Entry) -> Result<(), CliError> {
        let known = ClusterRecord::load(self.here.state.path(), &self.args.cluster)?;
        let id = format!("{:x}", entry.view.cluster_id);
        match known.and_then(|record| record.cluster_id).filter(|known| *known != id) {
            Some(known) => Err(CliError::Refused {
                message: format!(
                    "{1} already has a record of another cluster `{0}`: its id is {known}, and this one has {id}",
                    self.args.cluster,
                    self.here.state.path().display()
                ),
                help: Some("choose another name, or another directory for --out or --state-dir".to_owned()),
            }),
            None => Ok(()),
        }
    }

    async fn member(
        &self,
        way: &Way,
        listed: &Listed,
        place: &Url,
        stop: &Stop,
        entry: &Entry,
    ) -> Result<Visited, CliError> {
        let id = find(way, stop)?;
        let host = if is_address(&place.host) { "" } else { place.host.as_str() };
        let newcomer = Newcomer {
            name: listed.name.clone(),
            address: way.hosts.inventory.host_by_id(id).address().to_owned(),
            ip: place.host.clone(),
            ssh: way.ssh(id),
            names: BTreeSet::new(),
            server: Err(String::new()),
        };
        let looked = match self.look(way, id, &listed.name, host).await {
            Ok(looked) => looked,
            Err(Trouble::Unfit(error)) => return Err(error),
            Err(Trouble::Silent(CliError::Refused { message: why, .. }) | Trouble::Unreachable(why)) => {
                return Ok(Visited {
                    newcomer: Newcomer { server: Err(sanitize(&why).into_owned()), ..newcomer },
                    version: None,
                    trouble: None,
                });
            }
            Err(Trouble::Silent(error)) => return Err(error),
        };
        self.same_authority(listed, &looked, entry)?;
        let ip =
            looked.ip.clone().filter(|ip| !host.is_empty() && is_address(ip)).unwrap_or_else(|| place.host.clone());
        let port = looked.told.client_port();
        // Through its own host, as everything else will ask it.
        let seen = match MemberClient::new(&listed.name, &ip, port, &entry.credential, tunnel(way.session(id))) {
            Ok(client) => see(&client, LIMIT).await,
            Err(error) => return Err(CliError::Unexpected(error.to_string())),
        };
        let trouble = seen.trouble();
        let (certificate, found) =
            (Certificate::parse(&looked.certificate).map_err(|error| wrong(&error))?, looked.found);
        let server = Server {
            told: looked.told,
            folder: found.folder,
            user: found.user,
            account: found.account,
            unit: found.unit,
            program: found.program,
            sha256: found.sha256,
            is_contained: found.is_contained,
            above_owner: looked.above_owner,
        };
        let version = seen.answer.ok().map(|view| view.version);
        Ok(Visited {
            newcomer: Newcomer { ip, names: certificate.names, server: Ok(server), ..newcomer },
            version,
            trouble,
        })
    }

    fn same_authority(&self, listed: &Listed, looked: &Looked, entry: &Entry) -> Result<(), CliError> {
        let keys = |pem: &str| -> Result<BTreeSet<Vec<u8>>, CliError> {
            let all = Certificate::parse_all(pem).map_err(|error| wrong(&error))?;
            Ok(all.into_iter().map(|certificate| certificate.public_key).collect())
        };
        if self.here.authority.is_some() || keys(&looked.authority)? == keys(&entry.authority)? {
            return Ok(());
        }
        Err(CliError::Refused {
            message: format!("{} trusts another CA than the first member", listed.name),
            help: Some("all members must trust the same CAs; --ca-cert names the one to use".to_owned()),
        })
    }
}

/// A member, and what it said.
struct Visited {
    newcomer: Newcomer,
    version: Option<Version>,
    trouble: Option<String>,
}

fn wrong(error: &PkiError) -> CliError {
    CliError::Refused { message: error.message.clone(), help: error.help.clone() }
}

fn same_version(version: Version, members: &[Visited]) -> Result<(), CliError> {
    let told = |visited: &Visited| Some((visited.newcomer.name.clone(), visited.version?));
    let Some((name, other)) = members.iter().filter_map(told).find(|(_, other)| *other != version) else {
        return Ok(());
    };
    Err(CliError::Refused {
        message: format!("members run different versions: {name} has {other}, another has {version}"),
        help: Some("finish the upgrade in progress with the tool that started it, then adopt the cluster".to_owned()),
    })
}
