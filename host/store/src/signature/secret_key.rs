//! Secret keys, and signing.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use blake2::digest::consts::{U32, U64};
use blake2::{Blake2b, Digest as _};
use ring::signature::{Ed25519KeyPair, KeyPair};
use saggar_clock::UnixMillis;

use super::{ALGORITHM, PREHASHED_ALGORITHM, SignatureError, VerifyingKey, format_id};
use crate::durable;

/// Bytes of a secret key's file, decoded.
const KEY_BYTES: usize = 158;
/// The key derivation of a key without a password, and the algorithm of its checksum.
const FORM: &[u8; 6] = b"Ed\0\0B2";
/// Position of the key's ID, which follows the form, a salt and two limits of the key derivation.
const ID_AT: usize = 54;
/// Position of the seed, which the public key follows.
const SEED_AT: usize = 62;
/// Position of the checksum.
const CHECKSUM_AT: usize = 126;

/// A secret key without a password. Anyone who has its file can sign.
pub struct SigningKey {
    pair: Ed25519KeyPair,
    seed: [u8; 32],
    id: [u8; 8],
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("id", &format_id(&self.id)).finish_non_exhaustive()
    }
}

impl SigningKey {
    /// Returns a new key from the system's random numbers.
    pub fn generate() -> SigningKey {
        SigningKey::from_parts(durable::random_bytes(), durable::random_bytes())
    }

    fn from_parts(seed: [u8; 32], id: [u8; 8]) -> SigningKey {
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).expect("a seed has 32 bytes");
        SigningKey { pair, seed, id }
    }

    /// Returns the public key.
    pub fn verifying_key(&self) -> VerifyingKey {
        let bytes = [&ALGORITHM[..], &self.id, self.pair.public_key().as_ref()].concat();
        STANDARD.encode(bytes).parse().expect("a public key that was just encoded")
    }

    /// Returns the content of the key's file.
    pub fn to_file(&self) -> String {
        let mut bytes = [&FORM[..], &[0; 48], &self.id, &self.seed, self.pair.public_key().as_ref()].concat();
        bytes.extend(self.checksum());
        format!("untrusted comment: minisign secret key without a password\n{}\n", STANDARD.encode(bytes))
    }

    fn checksum(&self) -> [u8; 32] {
        let mut hash = Blake2b::<U32>::new();
        for part in [&ALGORITHM[..], &self.id, &self.seed, self.pair.public_key().as_ref()] {
            hash.update(part);
        }
        hash.finalize().into()
    }

    /// Signs a file and returns the content of the signature's file. `name` and `now_ms` are part of the trusted
    /// comment.
    pub fn sign(&self, file: &[u8], name: &str, now_ms: UnixMillis) -> String {
        let hash: [u8; 64] = {
            let mut hash = Blake2b::<U64>::new();
            hash.update(file);
            hash.finalize().into()
        };
        let signature = self.pair.sign(&hash);
        // A comment is one line.
        let name: String = name.chars().map(|c| if c.is_control() { '_' } else { c }).collect();
        let comment = format!("timestamp:{}\tfile:{name}\thashed", now_ms / 1000);
        let global = self.pair.sign(&[signature.as_ref(), comment.as_bytes()].concat());
        let signature = STANDARD.encode([&PREHASHED_ALGORITHM[..], &self.id, signature.as_ref()].concat());
        let global = STANDARD.encode(global);
        let id = format_id(&self.id);
        format!("untrusted comment: signature by the key {id}\n{signature}\ntrusted comment: {comment}\n{global}\n")
    }
}

impl FromStr for SigningKey {
    type Err = SignatureError;

    /// Parses the content of the key's file.
    fn from_str(text: &str) -> Result<SigningKey, SignatureError> {
        let refuse = |reason: &str| SignatureError::BadSecretKey { reason: reason.to_owned() };
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let key = lines.find(|line| !line.starts_with("untrusted comment:")).ok_or_else(|| refuse("it is empty"))?;
        let bytes = STANDARD.decode(key).map_err(|_| refuse("it is not base64"))?;
        if bytes.len() != KEY_BYTES {
            return Err(refuse(&format!("it has {} bytes, not {KEY_BYTES}", bytes.len())));
        }
        match &bytes[..FORM.len()] {
            form if form == FORM => {}
            [b'E', b'd', b'S', b'c', ..] => {
                return Err(refuse("it has a password, which is not supported; sign with the program minisign"));
            }
            _ => return Err(refuse("it has an unknown form")),
        }
        let array = |at: usize| <[u8; 32]>::try_from(&bytes[at..at + 32]).expect("the length was checked");
        let mut id = [0; 8];
        id.copy_from_slice(&bytes[ID_AT..SEED_AT]);
        let read = SigningKey::from_parts(array(SEED_AT), id);
        if read.checksum() != array(CHECKSUM_AT) || read.pair.public_key().as_ref() != &bytes[SEED_AT + 32..CHECKSUM_AT]
        {
            return Err(refuse("its checksum is wrong: the file is damaged"));
        }
        Ok(read)
    }
}
