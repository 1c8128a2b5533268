//! The specification of a notebook: a job that runs JupyterLab for a person instead of a plugin.

use saggar_notebook::sandbox::is_mount_point;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::JobSpec;
use crate::error::SpecError;

/// A notebook. It runs until it is stopped, is idle for too long, or is shut down from its own menu.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NotebookSpec {
    /// Seconds without a running cell, a used terminal or a saved document after which it stops.
    #[serde(default = "default_idle_timeout")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub idle_timeout_seconds: f64,
}

fn default_idle_timeout() -> f64 {
    3600.0
}

impl Default for NotebookSpec {
    fn default() -> NotebookSpec {
        NotebookSpec { idle_timeout_seconds: default_idle_timeout() }
    }
}

impl NotebookSpec {
    /// Checks everything that needs no lookup.
    ///
    /// # Errors
    /// `Notebook`; `Seconds`.
    pub(super) fn validate(&self, spec: &JobSpec) -> Result<(), SpecError> {
        let refuse = |reason| Err(SpecError::Notebook { reason });
        let runs_plugin = spec.predict.is_some() || spec.data_step.is_some() || spec.replay.is_some() || spec.measure;
        if runs_plugin || spec.record || !spec.plugin.is_empty() || !spec.parameters.is_empty() {
            return refuse(
                "it runs no plugin; leave `plugin`, `parameters`, `predict`, `data_step`, `replay`, `measure` and \
                 `record` out",
            );
        }
        if spec.init_from.is_some() || spec.replicas > 1 || spec.shards.is_some() {
            return refuse("it trains nothing itself; leave `init_from`, `replicas` and `shards` out");
        }
        if spec.data.iter().any(|mount| !is_mount_point(&mount.mount)) {
            return refuse("data cannot be mounted over its own folders; a mount point such as /data is free");
        }
        if !(self.idle_timeout_seconds > 0.0 && self.idle_timeout_seconds.is_finite()) {
            return Err(SpecError::Seconds { field: "notebook.idle_timeout_seconds" });
        }
        Ok(())
    }
}
