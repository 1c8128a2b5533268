//! The Open Inference Protocol over gRPC: the service `inference.GRPCInferenceService`. Each method answers what the
//! route of HTTP with the same purpose answers.

mod infer;
mod infer_request;
mod infer_response;
mod messages;
mod stream;
mod typed_contents;
mod wire;

use std::collections::HashMap;

use axum::extract::State;
use saggar_plugin::ModelSignature;
use saggar_rest::oip::{
    OipConfigDocument, OipDurationStatistics, OipIndexItem, OipTensorConfig, OipTensorDocument, OipVersionStatistics,
};
use saggar_serving::{ModelReference, PredictionInputs, ServingError};

pub(crate) use infer::model_infer;
pub(crate) use stream::model_stream_infer;

use self::messages::{
    BatchStatisticsMessage, CONFIG_DATATYPES, DurationMessage, DynamicBatchingConfig, InferenceStatisticsMessage,
    InputConfig, MemoryUsageMessage, ModelConfigMessage, ModelConfigResponse, ModelIndexItem, ModelMetadataResponse,
    ModelParameter, ModelStatisticsResponse, ModelVersionRequest, OutputConfig, ReadyResponse, RepositoryIndexRequest,
    RepositoryIndexResponse, RepositoryModelRequest, RepositoryParameter, RepositoryParameterValue,
    ServerMetadataResponse, TensorDescription, VersionStatisticsMessage,
};
use super::parameter::ParameterValue;
use super::{metadata, model_config, repository, statistics};
use crate::access::Actor;
use crate::api::health::unready_reasons;
use crate::app::AppState;
use crate::error::ApiError;
use crate::grpc::{GrpcRequest, response::GrpcResponse};

type GrpcResult<T> = Result<GrpcResponse<T>, ApiError>;

/// Decodes a message as [`decode_infer_message`](super::decode_infer_message) does.
pub(super) fn decode_message(signature: &ModelSignature, message: &[u8]) -> Result<PredictionInputs, ApiError> {
    infer_request::read_head(message)?;
    Ok(infer_request::read_request(signature, message)?.inputs)
}

impl ModelVersionRequest {
    fn version(&self) -> Option<&str> {
        (!self.version.is_empty()).then_some(&*self.version)
    }

    fn reference(&self) -> Result<ModelReference, ApiError> {
        super::parse_reference(&self.name, self.version())
    }
}

/// Handles `ServerLive`.
pub(crate) async fn server_live(_: GrpcRequest<()>) -> GrpcResponse<ReadyResponse> {
    GrpcResponse(ReadyResponse { ready: true })
}

/// Handles `ServerReady`: ready if every model is ready and the server is not stopping.
pub(crate) async fn server_ready(State(app): State<AppState>, _: GrpcRequest<()>) -> GrpcResponse<ReadyResponse> {
    GrpcResponse(ReadyResponse { ready: unready_reasons(&app).is_empty() })
}

/// Handles `ModelReady`. A model or version that does not exist is not ready, as in Triton.
pub(crate) async fn model_ready(
    State(app): State<AppState>,
    GrpcRequest(request): GrpcRequest<ModelVersionRequest>,
) -> GrpcResult<ReadyResponse> {
    let ready = match metadata::is_ready(&app, &request.reference()?) {
        Err(ApiError::Serving(
            ServingError::NoModel { .. }
            | ServingError::NoVersion { .. }
            | ServingError::NoAlias { .. }
            | ServingError::VersionNotServing { .. },
        )) => false,
        ready => ready?,
    };
    Ok(GrpcResponse(ReadyResponse { ready }))
}

/// Handles `ServerMetadata`.
pub(crate) async fn server_metadata(_: GrpcRequest<()>) -> GrpcResponse<ServerMetadataResponse> {
    let document = metadata::server_metadata().await.0;
    let (name, version, extensions) = (document.name, document.version, document.extensions);
    GrpcResponse(ServerMetadataResponse { name, version, extensions })
}

/// Handles `ModelMetadata`.
pub(crate) async fn model_metadata(
    State(app): State<AppState>,
    GrpcRequest(request): GrpcRequest<ModelVersionRequest>,
) -> GrpcResult<ModelMetadataResponse> {
    let document = metadata::describe(&app, &request.reference()?).await?.0;
    let tensors = |tensors: Vec<OipTensorDocument>| {
        let describe = |OipTensorDocument { name, datatype, shape }| TensorDescription { name, datatype, shape };
        tensors.into_iter().map(describe).collect()
    };
    Ok(GrpcResponse(ModelMetadataResponse {
        name: document.name,
        versions: document.versions,
        platform: document.platform,
        inputs: tensors(document.inputs),
        outputs: tensors(document.outputs),
    }))
}

/// Handles `ModelConfig`.
pub(crate) async fn model_config(
    State(app): State<AppState>,
    GrpcRequest(request): GrpcRequest<ModelVersionRequest>,
) -> GrpcResult<ModelConfigResponse> {
    let document = model_config::describe_config(&app, &request.reference()?).await?.0;
    Ok(GrpcResponse(ModelConfigResponse { config: Some(config_message(document)) }))
}

