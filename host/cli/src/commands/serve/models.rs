//! `[model.NAME]` of the project file, as a server's configuration.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use saggar_compile::DisabledOptimizations;
use saggar_project::{ModelKeepAlive, ModelSection, ProjectManifest, is_valid_name};
use saggar_serve::RecordingPolicy;
use saggar_serve::recording::RECORDED_PREFIX;
use saggar_serving::{
    BatchConfig, ConfigDuration, InstanceLimit, InstanceRange, KeepAlive as Kept, ModelConfig, PromotionGate,
    QueueConfig, ResponseCacheConfig,
};
use serde_json::Value;

/// The time after which recorded rows become a version, if the project file does not say.
const RECORDED_EVERY_DEFAULT: Duration = Duration::from_secs(600);
/// Rows of a version of recorded predictions, alike.
const RECORDED_ROWS_DEFAULT: usize = 10_000;
/// Bytes of a version, alike, and their maximum.
const RECORDED_BYTES_DEFAULT: usize = 16 << 20;
const RECORDED_BYTES_MAX: usize = 1 << 30;

/// Maximum bytes of a file of warm-up inputs.
const WARMUP_BYTES_MAX: u64 = 16 << 20;

/// Returns the configuration of each model.
///
/// # Errors
/// Returns a sentence that names the key if a value is invalid or a file of inputs cannot be read.
pub(super) fn model_settings(
    manifest: &ProjectManifest,
    directory: &Path,
) -> Result<BTreeMap<String, ModelConfig>, String> {
    let of = |(name, model): (&String, &ModelSection)| {
        let place = |reason: String| format!("[model.{name}]: {reason}");
        let settings = settings_of_model(model, directory).map_err(place)?;
        settings.validate().map_err(|bad| place(bad.0))?;
        Ok((name.clone(), settings))
    };
    manifest.models.iter().map(of).collect()
}

/// Returns the directory that holds the versions of all models with a `weights` directory: `models` for `models/lenet`.
///
/// # Errors
/// Fails if a directory is not named after its model, or if two have different parents, because a server watches one
/// directory.
pub(super) fn models_directory(manifest: &ProjectManifest, directory: &Path) -> Result<Option<PathBuf>, String> {
    let mut found: Option<(&str, PathBuf)> = None;
    for (name, model) in &manifest.models {
        let Some(weights) = &model.weights else { continue };
        let path = Path::new(weights);
        let plain = path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if path.file_name().is_none_or(|last| last != name.as_str()) || !(plain || path.is_absolute()) {
            return Err(format!("[model.{name}]: weights: expected a directory called {name}, such as models/{name}"));
        }
        let parent = directory.join(path.parent().unwrap_or(Path::new("")));
        match &found {
            Some((first, other)) if *other != parent => {
                return Err(format!(
                    "[model.{name}]: weights are in {}, those of {first} in {}: a server watches only one directory of models",
                    parent.display(),
                    other.display()
                ));
            }
            _ => found = Some((name, parent)),
        }
    }
    Ok(found.map(|(_, parent)| if parent.as_os_str().is_empty() { PathBuf::from(".") } else { parent }))
}

