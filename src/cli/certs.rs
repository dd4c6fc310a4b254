//! `etcdrun certs`: certificates of clusters. `list`, `issue` and `export` work on the operator's disk and connect to nothing.

use std::{
    fs::{self, DirBuilder},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::{Args, Subcommand};
use jiff::Timestamp;

use super::{
    CliError, Exit, Invocation,
    args::{InventoryArgs, KeyArgs},
    input::{Input, Opening},
    record::state_folder,
    renewal::{self, Common, RenewArgs, RotateArgs},
};
use crate::{
    inventory::{Inventory, sections::TlsSection},
    pki::{Authority, Certificate, Keeping, PkiError, Renewal, STRANGER, Store},
    source::{did_you_mean, from_node},
    state::StateFolder,
    state_folder::write_private,
};

/// What a list of certificates is not.
const ISSUED: &str = "Certificates issued here. `etcdrun status` shows the ones that members use.\n";

#[derive(Args, Debug)]
pub struct CertsCommand {
    #[command(subcommand)]
    verb: Verb,

    /// Inventory file, directory or executable; several are merged [default: inventory/ or inventory.yaml]
    #[arg(short, long, value_name = "PATH", global = true)]
    inventory: Vec<PathBuf>,

    /// The state directory for certificates [default: .etcdrun next to the inventory]
    #[arg(long, value_name = "FOLDER", global = true)]
    state_dir: Option<PathBuf>,

    #[command(flatten)]
    keys: KeyArgs,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// List CAs and the certificates they have issued, with expiry; `etcdrun status` shows the ones that members use
    List {
        #[command(flatten)]
        of: OfCluster,
    },
    /// Issue a certificate for a user of etcd, unless there is a valid one
    Issue {
        /// The user; it becomes the common name
        user: String,
        /// Issue a new key and certificate in any case
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        of: OfCluster,
    },
    /// Renew certificates of members and users that expire soon or have expired; nothing restarts
    Renew(Box<RenewArgs>),
    /// Rotate a cluster's CA, in three phases
    RotateCa(Box<RotateArgs>),
    /// Write a user's certificate and key, and the CAs to trust, into a directory for other tools
    Export {
        /// The user
        user: String,
        /// The directory; it is created if it is missing
        #[arg(long, value_name = "FOLDER", default_value = ".")]
        to: PathBuf,
        #[command(flatten)]
        of: OfCluster,
    },
}

#[derive(Args, Debug)]
struct OfCluster {
    /// The cluster [default: all for `list`, else the only one]
    #[arg(short, long, value_name = "NAME")]
    cluster: Option<String>,
}

pub fn run(args: &CertsCommand, invocation: &Invocation) -> Result<Exit, CliError> {
    let paths =
        InventoryArgs { inventory: args.inventory.clone(), keys: args.keys.clone(), ..InventoryArgs::default() };
    let common = || Common { inventory: paths.clone(), state_dir: args.state_dir.clone() };
    let of = match &args.verb {
        Verb::Renew(renew) => return renewal::renew(renew, common(), invocation),
        Verb::RotateCa(rotate) => return renewal::rotate(rotate, common(), invocation),
        Verb::List { of } | Verb::Issue { of, .. } | Verb::Export { of, .. } => of.cluster.as_deref(),
    };
    let mut input = Input::new(&args.keys, Opening::All, invocation);
    let inventory = input.inventory(&paths, invocation);
    input.check(invocation)?;
    let state = state_folder(args.state_dir.as_deref(), &input.inventories, invocation);
    let of_one = || -> Result<(String, Store), CliError> {
        let name = the_cluster(&inventory, of)?;
        Ok((name.clone(), Store::new(state.path(), &name)))
    };
    match &args.verb {
        Verb::Renew(_) | Verb::RotateCa(_) => {}
        Verb::List { .. } => list(&inventory, of, &state, invocation)?,
        Verb::Issue { user, force, .. } => {
            let (name, store) = of_one()?;
            invocation.print(&issue(&inventory, &input, &name, &store, user, *force)?)?;
        }
        Verb::Export { user, to, .. } => {
            let (_, store) = of_one()?;
            let keeping = Keeping { store: &store, opener: input.sources.opener() };
            invocation.print(&export(&keeping, user, to)?)?;
        }
    }
    Ok(Exit::Success)
}

fn list(inventory: &Inventory, of: Option<&str>, state: &StateFolder, invocation: &Invocation) -> Result<(), CliError> {
    let names: Vec<String> = match of {
        Some(name) => vec![find_cluster(inventory, name)?],
        None => inventory.clusters().map(|cluster| cluster.name.to_string()).collect(),
    };
    let mut rows = Vec::new();
    for name in names {
        rows.extend(Holders::of(inventory, &name).rows(state.path())?);
    }
    invocation.print(&listing(&rows, invocation.json))?;
    if !invocation.json && rows.iter().any(|row| row.kind == "member") {
        invocation.print(ISSUED)?;
    }
    Ok(())
}

/// The cluster that is named, or the only one.
pub(super) fn the_cluster(inventory: &Inventory, wanted: Option<&str>) -> Result<String, CliError> {
    let names: Vec<&str> = inventory.clusters().map(|cluster| cluster.name.as_str()).collect();
    match (wanted, names.as_slice()) {
        (Some(name), _) => find_cluster(inventory, name),
        (None, [only]) => Ok((*only).to_owned()),
        (None, []) => Err(CliError::usage("the inventory has no cluster")),
        (None, several) => {
            let help = format!("name one with --cluster: {}", several.join(", "));
            Err(CliError::usage_with_help("the inventory has several clusters", Some(help)))
        }
    }
}

/// The cluster of this name.
pub(super) fn find_cluster(inventory: &Inventory, name: &str) -> Result<String, CliError> {
    if inventory.cluster(name).is_some() {
        return Ok(name.to_owned());
    }
    let names = inventory.clusters().map(|cluster| cluster.name.as_str());
    let help = did_you_mean(name, names);
    Err(CliError::usage_with_help(format!("there is no cluster `{name}` in the inventory"), help))
}

/// One certificate that is known here.
pub(super) struct Row {
    cluster: String,
    kind: &'static str,
    name: String,
    serial: String,
    not_after: Timestamp,
    /// What there is to say of it.
    pub note: Option<String>,
}

impl Row {
    /// Whether both are about the same certificate.
    pub fn is_like(&self, other: &Self) -> bool {
        let key = |row: &Self| (row.cluster.clone(), row.kind, row.name.clone(), row.serial.clone());
        key(self) == key(other)
    }
}

/// A cluster and its members.
pub(super) struct Holders {
    cluster: String,
    members: Vec<String>,
}

impl Holders {
    pub fn of(inventory: &Inventory, cluster: &str) -> Self {
        let members = inventory.cluster(cluster).into_iter().flat_map(|cluster| &cluster.members);
        let members = members.map(|id| inventory.host_by_id(*id).name.to_string()).collect();
        Self { cluster: cluster.to_owned(), members }
    }

    fn row(&self, kind: &'static str, name: &str, serial: String, not_after: Timestamp) -> Row {
        Row { cluster: self.cluster.clone(), kind, name: name.to_owned(), serial, not_after, note: None }
    }

    pub fn rows(&self, state: &Path) -> Result<Vec<Row>, CliError> {
        let store = Store::new(state, &self.cluster);
        let mut rows = self.authorities(&store).map_err(failed)?;
        for name in &self.members {
            if let Some(issued) = store.issued(name).map_err(failed)?
                && let Ok(not_after) = issued.not_after.parse()
            {
                rows.push(self.row("member", name, issued.serial, not_after));
            }
        }
        for user in store.users().map_err(failed)?.into_iter().filter(|user| user != STRANGER) {
            if let Some(pem) = store.client_certificate(&user).map_err(failed)? {
                let Certificate { serial, not_after, .. } = Certificate::parse(&pem).map_err(failed)?;
                rows.push(self.row("user", &user, serial, not_after));
            }
        }
        Ok(rows)
    }

    /// The one that there is, or both while one takes the other's place.
    fn authorities(&self, store: &Store) -> Result<Vec<Row>, PkiError> {
        let row = |pem: &str, note: Option<String>| -> Result<Row, PkiError> {
            let authority = Certificate::parse(pem)?;
            Ok(Row { note, ..self.row("authority", &authority.common_name, authority.serial, authority.not_after) })
        };
        if let Some(rotation) = store.rotation()? {
            let complete = if rotation.complete { ", complete" } else { "" };
            let new = format!("new, in the phase `{}`{complete}", rotation.phase.name());
            return Ok(vec![row(&rotation.old, Some("old".to_owned()))?, row(&rotation.new, Some(new))?]);
        }
        store.authority_certificate()?.iter().map(|pem| row(pem, None)).collect()
    }
}

pub(super) fn listing(rows: &[Row], json: bool) -> String {
    if json {
        let rows: Vec<_> = rows
            .iter()
            .map(|row| {
                serde_json::json!({
                    "cluster": row.cluster, "kind": row.kind, "name": row.name, "not_after": row.not_after.to_string(),
                    "note": row.note,
                })
            })
            .collect();
        return format!("{:#}\n", serde_json::Value::Array(rows));
    }
    if rows.is_empty() {
        return "no certificates yet; `etcdrun playbook site.yaml` creates them\n".to_owned();
    }
    let width = |text: fn(&Row) -> &str| rows.iter().map(|row| text(row).len()).max().unwrap_or_default();
    let (cluster, name) = (width(|row| &row.cluster).max(7), width(|row| &row.name).max(4));
    let mut text = format!("{:cluster$}  {:9}  {:name$}  EXPIRES\n", "CLUSTER", "KIND", "NAME");
    for row in rows {
        let days = row.not_after.duration_since(Timestamp::now()).as_secs() / 86_400;
        let day = row.not_after.strftime("%Y-%m-%d");
        let left = if row.not_after < Timestamp::now() { "expired".to_owned() } else { format!("{days} days left") };
        let note = row.note.as_ref().map(|note| format!(", {note}")).unwrap_or_default();
        text += &format!("{:cluster$}  {:9}  {:name$}  {day}, {left}{note}\n", row.cluster, row.kind, row.name);
    }
    text
}

fn issue(
    inventory: &Inventory,
    input: &Input,
    cluster: &str,
    store: &Store,
    user: &str,
    force: bool,
) -> Result<String, CliError> {
    if inventory.host(user).is_some() {
        return Err(CliError::usage(format!(
            "`{user}` is a host: its certificate would also authenticate as a user of that name"
        )));
    }
    let section = inventory.cluster(cluster).and_then(|cluster| cluster.sections.get("tls"));
    let tls: TlsSection = section.map_or_else(|| Ok(TlsSection::default()), from_node).map_err(|_| {
        CliError::usage(format!("the section `tls` of `{cluster}` contains templates, which only a run can render"))
    })?;
    let keeping = Keeping { store, opener: input.sources.opener() };
    let authority = Authority::open(&tls, &keeping).map_err(failed)?;
    let Some(authority) = authority.map(Arc::new) else {
        let help = Some("`etcdrun playbook site.yaml` creates it".to_owned());
        return Err(CliError::usage_with_help(format!("the cluster `{cluster}` has no CA yet"), help));
    };
    let renewal = if force { Renewal::Always } else { Renewal::IfNeeded };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let issued = runtime.block_on(authority.client(user, &tls, &keeping, renewal)).map_err(failed)?;
    let (certificate, key) = store.client_paths(user);
    let until = Certificate::parse(&issued.certificate).map_err(failed)?.not_after;
    Ok(format!(
        "{} until {until}\n  {}\n  {}\n  {}, encrypted; `etcdrun certs export {user} --cluster {cluster}` writes it for other tools\n",
        if issued.is_new { "issued" } else { "good" },
        store.certificate_path().display(),
        certificate.display(),
        key.display()
    ))
}

fn export(keeping: &Keeping<'_>, user: &str, folder: &Path) -> Result<String, CliError> {
    let nothing = || {
        let help = Some(format!("`etcdrun certs issue {user}` creates one"));
        CliError::usage_with_help(format!("there is no certificate for `{user}` here"), help)
    };
    let (certificate, key) = keeping.client(user).map_err(failed)?.ok_or_else(nothing)?;
    let authority = keeping.store.trusted().map_err(failed)?.ok_or_else(nothing)?;
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let folder = fs::canonicalize(folder)?;
    let mut text = String::new();
    for (name, body) in
        [("ca.crt".to_owned(), &authority), (format!("{user}.crt"), &certificate), (format!("{user}.key"), &*key)]
    {
        let path = folder.join(name);
        write_private(&path, body.as_bytes())?;
        text += &format!("{}\n", path.display());
    }
    Ok(text)
}

fn failed(error: PkiError) -> CliError {
    CliError::usage_with_help(error.message, error.help)
}
