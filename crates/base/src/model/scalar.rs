//! Scalars with a meaning of their own: file modes, sizes, durations.
//!
//! They deserialize through `source::scalar`, so that an argument which is still a template when
//! its file is loaded is accepted there and parsed once it is rendered.

use std::{collections::BTreeSet, fmt, str::FromStr, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde::Serialize;

/// Why a scalar was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseScalarError(pub String);

/// Permission bits, written in octal (`"0640"`) or symbolically (`u=rw,g=r,o=`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileMode(String);

impl FileMode {
    /// The mode as chmod takes it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for FileMode {
    type Err = ParseScalarError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let octal = (3..=5).contains(&text.len()) && text.bytes().all(|b| (b'0'..=b'7').contains(&b));
        let symbolic = !text.is_empty() && text.split(',').all(is_symbolic_clause);
        if octal || symbolic {
            return Ok(Self(text.to_owned()));
        }
        Err(ParseScalarError(format!(
            "`{text}` is not a file mode; write it in octal and quoted (\"0644\") or symbolically (u=rw,g=r)"
        )))
    }
}

fn is_symbolic_clause(clause: &str) -> bool {
    let Some(operator) = clause.find(['=', '+', '-']) else {
        return false;
    };
    let (who, permissions) = (&clause[..operator], &clause[operator + 1..]);
    who.bytes().all(|b| b"ugoa".contains(&b)) && permissions.bytes().all(|b| b"rwxXst".contains(&b))
}

/// A number of bytes: `20GiB`, `512M`, `1048576`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

impl FromStr for ByteSize {
    type Err = ParseScalarError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseScalarError(format!("`{text}` is not a size; write bytes or a unit, like 512MiB or 20GiB"));
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let number: u64 = text[..digits].parse().map_err(|_| wrong())?;
        let factor: u64 = match text[digits..].trim() {
            "" | "B" => 1,
            "K" | "KiB" => 1 << 10,
            "M" | "MiB" => 1 << 20,
            "G" | "GiB" => 1 << 30,
            "T" | "TiB" => 1 << 40,
            "KB" => 1_000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            "TB" => 1_000_000_000_000,
            _ => return Err(wrong()),
        };
        number.checked_mul(factor).map(Self).ok_or_else(wrong)
    }
}

/// As a person reads it, not as it was written.
impl std::fmt::Display for ByteSize {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let units = [(1_u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        let Some((unit, name)) = units.into_iter().find(|(unit, _)| self.0 >= *unit) else {
            return write!(f, "{} B", self.0);
        };
        match (self.0 / unit, self.0 % unit * 10 / unit) {
            (whole, 0) => write!(f, "{whole} {name}"),
            (whole, tenths) => write!(f, "{whole}.{tenths} {name}"),
        }
    }
}

/// As it is written, as far as one digit behind the point goes.
impl Serialize for ByteSize {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_string().replace(' ', ""))
    }
}

/// Processors of a hypervisor: `0-3,8`, as libvirt writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuSet {
    text: String,
    last: u16,
}

impl CpuSet {
    /// The highest number in it.
    pub fn last(&self) -> u16 {
        self.last
    }
}

impl FromStr for CpuSet {
    type Err = ParseScalarError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong =
            || ParseScalarError(format!("`{text}` is not a set of processors; write numbers and ranges, like 0-3,8"));
        let mut numbers = BTreeSet::new();
        for part in text.split(',').map(str::trim) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| text.trim().parse::<u16>().ok().filter(|number| *number < MOST_PROCESSORS);
            let (first, last) =
                number(first).zip(number(last)).filter(|(first, last)| first <= last).ok_or_else(wrong)?;
            numbers.extend(first..=last);
        }
        let highest = numbers.last().copied().unwrap_or_default();
        let mut ranges = Vec::new();
        let mut numbers = numbers.into_iter().peekable();
        while let Some(first) = numbers.next() {
            let mut last = first;
            while let Some(next) = numbers.next_if_eq(&(last + 1)) {
                last = next;
            }
            ranges.push(if first == last { first.to_string() } else { format!("{first}-{last}") });
        }
        Ok(Self { text: ranges.join(","), last: highest })
    }
}

