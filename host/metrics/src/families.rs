//! The table.

use prometheus::{CounterVec, GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry};

/// A row of the table, for tests and documentation.
#[derive(Clone, Copy, Debug)]
pub struct MetricDefinition {
    /// The metric's full name.
    pub name: &'static str,
    /// The type of its handle in this crate.
    pub kind: &'static str,
    /// What it says.
    pub help: &'static str,
    /// Its labels, in the order in which handles take them.
    pub labels: &'static [&'static str],
}

/// Half a millisecond to half a minute, closest around the second that alerts ask about. Every model and route has one
/// series a bucket, so there are few.
const SECONDS: [f64; 10] = [0.0005, 0.002, 0.008, 0.032, 0.128, 0.512, 1.024, 2.048, 8.192, 32.768];
/// Ten microseconds to a second: phases of predictions.
const PHASE_SECONDS: [f64; 6] = [1e-5, 1e-4, 0.001, 0.01, 0.1, 1.0];
/// A millisecond to two minutes: bringing a model version up.
const START_SECONDS: [f64; 6] = [0.001, 0.01, 0.1, 1.0, 10.0, 100.0];
/// A microsecond to a quarter of a second.
const SHORT_SECONDS: [f64; 10] = [1e-6, 4e-6, 8e-6, 16e-6, 20e-6, 32e-6, 64e-6, 256e-6, 0.004, 0.256];
/// Items of a batch.
const ITEMS: [f64; 10] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];
/// A KiB to 16 GiB.
const BYTES: [f64; 7] = [1024.0, 16384.0, 262144.0, 4194304.0, 67108864.0, 1073741824.0, 17179869184.0];

macro_rules! make {
    (HistogramVec, $name:literal, $help:literal, $labels:expr, $buckets:expr) => {
        HistogramVec::new(HistogramOpts::new($name, $help).buckets($buckets.to_vec()), $labels)
    };
    ($kind:ident, $name:literal, $help:literal, $labels:expr) => {
        $kind::new(Opts::new($name, $help), $labels)
    };
}

