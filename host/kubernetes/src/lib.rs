//! Kubernetes: the manifests and the chart of `saggar deploy`, and the engine that starts workers as Kubernetes Jobs.
//!
//! [`manifests`] makes typed objects from [`DeployOptions`], and [`helm`] makes a chart from the same objects, so that both
//! describe the same installation. Neither does any I/O. [`KubernetesEngine`] talks to an API server.

pub mod deploy_options;
pub mod helm;
pub mod manifests;
mod yaml;

pub use deploy_options::{DeployOptions, GpuVendor, OptionError};
pub use helm::{ChartFile, helm_chart};
pub use manifests::{Manifest, manifest_list, manifests_yaml, server_manifests};
