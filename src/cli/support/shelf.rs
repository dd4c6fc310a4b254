//! Where backups are: for `backup`, `restore` and `destroy`.

use std::{path::PathBuf, sync::Arc};

use clap::Args;
use serde_json::{Value, json};

use super::{
    CliError, Invocation,
    clusters::{find_cluster, section},
    site::Site,
};
use crate::{
    backup::{Access, BackupError, Kept, Keys, Manifest, Place, Store, Trust, backups},
    inventory::sections::BackupSection,
    source::{Opener, did_you_mean},
};

/// Access to a bucket; keys come from the inventory, else from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or other credentials in the
/// environment.
#[derive(Args, Clone, Debug, Default)]
pub struct BucketArgs {
    /// The URL of an S3 service
    #[arg(long, value_name = "URL", help_heading = "Bucket")]
    endpoint: Option<String>,

    /// The region of the bucket
    #[arg(long, value_name = "NAME", help_heading = "Bucket")]
    region: Option<String>,

    /// Trust this CA for the endpoint, in addition to the CAs of the system
    #[arg(long, value_name = "FILE", help_heading = "Bucket")]
    s3_ca: Option<PathBuf>,
}

pub fn backup_section(site: &Site, cluster: &str) -> Result<BackupSection, CliError> {
    let found: Option<BackupSection> =
        site.inventory.cluster(cluster).map(|cluster| section(cluster, "backup")).transpose()?;
    Ok(found.unwrap_or_default())
}

impl BucketArgs {
    /// What the section says, unless a flag says something else.
    pub fn access(&self, section: &BackupSection) -> Access {
        let BucketArgs { endpoint, region, s3_ca } = self.clone();
        let kept = Access::of(section);
        Access { endpoint: endpoint.or(kept.endpoint), region: region.or(kept.region), ca: s3_ca.or(kept.ca), ..kept }
    }

    /// As keys of the section `backup`.
    pub fn vars(&self) -> Result<Value, CliError> {
        let mut vars = json!({});
        let ca = self.s3_ca.as_ref().map(std::path::absolute).transpose()?;
        let ca = ca.map(|path| path.display().to_string());
        for (name, value) in [("endpoint", &self.endpoint), ("region", &self.region), ("ca", &ca)] {
            if let Some(value) = value {
                vars[name] = Value::from(value.as_str());
            }
        }
        Ok(vars)
    }
}

/// A place, with a folder as a whole path.
pub fn absolute(place: &str) -> Result<String, CliError> {
    let place: Place = place.parse().map_err(wrong)?;
    Ok(match place {
        Place::Folder(path) => Place::Folder(std::path::absolute(path)?).to_string(),
        bucket => bucket.to_string(),
    })
}

pub fn wrong(error: BackupError) -> CliError {
    CliError::usage(error.to_string())
}

/// The store that is meant, and what belongs to it.
pub struct Shelf {
    pub site: Site,
    pub section: BackupSection,
    pub store: Store,
    pub place: Place,
}

impl Shelf {
    pub fn open(
        site: Site,
        name: &str,
        from: Option<&str>,
        bucket: &BucketArgs,
        invocation: &Invocation,
    ) -> Result<Self, CliError> {
        find_cluster(&site.inventory, name)?;
        let section = backup_section(&site, name)?;
        let from = from.or(section.to.as_deref()).ok_or_else(|| {
            let help = "pass --from, or set `backup: {to: ...}` in the cluster";
            CliError::usage_with_help(format!("no backup location for `{name}`"), Some(help.into()))
        })?;
        let place: Place = from.parse().map_err(wrong)?;
        let access = bucket.access(&section);
        if let (Place::Bucket { .. }, Some(exposed)) = (&place, access.exposed()) {
            invocation.warn(&exposed);
        }
        let store = Store::open(&place, &access).map_err(wrong)?;
        Ok(Self { site, section, store, place })
    }

    pub fn keys(&self, cluster: &str) -> Result<Keys, CliError> {
        Keys::load(self.site.state.path(), cluster).map_err(unexpected)
    }

    /// What is asked of backups of a cluster.
    pub fn trust(&self, cluster: &str, unauthenticated: bool) -> Result<Trust, CliError> {
        let encrypted = !self.section.recipients.is_empty();
        Ok(Trust { keys: self.keys(cluster)?, encrypted, anyway: unauthenticated })
    }

    pub fn opener(&self) -> Option<Arc<dyn Opener>> {
        self.site.sources.opener().cloned()
    }

    /// The backups of a cluster; of a name, that one alone.
    pub async fn find(&self, cluster: &str, name: Option<&str>) -> Result<Kept, CliError> {
        let mut kept = backups(&self.store, cluster).await.map_err(unexpected)?;
        let Some(name) = name else {
            if kept.backups.is_empty() && kept.damaged.is_empty() {
                return Err(CliError::usage(format!("{} has no backup of `{cluster}`", self.place)));
            }
            return Ok(kept);
        };
        let short = name.strip_suffix(".json").unwrap_or(name);
        let is_it = |manifest: &Manifest| manifest.name().strip_suffix(".json") == Some(short) || manifest.file == name;
        if let Some(damaged) = kept.damaged.iter().find(|it| it.name.strip_suffix(".json") == Some(short)) {
            return Err(CliError::Unexpected(damaged.why.clone()));
        }
        match kept.backups.iter().position(is_it) {
            Some(at) => Ok(Kept { backups: vec![kept.backups.swap_remove(at)], ..Kept::default() }),
            None => {
                let names: Vec<String> = kept.backups.iter().map(Manifest::name).collect();
                let near = did_you_mean(name, names.iter().map(String::as_str));
                Err(CliError::usage_with_help(format!("{} has no backup `{name}` of `{cluster}`", self.place), near))
            }
        }
    }
}

pub fn unexpected(error: BackupError) -> CliError {
    CliError::Unexpected(error.to_string())
}
