//! `etcdrun certs list|issue|export`: certificates of clusters, on the operator's disk. Connects to nothing.

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
};
use crate::{
    inventory::{Inventory, sections::TlsSection},
    pki::{Authority, Certificate, Keeping, PkiError, Renewal, STRANGER, Store},
    source::{did_you_mean, from_node},
    state::write_private,
};

#[derive(Args, Debug)]
pub struct CertsCommand {
    #[command(subcommand)]
    verb: Verb,

    /// Inventory file, folder or executable; several merge [default: inventory/ or inventory.yaml]
    #[arg(short, long, value_name = "PATH", global = true)]
    inventory: Vec<PathBuf>,

    /// The cluster, where the inventory has several
    #[arg(short, long, value_name = "NAME", global = true)]
    cluster: Option<String>,

    /// Keep certificates in this folder [default: .etcdrun beside the inventory]
    #[arg(long, value_name = "FOLDER", global = true)]
    state_dir: Option<PathBuf>,

    #[command(flatten)]
    keys: KeyArgs,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// List authorities, and what they have issued, with the day that each ends
    List,
    /// Give a user of etcd a certificate, unless there is a good one
    Issue {
        /// The user; it becomes the common name
        user: String,
        /// Issue a new key and certificate in any case
        #[arg(long)]
        force: bool,
    },
    /// Write a user's certificate and key, and that of the authority, into a folder for other tools
    Export {
        /// The user
        user: String,
        /// The folder; it is made if it is missing
        #[arg(long, value_name = "FOLDER", default_value = ".")]
        to: PathBuf,
    },
}

pub fn run(args: &CertsCommand, invocation: &Invocation) -> Result<Exit, CliError> {
    let mut input = Input::new(&args.keys, Opening::All, invocation);
    let paths = InventoryArgs { inventory: args.inventory.clone(), ..InventoryArgs::default() };
    let inventory = input.inventory(&paths, invocation);
    input.check(invocation)?;
    let state = state_folder(args.state_dir.as_deref(), &input.inventories, invocation);
    if let Verb::List = args.verb {
        let clusters = inventory
            .clusters()
            .filter(|cluster| args.cluster.as_deref().is_none_or(|name| name == cluster.name.as_str()));
        let mut rows = Vec::new();
        for cluster in clusters {
            rows.extend(list(&inventory, cluster.name.as_str(), state.path())?);
        }
        invocation.print(&listing(&rows, invocation.json))?;
        return Ok(Exit::Success);
    }
    let name = the_cluster(&inventory, args.cluster.as_deref())?;
    let store = Store::new(state.path(), &name);
    match &args.verb {
        Verb::List => {}
        Verb::Issue { user, force } => {
            let paths = issue(&inventory, &input, &name, &store, user, *force)?;
            invocation.print(&paths)?;
        }
        Verb::Export { user, to } => invocation.print(&export(&store, user, to)?)?,
    }
    Ok(Exit::Success)
}

/// The cluster that is named, or the only one.
fn the_cluster(inventory: &Inventory, wanted: Option<&str>) -> Result<String, CliError> {
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
    let help = did_you_mean(name, names).map(|near| format!("did you mean `{near}`?"));
    Err(CliError::usage_with_help(format!("there is no cluster `{name}` in the inventory"), help))
}

/// One certificate that is known here.
struct Row {
    cluster: String,
    kind: &'static str,
    name: String,
    not_after: Timestamp,
}

