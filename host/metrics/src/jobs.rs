//! Series with a `job` label: they are created with the job, limited in number, and removed some time after the job.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::families::MetricHandles;

/// Maximum number of jobs that have series; the oldest job's are removed first.
pub const JOB_SERIES_MAX: usize = 200;
/// Maximum number of names of one job in `saggar_train_metric`.
pub(crate) const JOB_METRIC_NAMES_MAX: usize = 32;

/// The series that exist for each job.
#[derive(Debug, Default)]
pub struct JobSeries {
    jobs: BTreeMap<String, JobLabels>,
    order: VecDeque<String>,
}

#[derive(Debug)]
struct JobLabels {
    device: String,
    estimated: String,
    names: BTreeSet<String>,
    last_step: u64,
}

impl JobSeries {
    /// Creates a job's series, or continues them on another device. Past [`JOB_SERIES_MAX`] jobs, removes those of the
    /// oldest.
    pub fn begin_job(&mut self, families: &MetricHandles, job: &str, device: &str, estimated: bool) {
        let estimated = estimated.to_string();
        if let Some(labels) = self.jobs.get_mut(job) {
            if labels.device != device {
                let _ = families.job_gpu_memory.remove_label_values(&[job, &labels.device]);
                let _ = families.job_gpu_seconds.remove_label_values(&[job, &labels.device, &labels.estimated]);
            }
            labels.device = device.to_owned();
            labels.estimated = estimated;
        } else {
            let labels = JobLabels { device: device.to_owned(), estimated, names: BTreeSet::new(), last_step: 0 };
            self.jobs.insert(job.to_owned(), labels);
            self.order.push_back(job.to_owned());
        }
        families.train_step.with_label_values(&[job]);
        while self.order.len() > JOB_SERIES_MAX {
            if let Some(oldest) = self.order.front().cloned() {
                self.remove_job(families, &oldest);
            }
        }
    }

    /// Adds device and wall seconds since the last call, and sets the device bytes that are held now.
    pub fn add_usage(&self, families: &MetricHandles, job: &str, gpu_seconds: f64, wall_seconds: f64, gpu_bytes: u64) {
        let Some(labels) = self.jobs.get(job) else { return };
        let seconds = families.job_gpu_seconds.with_label_values(&[job, &labels.device, &labels.estimated]);
        seconds.inc_by(gpu_seconds.max(0.0));
        families.job_wall_seconds.with_label_values(&[job]).inc_by(wall_seconds.max(0.0));
        families.job_gpu_memory.with_label_values(&[job, &labels.device]).set(gpu_bytes as f64);
    }

    /// Sets the current step. Steps that are repeated after a resume count again in `saggar_train_steps_total`.
    pub fn set_progress(&mut self, families: &MetricHandles, job: &str, step: u64, of: u64) {
        let Some(labels) = self.jobs.get_mut(job) else { return };
        let done = step.saturating_sub(labels.last_step);
        labels.last_step = step;
        families.train_step.with_label_values(&[job]).set(step as f64);
        families.train_steps_target.with_label_values(&[job]).set(of as f64);
        families.train_steps.with_label_values(&[job]).inc_by(done as f64);
    }

    /// Adds samples since the last call and sets the rate.
    pub fn add_samples(&self, families: &MetricHandles, job: &str, samples: u64, per_second: f64) {
        if !self.jobs.contains_key(job) {
            return;
        }
        families.train_samples.with_label_values(&[job]).inc_by(samples as f64);
        families.train_samples_rate.with_label_values(&[job]).set(per_second);
    }

    /// Sets a metric that the job defines. Names past the limit are ignored.
    pub fn set_metric(&mut self, families: &MetricHandles, job: &str, name: &str, value: f64) {
        let Some(labels) = self.jobs.get_mut(job) else { return };
        if !labels.names.contains(name) {
            if labels.names.len() == JOB_METRIC_NAMES_MAX {
                return;
            }
            labels.names.insert(name.to_owned());
        }
        families.train_metric.with_label_values(&[job, name]).set(value);
    }

    /// Sets the age of the job's newest checkpoint.
    pub fn set_checkpoint_age(&self, families: &MetricHandles, job: &str, seconds: f64) {
        if self.jobs.contains_key(job) {
            families.checkpoint_age.with_label_values(&[job]).set(seconds);
        }
    }

    /// Removes every series of the job. Removing a series that was never set fails, which is ignored.
    pub fn remove_job(&mut self, families: &MetricHandles, job: &str) {
        let Some(labels) = self.jobs.remove(job) else { return };
        self.order.retain(|name| name != job);
        let _ = families.job_gpu_seconds.remove_label_values(&[job, &labels.device, &labels.estimated]);
        let _ = families.job_gpu_memory.remove_label_values(&[job, &labels.device]);
        let _ = families.job_wall_seconds.remove_label_values(&[job]);
        let _ = families.train_steps.remove_label_values(&[job]);
        let _ = families.train_samples.remove_label_values(&[job]);
        for gauge in
            [&families.train_step, &families.train_steps_target, &families.train_samples_rate, &families.checkpoint_age]
        {
            let _ = gauge.remove_label_values(&[job]);
        }
        for name in labels.names {
            let _ = families.train_metric.remove_label_values(&[job, &name]);
        }
    }
}
