//! Visibility: the jobs that a request can see. This is the only place that decides it.
//!
//! A key can be limited to projects. For its requests, [`ProjectScope::find_job`] returns the same error for a job of
//! another project as for a missing job, and lists are filtered with [`ProjectScope::contains_project`] or
//! [`ProjectScope::projects`]. Handlers extract a route's `{job}` as a `VisibleJob` and look up names in bodies with
//! [`ProjectScope::find_job`]. One test covers every route, and another prevents handlers from reading the records
//! directly.
//!
//! Models, datasets and secrets have lists of projects, which `resource_access` checks. Plugins and devices are shared
//! by all projects.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::Extensions;
use axum::http::request::Parts;
use saggar_jobs::{JobError, JobService};
use saggar_store::AccessRights;
use saggar_store::keys::KeyRecord;
use saggar_store::records::JobRecord;

use super::access_error::AccessError;

/// The scope of a request. A request without this extension can see and do everything.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProjectScope(Arc<AccessRights>);

impl ProjectScope {
    /// Returns the scope of a key.
    pub(super) fn from_key(key: &KeyRecord) -> ProjectScope {
        ProjectScope::from_rights(AccessRights::from_key(key))
    }

    /// Returns the scope of these rights.
    pub(crate) fn from_rights(rights: AccessRights) -> ProjectScope {
        ProjectScope(Arc::new(rights))
    }

    /// Returns the scope of the request with these extensions.
    pub(crate) fn from_extensions(extensions: &Extensions) -> ProjectScope {
        extensions.get::<ProjectScope>().cloned().unwrap_or_default()
    }

    /// Returns the rights of the request's key.
    pub(crate) fn rights(&self) -> &AccessRights {
        &self.0
    }

    /// Returns whether the request can see jobs of this project.
    pub(crate) fn contains_project(&self, project: &str) -> bool {
        self.0.includes_project(project)
    }

    /// Returns whether the request can see the usage of this key. A key that is limited to projects sees only its own
    /// usage.
    pub(crate) fn shows_key(&self, key: &str) -> bool {
        self.0.projects().is_none() || self.0.key() == Some(key)
    }

    /// Returns the projects, for a filter of jobs, or `None` if all are visible.
    pub(crate) fn projects(&self) -> Option<Vec<String>> {
        self.0.projects().map(<[String]>::to_vec)
    }

    /// Returns the job of this name or identifier if it is visible.
    ///
    /// # Errors
    /// Returns `NotFound` if the job does not exist or is hidden, or `Records`.
    pub(crate) async fn find_job(&self, jobs: &JobService, name: &str) -> Result<JobRecord, JobError> {
        let job = jobs.get(name).await?;
        if self.contains_project(&job.project) { Ok(job) } else { Err(JobError::no_job(name)) }
    }

    /// Formats names of jobs, given as project and name. Hidden ones are replaced by their count: `digits-2 and 1 of
    /// other projects`.
    pub(crate) fn visible_job_names<'a>(&self, jobs: impl Iterator<Item = (&'a str, &'a str)>) -> String {
        let (seen, hidden): (Vec<_>, Vec<_>) = jobs.partition(|(project, _)| self.contains_project(project));
        let seen: Vec<&str> = seen.into_iter().map(|(_, name)| name).collect();
        let (seen, others) = (seen.join(", "), format!("{} of other projects", hidden.len()));
        match (seen.is_empty(), hidden.is_empty()) {
            (_, true) => seen,
            (true, false) => others,
            (false, false) => format!("{seen} and {others}"),
        }
    }

    /// Checks that a job of this project can be submitted.
    ///
    /// # Errors
    /// Returns `Project` with the key's projects.
    pub(crate) fn check_submission(&self, project: &str) -> Result<(), AccessError> {
        match (self.0.key(), self.0.projects()) {
            (Some(name), Some(projects)) if !self.contains_project(project) => {
                let (name, project) = (name.to_owned(), project.chars().take(80).collect());
                Err(AccessError::Project { name, project, projects: projects.join(", ") })
            }
            _ => Ok(()),
        }
    }

    /// Returns the idempotency key of a submission to this project. For a limited key it is prefixed by the project, so
    /// that the same text does not return a job that another client submitted to another project.
    pub(crate) fn idempotency_key(&self, project: &str, key: String) -> String {
        if self.0.projects().is_none() || key.is_empty() { key } else { format!("project {project} {key}") }
    }
}

impl<S: Sync> FromRequestParts<S> for ProjectScope {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<ProjectScope, Infallible> {
        Ok(ProjectScope::from_extensions(&parts.extensions))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn scope_of_projects(projects: &[&str]) -> ProjectScope {
        let projects: Vec<&str> = projects.to_vec();
        let rights = json!({ "id": "00000000", "name": "ci", "scopes": ["jobs:write"], "projects": projects });
        ProjectScope::from_rights(serde_json::from_value(rights).unwrap())
    }

    #[test]
    fn a_key_sees_only_its_projects_and_none_if_the_list_is_empty() {
        let (all, some, none) =
            (ProjectScope::default(), scope_of_projects(&["digits", "faces"]), scope_of_projects(&[]));
        assert!(all.contains_project("digits") && all.shows_key("anyone") && all.projects().is_none());
        assert!(
            some.contains_project("digits")
                && some.contains_project("faces")
                && !some.contains_project("digit")
                && !some.contains_project("")
        );
        assert!(some.shows_key("ci") && !some.shows_key("other"));
        assert!(!none.contains_project("digits") && none.projects() == Some(Vec::new()));
        assert!(all.check_submission("x").is_ok() && some.check_submission("faces").is_ok());
        let refused = some.check_submission("secret").unwrap_err().to_string();
        assert_eq!(refused, "the key ci is for jobs of digits, faces, not of secret");
    }

    #[test]
    fn hidden_job_names_are_replaced_by_their_count() {
        let some = scope_of_projects(&["digits"]);
        let jobs = [("digits", "digits-1"), ("faces", "faces-1"), ("digits", "digits-2"), ("faces", "faces-2")];
        assert_eq!(some.visible_job_names(jobs.into_iter()), "digits-1, digits-2 and 2 of other projects");
        assert_eq!(some.visible_job_names(jobs[1..2].iter().copied()), "1 of other projects");
        assert_eq!(some.visible_job_names(jobs[..1].iter().copied()), "digits-1");
        assert_eq!(ProjectScope::default().visible_job_names(jobs[..2].iter().copied()), "digits-1, faces-1");
    }

    #[test]
    fn idempotency_keys_of_limited_keys_are_scoped_to_the_project() {
        let key = |sight: &ProjectScope, project| sight.idempotency_key(project, "k".to_owned());
        let some = scope_of_projects(&["digits", "faces"]);
        assert_ne!(key(&some, "digits"), key(&some, "faces"));
        assert_eq!(key(&some, "digits"), key(&scope_of_projects(&["digits"]), "digits"));
        assert_eq!(key(&ProjectScope::default(), "digits"), "k");
        assert_eq!(some.idempotency_key("digits", String::new()), "", "an empty one is refused as ever");
    }
}
