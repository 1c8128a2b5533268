//! The desired state of a model, set by users: aliases, traffic, shadow, and versions to keep loaded or unloaded.
//! Stored in `models/NAME/serving.json`, so that it survives a restart of the server.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::limits::{ALIASES_MAX, FORMER_DEFAULTS_MAX};
use crate::model_reference::{VersionSelector, is_alias};
use crate::unserved_reason::FollowPolicy;

/// The file's name in a model's directory.
pub const PLAN_FILE: &str = "serving.json";

/// The alias of the version that default requests get. If it is not set, it follows the newest version.
pub const STABLE: &str = "stable";

/// The alias that `saggar models canary` gives the version that receives a share of the requests.
pub const CANARY: &str = "canary";

/// The desired state of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DesiredState {
    /// Versions by alias. Without `stable`, the newest version is the default.
    pub aliases: BTreeMap<String, u64>,
    /// Shares of default requests in percent, by alias or version. If empty, all requests go to the default.
    pub traffic: BTreeMap<String, u32>,
    /// The version that repeats a share of the requests. Its answers are only compared.
    pub shadow: Option<ShadowPolicy>,
    /// Versions that are kept loaded although nothing refers to them.
    pub held: BTreeSet<u64>,
    /// Whether a user unloaded the model.
    pub unloaded: bool,
    /// Former default versions, oldest first.
    pub former: Vec<u64>,
    /// The latest default version. It stays the default if only promoted versions are served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_default: Option<u64>,
}

/// A shadow: a version that repeats a share of the requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShadowPolicy {
    /// An alias or a version.
    pub to: String,
    /// The share of requests that it repeats, in percent.
    pub percent: u32,
}

/// The reason for which a desired state is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DesiredStateError(pub String);

impl DesiredState {
    /// Returns the version that an alias or a number refers to. `newest` is the version of `stable` if that is not set.
    pub fn resolve_version(&self, name: &str, newest: Option<u64>) -> Option<u64> {
        match VersionSelector::parse(name) {
            Ok(VersionSelector::Version(version)) => Some(version),
            Ok(VersionSelector::Alias(alias)) if alias == STABLE => self.aliases.get(STABLE).copied().or(newest),
            Ok(VersionSelector::Alias(alias)) => self.aliases.get(&alias).copied(),
            Ok(VersionSelector::Default) | Err(_) => None,
        }
    }

    /// Returns the version that a user promoted, or `None` if the default follows the newest version.
    pub fn promoted_version(&self) -> Option<u64> {
        self.aliases.get(STABLE).copied()
    }

    /// Returns the version that stays the default whatever is published, or `None` if the newest is the default.
    pub fn fixed_default(&self, follow: FollowPolicy) -> Option<u64> {
        match follow {
            FollowPolicy::Newest => self.promoted_version(),
            FollowPolicy::Promoted => self.promoted_version().or(self.last_default),
        }
    }

    /// Returns the versions that must be loaded in addition to the default.
    pub fn required_versions(&self) -> BTreeSet<u64> {
        let named = self.traffic.keys().chain(self.shadow.as_ref().map(|shadow| &shadow.to));
        let named = named.filter_map(|name| self.resolve_version(name, None));
        self.aliases.values().chain(&self.held).copied().chain(named).collect()
    }

    /// Returns every version that it names.
    pub fn versions(&self) -> BTreeSet<u64> {
        let numbered = self.traffic.keys().chain(self.shadow.as_ref().map(|shadow| &shadow.to));
        let numbered = numbered.filter_map(|name| self.resolve_version(name, None));
        let named = self.aliases.values().chain(&self.held).chain(&self.former).chain(&self.last_default);
        named.copied().chain(numbered).collect()
    }

