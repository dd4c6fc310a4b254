//! What is written, and what is told.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use serde_json::json;

use super::{
    AdoptArgs, Adopting, Visited,
    enter::{Entry, Looked, NOBODY, SERVER},
    way::{Stop, find},
    wrong,
};
use crate::{
    cli::support::{
        CliError,
        args::KnownArgs,
        input::{Input, Opening},
    },
    etcd::{ClusterRecord, Phase},
    inventory::sections::CaSection,
    membership::{Adoption, Url},
    model::{Value, Version, one_line},
    modules::FoundEtcd,
    pki::{Certificate, Keeping, Store},
    report::sanitize,
    source::disk::{self, sum as sha256},
};

/// What came of it.
pub(super) struct Adopted {
    pub(super) cluster: String,
    pub(super) cluster_id: String,
    pub(super) version: Version,
    pub(super) members: Vec<Visited>,
    pub(super) remarks: Vec<String>,
    pub(super) unreachable: Vec<String>,
    pub(super) files: Vec<PathBuf>,
}

impl Adopted {
    pub(super) fn json(&self) -> Value {
        let member = |visited: &Visited| {
            let Visited { newcomer, version, .. } = visited;
            json!({
                "name": newcomer.name,
                "address": newcomer.address,
                "ip": newcomer.ip,
                "version": version.map(|version| version.to_string()),
                "unit": newcomer.server.as_ref().ok().and_then(|server| server.unit.clone()),
            })
        };
        json!({
            "cluster": self.cluster,
            "cluster_id": self.cluster_id,
            "version": self.version.to_string(),
            "members": self.members.iter().map(member).collect::<Vec<_>>(),
            "remarks": self.remarks,
            "files": self.files,
        })
    }

    pub(super) fn text(&self, args: &AdoptArgs) -> String {
        let Self { cluster, cluster_id, version, members, .. } = self;
        let mut text = format!("{cluster}: etcd {version}, {} members, id {cluster_id}\n", members.len());
        let width = members.iter().map(|visited| visited.newcomer.name.len()).max().unwrap_or_default();
        // Writing to a string cannot fail.
        for Visited { newcomer, .. } in members {
            let what = match &newcomer.server {
                Ok(server) => {
                    let unit = server.unit.as_deref().unwrap_or("no unit");
                    one_line(&format!("{}, {unit} as {}", server.program, server.user))
                }
                Err(_) => "unreachable".to_owned(),
            };
            let _ = writeln!(text, "  {:width$}  {}  {what}", newcomer.name, newcomer.ip);
        }
        self.remarks.iter().for_each(|remark| text += &format!("  ! {remark}\n"));
        let files: Vec<String> = self.files.iter().map(|file| file.display().to_string()).collect();
        let out = args.out.display();
        let _ = writeln!(
            text,
            "written: {}\nnext: `etcdrun status -i {out}`, then `etcdrun plan site.yaml -i {out}`",
            files.join(", ")
        );
        text
    }
}

