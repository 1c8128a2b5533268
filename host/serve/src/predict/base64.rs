//! Base64 as JSON carries bytes. Source: RFC 4648, section 4; padding may be left out.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

const PADDED: GeneralPurpose = engine(DecodePaddingMode::RequireCanonical);
const UNPADDED: GeneralPurpose = engine(DecodePaddingMode::RequireNone);

/// A text's last digit may have bits that are no byte's: other decoders take them too.
const fn engine(padding: DecodePaddingMode) -> GeneralPurpose {
    let config = GeneralPurposeConfig::new().with_decode_padding_mode(padding);
    GeneralPurpose::new(&STANDARD, config.with_decode_allow_trailing_bits(true))
}

/// The bytes that `text` stands for; none where it is no base64.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    // Some padding, but not all of it, is a text that was cut.
    let engine = if text.ends_with('=') { PADDED } else { UNPADDED };
    engine.decode(text).ok()
}

/// `bytes` in base64, padded.
pub(crate) fn encode(bytes: &[u8]) -> String {
    PADDED.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of RFC 4648, section 10, and what is none.
    #[test]
    fn the_test_vectors_of_rfc_4648_round_trip() {
        let vectors = [
            ("", ""),
            ("Zg==", "f"),
            ("Zm8=", "fo"),
            ("Zm9v", "foo"),
            ("Zm9vYg==", "foob"),
            ("Zm9vYmE=", "fooba"),
            ("Zm9vYmFy", "foobar"),
            ("Zm9vYg", "foob"),
        ];
        for (text, bytes) in vectors {
            assert_eq!(decode(text).as_deref(), Some(bytes.as_bytes()), "{text}");
            assert_eq!(encode(bytes.as_bytes()).trim_end_matches('='), text.trim_end_matches('='));
        }
        assert_eq!([encode(b"f"), encode(b"fo"), encode(b"foo")], ["Zg==", "Zm8=", "Zm9v"]);
        assert_eq!(decode("+/+/").unwrap(), [0xfb, 0xff, 0xbf]);
        for bad in ["Z", "Zg=", "Zg===", "Zm9v=", "Z g=", "Zm9-", "=", "Zm9vY"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }
}
