//! Errors of a store on another machine: what it answered, in one line, and how to fix it.
//!
//! The crate `object_store` has these facts only in its messages, which contain the answer's XML.

use object_store::Error;

use crate::error::{RemoteFailure, StoreError};

/// Longest part of an answer that is repeated in a message, in characters.
const ANSWER_CHARS_MAX: usize = 300;

/// The codes of answers that have one fix, each with it.
const FIXES: [(&[&str], &str); 10] = [
    (&["NoSuchBucket"], "create the bucket, or name an existing one"),
    (
        &["InvalidAccessKeyId", "SignatureDoesNotMatch"],
        "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the file of credentials",
    ),
    (
        &["ExpiredToken", "InvalidToken", "TokenRefreshRequired"],
        "renew the credentials: those of a file (AWS_SHARED_CREDENTIALS_FILE) are read again for each request, those of \
         AWS_SESSION_TOKEN when the server starts",
    ),
    (&["RequestTimeTooSkewed", "RequestExpired"], "set this machine's clock: `saggar doctor` shows the difference"),
    (&["AuthorizationHeaderMalformed", "PermanentRedirect"], "set AWS_REGION to the region of the bucket"),
    (
        &["AccessDenied"],
        "allow the key s3:GetObject, s3:PutObject, s3:DeleteObject and s3:ListBucket for the bucket and its objects",
    ),
    (&["SlowDown", "ServiceUnavailable", "InternalError"], "the store is overloaded or failing: try again later"),
    (
        &["UnknownIssuer"],
        "set AWS_CA_BUNDLE to a PEM file with the certificate of the authority that has signed that of the store",
    ),
    (
        &["NotValidForName", "certificate not valid for name"],
        "use a host name in AWS_ENDPOINT_URL that the store's certificate has",
    ),
    (&["QuotaExceeded", "XMinioStorageFull"], "the store is full: remove data, for example with `saggar gc`"),
];
const NO_CREDENTIALS_FIX: &str =
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE for a file of credentials";
const UNREACHABLE_FIX: &str = "check AWS_ENDPOINT_URL and that the store can be reached from this machine";
const OTHER_FIX: &str = "`saggar doctor` checks the store";

/// Returns a function that makes an error of the object `name` in the store `address`.
pub(in crate::objects) fn explain_failure(address: &str, name: &str) -> impl FnOnce(Error) -> StoreError {
    move |error| {
        let text = error.to_string();
        // An answer to HEAD has no code. A missing bucket is found by the other requests.
        if matches!(error, Error::NotFound { .. }) && code_of(&text) != Some("NoSuchBucket") {
            return StoreError::NotFound { name: name.to_owned() };
        }
        let (reason, fix) = describe(&text);
        StoreError::Remote {
            store: address.to_owned(),
            name: name.to_owned(),
            reason,
            fix,
            source: RemoteFailure(Box::new(error)),
        }
    }
}

fn code_of(text: &str) -> Option<&str> {
    element(text, "Code")
}

/// Returns the content of an XML element without children.
fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    Some(rest.split_once("</")?.0)
}

/// Returns what happened, and how to fix it, from the crate's message.
fn describe(text: &str) -> (String, &'static str) {
    let method = text.split_once("Error performing ").and_then(|(_, rest)| rest.split(' ').next());
    let retries = text.split_once(", after ").and_then(|(_, rest)| rest.split_once(" retries")).map(|it| it.0);
    let happened = if let Some((_, answer)) = text.split_once("status code: ") {
        let (status, body) = answer.split_once(": ").unwrap_or((answer, ""));
        let detail = match (code_of(body), element(body, "Message")) {
            (Some(code), Some(message)) => format!("{code}: {message}"),
            (Some(code), None) => code.to_owned(),
            (None, _) => body.trim().to_owned(),
        };
        format!("answered {status} {detail}").trim_end().to_owned()
    } else if text.contains("without LOCATION") {
        "answered with a redirection: PermanentRedirect".to_owned()
    } else {
        // The crate repeats the causes at the end, and begins with the address.
        let cause = text.rsplit_once("HTTP error: ").map_or(text, |(_, cause)| cause);
        format!("failed: {cause}")
    };
    let happened: String = happened.chars().take(ANSWER_CHARS_MAX).collect();
    let times = retries.map_or_else(String::new, |count| format!(" ({count} retries)"));
    let is_about_credentials = text.contains("/latest/") || text.contains("credentials");
    let reason = match method {
        _ if is_about_credentials => {
            format!("there are no credentials, and the metadata service of a cloud {happened}")
        }
        Some(method) => format!("{method} {happened}{times}"),
        None => happened.clone(),
    };
    let fix = if is_about_credentials { Some(NO_CREDENTIALS_FIX) } else { find_fix(text, &happened) };
    (reason, fix.unwrap_or(OTHER_FIX))
}

