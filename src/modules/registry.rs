//! The list of modules. Adding a module adds a line here.

use super::spec::ModuleSpec;

static MODULES: &[ModuleSpec] = &[
    ModuleSpec::of::<super::assert::Assert>(),
    ModuleSpec::of::<super::guests::cloud_init::CloudInit>(),
    ModuleSpec::of::<super::command::Command>(),
    ModuleSpec::of::<super::copy::Copy>(),
    ModuleSpec::of::<super::debug::Debug>(),
    ModuleSpec::of::<super::download::Download>(),
    ModuleSpec::of::<super::etcd::alarm::EtcdAlarm>(),
    ModuleSpec::of::<super::etcd::auth::EtcdAuth>(),
    ModuleSpec::of::<super::etcd::backup::EtcdBackup>(),
    ModuleSpec::of::<super::etcd::backup_key::EtcdBackupKey>(),
    ModuleSpec::of::<super::etcd::bootstrap::EtcdBootstrap>(),
    ModuleSpec::of::<super::etcd::canary::EtcdCanary>(),
    ModuleSpec::of::<super::etcd::checkpoint::EtcdCheckpoint>(),
    ModuleSpec::of::<super::etcd::wait::EtcdCluster>(),
    ModuleSpec::of::<super::etcd::config::EtcdConfig>(),
    ModuleSpec::of::<super::etcd::defrag::EtcdDefrag>(),
    ModuleSpec::of::<super::etcd::destroy::EtcdDestroy>(),
    ModuleSpec::of::<super::etcd::downgrade::EtcdDowngrade>(),
    ModuleSpec::of::<super::etcd::gate::EtcdGate>(),
    ModuleSpec::of::<super::etcd::member::EtcdMember>(),
    ModuleSpec::of::<super::etcd::move_leader::EtcdMoveLeader>(),
    ModuleSpec::of::<super::etcd::order::EtcdOrder>(),
    ModuleSpec::of::<super::etcd::path::EtcdPath>(),
    ModuleSpec::of::<super::etcd::release::EtcdRelease>(),
    ModuleSpec::of::<super::etcd::restore::EtcdRestore>(),
    ModuleSpec::of::<super::etcd::retire::EtcdRetire>(),
    ModuleSpec::of::<super::etcd::salvage::EtcdSalvage>(),
    ModuleSpec::of::<super::etcd::service::EtcdService>(),
    ModuleSpec::of::<super::etcd::snapshot::EtcdSnapshot>(),
    ModuleSpec::of::<super::etcd::unwritten::EtcdUnwritten>(),
    ModuleSpec::of::<super::etcd::v2_content::EtcdV2Content>(),
    ModuleSpec::of::<super::facts::GatherFacts>(),
    ModuleSpec::of::<super::fail::Fail>(),
    ModuleSpec::of::<super::fetch::Fetch>(),
    ModuleSpec::of::<super::file::File>(),
    ModuleSpec::of::<super::filesystem::Filesystem>(),
    ModuleSpec::of::<super::group::Group>(),
    ModuleSpec::of::<super::guests::guest_preflight::GuestPreflight>(),
    ModuleSpec::of::<super::guests::guest_retire::GuestRetire>(),
    ModuleSpec::of::<super::guests::guest_trust::GuestTrust>(),
    ModuleSpec::of::<super::guests::ignition::Ignition>(),
    ModuleSpec::of::<super::inventory_edit::InventoryEdit>(),
    ModuleSpec::of::<super::guests::libvirt_domain::LibvirtDomain>(),
    ModuleSpec::of::<super::guests::libvirt_network::LibvirtNetwork>(),
    ModuleSpec::of::<super::guests::libvirt_pool::LibvirtPool>(),
    ModuleSpec::of::<super::guests::libvirt_power::LibvirtPower>(),
    ModuleSpec::of::<super::guests::libvirt_volume::LibvirtVolume>(),
    ModuleSpec::of::<super::line_in_file::LineInFile>(),
    ModuleSpec::of::<super::mount::Mount>(),
    ModuleSpec::of::<super::package::Package>(),
    ModuleSpec::of::<super::pause::Pause>(),
    ModuleSpec::of::<super::ping::Ping>(),
    ModuleSpec::of::<super::pki::ca::PkiCa>(),
    ModuleSpec::of::<super::pki::certificate::PkiCertificate>(),
    ModuleSpec::of::<super::pki::rotation::PkiRotation>(),
    ModuleSpec::of::<super::pki::users::PkiUsers>(),
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
