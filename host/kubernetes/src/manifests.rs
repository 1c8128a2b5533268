//! The objects of an installation: servers, workers, and what surrounds them.
//!
//! All objects are values of typed structures, so that a wrong name of a field is an error of the compiler. No object
//! contains a secret: they refer to secrets, and [`secret_notes`] says how to create those.

mod access;
mod autoscaling;
mod custom_resources;
mod monitoring;
mod network;
pub(crate) mod pod;
mod server;
mod server_settings;
mod worker;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde::Serialize;
use serde_json::{Value, json};

use crate::deploy_options::DeployOptions;
use crate::yaml::to_yaml;

/// The port of the servers.
pub(crate) const SERVER_PORT: i32 = 5000;

/// An object of an installation.
#[derive(Clone, Debug, PartialEq)]
pub struct DeployedObject {
    /// The name of its file in a chart, without an ending: `server-deployment`.
    pub file: &'static str,
    /// The object, as the API server gets it.
    pub object: Value,
}

impl DeployedObject {
    fn new(file: &'static str, object: &impl Serialize) -> DeployedObject {
        DeployedObject { file, object: serde_json::to_value(object).expect("objects have text as keys") }
    }
}

/// Returns the objects of an installation, in the order in which they are created.
pub fn server_manifests(options: &DeployOptions) -> Vec<DeployedObject> {
    let mut all = vec![
        DeployedObject::new("service-account", &access::service_account(options)),
        DeployedObject::new("settings", &server_settings::config_map(options)),
    ];
    if options.job_pool.is_some() {
        all.push(DeployedObject::new("role", &access::job_role(options)));
        all.push(DeployedObject::new("role-binding", &access::job_role_binding(options)));
    }
    all.push(DeployedObject::new("server-service", &server::service(options)));
    all.push(DeployedObject::new("server-deployment", &server::deployment(options)));
    all.push(DeployedObject::new("server-disruption-budget", &server::disruption_budget(options)));
    all.push(DeployedObject::new("server-network-policy", &network::server_policy(options)));
    if options.has_workers() {
        all.push(DeployedObject::new("worker-deployment", &worker::deployment(options)));
    }
    if options.has_workers() || options.job_pool.is_some() {
        all.push(DeployedObject::new("worker-network-policy", &network::worker_policy(options)));
    }
    if let Some(scaling) = &options.scaling {
        match &scaling.keda_prometheus {
            Some(url) => {
                all.push(DeployedObject::new("worker-scaled-object", &autoscaling::scaled_object(options, url)))
            }
            None => {
                all.push(DeployedObject::new("worker-autoscaler", &autoscaling::horizontal_pod_autoscaler(options)))
            }
        }
    }
    if let Some(host) = &options.ingress_host {
        all.push(DeployedObject::new("server-ingress", &network::ingress(options, host)));
    }
    if options.service_monitor {
        all.push(DeployedObject::new("service-monitor", &monitoring::service_monitor(options)));
    }
    all
}

/// Returns the objects as one YAML stream, which begins with comments about the secrets that it refers to.
pub fn manifests_yaml(options: &DeployOptions) -> String {
    let mut text = String::new();
    for line in secret_notes(options).lines() {
        text.push_str(format!("# {line}").trim_end());
        text.push('\n');
    }
    for manifest in server_manifests(options) {
        text.push_str("---\n");
        text.push_str(&to_yaml(&manifest.object));
    }
    text
}

/// Returns the objects as one `List`, which `kubectl apply` accepts too.
pub fn manifest_list(options: &DeployOptions) -> Value {
    let items: Vec<Value> = server_manifests(options).into_iter().map(|manifest| manifest.object).collect();
    json!({ "apiVersion": "v1", "kind": "List", "items": items })
}

/// Returns the commands that create what the objects refer to.
pub fn secret_notes(options: &DeployOptions) -> String {
    let DeployOptions { namespace, database_secret, objects_secret, worker_key_secret, .. } = options;
    let create = format!("kubectl --namespace {namespace} create secret generic");
    let mut text = format!(
        "Create the namespace, the secrets and the keys first. A server does not start before there is a key.\n\
         \n  kubectl create namespace {namespace}\
         \n  {create} {database_secret} --from-literal=url='postgres://USER:PASSWORD@HOST:{port}/DATABASE' \
         --from-literal=secrets-key=\"$(openssl rand -hex 32)\"\
         \n  {create} {objects_secret} --from-literal=AWS_ACCESS_KEY_ID=ID --from-literal=AWS_SECRET_ACCESS_KEY=KEY\n\
         \nCreate keys where the database can be reached, with SAGGAR_DATABASE_URL set to the same URL:\n\
         \n  saggar key create ops --scope admin\n",
        port = options.database_port
    );
    if options.has_workers() {
        text.push_str("  saggar key create workers --scope admin\n");
        text.push_str(&format!("  {create} {worker_key_secret} --from-literal=key=KEY\n"));
    }
    if options.service_monitor {
        text.push_str("  saggar key create prometheus --scope metrics:read\n");
        text.push_str(&format!("  {create} {}-metrics-key --from-literal=key=KEY\n", options.name));
    }
    text
}

impl DeployOptions {
    /// Returns whether the installation has a Deployment of workers.
    pub(crate) fn has_workers(&self) -> bool {
        self.workers > 0 || self.scaling.is_some()
    }
}

/// The part of an installation that an object belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PodComponent {
    Server,
    Worker,
}

impl PodComponent {
    pub(crate) fn name(self) -> &'static str {
        match self {
            PodComponent::Server => "server",
            PodComponent::Worker => "worker",
        }
    }
}

/// Returns the labels by which pods are selected. They can never change in an installation.
pub(crate) fn selector_labels(options: &DeployOptions, component: PodComponent) -> BTreeMap<String, String> {
    let labels = [
        ("app.kubernetes.io/name", "saggar"),
        ("app.kubernetes.io/instance", options.name.as_str()),
        ("app.kubernetes.io/component", component.name()),
    ];
    labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

/// Returns the labels of pods that compute, whichever installation they belong to.
pub(crate) fn worker_labels() -> BTreeMap<String, String> {
    let labels = [("app.kubernetes.io/name", "saggar"), ("app.kubernetes.io/component", PodComponent::Worker.name())];
    labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

fn selector(options: &DeployOptions, component: PodComponent) -> LabelSelector {
    LabelSelector { match_labels: Some(selector_labels(options, component)), ..LabelSelector::default() }
}

/// Returns the metadata of an object of a component: `NAME` for servers, and `NAME-worker` for workers.
fn metadata(options: &DeployOptions, component: PodComponent) -> ObjectMeta {
    let name = match component {
        PodComponent::Server => options.name.clone(),
        PodComponent::Worker => format!("{}-worker", options.name),
    };
    ObjectMeta {
        name: Some(name),
        namespace: Some(options.namespace.clone()),
        labels: Some(selector_labels(options, component)),
        ..ObjectMeta::default()
    }
}

#[cfg(test)]
mod tests;
