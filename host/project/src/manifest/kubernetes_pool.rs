//! `kubernetes = { ... }` in `[pool.NAME]`: how the jobs of a pool run as Kubernetes Jobs.

use std::collections::BTreeMap;

use crate::limits::ENGINE_LIMIT_MAX;
use crate::manifest_table::ManifestTable;
use crate::manifest_value::ManifestValue;

/// Where and how Kubernetes runs the jobs of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubernetesPoolSection {
    /// The image, which contains this program.
    pub image: String,
    /// The namespace of the Jobs.
    pub namespace: String,
    /// The queue of Kueue that admits the Jobs.
    pub queue: Option<String>,
    /// Limits of devices for each Job, by the name of the resource: `nvidia.com/gpu`.
    pub limits: BTreeMap<String, u32>,
    /// Processors that each Job asks for: `2`, `500m`.
    pub cpu: Option<String>,
    /// Memory of each Job: `8Gi`.
    pub memory: Option<String>,
    /// The secret with the URL of the database, at its key `url`.
    pub database_secret: String,
    /// The secret with the variables of the bucket's credentials.
    pub objects_secret: String,
    /// The URL of the API server. `None` in a pod, which knows it.
    pub api_server: Option<String>,
    /// The file with the token for the API server. `None` in a pod, which has one.
    pub token_file: Option<String>,
    /// The file with the certificate authorities of the API server. `None` in a pod, which has one.
    pub ca_file: Option<String>,
}

pub(super) fn read_kubernetes_pool(table: &ManifestTable<'_>) -> Option<KubernetesPoolSection> {
    let image = table.required("image", "image = \"registry.example.com/saggar:0.1.0\"", ManifestValue::string);
    let text = |key: &'static str, default: &str| {
        table.optional(key, ManifestValue::string).unwrap_or_else(|| default.to_owned())
    };
    let namespace = table.optional("namespace", read_label).unwrap_or_else(|| "default".to_owned());
    let limits = table.optional("limits", read_limits).unwrap_or_default();
    let section = KubernetesPoolSection {
        image: String::new(),
        namespace,
        queue: table.optional("queue", read_label),
        limits,
        cpu: table.optional("cpu", ManifestValue::string),
        memory: table.optional("memory", ManifestValue::string),
        database_secret: text("database_secret", "saggar-database"),
        objects_secret: text("objects_secret", "saggar-objects"),
        api_server: table.optional("api_server", read_url),
        token_file: table.optional("token_file", ManifestValue::string),
        ca_file: table.optional("ca_file", ManifestValue::string),
    };
    table.report_unknown_keys();
    Some(KubernetesPoolSection { image: image?, ..section })
}

/// Reads a name of Kubernetes (RFC 1123).
fn read_label(item: &ManifestValue<'_>) -> Option<String> {
    let name = item.text()?;
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_name = (1..=63).contains(&name.len()) && name.bytes().all(is_inner) && !name.starts_with('-');
    if is_name && !name.ends_with('-') {
        return Some(name.to_owned());
    }
    item.report_expected("a name of Kubernetes: 1 to 63 of a-z, 0-9 and -")
}

fn read_url(item: &ManifestValue<'_>) -> Option<String> {
    match item.text()? {
        url if url.starts_with("https://") || url.starts_with("http://") => Some(url.to_owned()),
        _ => item.report_expected("a URL such as https://10.0.0.1:6443"),
    }
}

fn read_limits(item: &ManifestValue<'_>) -> Option<BTreeMap<String, u32>> {
    let entries = item.table()?.entries();
    entries.into_iter().map(|(name, item)| Some((name, item.bounded_count(1, ENGINE_LIMIT_MAX)?))).collect()
}