fn config_message(document: OipConfigDocument) -> ModelConfigMessage {
    let signed = |dims: &[usize]| dims.iter().map(|&dim| i64::try_from(dim).unwrap_or(i64::MAX)).collect();
    let datatype = |tensor: &OipTensorConfig| {
        let at = CONFIG_DATATYPES.iter().position(|name| *name == tensor.data_type);
        at.and_then(|at| i32::try_from(at).ok()).unwrap_or(0)
    };
    let settings = ModelParameter { string_value: document.parameters.saggar.string_value };
    ModelConfigMessage {
        name: document.name,
        platform: document.platform,
        max_batch_size: i32::try_from(document.max_batch_size).unwrap_or(i32::MAX),
        input: document
            .input
            .iter()
            .map(|it| InputConfig {
                name: it.name.clone(),
                data_type: datatype(it),
                dims: signed(&it.dims),
                optional: it.optional.unwrap_or(false),
            })
            .collect(),
        output: document
            .output
            .iter()
            .map(|it| OutputConfig { name: it.name.clone(), data_type: datatype(it), dims: signed(&it.dims) })
            .collect(),
        dynamic_batching: Some(DynamicBatchingConfig {
            max_queue_delay_microseconds: document.dynamic_batching.max_queue_delay_microseconds,
        }),
        parameters: HashMap::from([("saggar".to_owned(), settings)]),
        backend: document.backend,
    }
}

/// Handles `ModelStatistics`. Without a name, the response has every version that is ready.
pub(crate) async fn model_statistics(
    State(app): State<AppState>,
    GrpcRequest(request): GrpcRequest<ModelVersionRequest>,
) -> GrpcResult<ModelStatisticsResponse> {
    let document = statistics::find_statistics(&app, &request.name, request.version())?.0;
    let model_stats = document.model_stats.into_iter().map(statistics_message).collect();
    Ok(GrpcResponse(ModelStatisticsResponse { model_stats }))
}

fn statistics_message(statistics: OipVersionStatistics) -> VersionStatisticsMessage {
    let duration = |sum: &OipDurationStatistics| Some(DurationMessage { count: sum.count, ns: sum.ns });
    let sums = &statistics.inference_stats;
    let inference_stats = InferenceStatisticsMessage {
        success: duration(&sums.success),
        fail: duration(&sums.fail),
        queue: duration(&sums.queue),
        compute_input: duration(&sums.compute_input),
        compute_infer: duration(&sums.compute_infer),
        compute_output: duration(&sums.compute_output),
        cache_hit: duration(&sums.cache_hit),
        cache_miss: duration(&sums.cache_miss),
    };
    let batches = statistics.batch_stats.iter().map(|batch| BatchStatisticsMessage {
        batch_size: batch.batch_size,
        compute_input: duration(&batch.compute_input),
        compute_infer: duration(&batch.compute_infer),
        compute_output: duration(&batch.compute_output),
    });
    let memory = statistics.memory_usage.iter().map(|usage| MemoryUsageMessage {
        kind: usage.kind.clone(),
        id: i64::try_from(usage.id).unwrap_or(i64::MAX),
        byte_size: usage.byte_size,
    });
    VersionStatisticsMessage {
        inference_stats: Some(inference_stats),
        batch_stats: batches.collect(),
        memory_usage: memory.collect(),
        name: statistics.name,
        version: statistics.version,
        last_inference: statistics.last_inference,
        inference_count: statistics.inference_count,
        execution_count: statistics.execution_count,
    }
}

/// Handles `RepositoryIndex`.
pub(crate) async fn repository_index(
    State(app): State<AppState>,
    GrpcRequest(request): GrpcRequest<RepositoryIndexRequest>,
) -> GrpcResult<RepositoryIndexResponse> {
    let item = |item: OipIndexItem| ModelIndexItem {
        name: item.name,
        version: item.version.unwrap_or_default(),
        state: item.state.unwrap_or_default(),
        reason: item.reason.unwrap_or_default(),
    };
    let models = repository::list_versions(&app, request.ready).into_iter().map(item).collect();
    Ok(GrpcResponse(RepositoryIndexResponse { models }))
}

/// Handles `RepositoryModelLoad`.
pub(crate) async fn repository_model_load(
    State(app): State<AppState>,
    actor: Actor,
    GrpcRequest(request): GrpcRequest<RepositoryModelRequest>,
) -> GrpcResult<()> {
    let RepositoryModelRequest { model_name, parameters, .. } = request;
    let parameters = parameters.into_iter().map(|(name, value)| (name, parameter_value(value)));
    repository::load_model(&app, &actor, &model_name, parameters).await?;
    Ok(GrpcResponse(()))
}

/// Handles `RepositoryModelUnload`.
pub(crate) async fn repository_model_unload(
    State(app): State<AppState>,
    actor: Actor,
    GrpcRequest(mut request): GrpcRequest<RepositoryModelRequest>,
) -> GrpcResult<()> {
    let dependents = request.parameters.remove("unload_dependents").map(parameter_value);
    repository::unload_model(&app, &actor, &request.model_name, dependents.as_ref()).await?;
    Ok(GrpcResponse(()))
}

fn parameter_value(parameter: RepositoryParameter) -> ParameterValue {
    match parameter.value {
        Some(RepositoryParameterValue::Bool(truth)) => ParameterValue::Truth(truth),
        Some(RepositoryParameterValue::Int64(number)) => {
            u64::try_from(number).map_or(ParameterValue::Other, ParameterValue::Whole)
        }
        Some(RepositoryParameterValue::Text(text)) => ParameterValue::Text(text),
        Some(RepositoryParameterValue::Bytes(_)) | None => ParameterValue::Other,
    }
}
