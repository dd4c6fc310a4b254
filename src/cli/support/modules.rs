//! Modules, by name.

use super::CliError;
use crate::{LIBRARY, source::did_you_mean, task::ModuleSpec};

pub fn find_module(name: &str) -> Result<&'static ModuleSpec, CliError> {
    LIBRARY.find(name).ok_or_else(|| {
        let help = did_you_mean(name, LIBRARY.names()).unwrap_or_else(|| "`etcdrun doc` lists all modules".to_owned());
        CliError::usage_with_help(format!("there is no module `{name}`"), Some(help))
    })
}