    /// Removes versions that no longer exist, and everything that refers to them. Returns whether there were any.
    pub fn forget_missing(&mut self, there: impl Fn(u64) -> bool) -> bool {
        let before = self.clone();
        self.aliases.retain(|_, version| there(*version));
        self.held.retain(|version| there(*version));
        self.former.retain(|version| there(*version));
        self.last_default = self.last_default.filter(|version| there(*version));
        let aliases = self.aliases.clone();
        let stands = |name: &str| match VersionSelector::parse(name) {
            Ok(VersionSelector::Version(version)) => there(version),
            Ok(VersionSelector::Alias(alias)) => alias == STABLE || aliases.contains_key(&alias),
            Ok(VersionSelector::Default) | Err(_) => false,
        };
        // Shares that no longer add up to 100 would send requests nowhere.
        if !self.traffic.keys().all(|name| stands(name)) {
            self.traffic = BTreeMap::new();
        }
        self.shadow = self.shadow.take().filter(|shadow| stands(&shadow.to));
        before != *self
    }

    /// Records a former default that was replaced.
    pub fn push_former_default(&mut self, version: u64) {
        self.former.retain(|&former| former != version);
        self.former.push(version);
        if self.former.len() > FORMER_DEFAULTS_MAX {
            self.former.remove(0);
        }
    }

    /// Points an alias at a version.
    ///
    /// # Errors
    /// Returns `DesiredStateError` for an invalid alias, or one too many.
    pub fn set_alias(&mut self, alias: &str, version: u64) -> Result<(), DesiredStateError> {
        if !is_alias(alias) {
            let rule = "1 to 63 lower-case letters, digits, _ and -, beginning with a letter";
            return Err(DesiredStateError(format!("alias: expected {rule}, got {alias:?}")));
        }
        if self.aliases.len() >= ALIASES_MAX && !self.aliases.contains_key(alias) {
            return Err(DesiredStateError(format!("alias: a model has at most {ALIASES_MAX}")));
        }
        self.aliases.insert(alias.to_owned(), version);
        Ok(())
    }

    /// Removes an alias and its traffic share. Returns whether the alias existed.
    pub fn remove_alias(&mut self, alias: &str) -> bool {
        let was_there = self.aliases.remove(alias).is_some();
        if alias != STABLE && self.traffic.contains_key(alias) {
            self.traffic = BTreeMap::new();
        }
        self.shadow = self.shadow.take().filter(|shadow| shadow.to != alias || alias == STABLE);
        was_there
    }

    /// Ends a canary, and a shadow of one of `versions`: the default then gets all default requests. The alias `canary`
    /// is removed together with its shares, as when a user ends them. Other aliases are unchanged.
    pub fn end_canary_and_shadow(&mut self, versions: &[u64]) {
        if self.traffic.contains_key(CANARY) {
            self.aliases.remove(CANARY);
        }
        self.traffic = BTreeMap::new();
        let repeated = self.shadow.as_ref().map(|shadow| &shadow.to);
        // A shadow whose name no longer resolves ends too.
        if repeated.is_some_and(|to| self.resolve_version(to, None).is_none_or(|version| versions.contains(&version))) {
            self.shadow = None;
        }
    }

