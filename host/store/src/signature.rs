//! Signatures of files, in the form of minisign: Ed25519 over the BLAKE2b hash of the file, with a trusted comment.
//!
//! The files can be used with the program minisign and the other way round, except secret keys with a password. Source:
//! <https://jedisct1.github.io/minisign/>.

mod secret_key;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use minisign_verify::{PublicKey, Signature};
use thiserror::Error;

pub use secret_key::SigningKey;

/// Limit on the bytes of a signature or key file.
pub const SIGNATURE_BYTES_MAX: u64 = 16 << 10;
/// The suffix of the file name of a signature: `digits.saggar.minisig`.
pub const SIGNATURE_SUFFIX: &str = "minisig";

/// First bytes of a public key: the algorithm.
const ALGORITHM: &[u8; 2] = b"Ed";
/// First bytes of a signature over the hash of a file.
const PREHASHED_ALGORITHM: &[u8; 2] = b"ED";

/// The reason for which a key or a signature is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SignatureError {
    /// The text is not a public key.
    #[error("not a public key: {reason}; expected one as `saggar key pair` writes it, RW... or the whole file")]
    BadPublicKey {
        /// The reason.
        reason: String,
    },
    /// The text is not a secret key.
    #[error("not a secret key: {reason}; `saggar key pair NAME` makes one")]
    BadSecretKey {
        /// The reason.
        reason: String,
    },
    /// The text is not a signature.
    #[error("not a signature: {reason}; `saggar key sign FILE` writes one to FILE.minisig")]
    BadSignature {
        /// The reason.
        reason: String,
    },
    /// There is no signature, and one is required.
    #[error("it has no signature, and this server accepts only what is signed by {trusted}")]
    Missing {
        /// The trusted keys.
        trusted: String,
    },
    /// The file was signed by another key.
    #[error("it is signed by the key {signer}, and only {trusted} can sign")]
    OtherKey {
        /// The ID of the key that signed it.
        signer: String,
        /// The trusted keys.
        trusted: String,
    },
    /// The file was changed after it was signed, or the signature was.
    #[error("its signature by the key {signer} does not hold: the file was changed after it was signed")]
    Changed {
        /// The ID of the key.
        signer: String,
    },
}

/// A public key that signatures are verified with.
#[derive(Clone)]
pub struct VerifyingKey {
    key: PublicKey,
    id: [u8; 8],
    text: String,
}

impl VerifyingKey {
    /// Returns the key's ID, as minisign shows it.
    pub fn id(&self) -> String {
        format_id(&self.id)
    }

    /// Returns the content of the key's file.
    pub fn to_file(&self) -> String {
        format!("untrusted comment: minisign public key {}\n{}\n", self.id(), self.text)
    }
}

impl fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("VerifyingKey").field(&self.text).finish()
    }
}

impl FromStr for VerifyingKey {
    type Err = SignatureError;

    /// Parses the key's text, `RW...`, or the content of its file, whose first line is a comment.
    fn from_str(text: &str) -> Result<VerifyingKey, SignatureError> {
        let refuse = |reason: &str| SignatureError::BadPublicKey { reason: reason.to_owned() };
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let key = lines.find(|line| !line.starts_with("untrusted comment:")).ok_or_else(|| refuse("it is empty"))?;
        let bytes = STANDARD.decode(key).map_err(|_| refuse("it is not base64"))?;
        let Some(([algorithm @ .., _, _, _, _, _, _, _, _], _)) = bytes.split_first_chunk::<10>() else {
            return Err(refuse("it is too short"));
        };
        if algorithm != ALGORITHM {
            return Err(refuse("it has another algorithm than Ed25519"));
        }
        let mut id = [0; 8];
        id.copy_from_slice(&bytes[2..10]);
        let parsed = PublicKey::from_base64(key).map_err(|error| refuse(&error.to_string()))?;
        Ok(VerifyingKey { key: parsed, id, text: key.to_owned() })
    }
}

/// Verifies the signature of a file, and returns the key among `trusted` that made it.
///
/// # Errors
/// Returns `Missing` without a signature, `BadSignature`, `OtherKey` if no trusted key made it, and `Changed`.
pub fn verify<'k>(
    file: &[u8],
    signature: Option<&str>,
    trusted: &'k [VerifyingKey],
) -> Result<&'k VerifyingKey, SignatureError> {
    let names = || trusted.iter().map(VerifyingKey::id).collect::<Vec<_>>().join(", ");
    let Some(text) = signature else { return Err(SignatureError::Missing { trusted: names() }) };
    let refuse = |reason: String| SignatureError::BadSignature { reason };
    let id = signer_id(text).map_err(refuse)?;
    let parsed = Signature::decode(text).map_err(|error| refuse(error.to_string()))?;
    let Some(key) = trusted.iter().find(|key| key.id == id) else {
        return Err(SignatureError::OtherKey { signer: format_id(&id), trusted: names() });
    };
    key.key.verify(file, &parsed, false).map_err(|_| SignatureError::Changed { signer: key.id() })?;
    Ok(key)
}

/// Returns the ID of the key in the second line of a signature, after its form was checked.
fn signer_id(text: &str) -> Result<[u8; 8], String> {
    if text.len() as u64 > SIGNATURE_BYTES_MAX {
        return Err(format!("it has {} bytes, and at most {SIGNATURE_BYTES_MAX} are read", text.len()));
    }
    let lines: Vec<&str> = text.lines().collect();
    let [first, signature, trusted, global] = lines[..] else {
        return Err(format!("it has {} lines instead of 4", lines.len()));
    };
    if !first.starts_with("untrusted comment: ") || !trusted.starts_with("trusted comment: ") {
        return Err("its first and third line are not comments".to_owned());
    }
    let decode = |line: &str, bytes: usize| {
        STANDARD
            .decode(line)
            .ok()
            .filter(|it| it.len() == bytes)
            .ok_or(format!("not {bytes} bytes in base64: {line:.100}"))
    };
    let (signature, _) = (decode(signature, 74)?, decode(global, 64)?);
    if signature[..2] != *PREHASHED_ALGORITHM {
        return Err("it has another algorithm than Ed25519 over a hash (`minisign -H` makes those)".to_owned());
    }
    let mut id = [0; 8];
    id.copy_from_slice(&signature[2..10]);
    Ok(id)
}

/// Formats a key's ID as minisign does: as a number whose lowest byte comes first.
fn format_id(id: &[u8; 8]) -> String {
    format!("{:016X}", u64::from_le_bytes(*id))
}
