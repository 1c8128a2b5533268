//! Access rights of an attempt to things outside of its job. They are those of the key that submitted the job, and are
//! checked at each effect with the key's rights at that time, because a training can run for days.

use std::collections::BTreeMap;
use std::path::Path;

use saggar_clock::{Clock, SystemClock};
use saggar_plugin::PluginError;
use saggar_store::{
    AccessAction, AccessDenied, AccessRights, KeyFile, ProjectAssignments, ProjectsError, StateDir, VersionClaim,
};

use crate::protocol::AttemptConfig;

/// The access rights of a job, as its worker checks them.
#[derive(Clone, Debug)]
pub struct JobRights {
    rights: AccessRights,
    keys: KeyFile,
    /// The job's project.
    project: String,
    models: ProjectAssignments,
    datasets: ProjectAssignments,
}

impl JobRights {
    /// Returns the rights of the job that `start` describes, which publishes to `models`.
    pub(super) fn new(start: &AttemptConfig, home: &StateDir, models: &Path) -> JobRights {
        JobRights {
            rights: start.rights.clone(),
            keys: home.keys(),
            project: start.spec.project.clone(),
            models: ProjectAssignments::of_models(home, models),
            datasets: ProjectAssignments::of_datasets(home),
        }
    }

    fn current_rights(&self, effect: AccessAction, thing: &str) -> Result<AccessRights, AccessDenied> {
        self.rights.refresh(&self.keys, SystemClock.now_ms(), effect, thing)
    }

    /// Checks that the key of the job is valid and could submit it again.
    ///
    /// # Errors
    /// `AccessDenied`.
    pub(super) fn check_submission(&self) -> Result<(), AccessDenied> {
        let rights = self.current_rights(AccessAction::SubmitJob, &self.project)?;
        rights.check(AccessAction::SubmitJob, &self.project, Some(std::slice::from_ref(&self.project)))
    }

    /// Checks that the job may publish a model, and assigns a new model to the job's project.
    ///
    /// # Errors
    /// `AccessDenied`; `Store`.
    pub(super) fn claim_model(&self, model: &str) -> Result<(), ProjectsError> {
        let rights = self.current_rights(AccessAction::PublishModel, model)?;
        let claim = VersionClaim { effect: AccessAction::PublishModel, rights: &rights, project: Some(&self.project) };
        self.models.claim(model, &claim)
    }

    /// Releases the name of a new model whose publication failed.
    pub(super) fn release_model(&self, model: &str) {
        if self.rights.key().is_some() {
            self.models.release(model);
        }
    }

    /// Checks that the job may make a version of a dataset, and assigns a new dataset to the job's project.
    ///
    /// # Errors
    /// `AccessDenied`; `Store`.
    pub(super) fn claim_dataset(&self, dataset: &str) -> Result<(), ProjectsError> {
        let rights = self.current_rights(AccessAction::PushDataset, dataset)?;
        let claim = VersionClaim { effect: AccessAction::PushDataset, rights: &rights, project: Some(&self.project) };
        self.datasets.claim(dataset, &claim)
    }

    /// Releases the name of a new dataset that was not made.
    pub(super) fn release_dataset(&self, dataset: &str) {
        if self.rights.key().is_some() {
            self.datasets.release(dataset);
        }
    }

    /// Checks that the job may read a model's weights. The plugin sees a model that it may not read as missing.
    ///
    /// # Errors
    /// `Job`.
    pub(crate) fn check_read_weights(&self, model: &str) -> Result<(), PluginError> {
        let refuse = |reason: &dyn std::fmt::Display| PluginError::job(format!("model `{model}`: {reason}"));
        let rights = self.current_rights(AccessAction::ReadWeights, model).map_err(|refused| refuse(&refused))?;
        let projects = self.models.recorded_projects(model).map_err(|error| refuse(&error))?;
        let may = rights.check(AccessAction::ReadWeights, model, projects.as_deref());
        may.map_err(|_| refuse(&"no version is published"))
    }

    /// Returns the values of the secrets that the job names.
    ///
    /// # Errors
    /// Returns a message about the first secret that does not exist or that the job may not read.
    pub(super) fn secret_values(&self, home: &StateDir, names: &[String]) -> Result<BTreeMap<String, String>, String> {
        let Some(first) = names.first() else { return Ok(BTreeMap::new()) };
        let rights = self.current_rights(AccessAction::UseSecret, first).map_err(|refused| refused.to_string())?;
        let values = home.secrets().values(names, &rights).map_err(|error| error.to_string())?;
        match names.iter().find(|name| !values.contains_key(*name)) {
            None => Ok(values),
            Some(name) => Err(missing_secret_message(name, rights.projects().map(|_| self.project.as_str()))),
        }
    }
}

/// Returns the message for a missing secret. A job limited to projects gets the same message for a secret that lists
/// none of them.
fn missing_secret_message(name: &str, project: Option<&str>) -> String {
    match project {
        None => format!("there is no secret {name}; `saggar secret set {name}` creates it"),
        Some(project) => format!(
            "there is no secret {name} for {project}; an administrator creates it: `saggar secret set {name} --project \
             {project}`"
        ),
    }
}
