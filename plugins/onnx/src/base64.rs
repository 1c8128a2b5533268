//! Base64 in the alphabet of RFC 4648. A configuration is JSON, which cannot hold bytes.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Encodes bytes as base64.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let letter = ALPHABET[(bits >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

/// Decodes base64. Returns `None` if the text is not base64.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let text = text.as_bytes();
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let unpadded_len = text.iter().rposition(|&letter| letter != b'=').map_or(0, |last| last + 1);
    if text.len() - unpadded_len > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(unpadded_len * 3 / 4);
    for chunk in text[..unpadded_len].chunks(4) {
        let mut bits = 0;
        for &letter in chunk {
            bits = bits << 6 | letter_value(letter)?;
        }
        bits <<= 6 * (4 - chunk.len());
        bytes.extend_from_slice(&bits.to_be_bytes()[1..chunk.len()]);
    }
    Some(bytes)
}

fn letter_value(letter: u8) -> Option<u32> {
    Some(u32::from(match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_round_trips_bytes() {
        let bytes: Vec<u8> = (0..=255).collect();
        for length in 0..bytes.len() {
            assert_eq!(decode(&encode(&bytes[..length])).unwrap(), bytes[..length]);
        }
        assert_eq!(encode(b"ab"), "YWI=");
    }

    #[test]
    fn invalid_base64_is_refused() {
        for text in ["YWI", "YW I", "====", "Y===", "YWI=YWI="] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
