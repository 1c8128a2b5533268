//! The servers: equal replicas, of which at least one can be lost at any time.

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment};
use k8s_openapi::api::core::v1::{
    Container, ContainerPort, HTTPGetAction, Lifecycle, LifecycleHandler, Probe, Service, ServicePort, ServiceSpec,
    SleepAction,
};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::pod::{
    PodParts, container, objects_credentials, pod_name_variable, pod_template, resources, settings_path, storage_env,
    variable,
};
use super::{PodComponent, SERVER_PORT, metadata, selector, selector_labels};
use crate::deploy_options::DeployOptions;

/// How long a server that is to end goes on to serve, in seconds, because connections still arrive until every proxy knows
/// that it ends.
const DRAIN_SECONDS: i64 = 5;
/// The time after which a server that was asked to end has ended, in seconds, with some seconds to spare: it ends within
/// 35 s.
const SHUTDOWN_SECONDS: i64 = 45;

pub(super) fn deployment(options: &DeployOptions) -> Deployment {
    let parts = PodParts {
        component: PodComponent::Server,
        container: server_container(options),
        mounts_token: options.job_pool.is_some(),
        grace_seconds: DRAIN_SECONDS + SHUTDOWN_SECONDS,
    };
    let rolling =
        RollingUpdateDeployment { max_surge: Some(IntOrString::Int(1)), max_unavailable: Some(IntOrString::Int(0)) };
    let spec = DeploymentSpec {
        replicas: i32::try_from(options.replicas).ok(),
        revision_history_limit: Some(5),
        selector: selector(options, PodComponent::Server),
        strategy: Some(DeploymentStrategy { type_: Some("RollingUpdate".to_owned()), rolling_update: Some(rolling) }),
        template: pod_template(options, parts),
        ..DeploymentSpec::default()
    };
    Deployment { metadata: metadata(options, PodComponent::Server), spec: Some(spec), status: None }
}

fn server_container(options: &DeployOptions) -> Container {
    let settings = settings_path();
    let address = format!("0.0.0.0:{SERVER_PORT}");
    let arguments = ["serve", "--addr", &address, "--config", &settings];
    let mut env = storage_env(options);
    env.push(pod_name_variable("SAGGAR_SERVER_NAME"));
    env.push(variable("SAGGAR_LOG_FORMAT", "json"));
    let probe = |path: &str, period_seconds: i32, failure_threshold: i32| Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::String("http".to_owned()),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(period_seconds),
        timeout_seconds: Some(5),
        failure_threshold: Some(failure_threshold),
        ..Probe::default()
    };
    let drain = LifecycleHandler { sleep: Some(SleepAction { seconds: DRAIN_SECONDS }), ..LifecycleHandler::default() };
    Container {
        env_from: Some(objects_credentials(&options.objects_secret)),
        ports: Some(vec![ContainerPort {
            name: Some("http".to_owned()),
            container_port: SERVER_PORT,
            ..ContainerPort::default()
        }]),
        // The first start creates the tables of the database.
        startup_probe: Some(probe("/livez", 2, 60)),
        liveness_probe: Some(probe("/livez", 10, 6)),
        readiness_probe: Some(probe("/readyz", 5, 2)),
        lifecycle: Some(Lifecycle { pre_stop: Some(drain), ..Lifecycle::default() }),
        resources: Some(resources("500m", &options.memory, &[])),
        ..container(options, &arguments, env)
    }
}

pub(super) fn service(options: &DeployOptions) -> Service {
    let port = ServicePort {
        name: Some("http".to_owned()),
        port: SERVER_PORT,
        target_port: Some(IntOrString::String("http".to_owned())),
        ..ServicePort::default()
    };
    let spec = ServiceSpec {
        selector: Some(selector_labels(options, PodComponent::Server)),
        ports: Some(vec![port]),
        // An upload of a dataset has to end on the server on which it began.
        session_affinity: Some("ClientIP".to_owned()),
        ..ServiceSpec::default()
    };
    Service { metadata: metadata(options, PodComponent::Server), spec: Some(spec), status: None }
}

/// Returns the budget of voluntary disruptions, such as a node that is emptied: one server at a time.
pub(super) fn disruption_budget(options: &DeployOptions) -> PodDisruptionBudget {
    let spec = PodDisruptionBudgetSpec {
        max_unavailable: Some(IntOrString::Int(1)),
        selector: Some(selector(options, PodComponent::Server)),
        ..PodDisruptionBudgetSpec::default()
    };
    PodDisruptionBudget { metadata: metadata(options, PodComponent::Server), spec: Some(spec), status: None }
}
