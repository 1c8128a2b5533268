//! The operations of jobs, and what they use.

use saggar_jobs::JobSpec;
use saggar_rest::jobs::{AnnotateJobRequest, JobGcRequest, PauseRequest, ReplayJobRequest, RestartRequest};
use saggar_rest::logged_items::LoggedValueDocument;
use saggar_rest::plugins::{FetchPluginRequest, ResumeTestRequest};
use saggar_rest::schedules::SetScheduleRequest;
use saggar_rest::secrets::SetSecretRequest;

use crate::openapi::operation::{OpenApiOperation, ParameterType};
use crate::openapi::operation_response::SchemaSource;
use crate::openapi::schema_catalog::SchemaCatalog;

/// Returns the operations.
pub(crate) fn operations() -> Vec<OpenApiOperation> {
    [
        job_operations(),
        record_operations(),
        logged_item_operations(),
        experiment_operations(),
        plugin_operations(),
        resource_operations(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns the operations on jobs.
fn job_operations() -> Vec<OpenApiOperation> {
    vec![
        OpenApiOperation::get("/api/v1/jobs", "Jobs, newest first")
            .with_description(
                "A key that is limited to projects sees only the jobs of its projects, here and \
                 everywhere.",
            )
            .with_query("state", ParameterType::Described("States, separated by commas."))
            .with_query("project", ParameterType::Text)
            .with_query("limit", ParameterType::Integer { min: 0 })
            .with_query("cursor", ParameterType::Integer { min: 0 })
            .with_query("experiment", ParameterType::Text)
            .with_errors(&[400]),
        OpenApiOperation::post("/api/v1/jobs", "Submits a job")
            .with_header("Idempotency-Key", ParameterType::Pattern("^[!-~]{1,64}$"))
            .with_body::<JobSpec>()
            .with_errors(&[400, 403, 404, 408, 409, 413, 422, 429]),
        OpenApiOperation::get("/api/v1/jobs/{job}", "A job, by name or identifier").with_errors(&[400, 404]),
        OpenApiOperation::delete(
            "/api/v1/jobs/{job}",
            "Removes a finished job, with its logs, outputs and checkpoints",
        )
        .with_errors(&[400, 404, 409]),
        OpenApiOperation::post("/api/v1/jobs/{job}/stop", "Stops a job after it has saved its state")
            .with_errors(&[400, 404, 409]),
        OpenApiOperation::post("/api/v1/jobs/{job}/checkpoint", "Makes a running job save a checkpoint")
            .with_errors(&[400, 404, 409]),
        OpenApiOperation::post(
            "/api/v1/jobs/{job}/preempt",
            "Preempts a running job: it saves its state and is queued again",
        )
        .with_errors(&[400, 404, 409]),
        OpenApiOperation::post(
            "/api/v1/jobs/{job}/pause",
            "Pauses a job after it has saved its state at a step boundary; it holds no device until it is resumed",
        )
        .with_body::<PauseRequest>()
        .with_errors(&[400, 404, 408, 409, 413]),
        OpenApiOperation::post("/api/v1/jobs/{job}/resume", "Lets a paused job continue").with_errors(&[400, 404, 409]),
        OpenApiOperation::post("/api/v1/jobs/{job}/restart", "Submits a job that repeats another one, with changes")
            .with_header("Idempotency-Key", ParameterType::Pattern("^[!-~]{1,64}$"))
            .with_body::<RestartRequest>()
            .with_errors(&[400, 403, 404, 408, 409, 413, 422, 429]),
        OpenApiOperation::post(
            "/api/v1/jobs/{job}/replay",
            "Submits a job that repeats steps of another one, compares them with what was recorded, and reports it",
        )
        .with_header("Idempotency-Key", ParameterType::Pattern("^[!-~]{1,64}$"))
        .with_body::<ReplayJobRequest>()
        .with_errors(&[400, 403, 404, 408, 409, 413, 422, 429]),
        OpenApiOperation::get(
            "/api/v1/jobs/{job}/notebook",
            "The address of a notebook, with its token; it requires the right to submit jobs",
        )
        .with_errors(&[400, 404]),
        OpenApiOperation::post(
            "/api/v1/jobs/gc",
            "Removes jobs that match criteria, or lists those that would be removed",
        )
        .with_body::<JobGcRequest>()
        .with_errors(&[400, 408, 413]),
    ]
}

/// Returns the operations that read the records and files of a job.
fn record_operations() -> Vec<OpenApiOperation> {
    vec![
        OpenApiOperation::get("/api/v1/jobs/{job}/logs", "A job's log")
            .with_description(
                "With `Accept: text/event-stream` each line is an event `line`, with the attempt and \
                 offset as its id, and the last event is `end`.",
            )
            .with_query("attempt", ParameterType::Integer { min: 1 })
            .with_query("follow", ParameterType::Text)
            .with_query(
                "since",
                ParameterType::Described(
                    "Only lines since then: a duration before now (10m), a time of RFC 3339, or \
                     milliseconds since 1970.",
                ),
            )
            .with_query("tail", ParameterType::Integer { min: 0 })
            .with_query("timestamps", ParameterType::Text)
            .with_query("prefix", ParameterType::Text)
            .with_header("Last-Event-ID", ParameterType::Pattern("^[0-9]+:[0-9]+$"))
            .with_content(200, "text/plain", SchemaSource::Text)
            .with_content(200, "text/event-stream", SchemaSource::Text)
            .with_errors(&[400, 404, 429]),
        OpenApiOperation::get("/api/v1/jobs/{job}/metrics", "A job's metric series")
            .with_query("series", ParameterType::Text)
            .with_query("from", ParameterType::Integer { min: 0 })
            .with_query("times", ParameterType::Text)
            .with_errors(&[400, 404]),
        OpenApiOperation::get("/api/v1/jobs/{job}/attempts", "A job's attempts").with_errors(&[400, 404]),
        OpenApiOperation::get("/api/v1/jobs/{job}/events", "A job's events")
            .with_query("after", ParameterType::Integer { min: 0 })
            .with_errors(&[400, 404]),
        OpenApiOperation::get("/api/v1/jobs/{job}/checkpoints", "A job's checkpoints")
            .with_query("verify", ParameterType::Text)
            .with_errors(&[400, 404]),
        OpenApiOperation::get(
            "/api/v1/jobs/{job}/checkpoints/{which}",
            "A checkpoint as a safetensors file: of a step, `latest` or `best`",
        )
        .with_content(200, "application/octet-stream", SchemaSource::Binary)
        .with_errors(&[400, 404]),
        OpenApiOperation::get("/api/v1/jobs/{job}/output", "The files that a job wrote").with_errors(&[400, 404]),
        OpenApiOperation::get("/api/v1/jobs/{job}/output/{path}", "A file that a job wrote")
            .with_content(200, "application/octet-stream", SchemaSource::Binary)
            .with_content(200, "image/png", SchemaSource::Binary)
            .with_content(200, "text/plain", SchemaSource::Text)
            .with_content(200, "text/csv", SchemaSource::Text)
            .with_content(200, "application/json", SchemaSource::Anything)
            .with_errors(&[400, 404]),
        OpenApiOperation::get("/api/v1/events", "Job changes as server-sent events")
            .with_description(
                "`job` for each followed job, at first and whenever it changes; `ready` after the \
                 first ones; `gone` for a deleted job; and `note`, numbered, for each job event. \
                 `Last-Event-ID` resumes after a note.",
            )
            .with_query("follow", ParameterType::Described("Without it, the response ends after `ready`."))
            .with_query("job", ParameterType::Described("Follows only this job."))
            .with_query("project", ParameterType::Text)
            .with_header("Last-Event-ID", ParameterType::Integer { min: 0 })
            .with_content(200, "text/event-stream", SchemaSource::AnyObject)
            .with_errors(&[400, 404, 429]),
    ]
}

/// Returns the operations on what a job logged by step, apart from series.
fn logged_item_operations() -> Vec<OpenApiOperation> {
    vec![
        OpenApiOperation::get("/api/v1/jobs/{job}/logged", "The images, tables and histograms that a job logged")
            .with_description("By rising step, at most 1000 in a response, and 200 with `values`.")
            .with_query("kind", ParameterType::Pattern("^(image|table|histogram)$"))
            .with_query("name", ParameterType::Text)
            .with_query("step", ParameterType::Integer { min: 0 })
            .with_query("from", ParameterType::Integer { min: 0 })
            .with_query("values", ParameterType::Described("Also return the bins of histograms."))
            .with_query("limit", ParameterType::Integer { min: 1 })
            .with_query("after", ParameterType::Described("The `next` of an earlier response."))
            .with_errors(&[400, 404]),
        OpenApiOperation::get(
            "/api/v1/jobs/{job}/logged/{step}/{kind}/{name}",
            "An image as a PNG file, a table or a histogram as JSON",
        )
        .with_content(200, "image/png", SchemaSource::Binary)
        .with_content(
            200,
            "application/json",
            SchemaSource::Type(SchemaCatalog::response_schema::<LoggedValueDocument>),
        )
        .with_errors(&[400, 404]),
    ]
}

/// Returns the operations on what users write about jobs, on experiments, and of comparisons.
fn experiment_operations() -> Vec<OpenApiOperation> {
    vec![
        OpenApiOperation::post("/api/v1/jobs/{job}/annotate", "Changes the tags and the note of a job")
            .with_body::<AnnotateJobRequest>()
            .with_errors(&[400, 404, 408, 413]),
        OpenApiOperation::get("/api/v1/experiments", "The experiments of jobs, with the number of jobs in each state"),
        OpenApiOperation::get(
            "/api/v1/experiments/{experiment}",
            "An experiment, with the pipeline runs and sweeps that have jobs of it",
        )
        .with_errors(&[400, 404]),
        OpenApiOperation::get("/api/v1/compare", "Jobs, pipeline runs or sweeps side by side")
            .with_description(
                "Names of several kinds are refused. If all names are those of jobs and of pipeline runs, the jobs are \
                 compared, unless `kind` says otherwise. At most 100 jobs, or 20 pipeline runs or sweeps.",
            )
            .with_query("names", ParameterType::Described("Names or identifiers, separated by commas."))
            .with_query("kind", ParameterType::Described("`job`, `pipeline-run` or `sweep`."))
            .with_errors(&[400, 404]),
    ]
}

/// Returns the operations on plugins.
fn plugin_operations() -> Vec<OpenApiOperation> {
    vec![
        OpenApiOperation::get("/api/v1/plugins", "Uploaded plugins"),
        OpenApiOperation::post("/api/v1/plugins", "Uploads a plugin, which is checked and addressed by its content")
            .with_binary_body()
            .with_errors(&[400, 408, 413, 422, 503, 507]),
        OpenApiOperation::post("/api/v1/plugins/fetch", "Fetches a plugin of another server by its URL and SHA-256")
            .with_description(
                "Only from addresses that `saggar serve --fetch-from` allows. A plugin that is stored already is not \
                 fetched.",
            )
            .with_body::<FetchPluginRequest>()
            .with_errors(&[400, 403, 408, 413, 422, 502, 503, 507]),
        OpenApiOperation::post(
            "/api/v1/plugins/{digest}/resume-test",
            "Marks a plugin as resumable, given two of its jobs with the same result, one of them \
             interrupted",
        )
        .with_body::<ResumeTestRequest>()
        .with_errors(&[400, 404, 408, 409, 413]),
    ]
}

/// Returns the operations on queues, devices, quotas, schedules and secrets.
fn resource_operations() -> Vec<OpenApiOperation> {
    vec![
        OpenApiOperation::get("/api/v1/queues", "Pools with the jobs that hold their slots, and the queued jobs"),
        OpenApiOperation::get("/api/v1/devices", "The compute devices of this machine"),
        OpenApiOperation::get("/api/v1/quota", "Storage by kind, and the usage and limits of jobs"),
        OpenApiOperation::get("/api/v1/schedules", "Schedules, which submit jobs at the times of a cron expression"),
        OpenApiOperation::post("/api/v1/schedules", "Creates or replaces a schedule")
            .with_body::<SetScheduleRequest<JobSpec>>()
            .with_errors(&[400, 403, 404, 408, 409, 413, 422]),
        OpenApiOperation::delete("/api/v1/schedules/{name}", "Removes a schedule; its jobs stay")
            .with_errors(&[400, 404]),
        OpenApiOperation::get("/api/v1/secrets", "Names of the secrets that jobs can be granted")
            .with_description("A key that is limited to projects sees only secrets that list one of them."),
        OpenApiOperation::put("/api/v1/secrets/{name}", "Stores a secret")
            .with_body::<SetSecretRequest>()
            .with_errors(&[400, 408, 409, 413]),
        OpenApiOperation::delete("/api/v1/secrets/{name}", "Removes a secret").with_errors(&[400, 404]),
    ]
}
