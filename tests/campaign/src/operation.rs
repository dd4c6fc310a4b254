//! Operations: what people do with a cluster in its life.

use anyhow::{Context, Result};
use etcdrun_lab::ETCD_VERSIONS;
use serde::{Deserialize, Serialize};

use crate::{
    choice::Choice,
    fault::Fault,
    row::{Auth, Data},
    site::{CLUSTER, COPY, COPY_INVENTORY, Member, Site},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Site,
    Settings,
    Restart,
    Upgrade,
    Downgrade,
    /// A member has lost its data, and is built again.
    Rebuild,
    /// A healthy member gives way to one on another host.
    Move,
    Add,
    Remove,
    Backup,
    Restore,
    Recover,
    Renew,
    RotateCa,
    Defrag,
    /// Values are written, where there shall be some data.
    Fill,
    /// A backup becomes another cluster, which is destroyed then.
    Elsewhere,
    Passwords,
    /// The cluster is destroyed, and comes back by its last backup.
    Destroy,
}

impl Kind {
    /// Whether members have their turns, one after the other.
    pub fn is_rollout(self) -> bool {
        use Kind::{Defrag, Downgrade, Restart, RotateCa, Settings, Upgrade};
        matches!(self, Settings | Restart | Upgrade | Downgrade | RotateCa | Defrag)
    }

    /// For a random choice: what takes long, or changes the data, comes less often.
    pub const OFTEN: [Self; 35] = [
        Self::Site,
        Self::Settings,
        Self::Settings,
        Self::Settings,
        Self::Settings,
        Self::Restart,
        Self::Restart,
        Self::Restart,
        Self::Restart,
        Self::Upgrade,
        Self::Upgrade,
        Self::Upgrade,
        Self::Upgrade,
        Self::Downgrade,
        Self::Downgrade,
        Self::RotateCa,
        Self::Defrag,
        Self::Defrag,
        Self::Defrag,
        Self::Rebuild,
        Self::Rebuild,
        Self::Rebuild,
        Self::Move,
        Self::Move,
        Self::Add,
        Self::Add,
        Self::Remove,
        Self::Remove,
        Self::Backup,
        Self::Restore,
        Self::Recover,
        Self::Renew,
        Self::Elsewhere,
        Self::Passwords,
        Self::Destroy,
    ];

    /// All that can happen to a cluster, in an order in which it may.
    pub const WHOLE_LIFE: [Self; 20] = [
        Self::Site,
        Self::Fill,
        Self::Settings,
        Self::Restart,
        Self::Backup,
        Self::Elsewhere,
        Self::Upgrade,
        Self::Rebuild,
        Self::Move,
        Self::Add,
        Self::Remove,
        Self::Passwords,
        Self::Renew,
        Self::RotateCa,
        Self::Defrag,
        Self::Restore,
        Self::Recover,
        Self::Downgrade,
        Self::Destroy,
        Self::Site,
    ];
}

/// An operation that is about to be run: commands, one after the other, all of which are needed.
pub struct Operation {
    pub kind: Kind,
    pub commands: Vec<Vec<String>>,
    /// The data may be older afterwards, and the cluster another one.
    pub replaces_data: bool,
    /// What it is for: a fault that was there before it began.
    pub cause: Option<(Fault, Vec<Member>)>,
}

