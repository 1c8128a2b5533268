//! The optional configuration of a model: `models/NAME/model.json`. Missing keys have defaults. Unknown keys and
//! invalid values are errors that name the key.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use saggar_compile::DisabledOptimizations;
use saggar_project::{MODEL_OPTIMIZATIONS, units};
use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize, Serializer};

use crate::json_text;
use crate::limits::{
    DEADLINE_DEFAULT, DEADLINE_MAX, INSTANCES_DEFAULT, INSTANCES_MAX, INSTANCES_MIN, PREDICTIONS_DEFAULT,
    PREDICTIONS_MAX,
};
use crate::promotion_gate::PromotionGate;
use crate::serving_policy::{BatchPolicy, ServingPolicy};

/// The file's name in a model's directory.
pub const SETTINGS_FILE: &str = "model.json";

/// The content of `model.json`. The keys are those of a model's table in a project file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelConfig {
    /// Whether requests that name no model use this one.
    #[serde(skip_serializing_if = "is_false")]
    pub default: bool,
    /// How requests are batched.
    pub batch: BatchConfig,
    /// The capacity and timeout of the queue.
    pub queue: QueueConfig,
    /// Idle time after which the model is put to sleep.
    pub keep_alive: KeepAlive,
    /// The condition under which a published version becomes the default. Without one, the newest does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub promote: Option<PromotionGate>,
    /// Whether it stays loaded even if other models need the memory.
    #[serde(skip_serializing_if = "is_false")]
    pub pin: bool,
    /// Limits of the number of concurrent calls.
    pub instances: InstanceRange,
    /// The key that `instances.max` replaces. `None` after [`ModelConfig::parse`].
    #[serde(skip_serializing)]
    pub instances_max: Option<InstanceLimit>,
    /// The cache of responses to repeated requests.
    pub cache: ResponseCacheConfig,
    /// Inputs that are predicted before a version is ready: names of files beside this one, or the inputs themselves in
    /// the form of `/predict`.
    pub warmup: Vec<serde_json::Value>,
    /// The optimizations that are switched off for this model.
    #[serde(skip_serializing_if = "DisabledOptimizations::is_empty")]
    pub without: DisabledOptimizations,
    /// The steps, if this model is an ensemble.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ensemble: Option<EnsembleConfig>,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// How requests are batched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BatchConfig {
    /// Maximum number of items of a batch. `None` is the largest batch size of the model.
    pub max_items: Option<usize>,
    /// Maximum time that a request waits for others to join its batch while the model is busy.
    pub max_delay: ConfigDuration,
}

/// The capacity and timeout of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QueueConfig {
    /// Maximum number of queued and running predictions.
    pub capacity: usize,
    /// The deadline of a prediction if its client sets none.
    pub timeout: ConfigDuration,
}

impl Default for QueueConfig {
    fn default() -> QueueConfig {
        QueueConfig { capacity: PREDICTIONS_DEFAULT, timeout: ConfigDuration(DEADLINE_DEFAULT) }
    }
}

/// Limits of the number of concurrent calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct InstanceRange {
    /// Minimum number. If it is above 0, the model is never put to sleep.
    pub min: usize,
    /// Maximum number.
    pub max: InstanceLimit,
}

/// Maximum number of concurrent calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InstanceLimit(pub usize);

impl Default for InstanceLimit {
    fn default() -> InstanceLimit {
        // More instances than cores would compete for the cores, and each holds memory. With a single one every request
        // would wait for the slowest.
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        InstanceLimit(cores.clamp(INSTANCES_MIN, INSTANCES_DEFAULT))
    }
}

/// The cache of responses to repeated requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ResponseCacheConfig {
    /// Maximum size in bytes. 0 disables the cache.
    pub max_bytes: usize,
}

/// A duration with its unit, as in a project file: `2ms`, `5m`, `1.5h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConfigDuration(pub Duration);

/// Idle time after which a model is put to sleep: a duration, or `forever`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeepAlive {
    /// It is never put to sleep.
    #[default]
    Forever,
    /// It is put to sleep after this time without a request.
    For(Duration),
}

/// The configuration of an ensemble, a model composed of models.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnsembleConfig {
    /// The steps, computed in order.
    pub steps: Vec<EnsembleStep>,
}

/// One model of an ensemble, and the connections of its tensors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnsembleStep {
    /// `name`, `name@version` or `name@alias`.
    pub model: String,
    /// The ensemble's name for each of the model's inputs. An omitted input keeps its name.
    #[serde(default)]
    pub inputs: BTreeMap<String, String>,
    /// The ensemble's name for each of the model's outputs. An omitted output keeps its name.
    #[serde(default)]
    pub outputs: BTreeMap<String, String>,
}

/// The reason for which a configuration is invalid: the key, and what was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("model.json: {0}")]
pub struct ModelConfigError(pub String);

