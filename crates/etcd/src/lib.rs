//! What etcdrun knows of etcd: `etcd` asks members and judges by rules, `pki` makes certificates, `backup` keeps snapshots, `membership`
//! decides who takes whose place, `releases` finds what can be installed, `http` is the client for plain HTTP. It knows no task and no
//! playbook, and prints nothing.

pub mod backup;
pub mod etcd;
pub mod http;
pub mod membership;
pub mod pki;
pub mod releases;

use etcdrun_base::{digest, model, secret, source, state_folder};
use etcdrun_inventory as inventory;
use etcdrun_ssh::ssh;
