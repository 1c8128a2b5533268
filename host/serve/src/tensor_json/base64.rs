//! Base64 decoding and encoding for bytes in JSON. Source: RFC 4648, section 4. Padding can be omitted.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

const PADDED: GeneralPurpose = engine(DecodePaddingMode::RequireCanonical);
const UNPADDED: GeneralPurpose = engine(DecodePaddingMode::RequireNone);

/// The last digit can contain bits beyond the last byte, which other decoders accept too.
const fn engine(padding: DecodePaddingMode) -> GeneralPurpose {
    let config = GeneralPurposeConfig::new().with_decode_padding_mode(padding);
    GeneralPurpose::new(&STANDARD, config.with_decode_allow_trailing_bits(true))
}

/// Decodes `text`. Returns `None` if it is not valid base64.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    // Incomplete padding means that the text was truncated.
    let engine = if text.ends_with('=') { PADDED } else { UNPADDED };
    engine.decode(text).ok()
}

/// Encodes `bytes` with padding.
pub(crate) fn encode(bytes: &[u8]) -> String {
    PADDED.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of RFC 4648, section 10, and invalid texts.
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
