//! Who may do what to which things: one table of effects ([`AccessAction`]), asked by every way to an effect.
//!
//! [`AccessRights`] are those of the key that a request came with. A job carries the rights of the key that submitted it, and a
//! schedule those of the key that set it; when such a job does something later, [`AccessRights::refresh`] takes away what the key has
//! lost meanwhile, and all of it where the key was revoked. Without a key, where a server asks for none, everything is
//! allowed.
//!
//! Things belong to projects as `projects` records it. Deliberately elsewhere: which route has which effect (`serve`).

mod action;
#[cfg(test)]
pub(crate) mod tests;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::clock::UnixMillis;
use crate::keys::{KeyFile, KeyRecord, KeyScope};

pub use action::{AccessAction, ResourceKind};

/// What whoever wants something may do: everything, or what one key may.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AccessRights(Option<KeyRights>);

/// What one key may do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyRights {
    /// The key's identifier; empty where only its name is known.
    id: String,
    name: String,
    scopes: Vec<KeyScope>,
    /// The projects that it is limited to; `None` is no limit.
    projects: Option<Vec<String>>,
}

/// Why something may not be done.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AccessDenied {
    /// The key lacks the scope.
    #[error("{} {thing}: the key {key} lacks the scope {scope} for {}", effect.kind().name(), effect.name())]
    Scope {
        /// What was wanted.
        effect: AccessAction,
        /// The thing's name.
        thing: String,
        /// The key's name.
        key: String,
        /// What it lacks.
        scope: KeyScope,
    },
    /// The thing belongs to none of the key's projects.
    #[error(
        "{} {thing}: it belongs to no project of the key {key} ({projects}), so {} is refused",
        effect.kind().name(),
        effect.name()
    )]
    Project {
        /// What was wanted.
        effect: AccessAction,
        /// The thing's name.
        thing: String,
        /// The key's name.
        key: String,
        /// Those that the key is for.
        projects: String,
    },
    /// The key was revoked, or has expired.
    #[error("{} {thing}: the key {key} was revoked or has expired, so {} is refused", effect.kind().name(), effect.name())]
    KeyGone {
        /// What was wanted.
        effect: AccessAction,
        /// The thing's name.
        thing: String,
        /// The key's name.
        key: String,
    },
    /// It is not known what the key may do now.
    #[error("{} {thing}: what the key {key} may do cannot be read: {reason}", effect.kind().name())]
    Unknown {
        /// What was wanted.
        effect: AccessAction,
        /// The thing's name.
        thing: String,
        /// The key's name.
        key: String,
        /// Why.
        reason: String,
    },
}

impl AccessDenied {
    /// What an administrator can do about it, with a command.
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
            AccessDenied::KeyGone { .. } => "submit the job again with a key that is good".to_owned(),
            AccessDenied::Unknown { .. } => "`saggar doctor` looks at the state directory".to_owned(),
        }
    }
}

/// Whether one of `held` includes `wanted`.
fn any_includes(held: &[KeyScope], wanted: KeyScope) -> bool {
    held.iter().any(|held| held.includes(wanted))
}

impl AccessRights {
    /// The rights of a key.
    pub fn from_key(key: &KeyRecord) -> AccessRights {
        AccessRights(Some(KeyRights {
            id: key.id.clone(),
            name: key.name.clone(),
            scopes: key.scopes.clone(),
            projects: key.projects.clone(),
        }))
    }

    /// The rights of the key of this name, which are looked up by [`AccessRights::refresh`]; without that, nothing is allowed. For
    /// jobs that were recorded before rights were.
    pub fn from_key_name(name: &str) -> AccessRights {
        let name = name.to_owned();
        AccessRights(Some(KeyRights { id: String::new(), name, scopes: Vec::new(), projects: None }))
    }

    /// The key's name, or `None` without a key.
    pub fn key(&self) -> Option<&str> {
        self.0.as_ref().map(|key| key.name.as_str())
    }

    /// The key's identifier, or `None` without a key.
    pub fn key_id(&self) -> Option<&str> {
        self.0.as_ref().map(|key| key.id.as_str())
    }

    /// The projects that they are limited to; `None` is no limit.
    pub fn projects(&self) -> Option<&[String]> {
        self.0.as_ref().and_then(|key| key.projects.as_deref())
    }

    /// Whether things of this project are within the limit.
    pub fn includes_project(&self, project: &str) -> bool {
        self.projects().is_none_or(|projects| projects.iter().any(|seen| seen == project))
    }

    /// Whether a key with this scope is meant, or none at all.
    pub fn has_scope(&self, scope: KeyScope) -> bool {
        self.0.as_ref().is_none_or(|key| any_includes(&key.scopes, scope))
    }

    /// Whether the project limit lets them do `effect` to a thing of these projects; `None`, or none of them, is a thing that
    /// belongs to no project.
    pub fn allows_projects(&self, effect: AccessAction, projects: Option<&[String]>) -> bool {
        let Some(limit) = self.projects() else { return true };
        match projects {
            None | Some([]) => effect.is_allowed_without_project(),
            Some(projects) => projects.iter().any(|project| limit.contains(project)),
        }
    }

    /// Whether `effect` may be done to the thing of this name, which belongs to these projects.
    ///
    /// # Errors
    /// `KeyScope`; `Project`.
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

    /// What is left of them now: what both they and the key of the file `keys` may do.
    ///
    /// # Errors
    /// `KeyGone`; `Unknown` where the file cannot be read. Both name `effect` and `thing`, for which it is asked.
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

/// Who makes versions of a model or a dataset.
#[derive(Clone, Copy, Debug)]
pub struct VersionClaim<'a> {
    /// What is done: [`AccessAction::PublishModel`] or [`AccessAction::PushDataset`].
    pub effect: AccessAction,
    /// What whoever does it may do.
    pub rights: &'a AccessRights,
    /// The project of the job that does it, or whose output it is.
    pub project: Option<&'a str>,
}

impl VersionClaim<'_> {
    /// Whether a version may be made of the thing of this name: of a new one, or of one that belongs to these projects.
    /// Returns the projects that a new one belongs to from then on; `None` leaves it as it is.
    ///
    /// A job may make versions of new models and of those of its own project without the scope `models:write`: they are what
    /// a training is for. Anybody else's model takes that scope.
    ///
    /// # Errors
    /// `KeyScope`; `Project`.
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
            // It is within the limit, for it will belong to it.
            rights.check(self.effect, thing, rights.projects())?;
        }
        let of_key = rights.projects().map(<[String]>::to_vec);
        let of_job = of_job.filter(|_| is_training || of_key.is_some()).map(|project| vec![project.to_owned()]);
        Ok(of_job.or(of_key))
    }
}
