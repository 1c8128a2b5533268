//! The routes of the Open Inference Protocol.

use saggar_store::AccessAction;

use super::{infer, metadata, model_config, repository, statistics};
use crate::access::route_scopes::RouteRequirement;
use crate::http_protocol::{HttpProtocol, HttpRoute};

/// The Open Inference Protocol, version 2.
pub(crate) const OPEN_INFERENCE: HttpProtocol = HttpProtocol { routes };

fn routes() -> Vec<HttpRoute> {
    vec![
        HttpRoute::new("/v2").get(RouteRequirement::Key, metadata::server_metadata),
        HttpRoute::new("/v2/").get(RouteRequirement::Key, metadata::server_metadata),
        HttpRoute::new("/v2/health/live").get(RouteRequirement::Nothing, metadata::server_live),
        HttpRoute::new("/v2/health/ready").get(RouteRequirement::Nothing, metadata::server_ready),
        HttpRoute::new("/v2/models/{model}").get(RouteRequirement::Key, metadata::model_metadata),
        HttpRoute::new("/v2/models/{model}/ready").get(RouteRequirement::Key, metadata::model_ready),
        HttpRoute::new("/v2/models/{model}/config").get(RouteRequirement::Key, model_config::by_name),
        HttpRoute::new("/v2/models/{model}/infer").post(AccessAction::Predict, infer::infer_default_version),
        HttpRoute::new("/v2/models/{model}/stats").get(RouteRequirement::Key, statistics::model_statistics),
        HttpRoute::new("/v2/models/{model}/versions/{version}").get(RouteRequirement::Key, metadata::version_metadata),
        HttpRoute::new("/v2/models/{model}/versions/{version}/ready")
            .get(RouteRequirement::Key, metadata::version_ready),
        HttpRoute::new("/v2/models/{model}/versions/{version}/config")
            .get(RouteRequirement::Key, model_config::by_version),
        HttpRoute::new("/v2/models/{model}/versions/{version}/infer").post(AccessAction::Predict, infer::infer_version),
        HttpRoute::new("/v2/models/{model}/versions/{version}/stats")
            .get(RouteRequirement::Key, statistics::version_statistics),
        HttpRoute::new("/v2/models/stats").get(RouteRequirement::Key, statistics::all_statistics),
        HttpRoute::new("/v2/repository/index").post(RouteRequirement::Key, repository::index),
        HttpRoute::new("/v2/repository/models/{model}/load").post(AccessAction::LoadModel, repository::load),
        HttpRoute::new("/v2/repository/models/{model}/unload").post(AccessAction::UnloadModel, repository::unload),
    ]
}
