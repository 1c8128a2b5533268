//! The table of all metric families.

use prometheus::{CounterVec, GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry};

/// A row of the table, for tests and documentation.
#[derive(Clone, Copy, Debug)]
pub struct MetricDefinition {
    /// The metric's full name.
    pub name: &'static str,
    /// The type of its handle in this crate.
    pub kind: &'static str,
    /// The help text.
    pub help: &'static str,
    /// Label names, in the order of a handle's label values.
    pub labels: &'static [&'static str],
}

/// Request durations: half a millisecond to half a minute, with the closest buckets around one second, the threshold of
/// alerts. Every model and route has one series per bucket, so there are few buckets.
const SECONDS: [f64; 10] = [0.0005, 0.002, 0.008, 0.032, 0.128, 0.512, 1.024, 2.048, 8.192, 32.768];
/// Phases of predictions: ten microseconds to a second.
const PHASE_SECONDS: [f64; 6] = [1e-5, 1e-4, 0.001, 0.01, 0.1, 1.0];
/// Phases of loading a model version: a millisecond to two minutes.
const START_SECONDS: [f64; 6] = [0.001, 0.01, 0.1, 1.0, 10.0, 100.0];
/// Instance starts: a microsecond to a quarter of a second.
const SHORT_SECONDS: [f64; 10] = [1e-6, 4e-6, 8e-6, 16e-6, 20e-6, 32e-6, 64e-6, 256e-6, 0.004, 0.256];
/// Pipeline runs and their steps: a second to two days.
const RUN_SECONDS: [f64; 8] = [1.0, 10.0, 60.0, 300.0, 1800.0, 7200.0, 43200.0, 172800.0];
/// Items per batch.
const ITEMS: [f64; 10] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];
/// Sizes: 1 KiB to 16 GiB.
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
        /// A handle for each family; `with_label_values` takes the label values in the table's order.
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
    http_request_duration: HistogramVec("saggar_http_request_seconds", "Time from a request's head to its answer.", ["route"], SECONDS);
    rpc_requests: IntCounterVec("saggar_rpc_requests_total", "Remote procedure calls that ended, by their status.", ["protocol", "method", "code"]);

    log_lines_lost: IntCounterVec("saggar_log_lines_lost_total", "Lines of the server's log (server) and the access log (access) that could not be written.", ["log"]);
    trace_spans_exported: IntCounterVec("saggar_trace_spans_exported_total", "Spans that the collector took.", []);
    trace_spans_dropped: IntCounterVec("saggar_trace_spans_dropped_total", "Spans dropped: the queue was full (queue_full), the collector refused them (refused) or could not be reached (unreachable).", ["reason"]);

    predict_requests: IntCounterVec("saggar_predict_requests_total", "Prediction requests by outcome.", ["model", "version", "outcome"]);
    predict_items: IntCounterVec("saggar_predict_items_total", "Items predicted; divided by the number of executions, the mean batch size.", ["model", "version"]);
    predict_executions: IntCounterVec("saggar_predict_executions_total", "Batches run.", ["model", "version"]);
    predict_duration: HistogramVec("saggar_predict_seconds", "Time of a prediction from decoded request to result.", ["model", "version"], SECONDS);
    predict_phase: HistogramVec("saggar_predict_phase_seconds", "Time of a prediction's phases.", ["model", "version", "phase"], PHASE_SECONDS);
    predict_in_flight: IntGaugeVec("saggar_predict_in_flight", "Predictions being computed.", ["model", "version"]);
    predict_queue_length: IntGaugeVec("saggar_predict_queue_length", "Predictions waiting for their batch.", ["model", "version"]);
    batch_items: HistogramVec("saggar_batch_items", "Items per batch passed to the model.", ["model", "version"], ITEMS);
    batches_dispatched: IntCounterVec("saggar_batches_dispatched_total", "Batches dispatched, by trigger: full, deadline, idle, draining.", ["model", "version", "trigger"]);
    cache_requests: IntCounterVec("saggar_cache_requests_total", "Predictions looked up in the model's cache.", ["model", "version", "result"]);
    shadow_requests: IntCounterVec("saggar_shadow_requests_total", "Predictions repeated by a shadow version: same, different, failed, dropped.", ["model", "version", "result"]);
    recorded_rows: IntCounterVec("saggar_recorded_rows_total", "Items of predictions that were recorded for a dataset.", ["model"]);
    recorded_rows_dropped: IntCounterVec("saggar_recorded_rows_dropped_total", "Items drawn for a dataset and not recorded: too many waited (busy), or a version could not be stored (failed).", ["model", "reason"]);
    handler_requests: IntCounterVec("saggar_handler_requests_total", "Requests to HTTP handlers of plugins, by outcome.", ["model", "version", "outcome"]);
    handler_duration: HistogramVec("saggar_handler_seconds", "Time from a request's arrival at a handler to the end of its response.", ["model", "version"], SECONDS);
    handler_in_flight: IntGaugeVec("saggar_handler_in_flight", "Requests to HTTP handlers of plugins that are waiting or being answered.", ["model", "version"]);
    requests_rejected: IntCounterVec("saggar_requests_rejected_total", "Requests refused before they reached a model.", ["reason"]);
    deprecated_uses: IntCounterVec("saggar_deprecated_uses_total", "Requests that used something deprecated, by its name.", ["name"]);
    auth_failures: IntCounterVec("saggar_auth_failures_total", "Requests without the key or the scope that they need.", ["reason"]);
    model_state: IntGaugeVec("saggar_model_state", "1 for the state the model version is in, 0 for the others.", ["model", "version", "state"]);
    model_reloads: IntCounterVec("saggar_model_reloads_total", "Model versions loaded or refused.", ["model", "kind", "result", "reason"]);
    model_swap_duration: HistogramVec("saggar_model_swap_seconds", "Time from a version's discovery to its first possible answer.", ["model"], START_SECONDS);
    cold_start: HistogramVec("saggar_cold_start_seconds", "Time of the phases of loading a model version.", ["model", "phase"], START_SECONDS);
    model_setups: IntCounterVec("saggar_model_setups_total", "Setups of model versions: one per version, however many requests wait for it.", ["model", "version"]);
    model_evictions: IntCounterVec("saggar_model_evictions_total", "Models unloaded: to free memory (lru), unused (idle), with their device (device), or on request (manual).", ["reason"]);
    instance_start: HistogramVec("saggar_instance_start_seconds", "Time to create a plugin instance, before its code loads the model.", [], SHORT_SECONDS);
    plugin_traps: IntCounterVec("saggar_plugin_traps_total", "Plugin calls that trapped.", ["plugin", "kind"]);
    plugin_limit_hits: IntCounterVec("saggar_plugin_limit_hits_total", "Plugin calls ended by a limit.", ["plugin", "kind"]);

    jobs: IntGaugeVec("saggar_jobs", "Jobs on record, by state.", ["state"]);
    jobs_submitted: IntCounterVec("saggar_jobs_submitted_total", "Jobs submitted.", ["project", "task"]);
    jobs_started: IntCounterVec("saggar_jobs_started_total", "Jobs whose first attempt started.", ["project", "task"]);
    jobs_finished: IntCounterVec("saggar_jobs_finished_total", "Jobs that ended, by final state.", ["project", "task", "state"]);
    job_attempts: IntCounterVec("saggar_job_attempts_total", "Attempts that ended, by reason.", ["project", "task", "reason"]);
    job_preemptions: IntCounterVec("saggar_job_preemptions_total", "Attempts whose state was saved to make room for another job, or at a user's request.", ["project", "task"]);
    job_resumes: IntCounterVec("saggar_job_resumes_total", "Attempts that resumed from a checkpoint, by what ended the attempt before.", ["project", "task", "reason"]);
    queue_wait: HistogramVec("saggar_queue_wait_seconds", "Time a job waited before an attempt started.", ["queue"], SECONDS);

    sweeps: IntGaugeVec("saggar_sweeps", "Sweeps that are not over, by state.", ["state"]);
    sweeps_finished: IntCounterVec("saggar_sweeps_finished_total", "Sweeps that ended, by method and final state.", ["method", "state"]);
    sweep_trials: IntGaugeVec("saggar_sweep_trials", "Trials of unfinished sweeps that are to run or are paused at a rung, by state.", ["state"]);
    sweep_trials_finished: IntCounterVec("saggar_sweep_trials_finished_total", "Trials of sweeps that ended, by method and final state.", ["method", "state"]);

    queue_length: IntGaugeVec("saggar_queue_length", "Jobs waiting in a queue.", ["queue"]);
    queue_running: IntGaugeVec("saggar_queue_running_jobs", "Running jobs of a queue.", ["queue"]);
    pool_slots: GaugeVec("saggar_pool_slots", "Slots of a pool.", ["pool"]);
    pool_slots_used: GaugeVec("saggar_pool_slots_used", "Slots of a pool that jobs hold; divided by its slots, its utilization.", ["pool"]);
    hosts: IntGaugeVec("saggar_hosts", "Servers and workers of the records, by state.", ["state"]);

    pipeline_running_runs: IntGaugeVec("saggar_pipeline_running_runs", "Pipeline runs that are not over.", []);
    pipeline_runs_finished: IntCounterVec("saggar_pipeline_runs_finished_total", "Pipeline runs that ended, by final state.", ["pipeline", "state"]);
    pipeline_run_duration: HistogramVec("saggar_pipeline_run_seconds", "Time from the start of a pipeline run to its end.", ["pipeline"], RUN_SECONDS);
    pipeline_steps_finished: IntCounterVec("saggar_pipeline_steps_finished_total", "Items of pipeline steps that ended, by kind and final state.", ["kind", "state"]);
    pipeline_step_duration: HistogramVec("saggar_pipeline_step_seconds", "Time from the start of an item of a pipeline step to its end, without those that did not start.", ["kind"], RUN_SECONDS);

    job_gpu_seconds: CounterVec("saggar_job_gpu_seconds_total", "Device seconds a job used; estimated if the device has no timer.", ["job", "device", "estimated"]);
    job_wall_seconds: CounterVec("saggar_job_wall_seconds_total", "Seconds a job's attempts ran.", ["job"]);
    job_gpu_memory: GaugeVec("saggar_job_gpu_memory_bytes", "Device bytes a job holds.", ["job", "device"]);
    train_step: GaugeVec("saggar_train_step", "Steps a training has done.", ["job"]);
    train_steps_target: GaugeVec("saggar_train_steps_target", "Steps a training plans to do.", ["job"]);
    train_steps: CounterVec("saggar_train_steps_total", "Steps done, including repeated ones.", ["job"]);
    train_samples: CounterVec("saggar_train_samples_total", "Samples trained on, including repeated ones.", ["job"]);
    train_samples_rate: GaugeVec("saggar_train_samples_per_second", "Replaced by rate(saggar_train_samples_total[1m]): the next version has no metric of this name.", ["job"]);
    train_metric: GaugeVec("saggar_train_metric", "The last value of a training's own series.", ["job", "name"]);
    allreduce_duration: HistogramVec("saggar_allreduce_seconds", "Time to average a step over a job's worker processes, including the wait for the slowest.", [], SECONDS);
    checkpoint_duration: HistogramVec("saggar_checkpoint_seconds", "Time to save or load a checkpoint.", ["op"], SECONDS);
    checkpoint_bytes: HistogramVec("saggar_checkpoint_bytes", "Size of checkpoints.", ["op"], BYTES);
    checkpoint_age: GaugeVec("saggar_checkpoint_age_seconds", "Age of a running job's newest checkpoint.", ["job"]);
    checkpoint_failures: IntCounterVec("saggar_checkpoint_failures_total", "Checkpoints that could not be saved or loaded.", ["op", "reason"]);

    device_info: GaugeVec("saggar_device_info", "Always 1; the labels describe the device.", ["device", "name", "vendor", "driver", "backend"]);
    device_busy_seconds: CounterVec("saggar_device_busy_seconds_total", "Seconds a device worked, for models and jobs; estimated if the device has no timer.", ["device"]);
    device_memory: GaugeVec("saggar_device_memory_bytes", "Device bytes in use, by owner.", ["device", "owner"]);
    device_submissions: CounterVec("saggar_device_submissions_total", "Submissions to a device.", ["device"]);
    device_dispatches: CounterVec("saggar_device_dispatches_total", "Kernels run on a device.", ["device"]);
    device_lost: IntCounterVec("saggar_device_lost_total", "Devices lost while the server used them.", ["device"]);
    tensor_copy: IntCounterVec("saggar_tensor_copy_bytes_total", "Bytes of models' tensors copied to and from devices.", ["device", "direction"]);

    dataset_bytes: GaugeVec("saggar_dataset_bytes", "Bytes of all dataset versions.", []);
    storage_bytes: GaugeVec("saggar_storage_bytes", "Bytes stored, by purpose, counted at most every 15 s.", ["kind"]);
    storage_quota_bytes: GaugeVec("saggar_storage_quota_bytes", "Limit on stored bytes; absent if there is no limit.", []);
    watch_rescans: IntCounterVec("saggar_watch_rescans_total", "Scans of the model directory.", []);
}
