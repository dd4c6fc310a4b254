//! What can be read of an age file without a key: to what kinds of recipients it is encrypted.

use std::{fmt, io::Read};

use age::armor::ArmoredReader;

/// A header has a few lines per recipient; more than this is no honest one.
const MAX_HEADER: u64 = 1 << 20;

/// One recipient as the file names it. X25519 recipients are anonymous; SSH keys leave a short tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stanza {
    pub kind: String,
    pub tag: Option<String>,
}

impl fmt::Display for Stanza {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind.as_str(), &self.tag) {
            ("X25519", _) => f.write_str("an age recipient (X25519)"),
            ("scrypt", _) => f.write_str("a passphrase"),
            (kind @ ("ssh-ed25519" | "ssh-rsa"), Some(tag)) => write!(f, "an SSH key ({kind}, tag {tag})"),
            (kind, _) => write!(f, "a recipient of the kind {kind}"),
        }
    }
}

/// The recipients of an age file; none if it is not one.
pub fn stanzas(sealed: &[u8]) -> Vec<Stanza> {
    let mut bytes = Vec::new();
    // A broken armor ends early; what could be read is enough here.
    let _ = ArmoredReader::new(sealed).take(MAX_HEADER).read_to_end(&mut bytes);
    let lines = bytes.split(|&byte| byte == b'\n').map(|line| std::str::from_utf8(line).unwrap_or_default());
    lines.take_while(|line| !line.starts_with("---")).filter_map(stanza).collect()
}

fn stanza(line: &str) -> Option<Stanza> {
    let mut words = line.strip_prefix("-> ")?.split(' ');
    let kind = words.next()?.to_owned();
    let tag = words.next().filter(|_| kind.starts_with("ssh-")).map(str::to_owned);
    // Go's age hides files of one recipient kind behind a random stanza; it stands for nobody.
    (!kind.ends_with("-grease")).then_some(Stanza { kind, tag })
}

/// "an age recipient (X25519) and an SSH key (...)".
pub(super) fn describe(stanzas: &[Stanza]) -> String {
    let mut counted: Vec<(String, usize)> = Vec::new();
    for text in stanzas.iter().map(ToString::to_string) {
        match counted.iter_mut().find(|(known, _)| *known == text) {
            Some((_, count)) => *count += 1,
            None => counted.push((text, 1)),
        }
    }
    let words = counted.into_iter().map(|(text, count)| if count == 1 { text } else { format!("{text} ×{count}") });
    words.collect::<Vec<_>>().join(", ")
}
