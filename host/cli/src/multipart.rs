//! Encodes multipart forms. Source: RFC 7578.

use std::borrow::Cow;

use crate::exit::CliError;

/// The boundary between parts. Its digits make a collision with a file's content unlikely, and collisions are detected.
const BOUNDARY: &str = "saggar-7f3b0c52e1d94a68";

/// The content of a form field.
#[derive(Clone, Debug)]
pub(crate) struct FormPart<'a> {
    /// The file name; `None` for a field that is not a file.
    pub(crate) file_name: Option<Cow<'a, str>>,
    pub(crate) content_type: &'static str,
    pub(crate) bytes: Cow<'a, [u8]>,
}

impl<'a> FormPart<'a> {
    /// Returns a file without a specific content type.
    pub(crate) fn file(name: &'a str, bytes: &'a [u8]) -> FormPart<'a> {
        FormPart { file_name: Some(name.into()), content_type: "application/octet-stream", bytes: bytes.into() }
    }
}

/// Returns the content type and the body of a form with these named fields.
///
/// # Errors
/// Returns an error with the field's name if its content contains the boundary.
pub(crate) fn encode_form<'a>(
    parts: impl IntoIterator<Item = (&'a str, FormPart<'a>)>,
) -> Result<(String, Vec<u8>), CliError> {
    let mut body = Vec::new();
    for (name, part) in parts {
        if part.bytes.windows(BOUNDARY.len()).any(|window| window == BOUNDARY.as_bytes()) {
            let message = format!("input {name} contains the text {BOUNDARY}, which separates the inputs");
            return Err(CliError::invalid(message));
        }
        let quoted = |text: &str| text.replace(['"', '\r', '\n'], "_");
        let file = part.file_name.map(|file| format!("; filename=\"{}\"", quoted(&file))).unwrap_or_default();
        let begin = format!(
            "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{}\"{file}\r\nContent-Type: {}\r\n\r\n",
            quoted(name),
            part.content_type
        );
        body.extend_from_slice(begin.as_bytes());
        body.extend_from_slice(&part.bytes);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{BOUNDARY}--\r\n").as_bytes());
    Ok((format!("multipart/form-data; boundary={BOUNDARY}"), body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_contains_the_boundary_is_refused() {
        assert!(encode_form([("x", FormPart::file("x", BOUNDARY.as_bytes()))]).is_err());
    }

    #[test]
    fn quotes_and_line_breaks_in_part_names_are_replaced() {
        let (_, body) = encode_form([("x\"\r\ny", FormPart::file("a\"b", b"1"))]).unwrap();
        let body = String::from_utf8(body).unwrap();
        assert!(body.contains("name=\"x___y\"; filename=\"a_b\"\r\n"), "{body}");
    }
}
