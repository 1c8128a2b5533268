//! Checks of a specification that need no lookup.

use std::collections::BTreeSet;

use saggar_project::limits::LABELS_MAX;
use saggar_project::{JOB_OPTIMIZATIONS, is_label, is_valid_name};

use super::{CheckpointEvery, DataSource, JobSpec, UtilizationPolicy};
use crate::error::SpecError;
use crate::limits::{
    CHECKPOINTS_KEPT_MAX, EXTENSIONS_MAX, MESSAGE_BYTES_MAX, MOUNTS_MAX, PARAMETERS_BYTES_MAX, PRIORITY_MAX,
    REPLICAS_MAX, RETRY_MAX, SECRETS_MAX, SLOTS_MAX,
};

impl JobSpec {
    /// Checks everything that needs no lookup.
    ///
    /// # Errors
    /// Returns a [`SpecError`] with the field, its value and the allowed values.
    pub fn validate(&self) -> Result<(), SpecError> {
        self.validate_names()?;
        self.validate_labels()?;
        self.validate_mounts()?;
        self.validate_numbers()?;
        if let Some(step) = &self.data_step {
            step.validate(self)?;
        } else if let Some(notebook) = &self.notebook {
            notebook.validate(self)?;
        } else if self.plugin.len() != 64 || !self.plugin.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(SpecError::Plugin { plugin: self.plugin.clone() });
        }
        let parameters_bytes = serde_json::to_string(&self.parameters).map_or(usize::MAX, |text| text.len());
        if parameters_bytes > PARAMETERS_BYTES_MAX {
            return Err(SpecError::Parameters { bytes: parameters_bytes });
        }
        if self.measure && self.predict.is_some() {
            return Err(SpecError::Measure { reason: "predictions cannot be measured, only a training can" });
        }
        if self.measure && self.replicas > 1 {
            return Err(SpecError::Measure {
                reason: "only a training in one process can be measured: set replicas to 1",
            });
        }
        if let Some(prediction) = &self.predict {
            prediction.validate(self)?;
        }
        if let Some(replay) = &self.replay {
            replay.validate(self)?;
        }
        if self.record && (self.predict.is_some() || self.data_step.is_some() || self.measure) {
            return Err(SpecError::Record { reason: "only a training can be recorded" });
        }
        if let Some(wrong) = self.without.iter().find(|it| !JOB_OPTIMIZATIONS.contains(&it.name())) {
            return Err(SpecError::Optimization { name: wrong.name() });
        }
        if let Some(bytes) = self.message.as_ref().map(String::len).filter(|&bytes| bytes > MESSAGE_BYTES_MAX) {
            return Err(SpecError::Message { bytes });
        }
        Ok(())
    }

    fn validate_names(&self) -> Result<(), SpecError> {
        let experiment = self.experiment.as_ref().map(|name| ("experiment", name));
        let secrets = self.secrets.iter().map(|name| ("secrets", name));
        let names = [("project", &self.project), ("task", &self.task), ("queue", &self.queue)];
        for (field, name) in names.into_iter().chain(experiment).chain(secrets) {
            if !is_valid_name(name) {
                return Err(SpecError::Name { field, name: name.clone() });
            }
        }
        if self.secrets.len() > SECRETS_MAX {
            return Err(out_of_range("secrets", self.secrets.len() as f64, 0.0, SECRETS_MAX as f64));
        }
        Ok(())
    }

    fn validate_labels(&self) -> Result<(), SpecError> {
        if self.labels.len() > LABELS_MAX {
            return Err(out_of_range("labels", self.labels.len() as f64, 0.0, LABELS_MAX as f64));
        }
        let is_wrong = |(name, value): &(&String, &String)| !is_label(name) || !is_label(value);
        match self.labels.iter().find(is_wrong) {
            Some((name, value)) => Err(SpecError::Label { name: name.clone(), value: value.clone() }),
            None => Ok(()),
        }
    }

    fn validate_mounts(&self) -> Result<(), SpecError> {
        if self.data.len() > MOUNTS_MAX {
            return Err(SpecError::Mounts { count: self.data.len() });
        }
        let mut mounts = BTreeSet::new();
        for mount in &self.data {
            let plain = mount.mount.split('/').skip(1).all(|part| !matches!(part, "" | "." | ".."));
            if !mount.mount.starts_with('/') || mount.mount.len() < 2 || !plain {
                return Err(SpecError::MountPoint { mount: mount.mount.clone() });
            }
            if !mounts.insert(&mount.mount) {
                return Err(SpecError::MountTwice { mount: mount.mount.clone() });
            }
            let (name, output) = match &mount.source {
                DataSource::Dataset { name, .. } => (name, None),
                DataSource::Output { job, path } => (job, path.as_ref()),
            };
            // A job's name is its project's name with a number; an identifier consists of capitals and digits.
            let is_identifier = name.len() == 26 && name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit());
            if !is_valid_name(name) && !is_identifier {
                return Err(SpecError::Name { field: "data", name: name.clone() });
            }
            if let Some(path) = output.filter(|path| !saggar_store::is_output_path(path)) {
                return Err(SpecError::OutputPath { path: path.clone() });
            }
        }
        Ok(())
    }

    fn validate_numbers(&self) -> Result<(), SpecError> {
        if self.retry > RETRY_MAX {
            return Err(SpecError::Retry { retry: self.retry });
        }
        if let CheckpointEvery::Milliseconds(0) | CheckpointEvery::Steps(0) = self.checkpoint_every {
            return Err(SpecError::CheckpointEvery);
        }
        let seconds = [
            ("max_runtime_seconds", self.max_runtime_seconds),
            ("max_attempt_runtime_seconds", self.max_attempt_runtime_seconds),
        ];
        for (field, seconds) in seconds {
            if seconds.is_some_and(|seconds| !(seconds > 0.0 && seconds.is_finite())) {
                return Err(SpecError::Seconds { field });
            }
        }
        for (field, bytes) in [("memory_bytes", self.memory_bytes), ("gpu_memory_bytes", self.gpu_memory_bytes)] {
            if bytes == Some(0) {
                return Err(SpecError::Bytes { field });
            }
        }
        if let Some(UtilizationPolicy { min_gpu, window_seconds }) = self.utilization {
            let field = "utilization";
            if !(min_gpu > 0.0 && min_gpu <= 1.0) {
                return Err(SpecError::Share { field, value: min_gpu });
            }
            if !(window_seconds > 0.0 && window_seconds.is_finite()) {
                return Err(SpecError::Seconds { field });
            }
        }
        let shards = self.shards.unwrap_or(self.replicas);
        let ranges = [
            ("priority", f64::from(self.priority), 0.0, f64::from(PRIORITY_MAX)),
            ("gpu_slots", self.gpu_slots, 0.001, SLOTS_MAX),
            ("checkpoint_keep_last", f64::from(self.checkpoint_keep_last), 1.0, f64::from(CHECKPOINTS_KEPT_MAX)),
            ("auto_extend", f64::from(self.auto_extend), 0.0, f64::from(EXTENSIONS_MAX)),
            ("replicas", f64::from(self.replicas), 1.0, f64::from(REPLICAS_MAX)),
            ("shards", f64::from(shards), 1.0, f64::from(REPLICAS_MAX)),
            ("hosts", f64::from(self.hosts), 1.0, f64::from(REPLICAS_MAX)),
        ];
        for (field, value, least, most) in ranges {
            if !(least..=most).contains(&value) {
                return Err(out_of_range(field, value, least, most));
            }
        }
        if !shards.is_multiple_of(self.replicas) {
            return Err(SpecError::Shards { shards, replicas: self.replicas });
        }
        if !self.replicas.is_multiple_of(self.hosts) {
            return Err(SpecError::Hosts { hosts: self.hosts, replicas: self.replicas });
        }
        Ok(())
    }
}

