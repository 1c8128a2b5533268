//! The state of one model: its loaded versions, the references to them, and the known facts about its other versions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::desired_state::{DesiredState, STABLE};
use crate::live_version::LiveVersion;
use crate::model_config::{KeepAlive, ModelConfig};
use crate::promotion_gate::refusal_message;
use crate::unserved_reason::{FollowPolicy, UnservedReason};
use crate::version_origin::VersionOrigin;
use crate::version_state::VersionState;

/// A version that is stored on disk.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedVersion {
    /// Its origin, if its manifest can be read.
    pub origin: Option<VersionOrigin>,
    /// The reason for which it cannot be loaded, or not yet.
    pub reason: String,
    /// Whether loading it failed.
    pub failed: bool,
}

/// A version as shown to clients.
#[derive(Clone, Debug)]
pub struct VersionStatus {
    /// Its number.
    pub version: u64,
    /// Its state.
    pub state: VersionState,
    /// The reason for that state, or empty.
    pub reason: String,
    /// The reason for which it is not loaded although it is complete and was not refused.
    pub unserved: Option<UnservedReason>,
    /// Its origin, if known.
    pub origin: Option<VersionOrigin>,
    /// The version itself, if it is ready.
    pub serving: Option<Arc<LiveVersion>>,
    /// The aliases that point to it.
    pub aliases: Vec<String>,
    /// Its share of default requests in percent.
    pub traffic_percent: u32,
}

/// A model as shown to clients.
#[derive(Clone, Debug)]
pub struct ModelStatus {
    /// Its name.
    pub name: String,
    /// The version that default requests get.
    pub serving: Option<Arc<LiveVersion>>,
    /// Every existing version, oldest first.
    pub versions: Vec<VersionStatus>,
    /// Whether it is loaded, and if not, why.
    pub residency: Residency,
    /// The desired state set by users.
    pub desired: DesiredState,
    /// Its configuration.
    pub config: ModelConfig,
    /// The last change of the default.
    pub last_swap: Option<VersionSwap>,
    /// The keep-alive time that a request set.
    pub requested_keep_alive: Option<KeepAlive>,
    /// The default version if no user promoted one.
    pub follow: FollowPolicy,
}

impl ModelStatus {
    /// Returns whether a published version becomes the default automatically.
    pub fn follows_newest(&self) -> bool {
        self.desired.fixed_default(self.follow).is_none() && self.follow == FollowPolicy::Newest
    }

    /// Returns a notice that published versions are not served automatically and how to change that. Returns an empty
    /// string if they are.
    pub fn promotion_notice(&self) -> String {
        let name = &self.name;
        match (self.desired.promoted_version(), self.follow) {
            (Some(version), FollowPolicy::Newest) => format!(
                "{name}: version {version} was promoted and stays the default, also when trainings publish newer ones; \
                 `saggar models promote {name} newest` has the default follow the newest again"
            ),
            (None, FollowPolicy::Newest) => String::new(),
            (_, FollowPolicy::Promoted) => match self.desired.fixed_default(self.follow) {
                Some(version) => format!(
                    "{name}: version {version} stays the default until `saggar models promote {name} VERSION` \
                     (the server runs with --follow promoted)"
                ),
                None => format!(
                    "{name}: no version is served before `saggar models promote {name} VERSION` \
                     (the server runs with --follow promoted)"
                ),
            },
        }
    }

    /// Returns the idle time after which the model sleeps: the value of the last request that set one, else the
    /// configured one.
    pub fn keep_alive(&self) -> KeepAlive {
        self.requested_keep_alive.unwrap_or(self.config.keep_alive)
    }
}

/// Whether a model is loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Residency {
    /// Its versions are loaded as far as possible.
    #[default]
    Awake,
    /// It is loaded at the next request. The reason is one of `IDLE`, `MEMORY`, `DEVICE`.
    Asleep(&'static str),
    /// It is not loaded until a user loads it.
    Unloaded,
}

impl Residency {
    /// Returns whether a request loads it.
    pub fn wakes_on_request(&self) -> bool {
        matches!(self, Residency::Asleep(_))
    }
}

/// A change of the version that default requests get.
#[derive(Clone, Debug, PartialEq)]
pub struct VersionSwap {
    /// Time in milliseconds since 1970.
    pub at_ms: u64,
    /// The previous default.
    pub from: Option<u64>,
    /// The new default.
    pub to: Option<u64>,
    /// `full`, `weights`, `alias` if the version was already loaded, or `unload`.
    pub kind: &'static str,
    /// `NEWEST`, `PROMOTED`, `ROLLED_BACK`, `LOADED`, `WOKEN`, `UNLOADED`, `IDLE`, `MEMORY`,
    /// `DEVICE` (it was lost), `REMOVED`.
    pub reason: &'static str,
    /// Seconds from the cause to the first possible answer.
    pub seconds: f64,
}