impl KeepAlive {
    /// Returns whether a model with this setting sleeps sooner than one with `other`.
    pub fn is_shorter_than(self, other: KeepAlive) -> bool {
        match (self, other) {
            (KeepAlive::Forever, _) => false,
            (KeepAlive::For(_), KeepAlive::Forever) => true,
            (KeepAlive::For(time), KeepAlive::For(other)) => time < other,
        }
    }
}

impl ModelConfig {
    /// Parses the file.
    ///
    /// # Errors
    /// Returns `ModelConfigError` with the path of the key and what was expected.
    pub fn parse(text: &[u8]) -> Result<ModelConfig, ModelConfigError> {
        let mut settings: ModelConfig = json_text::parse_json(text).map_err(ModelConfigError)?;
        if let Some(max) = settings.instances_max.take() {
            settings.instances.max = max;
            let max = max.0;
            tracing::warn!(
                "{SETTINGS_FILE}: `instances_max` is now `\"instances\": {{\"max\": {max}}}`; the old key will not work \
                 in the next version"
            );
        }
        settings.validate()?;
        Ok(settings.with_minimum_applied())
    }

    /// Returns the configuration in which a minimum number of instances above 0 keeps the model loaded.
    #[must_use]
    pub fn with_minimum_applied(self) -> ModelConfig {
        if self.instances.min == 0 { self } else { ModelConfig { keep_alive: KeepAlive::Forever, pin: true, ..self } }
    }

    /// Checks the values beyond their types.
    ///
    /// # Errors
    /// Returns `ModelConfigError` with the key and what was expected.
    pub fn validate(&self) -> Result<(), ModelConfigError> {
        let within = |key: &str, value: usize, most: usize| match value {
            value if (1..=most).contains(&value) => Ok(()),
            value => Err(ModelConfigError(format!("{key}: expected 1 to {most}, got {value}"))),
        };
        within("queue.capacity", self.queue.capacity, PREDICTIONS_MAX)?;
        within("instances.max", self.instances.max.0, INSTANCES_MAX)?;
        if self.instances.min > self.instances.max.0 {
            let (min, max) = (self.instances.min, self.instances.max.0);
            return Err(ModelConfigError(format!("instances.min: expected at most instances.max ({max}), got {min}")));
        }
        if let Some(items) = self.batch.max_items {
            within("batch.max_items", items, usize::from(u16::MAX))?;
        }
        let timeout = self.queue.timeout.0;
        if timeout.is_zero() || timeout > DEADLINE_MAX {
            let most = ConfigDuration(DEADLINE_MAX);
            return Err(ModelConfigError(format!("queue.timeout: expected more than 0s and at most {most}")));
        }
        if self.batch.max_delay.0 > timeout {
            return Err(ModelConfigError(
                "batch.max_delay: a batch cannot wait for longer than queue.timeout".to_owned(),
            ));
        }
        if let Some(wrong) = self.without.iter().find(|it| !MODEL_OPTIMIZATIONS.contains(&it.name())) {
            let known = MODEL_OPTIMIZATIONS.join(", ");
            return Err(ModelConfigError(format!("without: expected optimizations of a model ({known}), got {wrong}")));
        }
        if self.ensemble.as_ref().is_some_and(|ensemble| ensemble.steps.is_empty()) {
            return Err(ModelConfigError("ensemble.steps: expected at least one step".to_owned()));
        }
        Ok(())
    }

    /// Returns the policy of a version whose largest batch size is `largest`.
    pub(crate) fn serving_policy(&self, largest: usize) -> ServingPolicy {
        let rules = BatchPolicy {
            items_max: self.batch.max_items.unwrap_or(largest).max(1),
            delay_max: self.batch.max_delay.0,
            slots: self.instances.max.0,
        };
        ServingPolicy {
            batch: rules,
            capacity: self.queue.capacity,
            deadline: self.queue.timeout.0,
            cache_bytes: self.cache.max_bytes,
        }
    }
}

impl fmt::Display for ConfigDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = self.0;
        match time.as_micros() {
            micros if micros % 1_000 != 0 => write!(f, "{micros}us"),
            micros if micros % 1_000_000 != 0 => write!(f, "{}ms", time.as_millis()),
            _ if time.as_secs() > 0 && time.as_secs().is_multiple_of(60) => write!(f, "{}m", time.as_secs() / 60),
            _ => write!(f, "{}s", time.as_secs()),
        }
    }
}

impl fmt::Display for KeepAlive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeepAlive::Forever => f.write_str("forever"),
            KeepAlive::For(time) => ConfigDuration(*time).fmt(f),
        }
    }
}

impl std::str::FromStr for KeepAlive {
    type Err = String;

    fn from_str(text: &str) -> Result<KeepAlive, String> {
        match (text, units::parse_duration(text)) {
            ("forever" | "-1", _) => Ok(KeepAlive::Forever),
            ("0", _) => Ok(KeepAlive::For(Duration::ZERO)),
            (_, Ok(time)) => Ok(KeepAlive::For(time)),
            (_, Err(_)) => Err(format!("expected a time such as \"5m\" or \"0s\", or \"forever\", got {text:?}")),
        }
    }
}

