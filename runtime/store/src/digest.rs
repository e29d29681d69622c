//! SHA-256 digests, which blobs are named by.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use sha2::Digest as _;
use std::fmt;
use std::str::FromStr;

/// The SHA-256 of a blob; its text is `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Digest {
        let mut hasher = Hasher::default();
        hasher.update(bytes);
        hasher.finish()
    }

    /// The 64 digits.
    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The first 12 digits, as lists show them.
    pub fn short(&self) -> String {
        self.hex()[..12].into()
    }

    /// The blob's file name.
    pub(crate) fn file_name(&self) -> String {
        format!("sha256-{}", self.hex())
    }

    /// The digest of a blob's file name; `None` for the name of another file.
    pub(crate) fn of_file_name(name: &str) -> Option<Digest> {
        let digest: Digest = name.replacen('-', ":", 1).parse().ok()?;
        (digest.file_name() == name).then_some(digest)
    }
}

impl FromStr for Digest {
    type Err = Error;

    fn from_str(text: &str) -> Result<Digest> {
        let bad = || Error::BadDigest { found: text.chars().take(80).collect() };
        let hex = text.strip_prefix("sha256:").filter(|hex| hex.len() == 64).ok_or_else(bad)?;
        let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
        let mut digest = [0; 32];
        for (byte, pair) in digest.iter_mut().zip(hex.as_bytes().chunks(2)) {
            *byte = digit(pair[0]).zip(digit(pair[1])).map(|(a, b)| a << 4 | b).ok_or_else(bad)?;
        }
        Ok(Digest(digest))
    }
}

impl TryFrom<String> for Digest {
    type Error = Error;

    fn try_from(text: String) -> Result<Digest> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> String {
        digest.to_string()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Computes a digest piece by piece.
#[derive(Clone, Default)]
pub(crate) struct Hasher(sha2::Sha256);

impl Hasher {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read_back_from_its_text_and_its_file_name() {
        let digest = Digest::of(b"abc");
        assert_eq!(digest.hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(digest.to_string().parse::<Digest>().unwrap(), digest);
        assert_eq!(Digest::of_file_name(&digest.file_name()), Some(digest));
        assert_eq!(Digest::of_file_name(&format!("{}.partial", digest.file_name())), None);
    }

    #[test]
    fn what_is_no_digest_is_refused() {
        for text in ["", "sha256:", "sha256:../../x", "md5:00", &format!("sha256:{}", "g".repeat(64))] {
            assert_eq!(text.parse::<Digest>().unwrap_err().code(), "bad-digest", "{text}");
        }
        assert!(format!("sha256:{}é", "0".repeat(62)).parse::<Digest>().is_err());
    }
}
