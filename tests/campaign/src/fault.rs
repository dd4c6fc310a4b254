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
    /// The operator's machine sleeps for a while, and wakes up.
    OperatorSleeps,
    /// The operator reaches no host.
    OperatorCut,
    /// Another operator, on another machine, begins something at the same time.
    SecondOperator,
    /// The same, and each of them reaches some of the hosts, and none reaches all.
    SplitOperators,
    /// The clock of the operator's machine is an hour behind for the whole command.
    ClockBack,
    /// The clock of the operator's machine is two hours ahead during a command.
    ClockAhead,
    /// The disk with the operator's state takes no byte more.
    OperatorDiskFull,
    /// A server is killed; systemd starts it again.
    ServerKilled,
    /// A server is stopped, as by a person.
    ServerStopped,
    PowerLost,
    /// What was written to the data disk and not synced is gone with it.
    PowerLostUnsynced,
    /// Off and on again.
    Reboot,
    Frozen,
    LinkCut,
    LinkSlow,
    LinkLossy,
    /// Cut off from the other members, and not from the operator.
    Partitioned,
    /// The other members hear nothing from it, and it hears them.
    Mute,
    /// SSH does not get there, and everything else does.
    NoSsh,
    /// The server hangs, and its host does not.
    ServerHangs,
    /// What is written to its disk takes as long as the fault.
    DiskHangs,
    /// What is written to its disk takes seconds, again and again.
    DiskSlow,
    DiskLost,
    DiskFull,
    /// Bits of its database are turned over while its server is away for a moment.
    BitsFlipped,
    /// Its certificate ended yesterday, and its server starts with that.
    CertificateExpired,
}

