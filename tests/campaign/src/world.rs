//! What the world does between the death of an operator and what somebody does about it.

use std::{thread::sleep, time::Duration};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::{choice::Choice, fault::Fault, site::Site};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Meanwhile {
    Nothing,
    /// Clients go on for some seconds.
    TimePasses,
    /// A server dies, and systemd starts it again.
    ServerRestarts,
    /// A host is switched off and on.
    HostReboots,
    /// Somebody writes a comment into the inventory.
    InventoryEdited,
    /// Somebody starts the same members that an operation has stopped.
    ServersStarted,
    /// Another operator, with the same state folder, tries something.
    OtherOperator,
    /// Another member loses its disk, if that leaves enough of them.
    MemberLost,
    /// So many days that the certificates of all members are near their end.
    DaysPass,
}

impl Meanwhile {
    pub const ALL: [Self; 9] = [
        Self::Nothing,
        Self::TimePasses,
        Self::ServerRestarts,
        Self::HostReboots,
        Self::InventoryEdited,
        Self::ServersStarted,
        Self::OtherOperator,
        Self::MemberLost,
        Self::DaysPass,
    ];

    pub fn happen(self, site: &mut Site, choice: &mut Choice) -> Result<()> {
        let members = site.members()?;
        let member = choice.one_of(&members).clone();
        match self {
            // These are for those who know what is lost, and what is to be renewed.
            Self::Nothing | Self::MemberLost | Self::DaysPass => {}
            Self::TimePasses => sleep(Duration::from_secs(4)),
            Self::ServerRestarts => Fault::ServerKilled.inject(&site.lab, &member, &[])?,
            Self::HostReboots => Fault::Reboot.inject(&site.lab, &member, &[])?,
            Self::InventoryEdited => {
                let text = site.operator.read("inventory.yaml")?;
                site.operator.write("inventory.yaml", &format!("# Somebody was here.\n{text}"))?;
            }
            Self::ServersStarted => {
                for member in &members {
                    // One that has no data is not one that anybody would start.
                    let start = format!("[ ! -d {}/member ] || systemctl start --no-block etcd", member.data_dir);
                    drop(member.run(&["sh", "-c", &start]));
                }
                sleep(Duration::from_secs(3));
            }
            Self::OtherOperator => drop(site.operator.run(&["member", "restart", &member.name, "--yes"])?),
        }
        Ok(())
    }
}