impl Operation {
    /// Gets the site ready for it: edits the inventory, loses a member. Nothing if the cluster is not one that it can be done to.
    pub fn prepare(kind: Kind, site: &mut Site, choice: &mut Choice) -> Result<Option<Self>> {
        if matches!(kind, Kind::Elsewhere | Kind::Move | Kind::Add | Kind::Restore | Kind::Recover | Kind::Destroy) {
            site.tidy();
        }
        let members = site.members()?;
        let small = members.len() < 3;
        let mut cause = None;
        let allow: &[&str] = if small { &["--allow-outage"] } else { &[] };
        // The rule `patch-before-replace`.
        let grows = matches!(kind, Kind::Move | Kind::Add);
        if grows && site.version == "3.5.16" {
            return Ok(None);
        }
        let outage: &[&str] = if small { &["-e", "rollout_allow_outage=true"] } else { &[] };
        let play = |name: &str| words(&[&["playbook", name], outage].concat());
        let mut commands = match kind {
            Kind::Site => vec![words(&["playbook", "site.yaml"])],
            Kind::Settings => {
                let (old, new) = other_quota(&site.operator.read("inventory.yaml")?)?;
                site.edit(&old, &new)?;
                vec![play("settings.yaml")]
            }
            Kind::Restart => {
                let member = choice.one_of(&members);
                vec![words(&[&["member", "restart", &member.name, "--yes"], allow].concat())]
            }
            Kind::Upgrade | Kind::Downgrade => {
                let Some(version) = other_version(site, kind == Kind::Upgrade) else { return Ok(None) };
                site.wants(version)?;
                vec![play(if kind == Kind::Upgrade { "upgrade.yaml" } else { "downgrade.yaml" })]
            }
            Kind::Rebuild => {
                if small {
                    return Ok(None);
                }
                let member = choice.one_of(&members).clone();
                Fault::DiskLost.inject(&site.lab, &member, &[])?;
                let command = words(&["member", "replace", &member.name, "--yes"]);
                cause = Some((Fault::DiskLost, vec![member]));
                vec![command]
            }
            Kind::Move => {
                let spare = site.spare()?;
                let Some(host) = spare.first() else { return Ok(None) };
                let member = choice.one_of(&members);
                let (name, ip) = (new_name(&members), site.address(host).to_string());
                let place = if site.row.machines.are_guests() { ["--to", host.name()] } else { ["--ip", &ip] };
                let replace = ["member", "replace", &member.name, "--new-name", &name, "--yes"];
                vec![words(&[&replace, &place[..], allow].concat())]
            }
            Kind::Add => {
                let spare = site.spare()?;
                let Some(host) = spare.first().filter(|_| members.len() <= site.row.members) else { return Ok(None) };
                let (name, ip) = (new_name(&members), site.address(host).to_string());
                let place = if site.row.machines.are_guests() { ["--to", host.name()] } else { ["--ip", &ip] };
                vec![words(&[&["member", "add", &name, "--yes"], &place[..], allow].concat())]
            }
            Kind::Remove => {
                if members.len() <= site.row.members.min(3) {
                    return Ok(None);
                }
                let member = choice.one_of(&members);
                vec![words(&[&["member", "remove", &member.name, "--yes"], allow].concat())]
            }
            Kind::Backup => vec![words(&["backup", CLUSTER, "--to", "file:backups"])],
            Kind::Restore => {
                vec![
                    words(&["backup", CLUSTER, "--to", "file:backups"]),
                    words(&["restore", CLUSTER, "--from", "file:backups", "--force", "--yes"]),
                ]
            }
            Kind::Recover => {
                if members.len() < 2 {
                    return Ok(None);
                }
                // All but one of a minority lose their disks, which is a majority.
                let lost: Vec<Member> = members[members.len() / 2..].to_vec();
                for member in &lost {
                    Fault::DiskLost.inject(&site.lab, member, &[])?;
                }
                cause = Some((Fault::DiskLost, lost));
                vec![words(&["recover", CLUSTER, "--yes"])]
            }
            Kind::Renew => vec![words(&["certs", "renew", "--all"])],
            Kind::RotateCa => {
                site.wants_new_ca()?;
                [&[][..], &["--issue"], &["--finish"]]
                    .map(|phase| words(&[&["certs", "rotate-ca", CLUSTER, "--yes"], allow, phase].concat()))
                    .to_vec()
            }
            Kind::Defrag => vec![play("defrag.yaml")],
            Kind::Fill => {
                if site.row.data == Data::Small {
                    return Ok(None);
                }
                site.fill()?;
                vec![words(&["status", CLUSTER])]
            }
            Kind::Elsewhere => {
                if !site.describe_copy()? {
                    return Ok(None);
                }
                let copy = |command: &[&str]| words(&[command, &["-i", COPY_INVENTORY]].concat());
                vec![
                    words(&["backup", CLUSTER, "--to", "file:backups"]),
                    copy(&["restore", COPY, "--from", "file:backups", "--backup-of", CLUSTER, "--yes"]),
                    copy(&["status", COPY]),
                    copy(&["plan", "site.yaml", "--detailed-exitcode"]),
                    copy(&["destroy", COPY, "--no-backup", "--yes"]),
                ]
            }
            Kind::Passwords => {
                if site.row.auth != Auth::Password {
                    return Ok(None);
                }
                site.wants_new_passwords()?;
                vec![words(&["playbook", "site.yaml"])]
            }
            Kind::Destroy => vec![
                words(&["destroy", CLUSTER, "--backup-to", "file:last", "--yes"]),
                words(&["restore", CLUSTER, "--from", "file:last", "--yes"]),
            ],
        };
        // A gate that waits for a member that was lost waits for long enough to see it come back. Emulated guests answer late.
        for command in commands.iter_mut().filter(|command| has_turns(command)) {
            let slowness = site.row.machines.slowness();
            for (name, seconds) in [("rollout_timeout", 45), ("member_timeout", 45), ("rollout_max_stall", 5)] {
                command.extend(["-e".into(), format!("{name}={}s", seconds * slowness)]);
            }
        }
        let replaces_data = matches!(kind, Kind::Restore | Kind::Recover | Kind::Destroy);
        Ok(Some(Self { kind, commands, replaces_data, cause }))
    }
}

/// Whether members have turns in it.
fn has_turns(command: &[String]) -> bool {
    matches!(command[0].as_str(), "playbook" | "member") || command.get(1).is_some_and(|verb| verb == "rotate-ca")
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// A line of the inventory, and what it becomes.
fn other_quota(inventory: &str) -> Result<(String, String)> {
    let line = inventory.lines().find(|line| line.trim_start().starts_with("quota: ")).context("there is no quota")?;
    let other = if line.contains("2GiB") { "3GiB" } else { "2GiB" };
    Ok((format!("{line}\n"), format!("      quota: {other}\n")))
}

/// The next minor version, up or down, or the newest release of the same one if the next cannot be had. Down goes from 3.6 on, since etcd
/// can, and from a new release, since old ones have faults there.
fn other_version(site: &Site, up: bool) -> Option<&'static str> {
    let at = ETCD_VERSIONS.iter().position(|minor| minor_of(&site.version) == *minor)?;
    let is_old = site.version != ETCD_VERSIONS[at];
    if !up {
        return ETCD_VERSIONS.get(at.checked_sub(1).filter(|_| at >= 2 && !is_old)?).copied();
    }
    // With authentication, etcd cannot go from 3.4 to 3.5 by a rollout (the rule `auth-3.4`).
    let next = ETCD_VERSIONS.get(at + 1).filter(|_| at > 0 || site.row.auth == Auth::Off);
    next.or_else(|| ETCD_VERSIONS.get(at).filter(|_| is_old)).copied()
}

/// The minor version of a release.
fn minor_of(release: &str) -> &str {
    release.match_indices('.').nth(1).map_or(release, |(at, _)| &release[..at])
}

/// A name that no member has.
fn new_name(members: &[Member]) -> String {
    let taken = |name: &String| members.iter().any(|member| &member.name == name);
    (1..).map(|number| format!("etcd-{number}")).find(|name| !taken(name)).unwrap_or_default()
}
