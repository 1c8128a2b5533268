//! What users decided about a model's versions: aliases, traffic, shadow, what is loaded besides and what is not. Kept in
//! `models/NAME/serving.json`, so that it outlives the server.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::idle::Follow;
use crate::limits::{ALIASES_MAX, DEFAULTS_REMEMBERED};
use crate::predict::reference::{Which, is_alias};

/// The file's name in a model's directory.
pub const PLAN_FILE: &str = "serving.json";

/// The alias of the version that default requests get. Where nobody set it, it follows the newest version.
pub const STABLE: &str = "stable";

/// The alias that `saggar models canary` gives the version that it sends a share of the requests to.
pub const CANARY: &str = "canary";

/// What users decided.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Plan {
    /// Versions by their aliases. Without `stable`, the newest version is the default.
    pub aliases: BTreeMap<String, u64>,
    /// Shares of default requests in percent, by alias or version; empty: all go to the default.
    pub traffic: BTreeMap<String, u32>,
    /// The version that repeats a share of the requests, whose answers nobody gets.
    pub shadow: Option<ShadowPlan>,
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
pub struct ShadowPlan {
    /// An alias or a version.
    pub to: String,
    /// The share of requests that it repeats.
    pub percent: u32,
}

/// Why a plan makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadPlan(pub String);

impl Plan {
    /// The version that an alias or a number stands for; `newest` is what `stable` follows where nobody set it.
    pub fn version(&self, name: &str, newest: Option<u64>) -> Option<u64> {
        match Which::parse(name) {
            Ok(Which::Version(version)) => Some(version),
            Ok(Which::Alias(alias)) if alias == STABLE => self.aliases.get(STABLE).copied().or(newest),
            Ok(Which::Alias(alias)) => self.aliases.get(&alias).copied(),
            Ok(Which::Default) | Err(_) => None,
        }
    }

    /// The version that a user made the default, or none where the newest is.
    pub fn pinned(&self) -> Option<u64> {
        self.aliases.get(STABLE).copied()
    }

    /// The version that stays the default whatever is published, or none where the newest is the default.
    pub fn fixed(&self, follow: Follow) -> Option<u64> {
        match follow {
            Follow::Newest => self.pinned(),
            Follow::Promoted => self.pinned().or(self.last_default),
        }
    }

    /// The versions that must be up beside the default.
    pub fn needed(&self) -> BTreeSet<u64> {
        let named = self.traffic.keys().chain(self.shadow.as_ref().map(|shadow| &shadow.to));
        let named = named.filter_map(|name| self.version(name, None));
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
        let stands = |name: &str| match Which::parse(name) {
            Ok(Which::Version(version)) => there(version),
            Ok(Which::Alias(alias)) => alias == STABLE || aliases.contains_key(&alias),
            Ok(Which::Default) | Err(_) => false,
        };
        // Shares that no longer make a whole would send requests nowhere.
        if !self.traffic.keys().all(|name| stands(name)) {
            self.traffic = BTreeMap::new();
        }
        self.shadow = self.shadow.take().filter(|shadow| stands(&shadow.to));
        before != *self
    }

    /// Remembers the default that another one takes the place of.
    pub fn remember(&mut self, version: u64) {
        self.former.retain(|&former| former != version);
        self.former.push(version);
        if self.former.len() > DEFAULTS_REMEMBERED {
            self.former.remove(0);
        }
    }

