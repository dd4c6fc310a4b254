//! The certificates that were issued here, also as a table: for `certs list`, `certs renew` and `metrics`.

use std::path::Path;

use jiff::Timestamp;

use super::{
    CliError,
    clusters::{find_cluster, member_names},
};
use crate::{
    inventory::Inventory,
    pki::{Certificate, PkiError, STRANGER, Store},
};

/// One certificate that is known here.
pub struct Row {
    pub cluster: String,
    pub kind: &'static str,
    pub name: String,
    serial: String,
    pub not_after: Timestamp,
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
pub struct Holders {
    cluster: String,
    members: Vec<String>,
}

impl Holders {
    pub fn of(inventory: &Inventory, cluster: &str) -> Self {
        Self { cluster: cluster.to_owned(), members: member_names(inventory, cluster) }
    }

    fn row(&self, kind: &'static str, name: &str, serial: String, not_after: Timestamp) -> Row {
        Row { cluster: self.cluster.clone(), kind, name: name.to_owned(), serial, not_after, note: None }
    }

    pub fn rows(&self, state: &Path) -> Result<Vec<Row>, CliError> {
        let store = Store::new(state, &self.cluster);
        let mut rows = self.authorities(&store)?;
        for name in &self.members {
            if let Some(issued) = store.issued(name)?
                && let Ok(not_after) = issued.not_after.parse()
            {
                rows.push(self.row("member", name, issued.serial, not_after));
            }
        }
        for user in store.users()?.into_iter().filter(|user| user != STRANGER) {
            if let Some(pem) = store.client_certificate(&user)? {
                let Certificate { serial, not_after, .. } = Certificate::parse(&pem)?;
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

pub fn listing(rows: &[Row], json: bool) -> String {
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

/// Who has certificates in the clusters that are meant. A name that is no cluster's is an error, also if it is a host's.
pub fn holders(inventory: &Inventory, clusters: &[String]) -> Result<Vec<Holders>, CliError> {
    let all = || inventory.clusters().map(|cluster| cluster.name.to_string()).collect();
    let names: Vec<String> = if clusters.is_empty() { all() } else { clusters.to_vec() };
    names.iter().map(|name| Ok(Holders::of(inventory, &find_cluster(inventory, name)?))).collect()
}
