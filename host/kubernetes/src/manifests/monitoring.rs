//! Scraping by the Prometheus Operator.

use super::custom_resources::{
    MonitorAuthorization, MonitorCredentials, MonitorEndpoint, ServiceMonitor, ServiceMonitorSpec,
};
use super::{PodComponent, metadata, selector};
use crate::deploy_options::DeployOptions;

pub(super) fn service_monitor(options: &DeployOptions) -> ServiceMonitor {
    let credentials = MonitorCredentials { name: format!("{}-metrics-key", options.name), key: "key" };
    let endpoint = MonitorEndpoint {
        port: "http",
        path: "/metrics",
        interval: "15s",
        authorization: MonitorAuthorization { r#type: "Bearer", credentials },
    };
    ServiceMonitor {
        api_version: "monitoring.coreos.com/v1",
        kind: "ServiceMonitor",
        metadata: metadata(options, PodComponent::Server),
        spec: ServiceMonitorSpec { selector: selector(options, PodComponent::Server), endpoints: vec![endpoint] },
    }
}