macro_rules! families {
    ($($field:ident: $kind:ident($name:literal, $help:literal, $labels:expr $(, $buckets:expr)?);)*) => {
        /// A handle for each family; `with_label_values` takes the labels in the table's order.
        #[derive(Clone, Debug)]
        pub struct MetricHandles {
            $(#[doc = $help] pub $field: $kind,)*
        }

        impl MetricHandles {
            pub(crate) fn register(registry: &Registry) -> MetricHandles {
                $(
                    let $field = make!($kind, $name, $help, &$labels $(, $buckets)?).expect("the table is well formed");
                    registry.register(Box::new($field.clone())).expect("names in the table are distinct");
                )*
                MetricHandles { $($field,)* }
            }
        }

        /// Every family, in the table's order.
        pub const FAMILIES: &[MetricDefinition] = &[
            $(MetricDefinition { name: $name, kind: stringify!($kind), help: $help, labels: &$labels },)*
        ];
    };
}

families! {
    build_info: GaugeVec("saggar_build_info", "Always 1; the label is the version that runs.", ["version"]);

    http_requests: IntCounterVec("saggar_http_requests_total", "HTTP requests answered, by route template.", ["route", "method", "code"]);
    http_request_duration: HistogramVec("saggar_http_request_duration_seconds", "Time from a request's head to its answer.", ["route"], SECONDS);

    predict_requests: IntCounterVec("saggar_predict_requests_total", "Prediction requests by outcome.", ["model", "version", "outcome"]);
    predict_items: IntCounterVec("saggar_predict_items_total", "Items predicted; divided by executions: the mean batch.", ["model", "version"]);
    predict_executions: IntCounterVec("saggar_predict_executions_total", "Batches run.", ["model", "version"]);
    predict_duration: HistogramVec("saggar_predict_duration_seconds", "Time of a prediction from decoded request to result.", ["model", "version"], SECONDS);
    predict_phase: HistogramVec("saggar_predict_phase_seconds", "Time of a prediction's phases.", ["model", "version", "phase"], PHASE_SECONDS);
    predict_in_flight: IntGaugeVec("saggar_predict_in_flight", "Predictions being computed.", ["model", "version"]);
    predict_queue_length: IntGaugeVec("saggar_predict_queue_length", "Predictions waiting for their batch.", ["model", "version"]);
    batch_items: HistogramVec("saggar_batch_items", "Items of the batches that went to the model.", ["model", "version"], ITEMS);
    batch_releases: IntCounterVec("saggar_batch_releases_total", "Batches by why they went when they did: full, deadline, idle, draining.", ["model", "version", "reason"]);
    cache_requests: IntCounterVec("saggar_cache_requests_total", "Predictions looked up in the model's cache.", ["model", "version", "result"]);
    shadow_requests: IntCounterVec("saggar_shadow_requests_total", "Predictions repeated by a shadow version: same, different, failed, dropped.", ["model", "version", "result"]);
    requests_rejected: IntCounterVec("saggar_requests_rejected_total", "Requests refused before they reached a model.", ["reason"]);
    auth_failures: IntCounterVec("saggar_auth_failures_total", "Requests without the key or the scope that they need.", ["reason"]);
    model_state: IntGaugeVec("saggar_model_state", "1 for the state the model version is in, 0 for the others.", ["model", "version", "state"]);
    model_reloads: IntCounterVec("saggar_model_reloads_total", "Model versions taken up or refused.", ["model", "kind", "result", "reason"]);
    model_swap_duration: HistogramVec("saggar_model_swap_duration_seconds", "Time from a version's discovery to its first possible answer.", ["model"], START_SECONDS);
    cold_start: HistogramVec("saggar_cold_start_seconds", "Phases of bringing a model version up.", ["model", "phase"], START_SECONDS);
    model_setups: IntCounterVec("saggar_model_setups_total", "Model versions set up: once a version, however many requests.", ["model", "version"]);
    model_evictions: IntCounterVec("saggar_model_evictions_total", "Models put to sleep: for want of memory (lru), unused (idle), with their device (device), or told to (manual).", ["reason"]);
    instance_start: HistogramVec("saggar_instance_start_seconds", "Time to make a plugin's instance, before its code loads the model.", [], SHORT_SECONDS);
    plugin_traps: IntCounterVec("saggar_plugin_traps_total", "Plugin calls that trapped.", ["plugin", "kind"]);
    plugin_limit_hits: IntCounterVec("saggar_plugin_limit_hits_total", "Plugin calls ended by a limit.", ["plugin", "kind"]);

    jobs: IntGaugeVec("saggar_jobs", "Jobs on record, by state.", ["state"]);
    jobs_submitted: IntCounterVec("saggar_jobs_submitted_total", "Jobs submitted.", ["project", "task"]);
    jobs_started: IntCounterVec("saggar_jobs_started_total", "Jobs whose first attempt started.", ["project", "task"]);
    jobs_finished: IntCounterVec("saggar_jobs_finished_total", "Jobs that ended, by final state.", ["project", "task", "state"]);
    job_attempts: IntCounterVec("saggar_job_attempts_total", "Attempts that ended, by reason.", ["project", "task", "reason"]);
    job_preemptions: IntCounterVec("saggar_job_preemptions_total", "Attempts whose state was saved to make room for another job, or because a user asked for it.", ["project", "task"]);
    job_resumes: IntCounterVec("saggar_job_resumes_total", "Attempts that went on from a checkpoint, by what ended the attempt before.", ["project", "task", "reason"]);
    queue_wait: HistogramVec("saggar_queue_wait_seconds", "Time a job waited before an attempt started.", ["queue"], SECONDS);

    queue_length: IntGaugeVec("saggar_queue_length", "Jobs that wait in a queue.", ["queue"]);
    queue_running: IntGaugeVec("saggar_queue_running_jobs", "Jobs of a queue that run.", ["queue"]);
    pool_slots: GaugeVec("saggar_pool_slots", "Slots of a pool.", ["pool"]);
    pool_slots_used: GaugeVec("saggar_pool_slots_used", "Slots of a pool that jobs hold; divided by its slots: how full it is.", ["pool"]);

    job_gpu_seconds: CounterVec("saggar_job_gpu_seconds_total", "Device seconds a job used; estimated where the device has no clock of its own.", ["job", "device", "estimated"]);
    job_wall_seconds: CounterVec("saggar_job_wall_seconds_total", "Seconds a job's attempts ran.", ["job"]);
    job_gpu_memory: GaugeVec("saggar_job_gpu_memory_bytes", "Device bytes a job holds.", ["job", "device"]);
    train_step: GaugeVec("saggar_train_step", "Steps a training has done.", ["job"]);
    train_steps_target: GaugeVec("saggar_train_steps_target", "Steps a training means to do.", ["job"]);
    train_steps: CounterVec("saggar_train_steps_total", "Steps done, repeated ones included.", ["job"]);
    train_samples: CounterVec("saggar_train_samples_total", "Samples trained on, repeated ones included.", ["job"]);
    train_samples_rate: GaugeVec("saggar_train_samples_per_second", "Samples a second, lately.", ["job"]);
    train_metric: GaugeVec("saggar_train_metric", "The last value of a training's own series.", ["job", "name"]);
    allreduce_duration: HistogramVec("saggar_allreduce_seconds", "Time of a step's means over a job's worker processes, waiting for the slowest included.", [], SECONDS);
    checkpoint_duration: HistogramVec("saggar_checkpoint_duration_seconds", "Time to save or load a checkpoint.", ["op"], SECONDS);
    checkpoint_bytes: HistogramVec("saggar_checkpoint_bytes", "Size of checkpoints.", ["op"], BYTES);
    checkpoint_age: GaugeVec("saggar_checkpoint_age_seconds", "Age of a running job's newest checkpoint.", ["job"]);
    checkpoint_failures: IntCounterVec("saggar_checkpoint_failures_total", "Checkpoints that could not be saved or loaded.", ["op", "reason"]);

    gpu_info: GaugeVec("saggar_gpu_info", "Always 1; the labels tell the device.", ["device", "name", "vendor", "driver", "backend"]);
    gpu_busy_seconds: CounterVec("saggar_gpu_busy_seconds_total", "Seconds a device worked, for models and jobs; estimated where the device has no clock of its own.", ["device"]);
    gpu_memory: GaugeVec("saggar_gpu_memory_bytes", "Device bytes in use, by owner.", ["device", "owner"]);
    gpu_submissions: CounterVec("saggar_gpu_submissions_total", "Submissions to a device.", ["device"]);
    gpu_dispatches: CounterVec("saggar_gpu_dispatches_total", "Kernels run on a device.", ["device"]);
    gpu_device_lost: IntCounterVec("saggar_gpu_device_lost_total", "Devices that their drivers gave up while the server used them.", ["device"]);
    tensor_copy: IntCounterVec("saggar_tensor_copy_bytes_total", "Bytes of models' tensors copied to and from devices.", ["device", "direction"]);

    dataset_bytes: GaugeVec("saggar_dataset_bytes", "Bytes of all dataset versions.", []);
    storage_bytes: GaugeVec("saggar_storage_bytes", "Bytes stored, by what they are for, counted at most every 15 s.", ["kind"]);
    storage_quota_bytes: GaugeVec("saggar_storage_quota_bytes", "Bytes that may be stored; absent where there is no limit.", []);
    watch_rescans: IntCounterVec("saggar_watch_rescans_total", "Times the model directory was read anew.", []);
}