    /// Points an alias at a version.
    ///
    /// # Errors
    /// `BadPlan` for a name that none can have, or one too many.
    pub fn set_alias(&mut self, alias: &str, version: u64) -> Result<(), BadPlan> {
        if !is_alias(alias) {
            let rule = "1 to 63 lower-case letters, digits, _ and -, beginning with a letter";
            return Err(BadPlan(format!("alias: expected {rule}, got {alias:?}")));
        }
        if self.aliases.len() >= ALIASES_MAX && !self.aliases.contains_key(alias) {
            return Err(BadPlan(format!("alias: a model has at most {ALIASES_MAX}")));
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
    pub fn end_trials(&mut self, versions: &[u64]) {
        if self.traffic.contains_key(CANARY) {
            self.aliases.remove(CANARY);
        }
        self.traffic = BTreeMap::new();
        let repeated = self.shadow.as_ref().map(|shadow| &shadow.to);
        // A name that no longer stands for anything has nobody repeat requests either.
        if repeated.is_some_and(|to| self.version(to, None).is_none_or(|version| versions.contains(&version))) {
            self.shadow = None;
        }
    }

    /// Checks shares: of something that is there, and a hundred together.
    ///
    /// # Errors
    /// `BadPlan`.
    pub fn check_traffic(traffic: &BTreeMap<String, u32>) -> Result<(), BadPlan> {
        let sum: u64 = traffic.values().map(|&share| u64::from(share)).sum();
        if traffic.is_empty() || sum == 100 {
            return Ok(());
        }
        Err(BadPlan(format!("traffic: expected shares that are 100 together, or {{}} to end it, got {sum}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        let mut plan = Plan::default();
        plan.set_alias("canary", 4).unwrap();
        plan.traffic = BTreeMap::from([("stable".to_owned(), 90), ("canary".to_owned(), 10)]);
        plan.shadow = Some(ShadowPlan { to: "5".to_owned(), percent: 50 });
        plan
    }

    #[test]
    fn names_stand_for_versions() {
        let mut plan = plan();
        assert_eq!(plan.version("stable", Some(7)), Some(7), "it follows the newest");
        plan.set_alias(STABLE, 3).unwrap();
        assert_eq!(plan.version("stable", Some(7)), Some(3));
        assert_eq!((plan.version("canary", None), plan.version("9", None)), (Some(4), Some(9)));
        assert_eq!((plan.version("blue", Some(7)), plan.version("", Some(7))), (None, None));
        assert_eq!(plan.needed(), BTreeSet::from([3, 4, 5]));
        assert!(plan.set_alias("3", 1).is_err() && plan.set_alias("", 1).is_err() && plan.set_alias("A", 1).is_err());
    }

    #[test]
    fn what_points_to_missing_versions_goes() {
        let mut plan = plan();
        assert!(!plan.forget_missing(|_| true));
        assert!(plan.forget_missing(|version| version != 4));
        assert!(plan.aliases.is_empty() && plan.traffic.is_empty());
        assert!(plan.shadow.is_some());
        assert!(plan.forget_missing(|_| false));
        assert_eq!(plan, Plan::default());
    }

    #[test]
    fn an_alias_takes_its_shares_along() {
        let mut plan = plan();
        assert!(plan.remove_alias("canary") && !plan.remove_alias("canary"));
        assert!(plan.traffic.is_empty() && plan.shadow.is_some());
    }

    #[test]
    fn ended_trials_leave_other_aliases_and_shadows() {
        let mut ended = plan();
        ended.set_alias("blue", 6).unwrap();
        ended.end_trials(&[4, 3]);
        assert_eq!((ended.aliases, ended.traffic), (BTreeMap::from([("blue".to_owned(), 6)]), BTreeMap::new()));
        assert_eq!(ended.shadow, plan().shadow, "it repeats for version 5, which is not concerned");
        for (shadow, ends) in [("5", true), ("canary", true), ("blue", false)] {
            let mut ended = Plan { shadow: Some(ShadowPlan { to: shadow.to_owned(), percent: 1 }), ..plan() };
            ended.set_alias("blue", 6).unwrap();
            ended.end_trials(&[5]);
            assert_eq!(ended.shadow.is_none(), ends, "{shadow}");
        }
    }

    #[test]
    fn former_defaults_are_remembered_once() {
        let mut plan = Plan::default();
        for version in [1, 2, 1, 3] {
            plan.remember(version);
        }
        assert_eq!(plan.former, [2, 1, 3]);
        (0..100).for_each(|version| plan.remember(version));
        assert_eq!(plan.former.len(), DEFAULTS_REMEMBERED);
    }

    #[test]
    fn shares_are_a_hundred() {
        let check = |shares: &[(&str, u32)]| {
            Plan::check_traffic(&shares.iter().map(|(name, share)| ((*name).to_owned(), *share)).collect())
        };
        assert!(check(&[]).is_ok() && check(&[("stable", 90), ("canary", 10)]).is_ok());
        assert!(check(&[("stable", 90)]).is_err() && check(&[("a", u32::MAX), ("b", 101)]).is_err());
    }
}
