//! A version of etcd.

use std::{fmt, str::FromStr};

use super::ParseScalarError;

/// A released version of etcd, whole: `3.5.34`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    pub major: u16,
    pub minor: u16,
    pub patch: u16,
}

impl Version {
    /// Major and minor alone, which decide what a server understands.
    pub fn series(self) -> (u16, u16) {
        (self.major, self.minor)
    }
}

impl FromStr for Version {
    type Err = ParseScalarError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong =
            || ParseScalarError(format!("`{text}` is not a version of etcd; expected a full version like 3.5.34"));
        let mut numbers = text.strip_prefix('v').unwrap_or(text).split('.').map(str::parse::<u16>);
        let mut next = || numbers.next().and_then(Result::ok).ok_or_else(wrong);
        let version = Self { major: next()?, minor: next()?, patch: next()? };
        if numbers.next().is_some() { Err(wrong()) } else { Ok(version) }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl serde::Serialize for Version {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_three_numbers() {
        assert_eq!("3.5.34".parse::<Version>().unwrap().to_string(), "3.5.34");
        assert_eq!("v3.5.34".parse::<Version>().unwrap().series(), (3, 5));
        for bad in ["", "3", "3.5", "3.5.x", "3.5.34.1", "latest", "3.5.34-rc.1"] {
            assert!(bad.parse::<Version>().is_err(), "{bad}");
        }
        assert!("3.5.9".parse::<Version>().unwrap() < "3.5.10".parse().unwrap());
    }
}
