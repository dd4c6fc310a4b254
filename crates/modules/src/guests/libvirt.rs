//! What the modules that speak to libvirt have in common.

use super::ModuleError;

/// Names of pools, volumes, networks and domains: they become words of a command and names of files.
pub(super) fn check_name(what: &str, name: &str) -> Result<(), ModuleError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._+-".contains(c);
    if !name.is_empty() && name.len() <= 200 && !name.starts_with(['-', '.']) && name.chars().all(plain) {
        return Ok(());
    }
    Err(ModuleError::new(format!("`{name}` cannot be the name of a {what}"))
        .help("names consist of letters, digits, `.`, `_`, `+` and `-`, and start with a letter or a digit"))
}

/// An absolute path without characters that an XML attribute or a line of text could not hold.
pub(super) fn checked_path<'p>(argument: &str, path: &'p str) -> Result<&'p str, ModuleError> {
    let strange = |c: char| c.is_control() || "<>&'\"".contains(c);
    match path.starts_with('/') && !path.chars().any(strange) {
        true => Ok(if path.len() > 1 { path.trim_end_matches('/') } else { path }),
        false => Err(ModuleError::new(format!("`{argument}` is an absolute path on the hypervisor, not `{path}`"))),
    }
}

/// Canonical form of a UUID, or an error.
pub(super) fn checked_uuid(text: &str) -> Result<String, ModuleError> {
    let lengths: Vec<usize> = text.split('-').map(str::len).collect();
    let hex = text.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    match hex && lengths == [8, 4, 4, 4, 12] {
        true => Ok(text.to_ascii_lowercase()),
        false => Err(ModuleError::new(format!("`{text}` is not a UUID"))),
    }
}
