//! The list of modules. Adding a module adds a line here.

use super::spec::ModuleSpec;

static MODULES: &[ModuleSpec] = &[
    ModuleSpec::of::<super::command::Command>(),
    ModuleSpec::of::<super::copy::Copy>(),
    ModuleSpec::of::<super::download::Download>(),
    ModuleSpec::of::<super::facts::GatherFacts>(),
    ModuleSpec::of::<super::fail::Fail>(),
    ModuleSpec::of::<super::file::File>(),
    ModuleSpec::of::<super::filesystem::Filesystem>(),
    ModuleSpec::of::<super::group::Group>(),
    ModuleSpec::of::<super::line_in_file::LineInFile>(),
    ModuleSpec::of::<super::mount::Mount>(),
    ModuleSpec::of::<super::package::Package>(),
    ModuleSpec::of::<super::ping::Ping>(),
    ModuleSpec::of::<super::script::Script>(),
    ModuleSpec::of::<super::service::Service>(),
    ModuleSpec::of::<super::set_fact::SetFact>(),
    ModuleSpec::of::<super::shell::Shell>(),
    ModuleSpec::of::<super::sysctl::Sysctl>(),
    ModuleSpec::of::<super::systemd_unit::SystemdUnit>(),
    ModuleSpec::of::<super::unarchive::Unarchive>(),
    ModuleSpec::of::<super::user::User>(),
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