impl Serialize for ConfigDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ConfigDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ConfigDuration, D::Error> {
        let text = String::deserialize(deserializer)?;
        let expected = || de::Error::custom(format!("expected a time such as \"2ms\" or \"3s\", got {text:?}"));
        units::parse_duration(&text).map(ConfigDuration).map_err(|_| expected())
    }
}

impl Serialize for KeepAlive {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for KeepAlive {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<KeepAlive, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use saggar_compile::{Optimization, OptimizationScope};

    use super::*;

    #[test]
    fn a_model_can_leave_out_what_belongs_to_programs_and_to_predictions() {
        let is_of_models =
            |it: &&Optimization| matches!(it.scope(), OptimizationScope::Program | OptimizationScope::Serving);
        let of_models = Optimization::ALL.iter().filter(is_of_models);
        assert_eq!(MODEL_OPTIMIZATIONS.to_vec(), of_models.map(|it| it.name()).collect::<Vec<_>>());
    }

    #[test]
    fn missing_keys_get_defaults_and_a_config_round_trips() {
        let settings = ModelConfig::parse(b"{}").unwrap();
        assert_eq!(settings, ModelConfig::default());
        assert_eq!(settings.serving_policy(32).batch.items_max, 32);
        let text = r#"{"batch": {"max_items": 4, "max_delay": "1500us"}, "queue": {"capacity": 9, "timeout": "2m"},
            "keep_alive": "5m", "cache": {"max_bytes": 100}, "instances": {"min": 1, "max": 2}, "warmup": ["a.json", {"x": [1]}]}"#;
        let settings = ModelConfig::parse(text.as_bytes()).unwrap();
        let again = ModelConfig::parse(&serde_json::to_vec(&settings).unwrap()).unwrap();
        assert_eq!(settings, again);
        let terms = settings.serving_policy(32);
        assert_eq!((terms.batch.items_max, terms.batch.delay_max), (4, Duration::from_micros(1500)));
        assert_eq!((terms.capacity, terms.deadline, terms.cache_bytes), (9, Duration::from_secs(120), 100));
    }

    #[test]
    fn the_renamed_key_of_the_maximum_is_read_and_not_written() {
        let settings = ModelConfig::parse(br#"{"instances_max": 3}"#).unwrap();
        assert_eq!(settings, ModelConfig::parse(br#"{"instances": {"max": 3}}"#).unwrap());
        let written = serde_json::to_string(&settings).unwrap();
        assert!(written.contains(r#""instances":{"min":0,"max":3}"#), "{written}");
        assert!(!written.contains("instances_max"), "{written}");
    }

    #[test]
    fn a_minimum_number_of_instances_keeps_a_model_loaded() {
        let settings = ModelConfig::parse(br#"{"instances": {"min": 1}, "keep_alive": "5m"}"#).unwrap();
        assert_eq!((settings.keep_alive, settings.pin), (KeepAlive::Forever, true));
    }

    #[test]
    fn durations_parse_and_print_as_in_a_project_file() {
        for (text, seconds) in [("1d", 86_400.0), ("1.5h", 5400.0), ("90s", 90.0), ("0s", 0.0), ("1500us", 0.0015)] {
            let settings = format!(r#"{{"keep_alive": "{text}"}}"#);
            let settings = ModelConfig::parse(settings.as_bytes()).unwrap();
            assert_eq!(settings.keep_alive, KeepAlive::For(Duration::from_secs_f64(seconds)), "{text}");
            assert_eq!(ModelConfig::parse(&serde_json::to_vec(&settings).unwrap()).unwrap(), settings, "{text}");
        }
    }

    #[test]
    fn config_errors_name_the_key() {
        for (text, says) in [
            (r#"{"bach": {}}"#, "bach: there is no `bach`, expected one of"),
            (r#"{"batch": {"max_delay": "2"}}"#, "expected a time such as"),
            (r#"{"batch": {"max_delay": 2}}"#, "batch.max_delay: expected "),
            (r#"{"batch": {"max_items": 0}}"#, "batch.max_items: expected 1 to"),
            (r#"{"queue": {"capacity": 0}}"#, "queue.capacity: expected 1 to"),
            (r#"{"instances": {"max": 0}}"#, "instances.max: expected 1 to"),
            (r#"{"instances": {"min": 3, "max": 2}}"#, "instances.min: expected at most instances.max (2), got 3"),
            (r#"{"queue": {"timeout": "0s"}}"#, "queue.timeout: expected more than 0s"),
            (r#"{"promote": "accuracy >="}"#, "character 12: expected a number"),
            (r#"{"keep_alive": "soon"}"#, "expected a time such as \"5m\""),
            (r#"{"ensemble": {"steps": []}}"#, "at least one step"),
            ("[", "not JSON at byte 0: it ends within a list"),
        ] {
            let error = ModelConfig::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with("model.json: ") && error.contains(says), "{text}: {error}");
        }
    }
}