fn list(inventory: &Inventory, cluster: &str, state: &Path) -> Result<Vec<Row>, CliError> {
    let store = Store::new(state, cluster);
    let row = |kind, name: &str, not_after| Row { cluster: cluster.to_owned(), kind, name: name.to_owned(), not_after };
    let mut rows = Vec::new();
    if let Some(pem) = store.authority_certificate().map_err(failed)? {
        let authority = Certificate::parse(&pem).map_err(failed)?;
        rows.push(row("authority", &authority.common_name, authority.not_after));
    }
    let members = inventory.cluster(cluster).into_iter().flat_map(|cluster| &cluster.members);
    for name in members.map(|id| inventory.host_by_id(*id).name.as_str()) {
        if let Some(issued) = store.issued(name).map_err(failed)?
            && let Ok(not_after) = issued.not_after.parse()
        {
            rows.push(row("member", name, not_after));
        }
    }
    for user in store.users().map_err(failed)?.into_iter().filter(|user| user != STRANGER) {
        if let Some((pem, _)) = store.client(&user).map_err(failed)? {
            rows.push(row("user", &user, Certificate::parse(&pem).map_err(failed)?.not_after));
        }
    }
    Ok(rows)
}

fn listing(rows: &[Row], json: bool) -> String {
    if json {
        let rows: Vec<_> = rows
            .iter()
            .map(|row| {
                serde_json::json!({
                    "cluster": row.cluster, "kind": row.kind, "name": row.name, "not_after": row.not_after.to_string(),
                })
            })
            .collect();
        return format!("{:#}\n", serde_json::Value::Array(rows));
    }
    if rows.is_empty() {
        return "no certificates yet; `etcdrun playbook site.yaml` makes them\n".to_owned();
    }
    let width = |text: fn(&Row) -> &str| rows.iter().map(|row| text(row).len()).max().unwrap_or_default();
    let (cluster, name) = (width(|row| &row.cluster).max(7), width(|row| &row.name).max(4));
    let mut text = format!("{:cluster$}  {:9}  {:name$}  ENDS\n", "CLUSTER", "KIND", "NAME");
    for row in rows {
        let days = row.not_after.duration_since(Timestamp::now()).as_secs() / 86_400;
        let day = row.not_after.strftime("%Y-%m-%d");
        let left = if days < 0 { "over".to_owned() } else { format!("{days} days left") };
        text += &format!("{:cluster$}  {:9}  {:name$}  {day}, {left}\n", row.cluster, row.kind, row.name);
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
        return Err(CliError::usage(format!("`{user}` is a host: its certificate would pass for a user of that name")));
    }
    let section = inventory.cluster(cluster).and_then(|cluster| cluster.sections.get("tls"));
    let tls: TlsSection = section.map_or_else(|| Ok(TlsSection::default()), from_node).map_err(|_| {
        CliError::usage(format!("the section `tls` of `{cluster}` has templates in it, which only a run can render"))
    })?;
    let keeping = Keeping { store, opener: input.sources.opener() };
    let authority = Authority::open(&tls, &keeping).map_err(failed)?;
    let Some(authority) = authority.map(Arc::new) else {
        let help = Some("`etcdrun playbook site.yaml` makes it".to_owned());
        return Err(CliError::usage_with_help(format!("the cluster `{cluster}` has no authority yet"), help));
    };
    let renewal = if force { Renewal::Always } else { Renewal::IfNeeded };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let issued = runtime.block_on(authority.client(user, &tls, store, renewal)).map_err(failed)?;
    let (certificate, key) = store.client_paths(user);
    let until = Certificate::parse(&issued.certificate).map_err(failed)?.not_after;
    Ok(format!(
        "{} until {until}\n  {}\n  {}\n  {}\n",
        if issued.is_new { "issued" } else { "good" },
        store.certificate_path().display(),
        certificate.display(),
        key.display()
    ))
}

fn export(store: &Store, user: &str, folder: &Path) -> Result<String, CliError> {
    let nothing = || {
        let help = Some(format!("`etcdrun certs issue {user}` makes one"));
        CliError::usage_with_help(format!("there is no certificate of `{user}` here"), help)
    };
    let (certificate, key) = store.client(user).map_err(failed)?.ok_or_else(nothing)?;
    let authority = store.authority_certificate().map_err(failed)?.ok_or_else(nothing)?;
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
