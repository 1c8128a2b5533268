//! What users decided about a model's versions: aliases, traffic, shadow, what is loaded besides and what is not. Kept in
//! `models/NAME/serving.json`, so that it outlives the server.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::unserved_reason::FollowPolicy;
use crate::limits::{ALIASES_MAX, FORMER_DEFAULTS_MAX};
use crate::predict::model_reference::{VersionSelector, is_alias};

/// The file's name in a model's directory.
pub const PLAN_FILE: &str = "serving.json";

/// The alias of the version that default requests get. Where nobody set it, it follows the newest version.
pub const STABLE: &str = "stable";

/// The alias that `saggar models canary` gives the version that it sends a share of the requests to.
pub const CANARY: &str = "canary";

/// What users decided.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DesiredState {
    /// Versions by their aliases. Without `stable`, the newest version is the default.
    pub aliases: BTreeMap<String, u64>,
    /// Shares of default requests in percent, by alias or version; empty: all go to the default.
    pub traffic: BTreeMap<String, u32>,
    /// The version that repeats a share of the requests, whose answers nobody gets.
    pub shadow: Option<ShadowPolicy>,
    /// Versions that are loaded although nothing points to them.
    pub held: BTreeSet<u64>,
    /// Whether a user had the model unloaded.
    pub unloaded: bool,
    /// Versions that were the default before, oldest first.
    pub former: Vec<u64>,
    /// The version that was the default last. It stays so where only promoted versions are served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_default: Option<u64>,
}

/// A shadow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShadowPolicy {
    /// An alias or a version.
    pub to: String,
    /// The share of requests that it repeats.
    pub percent: u32,
}

/// Why a plan makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DesiredStateError(pub String);

impl DesiredState {
    /// The version that an alias or a number stands for; `newest` is what `stable` follows where nobody set it.
    pub fn resolve_version(&self, name: &str, newest: Option<u64>) -> Option<u64> {
        match VersionSelector::parse(name) {
            Ok(VersionSelector::Version(version)) => Some(version),
            Ok(VersionSelector::Alias(alias)) if alias == STABLE => self.aliases.get(STABLE).copied().or(newest),
            Ok(VersionSelector::Alias(alias)) => self.aliases.get(&alias).copied(),
            Ok(VersionSelector::Default) | Err(_) => None,
        }
    }

    /// The version that a user made the default, or none where the newest is.
    pub fn promoted_version(&self) -> Option<u64> {
        self.aliases.get(STABLE).copied()
    }

    /// The version that stays the default whatever is published, or none where the newest is the default.
    pub fn fixed_default(&self, follow: FollowPolicy) -> Option<u64> {
        match follow {
            FollowPolicy::Newest => self.promoted_version(),
            FollowPolicy::Promoted => self.promoted_version().or(self.last_default),
        }
    }

    /// The versions that must be up beside the default.
    pub fn required_versions(&self) -> BTreeSet<u64> {
        let named = self.traffic.keys().chain(self.shadow.as_ref().map(|shadow| &shadow.to));
        let named = named.filter_map(|name| self.resolve_version(name, None));
        self.aliases.values().chain(&self.held).copied().chain(named).collect()
    }

    /// Forgets versions that are gone for good, and what pointed to them. Says whether there were any.
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
        // Shares that no longer make a whole would send requests nowhere.
        if !self.traffic.keys().all(|name| stands(name)) {
            self.traffic = BTreeMap::new();
        }
        self.shadow = self.shadow.take().filter(|shadow| stands(&shadow.to));
        before != *self
    }

    /// Remembers the default that another one takes the place of.
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
    /// `DesiredStateError` for a name that none can have, or one too many.
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

    /// Takes an alias away, and the shares that it had.
    pub fn remove_alias(&mut self, alias: &str) -> bool {
        let was_there = self.aliases.remove(alias).is_some();
        if alias != STABLE && self.traffic.contains_key(alias) {
            self.traffic = BTreeMap::new();
        }
        self.shadow = self.shadow.take().filter(|shadow| shadow.to != alias || alias == STABLE);
        was_there
    }

    /// Ends a canary, and a shadow of one of `versions`: from now on the default gets all default requests. The alias
    /// `canary` goes with the shares that it had, as it does when a user ends them; other aliases stay where they point.
    pub fn end_canary_and_shadow(&mut self, versions: &[u64]) {
        if self.traffic.contains_key(CANARY) {
            self.aliases.remove(CANARY);
        }
        self.traffic = BTreeMap::new();
        let repeated = self.shadow.as_ref().map(|shadow| &shadow.to);
        // A name that no longer stands for anything has nobody repeat requests either.
        if repeated.is_some_and(|to| self.resolve_version(to, None).is_none_or(|version| versions.contains(&version))) {
            self.shadow = None;
        }
    }

    /// Checks shares: of something that is there, and a hundred together.
    ///
    /// # Errors
    /// `DesiredStateError`.
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
