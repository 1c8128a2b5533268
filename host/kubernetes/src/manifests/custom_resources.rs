//! Objects of operators: a ServiceMonitor of the Prometheus Operator, and a ScaledObject of KEDA. Only the fields that the
//! installation uses.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde::Serialize;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ServiceMonitor {
    pub(super) api_version: &'static str,
    pub(super) kind: &'static str,
    pub(super) metadata: ObjectMeta,
    pub(super) spec: ServiceMonitorSpec,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ServiceMonitorSpec {
    pub(super) selector: LabelSelector,
    pub(super) endpoints: Vec<MonitorEndpoint>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MonitorEndpoint {
    pub(super) port: &'static str,
    pub(super) path: &'static str,
    pub(super) interval: &'static str,
    pub(super) authorization: MonitorAuthorization,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MonitorAuthorization {
    pub(super) r#type: &'static str,
    pub(super) credentials: MonitorCredentials,
}

#[derive(Debug, Serialize)]
pub(super) struct MonitorCredentials {
    pub(super) name: String,
    pub(super) key: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ScaledObject {
    pub(super) api_version: &'static str,
    pub(super) kind: &'static str,
    pub(super) metadata: ObjectMeta,
    pub(super) spec: ScaledObjectSpec,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ScaledObjectSpec {
    pub(super) scale_target_ref: ScaleTarget,
    pub(super) min_replica_count: u32,
    pub(super) max_replica_count: u32,
    pub(super) polling_interval: u32,
    pub(super) cooldown_period: u32,
    pub(super) triggers: Vec<ScaleTrigger>,
}

#[derive(Debug, Serialize)]
pub(super) struct ScaleTarget {
    pub(super) name: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ScaleTrigger {
    pub(super) r#type: &'static str,
    pub(super) metadata: BTreeMap<&'static str, String>,
}
