//! The operations of models and their versions.

use saggar_rest::model_commands::{
    OptionalVersionRequest, PromoteRequest, PublishVersionRequest, SetAliasRequest, SetShadowRequest, TrafficRequest,
};
use saggar_rest::model_versions::{BundleImportForm, ModelPushForm};
use saggar_rest::models::{ModelConfigDocument, ModelImportForm};
use saggar_rest::projects::AssignProjectsRequest;

use crate::openapi::operation::{OpenApiOperation, ParameterType};
use crate::openapi::operation_response::SchemaSource;

/// The statuses of commands that fail.
const COMMAND_ERRORS: &[u16] = &[400, 404, 408, 409, 413, 422, 503];

/// Returns the operations.
pub(crate) fn operations() -> Vec<OpenApiOperation> {
    [command_operations(), model_operations(), upload_operations()].into_iter().flatten().collect()
}

/// Returns the operations that change how a model is served.
fn command_operations() -> Vec<OpenApiOperation> {
    vec![
        OpenApiOperation::post(
            "/api/v1/models/{model}/load",
            "Loads a version, or all that are needed, and responds once they serve",
        )
        .with_body::<OptionalVersionRequest>()
        .with_errors(COMMAND_ERRORS),
        OpenApiOperation::post(
            "/api/v1/models/{model}/unload",
            "Unloads a version, or all; they stay unloaded until they are loaded again",
        )
        .with_body::<OptionalVersionRequest>()
        .with_errors(COMMAND_ERRORS),
        OpenApiOperation::post("/api/v1/models/{model}/warm", "Loads a model that sleeps").with_errors(COMMAND_ERRORS),
        OpenApiOperation::post(
            "/api/v1/models/{model}/promote",
            "Makes a version the default, or makes the default follow the newest",
        )
        .with_body::<PromoteRequest>()
        .with_errors(COMMAND_ERRORS),
        OpenApiOperation::post("/api/v1/models/{model}/rollback", "Restores the previous default version")
            .with_errors(COMMAND_ERRORS),
        OpenApiOperation::put("/api/v1/models/{model}/aliases/{alias}", "Points an alias to a version that is ready")
            .with_body::<SetAliasRequest>()
            .with_errors(COMMAND_ERRORS),
        OpenApiOperation::delete("/api/v1/models/{model}/aliases/{alias}", "Removes an alias")
            .with_errors(COMMAND_ERRORS),
        OpenApiOperation::put(
            "/api/v1/models/{model}/traffic",
            "Sets the shares of default requests in percent, by alias or version; an empty object \
             sends all to the default",
        )
        .with_body::<TrafficRequest>()
        .with_errors(COMMAND_ERRORS),
        OpenApiOperation::put(
            "/api/v1/models/{model}/shadow",
            "Makes a version a shadow: it repeats a share of the requests, and its responses are \
             discarded",
        )
        .with_body::<SetShadowRequest>()
        .with_errors(COMMAND_ERRORS),
        OpenApiOperation::delete("/api/v1/models/{model}/shadow", "Ends the shadow").with_errors(COMMAND_ERRORS),
        OpenApiOperation::get("/api/v1/models/{model}/config", "How the model is served").with_errors(&[400, 404]),
        OpenApiOperation::put("/api/v1/models/{model}/config", "Sets how the model is served")
            .with_body::<ModelConfigDocument>()
            .with_errors(COMMAND_ERRORS),
    ]
}

/// Returns the operations that create versions from files, and the export.
fn upload_operations() -> Vec<OpenApiOperation> {
    vec![
        OpenApiOperation::post(
            "/api/v1/models/{model}/push",
            "Creates a version from a plugin and weights made elsewhere, and responds once it serves or is stored",
        )
        .with_description(
            "The content is loaded and predicts once before anything is stored. Weights that lack a tensor which the \
             plugin declares, or have it with another shape, are refused with the tensor's name.",
        )
        .with_binary_body()
        .with_form::<ModelPushForm>()
        .with_errors(&[400, 408, 413, 422, 503, 507]),
        OpenApiOperation::post("/api/v1/models/{model}/bundle", "Creates a version from a bundle")
            .with_description("The bundle is verified as a whole, with its signature, before anything is stored.")
            .with_binary_body()
            .with_form::<BundleImportForm>()
            .with_errors(&[400, 408, 413, 422, 503, 507]),
        OpenApiOperation::get(
            "/api/v1/models/{model}/versions/{version}/bundle",
            "A version as one file, to be imported by another server",
        )
        .with_content(200, "application/x-tar", SchemaSource::Binary)
        .with_errors(&[400, 404, 409]),
    ]
}

/// Returns the operations on models and their versions.
fn model_operations() -> Vec<OpenApiOperation> {
    vec![
        OpenApiOperation::get("/api/v1/models", "Every model with its versions"),
        OpenApiOperation::get("/api/v1/models/{model}", "A model, its versions, and its inputs and outputs")
            .with_errors(&[400, 404]),
        OpenApiOperation::delete(
            "/api/v1/models/{model}",
            "Removes the model with all of its versions and its settings",
        )
        .with_description(
            "Refused while an unfinished job reads one of its versions, or an ensemble has it as \
                 a step.",
        )
        .with_errors(&[404, 409]),
        OpenApiOperation::post(
            "/api/v1/models/{model}/import",
            "Creates a version from an ONNX file and its external data files",
        )
        .with_query("options", ParameterType::Described("A JSON object for the plugin that reads the file."))
        .with_binary_body()
        .with_form::<ModelImportForm>()
        .with_errors(&[400, 408, 413, 422, 503, 507]),
        OpenApiOperation::post(
            "/api/v1/models/{model}/versions",
            "Creates a version from a plugin and the weights of an existing version, or from a \
             job's checkpoint, and responds once it serves or was refused",
        )
        .with_body::<PublishVersionRequest>()
        .with_errors(&[400, 404, 408, 413, 503]),
        OpenApiOperation::get(
            "/api/v1/models/{model}/versions/{version}",
            "What a version is made from and contains: metrics, data, parameters, files, card",
        )
        .with_query("verify", ParameterType::Described("`true` reads all files and compares their digests."))
        .with_errors(&[400, 404]),
        OpenApiOperation::get(
            "/api/v1/models/{model}/versions/{version}/graph",
            "The kernels that compute a version: their operators with shapes, work and memory",
        )
        .with_description(
            "The kernels are those for the processor. They are found by running the version's plugin on a device that \
                 computes nothing, in a separate process. One graph is inspected at a time.",
        )
        .with_query("graph", ParameterType::Integer { min: 1 })
        .with_errors(&[400, 404, 409]),
        OpenApiOperation::delete("/api/v1/models/{model}/versions/{version}", "Removes a version")
            .with_description(
                "Refused while default requests, an alias, a share or a shadow needs it, or an \
                 unfinished job reads it.",
            )
            .with_errors(&[400, 404, 409]),
        OpenApiOperation::put("/api/v1/models/{model}/projects", "Sets the projects that the model belongs to")
            .with_description(
                "An empty list removes it from all projects. A key that is limited to projects can \
                 change only what belongs to one of them.",
            )
            .with_body::<AssignProjectsRequest>()
            .with_errors(&[400, 404, 408, 413]),
    ]
}
