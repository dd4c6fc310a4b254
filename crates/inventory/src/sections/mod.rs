//! The sections of a cluster, typed: checked when the inventory is loaded, and what modules work on.
//!
//! A value may be a template or an encrypted value, so each section is checked twice: its shape when a file is
//! read (`check`), and its values by the module that gets it rendered. What several sections must agree on is
//! checked by `etcd`, once everything has merged.

mod allot;
mod auth;
mod backup;
mod balancer;
mod chrony;
mod clients;
mod etcd;
mod fluentbit;
mod guest;
mod hypervisor;
mod keys;
mod placement;
mod tls;

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};

pub(super) use allot::{AddressPool, Placement, allot};
pub use auth::{Access, AuthMethod, AuthRole, AuthSection, AuthUser, Permission};
pub use backup::BackupSection;
pub use balancer::BalancerSection;
pub use chrony::{ChronySection, Makestep, TimeSource};
pub use clients::{ClientName, EtcdClient};
pub use etcd::{Compaction, CompactionMode, Discovery, EtcdSection, LogLevel, Metrics, MetricsLevel, Release};
pub use fluentbit::{
    FileInput, FluentbitSection, Forward, JournalInput, LogBuffer, LogMetrics, LogSettings, LogSettingsClient, Program,
    is_tag,
};
pub(super) use guest::GuestSection;
pub(super) use hypervisor::{Image, Network, NetworkMode, Pool};
pub use keys::{
    DeclaredKey, KeyEntry, KeyProblem, KeysSection, MAX_OPERATIONS, MAX_REQUEST, key_problems, request_size,
};
pub(super) use placement::check as check_placement;
pub use tls::{CaSection, KeyAlgorithm, MemberTls, NextCa, TlsSection};

use crate::source::{self, Diagnostics, Node};

/// Checks the shape of a section of a member.
pub(super) fn check_member(name: &str, node: &Node, diagnostics: &mut Diagnostics) {
    match name {
        "tls" => drop(source::check::<MemberTls>(node, diagnostics)),
        _ => check(name, node, diagnostics),
    }
}

/// Checks the shape of a section of a cluster. Sections without a type of their own are anything.
pub(super) fn check(name: &str, node: &Node, diagnostics: &mut Diagnostics) {
    match name {
        "placement" => drop(source::check::<Placement>(node, diagnostics)),
        "address_pool" => drop(source::check::<AddressPool>(node, diagnostics)),
        "guest" => drop(source::check::<GuestSection>(node, diagnostics)),
        "etcd" => drop(source::check::<EtcdSection>(node, diagnostics)),
        "tls" => drop(source::check::<TlsSection>(node, diagnostics)),
        "auth" => drop(source::check::<AuthSection>(node, diagnostics)),
        "backup" => drop(source::check::<BackupSection>(node, diagnostics)),
        "balancer" => drop(source::check::<BalancerSection>(node, diagnostics)),
        "chrony" => drop(source::check::<ChronySection>(node, diagnostics)),
        "fluentbit" => drop(source::check::<FluentbitSection>(node, diagnostics)),
        "keys" => drop(source::check::<Option<KeysSection>>(node, diagnostics)),
        "clients" => drop(source::check::<Vec<EtcdClient>>(node, diagnostics)),
        _ => {}
    }
}

/// Whether something is to be there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Presence {
    #[default]
    Present,
    Absent,
}

/// A single value as it was written: a text, a number, true or false.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text(pub String);

struct TextVisitor;

impl de::Visitor<'_> for TextVisitor {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a single value")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Text, E> {
        Ok(Text(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor)
    }
}

impl JsonSchema for Text {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Text".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": ["string", "number", "boolean"]})
    }
}
