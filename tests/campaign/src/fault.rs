//! Faults: what happens to a cluster or to the operator while an operation is under way, and how it is taken back.

use std::{thread::sleep, time::Duration};

use anyhow::Result;
use etcdrun_lab::{Host, Lab, LinkFault};
use serde::{Deserialize, Serialize};

use crate::site::Member;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The operator is gone before, in, or behind the writing of a record.
    OperatorDiesBefore,
    OperatorDiesIn,
    OperatorDiesUnsynced,
    OperatorDiesAfter,
    /// The operator's process is killed wherever it is.
    OperatorKilled,
    /// A server is killed; systemd starts it again.
    ServerKilled,
    /// A server is stopped, as by a person.
    ServerStopped,
    PowerLost,
    /// Off and on again.
    Reboot,
    Frozen,
    LinkCut,
    LinkSlow,
    LinkLossy,
    /// Cut off from the other members, and not from the operator.
    Partitioned,
    DiskLost,
    DiskFull,
}

impl Fault {
    pub const ALL: [Self; 16] = [
        Self::OperatorDiesBefore,
        Self::OperatorDiesIn,
        Self::OperatorDiesUnsynced,
        Self::OperatorDiesAfter,
        Self::OperatorKilled,
        Self::ServerKilled,
        Self::ServerStopped,
        Self::PowerLost,
        Self::Reboot,
        Self::Frozen,
        Self::LinkCut,
        Self::LinkSlow,
        Self::LinkLossy,
        Self::Partitioned,
        Self::DiskLost,
        Self::DiskFull,
    ];

    /// Where in the writing of a record the operator dies.
    pub fn place_of_death(self) -> Option<&'static str> {
        match self {
            Self::OperatorDiesBefore => Some("before"),
            Self::OperatorDiesIn => Some("torn"),
            Self::OperatorDiesUnsynced => Some("written"),
            Self::OperatorDiesAfter => Some("after"),
            _ => None,
        }
    }

    /// Whether the operator is what it happens to.
    pub fn is_operators(self) -> bool {
        self == Self::OperatorKilled || self.place_of_death().is_some()
    }

    /// Whether a member that it happens to cannot serve.
    pub fn takes_down(self) -> bool {
        !self.is_operators() && !matches!(self, Self::LinkSlow | Self::LinkLossy)
    }

    /// Whether a member is lost for good by it, so that it has to be replaced.
    pub fn loses_data(self) -> bool {
        self == Self::DiskLost
    }

    /// Lets it happen to a member; `others` are the other members.
    pub fn inject(self, lab: &Lab, member: &Member, others: &[&Host]) -> Result<()> {
        let host = &member.host;
        match self {
            Self::ServerKilled => drop(host.run(&["systemctl", "kill", "-s", "KILL", "etcd"])),
            Self::ServerStopped => drop(host.run(&["systemctl", "stop", "etcd"])),
            Self::PowerLost => host.kill()?,
            Self::Reboot => {
                host.kill()?;
                host.start()?;
            }
            Self::Frozen => host.freeze()?,
            Self::LinkCut => host.cut()?,
            Self::LinkSlow => host.delay(Duration::from_millis(150))?,
            Self::LinkLossy => host.drop_frames(15)?,
            Self::Partitioned => lab.partition(&[host], others)?,
            Self::DiskLost => {
                let lose = "systemctl kill -s KILL etcd; systemctl stop etcd; rm -rf /var/lib/etcd/data/*";
                drop(host.run(&["sh", "-c", lose]));
            }
            Self::DiskFull => host.fill(DISK)?,
            Self::OperatorDiesBefore
            | Self::OperatorDiesIn
            | Self::OperatorDiesUnsynced
            | Self::OperatorDiesAfter
            | Self::OperatorKilled => {}
        }
        Ok(())
    }

    /// Takes it back, as far as that can be done.
    pub fn heal(self, lab: &Lab, member: &Member, others: &[&Host]) -> Result<()> {
        let host = &member.host;
        match self {
            Self::PowerLost => host.start()?,
            Self::Frozen => host.thaw()?,
            Self::LinkCut | Self::LinkSlow | Self::LinkLossy => host.set_link_fault(&LinkFault::default())?,
            Self::Partitioned => lab.unpartition(&[host], others)?,
            Self::DiskFull => {
                host.empty(DISK)?;
                // It has ended for want of room, more often than systemd puts up with.
                drop(host.run(&["sh", "-c", "systemctl reset-failed etcd; systemctl start --no-block etcd"]));
            }
            Self::ServerStopped => {
                // A person who stopped it starts it again; one that is being replaced has nothing to start.
                drop(host.run(&["sh", "-c", "[ ! -d /var/lib/etcd/data/member ] || systemctl start --no-block etcd"]));
            }
            _ => {}
        }
        // What was cut off is found with the next attempt to connect.
        sleep(Duration::from_millis(200));
        Ok(())
    }
}

/// The disk that the data is on.
const DISK: &str = "/var/lib/etcd";
