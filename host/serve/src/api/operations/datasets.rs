//! The operations of datasets.

use saggar_rest::datasets::{DatasetAnnouncement, DatasetFromJobRequest};
use saggar_rest::projects::AssignProjectsRequest;

use crate::openapi::operation::OpenApiOperation;
use crate::openapi::operation_response::SchemaSource;

/// Returns the operations.
pub(crate) fn operations() -> Vec<OpenApiOperation> {
    vec![
        OpenApiOperation::get("/api/v1/datasets", "Datasets")
            .with_description("The datasets that belong to no project, or to one that the key is for."),
        OpenApiOperation::post("/api/v1/datasets", "Announces an upload and returns which chunks are missing")
            .with_body::<DatasetAnnouncement>()
            .with_errors(&[400, 404, 408, 409, 413, 422, 507]),
        OpenApiOperation::put("/api/v1/datasets/{name}/uploads/{id}/chunks/{sha256}", "Uploads a chunk")
            .with_binary_body()
            .with_errors(&[400, 404, 408, 409, 413, 422, 507]),
        OpenApiOperation::post(
            "/api/v1/datasets/{name}/uploads/{id}/commit",
            "Creates a version from a complete upload",
        )
        .with_errors(&[400, 404, 409, 413, 422, 507]),
        OpenApiOperation::put("/api/v1/datasets/{name}/projects", "Sets the projects that the dataset belongs to")
            .with_description(
                "An empty list removes it from all projects. A key that is limited to projects can \
                 change only what belongs to one of them.",
            )
            .with_body::<AssignProjectsRequest>()
            .with_errors(&[400, 404, 408, 413]),
        OpenApiOperation::delete(
            "/api/v1/datasets/{name}/{version}",
            "Removes a version that no unfinished job mounts",
        )
        .with_errors(&[400, 404, 409]),
        OpenApiOperation::get(
            "/api/v1/datasets/{name}/{version}/export",
            "A version as a tar archive of .npy files and dataset.json, which can be pushed again",
        )
        .with_content(200, "application/x-tar", SchemaSource::Binary)
        .with_errors(&[400, 404]),
        OpenApiOperation::post("/api/v1/datasets/{name}/from-job", "Creates a version from a job's output")
            .with_body::<DatasetFromJobRequest>()
            .with_errors(&[400, 404, 408, 409, 413, 422, 507]),
    ]
}
