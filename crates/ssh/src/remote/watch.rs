//! What steps must leave as it was: the members of clusters that run on a target.

use std::sync::LazyLock;

use super::{Payload, script::compact};
use crate::shell::quote_onto;

pub(super) static WATCH: LazyLock<String> = LazyLock::new(|| compact(include_str!("watch.sh")));

/// What is looked at before and after a step, on its target and in the same script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberWatch {
    /// The unit of a member that lives there.
    pub unit: Option<&'static str>,
    /// The guests there that are members.
    pub guests: Vec<String>,
}

impl MemberWatch {
    /// The call that looks before the step.
    pub(super) fn add_call(&self, script: &mut Vec<u8>) {
        script.extend_from_slice(b"_watch ");
        quote_onto(script, self.unit.unwrap_or_default().as_bytes());
        for guest in &self.guests {
            script.push(b' ');
            quote_onto(script, guest.as_bytes());
        }
        script.push(b'\n');
    }

    /// What tells as the result `running` which of them run, a line each.
    pub fn look(&self) -> Payload {
        let body = concat!(include_str!("watch.sh"), "\n_watch \"$@\"\nresult running \"$_seen\"\n");
        let unit = self.unit.unwrap_or_default();
        self.guests.iter().fold(Payload::new(body).arg(unit), |payload, guest| payload.arg(guest))
    }

    pub(super) fn size(&self) -> usize {
        self.guests.iter().map(|guest| guest.len() + 4).sum::<usize>() + 64
    }
}
