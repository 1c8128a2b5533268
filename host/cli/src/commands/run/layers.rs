//! Layers of run options: flags, environment, task, project and user configuration, in this order of precedence. For
//! each key the first layer that sets it wins; keys without a value keep the specification's defaults.

use saggar_jobs::spec::UtilizationPolicy;
use saggar_jobs::{CheckpointEvery, JobSpec};
use saggar_project::units::TimeOrSteps;
use saggar_project::{CheckpointPolicy, DeviceRequest, GpuRequest, PROJECT_FILE, RunOptions, TaskSection, UserConfig};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::args::RunFlags;
use crate::project::{ProjectContext, non_empty_env_var};

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConfigSource {
    Flag,
    Environment(&'static str),
    Task(String),
    Project,
    File,
    User,
    BuiltIn,
}

impl ConfigSource {
    /// Returns the name shown to users.
    pub(crate) fn name(&self) -> String {
        match self {
            ConfigSource::Flag => "flag".to_owned(),
            ConfigSource::Environment(name) => format!("environment {name}"),
            ConfigSource::Task(task) => format!("[task.{task}]"),
            ConfigSource::Project => "[project.defaults]".to_owned(),
            ConfigSource::File => PROJECT_FILE.to_owned(),
            ConfigSource::User => "user configuration".to_owned(),
            ConfigSource::BuiltIn => "built-in".to_owned(),
        }
    }
}

/// The options of every layer, highest precedence first.
#[derive(Debug)]
pub(crate) struct ConfigLayers(Vec<(ConfigSource, RunOptions)>);

impl ConfigLayers {
    /// Returns the layer of flags only.
    pub(crate) fn from_flags(flags: &RunFlags) -> ConfigLayers {
        ConfigLayers(vec![(ConfigSource::Flag, flags.run_options())])
    }

    /// Collects all layers for a run of `task`, or without a task.
    pub(crate) fn collect(
        flags: &RunFlags,
        project: Option<&ProjectContext>,
        task: Option<(&str, &TaskSection)>,
        user: &UserConfig,
    ) -> ConfigLayers {
        let device =
            |name: Option<String>| RunOptions { device: name.map(DeviceRequest::Named), ..RunOptions::default() };
        let mut layers = vec![(ConfigSource::Flag, flags.run_options())];
        layers.push((ConfigSource::Environment("SAGGAR_DEVICE"), device(non_empty_env_var("SAGGAR_DEVICE"))));
        layers.extend(task.map(|(name, task)| (ConfigSource::Task(name.to_owned()), task.run.clone())));
        layers.extend(project.map(|project| (ConfigSource::Project, project.manifest.project.defaults.clone())));
        layers.push((ConfigSource::User, device(user.device.clone())));
        ConfigLayers(layers)
    }

    /// Returns the effective options.
    pub(crate) fn merge(&self) -> RunOptions {
        self.0.iter().fold(RunOptions::default(), |above, (_, options)| above.or_defaults(options.clone()))
    }

    /// Returns every field of a specification that these options can set, with its value and source.
    pub(crate) fn values_with_sources(&self) -> Vec<(String, Value, ConfigSource)> {
        let mut merged = spec_fields(&self.merge());
        let mut rows = Vec::new();
        let built_in = to_value(JobSpec::new("p", ""));
        for key in SPEC_KEYS {
            let said = self.0.iter().find(|(_, options)| spec_fields(options).contains_key(key));
            let (value, source) = match (merged.remove(key), said) {
                (Some(value), Some((source, _))) => (value, source.clone()),
                (_, _) => (built_in.get(key).cloned().unwrap_or(Value::Null), ConfigSource::BuiltIn),
            };
            rows.push((key.to_owned(), value, source));
        }
        rows
    }
}

/// The fields that [`spec_fields`] can return, in display order.
const SPEC_KEYS: [&str; 26] = [
    "device",
    "gpu_slots",
    "labels",
    "seed",
    "queue",
    "priority",
    "preemptible",
    "retry",
    "retry_on",
    "max_runtime_seconds",
    "auto_extend",
    "max_attempt_runtime_seconds",
    "checkpoint_every",
    "checkpoint_keep_last",
    "checkpoint_keep_best",
    "memory_bytes",
    "gpu_memory_bytes",
    "non_finite",
    "precision",
    "without",
    "utilization",
    "experiment",
    "replicas",
    "hosts",
    "shards",
    "record",
];

/// Returns the options as fields of a job's specification.
pub(crate) fn spec_fields(options: &RunOptions) -> Map<String, Value> {
    let mut fields = Map::new();
    let mut say = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            fields.insert(key.to_owned(), value);
        }
    };
    let (device, slots) = device_and_slots(options.device.as_ref());
    say("device", device.map(Value::from));
    say("gpu_slots", slots.map(Value::from));
    say("labels", options.labels.clone().map(to_value));
    say("seed", options.seed.map(Value::from));
    say("queue", options.queue.clone().map(Value::from));
    say("priority", options.priority.map(Value::from));
    say("preemptible", options.preemptible.map(Value::from));
    say("retry", options.retry.map(Value::from));
    say("retry_on", options.retry_on.clone().map(Value::from));
    say("max_runtime_seconds", options.max_runtime.map(|time| time.as_secs_f64().into()));
    say("auto_extend", options.auto_extend.map(Value::from));
    say("max_attempt_runtime_seconds", options.max_attempt_runtime.map(|time| time.as_secs_f64().into()));
    let CheckpointPolicy { every, keep_last, keep_best } = options.checkpoint.clone().unwrap_or_default();
    say("checkpoint_every", every.map(|every| to_value(checkpoint_every(every))));
    say("checkpoint_keep_last", keep_last.map(Value::from));
    say("checkpoint_keep_best", keep_best.map(|text| to_value(saggar_jobs::parse_keep_best(&text))));
    say("memory_bytes", options.memory.map(Value::from));
    say("gpu_memory_bytes", options.gpu_memory.map(Value::from));
    say("non_finite", options.non_finite.clone().map(Value::from));
    say("precision", options.precision.clone().map(Value::from));
    say("without", options.without.clone().map(Value::from));
    let utilization = options
        .utilization
        .map(|least| UtilizationPolicy { min_gpu: least.min_gpu, window_seconds: least.window.as_secs_f64() });
    say("utilization", utilization.map(to_value));
    say("experiment", options.experiment.clone().map(Value::from));
    say("replicas", options.replicas.map(Value::from));
    say("hosts", options.hosts.map(Value::from));
    say("shards", options.shards.map(Value::from));
    say("record", options.record.map(Value::from));
    fields
}