fn find_fix(text: &str, happened: &str) -> Option<&'static str> {
    let known = FIXES.iter().find(|(codes, _)| codes.iter().any(|code| happened.contains(code)));
    if let Some((_, fix)) = known {
        return Some(fix);
    }
    if text.contains("HTTP error: ") {
        return Some(UNREACHABLE_FIX);
    }
    let status = happened.split_once("answered ").map_or("", |(_, rest)| rest);
    let code = match status.split(' ').next()? {
        "401" | "403" => "AccessDenied",
        "301" | "307" => "PermanentRedirect",
        number if number.starts_with('5') || number == "429" => "SlowDown",
        _ => return None,
    };
    FIXES.iter().find(|(codes, _)| codes.contains(&code)).map(|(_, fix)| *fix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_say_what_happened_and_how_to_fix_it() {
        let check = |text: &str, reason: &str, fix: &str| {
            let (found, by) = describe(text);
            assert_eq!(found, reason);
            assert!(by.contains(fix), "{by}");
        };
        check(
            "Generic S3 error: Error performing PUT http://h/b/k in 3.1s, after 6 retries, max_retries: 6, \
             retry_timeout: 30s  - Server returned non-2xx status code: 503 Service Unavailable: ",
            "PUT answered 503 Service Unavailable (6 retries)",
            "overloaded",
        );
        check(
            "Error performing GET http://h/b?list-type=2 in 3ms - Server returned non-2xx status code: 404 Not Found: \
             <?xml version=\"1.0\"?><Error><Code>NoSuchBucket</Code><Message>The bucket does not exist</Message></Error>",
            "GET answered 404 Not Found NoSuchBucket: The bucket does not exist",
            "create the bucket",
        );
        check(
            "Error performing PUT http://h/b/k in 3ms - Server returned non-2xx status code: 403 Forbidden: \
             <Error><Code>RequestTimeTooSkewed</Code></Error>",
            "PUT answered 403 Forbidden RequestTimeTooSkewed",
            "clock",
        );
        check(
            "Error performing HEAD http://h/b/k in 3ms - Server returned non-2xx status code: 403 Forbidden: ",
            "HEAD answered 403 Forbidden",
            "s3:PutObject",
        );
        check(
            "Error performing PUT http://h/b/k in 5s, after 2 retries, max_retries: 2, retry_timeout: 30s  - HTTP error: \
             client error (Connect): tcp connect error: Connection refused (os error 111)",
            "PUT failed: client error (Connect): tcp connect error: Connection refused (os error 111) (2 retries)",
            "AWS_ENDPOINT_URL",
        );
        check(
            "Error performing PUT http://169.254.169.254/latest/api/token in 5s - HTTP error: client error (Connect)",
            "there are no credentials, and the metadata service of a cloud failed: client error (Connect)",
            "AWS_SECRET_ACCESS_KEY",
        );
        check(
            "Error performing PUT http://h/b/k in 1ms - Received redirect without LOCATION, this normally indicates an \
             incorrectly configured region",
            "PUT answered with a redirection: PermanentRedirect",
            "AWS_REGION",
        );
    }
}
