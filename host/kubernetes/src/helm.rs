//! The Helm chart, made from the same objects as the plain manifests.
//!
//! A template is the text of an object in which some values are replaced: the name and the namespace by those of the release,
//! and the values that [`lifted_values::LIFTED_VALUES`] lists by those of `values.yaml`, whose defaults they become. So the
//! chart with its defaults renders the plain manifests. Objects that were not asked for are in the chart too, switched off.

mod chart_template;
mod lifted_values;
mod values_schema;

use serde_json::{Map, Value, json};

use crate::deploy_options::{DeployOptions, JobPoolOptions, WorkerScaling};
use crate::manifests::{DeployedObject, secret_notes, server_manifests};
use crate::yaml::to_yaml;

use chart_template::{NAMESPACE_PLACEHOLDER, RELEASE_PLACEHOLDER, insert_release, template_text};
use lifted_values::{LIFTED_VALUES, SWITCHES, set_value};

/// The version of Kubernetes from which on servers accept every field: the pause before a container is stopped.
const KUBERNETES_VERSION_MIN: &str = ">=1.30.0-0";

/// A file of a chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChartFile {
    /// The path in the chart's directory: `templates/server-deployment.yaml`.
    pub path: String,
    /// The text.
    pub text: String,
}

/// Returns the files of a chart whose defaults are `options`, except for the name and the namespace, which are those of the
/// release.
pub fn helm_chart(options: &DeployOptions, version: &str) -> Vec<ChartFile> {
    let (name, namespace) = (RELEASE_PLACEHOLDER.to_owned(), NAMESPACE_PLACEHOLDER.to_owned());
    let options = DeployOptions { name, namespace, ..options.clone() };
    let asked = server_manifests(&options);
    let complete = complete_manifests(&options);
    let values = chart_values(&options, &asked, &complete);
    let schema = values_schema::schema(&values);
    let file = |path: &str, text: String| ChartFile { path: path.to_owned(), text };
    let json_text = |value: &Value| format!("{value:#}\n");
    let mut files = vec![
        file("Chart.yaml", chart_description(version)),
        file("values.yaml", values_text(&values)),
        file("values.schema.json", json_text(&schema)),
    ];
    for manifest in &complete {
        files.push(file(&format!("templates/{}.yaml", manifest.file), template_text(manifest)));
    }
    files.push(file("templates/NOTES.txt", notes(&options)));
    files
}

/// Returns the objects of every option. Those of the options that were not given have examples.
fn complete_manifests(options: &DeployOptions) -> Vec<DeployedObject> {
    let workers_max = options.scaling.as_ref().map_or(options.workers.max(1) * 4, |scaling| scaling.workers_max);
    let asked_prometheus = options.scaling.as_ref().and_then(|scaling| scaling.keda_prometheus.clone());
    let prometheus = asked_prometheus.unwrap_or_else(|| "http://prometheus.monitoring.svc:9090".to_owned());
    let with_keda = DeployOptions {
        ingress_host: options.ingress_host.clone().or_else(|| Some("saggar.example.com".to_owned())),
        service_monitor: true,
        job_pool: options.job_pool.clone().or_else(|| Some(JobPoolOptions::default())),
        scaling: Some(WorkerScaling { workers_max, keda_prometheus: Some(prometheus) }),
        ..options.clone()
    };
    let scaling = Some(WorkerScaling { workers_max, keda_prometheus: None });
    let with_autoscaler = DeployOptions { scaling, ..with_keda.clone() };
    let mut all = server_manifests(&with_keda);
    let is_missing = |manifest: &DeployedObject| all.iter().all(|other| other.file != manifest.file);
    let further: Vec<DeployedObject> = server_manifests(&with_autoscaler).into_iter().filter(is_missing).collect();
    all.extend(further);
    all
}

/// Returns the values: a switch for each optional object, and what is lifted out of the objects.
fn chart_values(options: &DeployOptions, asked: &[DeployedObject], complete: &[DeployedObject]) -> Value {
    let find = |manifests: &[DeployedObject], file: &str| manifests.iter().position(|manifest| manifest.file == file);
    // The servers are first in the file.
    let mut values = json!({ "server": {} });
    for (path, file) in SWITCHES {
        set_value(&mut values, path, Value::Bool(find(asked, file).is_some()));
    }
    for lifted in &LIFTED_VALUES {
        let value = match find(asked, lifted.file) {
            Some(at) => asked[at].object.pointer(lifted.pointer),
            None => find(complete, lifted.file).and_then(|at| complete[at].object.pointer(lifted.pointer)),
        };
        let value = value.cloned().unwrap_or_else(|| lifted.form.absent_value());
        set_value(&mut values, lifted.path, value);
    }
    if !options.has_workers() {
        set_value(&mut values, "worker.replicas", json!(1));
    }
    values
}

fn values_text(values: &Value) -> String {
    let about = "# The defaults of the chart. Texts may contain templates, such as {{ .Release.Name }}.\n";
    format!("{about}{}", to_yaml(&insert_release_in(values)))
}

/// Replaces the placeholders of the release in all texts.
fn insert_release_in(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(insert_release(text)),
        Value::Array(items) => items.iter().map(insert_release_in).collect(),
        Value::Object(members) => {
            members.iter().map(|(name, value)| (name.clone(), insert_release_in(value))).collect::<Map<_, _>>().into()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn chart_description(version: &str) -> String {
    to_yaml(&json!({
        "apiVersion": "v2",
        "name": "saggar",
        "description": "Trains and serves machine-learning models that are sandboxed WebAssembly plugins",
        "type": "application",
        "version": version,
        "appVersion": version,
        "kubeVersion": KUBERNETES_VERSION_MIN,
    }))
}

fn notes(options: &DeployOptions) -> String {
    let text = format!(
        "{}\nThen reach the servers on this machine:\n\n  kubectl --namespace {} port-forward service/{} 5000:5000\n",
        secret_notes(options),
        options.namespace,
        options.name
    );
    insert_release(&text)
}

#[cfg(test)]
mod tests;
