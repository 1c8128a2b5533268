//! Kubernetes: the manifests and the chart of `saggar deploy`, and the engine that starts workers as Kubernetes Jobs.
//!
//! [`manifests`] makes typed objects from [`DeployOptions`], and [`helm`] makes a chart from the same objects, so that both
//! describe the same installation. Neither does any I/O. [`KubernetesEngine`] sends the objects of [`job_manifest`] to an API
//! server.

mod cluster_access;
pub mod deploy_options;
pub mod helm;
mod job_manifest;
mod kubernetes_engine;
pub mod manifests;
mod yaml;

pub use cluster_access::{AccessError, ClusterAccess};
pub use deploy_options::{DeployOptions, GpuVendor, OptionError};
pub use helm::{ChartFile, helm_chart};
pub use job_manifest::KubernetesJobSettings;
pub use kubernetes_engine::KubernetesEngine;
pub use manifests::{DeployedObject, manifest_list, manifests_yaml, server_manifests};
