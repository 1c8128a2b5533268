//! Access control: one table of effects ([`AccessAction`]), which every code path to such an effect checks.
//!
//! [`AccessRights`] are the rights of the key that authenticated a request. A job carries the rights of the key that
//! submitted it, and a schedule those of the key that created it. When such a job acts later, [`AccessRights::refresh`]
//! removes the rights that the key has lost since, and all of them if the key was revoked. On a server without keys,
//! everything is allowed.
//!
//! Models, datasets and secrets belong to projects, as `projects` records it. Deliberately elsewhere: which route has
//! which effect (`serve`).

mod action;
#[cfg(test)]
pub(crate) mod tests;

use saggar_clock::UnixMillis;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::keys::{KeyFile, KeyRecord, KeyScope};

pub use action::{AccessAction, ResourceKind};

/// The rights of a caller: unrestricted, or those of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AccessRights(Option<KeyRights>);

/// The rights of one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyRights {
    /// The key's identifier; empty if only its name is known.
    id: String,
    name: String,
    scopes: Vec<KeyScope>,
    /// The projects that the key is limited to; `None` means no limit.
    projects: Option<Vec<String>>,
}

/// The reason for denying an action.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AccessDenied {
    /// The key lacks the scope.
    #[error("{} {thing}: the key {key} lacks the scope {scope} for {}", effect.kind().name(), effect.name())]
    Scope {
        /// The action.
        effect: AccessAction,
        /// The thing's name.
        thing: String,
        /// The key's name.
        key: String,
        /// The missing scope.
        scope: KeyScope,
    },
    /// The thing belongs to none of the key's projects.
    #[error(
        "{} {thing}: it belongs to no project of the key {key} ({projects}), so {} is refused",
        effect.kind().name(),
        effect.name()
    )]
    Project {
        /// The action.
        effect: AccessAction,
        /// The thing's name.
        thing: String,
        /// The key's name.
        key: String,
        /// The key's projects.
        projects: String,
    },
    /// The key was revoked, or has expired.
    #[error("{} {thing}: the key {key} was revoked or has expired, so {} is refused", effect.kind().name(), effect.name())]
    KeyGone {
        /// The action.
        effect: AccessAction,
        /// The thing's name.
        thing: String,
        /// The key's name.
        key: String,
    },
    /// The key's current rights cannot be read.
    #[error("{} {thing}: the rights of the key {key} cannot be read: {reason}", effect.kind().name())]
    Unknown {
        /// The action.
        effect: AccessAction,
        /// The thing's name.
        thing: String,
        /// The key's name.
        key: String,
        /// The reason.
        reason: String,
    },
}

impl AccessDenied {
    /// Returns what an administrator can do about it, with a command.
    pub fn hint(&self) -> String {
        let assign = |effect: &AccessAction, thing: &str, projects: &str| {
            let project = projects.split(", ").next().unwrap_or("PROJECT");
            match effect.kind() {
                ResourceKind::Model => format!(
                    "an administrator gives it to a project: `saggar models projects {thing} --project {project}`"
                ),
                ResourceKind::Dataset => format!(
                    "an administrator gives it to a project: `saggar data projects {thing} --project {project}`"
                ),
                ResourceKind::Secret => {
                    format!("an administrator gives it to a project: `saggar secret set {thing} --project {project}`")
                }
                _ => String::new(),
            }
        };
        match self {
            AccessDenied::Scope { scope, .. } => format!("make a key with `saggar key create NAME --scope {scope}`"),
            AccessDenied::Project { effect, thing, projects, .. } => assign(effect, thing, projects),
            AccessDenied::KeyGone { .. } => "submit the job again with a valid key".to_owned(),
            AccessDenied::Unknown { .. } => "`saggar doctor` checks the state directory".to_owned(),
        }
    }
}

/// Returns whether one of the scopes in `held` includes `wanted`.
fn any_includes(held: &[KeyScope], wanted: KeyScope) -> bool {
    held.iter().any(|held| held.includes(wanted))
}

impl AccessRights {
    /// Returns the rights of a key.
    pub fn from_key(key: &KeyRecord) -> AccessRights {
        AccessRights(Some(KeyRights {
            id: key.id.clone(),
            name: key.name.clone(),
            scopes: key.scopes.clone(),
            projects: key.projects.clone(),
        }))
    }

    /// Returns the rights of the key with this name. They allow nothing until [`AccessRights::refresh`] has read the
    /// key. For jobs that were recorded before records contained rights.
    pub fn from_key_name(name: &str) -> AccessRights {
        let name = name.to_owned();
        AccessRights(Some(KeyRights { id: String::new(), name, scopes: Vec::new(), projects: None }))
    }

    /// Returns the key's name, or `None` without a key.
    pub fn key(&self) -> Option<&str> {
        self.0.as_ref().map(|key| key.name.as_str())
    }

    /// Returns the key's identifier, or `None` without a key.
    pub fn key_id(&self) -> Option<&str> {
        self.0.as_ref().map(|key| key.id.as_str())
    }

    /// Returns the projects that the rights are limited to; `None` means no limit.
    pub fn projects(&self) -> Option<&[String]> {
        self.0.as_ref().and_then(|key| key.projects.as_deref())
    }

    /// Returns whether the project limit includes this project.
    pub fn includes_project(&self, project: &str) -> bool {
        self.projects().is_none_or(|projects| projects.iter().any(|seen| seen == project))
    }

