//! Addresses of buckets: `s3://BUCKET/PREFIX`.

use std::fmt;

use object_store::path::Path;

/// The beginning of an address.
const SCHEME: &str = "s3://";

/// The parts of an address `s3://BUCKET/PREFIX`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct S3Address {
    pub(super) bucket: String,
    /// Empty if the objects are at the top of the bucket.
    pub(super) prefix: String,
}

impl S3Address {
    /// Parses an address.
    ///
    /// # Errors
    /// Returns a sentence without secrets that says what is wrong and what was expected.
    pub(super) fn parse(address: &str) -> Result<S3Address, String> {
        let rest = address.strip_prefix(SCHEME).ok_or("expected s3://BUCKET/PREFIX")?;
        if rest.contains('@') {
            let reason = "an address has no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
            return Err(reason.to_owned());
        }
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let is_bucket = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-_".contains(&byte);
        if bucket.len() < 3 || bucket.len() > 63 || !bucket.bytes().all(is_bucket) {
            return Err(format!(
                "`{bucket}` cannot be the name of a bucket: expected 3 to 63 lower-case letters, digits, `.`, `-` or `_`"
            ));
        }
        let prefix = prefix.trim_end_matches('/');
        if Path::parse(prefix).is_err() {
            return Err(format!("`{prefix}` cannot be a prefix: parts between `/` must not be empty, `.` or `..`"));
        }
        Ok(S3Address { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
    }
}

impl fmt::Display for S3Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", self.bucket)?;
        if self.prefix.is_empty() { Ok(()) } else { write!(f, "/{}", self.prefix) }
    }
}

/// Returns an address without the part that could be a password.
pub(super) fn redact(address: &str) -> String {
    match address.rsplit_once('@') {
        Some((_, rest)) => format!("{SCHEME}...@{rest}"),
        None => address.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_bucket_and_a_prefix() {
        let parse = |address| S3Address::parse(address).map(|it| (it.to_string(), it.bucket, it.prefix));
        let parts =
            |text: &str, bucket: &str, prefix: &str| Ok((text.to_owned(), bucket.to_owned(), prefix.to_owned()));
        assert_eq!(parse("s3://models"), parts("s3://models", "models", ""));
        assert_eq!(parse("s3://models/"), parts("s3://models", "models", ""));
        assert_eq!(parse("s3://models/a/b/"), parts("s3://models/a/b", "models", "a/b"));
        let wrong = ["models", "gs://models", "s3://", "s3:///x", "s3://Models", "s3://ab", "s3://models/a//b"];
        for address in wrong.into_iter().chain(["s3://models/../b", "s3://models?x=y"]) {
            assert!(parse(address).is_err(), "{address}");
        }
    }

    #[test]
    fn a_secret_in_an_address_is_refused_and_not_repeated() {
        let reason = S3Address::parse("s3://key:secret@models/x").unwrap_err();
        assert!(reason.contains("AWS_SECRET_ACCESS_KEY") && !reason.contains("secret@"), "{reason}");
        assert_eq!(redact("s3://key:secret@models/x"), "s3://...@models/x");
    }
}
