//! The list of modules. Adding a module adds a line here.

use super::spec::ModuleSpec;

static MODULES: &[ModuleSpec] = &[
    ModuleSpec::of::<super::assert::Assert>(),
    ModuleSpec::of::<super::cloud_init::CloudInit>(),
    ModuleSpec::of::<super::command::Command>(),
    ModuleSpec::of::<super::copy::Copy>(),
    ModuleSpec::of::<super::debug::Debug>(),
    ModuleSpec::of::<super::download::Download>(),
    ModuleSpec::of::<super::etcd_alarm::EtcdAlarm>(),
    ModuleSpec::of::<super::etcd_auth::EtcdAuth>(),
    ModuleSpec::of::<super::etcd_backup::EtcdBackup>(),
    ModuleSpec::of::<super::etcd_bootstrap::EtcdBootstrap>(),
    ModuleSpec::of::<super::etcd_canary::EtcdCanary>(),
    ModuleSpec::of::<super::etcd_checkpoint::EtcdCheckpoint>(),
    ModuleSpec::of::<super::etcd_cluster::EtcdCluster>(),
    ModuleSpec::of::<super::etcd_config::EtcdConfig>(),
    ModuleSpec::of::<super::etcd_defrag::EtcdDefrag>(),
    ModuleSpec::of::<super::etcd_destroy::EtcdDestroy>(),
    ModuleSpec::of::<super::etcd_downgrade::EtcdDowngrade>(),
    ModuleSpec::of::<super::etcd_gate::EtcdGate>(),
    ModuleSpec::of::<super::etcd_member::EtcdMember>(),
    ModuleSpec::of::<super::etcd_move_leader::EtcdMoveLeader>(),
    ModuleSpec::of::<super::etcd_order::EtcdOrder>(),
    ModuleSpec::of::<super::etcd_path::EtcdPath>(),
    ModuleSpec::of::<super::etcd_release::EtcdRelease>(),
    ModuleSpec::of::<super::etcd_restore::EtcdRestore>(),
    ModuleSpec::of::<super::etcd_retire::EtcdRetire>(),
    ModuleSpec::of::<super::etcd_salvage::EtcdSalvage>(),
    ModuleSpec::of::<super::etcd_service::EtcdService>(),
    ModuleSpec::of::<super::etcd_snapshot::EtcdSnapshot>(),
    ModuleSpec::of::<super::facts::GatherFacts>(),
    ModuleSpec::of::<super::fail::Fail>(),
    ModuleSpec::of::<super::fetch::Fetch>(),
    ModuleSpec::of::<super::file::File>(),
    ModuleSpec::of::<super::filesystem::Filesystem>(),
    ModuleSpec::of::<super::group::Group>(),
    ModuleSpec::of::<super::guest_preflight::GuestPreflight>(),
    ModuleSpec::of::<super::guest_retire::GuestRetire>(),
    ModuleSpec::of::<super::guest_trust::GuestTrust>(),
    ModuleSpec::of::<super::ignition::Ignition>(),
    ModuleSpec::of::<super::inventory_edit::InventoryEdit>(),
    ModuleSpec::of::<super::libvirt_domain::LibvirtDomain>(),
    ModuleSpec::of::<super::libvirt_network::LibvirtNetwork>(),
    ModuleSpec::of::<super::libvirt_pool::LibvirtPool>(),
    ModuleSpec::of::<super::libvirt_power::LibvirtPower>(),
    ModuleSpec::of::<super::libvirt_volume::LibvirtVolume>(),
    ModuleSpec::of::<super::line_in_file::LineInFile>(),
    ModuleSpec::of::<super::mount::Mount>(),
    ModuleSpec::of::<super::package::Package>(),
    ModuleSpec::of::<super::pause::Pause>(),
    ModuleSpec::of::<super::ping::Ping>(),
    ModuleSpec::of::<super::pki_ca::PkiCa>(),
    ModuleSpec::of::<super::pki_certificate::PkiCertificate>(),
    ModuleSpec::of::<super::pki_rotation::PkiRotation>(),
    ModuleSpec::of::<super::pki_users::PkiUsers>(),
    ModuleSpec::of::<super::reboot::Reboot>(),
    ModuleSpec::of::<super::script::Script>(),
    ModuleSpec::of::<super::service::Service>(),
    ModuleSpec::of::<super::set_fact::SetFact>(),
    ModuleSpec::of::<super::shell::Shell>(),
    ModuleSpec::of::<super::sysctl::Sysctl>(),
    ModuleSpec::of::<super::systemd_unit::SystemdUnit>(),
    ModuleSpec::of::<super::template::Template>(),
    ModuleSpec::of::<super::unarchive::Unarchive>(),
    ModuleSpec::of::<super::user::User>(),
    ModuleSpec::of::<super::wait_for::WaitFor>(),
];

/// Every module, by name.
pub fn all() -> &'static [ModuleSpec] {
    MODULES
}

pub fn find(name: &str) -> Option<&'static ModuleSpec> {
    MODULES.iter().find(|module| module.name == name)
}

pub fn names() -> impl Iterator<Item = &'static str> {
    MODULES.iter().map(|module| module.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{modules::testing::node, source::Diagnostics};

    #[test]
    fn modules_are_sorted_and_none_comes_twice() {
        assert!(MODULES.windows(2).all(|pair| pair[0].name < pair[1].name));
    }

    /// The arguments of each task in an example that calls this module.
    fn calls(module: &ModuleSpec) -> Vec<crate::source::Node> {
        let example = node(module.example);
        let tasks = example.as_seq().unwrap_or_default().iter();
        tasks.filter_map(|task| task.as_map()?.get(module.name).cloned()).collect()
    }

    #[test]
    fn every_example_calls_its_module_as_the_module_wants_it() {
        for module in MODULES {
            let calls = calls(module);
            assert!(!calls.is_empty(), "the example of {} does not call it", module.name);
            for args in calls {
                let mut found = Diagnostics::default();
                let args = module.with_own_cluster(module.normalize(args).unwrap(), &mut found);
                module.check(&args, &mut found);
                assert_eq!(found.iter().map(|d| &d.message).collect::<Vec<_>>(), [""; 0], "{}", module.name);
            }
        }
    }

    #[test]
    fn who_takes_a_cluster_says_what_of_it() {
        for module in MODULES {
            let argument = &module.schema().to_value()["properties"]["cluster"];
            let is_mapping = argument["$ref"] == "#/$defs/ClusterArgs";
            assert_eq!(module.cluster_in_words().is_some(), is_mapping, "{}: {argument}", module.name);
        }
    }

    #[test]
    fn every_argument_is_documented_or_speaks_for_itself() {
        const PLAIN: &[&str] = &["name", "state", "shell", "uid", "gid", "mode", "owner", "group", "path", "fstype"];
        for module in MODULES {
            let schema = module.schema().to_value();
            let Some(arguments) = schema["properties"].as_object() else { continue };
            for (name, argument) in arguments {
                let described = argument.get("description").is_some() || argument.get("$ref").is_some();
                assert!(described || PLAIN.contains(&name.as_str()), "{}: {name} has no description", module.name);
            }
        }
    }
}