    /// Returns whether the key has this scope. `true` without a key.
    pub fn has_scope(&self, scope: KeyScope) -> bool {
        self.0.as_ref().is_none_or(|key| any_includes(&key.scopes, scope))
    }

    /// Returns whether the project limit allows `effect` on something that belongs to these projects. `None` and an
    /// empty list both mean that it belongs to no project.
    pub fn allows_projects(&self, effect: AccessAction, projects: Option<&[String]>) -> bool {
        let Some(limit) = self.projects() else { return true };
        match projects {
            None | Some([]) => effect.is_allowed_without_project(),
            Some(projects) => projects.iter().any(|project| limit.contains(project)),
        }
    }

    /// Checks whether `effect` is allowed on the thing with this name, which belongs to these projects.
    ///
    /// # Errors
    /// Returns `Scope` or `Project`.
    pub fn check(&self, effect: AccessAction, thing: &str, projects: Option<&[String]>) -> Result<(), AccessDenied> {
        let Some(key) = &self.0 else { return Ok(()) };
        let (thing, name) = (truncate_name(thing), key.name.clone());
        if !self.has_scope(effect.scope()) {
            return Err(AccessDenied::Scope { effect, thing, key: name, scope: effect.scope() });
        }
        if !self.allows_projects(effect, projects) {
            let projects = key.projects.as_ref().map(|projects| projects.join(", ")).unwrap_or_default();
            return Err(AccessDenied::Project { effect, thing, key: name, projects });
        }
        Ok(())
    }

    /// Returns the rights that are left now: those that both `self` and the key in the file `keys` have.
    ///
    /// # Errors
    /// Returns `KeyGone` if the key was revoked or has expired; `Unknown` if the file cannot be read. Both name
    /// `effect` and `thing`, the action that is checked.
    pub fn refresh(
        &self,
        keys: &KeyFile,
        now_ms: UnixMillis,
        effect: AccessAction,
        thing: &str,
    ) -> Result<AccessRights, AccessDenied> {
        let Some(key) = &self.0 else { return Ok(AccessRights(None)) };
        let (thing, name) = (truncate_name(thing), key.name.clone());
        let records = keys.read().map_err(|error| AccessDenied::Unknown {
            effect,
            thing: thing.clone(),
            key: name.clone(),
            reason: error.to_string(),
        })?;
        let is_it = |record: &&KeyRecord| {
            if key.id.is_empty() { record.name == key.name } else { record.id == key.id }
        };
        let record = records.iter().find(is_it).filter(|record| !record.is_expired(now_ms));
        let record = record.ok_or(AccessDenied::KeyGone { effect, thing, key: name })?;
        if key.id.is_empty() {
            return Ok(AccessRights::from_key(record));
        }
        let scopes = KeyScope::ALL.into_iter();
        let scopes =
            scopes.filter(|scope| any_includes(&key.scopes, *scope) && any_includes(&record.scopes, *scope)).collect();
        let projects = match (&key.projects, &record.projects) {
            (Some(before), Some(after)) => Some(before.iter().filter(|it| after.contains(it)).cloned().collect()),
            (limit, None) | (None, limit) => limit.clone(),
        };
        Ok(AccessRights(Some(KeyRights { scopes, projects, ..key.clone() })))
    }
}

fn truncate_name(thing: &str) -> String {
    thing.chars().take(80).collect()
}

/// The caller that creates a version of a model or a dataset.
#[derive(Clone, Copy, Debug)]
pub struct VersionClaim<'a> {
    /// The action: [`AccessAction::PublishModel`] or [`AccessAction::PushDataset`].
    pub effect: AccessAction,
    /// The caller's rights.
    pub rights: &'a AccessRights,
    /// The project of the job that creates the version, or whose output it is.
    pub project: Option<&'a str>,
}

impl VersionClaim<'_> {
    /// Checks whether the caller can create a version of `thing`, which is new or belongs to these projects. Returns
    /// the projects that a new one belongs to from then on; `None` means that its projects do not change.
    ///
    /// Without the scope `models:write`, a job can create versions of new models and of models of the job's project,
    /// since they are the result of its training. Other models require that scope.
    ///
    /// # Errors
    /// Returns `Scope` or `Project`.
    pub fn admit(
        &self,
        thing: &str,
        is_new: bool,
        projects: Option<&[String]>,
    ) -> Result<Option<Vec<String>>, AccessDenied> {
        let rights = self.rights;
        if rights.0.is_none() {
            return Ok(None);
        }
        let is_training = self.effect == AccessAction::PublishModel && rights.has_scope(KeyScope::JobsWrite);
        let of_job = self.project.filter(|project| rights.includes_project(project));
        if !is_new {
            let is_own = of_job.is_some_and(|own| projects.is_some_and(|all| all.iter().any(|project| project == own)));
            if is_training && is_own {
                return Ok(None);
            }
            return rights.check(self.effect, thing, projects).map(|()| None);
        }
        if !(is_training && of_job.is_some()) {
            // It is within the project limit, because it will belong to the key's projects.
            rights.check(self.effect, thing, rights.projects())?;
        }
        let of_key = rights.projects().map(<[String]>::to_vec);
        let of_job = of_job.filter(|_| is_training || of_key.is_some()).map(|project| vec![project.to_owned()]);
        Ok(of_job.or(of_key))
    }
}
