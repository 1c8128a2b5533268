//! Base64 as JSON carries bytes. Source: RFC 4648, section 4; padding may be left out.

/// The bytes that `text` stands for; none where it is no base64.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let text = text.as_bytes();
    let padding = text.iter().rev().take_while(|&&byte| byte == b'=').count();
    let digits = &text[..text.len() - padding];
    let short = digits.len() % 4;
    if short == 1 || padding > 0 && padding != (4 - short) % 4 {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for group in digits.chunks(4) {
        let mut bits = 0u32;
        for at in 0..4 {
            bits = bits << 6 | group.get(at).map_or(Some(0), |&digit| value(digit))?;
        }
        bytes.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    Some(bytes)
}

/// `bytes` in base64, padded.
pub(crate) fn encode(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * at)) as usize & 63];
            text.push(if at <= group.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

fn value(digit: u8) -> Option<u32> {
    let value = match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(value.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of RFC 4648, section 10, and what is none.
    #[test]
    fn the_standards_vectors() {
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
