//! A model's inputs and outputs as JSON schemas, for single items and for batches.

use axum::handler::Handler;
use axum::http::Method;
use indexmap::IndexMap;
use saggar_plugin::{HandlerMethod, HandlerRoute, ModelPort, ModelSignature};
use saggar_tensor::DType;
use serde_json::{Map, Value, json};

use super::described_response::DescribedResponse;
use super::document::PathItem;
use super::operation::OpenApiOperation;
use super::operation_response::{JSON, OperationResponse, SchemaSource};
use super::schema_catalog::SchemaCatalog;
use crate::app::AppState;
use crate::handler_output::HandlerOutput;
use crate::predict::describe::describe_named;
use crate::predict::operations::{ANY_TYPE, HANDLER_ERRORS};

/// A model's part of the document: its schemas by name, and its path, whose other schemas every document has.
pub(super) struct ModelOpenApi {
    pub(super) input: (String, Value),
    pub(super) output: (String, Value),
    pub(super) paths: IndexMap<String, PathItem>,
}

/// Describes a model by its signature.
pub(super) fn describe_model(model: &str, signature: &ModelSignature) -> ModelOpenApi {
    let (input, output) = (format!("model.{model}.input"), format!("model.{model}.output"));
    let path = format!("/models/{model}/predict");
    let operations = [
        OpenApiOperation::get(path.clone(), format!("The inputs and outputs of {model}, and an example body"))
            .with_responses(responses_of(describe_named))
            .with_errors(&[400, 404, 503]),
        OpenApiOperation::post(path, format!("A prediction by {model}"))
            .with_deadline()
            .with_body_content(JSON, SchemaSource::Model(input.clone()))
            .with_content(200, JSON, SchemaSource::Model(output.clone()))
            .with_errors(&[400, 404, 408, 413, 415, 422, 429, 500, 503, 504]),
    ];
    let operations =
        operations.into_iter().chain(signature.handlers.iter().map(|handler| describe_handler(model, handler)));
    let (mut paths, mut catalog) = (IndexMap::new(), SchemaCatalog::new());
    operations.for_each(|operation| operation.insert_into(&mut paths, "predict", &mut catalog));
    for parameter in paths.values_mut().flat_map(|item: &mut PathItem| &mut item.parameters) {
        // The names are the plugin's, and the values any text.
        parameter.schema = json!({ "type": "string", "minLength": 1 });
    }
    ModelOpenApi {
        input: (input, single_or_batch(|batch| object_schema(&signature.inputs, batch))),
        output: (output, single_or_batch(|batch| output_schema(&signature.outputs, batch))),
        paths,
    }
}

/// Describes a path that the model's plugin answers with its own code.
fn describe_handler(model: &str, handler: &HandlerRoute) -> OpenApiOperation {
    let HandlerRoute { method, path, description, .. } = handler;
    let summary = match description.as_str() {
        "" => format!("{} {path}, answered by the plugin of {model}", method.name()),
        description => description.to_owned(),
    };
    let (verb, takes_body) = match method {
        HandlerMethod::Get => (Method::GET, false),
        HandlerMethod::Delete => (Method::DELETE, false),
        HandlerMethod::Post => (Method::POST, true),
        HandlerMethod::Put => (Method::PUT, true),
        HandlerMethod::Patch => (Method::PATCH, true),
    };
    let operation = OpenApiOperation::of_model(verb, format!("/models/{model}{path}"), summary)
        .with_deadline()
        .with_content(200, ANY_TYPE, SchemaSource::Binary)
        .with_errors(HANDLER_ERRORS);
    if takes_body { operation.with_body_content(ANY_TYPE, SchemaSource::Binary) } else { operation }
}

/// Returns the responses that the type of a handler describes.
fn responses_of<H, T>(_: H) -> Vec<OperationResponse>
where
    H: Handler<T, AppState> + HandlerOutput<T, Output: DescribedResponse>,
{
    H::Output::responses()
}

/// Returns the schema of a single item or a batch.
fn single_or_batch(schema: impl Fn(bool) -> Value) -> Value {
    json!({ "anyOf": [schema(false), schema(true)] })
}

fn output_schema(ports: &[ModelPort], batch: bool) -> Value {
    let mut object = object_schema(ports, batch);
    // Class names are returned besides class numbers, and NaN and infinities as null.
    object["additionalProperties"] = true.into();
    object
}

fn object_schema(ports: &[ModelPort], batch: bool) -> Value {
    let properties: Map<String, Value> =
        ports.iter().map(|port| (port.name.clone(), port_schema(port, batch))).collect();
    let required: Vec<&str> =
        ports.iter().filter(|port| port.default.is_none()).map(|port| port.name.as_str()).collect();
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

fn port_schema(port: &ModelPort, batch: bool) -> Value {
    let mut schema = match port.text_bytes_max() {
        Some(bytes_max) => json!({ "type": "string", "maxLength": bytes_max }),
        None => {
            let dims = port.item.shape.dims().iter().rev();
            dims.fold(
                element_schema(port.item.dtype),
                |items, &length| json!({ "type": "array", "items": items, "minItems": length, "maxItems": length }),
            )
        }
    };
    if batch {
        schema = json!({ "type": "array", "items": schema, "minItems": 1 });
    }
    if let Some(default) = port.default {
        schema["description"] = format!("If omitted, every element is {default}.").into();
    }
    if let Some(semantics) = &port.semantics {
        schema["x-semantics"] = semantics.as_str().into();
    }
    schema
}

fn element_schema(dtype: DType) -> Value {
    let integer = |min: i128, max: i128| {
        // JSON parsers differ beyond 53 bits, so larger bounds are omitted.
        if max < 1 << 53 {
            json!({ "type": "integer", "minimum": min as i64, "maximum": max as i64 })
        } else {
            json!({ "type": "integer", "format": dtype.name() })
        }
    };
    match dtype {
        DType::F32 | DType::F16 => json!({ "type": ["number", "null"], "format": "float" }),
        DType::I64 => integer(i64::MIN.into(), i64::MAX.into()),
        DType::U64 => integer(0, u64::MAX.into()),
        DType::I32 => integer(i32::MIN.into(), i32::MAX.into()),
        DType::U32 => integer(0, u32::MAX.into()),
        DType::I8 => integer(-128, 127),
        DType::U8 => integer(0, 255),
    }
}
