//! SHA-256 digests, which name content.

use std::fmt;
use std::io::{self, Read};
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

/// A SHA-256 digest. Its text form is 64 lower-case hexadecimal digits, in JSON too.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Returns the digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Digest {
        Digest(Sha256::digest(bytes).into())
    }

    /// Returns the digest and the size in bytes of a file, read in pieces.
    ///
    /// # Errors
    /// Returns any error of opening or reading it.
    pub fn of_file(path: &Path) -> io::Result<(Digest, u64)> {
        Digest::of_reader(crate::regular_file::open(path)?)
    }

    /// Returns the digest and the number of all bytes of a reader, read in pieces.
    ///
    /// # Errors
    /// Returns any error of reading it.
    pub fn of_reader(mut reader: impl Read) -> io::Result<(Digest, u64)> {
        let mut hasher = Sha256Hasher::new();
        let mut piece = vec![0; 1 << 18];
        let mut size = 0;
        loop {
            let n = reader.read(&mut piece)?;
            if n == 0 {
                return Ok((hasher.finish(), size));
            }
            hasher.update(&piece[..n]);
            size += n as u64;
        }
    }

    /// Returns the 32 bytes.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the 64 hexadecimal digits.
    pub fn hex(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Text that is not a digest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a SHA-256 digest is 64 lower-case hexadecimal digits, not `{0}`")]
pub struct ParseDigestError(String);

impl FromStr for Digest {
    type Err = ParseDigestError;

    fn from_str(text: &str) -> Result<Digest, ParseDigestError> {
        let refuse = || ParseDigestError(text.chars().take(80).collect());
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Ok(byte - b'0'),
            b'a'..=b'f' => Ok(byte - b'a' + 10),
            _ => Err(refuse()),
        };
        if text.len() != 64 {
            return Err(refuse());
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Ok(Digest(bytes))
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Digest, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// An incremental SHA-256 computation.
#[derive(Clone, Default)]
pub struct Sha256Hasher(Sha256);

impl Sha256Hasher {
    /// Returns a hasher without any input.
    pub fn new() -> Sha256Hasher {
        Sha256Hasher::default()
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Adds a number, as 8 little-endian bytes.
    pub fn update_u64(&mut self, number: u64) {
        self.update(&number.to_le_bytes());
    }

    /// Adds the length and then the bytes, so that adjacent fields cannot be confused.
    pub fn update_field(&mut self, bytes: &[u8]) {
        self.update_u64(bytes.len() as u64);
        self.update(bytes);
    }

    /// Returns the digest of all input.
    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

impl fmt::Debug for Sha256Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hasher")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_round_trips_and_refuses_the_rest() {
        let digest = Digest::of(b"abc");
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest.hex(), text);
        assert_eq!(text.parse(), Ok(digest));
        for bad in ["", "ba", &text.to_uppercase(), &format!("{text}0"), &"é".repeat(32)] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
    }

    #[test]
    fn fields_do_not_run_into_each_other() {
        let of = |fields: &[&str]| {
            let mut hasher = Sha256Hasher::new();
            fields.iter().for_each(|field| hasher.update_field(field.as_bytes()));
            hasher.finish()
        };
        assert_ne!(of(&["ab", "c"]), of(&["a", "bc"]));
    }
}
