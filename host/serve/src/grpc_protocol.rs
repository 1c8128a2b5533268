//! The methods of gRPC, as routes.

use saggar_store::AccessAction;

use crate::access::route_scopes::RouteRequirement;
use crate::grpc::{health, reflection};
use crate::http_protocol::{HttpProtocol, HttpRoute};
use crate::oip::grpc as inference;

/// gRPC: the Open Inference Protocol, health and reflection. Reflection describes it; the OpenAPI document does not.
pub(crate) const GRPC: HttpProtocol = HttpProtocol { routes, areas: &[] };

fn routes() -> Vec<HttpRoute> {
    let key = RouteRequirement::Key;
    let probe = RouteRequirement::Nothing;
    let predict = AccessAction::Predict;
    vec![
        HttpRoute::new("/inference.GRPCInferenceService/ServerLive").post(probe, inference::server_live),
        HttpRoute::new("/inference.GRPCInferenceService/ServerReady").post(probe, inference::server_ready),
        HttpRoute::new("/inference.GRPCInferenceService/ModelReady").post(key, inference::model_ready),
        HttpRoute::new("/inference.GRPCInferenceService/ServerMetadata").post(key, inference::server_metadata),
        HttpRoute::new("/inference.GRPCInferenceService/ModelMetadata").post(key, inference::model_metadata),
        HttpRoute::new("/inference.GRPCInferenceService/ModelConfig").post(key, inference::model_config),
        HttpRoute::new("/inference.GRPCInferenceService/ModelStatistics").post(key, inference::model_statistics),
        HttpRoute::new("/inference.GRPCInferenceService/ModelInfer").post(predict, inference::model_infer),
        HttpRoute::new("/inference.GRPCInferenceService/ModelStreamInfer").post(predict, inference::model_stream_infer),
        HttpRoute::new("/inference.GRPCInferenceService/RepositoryIndex").post(key, inference::repository_index),
        HttpRoute::new("/inference.GRPCInferenceService/RepositoryModelLoad")
            .post(AccessAction::LoadModel, inference::repository_model_load),
        HttpRoute::new("/inference.GRPCInferenceService/RepositoryModelUnload")
            .post(AccessAction::UnloadModel, inference::repository_model_unload),
        HttpRoute::new("/grpc.health.v1.Health/Check").post(probe, health::check),
        HttpRoute::new("/grpc.health.v1.Health/Watch").post(key, health::watch),
        HttpRoute::new("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
            .post(key, reflection::server_reflection),
        HttpRoute::new("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
            .post(key, reflection::server_reflection),
    ]
}