/// The state of one model.
#[derive(Debug, Default)]
pub(crate) struct ModelState {
    pub(crate) ready: BTreeMap<u64, Arc<LiveVersion>>,
    /// The version among `ready` that default requests get.
    pub(crate) default: Option<u64>,
    pub(crate) loading: Option<u64>,
    pub(crate) draining: Vec<u64>,
    /// Versions taken out of service that are not draining yet.
    pub(crate) retired: Vec<Arc<LiveVersion>>,
    pub(crate) listed: BTreeMap<u64, ListedVersion>,
    pub(crate) desired: DesiredState,
    pub(crate) config: ModelConfig,
    pub(crate) residency: Residency,
    pub(crate) last_swap: Option<VersionSwap>,
    pub(crate) requested_keep_alive: Option<KeepAlive>,
    pub(crate) follow: FollowPolicy,
}

impl ModelState {
    pub(crate) fn is_ensemble(&self) -> bool {
        self.config.ensemble.is_some()
    }

    /// Returns when the current or expected default version was published, or `None` if no version can serve.
    pub(crate) fn published_ms(&self) -> Option<u64> {
        if let Some(serving) = self.default.and_then(|version| self.ready.get(&version)) {
            return Some(serving.origin.created_ms);
        }
        let wakes =
            self.residency.wakes_on_request().then(|| self.listed.values().rev().find_map(|it| it.origin.as_ref()))?;
        wakes.map(|origin| origin.created_ms)
    }

    /// Returns the version that an alias points to.
    pub(crate) fn resolve_alias(&self, alias: &str) -> Option<u64> {
        if alias == STABLE {
            return self.desired.promoted_version().or(self.default);
        }
        self.desired.aliases.get(alias).copied()
    }

    /// Returns the version that would be the default if the model were awake.
    fn expected_default(&self) -> Option<u64> {
        let newest = || {
            let mut whole = self.listed.iter().rev().filter(|(_, listed)| !listed.failed);
            whole
                .find(|(version, listed)| listed.reason.is_empty() && self.gate_refusal(**version).is_none())
                .map(|(version, _)| *version)
        };
        match self.desired.fixed_default(self.follow).or(self.default) {
            Some(version) => Some(version),
            None if self.follow == FollowPolicy::Promoted => None,
            None => newest(),
        }
    }

    /// Returns the reason for which a version does not become the default by itself, or `None` if it does.
    fn gate_refusal(&self, version: u64) -> Option<String> {
        let origin = |version: u64| self.listed.get(&version).and_then(|listed| listed.origin.as_ref());
        let gate = self.config.promote.as_ref()?;
        if self.follow == FollowPolicy::Promoted || self.desired.promoted_version().is_some() {
            return None;
        }
        let reference = self.desired.last_default.and_then(|serving| Some((serving, origin(serving)?)));
        gate.refusal((version, origin(version)?), reference)
    }

    /// Returns the versions that would be loaded if the model were awake.
    pub(crate) fn desired_versions(&self) -> BTreeSet<u64> {
        let mut wanted = self.desired.required_versions();
        wanted.extend(self.expected_default());
        wanted
    }

    /// Returns whether a version is complete, was not refused, and can be loaded.
    pub(crate) fn is_loadable(&self, version: u64) -> bool {
        let listed = self.listed.get(&version);
        self.residency != Residency::Unloaded && listed.is_some_and(|listed| !listed.failed && listed.reason.is_empty())
    }

    /// Returns the reason for which a stored version is not loaded. Returns `None` if it is loaded, was refused, or is
    /// incomplete.
    fn unserved_reason(&self, version: u64) -> Option<UnservedReason> {
        let listed = self.listed.get(&version)?;
        if !listed.reason.is_empty() || self.version_state(version) != Some(VersionState::Unloaded) {
            return None;
        }
        let is_fixed = self.desired.fixed_default(self.follow).is_some();
        Some(match (&self.residency, self.expected_default()) {
            (Residency::Unloaded, _) => UnservedReason::ModelUnloaded,
            _ if self.gate_refusal(version).is_some() => UnservedReason::ConditionNotMet,
            (_, None) => UnservedReason::NotPromoted { default: None },
            (_, Some(default)) if version < default => UnservedReason::Superseded { default },
            (_, Some(default)) if version > default && is_fixed => {
                UnservedReason::NotPromoted { default: Some(default) }
            }
            (Residency::Asleep(cause), Some(_)) => UnservedReason::Asleep(cause),
            (Residency::Awake, Some(_)) => UnservedReason::Pending,
        })
    }