    /// Checks that the shares add up to 100 or the map is empty.
    ///
    /// # Errors
    /// Returns `DesiredStateError`.
    pub fn check_traffic(traffic: &BTreeMap<String, u32>) -> Result<(), DesiredStateError> {
        let sum: u64 = traffic.values().map(|&share| u64::from(share)).sum();
        if traffic.is_empty() || sum == 100 {
            return Ok(());
        }
        Err(DesiredStateError(format!("traffic: expected shares that are 100 together, or {{}} to end it, got {sum}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desired_state() -> DesiredState {
        let mut plan = DesiredState::default();
        plan.set_alias("canary", 4).unwrap();
        plan.traffic = BTreeMap::from([("stable".to_owned(), 90), ("canary".to_owned(), 10)]);
        plan.shadow = Some(ShadowPolicy { to: "5".to_owned(), percent: 50 });
        plan
    }

    #[test]
    fn names_resolve_to_versions() {
        let mut plan = desired_state();
        assert_eq!(plan.resolve_version("stable", Some(7)), Some(7), "it follows the newest");
        plan.set_alias(STABLE, 3).unwrap();
        assert_eq!(plan.resolve_version("stable", Some(7)), Some(3));
        assert_eq!((plan.resolve_version("canary", None), plan.resolve_version("9", None)), (Some(4), Some(9)));
        assert_eq!((plan.resolve_version("blue", Some(7)), plan.resolve_version("", Some(7))), (None, None));
        assert_eq!(plan.required_versions(), BTreeSet::from([3, 4, 5]));
        assert!(plan.set_alias("3", 1).is_err() && plan.set_alias("", 1).is_err() && plan.set_alias("A", 1).is_err());
    }

    #[test]
    fn references_to_missing_versions_are_dropped() {
        let mut plan = desired_state();
        assert!(!plan.forget_missing(|_| true));
        assert!(plan.forget_missing(|version| version != 4));
        assert!(plan.aliases.is_empty() && plan.traffic.is_empty());
        assert!(plan.shadow.is_some());
        assert!(plan.forget_missing(|_| false));
        assert_eq!(plan, DesiredState::default());
    }

    #[test]
    fn removing_an_alias_removes_its_traffic_share() {
        let mut plan = desired_state();
        assert!(plan.remove_alias("canary") && !plan.remove_alias("canary"));
        assert!(plan.traffic.is_empty() && plan.shadow.is_some());
    }

    #[test]
    fn ending_a_canary_leaves_other_aliases_and_shadows() {
        let mut ended = desired_state();
        ended.set_alias("blue", 6).unwrap();
        ended.end_canary_and_shadow(&[4, 3]);
        assert_eq!((ended.aliases, ended.traffic), (BTreeMap::from([("blue".to_owned(), 6)]), BTreeMap::new()));
        assert_eq!(ended.shadow, desired_state().shadow, "it repeats for version 5, which is not concerned");
        for (shadow, ends) in [("5", true), ("canary", true), ("blue", false)] {
            let mut ended =
                DesiredState { shadow: Some(ShadowPolicy { to: shadow.to_owned(), percent: 1 }), ..desired_state() };
            ended.set_alias("blue", 6).unwrap();
            ended.end_canary_and_shadow(&[5]);
            assert_eq!(ended.shadow.is_none(), ends, "{shadow}");
        }
    }

    #[test]
    fn every_version_that_is_named_can_be_missing() {
        let mut plan = desired_state();
        plan.held.insert(11);
        plan.push_former_default(12);
        plan.last_default = Some(13);
        plan.shadow = Some(ShadowPolicy { to: "14".to_owned(), percent: 1 });
        let named = plan.versions();
        assert!([4, 11, 12, 13, 14].iter().all(|version| named.contains(version)), "{named:?}");
        assert!(plan.forget_missing(|version| !named.contains(&version)));
        assert!(plan.versions().is_empty(), "{plan:?}");
    }

    #[test]
    fn a_former_default_is_stored_once() {
        let mut plan = DesiredState::default();
        for version in [1, 2, 1, 3] {
            plan.push_former_default(version);
        }
        assert_eq!(plan.former, [2, 1, 3]);
        (0..100).for_each(|version| plan.push_former_default(version));
        assert_eq!(plan.former.len(), FORMER_DEFAULTS_MAX);
    }

    #[test]
    fn traffic_shares_must_sum_to_100() {
        let check = |shares: &[(&str, u32)]| {
            DesiredState::check_traffic(&shares.iter().map(|(name, share)| ((*name).to_owned(), *share)).collect())
        };
        assert!(check(&[]).is_ok() && check(&[("stable", 90), ("canary", 10)]).is_ok());
        assert!(check(&[("stable", 90)]).is_err() && check(&[("a", u32::MAX), ("b", 101)]).is_err());
    }
}