fn device_and_slots(device: Option<&DeviceRequest>) -> (Option<String>, Option<f64>) {
    match device {
        None => (None, None),
        Some(DeviceRequest::Named(name)) => (Some(name.clone()), None),
        Some(DeviceRequest::Gpu(GpuRequest::Required)) => (Some("gpu".to_owned()), None),
        Some(DeviceRequest::Gpu(GpuRequest::Preferred)) => (Some("auto".to_owned()), None),
        Some(DeviceRequest::Gpu(GpuRequest::None)) => (Some("cpu".to_owned()), None),
        Some(DeviceRequest::Gpu(GpuRequest::Slots(slots))) => (Some("gpu".to_owned()), Some(*slots)),
    }
}

fn checkpoint_every(every: TimeOrSteps) -> CheckpointEvery {
    match every {
        TimeOrSteps::Steps(steps) => CheckpointEvery::Steps(steps),
        TimeOrSteps::Time(time) => CheckpointEvery::Milliseconds(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
    }
}

fn to_value(field: impl Serialize) -> Value {
    serde_json::to_value(field).expect("fields of a specification have text as keys")
}

#[cfg(test)]
mod tests {
    use saggar_project::MinimumUtilization;
    use serde_json::json;

    use super::*;

    fn retry(retry: u32) -> RunOptions {
        RunOptions { retry: Some(retry), ..RunOptions::default() }
    }

    #[test]
    fn the_highest_config_layer_wins() {
        let project = RunOptions { priority: Some(7), ..retry(3) };
        let layers = ConfigLayers(vec![
            (ConfigSource::Flag, RunOptions::default()),
            (ConfigSource::Task("train".to_owned()), retry(2)),
            (ConfigSource::Project, project),
        ]);
        let said = |key: &str| {
            let rows = layers.values_with_sources();
            let (_, value, source) = rows.into_iter().find(|(name, _, _)| name == key).unwrap();
            (value, source.name())
        };
        assert_eq!(said("retry"), (json!(2), "[task.train]".to_owned()));
        assert_eq!(said("priority"), (json!(7), "[project.defaults]".to_owned()));
        assert_eq!(said("queue"), (json!("default"), "built-in".to_owned()));
        assert_eq!((layers.merge().retry, layers.merge().priority), (Some(2), Some(7)));
    }

    #[test]
    fn every_spec_field_of_run_options_is_listed() {
        let everything = RunOptions {
            device: Some(DeviceRequest::Gpu(GpuRequest::Slots(0.5))),
            labels: Some([("gpu".to_owned(), "a100".to_owned())].into()),
            seed: Some(1),
            memory: Some(1),
            gpu_memory: Some(1),
            queue: Some("q".to_owned()),
            priority: Some(1),
            preemptible: Some(true),
            retry: Some(1),
            retry_on: Some(vec!["error".to_owned()]),
            max_runtime: Some(std::time::Duration::from_secs(1)),
            auto_extend: Some(1),
            max_attempt_runtime: Some(std::time::Duration::from_secs(1)),
            checkpoint: Some(CheckpointPolicy {
                every: Some(TimeOrSteps::Steps(3)),
                keep_last: Some(2),
                keep_best: Some("max:bleu".to_owned()),
            }),
            non_finite: Some("continue".to_owned()),
            precision: Some("mixed".to_owned()),
            without: Some(vec!["winograd".to_owned()]),
            utilization: Some(MinimumUtilization { min_gpu: 0.5, window: std::time::Duration::from_secs(1) }),
            experiment: Some("e".to_owned()),
            replicas: Some(2),
            hosts: Some(2),
            shards: Some(4),
            record: Some(true),
        };
        let mut fields = spec_fields(&everything);
        let listed = fields.keys().filter(|key| !SPEC_KEYS.contains(&key.as_str())).count();
        assert_eq!((listed, fields.len()), (0, SPEC_KEYS.len()));
        fields.insert("project".to_owned(), json!("p"));
        fields.insert("plugin".to_owned(), json!("0".repeat(64)));
        let spec: JobSpec = serde_json::from_value(Value::Object(fields)).unwrap();
        spec.validate().unwrap();
        assert_eq!((spec.device.as_str(), spec.gpu_slots), ("gpu", 0.5));
    }
}
