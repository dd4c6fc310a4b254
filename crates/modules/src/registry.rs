//! The list of modules. Adding a module adds a line here.

use crate::task::ModuleSpec;

/// Every module, by name.
pub static MODULES: &[ModuleSpec] = &[
    ModuleSpec::of::<super::control::assert::Assert>(),
    ModuleSpec::of::<super::guests::cloud_init::CloudInit>(),
    ModuleSpec::of::<super::system::command::Command>(),
    ModuleSpec::of::<super::files::copy::Copy>(),
    ModuleSpec::of::<super::control::debug::Debug>(),
    ModuleSpec::of::<super::files::download::Download>(),
    ModuleSpec::of::<super::etcd::addresses::EtcdAddresses>(),
    ModuleSpec::of::<super::etcd::alarm::EtcdAlarm>(),
    ModuleSpec::of::<super::etcd::auth::EtcdAuth>(),
    ModuleSpec::of::<super::etcd::backup::EtcdBackup>(),
    ModuleSpec::of::<super::etcd::backup_key::EtcdBackupKey>(),
    ModuleSpec::of::<super::etcd::bootstrap::EtcdBootstrap>(),
    ModuleSpec::of::<super::etcd::canary::EtcdCanary>(),
    ModuleSpec::of::<super::etcd::checkpoint::EtcdCheckpoint>(),
    ModuleSpec::of::<super::etcd::cluster::EtcdCluster>(),
    ModuleSpec::of::<super::etcd::config::EtcdConfig>(),
    ModuleSpec::of::<super::etcd::defrag::EtcdDefrag>(),
    ModuleSpec::of::<super::etcd::destroy::EtcdDestroy>(),
    ModuleSpec::of::<super::etcd::downgrade::EtcdDowngrade>(),
    ModuleSpec::of::<super::etcd::gate::EtcdGate>(),
    ModuleSpec::of::<super::etcd::keys::EtcdKeys>(),
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
    ModuleSpec::of::<super::system::facts::GatherFacts>(),
    ModuleSpec::of::<super::control::fail::Fail>(),
    ModuleSpec::of::<super::files::fetch::Fetch>(),
    ModuleSpec::of::<super::files::file::File>(),
    ModuleSpec::of::<super::system::filesystem::Filesystem>(),
    ModuleSpec::of::<super::system::group::Group>(),
    ModuleSpec::of::<super::guests::guest_preflight::GuestPreflight>(),
    ModuleSpec::of::<super::guests::guest_retire::GuestRetire>(),
    ModuleSpec::of::<super::guests::guest_trust::GuestTrust>(),
    ModuleSpec::of::<super::guests::ignition::Ignition>(),
    ModuleSpec::of::<super::control::inventory_edit::InventoryEdit>(),
    ModuleSpec::of::<super::guests::libvirt_domain::LibvirtDomain>(),
    ModuleSpec::of::<super::guests::libvirt_network::LibvirtNetwork>(),
    ModuleSpec::of::<super::guests::libvirt_pool::LibvirtPool>(),
    ModuleSpec::of::<super::guests::libvirt_power::LibvirtPower>(),
    ModuleSpec::of::<super::guests::libvirt_volume::LibvirtVolume>(),
    ModuleSpec::of::<super::files::line_in_file::LineInFile>(),
    ModuleSpec::of::<super::system::mount::Mount>(),
    ModuleSpec::of::<super::system::package::Package>(),
    ModuleSpec::of::<super::control::pause::Pause>(),
    ModuleSpec::of::<super::system::ping::Ping>(),
    ModuleSpec::of::<super::pki::ca::PkiCa>(),
    ModuleSpec::of::<super::pki::certificate::PkiCertificate>(),
    ModuleSpec::of::<super::pki::rotation::PkiRotation>(),
    ModuleSpec::of::<super::pki::users::PkiUsers>(),
    ModuleSpec::of::<super::system::reboot::Reboot>(),
    ModuleSpec::of::<super::system::script::Script>(),
    ModuleSpec::of::<super::system::service::Service>(),
    ModuleSpec::of::<super::control::set_fact::SetFact>(),
    ModuleSpec::of::<super::system::shell::Shell>(),
    ModuleSpec::of::<super::system::sysctl::Sysctl>(),
    ModuleSpec::of::<super::system::systemd_unit::SystemdUnit>(),
    ModuleSpec::of::<super::files::template::Template>(),
    ModuleSpec::of::<super::control::turn_order::TurnOrder>(),
    ModuleSpec::of::<super::files::unarchive::Unarchive>(),
    ModuleSpec::of::<super::system::user::User>(),
    ModuleSpec::of::<super::system::wait_for::WaitFor>(),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{source::Diagnostics, support::testing::node};

    #[test]
    fn modules_are_sorted_and_none_comes_twice() {
        assert!(MODULES.windows(2).all(|pair| pair[0].name < pair[1].name));
    }

    #[test]
    fn the_file_of_a_module_has_its_name() {
        let rows =
            include_str!("registry.rs").lines().filter_map(|line| line.trim().strip_prefix("ModuleSpec::of::<super::"));
        for (module, row) in MODULES.iter().zip(rows) {
            let mut path = row.split("::");
            let (folder, file) = (path.next().unwrap(), path.next().unwrap());
            let names = [file.to_owned(), format!("{folder}_{file}")];
            assert!(names.contains(&module.name.to_owned()), "{} is in {folder}/{file}.rs", module.name);
        }
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
