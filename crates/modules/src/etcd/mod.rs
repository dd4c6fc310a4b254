//! Modules about clusters of etcd and their members.

pub(super) mod addresses;
pub(super) mod alarm;
mod apart;
pub(super) mod auth;
pub(super) mod backup;
pub(super) mod backup_key;
pub(super) mod bootstrap;
pub(super) mod canary;
mod catalogue;
pub(super) mod checkpoint;
pub(super) mod cluster;
pub(super) mod config;
pub(super) mod defrag;
pub(super) mod destroy;
pub(super) mod downgrade;
mod drill;
mod elsewhere;
pub(super) mod found;
pub(super) mod gate;
pub(super) mod hosts;
pub(super) mod keys;
pub(super) mod member;
pub(super) mod move_leader;
pub(super) mod order;
pub(super) mod path;
mod prove;
mod pulse;
pub(super) mod quorum;
pub(super) mod release;
pub(super) mod restore;
pub(super) mod retire;
pub(super) mod salvage;
mod salvage_look;
mod salvage_save;
pub(super) mod service;
pub(super) mod snapshot;
pub(super) mod unwritten;
pub(super) mod v2_content;

// For the files of this folder.
use crate::{
    pki,
    support::{cluster_args, local, place, scratch},
    task::{
        Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, ResultField, Running,
        Traits,
    },
};

// Defaults of arguments that several modules take.

fn data_dir() -> String {
    etcdrun_etcd::etcd::DATA_DIR.into()
}

fn peer_port() -> u16 {
    etcdrun_etcd::etcd::PEER_PORT
}
