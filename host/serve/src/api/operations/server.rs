//! The operations of the server itself, and keys.

use saggar_rest::keys::KeyRequest;
use saggar_rest::workers::{WorkerDrainRequest, WorkerJoinRequest};

use crate::openapi::operation::{OpenApiOperation, ParameterType};
use crate::openapi::operation_response::SchemaSource;

/// Returns the operations.
pub(crate) fn operations() -> Vec<OpenApiOperation> {
    vec![
        OpenApiOperation::get("/healthz", "Whether the process answers"),
        OpenApiOperation::get("/livez", "Whether the process answers"),
        OpenApiOperation::get("/readyz", "Whether every model has a version that serves")
            .with_query("verbose", ParameterType::Text)
            .with_errors(&[400]),
        OpenApiOperation::get("/version", "The server's version"),
        OpenApiOperation::get(
            "/metrics",
            "Metrics in Prometheus' text format, or in OpenMetrics 1.0 if Accept requests it",
        )
        .with_description(
            "The response is compressed if Accept-Encoding names gzip or deflate. Jobs of all \
                 projects are labels here: every client that can read the page sees their names, \
                 whatever projects its key is limited to.",
        )
        .with_content(200, "text/plain", SchemaSource::Text)
        .with_content(200, "application/openmetrics-text", SchemaSource::Text),
        OpenApiOperation::get("/openapi.json", "This document").with_content(
            200,
            "application/json",
            SchemaSource::AnyObject,
        ),
        OpenApiOperation::get("/console/{fingerprint}/{name}", "A file of the console")
            .with_content(200, "text/javascript", SchemaSource::Text)
            .with_content(200, "text/css", SchemaSource::Text)
            .with_content(200, "image/svg+xml", SchemaSource::Text)
            .with_content(200, "text/plain", SchemaSource::Text)
            .with_empty_response(304)
            .with_errors(&[400, 404]),
        OpenApiOperation::get("/docs", "The first page of the documentation")
            .with_content(200, "text/html", SchemaSource::Text)
            .with_empty_response(304),
        OpenApiOperation::get("/docs/{path}", "A page of the documentation, its style sheet or an image")
            .with_content(200, "text/html", SchemaSource::Text)
            .with_content(200, "text/css", SchemaSource::Text)
            .with_content(200, "image/svg+xml", SchemaSource::Text)
            .with_empty_response(304)
            .with_errors(&[400, 404]),
        OpenApiOperation::get("/api/v1/history", "Samples of devices, models and jobs since the server began")
            .with_description(
                "A sample each second for ten minutes (step=1), and one each minute for a day (step=60). \
                 A key that is limited to projects sees the models that it can use; a key sees jobs if it can \
                 read them.",
            )
            .with_query("since", ParameterType::Integer { min: 0 })
            .with_query("step", ParameterType::Pattern("^(1|60)$"))
            .with_query("series", ParameterType::Described("The name of a series; can be repeated. Without it, all."))
            .with_query("model", ParameterType::Described("Only series of this model."))
            .with_query("device", ParameterType::Described("Only series of this device."))
            .with_errors(&[400]),
        OpenApiOperation::get(
            "/api/v1/deprecations",
            "What is deprecated in this interface, and how often it was used",
        )
        .with_description(
            "Responses to requests that use something deprecated have the headers Deprecation (RFC 9745), Link with \
                 rel=\"deprecation\" and, if a date is known, Sunset (RFC 8594).",
        ),
    ]
    .into_iter()
    .chain(key_and_worker_operations())
    .collect()
}

fn key_and_worker_operations() -> Vec<OpenApiOperation> {
    vec![
        OpenApiOperation::get("/api/v1/keys", "The keys of clients, without their secrets"),
        OpenApiOperation::post("/api/v1/keys", "Creates a key; its text is only in this response")
            .with_body::<KeyRequest>()
            .with_errors(&[400, 408, 409, 413]),
        OpenApiOperation::delete("/api/v1/keys/{name}", "Revokes a key").with_errors(&[404]),
        OpenApiOperation::get("/api/v1/audit", "The audit log: who changed what, newest line first")
            .with_description(
                "Of all servers that have one database, or of this server. A key that is limited to projects cannot read \
                 it. `next` is the value of `before` for the next page.",
            )
            .with_query("who", ParameterType::Described("Only lines of this originator, such as key:ci."))
            .with_query(
                "action",
                ParameterType::Described("Only lines of this action, such as model.promote, or of a kind: model."),
            )
            .with_query("subject", ParameterType::Described("Only lines about this model, job, key or other thing."))
            .with_query("result", ParameterType::Described("Only lines with this result: ok, refused, or a code."))
            .with_query("server", ParameterType::Described("Only lines of this server."))
            .with_query("since", ParameterType::Integer { min: 0 })
            .with_query("before", ParameterType::Integer { min: 0 })
            .with_query("limit", ParameterType::Integer { min: 1 })
            .with_errors(&[400]),
        OpenApiOperation::get("/api/v1/workers", "The hosts that run jobs: servers and workers"),
        OpenApiOperation::post("/api/v1/workers/join", "The settings of a host that joins the workers of this server")
            .with_description(
                "The response contains the password of the database and the credentials of the store of objects. The \
                 server must have been started with --database, and the host needs the same version of the program.",
            )
            .with_body::<WorkerJoinRequest>()
            // It needs a key on every server, also on one that needs none for the rest.
            .with_errors(&[400, 401, 403, 408, 409, 413]),
        OpenApiOperation::post("/api/v1/workers/{name}/drain", "Lets a host take no new jobs")
            .with_description(
                "Its running jobs are saved and queued again, or end first with finish. A worker then ends.",
            )
            .with_body::<WorkerDrainRequest>()
            .with_errors(&[400, 404, 408, 409, 413]),
        OpenApiOperation::post("/api/v1/workers/{name}/resume", "Lets a drained host take jobs again")
            .with_errors(&[404, 409]),
    ]
}
