//! Seals documents that the database must not be able to read, such as secrets.
//!
//! A sealed text is `sealed1:` and the hexadecimal digits of a random nonce, the encrypted text and its tag (AES-256 in
//! Galois/counter mode). The name of the document is authenticated with it, so that no document can be put in the place of
//! another.

use std::fmt;
use std::sync::Arc;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use crate::durable;

/// Bytes of a key.
const KEY_BYTES: usize = 32;
/// The beginning of a sealed text.
const PREFIX: &str = "sealed1:";

/// A key that seals documents. Clones are the same key.
#[derive(Clone)]
pub struct SealingKey(Arc<LessSafeKey>);

impl fmt::Debug for SealingKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SealingKey")
    }
}

impl SealingKey {
    /// Parses 64 hexadecimal digits. Returns `None` for other text.
    pub fn parse(text: &str) -> Option<SealingKey> {
        let bytes = decode_hex(text.trim()).filter(|bytes| bytes.len() == KEY_BYTES)?;
        Some(SealingKey(Arc::new(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &bytes).ok()?))))
    }

    /// Seals the text of a document.
    pub(crate) fn seal(&self, name: &str, text: &str) -> String {
        let nonce = durable::random_bytes::<NONCE_LEN>();
        let mut bytes = text.as_bytes().to_vec();
        self.0
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(name), &mut bytes)
            .expect("a document is shorter than the cipher's limit");
        let digits = nonce.iter().chain(&bytes).map(|byte| format!("{byte:02x}"));
        digits.fold(PREFIX.to_owned(), |sealed, digits| sealed + &digits)
    }

    /// Returns the text of a sealed document, or `None` if it was sealed with another key, under another name, or changed.
    pub(crate) fn open(&self, name: &str, sealed: &str) -> Option<String> {
        let bytes = decode_hex(sealed.strip_prefix(PREFIX)?)?;
        let (nonce, sealed) = bytes.split_at_checked(NONCE_LEN)?;
        let mut sealed = sealed.to_vec();
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let text = self.0.open_in_place(nonce, Aad::from(name), &mut sealed).ok()?;
        String::from_utf8(text.to_vec()).ok()
    }
}

fn decode_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    digits.chunks(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_key_and_the_name_of_a_document_open_it() {
        let key = SealingKey::parse(&"0f".repeat(32)).unwrap();
        let sealed = key.seal("secrets", "hunter2 ü");
        assert!(!sealed.contains("hunter2") && sealed != key.seal("secrets", "hunter2 ü"), "{sealed}");
        assert_eq!(key.open("secrets", &sealed).as_deref(), Some("hunter2 ü"));
        assert_eq!(key.open("keys", &sealed), None);
        assert_eq!(SealingKey::parse(&"f0".repeat(32)).unwrap().open("secrets", &sealed), None);
        let changed = sealed.replace(&sealed[sealed.len() - 2..], if sealed.ends_with("00") { "01" } else { "00" });
        assert_eq!(key.open("secrets", &changed), None);
        for bad in ["", "{}", "sealed1:", "sealed1:00", "sealed1:0", "sealed1:zz"] {
            assert_eq!(key.open("secrets", bad), None, "{bad}");
        }
        for bad in ["", "0f", &"0f".repeat(31), &"zz".repeat(32), &"0f".repeat(33)] {
            assert!(SealingKey::parse(bad).is_none(), "{bad}");
        }
        assert_eq!(format!("{key:?}"), "SealingKey");
    }
}
