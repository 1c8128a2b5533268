//! `/api/v1/keys`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The pattern of the names of keys and projects.
const NAME_PATTERN: &str = "^[a-z0-9][a-z0-9._-]{0,62}$";

/// The pattern of the names of scopes.
const SCOPE_PATTERN: &str = "^(predict|jobs:read|jobs:write|models:write|metrics:read|admin)$";

/// The keys of clients, without their secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Keys")]
pub struct KeyListDocument {
    /// The keys.
    pub keys: Vec<KeyDocument>,
}

/// A key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Key")]
pub struct KeyDocument {
    /// The part of the key that identifies it, which is not secret.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its scopes.
    pub scopes: Vec<String>,
    /// The projects whose jobs it sees; null if it sees all.
    pub projects: Option<Vec<String>>,
    /// The limit on requests in a short time, such as `100/s`.
    pub rate: Option<String>,
    /// The limit on requests per day or month, such as `10000/d`.
    pub quota: Option<String>,
    /// The limit on its jobs that run at once.
    pub max_running_jobs: Option<u32>,
    /// The limit on device seconds of its jobs.
    pub gpu_seconds: Option<u64>,
    /// The requests of its quota that it has used.
    pub quota_used: Option<u64>,
    /// When it was created, in Unix milliseconds.
    pub created_ms: u64,
    /// When it expires, in Unix milliseconds.
    pub expires_ms: Option<u64>,
    /// The key itself, only in the response that creates it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// Creates a key. An omitted limit means no limit.
// `Scope`, `Rate` and `Quota` are the types of scopes and limits, which the server parses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    bound(deserialize = "Scope: Deserialize<'de>, Rate: Deserialize<'de>, Quota: Deserialize<'de>")
)]
#[schemars(rename = "NewKey", bound = "Scope: JsonSchema, Rate: JsonSchema + Serialize, Quota: JsonSchema + Serialize")]
pub struct KeyRequest<Scope = String, Rate = String, Quota = String> {
    /// Its name.
    #[schemars(regex(pattern = NAME_PATTERN))]
    pub name: String,
    /// Its scopes.
    #[schemars(length(min = 1), inner(regex(pattern = SCOPE_PATTERN)))]
    pub scopes: Vec<Scope>,
    /// The projects whose jobs it sees; all if omitted. Not with the scope `admin`.
    #[serde(default)]
    #[schemars(length(min = 1, max = 64), inner(regex(pattern = NAME_PATTERN)))]
    pub projects: Option<Vec<String>>,
    /// The limit on requests in a short time, such as `100/s`.
    #[serde(default)]
    #[schemars(regex(pattern = "^[1-9][0-9]{0,8}/[smh]$"))]
    pub rate: Option<Rate>,
    /// The limit on requests per day or month, such as `10000/d`.
    #[serde(default)]
    #[schemars(regex(pattern = "^[1-9][0-9]{0,17}/(d|month)$"))]
    pub quota: Option<Quota>,
    /// The limit on jobs submitted with it that run at once.
    #[serde(default)]
    pub max_running_jobs: Option<u32>,
    /// The limit on device seconds of jobs submitted with it.
    #[serde(default)]
    pub gpu_seconds: Option<u64>,
    /// When it expires, in Unix milliseconds; never if omitted.
    #[serde(default)]
    pub expires_ms: Option<u64>,
}
