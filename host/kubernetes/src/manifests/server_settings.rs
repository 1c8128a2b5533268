//! The project file of the servers.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;

use super::{PodComponent, metadata};
use crate::deploy_options::DeployOptions;

/// The key of the project file in the ConfigMap, which is also its name in the pods.
pub(super) const SETTINGS_FILE: &str = "saggar.toml";

pub(super) fn config_map(options: &DeployOptions) -> ConfigMap {
    ConfigMap {
        metadata: metadata(options, PodComponent::Server),
        data: Some(BTreeMap::from([(SETTINGS_FILE.to_owned(), project_file(options))])),
        ..ConfigMap::default()
    }
}

/// Returns the project file.
fn project_file(options: &DeployOptions) -> String {
    let mut text = format!(
        "# Queues and pools of the servers: `saggar check` checks it.\nmanifest = 1\n\n[project]\nname = \"{}\"\n",
        options.name
    );
    if let Some(pool) = &options.job_pool {
        let mut settings = vec![
            format!("namespace = \"{}\"", options.namespace),
            format!("image = \"{}\"", options.image),
            format!("database_secret = \"{}\"", options.database_secret),
            format!("objects_secret = \"{}\"", options.objects_secret),
        ];
        settings.extend(pool.kueue_queue.as_ref().map(|queue| format!("queue = \"{queue}\"")));
        if let Some(gpu) = options.gpu {
            settings.push(format!("limits = {{ \"{}\" = {} }}", gpu.vendor.resource(), gpu.count));
        }
        let settings = settings.join(", ");
        text.push_str(&format!("\n[pool.kubernetes]\nslots = 64\nkubernetes = {{ {settings} }}\n"));
        text.push_str("\n[queue.default]\npools = [\"kubernetes\"]\n");
    }
    text
}