impl Fault {
    pub const ALL: [Self; 31] = [
        Self::OperatorDiesBefore,
        Self::OperatorDiesIn,
        Self::OperatorDiesUnsynced,
        Self::OperatorDiesAfter,
        Self::OperatorKilled,
        Self::OperatorSleeps,
        Self::OperatorCut,
        Self::SecondOperator,
        Self::SplitOperators,
        Self::ClockBack,
        Self::ClockAhead,
        Self::OperatorDiskFull,
        Self::ServerKilled,
        Self::ServerStopped,
        Self::PowerLost,
        Self::PowerLostUnsynced,
        Self::Reboot,
        Self::Frozen,
        Self::LinkCut,
        Self::LinkSlow,
        Self::LinkLossy,
        Self::Partitioned,
        Self::Mute,
        Self::NoSsh,
        Self::ServerHangs,
        Self::DiskHangs,
        Self::DiskSlow,
        Self::DiskLost,
        Self::DiskFull,
        Self::BitsFlipped,
        Self::CertificateExpired,
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

    /// Whether a command has it when it begins.
    pub fn is_there_from_the_start(self) -> bool {
        self.place_of_death().is_some() || matches!(self, Self::ClockBack | Self::ClockAhead)
    }

    /// Whether the operator does not live to see its end.
    pub fn kills_operator(self) -> bool {
        self == Self::OperatorKilled || self.place_of_death().is_some()
    }

    /// Whether it happens to the operator, and not to a member.
    pub fn is_operators(self) -> bool {
        let others = [
            Self::OperatorSleeps,
            Self::OperatorCut,
            Self::SecondOperator,
            Self::SplitOperators,
            Self::ClockBack,
            Self::ClockAhead,
            Self::OperatorDiskFull,
        ];
        self.kills_operator() || others.contains(&self)
    }

    /// Whether it needs a disk that has nothing but data on it: the root file system is this machine's.
    pub fn needs_own_disk(self) -> bool {
        matches!(self, Self::DiskHangs | Self::DiskFull)
    }

    /// Whether it passes by itself.
    pub fn passes(self) -> bool {
        matches!(self, Self::ServerKilled | Self::Reboot)
    }

    /// Whether it keeps a member from its others.
    pub fn needs_others(self) -> bool {
        matches!(self, Self::Partitioned | Self::Mute)
    }

    /// Whether a member that it happens to cannot serve.
    pub fn takes_down(self) -> bool {
        !self.is_operators()
            && !matches!(self, Self::LinkSlow | Self::LinkLossy | Self::NoSsh | Self::DiskSlow | Self::DiskFull)
    }

    /// Whether a member that it happens to may serve for a while or now and then, so that a gate may find it well and clients may not. etcd
    /// has room in its files for some time.
    pub fn slows(self) -> bool {
        matches!(self, Self::DiskSlow | Self::DiskFull)
    }

    /// Whether a member that it happens to stays down until something is done about it.
    pub fn lasts(self) -> bool {
        self.loses_data() || self == Self::CertificateExpired
    }

    /// Whether a member is lost for good by it, so that it has to be replaced.
    pub fn loses_data(self) -> bool {
        matches!(self, Self::DiskLost | Self::BitsFlipped)
    }

    /// Whether it can happen to a guest. The others change files of a host where this machine sees them.
    pub fn is_for_guests(self) -> bool {
        !matches!(
            self,
            Self::DiskHangs
                | Self::DiskSlow
                | Self::DiskFull
                | Self::BitsFlipped
                | Self::CertificateExpired
                | Self::NoSsh
        )
    }

    /// Lets it happen to a member; `others` are the other members.
    pub fn inject(self, lab: &Lab, member: &Member, others: &[&Host]) -> Result<()> {
        let host = &member.host;
        match (self, &member.guest) {
            // What is lost with the hypervisor was synced; what is lost with the guest was not.
            (Self::PowerLostUnsynced, Some(guest)) => {
                guest.lose_power(host);
                return Ok(());
            }
            (Self::Reboot, Some(guest)) => {
                guest.lose_power(host);
                guest.start(host);
                return Ok(());
            }
            (Self::Frozen, Some(guest)) => {
                guest.freeze(host);
                return Ok(());
            }
            _ => {}
        }
        match self {
            Self::ServerKilled => drop(member.run(&["systemctl", "kill", "-s", "KILL", "etcd"])),
            Self::ServerStopped => drop(member.run(&["systemctl", "stop", "etcd"])),
            Self::PowerLost => host.kill()?,
            Self::PowerLostUnsynced => host.lose_power()?,
            Self::Reboot => {
                host.kill()?;
                host.start()?;
            }
            Self::Frozen => host.freeze()?,
            Self::LinkCut => host.cut()?,
            Self::LinkSlow => host.delay(Duration::from_millis(150))?,
            Self::LinkLossy => host.drop_frames(15)?,
            Self::Partitioned => lab.partition(&[host], others)?,
            Self::Mute => lab.mute(&[host], others)?,
            Self::NoSsh => {
                drop(host.run(&["systemctl", "stop", "ssh.socket", "ssh.service"]));
                for session in host.sessions()? {
                    // It may have ended meanwhile.
                    let _ = session.kill();
                }
            }
            Self::ServerHangs => drop(member.run(&["systemctl", "kill", "-s", "STOP", "etcd"])),
            Self::DiskHangs => {
                // Processes that wait for it cannot be killed: it ends by itself, also if the campaign does not live to end it.
                let hang = format!(
                    "mountpoint -q {DISK} && systemd-run --on-active=20s fsfreeze --unfreeze {DISK} && fsfreeze --freeze {DISK}"
                );
                drop(host.run(&["sh", "-c", &hang]));
            }
            Self::DiskSlow => {
                // It ends by itself, as above. Without a hurry: what waits for the disk must be able to go on in between.
                let turns = "for turn in 1 2 3 4 5 6 7 8 9 10 11";
                let slow = format!("fsfreeze --freeze {DISK}; sleep 1.5; fsfreeze --unfreeze {DISK}; sleep 0.3");
                let script = format!("mountpoint -q {DISK} || exit 0; {turns}; do {slow}; done");
                drop(host.run(&["systemd-run", "--collect", SLOW, "sh", "-c", &script]));
            }
            Self::BitsFlipped => {
                drop(host.run(&["sh", "-c", "systemctl kill -s KILL etcd; systemctl stop etcd"]));
                // One that is being replaced has none.
                let _ = host.corrupt_pages(DATABASE, FLIPPED_PAGES);
                drop(host.run(&["systemctl", "start", "--no-block", "etcd"]));
            }
            Self::DiskLost => {
                let data = member.data_dir;
                let lose = format!("systemctl kill -s KILL etcd; systemctl stop etcd; rm -rf {data}/*");
                drop(member.run(&["sh", "-c", &lose]));
            }
            // A disk that etcdrun mounts is not there before that, and without it this machine's would be filled.
            Self::DiskFull if host.has_own_disk(DISK)? => host.fill(DISK)?,
            Self::DiskFull
            | Self::OperatorDiesBefore
            | Self::OperatorDiesIn
            | Self::OperatorDiesUnsynced
            | Self::OperatorDiesAfter
            | Self::OperatorKilled
            | Self::OperatorSleeps
            | Self::OperatorCut
            | Self::SecondOperator
            | Self::SplitOperators
            | Self::ClockBack
            | Self::ClockAhead
            | Self::OperatorDiskFull
            // It needs the key of the CA, which the operator has.
            | Self::CertificateExpired => {}
        }
        Ok(())
    }

    /// Takes it back, as far as that can be done.
    pub fn heal(self, lab: &Lab, member: &Member, others: &[&Host]) -> Result<()> {
        let host = &member.host;
        match (self, &member.guest) {
            (Self::PowerLost | Self::PowerLostUnsynced, Some(guest)) => {
                host.start()?;
                guest.start(host);
            }
            (Self::PowerLost | Self::PowerLostUnsynced, None) => host.start()?,
            (Self::Frozen, Some(guest)) => guest.thaw(host),
            (Self::Frozen, None) => host.thaw()?,
            _ => {}
        }
        match self {
            Self::LinkCut | Self::LinkSlow | Self::LinkLossy => host.set_link_fault(&LinkFault::default())?,
            Self::Partitioned | Self::Mute => lab.unpartition(&[host], others)?,
            Self::NoSsh => drop(host.run(&["systemctl", "start", "ssh.service"])),
            Self::ServerHangs => drop(member.run(&["systemctl", "kill", "-s", "CONT", "etcd"])),
            Self::DiskHangs => drop(host.run(&["fsfreeze", "--unfreeze", DISK])),
            Self::DiskSlow => {
                let end = format!("systemctl stop slow-disk; fsfreeze --unfreeze {DISK}");
                drop(host.run(&["sh", "-c", &end]));
            }
            Self::DiskFull => {
                if host.has_own_disk(DISK)? {
                    host.empty(DISK)?;
                }
                // It has ended for want of room, more often than systemd puts up with.
                drop(host.run(&["sh", "-c", "systemctl reset-failed etcd; systemctl start --no-block etcd"]));
            }
            Self::ServerStopped => {
                // A person who stopped it starts it again; one that is being replaced has nothing to start.
                let start = format!("[ ! -d {}/member ] || systemctl start --no-block etcd", member.data_dir);
                drop(member.run(&["sh", "-c", &start]));
            }
            _ => {}
        }
        // What was cut off is found with the next attempt to connect.
        sleep(Duration::from_millis(200));
        Ok(())
    }
}

/// Where the disk is mounted that the data is on, if it has one of its own.
const DISK: &str = "/var/lib/etcd";
const DATABASE: &str = "/var/lib/etcd/data/member/snap/db";
/// In so many pages of it bits are flipped. Many are free, and what is in them does not matter.
const FLIPPED_PAGES: u64 = 64;
/// What makes a disk slow.
const SLOW: &str = "--unit=slow-disk";
