//! Assignment of models and datasets to projects: a small file for each name that belongs to any project.
//!
//! ```text
//! <root>/.projects/<name>     ["digits","faces"]
//! ```
//!
//! With a bucket, they are objects of it (`bucket`).
//!
//! A name without such a file belongs to no project: keys without a project limit can change it, and other keys can use
//! it. A name that is created with a key limited to projects belongs to those projects. For a model without a file,
//! changes are checked against the project of the job that published its newest version, because such models may be
//! older than these files.

use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;

use thiserror::Error;

use crate::bucket_folders::{DATASETS_FOLDER, MODELS_FOLDER};
use crate::durable;
use crate::error::StoreError;
use crate::limits::{KEY_PROJECTS_MAX, PROJECTS_BYTES_MAX};
use crate::models;
use crate::rights::{AccessDenied, VersionClaim};
use crate::state_dir::StateDir;
use crate::versions::directories::VersionDirectories;
use crate::versions::objects::ObjectVersions;
use crate::versions::{VersionStore, is_name};

mod bucket;

use bucket::BucketAssignments;

/// The projects of the models, or of the datasets, under one directory. Clones share the files.
#[derive(Clone, Debug)]
pub struct ProjectAssignments {
    versions: Arc<dyn VersionStore>,
    place: AssignmentPlace,
    are_models: bool,
}

/// Where assignments are.
#[derive(Clone, Debug)]
enum AssignmentPlace {
    /// In files beside the versions.
    Files(VersionDirectories),
    /// In a bucket.
    Bucket(Arc<BucketAssignments>),
}