/// More than any machine has.
const MOST_PROCESSORS: u16 = 8192;

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The name of a further disk of a guest, which is its serial number there: virtio has room for 20 letters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskName(String);

impl FromStr for DiskName {
    type Err = ParseScalarError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if text == "data" {
            return Err(ParseScalarError("`data` is the disk of `data_disk`; choose another name".into()));
        }
        if (1..=20).contains(&text.len()) && text.chars().all(is_plain) {
            return Ok(Self(text.to_owned()));
        }
        Err(ParseScalarError(format!(
            "`{text}` is not a name of a disk; use up to 20 letters, digits, `-`, `_` and `.`"
        )))
    }
}

impl fmt::Display for DiskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Bytes that are no text, written in base64.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Base64(pub Vec<u8>);

impl FromStr for Base64 {
    type Err = ParseScalarError;

    // It may be a secret, so it is not repeated.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits: String = text.split_whitespace().collect();
        let wrong = || ParseScalarError("the text is not base64; `base64 FILE` prints what a file is in it".into());
        BASE64_STANDARD.decode(digits).map(Self).map_err(|_| wrong())
    }
}

/// A duration: `90`, `1.5`, `90s`, `5m`, `2h`, `250ms`; a bare number is seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seconds(pub Duration);

impl FromStr for Seconds {
    type Err = ParseScalarError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseScalarError(format!("`{text}` is not a duration; write seconds or a unit, like 30s or 5m"));
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let number: f64 = text[..digits].parse().map_err(|_| wrong())?;
        let factor = match text[digits..].trim() {
            "" | "s" => 1.0,
            "ms" => 0.001,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86400.0,
            _ => return Err(wrong()),
        };
        Duration::try_from_secs_f64(number * factor).map(Self).map_err(|_| wrong())
    }
}

/// As it is written: defaults are shown so.
impl Serialize for Seconds {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (seconds, whole) = (self.0.as_secs(), self.0.subsec_nanos() == 0 && !self.0.is_zero());
        let units = [(86_400, "d"), (3_600, "h"), (60, "m")];
        match units.into_iter().find(|(unit, _)| whole && seconds.is_multiple_of(*unit)) {
            Some((unit, name)) => serializer.collect_str(&format_args!("{}{name}", seconds / unit)),
            None => serializer.collect_str(self),
        }
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}s", self.0.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal_or_symbolic() {
        for good in ["0644", "644", "u=rw,g=r,o=", "a+x", "u+rwX"] {
            assert!(good.parse::<FileMode>().is_ok(), "{good}");
        }
        for bad in ["", "0888", "rw", "1", "u=rw;rm", "u=z", "123456"] {
            assert!(bad.parse::<FileMode>().is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_and_durations_take_units() {
        assert_eq!("20GiB".parse(), Ok(ByteSize(20 << 30)));
        assert!("20 furlongs".parse::<ByteSize>().is_err());
        assert!("99999999999999TiB".parse::<ByteSize>().is_err());
        assert_eq!("1.5m".parse(), Ok(Seconds(Duration::from_secs(90))));
        assert!("-1s".parse::<Seconds>().is_err());
    }

    #[test]
    fn sets_of_processors_have_one_form() {
        let said = |text: &str| text.parse::<CpuSet>().map(|set| set.to_string()).ok();
        for (text, form) in [("0-3,8", "0-3,8"), ("8, 2,0,1", "0-2,8"), ("5", "5"), ("1-2,2-4", "1-4")] {
            assert_eq!(said(text).as_deref(), Some(form), "{text}");
        }
        for bad in ["", "3-1", "0-", "a", "^3", "0,,1", "9000"] {
            assert_eq!(said(bad), None, "{bad}");
        }
    }

    #[test]
    fn disks_have_names_that_fit_into_a_serial_number() {
        assert!("wal-1".parse::<DiskName>().is_ok());
        for bad in ["", "data", "a/b", "a b", "a-name-of-21-letters--"] {
            assert!(bad.parse::<DiskName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn base64_may_have_several_lines() {
        assert_eq!("AAEC\n/w==".parse(), Ok(Base64(vec![0, 1, 2, 255])));
        assert!("a text".parse::<Base64>().is_err());
    }
}
