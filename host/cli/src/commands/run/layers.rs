//! Who says how a job runs: a flag, the environment, the task, the project, the user, in that order. The first that says
//! something about a key wins; what nobody says is left to the specification's own defaults.

use saggar_jobs::JobSpec;
use saggar_project::units::Interval;
use saggar_project::{Checkpoint, Device, Gpu, PROJECT_FILE, RunOptions, Task, UserConfig};
use serde_json::{Map, Value, json};

use crate::args::RunFlags;
use crate::project::{Project, environment};

/// Who said something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Flag,
    Environment(&'static str),
    Task(String),
    Project,
    File,
    User,
    BuiltIn,
}

impl Source {
    /// What people call it.
    pub(crate) fn name(&self) -> String {
        match self {
            Source::Flag => "flag".to_owned(),
            Source::Environment(name) => format!("environment {name}"),
            Source::Task(task) => format!("[task.{task}]"),
            Source::Project => "[project.defaults]".to_owned(),
            Source::File => PROJECT_FILE.to_owned(),
            Source::User => "user configuration".to_owned(),
            Source::BuiltIn => "built-in".to_owned(),
        }
    }
}

/// What everybody says, the first to be heard first.
#[derive(Debug)]
pub(crate) struct Layers(Vec<(Source, RunOptions)>);

impl Layers {
    /// What flags alone say.
    pub(crate) fn of_flags(flags: &RunFlags) -> Layers {
        Layers(vec![(Source::Flag, flags.options())])
    }

    /// What everybody says about a run of `task`, or of no task.
    pub(crate) fn of(
        flags: &RunFlags,
        project: Option<&Project>,
        task: Option<(&str, &Task)>,
        user: &UserConfig,
    ) -> Layers {
        let device = |name: Option<String>| RunOptions { device: name.map(Device::Named), ..RunOptions::default() };
        let mut layers = vec![(Source::Flag, flags.options())];
        layers.push((Source::Environment("SAGGAR_DEVICE"), device(environment("SAGGAR_DEVICE"))));
        layers.extend(task.map(|(name, task)| (Source::Task(name.to_owned()), task.run.clone())));
        layers.extend(project.map(|project| (Source::Project, project.manifest.project.defaults.clone())));
        layers.push((Source::User, device(user.device.clone())));
        Layers(layers)
    }

    /// What holds.
    pub(crate) fn merged(&self) -> RunOptions {
        self.0.iter().fold(RunOptions::default(), |above, (_, options)| above.over(options.clone()))
    }

    /// Every field of a specification that this is about, what holds for it, and who said so.
    pub(crate) fn sources(&self) -> Vec<(String, Value, Source)> {
        let mut merged = written(&self.merged());
        let mut rows = Vec::new();
        let built_in = json!(JobSpec::new("p", ""));
        for key in KEYS {
            let said = self.0.iter().find(|(_, options)| written(options).contains_key(key));
            let (value, source) = match (merged.remove(key), said) {
                (Some(value), Some((source, _))) => (value, source.clone()),
                (_, _) => (built_in.get(key).cloned().unwrap_or(Value::Null), Source::BuiltIn),
            };
            rows.push((key.to_owned(), value, source));
        }
        rows
    }
}

/// The fields that [`written`] may write, in the order in which they are listed.
const KEYS: [&str; 22] = [
    "device",
    "gpu_slots",
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
    "utilization",
    "experiment",
    "replicas",
    "shards",
];

