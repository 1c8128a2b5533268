//! What a connection to a bucket needs besides its address, from the environment variables of Amazon's own programs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::{BackoffConfig, RetryConfig};

use super::address::{S3Address, redact};
use super::credentials_file::{CredentialsFile, FileCredentials};
use super::http_client::RequestTimeouts;
use crate::error::StoreError;
use crate::limits::{S3_RETRIES_MAX, S3_RETRY_PAUSE_MAX, S3_RETRY_TIME_MAX};

const ACCESS_KEY: &str = "AWS_ACCESS_KEY_ID";
const SECRET_KEY: &str = "AWS_SECRET_ACCESS_KEY";
const WEB_IDENTITY_TOKEN_FILE: &str = "AWS_WEB_IDENTITY_TOKEN_FILE";
const ENDPOINT: &str = "AWS_ENDPOINT_URL";
const S3_ENDPOINT: &str = "AWS_ENDPOINT_URL_S3";
/// A file of certificates in PEM form to trust besides the public authorities.
const AUTHORITIES: &str = "AWS_CA_BUNDLE";

/// The variables that are passed on, each with its setting. A later one takes precedence. Other variables that the crate
/// knows are not read, because some of them switch off what correctness depends on, such as conditional requests.
const VARIABLES: [(&str, AmazonS3ConfigKey); 13] = [
    (ACCESS_KEY, AmazonS3ConfigKey::AccessKeyId),
    (SECRET_KEY, AmazonS3ConfigKey::SecretAccessKey),
    ("AWS_SESSION_TOKEN", AmazonS3ConfigKey::Token),
    ("AWS_DEFAULT_REGION", AmazonS3ConfigKey::Region),
    ("AWS_REGION", AmazonS3ConfigKey::Region),
    (ENDPOINT, AmazonS3ConfigKey::Endpoint),
    (S3_ENDPOINT, AmazonS3ConfigKey::Endpoint),
    // The identity of a container.
    (WEB_IDENTITY_TOKEN_FILE, AmazonS3ConfigKey::WebIdentityTokenFile),
    ("AWS_ROLE_ARN", AmazonS3ConfigKey::RoleArn),
    ("AWS_ROLE_SESSION_NAME", AmazonS3ConfigKey::RoleSessionName),
    ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", AmazonS3ConfigKey::ContainerCredentialsRelativeUri),
    ("AWS_CONTAINER_CREDENTIALS_FULL_URI", AmazonS3ConfigKey::ContainerCredentialsFullUri),
    ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", AmazonS3ConfigKey::ContainerAuthorizationTokenFile),
];

/// What a connection to a bucket needs.
#[derive(Debug)]
pub struct S3Settings {
    pub(super) address: S3Address,
    /// Credentials, region and endpoint.
    pub(super) builder: AmazonS3Builder,
    /// A file of certificates in PEM form to trust besides the public authorities.
    pub(super) authorities: Option<PathBuf>,
    pub(super) timeouts: RequestTimeouts,
    /// How often and how long a request is repeated that failed for a reason of the network or of the store.
    pub(super) retry: RetryConfig,
}

impl S3Settings {
    /// Parses an address, and reads the settings. `variable` returns the value of an environment variable that is set and
    /// not empty.
    ///
    /// # Errors
    /// Returns `BadStoreAddress`.
    pub fn read(address: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<S3Settings, StoreError> {
        let refuse = |reason: String| StoreError::BadStoreAddress { address: redact(address), reason };
        S3Address::parse(address).and_then(|address| S3Settings::for_address(address, variable)).map_err(refuse)
    }

    /// Returns the settings with other limits: the time to wait for a connection, the time to wait for an answer or its
    /// next bytes, and the time from the beginning of a request after which it is not repeated.
    #[must_use]
    pub fn with_limits(mut self, connect: Duration, answer: Duration, retry: Duration) -> S3Settings {
        self.timeouts = RequestTimeouts { connect, answer };
        self.retry.retry_timeout = retry;
        self
    }

    fn for_address(address: S3Address, variable: &dyn Fn(&str) -> Option<String>) -> Result<S3Settings, String> {
        let mut builder = AmazonS3Builder::new();
        for (name, key) in VARIABLES {
            if let Some(value) = variable(name) {
                builder = builder.with_config(key, value);
            }
        }
        if let Some(endpoint) = variable(S3_ENDPOINT).or_else(|| variable(ENDPOINT)) {
            if !endpoint.starts_with("http://") && !endpoint.starts_with("https://") {
                return Err(format!("{ENDPOINT} is `{endpoint}`: expected a URL such as https://objects.example.com"));
            }
            // An endpoint without TLS is a decision of the user who set it.
            builder = builder.with_allow_http(endpoint.starts_with("http://"));
        }
        match (variable(ACCESS_KEY), variable(SECRET_KEY)) {
            (Some(_), Some(_)) => {}
            (Some(_), None) => return Err(format!("{ACCESS_KEY} is set and {SECRET_KEY} is not: set both")),
            (None, Some(_)) => return Err(format!("{SECRET_KEY} is set and {ACCESS_KEY} is not: set both")),
            (None, None) if variable(WEB_IDENTITY_TOKEN_FILE).is_some() => {}
            (None, None) => {
                if let Some(file) = CredentialsFile::find(variable)? {
                    builder = builder.with_credentials(Arc::new(FileCredentials::read(file)?));
                }
            }
        }
        let backoff = BackoffConfig { max_backoff: S3_RETRY_PAUSE_MAX, ..BackoffConfig::default() };
        Ok(S3Settings {
            address,
            builder,
            authorities: variable(AUTHORITIES).map(PathBuf::from),
            timeouts: RequestTimeouts { connect: Duration::from_secs(5), answer: Duration::from_secs(30) },
            retry: RetryConfig { backoff, max_retries: S3_RETRIES_MAX, retry_timeout: S3_RETRY_TIME_MAX },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<S3Settings, String> {
        let value = |name: &str| variables.iter().find(|it| it.0 == name).map(|it| it.1.to_owned());
        S3Settings::for_address(S3Address::parse("s3://models").unwrap(), &value)
    }

    #[test]
    fn the_more_specific_variable_takes_precedence() {
        let settings = read(&[
            (S3_ENDPOINT, "http://127.0.0.1:1"),
            (ENDPOINT, "https://elsewhere"),
            ("AWS_REGION", "eu-central-1"),
            ("AWS_DEFAULT_REGION", "us-west-1"),
        ]);
        let builder = settings.unwrap().builder;
        let value = |key| builder.get_config_value(&key).unwrap();
        assert_eq!(value(AmazonS3ConfigKey::Endpoint), "http://127.0.0.1:1");
        assert_eq!(value(AmazonS3ConfigKey::Region), "eu-central-1");
    }

    #[test]
    fn incomplete_settings_are_refused_with_the_variable_to_set() {
        for (variable, missing) in [(ACCESS_KEY, SECRET_KEY), (SECRET_KEY, ACCESS_KEY)] {
            let reason = read(&[(variable, "value")]).unwrap_err();
            assert!(reason.contains(&format!("{missing} is not: set both")) && !reason.contains("value"), "{reason}");
        }
        let reason = read(&[(ENDPOINT, "localhost:9000")]).unwrap_err();
        assert!(reason.contains("AWS_ENDPOINT_URL is `localhost:9000`"), "{reason}");
    }
}
