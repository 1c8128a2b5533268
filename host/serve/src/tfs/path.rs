//! Parses paths under `/v1/`: `models/NAME[/versions/N|/labels/L][:METHOD|/metadata]`. Matching is case-insensitive; a
//! name is any text without `/` and `:`, percent-encoded where necessary.

use super::error::TfsError;

/// The maximum length of a name; no model here has a longer one.
const NAME_BYTES_MAX: usize = 256;

/// A request as determined by its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TfsRequest {
    /// The names of all models.
    Models,
    /// The status of a model's versions.
    Status(ServableTarget),
    /// A model's signature.
    Metadata(ServableTarget),
    /// A prediction.
    Predict(ServableTarget),
    /// A prediction, returned as classes with scores.
    Classify(ServableTarget),
    /// A prediction, returned as one number.
    Regress(ServableTarget),
}

/// A model and one of its versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServableTarget {
    pub(super) model: String,
    pub(super) which: ServableVersion,
}

/// The requested version of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ServableVersion {
    Latest,
    Number(u64),
    Label(String),
}

/// Parses a request's path, which begins with `/v1/`.
///
/// # Errors
/// Returns `Malformed` if the path is not one of this interface, and `Version` if a version number is beyond 63 bits.
pub(super) fn parse_path(method: &str, path: &str) -> Result<TfsRequest, TfsError> {
    let shorten = |text: &str, most: usize| text.chars().take(most).collect::<String>();
    let malformed = || TfsError::Malformed { method: shorten(method, 40), path: shorten(path, 200) };
    let parts: Vec<&str> = path.split('/').collect();
    let [_, _, models, rest @ ..] = parts.as_slice() else { return Err(malformed()) };
    if !models.eq_ignore_ascii_case("models") || rest.len() > 4 {
        return Err(malformed());
    }
    let is_get = method == "GET";
    let Some((last, before)) = rest.split_last() else {
        return if is_get { Ok(TfsRequest::Models) } else { Err(malformed()) };
    };
    if let Some((last, verb)) = last.split_once(':') {
        let parts: Vec<&str> = before.iter().copied().chain([last]).collect();
        let asked = match verb.to_ascii_lowercase().as_str() {
            "predict" => TfsRequest::Predict,
            "classify" => TfsRequest::Classify,
            "regress" => TfsRequest::Regress,
            _ => return Err(malformed()),
        };
        let target = parse_target(&parts).ok_or_else(malformed)?;
        return if method == "POST" { Ok(asked(target?)) } else { Err(malformed()) };
    }
    if !is_get {
        return Err(malformed());
    }
    if before.len() % 2 == 1 && last.eq_ignore_ascii_case("metadata") {
        return Ok(TfsRequest::Metadata(parse_target(before).ok_or_else(malformed)??));
    }
    Ok(TfsRequest::Status(parse_target(rest).ok_or_else(malformed)??))
}

/// Parses `NAME`, `NAME versions N` or `NAME labels L`.
fn parse_target(parts: &[&str]) -> Option<Result<ServableTarget, TfsError>> {
    let (name, which) = match parts {
        [name] => (name, ServableVersion::Latest),
        [name, kind, number] if kind.eq_ignore_ascii_case("versions") => {
            if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            match number.parse::<i64>() {
                Ok(version) => (name, ServableVersion::Number(version.unsigned_abs())),
                Err(_) => return Some(Err(TfsError::Version { version: number.chars().take(40).collect() })),
            }
        }
        [name, kind, label] if kind.eq_ignore_ascii_case("labels") => {
            (name, ServableVersion::Label(percent_decode(label)?))
        }
        _ => return None,
    };
    Some(Ok(ServableTarget { model: percent_decode(name)?, which }))
}

/// Decodes percent-encoded text. Returns `None` if it is empty, contains a `:`, or is not UTF-8 after decoding.
fn percent_decode(text: &str) -> Option<String> {
    if text.is_empty() || text.contains(':') || text.len() > 3 * NAME_BYTES_MAX {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(if byte == b'%' { hex_digit(rest.next()?)? << 4 | hex_digit(rest.next()?)? } else { byte });
    }
    String::from_utf8(bytes).ok()
}

fn hex_digit(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(model: &str, which: ServableVersion) -> ServableTarget {
        ServableTarget { model: model.to_owned(), which }
    }

    #[test]
    fn paths_of_every_form_are_parsed() {
        let check = |method: &str, path: &str, expected: TfsRequest| {
            assert_eq!(parse_path(method, path), Ok(expected), "{path}")
        };
        let (latest, label) = (ServableVersion::Latest, |label: &str| ServableVersion::Label(label.to_owned()));
        check("GET", "/v1/models", TfsRequest::Models);
        check("GET", "/v1/models/foo", TfsRequest::Status(target("foo", latest.clone())));
        check("GET", "/V1/Models/foo/Versions/50", TfsRequest::Status(target("foo", ServableVersion::Number(50))));
        check("GET", "/v1/models/foo/labels/canary", TfsRequest::Status(target("foo", label("canary"))));
        check("GET", "/v1/models/foo/metadata", TfsRequest::Metadata(target("foo", latest.clone())));
        check(
            "GET",
            "/v1/models/foo/versions/1/metadata",
            TfsRequest::Metadata(target("foo", ServableVersion::Number(1))),
        );
        check("GET", "/v1/models/metadata", TfsRequest::Status(target("metadata", latest.clone())));
        check("POST", "/v1/models/foo:predict", TfsRequest::Predict(target("foo", latest.clone())));
        check("POST", "/v1/models/foo:PREDICT", TfsRequest::Predict(target("foo", latest.clone())));
        check(
            "POST",
            "/v1/models/foo/versions/7:regress",
            TfsRequest::Regress(target("foo", ServableVersion::Number(7))),
        );
        check("POST", "/v1/models/foo/labels/stable:classify", TfsRequest::Classify(target("foo", label("stable"))));
        check("POST", "/v1/models/a%20b%2Fc%C3%A9:predict", TfsRequest::Predict(target("a b/cé", latest)));
    }

    /// The calls that the tests of TensorFlow Serving's handler refuse, and some more.
    #[test]
    fn unsupported_api_calls() {
        let calls = [
            ("GET", "/v1/foo"),
            ("POST", "/v1/foo"),
            ("POST", "/v1/models"),
            ("GET", "/v1/models/foo:predict"),
            ("GET", "/v1/models/foo/version/50:predict"),
            ("POST", "/v1/models/foo/version/50:regress"),
            ("POST", "/v1/models/foo/versions/HELLO:regress"),
            ("POST", "/v1/models/foo/metadata"),
            ("POST", "/v1/models/foo"),
            ("GET", "/v1/models/foo/versions"),
            ("GET", "/v1/models/foo/versions/"),
            ("GET", "/v1/models/foo/versions/1/labels/a"),
            ("POST", "/v1/models/foo:predict/metadata"),
            ("POST", "/v1/models/foo:explain"),
            ("POST", "/v1/models/:predict"),
            ("POST", "/v1/models/foo%:predict"),
            ("POST", "/v1/models/foo%ff:predict"),
            ("DELETE", "/v1/models/foo"),
            ("GET", "/v1/"),
        ];
        for (method, path) in calls {
            let error = parse_path(method, path).unwrap_err();
            assert_eq!(error.to_string(), format!("Malformed request: {method} {path}"));
        }
        let error = parse_path("POST", "/v1/models/foo/versions/18446744073709551615:regress").unwrap_err();
        assert_eq!(error.to_string(), "Failed to convert version: 18446744073709551615 to numeric.");
    }
}
