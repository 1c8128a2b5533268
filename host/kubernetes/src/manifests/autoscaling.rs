//! The number of workers follows the jobs that wait and run.
//!
//! Every server exports the gauges of the queues from the shared records, so a query takes the maximum over the servers, and
//! not their sum.

use std::collections::BTreeMap;

use k8s_openapi::api::autoscaling::v2::{
    CrossVersionObjectReference, ExternalMetricSource, HPAScalingRules, HorizontalPodAutoscaler,
    HorizontalPodAutoscalerBehavior, HorizontalPodAutoscalerSpec, MetricIdentifier, MetricSpec, MetricTarget,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::custom_resources::{ScaleTarget, ScaleTrigger, ScaledObject, ScaledObjectSpec};
use super::{PodComponent, metadata};
use crate::deploy_options::DeployOptions;

/// The gauge of waiting jobs.
const QUEUE_LENGTH: &str = "saggar_queue_length";
/// The gauge of running jobs.
const QUEUE_RUNNING: &str = "saggar_queue_running_jobs";
/// How long there must be too many workers before some end, in seconds: each of them saves a job and returns it.
const SCALE_DOWN_SECONDS: u32 = 600;

/// Returns an autoscaler that reads the two gauges as external metrics, which an adapter such as prometheus-adapter offers.
/// It takes the larger of the two numbers.
pub(super) fn horizontal_pod_autoscaler(options: &DeployOptions) -> HorizontalPodAutoscaler {
    let metric = |name: &str| MetricSpec {
        type_: "External".to_owned(),
        external: Some(ExternalMetricSource {
            metric: MetricIdentifier { name: name.to_owned(), selector: None },
            target: MetricTarget {
                type_: "AverageValue".to_owned(),
                average_value: Some(Quantity("1".to_owned())),
                ..MetricTarget::default()
            },
        }),
        ..MetricSpec::default()
    };
    let down = HPAScalingRules {
        stabilization_window_seconds: i32::try_from(SCALE_DOWN_SECONDS).ok(),
        ..HPAScalingRules::default()
    };
    let spec = HorizontalPodAutoscalerSpec {
        scale_target_ref: CrossVersionObjectReference {
            api_version: Some("apps/v1".to_owned()),
            kind: "Deployment".to_owned(),
            name: format!("{}-worker", options.name),
        },
        // An autoscaler without the feature HPAScaleToZero refuses 0.
        min_replicas: i32::try_from(options.workers.max(1)).ok(),
        max_replicas: i32::try_from(workers_max(options)).unwrap_or(i32::MAX),
        metrics: Some(vec![metric(QUEUE_LENGTH), metric(QUEUE_RUNNING)]),
        behavior: Some(HorizontalPodAutoscalerBehavior { scale_down: Some(down), scale_up: None }),
    };
    HorizontalPodAutoscaler { metadata: metadata(options, PodComponent::Worker), spec: Some(spec), status: None }
}

/// Returns a ScaledObject of KEDA, which asks Prometheus: a worker for each job that waits or runs.
pub(super) fn scaled_object(options: &DeployOptions, prometheus: &str) -> ScaledObject {
    let all = |gauge: &str| format!("sum(max by (namespace, queue) ({gauge}{{namespace=\"{}\"}}))", options.namespace);
    let query = format!("{} + {}", all(QUEUE_LENGTH), all(QUEUE_RUNNING));
    let trigger = ScaleTrigger {
        r#type: "prometheus",
        metadata: BTreeMap::from([
            ("serverAddress", prometheus.to_owned()),
            ("query", query),
            ("threshold", "1".to_owned()),
        ]),
    };
    ScaledObject {
        api_version: "keda.sh/v1alpha1",
        kind: "ScaledObject",
        metadata: metadata(options, PodComponent::Worker),
        spec: ScaledObjectSpec {
            scale_target_ref: ScaleTarget { name: format!("{}-worker", options.name) },
            min_replica_count: options.workers,
            max_replica_count: workers_max(options),
            polling_interval: 15,
            cooldown_period: SCALE_DOWN_SECONDS,
            triggers: vec![trigger],
        },
    }
}

fn workers_max(options: &DeployOptions) -> u32 {
    options.scaling.as_ref().map_or(options.workers, |scaling| scaling.workers_max)
}