impl Adopting<'_> {
    /// The inventory comes last: whoever finds it finds all that it names.
    pub(super) fn write(
        &self,
        first: &Stop,
        looked: Looked,
        entry: Entry,
        members: Vec<Visited>,
    ) -> Result<Adopted, CliError> {
        let version = entry.view.version;
        let cluster = &self.args.cluster;
        let folder = self.args.out.parent().unwrap_or(Path::new("")).to_owned();
        let (authority_file, release_file) = (format!("{cluster}-ca.crt"), format!("etcd-{version}"));
        let own = Certificate::parse(&looked.certificate).map_err(|error| wrong(&error))?;
        let peer_urls = entry.view.list.iter().flatten().flat_map(|member| &member.peer_urls);
        let peer_port = peer_urls.filter_map(|url| Url::parse(url)).map(|url| url.port).next().unwrap_or_default();
        let (server, sum) = self.bring(first, &looked.found)?;
        let adoption = Adoption {
            cluster: cluster.clone(),
            version,
            peer_port,
            members: members.iter().map(|visited| visited.newcomer.clone()).collect(),
            organization: own.organization,
            auth: entry.auth,
            with_certificates: looked.told.wants_certificates(),
            authority: authority_file.clone(),
            authority_key: self.args.ca_key.as_ref().map(|key| absolute(key)),
            release: release_file.clone(),
            sha256: sum,
            remarks: self.remarks(&entry, &members),
        };
        let composed = adoption.compose()?;
        self.put(&folder.join(&authority_file), entry.authority.as_bytes())?;
        self.put(&folder.join(&release_file), &server)?;
        fs::set_permissions(folder.join(&release_file), fs::Permissions::from_mode(0o755))?;
        self.check(&composed.text)?;
        let cluster_id = format!("{:x}", entry.view.cluster_id);
        self.keep(&looked, &entry, &members, &cluster_id)?;
        fs::write(&self.args.out, &composed.text)?;
        let unreachable = members.iter().filter(|visited| visited.newcomer.server.is_err());
        let unreachable = unreachable.map(|visited| visited.newcomer.name.clone()).collect();
        let files = vec![
            self.args.out.clone(),
            folder.join(authority_file),
            folder.join(release_file),
            self.here.state.path().to_owned(),
        ];
        Ok(Adopted {
            cluster: cluster.clone(),
            cluster_id,
            version,
            members,
            remarks: composed.remarks,
            unreachable,
            files,
        })
    }

    fn remarks(&self, entry: &Entry, members: &[Visited]) -> Vec<String> {
        let mut remarks = Vec::new();
        for Visited { newcomer, trouble, .. } in members {
            match (&newcomer.server, trouble) {
                (Err(why), _) => {
                    remarks.push(format!("cannot reach {}, so its settings are unknown: {why}", newcomer.name))
                }
                (Ok(_), Some(trouble)) => remarks.push(format!("{}: {}", newcomer.name, sanitize(trouble))),
                _ => {}
            }
        }
        if entry.whose == SERVER {
            let kept = Store::new(self.here.state.path(), &self.args.cluster).client_paths("root").0;
            remarks.push(format!("the credential in {} is the member's own certificate and key; to use root's, pass --cert and --key, or --ca-key", kept.display()));
        }
        if self.args.ca_key.is_none() {
            remarks.push(
                "etcdrun cannot sign certificates yet: `tls.ca` needs the CA's `key`, or a `sign_command`".to_owned(),
            );
        }
        if entry.auth == Some(true) && entry.whose == SERVER {
            remarks
                .push("authentication is enabled, and the member's certificate is not a user there: root's certificate is needed".to_owned());
        }
        if entry.auth == Some(true) && entry.whose == NOBODY {
            remarks.push("authentication is enabled, by passwords: `auth` needs root's `root_password`".to_owned());
        }
        remarks
    }

    /// A file beside the inventory; one that is there already has to be the same.
    fn put(&self, path: &Path, bytes: &[u8]) -> Result<(), CliError> {
        match fs::read(path) {
            Ok(there) if there == bytes => return Ok(()),
            Ok(_) if !self.args.force => {
                let help = "move it away, or overwrite it with --force".to_owned();
                return Err(CliError::usage_with_help(
                    format!("{} already exists, and differs", path.display()),
                    Some(help),
                ));
            }
            _ => {}
        }
        Ok(fs::write(path, bytes)?)
    }

    /// The server that runs, for the members that are still to come, and the sum of what came, which has to be the one that the host
    /// says.
    fn bring(&self, first: &Stop, found: &FoundEtcd) -> Result<(Vec<u8>, String), CliError> {
        let way = self.way(&[first])?;
        let id = find(&way, first)?;
        let program = format!("/proc/{}/exe", found.pid);
        let bytes = way.hosts.runtime.block_on(async {
            let session = way.session(id);
            let mut bytes = Vec::new();
            let downloaded = session.download(&program, &mut bytes).await;
            match downloaded {
                Ok(outcome) if outcome.failed => Err(CliError::Unexpected(format!("{}: {}", first.host, outcome.msg))),
                Ok(_) => Ok(bytes),
                Err(error) => Err(CliError::Unreachable(format!("{}: {error}", first.host))),
            }
        });
        way.hosts.leave();
        let bytes = bytes?;
        let sum = brought_sum(&first.host, &bytes, &found.sha256)?;
        Ok((bytes, sum))
    }

    /// What is written must be what the other commands understand.
    fn check(&self, text: &str) -> Result<(), CliError> {
        let mut input = Input::new(&self.args.known.keys, Opening::All, self.invocation);
        let files = BTreeMap::from([(self.args.out.clone(), text.as_bytes().to_vec())]);
        let args = KnownArgs { inventory: vec![self.args.out.clone()], ..KnownArgs::default() };
        disk::pretend(files, || input.inventory(&args, self.invocation));
        input.check(self.invocation)
    }

    /// So that nobody forms it again, and others get in.
    fn keep(&self, looked: &Looked, entry: &Entry, members: &[Visited], cluster_id: &str) -> Result<(), CliError> {
        let store = Store::new(self.here.state.path(), &self.args.cluster);
        store.keep_certificate(&entry.authority).map_err(|error| wrong(&error))?;
        if let Some((certificate, key)) = &entry.credential.identity {
            let input = Input::new(&self.args.known.keys, Opening::All, self.invocation);
            let keeping = Keeping { store: &store, opener: input.sources.opener() };
            let kept = keeping.keep_client(&CaSection::default(), "root", certificate, key);
            kept.map_err(|error| wrong(&error))?;
        }
        let record = ClusterRecord {
            phase: Phase::Formed,
            token: looked.told.get("initial-cluster-token").unwrap_or("etcd-cluster").to_owned(),
            members: members.iter().map(|visited| visited.newcomer.name.clone()).collect(),
            cluster_id: Some(cluster_id.to_owned()),
        };
        Ok(record.keep(self.here.state.path(), &self.args.cluster)?)
    }
}

/// The sum of what was brought, if it is the one that the host has calculated itself.
fn brought_sum(host: &str, bytes: &[u8], told: &str) -> Result<String, CliError> {
    let sum = sha256(bytes);
    match sum == told {
        true => Ok(sum),
        false => Err(CliError::Refused {
            message: format!(
                "the etcd binary copied from {host} has the checksum {sum}, but the host reports {:?}",
                one_line(told)
            ),
            help: Some(
                "nothing was written; run the command again, and if it fails again, do not trust that host".to_owned(),
            ),
        }),
    }
}

fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_that_of_what_came_and_not_what_the_host_says() {
        let sum = sha256(b"etcd");
        assert_eq!(brought_sum("m1", b"etcd", &sum).unwrap(), sum);
        assert_eq!((sum.len(), sum.bytes().all(|byte| byte.is_ascii_hexdigit())), (64, true));
        for told in ["", "0", &format!("{sum} }}\ngroups: {{}} #"), &sha256(b"another")] {
            let refused = brought_sum("m1", b"etcd", told).unwrap_err().to_string();
            assert!(refused.contains("copied from m1") && !refused.contains('\n'), "{refused}");
        }
    }
}
