//! `chrony`: the time of a cluster's members.

use schemars::JsonSchema;
use serde::Deserialize;

use super::Text;

/// Time on the members, for the role `chrony`. `site.yaml` uses it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ChronySection {
    /// Whether to install and configure chrony; default: false.
    pub enabled: bool,
    /// NTP servers.
    pub servers: Vec<TimeSource>,
    /// Names that resolve to several NTP servers.
    pub pools: Vec<TimeSource>,
    /// When chrony may set the clock in one step, instead of slewing it; default: above one second, in the first three updates.
    pub makestep: Option<Makestep>,
}

/// One NTP server, or a pool of them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TimeSource {
    /// A name or an address.
    pub url: Text,
    /// Options of chrony's directive `server` or `pool`, such as iburst.
    #[serde(default)]
    pub options: Vec<Text>,
}

/// When the clock is stepped.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Makestep {
    /// The offset, in seconds, above which it is.
    pub threshold: f64,
    /// In how many of the first updates; -1: always.
    pub limit: i32,
}

impl ChronySection {
    pub fn sources(&self) -> impl Iterator<Item = &TimeSource> {
        self.servers.iter().chain(&self.pools)
    }
}

impl TimeSource {
    /// Whether the name or address fits into a line of chrony's configuration.
    pub fn has_name(&self) -> bool {
        is_word_of(&self.url.0, "._:-")
    }

    /// An option that does not fit there.
    pub fn wrong_option(&self) -> Option<&Text> {
        self.options.iter().find(|option| !is_word_of(&option.0, " ._+-"))
    }
}

/// Letters, digits and these, with a letter or a digit first.
pub(super) fn is_word_of(text: &str, others: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.chars().all(|letter| letter.is_ascii_alphanumeric() || others.contains(letter))
}
