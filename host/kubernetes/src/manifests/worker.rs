//! The workers, which join the servers.

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment};
use k8s_openapi::api::core::v1::{Container, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::pod::{
    PodParts, STATE_DIR, container, device_toleration, objects_credentials, pod_name_variable, pod_template, resources,
    secret_variable, secrets_key_variable, variable,
};
use super::{PodComponent, SERVER_PORT, metadata, selector};
use crate::deploy_options::{DeployOptions, GpuVendor};

/// The time in which a worker that was asked to end saves the state of its job, in seconds.
const SHUTDOWN_SECONDS: i64 = 45;

pub(super) fn deployment(options: &DeployOptions) -> Deployment {
    let parts = PodParts {
        component: PodComponent::Worker,
        container: worker_container(options),
        mounts_token: false,
        grace_seconds: SHUTDOWN_SECONDS,
    };
    let mut template = pod_template(options, parts);
    tolerate_gpu_nodes(options, &mut template);
    // A new worker beside the old ones would need a GPU more than there are.
    let rolling =
        RollingUpdateDeployment { max_surge: Some(IntOrString::Int(0)), max_unavailable: Some(IntOrString::Int(1)) };
    let spec = DeploymentSpec {
        // A number here would be set again with each `kubectl apply`, against what scales the workers.
        replicas: if options.scaling.is_some() { None } else { i32::try_from(options.workers).ok() },
        revision_history_limit: Some(5),
        selector: selector(options, PodComponent::Worker),
        strategy: Some(DeploymentStrategy { type_: Some("RollingUpdate".to_owned()), rolling_update: Some(rolling) }),
        template,
        ..DeploymentSpec::default()
    };
    Deployment { metadata: metadata(options, PodComponent::Worker), spec: Some(spec), status: None }
}

fn worker_container(options: &DeployOptions) -> Container {
    let url = format!("http://{}:{SERVER_PORT}", options.name);
    let mut arguments = vec!["worker", "join", url.as_str()];
    let label = options.gpu.map(|gpu| format!("gpu={}", gpu.vendor.label()));
    if let Some(label) = &label {
        arguments.extend(["--label", label.as_str()]);
    }
    let mut env = vec![
        variable("SAGGAR_HOME", STATE_DIR),
        secret_variable("SAGGAR_API_KEY", &options.worker_key_secret, "key"),
        // Servers give workers all settings but this one.
        secrets_key_variable(&options.database_secret),
        pod_name_variable("SAGGAR_SERVER_NAME"),
        variable("SAGGAR_LOG_FORMAT", "json"),
    ];
    if options.gpu.is_some_and(|gpu| gpu.vendor == GpuVendor::Nvidia) {
        // The graphics capability gives the container the Vulkan driver.
        env.push(variable("NVIDIA_DRIVER_CAPABILITIES", "compute,utility,graphics"));
    }
    let gpus: Vec<(&str, u32)> = options.gpu.iter().map(|gpu| (gpu.vendor.resource(), gpu.count)).collect();
    Container {
        env_from: Some(objects_credentials(&options.objects_secret)),
        resources: Some(resources(&options.worker_cpu, &options.worker_memory, &gpus)),
        ..container(options, &arguments, env)
    }
}

/// Lets the pods run on nodes that keep other pods away from their GPUs.
fn tolerate_gpu_nodes(options: &DeployOptions, template: &mut PodTemplateSpec) {
    let (Some(gpu), Some(spec)) = (options.gpu, &mut template.spec) else { return };
    spec.tolerations = Some(vec![device_toleration(gpu.vendor.resource())]);
}