    /// Returns the reason for which a version is not loaded as a sentence for people.
    fn unserved_message(&self, reason: UnservedReason, name: &str, version: u64) -> String {
        match (reason, self.gate_refusal(version)) {
            (UnservedReason::ConditionNotMet, Some(refusal)) => refusal_message(&refusal, name, version),
            (reason, _) => reason.message(name, version),
        }
    }

    /// Takes all versions out of service for which `keep` is false.
    pub(crate) fn retire_except(&mut self, keep: impl Fn(u64) -> bool) {
        let versions: Vec<u64> = self.ready.keys().copied().filter(|&version| !keep(version)).collect();
        self.retired.extend(versions.into_iter().filter_map(|version| self.ready.remove(&version)));
        self.default = self.default.filter(|default| self.ready.contains_key(default));
    }

    pub(crate) fn version_state(&self, version: u64) -> Option<VersionState> {
        if self.ready.contains_key(&version) {
            return Some(VersionState::Ready);
        }
        if self.loading == Some(version) {
            return Some(VersionState::Loading);
        }
        if self.draining.contains(&version) {
            return Some(VersionState::Draining);
        }
        let state = |listed: &ListedVersion| if listed.failed { VersionState::Failed } else { VersionState::Unloaded };
        self.listed.get(&version).map(state)
    }

    pub(crate) fn version_states(&self) -> BTreeMap<u64, VersionState> {
        let up = self.draining.iter().chain(self.ready.keys());
        let versions: BTreeSet<u64> = self.listed.keys().chain(up).copied().chain(self.loading).collect();
        versions.into_iter().filter_map(|version| Some((version, self.version_state(version)?))).collect()
    }

    pub(crate) fn status(&self, name: &str) -> ModelStatus {
        let names = |version: u64| {
            let set = self.desired.aliases.iter().filter(|(_, to)| **to == version).map(|(alias, _)| alias.clone());
            let follows = self.desired.promoted_version().is_none() && self.default == Some(version);
            follows.then(|| STABLE.to_owned()).into_iter().chain(set).collect()
        };
        let share = |version: u64| {
            if self.desired.traffic.is_empty() {
                return if self.default == Some(version) { 100 } else { 0 };
            }
            let shares = self.desired.traffic.iter();
            let of = |name: &str| self.resolve_alias(name).or_else(|| name.parse().ok()) == Some(version);
            shares.filter(|(name, _)| of(name)).map(|(_, share)| share).sum()
        };
        let version = |(version, state)| {
            let listed = self.listed.get(&version);
            let serving = self.ready.get(&version).cloned();
            let idle = self.unserved_reason(version);
            let reason = listed.map(|listed| listed.reason.clone()).filter(|reason| !reason.is_empty());
            VersionStatus {
                version,
                state,
                reason: reason.or_else(|| Some(self.unserved_message(idle?, name, version))).unwrap_or_default(),
                unserved: idle,
                origin: serving.as_ref().map(|s| s.origin.clone()).or_else(|| listed?.origin.clone()),
                serving,
                aliases: names(version),
                traffic_percent: share(version),
            }
        };
        ModelStatus {
            name: name.to_owned(),
            serving: self.default.and_then(|version| self.ready.get(&version)).cloned(),
            versions: self.version_states().into_iter().map(version).collect(),
            residency: self.residency.clone(),
            desired: self.desired.clone(),
            config: self.config.clone(),
            last_swap: self.last_swap.clone(),
            requested_keep_alive: self.requested_keep_alive,
            follow: self.follow,
        }
    }

    pub(crate) fn not_ready_reason(&self, name: &str) -> String {
        if self.residency == Residency::Unloaded {
            return format!("it was unloaded by `saggar models unload`; `saggar models load {name}` loads it");
        }
        if let Some(version) = self.loading {
            return format!("version {version} is LOADING");
        }
        if self.expected_default().is_none() && self.follow == FollowPolicy::Promoted {
            return format!("no version was promoted yet; `saggar models promote {name} VERSION` serves one");
        }
        let newest = self.listed.iter().next_back();
        newest.map_or_else(
            || "it was removed".to_owned(),
            |(version, listed)| {
                let state = if listed.failed { "FAILED" } else { "waiting" };
                let separator = if listed.reason.is_empty() { "" } else { ": " };
                format!("version {version} is {state}{separator}{}", listed.reason)
            },
        )
    }

    pub(crate) fn is_empty(&self) -> bool {
        let up = self.ready.is_empty() && self.draining.is_empty() && self.retired.is_empty();
        self.listed.is_empty() && up && self.loading.is_none() && !self.is_ensemble()
    }
}