/// The reason why projects cannot be read or changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProjectsError {
    /// The name is not valid for a project.
    #[error("project {name:?}: {}", crate::versions::NAME_RULE)]
    BadName {
        /// The name.
        name: String,
    },
    /// Too many projects.
    #[error("{count} projects, and a thing belongs to at most {KEY_PROJECTS_MAX}")]
    TooMany {
        /// How many were named.
        count: usize,
    },
    /// The model or dataset does not exist.
    #[error("there is no {name}")]
    NotFound {
        /// Its name.
        name: String,
    },
    /// Access denied.
    #[error(transparent)]
    Refused(#[from] AccessDenied),
    /// The file system reported an error.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Returns the names sorted and without duplicates, if all are valid.
///
/// # Errors
/// Returns `BadName` or `TooMany`.
pub fn validate_project_names(mut projects: Vec<String>) -> Result<Vec<String>, ProjectsError> {
    if let Some(name) = projects.iter().find(|name| !is_name(name)) {
        return Err(ProjectsError::BadName { name: name.chars().take(80).collect() });
    }
    projects.sort();
    projects.dedup();
    match projects.len() {
        count if count > KEY_PROJECTS_MAX => Err(ProjectsError::TooMany { count }),
        _ => Ok(projects),
    }
}

impl ProjectAssignments {
    /// Returns the assignments of the models of an installation, whose directory of models is `root`.
    pub fn of_models(home: &StateDir, root: impl Into<PathBuf>) -> ProjectAssignments {
        ProjectAssignments::of(home, root.into(), MODELS_FOLDER, true)
    }

    /// Returns the assignments of the datasets of an installation.
    pub fn of_datasets(home: &StateDir) -> ProjectAssignments {
        ProjectAssignments::of(home, home.datasets(), DATASETS_FOLDER, false)
    }

    fn of(home: &StateDir, root: PathBuf, folder: &str, are_models: bool) -> ProjectAssignments {
        let Some(bucket) = home.bucket() else {
            let versions = VersionDirectories::new(root);
            let place = AssignmentPlace::Files(versions.clone());
            return ProjectAssignments { versions: Arc::new(versions), place, are_models };
        };
        let versions = Arc::new(ObjectVersions::new(bucket.clone(), folder, home.fetched_versions()));
        let place = AssignmentPlace::Bucket(Arc::new(BucketAssignments::new(bucket.clone(), folder)));
        ProjectAssignments { versions, place, are_models }
    }

    /// Returns the recorded projects of a name, or `None` if it belongs to no project.
    ///
    /// # Errors
    /// Returns `Store`, also if the file is damaged.
    pub fn recorded_projects(&self, name: &str) -> Result<Option<Vec<String>>, ProjectsError> {
        if !is_name(name) {
            return Ok(None);
        }
        let directories = match &self.place {
            AssignmentPlace::Files(directories) => directories,
            AssignmentPlace::Bucket(bucket) => {
                return Ok(Some(bucket.projects(name)?).filter(|projects| !projects.is_empty()));
            }
        };
        let path = directories.projects_path(name);
        let read = || {
            let file = match std::fs::File::open(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                opened => opened?,
            };
            let mut text = Vec::new();
            file.take(PROJECTS_BYTES_MAX).read_to_end(&mut text)?;
            let projects: Vec<String> = serde_json::from_slice(&text).map_err(io::Error::other)?;
            Ok((!projects.is_empty()).then_some(projects))
        };
        Ok(read().map_err(StoreError::io(&path))?)
    }

    /// Returns the projects whose keys can change this name: the recorded ones or, for a model without any, the project
    /// of the job that published its newest version.
    ///
    /// # Errors
    /// The same as [`ProjectAssignments::recorded_projects`].
    pub fn owners(&self, name: &str) -> Result<Option<Vec<String>>, ProjectsError> {
        let recorded = self.recorded_projects(name)?;
        if recorded.is_some() || !self.are_models || !is_name(name) {
            return Ok(recorded);
        }
        let newest = self.versions.versions(name)?.last().copied();
        let newest = newest.map(|version| self.versions.manifest(name, version)).transpose()?;
        let manifest = newest.and_then(|source| models::read_manifest_from(&source).ok());
        Ok(manifest.and_then(|manifest| project_of_job(&manifest.source_job)).map(|project| vec![project]))
    }

    /// Assigns a name to these projects; an empty list removes the assignment.
    ///
    /// # Errors
    /// Returns `BadName`; `TooMany`; `NotFound`; `Store`.
    pub fn set(&self, name: &str, projects: Vec<String>) -> Result<(), ProjectsError> {
        let projects = validate_project_names(projects)?;
        if !is_name(name) || self.versions.versions(name)?.is_empty() {
            return Err(ProjectsError::NotFound { name: name.chars().take(80).collect() });
        }
        self.change(name, || Ok(Some(projects.clone())))
    }

    /// Checks whether the caller can create a version of this name, and assigns a new name to the caller's projects.
    /// Concurrent claims of one name are checked one after the other.
    ///
    /// # Errors
    /// Returns `Refused` or `Store`.
    pub fn claim(&self, name: &str, claim: &VersionClaim<'_>) -> Result<(), ProjectsError> {
        // Creating the version refuses invalid names. Without a key there is nothing to check or record.
        if !is_name(name) || claim.rights.key().is_none() {
            return Ok(());
        }
        self.change(name, || self.evaluate_claim(name, claim))
    }

    /// Checks a claim as [`ProjectAssignments::claim`] does, without recording it.
    ///
    /// # Errors
    /// The same as [`ProjectAssignments::claim`].
    pub fn check_claim(&self, name: &str, claim: &VersionClaim<'_>) -> Result<(), ProjectsError> {
        if is_name(name) { self.evaluate_claim(name, claim).map(drop) } else { Ok(()) }
    }

    fn evaluate_claim(&self, name: &str, claim: &VersionClaim<'_>) -> Result<Option<Vec<String>>, ProjectsError> {
        let owners = self.owners(name)?;
        let is_new = owners.is_none() && self.versions.versions(name)?.is_empty();
        Ok(claim.admit(name, is_new, owners.as_deref())?)
    }

    /// Removes the assignment of a name that has no version, after creating its first one failed.
    pub fn release(&self, name: &str) {
        let release = || Ok(self.versions.versions(name)?.is_empty().then(Vec::new));
        if is_name(name)
            && let Err(error) = self.change(name, release)
        {
            tracing::warn!(name, %error, "the unused name is still assigned to its projects");
        }
    }

    /// Changes the projects of a name to those that `decide` returns, while nobody else changes them. Changes nothing if it
    /// returns `None`.
    fn change(
        &self,
        name: &str,
        mut decide: impl FnMut() -> Result<Option<Vec<String>>, ProjectsError>,
    ) -> Result<(), ProjectsError> {
        match &self.place {
            AssignmentPlace::Bucket(bucket) => bucket.change(name, decide),
            AssignmentPlace::Files(directories) => directories.with_name_lock(name, || match decide()? {
                Some(projects) => write_file(directories, name, &projects),
                None => Ok(()),
            }),
        }
    }
}

fn write_file(directories: &VersionDirectories, name: &str, projects: &[String]) -> Result<(), ProjectsError> {
    if projects.is_empty() {
        return Ok(directories.remove_projects_file(name)?);
    }
    let path = directories.projects_path(name);
    directories.create_directory(path.parent().unwrap_or(&path))?;
    let text = serde_json::to_vec(projects).expect("names are JSON");
    Ok(durable::replace(&path, &text).map_err(StoreError::io(&path))?)
}

/// Returns the project of a job with this name: `digits` for `digits-7`.
fn project_of_job(job: &str) -> Option<String> {
    let (project, number) = job.rsplit_once('-')?;
    let digits = number.bytes().all(|byte| byte.is_ascii_digit());
    // The source of an import ends in twelve hexadecimal digits, all of which can be decimal.
    let is_number = digits && !number.starts_with('0') && (1..12).contains(&number.len());
    (is_number && is_name(project)).then(|| project.to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::models::{ModelPublication, ModelRegistry};
    use crate::rights::tests::key_rights;
    use crate::rights::{AccessAction, AccessRights};
    use crate::{DatasetStore, KeyScope};

    fn of_models(root: &Path) -> ProjectAssignments {
        ProjectAssignments::of_models(&StateDir::from_existing(root), root)
    }

    fn publish(root: &Path, model: &str, source_job: &str) {
        let it = ModelPublication {
            model,
            plugin: b"wasm",
            variables: &[],
            config: "",
            inputs: Default::default(),
            source_job,
            created_ms: 1,
            metrics: Default::default(),
            card: None,
            provenance: Default::default(),
        };
        ModelRegistry::new(root).publish(&it).unwrap();
    }

    #[test]
    fn a_new_name_belongs_to_whoever_claims_it_first() {
        let directory = tempfile::tempdir().unwrap();
        let projects = ProjectAssignments::of_datasets(&StateDir::open(directory.path()).unwrap());
        let (digits, faces) =
            (key_rights(&[KeyScope::JobsWrite], &["digits"]), key_rights(&[KeyScope::JobsWrite], &["faces"]));
        let nobody = AccessRights::default();
        let claim = |rights| VersionClaim { effect: AccessAction::PushDataset, rights, project: None };
        projects.claim("mnist", &claim(&digits)).unwrap();
        assert_eq!(projects.recorded_projects("mnist").unwrap(), Some(vec!["digits".to_owned()]));
        let refused = projects.claim("mnist", &claim(&faces)).unwrap_err().to_string();
        assert!(refused.contains("dataset mnist: it belongs to no project of the key k"), "{refused}");
        projects.claim("mnist", &claim(&digits)).unwrap();
        projects.release("mnist");
        projects.claim("mnist", &claim(&faces)).unwrap();
        assert_eq!(projects.recorded_projects("mnist").unwrap(), Some(vec!["faces".to_owned()]));
        // Nothing is recorded for a caller without a key, or for an invalid name.
        projects.claim("other", &claim(&nobody)).unwrap();
        projects.claim("../x", &claim(&digits)).unwrap();
        assert_eq!(projects.recorded_projects("other").unwrap(), None);
        assert!(
            DatasetStore::new(directory.path().join("datasets")).list().unwrap().is_empty(),
            "the folder is no dataset"
        );
    }

    #[test]
    fn a_model_without_recorded_projects_belongs_to_the_project_of_its_newest_version() {
        let directory = tempfile::tempdir().unwrap();
        let projects = of_models(directory.path());
        for (job, owner) in [("digits-7", Some("digits")), ("onnx-0a1b2c", None), ("", None), ("a-b-12", Some("a-b"))] {
            publish(directory.path(), "net", job);
            let owners = owner.map(|owner| vec![owner.to_owned()]);
            assert_eq!(projects.owners("net").unwrap(), owners, "{job}");
            assert_eq!(projects.recorded_projects("net").unwrap(), None, "everybody reads it");
        }
        projects.set("net", vec!["faces".to_owned(), "faces".to_owned()]).unwrap();
        assert_eq!(projects.owners("net").unwrap(), Some(vec!["faces".to_owned()]));
        projects.set("net", Vec::new()).unwrap();
        assert_eq!(projects.recorded_projects("net").unwrap(), None);
        assert!(matches!(projects.set("none", Vec::new()), Err(ProjectsError::NotFound { .. })));
        assert!(matches!(projects.set("net", vec!["A b".to_owned()]), Err(ProjectsError::BadName { .. })));
        let many = (0..=KEY_PROJECTS_MAX).map(|at| format!("p{at}")).collect();
        assert!(matches!(projects.set("net", many), Err(ProjectsError::TooMany { .. })));
    }

    #[test]
    fn a_damaged_project_file_denies_every_key() {
        let directory = tempfile::tempdir().unwrap();
        publish(directory.path(), "net", "");
        let projects = of_models(directory.path());
        projects.set("net", vec!["faces".to_owned()]).unwrap();
        std::fs::write(directory.path().join(".projects/net"), "[\"fa").unwrap();
        assert!(projects.owners("net").is_err());
    }
}