fn out_of_range(field: &'static str, value: f64, least: f64, most: f64) -> SpecError {
    SpecError::Range { field, value, least, most }
}

#[cfg(test)]
mod tests {
    use saggar_compile::{Optimization, OptimizationScope};

    use super::super::{DataMount, DataSource, DataStepFetch, DataStepSource, DataStepSpec, Precision, PredictionSpec};
    use super::*;

    fn spec() -> JobSpec {
        JobSpec::new("p", "0".repeat(64))
    }

    fn with_utilization(min_gpu: f64, window_seconds: f64) -> JobSpec {
        JobSpec { utilization: Some(UtilizationPolicy { min_gpu, window_seconds }), ..spec() }
    }

    #[test]
    fn a_job_can_leave_out_what_does_not_belong_to_predictions() {
        let of_jobs = Optimization::ALL.iter().filter(|it| it.scope() != OptimizationScope::Serving);
        assert_eq!(JOB_OPTIMIZATIONS.to_vec(), of_jobs.map(|it| it.name()).collect::<Vec<_>>());
    }

    #[test]
    fn an_invalid_spec_is_refused_with_the_name_of_the_field() {
        let mount = |mount: &str| {
            let source = DataSource::Dataset { name: "d".to_owned(), version: None };
            DataMount { source, mount: mount.to_owned() }
        };
        let dataset = |name: &str| {
            let source = DataSource::Dataset { name: name.to_owned(), version: None };
            DataMount { source, mount: "/data".to_owned() }
        };
        let output = |path: &str| DataMount {
            source: DataSource::Output { job: "p-1".to_owned(), path: Some(path.to_owned()) },
            mount: "/data".to_owned(),
        };
        let prediction = |out: Option<&str>| PredictionSpec {
            model: "digits".to_owned(),
            version: None,
            split: None,
            out: out.map(str::to_owned),
        };
        let data_step = |dataset: &str, digits: &str| DataStepSpec {
            dataset: dataset.to_owned(),
            from: DataStepSource::Fetch(DataStepFetch { url: String::new(), sha256: digits.repeat(32) }),
        };
        JobSpec { data_step: Some(data_step("digits", "ab")), plugin: String::new(), ..spec() }.validate().unwrap();
        spec().validate().unwrap();
        JobSpec { predict: Some(prediction(Some("p"))), data: vec![mount("/d")], ..spec() }.validate().unwrap();
        let wrong = [
            ("predict", JobSpec { predict: Some(prediction(None)), ..spec() }),
            ("predict", JobSpec { predict: Some(prediction(None)), data: vec![mount("/d")], replicas: 2, ..spec() }),
            ("predict.out", JobSpec { predict: Some(prediction(Some("../x"))), data: vec![mount("/d")], ..spec() }),
            ("plugin", JobSpec { plugin: String::new(), ..spec() }),
            ("data_step", JobSpec { data_step: Some(data_step("digits", "ab")), ..spec() }),
            ("data_step", JobSpec { data_step: Some(data_step("digits", "xy")), plugin: String::new(), ..spec() }),
            ("data_step.dataset", JobSpec { data_step: Some(data_step("..", "ab")), plugin: String::new(), ..spec() }),
            ("measure", JobSpec { measure: true, replicas: 2, ..spec() }),
            ("message", JobSpec { message: Some("m".repeat(MESSAGE_BYTES_MAX + 1)), ..spec() }),
            ("project", JobSpec { project: "../p".to_owned(), ..spec() }),
            ("queue", JobSpec { queue: String::new(), ..spec() }),
            ("experiment", JobSpec { experiment: Some("A B".to_owned()), ..spec() }),
            ("secrets", JobSpec { secrets: vec!["a/b".to_owned()], ..spec() }),
            ("plugin", JobSpec { plugin: "x".to_owned(), ..spec() }),
            ("data", JobSpec { data: vec![mount("data")], ..spec() }),
            ("data", JobSpec { data: vec![mount("/a/../b")], ..spec() }),
            ("data", JobSpec { data: vec![mount("/a"), mount("/a")], ..spec() }),
            ("data", JobSpec { data: vec![output("../x")], ..spec() }),
            ("data", JobSpec { data: vec![dataset("..")], ..spec() }),
            ("data", JobSpec { data: (0..99).map(|at| mount(&format!("/{at}"))).collect(), ..spec() }),
            ("priority", JobSpec { priority: 101, ..spec() }),
            ("gpu_slots", JobSpec { gpu_slots: 0.0, ..spec() }),
            ("gpu_slots", JobSpec { gpu_slots: f64::NAN, ..spec() }),
            ("retry", JobSpec { retry: 1_000_000, ..spec() }),
            ("checkpoint_keep_last", JobSpec { checkpoint_keep_last: 0, ..spec() }),
            ("max_runtime_seconds", JobSpec { max_runtime_seconds: Some(0.0), ..spec() }),
            ("max_attempt_runtime_seconds", JobSpec { max_attempt_runtime_seconds: Some(-1.0), ..spec() }),
            ("memory_bytes", JobSpec { memory_bytes: Some(0), ..spec() }),
            ("gpu_memory_bytes", JobSpec { gpu_memory_bytes: Some(0), ..spec() }),
            ("utilization", with_utilization(0.0, 60.0)),
            ("utilization", with_utilization(f64::NAN, 60.0)),
            ("utilization", with_utilization(1.5, 60.0)),
            ("utilization", with_utilization(0.5, 0.0)),
            ("replicas", JobSpec { replicas: 0, ..spec() }),
            ("shards", JobSpec { replicas: 2, shards: Some(3), ..spec() }),
            ("hosts", JobSpec { replicas: 3, hosts: 2, ..spec() }),
            ("hosts", JobSpec { hosts: 0, ..spec() }),
            ("hosts", JobSpec { hosts: 2, ..spec() }),
        ];
        for (field, spec) in wrong {
            let error = spec.validate().unwrap_err().to_string();
            assert!(error.starts_with(field), "{field}: {error}");
        }
    }

    #[test]
    fn a_job_spec_round_trips_through_json() {
        let spec = JobSpec {
            gpu_slots: 0.25,
            precision: Precision::Mixed,
            init_from: Some("job:a-1".parse().unwrap()),
            ..spec()
        };
        let text = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<JobSpec>(&text).unwrap(), spec);
        assert_eq!(spec.demand().slots_milli, 250);
        let other = text.replace(r#""precision":"mixed""#, r#""precision":"half""#);
        let error = serde_json::from_str::<JobSpec>(&other).unwrap_err().to_string();
        assert!(error.starts_with("unknown variant `half`, expected `float32` or `mixed`"), "{error}");
        let least = format!(r#"{{"project":"p","plugin":"{}"}}"#, "0".repeat(64));
        assert_eq!(serde_json::from_str::<JobSpec>(&least).unwrap(), JobSpec::new("p", "0".repeat(64)));
    }
}
