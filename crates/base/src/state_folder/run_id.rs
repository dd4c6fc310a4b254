//! The name of a run: when it began, and a few random digits.

use std::{fmt, sync::Arc};

/// Sorts by time. Also names folders, here and on hosts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(Arc<str>);

impl RunId {
    /// A new name. The random part tells runs apart that began in the same millisecond.
    pub fn new() -> Self {
        let time = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%S%3fZ");
        Self(format!("{time}-{:04x}", rand::random::<u16>()).into())
    }

    /// The name of a folder, if it is one of ours.
    pub fn parse(text: &str) -> Option<Self> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let is_flag = text.starts_with('-');
        (!text.is_empty() && text.len() <= 64 && !is_flag && text.chars().all(plain)).then(|| Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn shared(&self) -> Arc<str> {
        self.0.clone()
    }
}

impl Default for RunId {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_runs_sort_later_and_names_are_plain() {
        let first = RunId::new();
        std::thread::sleep(std::time::Duration::from_millis(2));
        let second = RunId::new();
        assert!(first < second);
        assert_eq!(RunId::parse(first.as_str()), Some(first));
        assert_eq!((RunId::parse("../x"), RunId::parse("--force"), RunId::parse("x; reboot")), (None, None, None));
    }
}
