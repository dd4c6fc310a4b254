//! What the engine has to know of a module beyond its arguments and effects. No module is known to it by name.

use crate::model::RolloutPart;

#[derive(Clone, Copy, Debug)]
pub struct Traits {
    /// Which variables of its hosts it sets.
    pub sets: Sets,
    /// Which file of the operator it carries to its target.
    pub file: OperatorFile,
    /// Its free-form text is a command line, in which `name=` is not an argument of the module.
    pub is_command_line: bool,
    /// It runs on a hypervisor and is about one guest there: the host of the task.
    pub is_about_guest: bool,
    /// Once it has changed something, the host may be another machine than before.
    pub meets_host: bool,
    /// Its message is what the user wants to see.
    pub is_message: bool,
    /// What its result says about a rollout, for reports.
    pub rollout: Option<RolloutPart>,
}

/// What variables a module sets.
#[derive(Clone, Copy, Debug)]
pub enum Sets {
    Nothing,
    /// Its arguments, by their names.
    Arguments,
    /// The variable `facts`, with these fields.
    Facts(&'static [&'static str]),
}

/// What the argument `src` of a module stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorFile {
    None,
    /// A file or a folder that is copied. Without `src`, there is none.
    Copied,
    Archive,
    Template,
    /// The first word of the command line.
    Script,
}

impl Traits {
    pub const NONE: Self = Self {
        sets: Sets::Nothing,
        file: OperatorFile::None,
        is_command_line: false,
        is_about_guest: false,
        meets_host: false,
        is_message: false,
        rollout: None,
    };
}