/// Returns how predictions are recorded, by model.
///
/// # Errors
/// Returns a sentence that names the model if its dataset cannot have its name.
pub(super) fn recording_policies(manifest: &ProjectManifest) -> Result<BTreeMap<String, RecordingPolicy>, String> {
    let mut policies = BTreeMap::new();
    for (name, model) in &manifest.models {
        let Some(record) = model.record else { continue };
        let dataset = format!("{RECORDED_PREFIX}{name}");
        if !is_valid_name(&dataset) {
            return Err(format!(
                "[model.{name}]: record: the dataset's name `{dataset}` is too long; shorten the model's"
            ));
        }
        let bytes =
            record.max_bytes.map_or(RECORDED_BYTES_DEFAULT, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        if bytes > RECORDED_BYTES_MAX {
            return Err(format!(
                "[model.{name}]: record.max_bytes: at most 1GiB, because rows are collected in memory"
            ));
        }
        let policy = RecordingPolicy {
            share: record.share,
            every: record.every.unwrap_or(RECORDED_EVERY_DEFAULT),
            rows_max: record.rows.map_or(RECORDED_ROWS_DEFAULT, |rows| rows as usize),
            bytes_max: bytes,
        };
        tracing::info!(model = name, dataset, share = record.share, "predictions of the model are recorded");
        policies.insert(name.clone(), policy);
    }
    Ok(policies)
}

fn settings_of_model(model: &ModelSection, directory: &Path) -> Result<ModelConfig, String> {
    let defaults = ModelConfig::default();
    let loaded_for = match model.keep_alive {
        None => defaults.keep_alive,
        Some(ModelKeepAlive::Forever) => Kept::Forever,
        Some(ModelKeepAlive::For(time)) => Kept::For(time),
    };
    let batch = model.batch.unwrap_or_default();
    let queue = model.queue.unwrap_or_default();
    let warmup: Result<Vec<Value>, String> =
        model.warmup.iter().map(|sample| warmup_inputs(sample, directory)).collect();
    Ok(ModelConfig {
        default: model.default.unwrap_or(defaults.default),
        batch: BatchConfig {
            max_items: batch.max_items.map(|items| items as usize).or(defaults.batch.max_items),
            max_delay: batch.max_delay.map_or(defaults.batch.max_delay, ConfigDuration),
        },
        queue: QueueConfig {
            capacity: queue.capacity.map_or(defaults.queue.capacity, |capacity| capacity as usize),
            timeout: queue.timeout.map_or(defaults.queue.timeout, ConfigDuration),
        },
        keep_alive: loaded_for,
        promote: model.promote.clone().map(PromotionGate),
        pin: model.pin.unwrap_or(defaults.pin),
        instances: InstanceRange {
            min: model.instances.min.map_or(defaults.instances.min, |min| min as usize),
            max: model.instances.max.map_or(defaults.instances.max, |max| InstanceLimit(max as usize)),
        },
        cache: ResponseCacheConfig {
            max_bytes: model
                .cache
                .map_or(defaults.cache.max_bytes, |cache| usize::try_from(cache.max_bytes).unwrap_or(usize::MAX)),
        },
        warmup: warmup?,
        without: DisabledOptimizations::try_from(model.without.clone()).map_err(|error| error.to_string())?,
        ..defaults
    }
    .with_minimum_applied())
}

/// Returns inputs given in the project file, or read from a file beside it.
fn warmup_inputs(sample: &Value, directory: &Path) -> Result<Value, String> {
    let Some(file) = sample.as_str() else { return Ok(sample.clone()) };
    let path = directory.join(file);
    let wrong = |reason: &dyn std::fmt::Display| format!("warmup: {}: {reason}", path.display());
    let length = std::fs::metadata(&path).map_err(|error| wrong(&error))?.len();
    if length > WARMUP_BYTES_MAX {
        return Err(wrong(&format!("it has {length} bytes; the maximum is {WARMUP_BYTES_MAX}")));
    }
    let text = saggar_store::regular_file::read(&path, WARMUP_BYTES_MAX).map_err(|error| wrong(&error))?;
    serde_json::from_slice(&text)
        .map_err(|error| wrong(&format!("expected inputs as JSON, in the form of /predict: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(models: &str) -> ProjectManifest {
        ProjectManifest::parse(&format!("manifest = 1\n[project]\nname = \"p\"\n{models}")).unwrap()
    }

    #[test]
    fn every_manifest_key_becomes_a_model_setting() {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("7.json"), r#"{"x": [1]}"#).unwrap();
        let text = "[model.a]\ndefault = true\nbatch = { max_items = 4, max_delay = \"2ms\" }\n\
                    queue = { capacity = 9, timeout = \"2s\" }\nkeep_alive = \"5m\"\npin = true\ninstances = { max = 3 }\n\
                    cache = { max_bytes = \"1KiB\" }\nwarmup = [\"7.json\", { x = [2] }]\n";
        let settings = &model_settings(&manifest(text), home.path()).unwrap()["a"];
        let same = r#"{"default": true, "batch": {"max_items": 4, "max_delay": "2ms"}, "keep_alive": "5m", "pin": true,
            "queue": {"capacity": 9, "timeout": "2s"}, "instances": {"max": 3}, "cache": {"max_bytes": 1024},
            "warmup": [{"x": [1]}, {"x": [2]}]}"#;
        assert_eq!(*settings, ModelConfig::parse(same.as_bytes()).unwrap());
        let nothing = &super::model_settings(&manifest("[model.a]\n"), home.path()).unwrap()["a"];
        assert_eq!(*nothing, ModelConfig::default());
        for wanted in ["instances = { min = 1 }", "min_instances = 1"] {
            let wanted = manifest(&format!("[model.a]\n{wanted}\nkeep_alive = \"1s\"\n"));
            let wanted = &super::model_settings(&wanted, home.path()).unwrap()["a"];
            assert_eq!((wanted.pin, wanted.keep_alive, wanted.instances.min), (true, Kept::Forever, 1));
        }
    }

    #[test]
    fn an_invalid_model_table_is_reported_with_model_and_key() {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("x.png"), b"\x89PNG").unwrap();
        for (model, says) in [
            ("warmup = [\"nowhere.json\"]", "[model.a]: warmup: "),
            ("warmup = [\"x.png\"]", "expected inputs as JSON"),
            ("batch = { max_delay = \"5s\" }\nqueue = { timeout = \"1s\" }", "[model.a]: batch.max_delay"),
        ] {
            let error = model_settings(&manifest(&format!("[model.a]\n{model}\n")), home.path()).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn models_in_different_directories_are_refused() {
        let of = |models: &str| models_directory(&manifest(models), Path::new("project"));
        assert_eq!(of("[model.a]\n").unwrap(), None);
        let both = "[model.a]\nweights = \"models/a\"\n[model.b]\nweights = \"./models/b\"\n";
        assert_eq!(of(both).unwrap(), Some(PathBuf::from("project/models")));
        let apart = of("[model.a]\nweights = \"models/a\"\n[model.b]\nweights = \"others/b\"\n").unwrap_err();
        assert!(apart.contains("[model.b]") && apart.contains("one directory"), "{apart}");
        for path in ["models/b", "..", "../a/../b/a"] {
            let error = of(&format!("[model.a]\nweights = \"{path}\"\n")).unwrap_err();
            assert!(error.contains("expected a directory called a"), "{path}: {error}");
        }
    }
}
