//! Checksums, by the library that SSH and TLS use as well.

use aws_lc_rs::digest::{self, Algorithm, Context, SHA1_FOR_LEGACY_USE_ONLY, SHA224, SHA256, SHA384, SHA512};

/// SHA-256 of what goes by in pieces.
#[derive(Clone)]
pub struct Sha256(Context);

impl Sha256 {
    pub fn update(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.update(bytes.as_ref());
    }

    pub fn finish(self) -> [u8; 32] {
        sized(&self.0.finish())
    }
}

impl Default for Sha256 {
    fn default() -> Self {
        Self(Context::new(&SHA256))
    }
}

pub fn sha256(bytes: impl AsRef<[u8]>) -> [u8; 32] {
    sized(&digest::digest(&SHA256, bytes.as_ref()))
}

/// For what others have defined by it; it proves nothing.
pub fn sha1(bytes: impl AsRef<[u8]>) -> [u8; 20] {
    sized(&digest::digest(&SHA1_FOR_LEGACY_USE_ONLY, bytes.as_ref()))
}

/// The sum by an algorithm of this name, in hexadecimal digits, if there is such an algorithm.
pub fn named(algorithm: &str, bytes: impl AsRef<[u8]>) -> Option<String> {
    let algorithm: &Algorithm = match algorithm {
        "sha1" => &SHA1_FOR_LEGACY_USE_ONLY,
        "sha224" => &SHA224,
        "sha256" => &SHA256,
        "sha384" => &SHA384,
        "sha512" => &SHA512,
        _ => return None,
    };
    Some(hex(digest::digest(algorithm, bytes.as_ref())))
}

pub fn hex(bytes: impl AsRef<[u8]>) -> String {
    use std::fmt::Write;
    let bytes = bytes.as_ref();
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn sized<const N: usize>(sum: &digest::Digest) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(sum.as_ref());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_that_others_calculate() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(hex(Sha256::default().finish()), empty);
        let mut sum = Sha256::default();
        ["a", "bc"].into_iter().for_each(|piece| sum.update(piece));
        assert_eq!(sum.finish(), sha256("abc"));
        assert_eq!(named("sha256", ""), Some(empty.to_owned()));
        assert_eq!(hex(sha1("abc")), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert_eq!(named("sha1", "abc"), Some(hex(sha1("abc"))));
        assert_eq!(named("md5", ""), None);
    }
}