/// What is said, as fields of a job's specification.
pub(crate) fn written(options: &RunOptions) -> Map<String, Value> {
    let mut fields = Map::new();
    let mut say = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            fields.insert(key.to_owned(), value);
        }
    };
    let (device, slots) = device(options.device.as_ref());
    say("device", device.map(Value::from));
    say("gpu_slots", slots.map(Value::from));
    say("seed", options.seed.map(Value::from));
    say("queue", options.queue.clone().map(Value::from));
    say("priority", options.priority.map(Value::from));
    say("preemptible", options.preemptible.map(Value::from));
    say("retry", options.retry.map(Value::from));
    say("retry_on", options.retry_on.clone().map(Value::from));
    say("max_runtime_seconds", options.max_runtime.map(|time| json!(time.as_secs_f64())));
    say("auto_extend", options.auto_extend.map(Value::from));
    say("max_attempt_runtime_seconds", options.max_attempt_runtime.map(|time| json!(time.as_secs_f64())));
    let Checkpoint { every, keep_last, keep_best } = options.checkpoint.clone().unwrap_or_default();
    say("checkpoint_every", every.map(interval));
    say("checkpoint_keep_last", keep_last.map(Value::from));
    say("checkpoint_keep_best", keep_best.map(|text| json!(saggar_jobs::keep_best(&text))));
    say("memory_bytes", options.memory.map(Value::from));
    say("gpu_memory_bytes", options.gpu_memory.map(Value::from));
    say("non_finite", options.non_finite.clone().map(Value::from));
    say("precision", options.precision.clone().map(Value::from));
    let seconds = |time: std::time::Duration| time.as_secs_f64();
    let utilization = options.utilization;
    say("utilization", utilization.map(|it| json!({ "min_gpu": it.min_gpu, "window_seconds": seconds(it.window) })));
    say("experiment", options.experiment.clone().map(Value::from));
    say("replicas", options.replicas.map(Value::from));
    say("shards", options.shards.map(Value::from));
    fields
}

fn device(device: Option<&Device>) -> (Option<String>, Option<f64>) {
    match device {
        None => (None, None),
        Some(Device::Named(name)) => (Some(name.clone()), None),
        Some(Device::Gpu(Gpu::Required)) => (Some("gpu".to_owned()), None),
        Some(Device::Gpu(Gpu::Preferred)) => (Some("auto".to_owned()), None),
        Some(Device::Gpu(Gpu::None)) => (Some("cpu".to_owned()), None),
        Some(Device::Gpu(Gpu::Slots(slots))) => (Some("gpu".to_owned()), Some(*slots)),
    }
}

fn interval(every: Interval) -> Value {
    match every {
        Interval::Steps(steps) => json!({ "steps": steps }),
        Interval::Time(time) => json!({ "milliseconds": u64::try_from(time.as_millis()).unwrap_or(u64::MAX) }),
    }
}

#[cfg(test)]
mod tests {
    use saggar_project::Utilization;

    use super::*;

    fn retry(retry: u32) -> RunOptions {
        RunOptions { retry: Some(retry), ..RunOptions::default() }
    }

    #[test]
    fn the_nearest_to_say_something_wins() {
        let project = RunOptions { priority: Some(7), ..retry(3) };
        let layers = Layers(vec![
            (Source::Flag, RunOptions::default()),
            (Source::Task("train".to_owned()), retry(2)),
            (Source::Project, project),
        ]);
        let said = |key: &str| {
            let rows = layers.sources();
            let (_, value, source) = rows.into_iter().find(|(name, _, _)| name == key).unwrap();
            (value, source.name())
        };
        assert_eq!(said("retry"), (json!(2), "[task.train]".to_owned()));
        assert_eq!(said("priority"), (json!(7), "[project.defaults]".to_owned()));
        assert_eq!(said("queue"), (json!("default"), "built-in".to_owned()));
        assert_eq!((layers.merged().retry, layers.merged().priority), (Some(2), Some(7)));
    }

    #[test]
    fn every_field_that_is_written_is_listed() {
        let everything = RunOptions {
            device: Some(Device::Gpu(Gpu::Slots(0.5))),
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
            checkpoint: Some(Checkpoint {
                every: Some(Interval::Steps(3)),
                keep_last: Some(2),
                keep_best: Some("max:bleu".to_owned()),
            }),
            non_finite: Some("continue".to_owned()),
            precision: Some("mixed".to_owned()),
            utilization: Some(Utilization { min_gpu: 0.5, window: std::time::Duration::from_secs(1) }),
            experiment: Some("e".to_owned()),
            replicas: Some(2),
            shards: Some(4),
        };
        let mut fields = written(&everything);
        let listed = fields.keys().filter(|key| !KEYS.contains(&key.as_str())).count();
        assert_eq!((listed, fields.len()), (0, KEYS.len()));
        fields.insert("project".to_owned(), json!("p"));
        fields.insert("plugin".to_owned(), json!("0".repeat(64)));
        let spec: JobSpec = serde_json::from_value(Value::Object(fields)).unwrap();
        spec.validate().unwrap();
        assert_eq!((spec.device.as_str(), spec.gpu_slots), ("gpu", 0.5));
    }
}
